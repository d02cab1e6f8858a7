//! The discrete-event simulator: the loop, the front end, what is kept of each request, and the Result.
//!
//! Clients send requests through the front end to an engine; tokens come back the same way. The simulator owns time and nothing
//! else: arrivals are the workload's, decisions the engine's, prices the cost model's.
//!
//! Reading order: `run` is the way in, `support` the way to ask without a workload; `prepare` builds the engine; `simulation` is the loop, `outcome` what it is given and leaves, `front_end` and `live` are what it passes
//! through; `tally` turns records into samples, `objectives` judges them, `figures` and `result` into what a reader sees.

mod backlog;
mod calendar;
mod figures;
mod front_end;
mod histogram;
mod live;
mod objectives;
mod occupancy;
mod outcome;
mod prepare;
mod result;
mod run;
mod series;
mod shortfall;
mod simulation;
mod support;
mod tally;
mod validity;
mod world;

pub use figures::{Resources, figures};
pub use front_end::FrontEndCosts;
pub use outcome::{Ended, Frame, Observer, Outcome, Progress, SimulationError, Statistics};
pub use prepare::{Prepared, RunError, estimated_line, prepare, prepare_stated, problems};
pub use run::{Origin, Run, RunStatistics, run, run_offered, run_prepared};
pub use simulation::Simulation;
pub use support::{Flags, Question, Supported, Unsupported, WrongFlag, support};
pub use tally::Tally;
pub use world::{Tree, World, WorldError};
