//! The commands, one file each: its arguments and what it calls.

mod catalog;
mod compare;
mod completions;
mod compose;
mod convert;
mod coverage;
mod dashboard;
mod explain;
mod fields;
mod ledger;
mod metrics;
mod registry;
mod replay;
mod report;
mod run;
mod schema;
mod score;
mod support;
mod validate;
mod version;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// What every command answers.
pub(crate) type Outcome = Result<ExitCode, Failure>;

/// A command with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a scenario and print its Result
    Run(run::Args),
    /// Run a scenario with the requests of a trace instead of its own workload
    Replay(replay::Args),
    /// Turn a trace or another tool's description of a workload into another format, and check that it is the same workload
    Convert(convert::Args),
    /// Put several traces together as one
    Compose(compose::Args),
    /// Show what stands behind a run: settings, plan, memory, KV cache, and the price of a step
    Explain(explain::Args),
    /// Show a Result as a page that needs nothing else
    Report(report::Args),
    /// Check a scenario without running it, and say everything that is wrong with it
    Validate(validate::Args),
    /// Tell which models run on which chips, by which kernels, and how far the prices can be trusted
    Support(support::Args),
    /// Tell the same of a checkpoint of your own
    Onboard(support::OnboardArgs),
    /// Show the published facts that runs use, or derive a model's graph
    Catalog(catalog::Args),
    /// Show the coefficients that prices rest on: one entry, two registries side by side, or why an operation gets its entry
    Registry(registry::Args),
    /// List an engine's settings and what the port does with each
    Fields(fields::Args),
    /// List what an engine registers under a name, and what the port does with each item
    Coverage(coverage::Args),
    /// Predict measured deployments, and compare with what was measured
    Score(score::Args),
    /// Show a comparison as a page
    Dashboard(dashboard::Args),
    /// List the units of measurement, and which of them have a published role
    Ledger(ledger::Args),
    /// List the metrics with their units and definitions
    Metrics,
    /// Print the JSON Schema of a kind of document, or list the kinds
    Schema(schema::Args),
    /// Print the version, the engine releases that are modelled and the hashes of the data
    Version(version::Args),
    /// Print a shell's completion script
    Completions(completions::Args),
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Run(args) => run::run(&args),
            Self::Replay(args) => replay::run(&args),
            Self::Convert(args) => convert::run(&args),
            Self::Compose(args) => compose::run(&args),
            Self::Explain(args) => explain::run(&args),
            Self::Report(args) => report::run(&args),
            Self::Validate(args) => validate::run(&args),
            Self::Support(args) => support::run(&args),
            Self::Onboard(args) => support::onboard(&args),
            Self::Catalog(args) => catalog::run(&args),
            Self::Registry(args) => registry::run(&args),
            Self::Fields(args) => fields::run(&args),
            Self::Coverage(args) => coverage::run(&args),
            Self::Score(args) => score::run(&args),
            Self::Dashboard(args) => dashboard::run(&args),
            Self::Ledger(args) => ledger::run(&args),
            Self::Metrics => metrics::run(),
            Self::Schema(args) => schema::run(&args),
            Self::Version(args) => version::run(&args),
            Self::Completions(args) => completions::run::<crate::Arguments>(&args),
        }
    }
}

/// Prints data. A reader that has seen enough, such as `head`, is no failure.
fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Io { what: "stdout".to_owned(), error }),
        Ok(()) | Err(_) => Ok(ExitCode::SUCCESS),
    }
}

/// Tells the user something that is not data.
fn note(text: &str) {
    // Nobody is left to tell when stderr is closed.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
