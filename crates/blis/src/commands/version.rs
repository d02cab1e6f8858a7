//! `blis version`: what this binary is made of.

use super::{Outcome, print};

/// The arguments of `blis version`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    let facts = [("blis", env!("CARGO_PKG_VERSION").to_owned())];
    if args.json {
        let object: serde_json::Map<String, serde_json::Value> =
            facts.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        return print(&(serde_json::to_string_pretty(&object).expect("text is JSON") + "\n"));
    }
    print(&facts.map(|(name, value)| format!("{name} {value}\n")).concat())
}
