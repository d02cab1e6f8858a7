//! The scheduler: who runs in the next step, with how many tokens, and what the last step's output means.
//!
//! upstream: vllm `v1/core/sched/scheduler.py::Scheduler`; `v1/core/sched/async_scheduler.py::AsyncScheduler`
//!
//! Reading order: [`queue`] (the waiting queue), [`batch`] (what a step runs), then [`scheduler`], whose work is split between
//! `running`, `admission` and `output`.
//!
//! Drafts, adapters and grammars ([`speculation`], [`features`]) are decided here as upstream decides them, for the tracer; a launch line
//! that asks for them is refused, since nothing prices them.
//!
//! Left out, and refused where a configuration asks for it: encoder inputs, connectors, streaming sessions, pausing. Nothing that is left
//! can put a request that waits into possession of blocks, so upstream's second waiting queue, `kv_holding_waiting`, is always empty and
//! does not exist here.

mod admission;
pub mod batch;
pub mod features;
mod output;
pub mod queue;
mod running;
pub mod scheduler;
pub mod speculation;

#[cfg(test)]
mod tests;
