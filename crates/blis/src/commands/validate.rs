//! `blis validate`: everything that is wrong with a scenario, up to the instant at which simulated time would start.

use super::{Outcome, print};
use crate::data::DataArgs;
use crate::failure::Failure;
use crate::scenario::ScenarioArgs;

/// The arguments of `blis validate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    #[command(flatten)]
    data: DataArgs,
}

pub(super) fn run(args: &Args) -> Outcome {
    let loaded = args.scenario.load()?;
    let problems = blis_sim::problems(&loaded.scenario, &args.data.world()?);
    let failures = problems
        .into_iter()
        .map(|error| loaded.run_failure(error))
        .chain(loaded.senders().and_then(|senders| loaded.check_classes(&senders)).err());
    Failure::of_all(failures.collect())?;
    print(&format!("{}: `{}` is a valid scenario\n", args.scenario.path.display(), loaded.scenario.name))
}
