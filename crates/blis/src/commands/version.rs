//! `blis version`: what this binary is made of.

use blis_sim::World;
use serde_json::json;

use super::{Outcome, print};

/// The arguments of `blis version`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    let world = World::released();
    let facts = [
        ("blis", env!("CARGO_PKG_VERSION").to_owned()),
        (blis_vllm::KIND, blis_vllm::RELEASE.to_owned()),
        ("catalog", world.catalog.combined_hash()),
        ("registry", world.registry.combined_hash()),
        ("generator", blis_workload::random::GENERATOR.to_owned()),
    ];
    if !args.json {
        return print(&facts.map(|(name, value)| format!("{name} {value}\n")).concat());
    }
    let [blis, engine, catalog, registry, generator] = facts.map(|(_, value)| value);
    let document = json!({
        "blis": blis,
        "engines": {blis_vllm::KIND: engine},
        "catalog_sha256": catalog,
        "registry_sha256": registry,
        "generator": generator,
    });
    print(&(serde_json::to_string_pretty(&document).expect("text is JSON") + "\n"))
}
