//! `blis schema`: the JSON Schema of each kind of document, generated from the types that read or write it.

use blis_contracts::chip::Chip;
use blis_contracts::model::ModelGraph;
use blis_contracts::result::RunResult;
use blis_contracts::scenario::Scenario;
use blis_score::prediction::Prediction;
use clap::ValueEnum;
use schemars::schema_for;

use super::{Outcome, print};

/// The arguments of `blis schema`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The kind of document; every kind is listed where left out
    kind: Option<Kind>,
}

/// A kind of document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A chip of the catalog
    Chip,
    /// A model's graph, of the catalog
    Graph,
    /// A line of predictions
    Prediction,
    /// What a run gives
    Result,
    /// What a run is given
    Scenario,
}

pub(super) fn run(args: &Args) -> Outcome {
    let schema = match args.kind {
        Some(Kind::Chip) => schema_for!(Chip),
        Some(Kind::Graph) => schema_for!(ModelGraph),
        Some(Kind::Prediction) => schema_for!(Prediction),
        Some(Kind::Result) => schema_for!(RunResult),
        Some(Kind::Scenario) => schema_for!(Scenario),
        None => {
            let names = Kind::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            return print(&names.fold(String::new(), |text, name| text + name.get_name() + "\n"));
        }
    };
    print(&(serde_json::to_string_pretty(&schema).expect("a schema is JSON") + "\n"))
}
