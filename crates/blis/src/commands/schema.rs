//! `blis schema`: the JSON Schema of each kind of document, generated from the types that read it.

use blis_contracts::result::RunResult;
use blis_contracts::scenario::Scenario;
use blis_contracts::strict::did_you_mean;
use schemars::{Schema, schema_for};

use super::{Outcome, print};
use crate::failure::Failure;

/// The kinds of document.
const KINDS: &[(&str, fn() -> Schema)] = &[("result", || schema_for!(RunResult)), ("scenario", || schema_for!(Scenario))];

/// The arguments of `blis schema`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The kind of document; every kind is listed where left out
    kind: Option<String>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
    let Some(kind) = &args.kind else {
        return print(&(names.join("\n") + "\n"));
    };
    let Some((_, schema)) = KINDS.iter().find(|(name, _)| name == kind) else {
        return Err(Failure::input(format!("no kind of document is called `{kind}`"), did_you_mean(kind, &names)));
    };
    print(&(serde_json::to_string_pretty(&schema()).expect("a schema is JSON") + "\n"))
}
