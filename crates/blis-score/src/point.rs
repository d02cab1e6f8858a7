//! One point of a sweep as a scenario.
//!
//! The launch line and environment are copied as they ran. The client's warm-up is simulated only where its state survives it: with
//! prefix caching off, an engine that has drained its warm-up is an empty engine.

use blis_contracts::scenario::{
    BenchmarkClient, Cluster, EngineChoice, Frame, Inferencex, Measure, Pool, Role, Scenario, ScenarioKind, SingleGroup, StartState, Stop,
    Workload,
};
use indexmap::IndexMap;
use serde_json::Value;

use crate::launch::{SymbolError, at_concurrency, count_at_concurrency};
use crate::unit::Unit;

/// The name of the pool in every scenario made here.
pub const POOL: &str = "serve";
/// What a client's description says where it warmed up with copies of the first request.
const WARMED_UP: &str = "2*$CONC";

/// Why a point gives no scenario.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PointError {
    /// The engine is not modelled.
    #[error("engine `{0}` is not modelled")]
    Engine(String),
    /// The image names no release.
    #[error("image `{0}` names no release, so its launch line cannot be read in a release's spellings")]
    NoRelease(String),
    /// A symbol of the launch line.
    #[error(transparent)]
    Symbol(#[from] SymbolError),
    /// The number of requests is no text.
    #[error("client.num_prompts is {0}, not a number of requests")]
    Requests(Value),
}

/// Whether the measured client warmed the engine up before the timed requests.
pub fn warms_up(unit: &Unit) -> bool {
    unit.launch.client.warmups.starts_with(WARMED_UP)
}

/// The scenario of one point, without a warm-up and without the catalog's name of the model, which the launch line names by checkpoint.
pub fn scenario(unit: &Unit, concurrency: u32) -> Result<Scenario, PointError> {
    let client = &unit.launch.client;
    let no_count = || PointError::Requests(client.num_prompts.clone());
    let requests = match client.num_prompts.as_str() {
        Some(text) => count_at_concurrency(text, concurrency)?,
        None => client.num_prompts.as_u64().ok_or_else(no_count)?,
    };
    let env = unit.launch.env.iter().map(|(name, value)| Ok((name.clone(), at_concurrency(value, concurrency)?)));
    Ok(Scenario {
        kind: ScenarioKind::Scenario,
        name: format!("{} {} c{concurrency}", unit.scenario, unit.label),
        seed: 0,
        model: String::new(),
        engine: EngineChoice { kind: unit.framework.clone(), version: None, written_for: Some(release(unit)?) },
        cluster: Cluster::Single(SingleGroup { hardware: unit.gpu.clone(), nodes: 1, gpus_per_node: None }),
        pools: vec![Pool {
            name: POOL.to_owned(),
            role: Role::Both,
            on: None,
            replicas: 1,
            command: Some(at_concurrency(&unit.launch.server_command, concurrency)?),
            args: None,
            env: env.collect::<Result<IndexMap<_, _>, SymbolError>>()?,
            model: None,
            engine: None,
        }],
        workload: Workload::Benchmark(BenchmarkClient::Inferencex(Inferencex {
            isl: client.isl,
            osl: client.osl,
            concurrency,
            range_ratio: client.range_ratio,
            seed: client.seed,
            warmup: 0,
            num_prompts: None,
        })),
        frame: Frame { start: StartState::Empty, stop: Stop { requests: Some(requests), horizon_s: None }, measure: Measure::default() },
    })
}

/// The same scenario with the warm-up the client ran: two copies of the first request for each place in flight.
pub fn with_warm_up(mut scenario: Scenario) -> Scenario {
    if let Workload::Benchmark(BenchmarkClient::Inferencex(client)) = &mut scenario.workload {
        client.warmup = 2 * client.concurrency;
    }
    scenario
}

/// The release a unit ran, from its image's tag (`...:v0.22.0`, `...:v0.17.0-cu130`).
fn release(unit: &Unit) -> Result<String, PointError> {
    let image = &unit.launch.image;
    let no_release = || PointError::NoRelease(image.clone());
    let tag = image.rsplit_once(':').and_then(|(_, tag)| tag.strip_prefix('v')).ok_or_else(no_release)?;
    let release = tag.split(['-', '+']).next().unwrap_or(tag);
    let numeric =
        release.split('.').count() == 3 && release.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    numeric.then(|| release.to_owned()).ok_or_else(no_release)
}
