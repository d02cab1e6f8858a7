//! `blis score`: measured deployments, predicted and compared.

use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use blis_score::predict::predict;
use blis_score::sweep::read_sweeps;
use blis_sim::World;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Outcome, compare, print};
use crate::data::DataArgs;
use crate::failure::Failure;
use crate::interrupt;
use crate::pending::PendingFile;
use crate::taken;

/// The arguments of `blis score`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Predict every point of every unit: one JSON object a line, a refusal with its reason where it cannot be run
    Predict {
        /// The units, one JSON object a line
        #[arg(long, value_name = "FILE")]
        units: PathBuf,
        /// Where the predictions go; stdout where left out
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Threads; all processors where left out. The predictions do not depend on it
        #[arg(long, value_name = "N")]
        jobs: Option<NonZero<usize>>,
        #[command(flatten)]
        data: DataArgs,
    },
    /// Compare predictions with measurements: errors by what the points have in common, and what holds points back
    Compare(compare::Args),
}

pub(super) fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Compare(args) => compare::run(args),
        Command::Predict { units, out, jobs, data } => {
            interrupt::watch();
            taken::reading(units)?;
            let cannot_write = |path: &Path, error| Failure::input(format!("--out {}: cannot be written: {error}", path.display()), None);
            let file = out.as_ref().map(|path| PendingFile::create(path).map_err(|error| cannot_write(path, error))).transpose()?;
            let world = data.world()?;
            let lines = predictions(units, &world, jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get))?;
            let Some(mut file) = file else { return print(&lines) };
            let what = out.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
            let written = file.write_all(lines.as_bytes()).and_then(|()| file.complete());
            written.map(|()| ExitCode::SUCCESS).map_err(|error| Failure::Io { what, error })
        }
    }
}

/// The predictions, one JSON object a line.
fn predictions(units: &Path, world: &World, jobs: usize) -> Result<String, Failure> {
    let sweeps = read_sweeps(&compare::open(units)?).map_err(|error| Failure::input(error.to_string(), None))?;
    let points = sweeps.iter().map(|sweep| sweep.concurrency.len()).sum::<usize>();
    let style = ProgressStyle::with_template("{bar:40} {human_pos} of {human_len} points, {eta} left");
    let bar = ProgressBar::new(points as u64).with_style(style.expect("the template names keys that indicatif has"));
    let predictions = predict(&sweeps, jobs, world, &|done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let line = |prediction| serde_json::to_string(prediction).expect("a prediction has text keys and finite numbers") + "\n";
    Ok(predictions.iter().map(line).collect())
}
