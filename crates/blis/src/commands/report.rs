//! `blis report`: a Result as a page.

use std::path::PathBuf;

use blis_contracts::result::RunResult;
use blis_report::page::page;

use super::{Outcome, compare};
use crate::failure::Failure;

/// The arguments of `blis report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The Result, as `blis run --format json` prints it
    result: PathBuf,
    /// Where the page goes; stdout where left out
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let place = args.result.display();
    let text = std::fs::read_to_string(&args.result).map_err(|error| Failure::input(format!("{place}: {error}"), None))?;
    let result: RunResult = serde_json::from_str(&text).map_err(|error| {
        Failure::input(format!("{place}:{}: not a Result as this version writes it: {error}", error.line().max(1)), None)
    })?;
    compare::write(args.out.as_deref(), &page(&result))
}
