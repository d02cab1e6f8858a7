//! `blis score compare`: predictions against measurements.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use blis_score::Input;
use blis_score::compare::{Inputs, compare};

use super::{Outcome, print};
use crate::failure::Failure;
use crate::pending::PendingFile;
use crate::taken;

/// The arguments of `blis score compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The predictions, as `blis score predict` writes them
    predictions: PathBuf,
    /// The measurements, one sweep a line
    #[arg(long, value_name = "FILE")]
    measured: PathBuf,
    /// The units, one a line; without them nothing is known of a point but its lengths and concurrency
    #[arg(long, value_name = "FILE")]
    units: Option<PathBuf>,
    /// Other estimators' answers, one sweep a line
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
    /// Predictions to compare these with, point by point
    #[arg(long, value_name = "FILE")]
    base: Option<PathBuf>,
    /// Where the summary goes; stdout where left out
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let (predictions, measured) = (open(&args.predictions)?, open(&args.measured)?);
    let [units, peers, base] = [&args.units, &args.peers, &args.base].map(|path| path.as_deref().map(open).transpose());
    let (units, peers, base) = (units?, peers?, base?);
    let inputs =
        Inputs { predictions: &predictions, measured: &measured, units: units.as_ref(), peers: peers.as_ref(), base: base.as_ref() };
    let summary = compare(&inputs).map_err(|error| Failure::input(error.to_string(), None))?;
    let text = serde_json::to_string_pretty(&summary).expect("a summary has text keys and finite numbers") + "\n";
    write(args.out.as_deref(), &text)
}

/// Reads a file that an argument names.
pub(super) fn open(path: &Path) -> Result<Input, Failure> {
    taken::reading(path)?;
    Input::open(path).map_err(|error| Failure::input(error.to_string(), None))
}

/// Writes text to a file, whole or not at all, or prints it where no file is named.
pub(super) fn write(path: Option<&Path>, text: &str) -> Outcome {
    let Some(path) = path else { return print(text) };
    let mut file =
        PendingFile::create(path).map_err(|error| Failure::input(format!("{}: cannot be written: {error}", path.display()), None))?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.complete());
    written.map(|()| ExitCode::SUCCESS).map_err(|error| Failure::Io { what: path.display().to_string(), error })
}
