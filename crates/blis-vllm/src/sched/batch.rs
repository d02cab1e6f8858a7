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
    /// It entered the running list in this step.
    pub admission: Option<Entry>,
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
    /// Requests that were preempted while the batch was formed, in order.
    pub preempted: Vec<Slot>,
    /// Requests whose end the workers learn with this batch.
    pub finished: Vec<RequestId>,
}

impl Batch {
    /// Empties the batch, keeping its allocations.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.tokens = 0;
        self.prefill_tokens = 0;
        self.preempted.clear();
        self.finished.clear();
    }
}
