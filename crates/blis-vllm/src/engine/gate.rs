//! The front end's two limits on what may be in the engine at once.
//!
//! upstream: vllm `v1/engine/async_llm.py::AsyncLLM.check_admission`
//!
//! A request beyond a limit is answered with 503 when it arrives and never reaches the engine core. Upstream counts in the API server,
//! a message behind the core; here counts change with the core's own outputs.

/// The limits; absent ones do not limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueLimits {
    /// `max_num_queued_reqs`: requests that have not ended.
    pub requests: Option<u64>,
    /// `max_num_queued_tokens`: prompt tokens of requests without a first output token, beyond which no further one is taken.
    pub tokens: Option<u64>,
}

/// Why a request is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TurnedAway {
    /// Too many requests.
    #[error("503: the engine is currently busy and cannot accept new requests; please try again later or on a different instance")]
    Requests,
    /// Too many prompt tokens ahead.
    #[error("503: the engine has reached its prefill token backlog limit; please try again later or on a different instance")]
    Tokens,
}

/// The limits and what counts against them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Gate {
    pub(super) limits: QueueLimits,
    requests: u64,
    tokens: u64,
}

impl Gate {
    /// Takes a request with a prompt of so many tokens in, or turns it away.
    pub(super) fn enter(&mut self, prompt: u64) -> Result<(), TurnedAway> {
        if self.limits.requests.is_some_and(|limit| self.requests + 1 > limit) {
            return Err(TurnedAway::Requests);
        }
        if self.limits.tokens.is_some_and(|limit| self.tokens >= limit) {
            return Err(TurnedAway::Tokens);
        }
        self.requests += 1;
        self.tokens += prompt;
        Ok(())
    }

    /// A request has its first output token, or has ended without one.
    pub(super) fn prompt_done(&mut self, prompt: u64) {
        self.tokens -= prompt;
    }

    /// A request has ended.
    pub(super) fn leave(&mut self) {
        self.requests -= 1;
    }
}
