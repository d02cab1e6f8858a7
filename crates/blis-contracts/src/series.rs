//! What a run looked like over its simulated time: a fixed number of bins at most, whatever the run's length.
//!
//! Left out: single steps and requests, which are a timeline's and a per-request file's.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::StepTicket;

/// One pool over the whole run, in bins of equal length from its start; the last one ends with the run. Amounts are averages over each
/// bin, to four decimals.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Length of a bin, in seconds of simulated time.
    pub bin_s: f64,
    /// Requests that waited in the engine for a place in the batch.
    pub waiting: Vec<f64>,
    /// Requests that held one.
    pub running: Vec<f64>,
    /// Share of the usable KV blocks in use.
    pub kv_utilisation: Vec<f64>,
    /// Share of the time in which the accelerators ran a step of each kind, averaged over those of the pool: the kinds of a bin add up to 1
    /// at most. Steps that no request is in are of no kind.
    pub device: IndexMap<StepKind, Vec<f64>>,
}

/// The steps of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepMix {
    /// Steps launched.
    pub steps: u64,
    /// Requests in them, one request counted in each of its steps.
    pub requests: u64,
    /// Tokens they computed, padding not counted.
    pub tokens: u64,
    /// Accelerator time, in seconds: how long each step worked the accelerators that ran it, averaged over them, so that of the stages of a
    /// pipeline each counts for its part; added up over the steps of all engine cores, where these step on their own. Of steps in flight
    /// at the end of the run it counts what they had run.
    pub device_s: f64,
}

/// What the requests of a step were doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Each gained one token.
    Decode,
    /// All worked through their prompts.
    Prefill,
    /// Some of each.
    Mixed,
}

impl StepKind {
    /// Every kind, in the order of documents.
    pub const ALL: [Self; 3] = [Self::Decode, Self::Prefill, Self::Mixed];

    /// The kind of a launched step.
    pub const fn of(ticket: &StepTicket) -> Self {
        if ticket.prefill_tokens == 0 {
            Self::Decode
        } else if ticket.prefill_tokens == ticket.tokens {
            Self::Prefill
        } else {
            Self::Mixed
        }
    }

    /// The name documents and reports use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Prefill => "prefill",
            Self::Mixed => "mixed",
        }
    }
}
