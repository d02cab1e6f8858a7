//! The requests an engine knows: how far each has come, and when it stops.
//!
//! upstream: vllm `v1/request.py::Request`, `RequestStatus`; `v1/core/sched/utils.py::check_stop`
//!
//! A request lives in a recycled slot. What every step reads is one record of a cache line per slot ([`Progress`]); the rest lies
//! apart. A slot outlives its request while a batch that scheduled it is still in flight, as upstream's batch keeps the name of a
//! request that is gone.
//!
//! Left out: the states of remote KV and streaming input, repetition detection, `min_tokens` (the length a request
//! will generate is given, so it already honours them).

use std::collections::BTreeMap;

use blis_contracts::engine::FinishReason;
use blis_contracts::request::{Request, RequestId, RequestSlot};
use blis_contracts::units::SimTime;

use crate::kv::manager::Edges;

/// A request's index in the engine's own arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

impl Slot {
    /// The position in per-slot arrays.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Never scheduled.
    Waiting,
    /// In the running list.
    Running,
    /// Scheduled once, gave its blocks back, waits again.
    Preempted,
    /// Over; only a batch in flight may still name it.
    Finished,
}

/// What every step reads and writes of a request. Counts are tokens unless they say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Length of the prompt.
    pub prompt: u32,
    /// Known: the prompt and the outputs processed so far.
    pub tokens: u32,
    /// Known tokens at which the output limit is met: prompt plus `max_tokens`.
    pub limit: u32,
    /// Known tokens at which the last one is the end of sequence; `u32::MAX` where a stated output limit comes no later.
    pub stop_at: u32,
    /// Computed once every scheduled batch has run.
    pub computed: u32,
    /// Outputs that scheduled batches will add.
    pub placeholders: u32,
    /// Scheduled in batches whose output is not processed.
    pub in_flight: u32,
    /// Of these, scheduled before the last preemption: their outputs count, but move no other counter.
    pub stale: u32,
    /// Token count of a proven shared prefix that some group had not cached at admission; 0 for none.
    pub junction: u32,
    /// Batches in flight that name the request.
    pub batches: u32,
    /// Times it was preempted.
    pub preemptions: u32,
    /// When its blocks need a look.
    pub edges: Edges,
    /// The first step that may schedule it again.
    pub not_before: u32,
    /// Where it stands.
    pub status: Status,
    /// The last scheduled chunk leaves prompt tokens uncomputed.
    pub prefilling: bool,
    /// Skipped by the last look at the waiting queue.
    pub deferred: bool,
    /// Drafts that its next step is to verify.
    pub drafts: u8,
}

impl Progress {
    /// Outputs processed so far.
    #[inline]
    pub const fn outputs(&self) -> u32 {
        self.tokens - self.prompt
    }

    /// The drafts that a step of `tokens` tokens has room for. What it has no room for is made anew.
    #[inline]
    pub fn take_drafts(&mut self, tokens: u32) -> u8 {
        let drafts = std::mem::take(&mut self.drafts);
        if drafts == 0 {
            return 0;
        }
        let beyond = (self.computed + tokens).saturating_sub(self.tokens + self.placeholders);
        u8::try_from(beyond).map_or(drafts, |beyond| beyond.min(drafts))
    }

    /// Whether the output token just appended ends the request, and why.
    #[inline]
    pub fn check_stop(&self, max_model_len: u32) -> Option<FinishReason> {
        if self.tokens == self.stop_at {
            return Some(FinishReason::Stop);
        }
        (self.tokens >= max_model_len || self.tokens >= self.limit).then_some(FinishReason::Length)
    }
}

/// What is read only when a request comes, goes, or competes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its number in the run.
    pub id: RequestId,
    /// The index the simulator knows it by.
    pub external: RequestSlot,
    /// Scheduling priority; lower is more urgent.
    pub priority: i32,
    /// When it arrived.
    pub arrival: SimTime,
    /// Prompt tokens found in the cache at its first admission.
    pub cached_prompt: u32,
}

/// Why a request is not accepted.
///
/// upstream: vllm `v1/engine/input_processor.py::InputProcessor._validate_prompt_len`, `sampling_params.py::SamplingParams._verify_args`
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is nothing to compute.
    #[error("the decoder prompt cannot be empty")]
    EmptyPrompt,
    /// No output limit below one token makes sense.
    #[error("max_tokens must be at least 1, got 0")]
    NoOutput,
    /// The prompt alone is too long.
    #[error(
        "the decoder prompt (length {prompt}) is longer than the maximum model length of {max_model_len}; make sure that `max_model_len` is no smaller than the number of text tokens"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: u64,
        /// The limit.
        max_model_len: u32,
    },
    /// The prompt leaves no room for a first output token.
    #[error(
        "the decoder prompt (length {prompt}) plus the number of requested output tokens (at least 1) is longer than the maximum model length of {max_model_len}; make sure that `max_model_len` is no smaller than the number of text tokens (prompt + requested output tokens)"
    )]
    NoRoomForOutput {
        /// Tokens of the prompt.
        prompt: u64,
        /// The limit.
        max_model_len: u32,
    },
}

/// All requests of an engine.
#[derive(Debug, Default)]
pub struct Requests {
    progress: Vec<Progress>,
    identity: Vec<Identity>,
    vacant: Vec<Slot>,
    /// Own slot by the simulator's slot, of live requests alone: those of other cores have slots in between.
    by_external: BTreeMap<RequestSlot, Slot>,
}

impl Requests {
    /// Takes a request in, or says why not.
    pub fn add(&mut self, request: &Request, max_model_len: u32) -> Result<Slot, Refusal> {
        let progress = admit_checked(request, max_model_len)?;
        let identity =
            Identity { id: request.id, external: request.slot, priority: request.priority, arrival: request.arrival, cached_prompt: 0 };
        let slot = if let Some(slot) = self.vacant.pop() {
            self.progress[slot.index()] = progress;
            self.identity[slot.index()] = identity;
            slot
        } else {
            self.progress.push(progress);
            self.identity.push(identity);
            Slot(u32::try_from(self.progress.len() - 1).expect("fewer than 2^32 requests live at once"))
        };
        assert!(self.by_external.insert(request.slot, slot).is_none(), "request slot {} is in use", request.slot.0);
        Ok(slot)
    }

    /// The live request the simulator knows by `external`.
    pub fn find(&self, external: RequestSlot) -> Option<Slot> {
        self.by_external.get(&external).copied()
    }

    /// A request's counters.
    #[inline]
    pub fn progress(&self, slot: Slot) -> &Progress {
        &self.progress[slot.index()]
    }

    /// A request's counters, to be changed.
    #[inline]
    pub fn progress_mut(&mut self, slot: Slot) -> &mut Progress {
        &mut self.progress[slot.index()]
    }

    /// A request's identity.
    pub fn identity(&self, slot: Slot) -> &Identity {
        &self.identity[slot.index()]
    }

    /// A request's identity, to be changed.
    pub fn identity_mut(&mut self, slot: Slot) -> &mut Identity {
        &mut self.identity[slot.index()]
    }

    /// Marks a request as over. Its slot stays until no batch names it.
    pub fn finish(&mut self, slot: Slot) {
        self.progress[slot.index()].status = Status::Finished;
        self.by_external.remove(&self.identity[slot.index()].external);
    }

    /// Gives the slot of a finished request back, once no batch names it.
    pub fn recycle_if_unnamed(&mut self, slot: Slot) {
        let progress = &self.progress[slot.index()];
        if progress.status == Status::Finished && progress.batches == 0 {
            self.vacant.push(slot);
        }
    }

    /// Requests that have not ended.
    pub fn live(&self) -> impl Iterator<Item = (Slot, &Progress)> {
        self.by_external.values().map(|slot| (*slot, self.progress(*slot)))
    }

    /// Requests that have ended and are named by a batch.
    pub(crate) fn zombies(&self) -> usize {
        self.progress.iter().filter(|progress| progress.status == Status::Finished && progress.batches > 0).count()
    }

    /// Panics when a slot is neither live, vacant, nor named by a batch.
    pub fn check_invariants(&self) {
        let live = self.live().count();
        assert_eq!(live + self.zombies() + self.vacant.len(), self.progress.len(), "a slot is live, vacant or named by a batch");
    }
}

fn admit_checked(request: &Request, max_model_len: u32) -> Result<Progress, Refusal> {
    // A stated limit is judged before the prompt is looked at.
    if request.max_tokens == Some(0) {
        return Err(Refusal::NoOutput);
    }
    let long = request.prompt_tokens();
    let prompt = match u32::try_from(long) {
        Ok(0) => return Err(Refusal::EmptyPrompt),
        Ok(prompt) if prompt < max_model_len => prompt,
        Ok(prompt) if prompt == max_model_len => return Err(Refusal::NoRoomForOutput { prompt: long, max_model_len }),
        Ok(_) | Err(_) => return Err(Refusal::PromptTooLong { prompt: long, max_model_len }),
    };
    // An unset limit is what the context leaves; a stated one is cut to it.
    // upstream: vllm `entrypoints/serve/utils/api_utils.py::get_max_tokens`
    let room = max_model_len - prompt;
    let max_tokens = request.max_tokens.map_or(room, |stated| stated.min(room));
    let output_length = request.output_length_for_stop_check();
    // A request that fills its stated limit is cut off there; one that the context cuts off may end by itself on its very last token.
    let speaks_to_its_limit = request.max_tokens.is_some_and(|stated| output_length >= stated);
    assert!(output_length > 0, "request {} was generated with no output at all", request.id);
    Ok(Progress {
        prompt,
        tokens: prompt,
        limit: prompt + max_tokens,
        stop_at: if speaks_to_its_limit { u32::MAX } else { prompt.saturating_add(output_length) },
        computed: 0,
        placeholders: 0,
        in_flight: 0,
        stale: 0,
        junction: 0,
        batches: 0,
        preemptions: 0,
        edges: Edges::NOTHING,
        status: Status::Waiting,
        prefilling: false,
        not_before: 0,
        deferred: false,
        drafts: 0,
    })
}

#[cfg(test)]
mod tests;
