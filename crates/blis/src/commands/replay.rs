//! `blis replay`: a scenario with the requests of a trace.

use std::path::{Path, PathBuf};

use super::Outcome;
use super::run::{OutputArgs, go};
use crate::data::DataArgs;
use crate::scenario::{ScenarioArgs, Senders};
use crate::trace::{self, TraceArgs};

/// The arguments of `blis replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// The trace, which takes the place of the scenario's workload
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    #[command(flatten)]
    reading: TraceArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    data: DataArgs,
}

pub(super) fn run(args: &Args) -> Outcome {
    let workload = args.reading.workload(&args.trace);
    let loaded = args.scenario.load_for(&workload)?;
    let file = trace::read(&workload, Path::new(""))?;
    go(&loaded, Senders::of(file), &args.scenario.edits, &args.output, &args.data)
}
