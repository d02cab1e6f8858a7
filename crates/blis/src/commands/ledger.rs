//! `blis ledger`: which units of measurement there are, and which of them belong to a published role.

use std::path::PathBuf;

use blis_score::ledger::ingest::{Source, ingest};
use blis_score::ledger::roles::{published_lists, read_units};
use clap::Subcommand;

use super::Outcome;
use super::compare::{open, write};
use crate::failure::Failure;

/// The arguments of `blis ledger`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the units of a source's records, each with its identifier, identifying fields and role key
    Ingest {
        /// The source's records, one sweep a line
        records: PathBuf,
        /// The source's name, part of every identifier
        #[arg(long)]
        source: String,
        /// The state of the source that the records are: a commit, a hash, a run or a dated dump
        #[arg(long)]
        revision: String,
        /// Where the account of every record goes: read, merged, left out and why
        #[arg(long, value_name = "FILE")]
        report: PathBuf,
        /// Where the list goes; stdout where left out
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Print the identifiers of the units whose role may be published: `fit`, `anchor` and `report`
    Lists {
        /// The units, as `blis ledger ingest` lists them
        units: PathBuf,
        /// The role of each deployment, one a line
        #[arg(long, value_name = "FILE")]
        roles: PathBuf,
    },
}

pub(super) fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Ingest { records, source, revision, report, out } => {
            let source = Source { name: source.clone(), revision: revision.clone() };
            let (units, account) = ingest(&open(records)?, &source).map_err(|error| Failure::input(error.to_string(), None))?;
            let lines: Vec<String> = units.iter().map(|unit| serde_json::to_string(unit).expect("a unit is JSON") + "\n").collect();
            write(Some(report), &(serde_json::to_string_pretty(&account).expect("a report is JSON") + "\n"))?;
            write(out.as_deref(), &lines.concat())
        }
        Command::Lists { units, roles } => {
            let (units, roles) = (open(units)?, open(roles)?);
            let lists = read_units(&units).and_then(|units| published_lists(&units, &roles));
            let lists = lists.map_err(|error| Failure::input(error.to_string(), None))?;
            write(None, &(serde_json::to_string_pretty(&lists).expect("lists are JSON") + "\n"))
        }
    }
}
