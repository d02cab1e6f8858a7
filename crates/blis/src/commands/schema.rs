//! `blis schema`: the JSON Schema of each kind of document, generated from the types that read or write it.

use blis_contracts::chip::Chip;
use blis_contracts::model::ModelGraph;
use blis_contracts::network::Network;
use blis_contracts::result::RunResult;
use blis_contracts::scenario::Scenario;
use blis_contracts::storage::StorageDevice;
use blis_score::compare::measured::{Measured, Peers};
use blis_score::ledger::ingest::{IngestReport, Unit};
use blis_score::ledger::roles::RoleLine;
use blis_score::prediction::Prediction;
use blis_score::summary::Summary;
use blis_score::sweep::Sweep;
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
    /// What became of a source's records
    IngestReport,
    /// A line of measurements
    Measured,
    /// A network of the catalog
    Network,
    /// A line of another estimator's answers
    Peers,
    /// A line of predictions
    Prediction,
    /// What a run gives
    Result,
    /// A line of a list of roles
    Role,
    /// What a run is given
    Scenario,
    /// A storage device of the catalog
    Storage,
    /// What a comparison says
    Summary,
    /// A line of a source's records
    Sweep,
    /// A line of the list of units
    Unit,
}

pub(super) fn run(args: &Args) -> Outcome {
    let schema = match args.kind {
        Some(Kind::Chip) => schema_for!(Chip),
        Some(Kind::Graph) => schema_for!(ModelGraph),
        Some(Kind::IngestReport) => schema_for!(IngestReport),
        Some(Kind::Measured) => schema_for!(Measured),
        Some(Kind::Network) => schema_for!(Network),
        Some(Kind::Peers) => schema_for!(Peers),
        Some(Kind::Prediction) => schema_for!(Prediction),
        Some(Kind::Result) => schema_for!(RunResult),
        Some(Kind::Role) => schema_for!(RoleLine),
        Some(Kind::Scenario) => schema_for!(Scenario),
        Some(Kind::Storage) => schema_for!(StorageDevice),
        Some(Kind::Summary) => schema_for!(Summary),
        Some(Kind::Sweep) => schema_for!(Sweep),
        Some(Kind::Unit) => schema_for!(Unit),
        None => {
            let names = Kind::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            return print(&names.fold(String::new(), |text, name| text + name.get_name() + "\n"));
        }
    };
    print(&(serde_json::to_string_pretty(&schema).expect("a schema is JSON") + "\n"))
}
