//! `blis validate`: everything that is wrong with a scenario.

use std::path::PathBuf;

use super::{Outcome, print};
use crate::scenario::Loaded;

/// The arguments of `blis validate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The scenario
    scenario: PathBuf,
    /// Change a value first, as in `pools[0].env.NAME="1"`; may be repeated
    #[arg(long = "set", value_name = "PATH=VALUE")]
    edits: Vec<String>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let loaded = Loaded::open(&args.scenario, &args.edits)?;
    print(&format!("{}: `{}` is a valid scenario\n", args.scenario.display(), loaded.scenario.name))
}
