//! Measured deployments become scenarios and predictions, and predictions meet measurements.
//!
//! The only code that compares simulation with measurement. A sweep is what was run: its launch line with the concurrency
//! left symbolic, and its client. Each of its points becomes a scenario and a line of predictions; no measured latency is read on that
//! way. Only [`compare`] reads measurements, and what it says is a [`summary`].
//!
//! Reading order: [`sweep`] (the input), [`launch`] (the symbolic launch line at one concurrency), [`point`] (a point as a scenario),
//! [`grade`] (reasons and grades), `recorded` and `refusal` (where reasons come from), [`predict`] (the points, in order, on several threads), [`prediction`] (the output line); then [`ledger`] (which units there are),
//! [`compare`], [`summary`] (what it says), `backlog` (what holds points back), [`dashboard`] (the summary as a page).

pub mod sweep;

pub mod launch;
pub mod point;

pub mod grade;
mod recorded;
mod refusal;

pub mod predict;
pub mod prediction;

pub mod ledger;

pub mod compare;
pub mod summary;

mod backlog;

pub mod dashboard;

pub mod output;

mod jsonl;
pub use jsonl::{Input, InputError};
