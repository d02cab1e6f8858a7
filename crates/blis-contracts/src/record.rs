//! What is kept of each request: one record, written once, from which every latency figure and every per-request file derives.

use serde::Serialize;

use crate::fate::Fate;
use crate::request::RequestId;
use crate::units::SimTime;

/// One request of a run, as its client saw it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestRecord {
    /// Its number in the run.
    #[serde(skip)]
    pub id: RequestId,
    /// The client that sent it, by index in the workload.
    pub client: u32,
    /// Its index in that client's order.
    pub index: u64,
    /// Whether it belonged to the warm-up.
    pub warm_up: bool,
    /// How it ended.
    pub fate: Fate,
    /// Why the engine refused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// When the client sent it.
    pub sent: SimTime,
    /// When the engine received it.
    pub received: Option<SimTime>,
    /// When it was first scheduled.
    pub scheduled: Option<SimTime>,
    /// When the client saw its first token.
    pub first_token: Option<SimTime>,
    /// When the client saw its last token so far.
    pub last_token: Option<SimTime>,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Prompt tokens found in the prefix cache at its first admission.
    pub cached_tokens: u64,
    /// Tokens the client received.
    pub output_tokens: u64,
    /// How often it lost its progress.
    pub preemptions: u32,
}

impl RequestRecord {
    /// Time to first token, in microseconds.
    pub fn ttft_us(&self) -> Option<u64> {
        self.first_token.map(|first| first.since(self.sent).as_micros())
    }

    /// Time per output token after the first, in microseconds; `None` before the request has completed with two tokens.
    pub fn tpot_us(&self) -> Option<f64> {
        let (first, last) = (self.first_token?, self.last_token?);
        let gaps = self.output_tokens.checked_sub(1).filter(|gaps| *gaps > 0)?;
        (self.fate == Fate::Completed).then(|| last.since(first).as_micros() as f64 / gaps as f64)
    }

    /// Time to the last token of a completed request, in microseconds.
    pub fn e2el_us(&self) -> Option<u64> {
        let last = self.last_token?;
        (self.fate == Fate::Completed).then(|| last.since(self.sent).as_micros())
    }

    /// Time from arrival at the engine to being scheduled, in microseconds.
    pub fn queue_delay_us(&self) -> Option<u64> {
        Some(self.scheduled?.since(self.received?).as_micros())
    }
}
