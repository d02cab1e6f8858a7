//! Measured deployments become scenarios and predictions.
//!
//! The only code that will compare simulation with measurement; so far it predicts. A unit is one sweep as it was run: its launch line
//! with the concurrency left symbolic, and its client. Each of its points becomes a scenario and a line of predictions. No measured
//! latency is read anywhere here.
//!
//! Reading order: [`unit`] (the input), [`launch`] (the symbolic launch line at one concurrency), [`point`] (a point as a scenario),
//! [`predict`] (the points, in order, on several threads), [`prediction`] (the output line).

pub mod unit;

pub mod launch;
pub mod point;

pub mod predict;
pub mod prediction;
