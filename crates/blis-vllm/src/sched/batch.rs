//! What one step runs.
//!
//! upstream: vllm `v1/core/sched/output.py::SchedulerOutput`

use blis_contracts::request::RequestId;

use crate::request::Slot;

/// One request's part of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The request.
    pub slot: Slot,
    /// Tokens to compute.
    pub tokens: u32,
    /// Tokens computed before them.
    pub context: u32,
    /// The step yields an output token for it.
    pub samples: bool,
    /// It works through known tokens: its prompt, or a repeat of what a preemption threw away.
    pub prefill: bool,
    /// Of its tokens, the last ones that were drafted and are to be verified.
    pub drafts: u8,
    /// It entered the running list in this step.
    pub admission: Option<Entry>,
}

/// Of how many drafts of a request a step's masks and the device know anything, where that is not all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mask {
    /// The request.
    pub slot: Slot,
    /// Leading drafts that can be accepted.
    pub allowed: u8,
    /// Drafts that its grammar made void; they count as not drafted.
    pub void: u8,
}

/// How a request entered the running list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// For the first time.
    First,
    /// After a preemption.
    Resumed,
}

/// A step's requests: first those that were running, then those admitted. The buffers are reused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The requests, in upstream's order.
    pub rows: Vec<Row>,
    /// Tokens over all rows.
    pub tokens: u32,
    /// Of these, tokens of rows that prefill.
    pub prefill_tokens: u32,
    /// Rows that yield an output token.
    pub sampled: u32,
    /// Rows of anything but one token behind others.
    pub prefill_rows: u32,
    /// Requests that were preempted while the batch was formed, in order.
    pub preempted: Vec<Slot>,
    /// Requests whose end the workers learn with this batch.
    pub finished: Vec<RequestId>,
    /// Requests of which not every draft can be accepted.
    pub masks: Vec<Mask>,
    /// Drafts that the step makes for each request.
    pub next_drafts: u8,
    /// Masks wait for tokens that are in flight: it is sampled once the step before has been processed.
    pub waits_for_tokens: bool,
}

impl Row {
    /// Whether kernels take it for a decode: one token behind others.
    #[inline]
    pub const fn is_decode(&self) -> bool {
        self.tokens == 1 && self.context > 0
    }
}

impl Batch {
    /// Empties the batch, keeping its allocations.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.tokens = 0;
        self.prefill_tokens = 0;
        self.sampled = 0;
        self.prefill_rows = 0;
        self.preempted.clear();
        self.finished.clear();
        self.masks.clear();
        self.next_drafts = 0;
        self.waits_for_tokens = false;
    }

    /// Leading drafts of a row that can be accepted.
    pub fn allowed(&self, row: &Row) -> u8 {
        self.masks.iter().find(|mask| mask.slot == row.slot).map_or(row.drafts, |mask| mask.allowed)
    }
}
