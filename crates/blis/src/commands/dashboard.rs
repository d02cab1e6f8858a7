//! `blis dashboard`: a summary as a page.

use std::path::PathBuf;

use blis_score::dashboard::{self, DashboardError};
use clap::Subcommand;

use super::compare::open;
use super::{Outcome, print};
use crate::failure::Failure;

/// The arguments of `blis dashboard`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the site of a summary: one page that needs nothing else, and the summary beside it
    Build {
        /// The summary, as `blis score compare` writes it
        summary: PathBuf,
        /// The site's folder
        #[arg(long, value_name = "FOLDER")]
        out: PathBuf,
    },
}

pub(super) fn run(args: &Args) -> Outcome {
    let Command::Build { summary, out } = &args.command;
    dashboard::build(&open(summary)?, out).map_err(|error| match error {
        DashboardError::Summary(error) => Failure::input(error.to_string(), None),
        DashboardError::Folder { .. } | DashboardError::Output(_) => Failure::Run(error.to_string()),
    })?;
    print(&format!("{}\n", out.join("index.html").display()))
}
