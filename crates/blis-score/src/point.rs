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
use crate::sweep::{Client, Sweep};

/// The name of the pool in every scenario made here.
pub const POOL: &str = "serve";
/// What a client's description says where it warmed up with copies of the first request.
const WARMED_UP: &str = "2*$CONC";

/// Requests in flight at most, as the client was told.
const MAX_CONCURRENCY: &str = "$CONC";
/// Requests sent a second, as the client was told: each is sent as soon as it may be in flight.
const REQUEST_RATE: &str = "inf";

/// Why a point gives no scenario.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PointError {
    /// A symbol of the launch line.
    #[error(transparent)]
    Symbol(#[from] SymbolError),
    /// The number of requests is no text.
    #[error("client.num_prompts is {0}, not a number of requests")]
    Requests(Value),
    /// Part of the client's frame is missing.
    #[error("{field} was not recorded")]
    NotRecorded {
        /// Which.
        field: &'static str,
    },
    /// The client did what the simulated one does not.
    #[error("{field} is {found}; only {wanted} is simulated")]
    OtherClient {
        /// Which part of its frame.
        field: &'static str,
        /// What it was told.
        found: Value,
        /// What the simulated one is told.
        wanted: Value,
    },
}

/// How a client's frame is not the simulated one's: so many requests in flight, each sent at once, each output as long as asked.
pub fn other_client(client: &Client) -> Vec<PointError> {
    let frame = [
        ("client.max_concurrency", &client.max_concurrency, Value::from(MAX_CONCURRENCY)),
        ("client.request_rate", &client.request_rate, Value::from(REQUEST_RATE)),
        ("client.ignore_eos", &client.ignore_eos, Value::from(true)),
    ];
    let differs = |(field, found, wanted): (&'static str, &Option<Value>, Value)| match found {
        None => Some(PointError::NotRecorded { field }),
        Some(found) if *found != wanted => Some(PointError::OtherClient { field, found: found.clone(), wanted }),
        Some(_) => None,
    };
    frame.into_iter().filter_map(differs).collect()
}

/// Whether the measured client warmed the engine up before the timed requests.
pub fn warms_up(sweep: &Sweep) -> bool {
    sweep.launch.client.warmups.starts_with(WARMED_UP)
}

/// The scenario of one point of a client that is [simulated as it was](other_client), without a warm-up, without the release its line was written for, and without the catalog's name of the
/// model, which the launch line names by checkpoint.
pub fn scenario(sweep: &Sweep, concurrency: u32) -> Result<Scenario, PointError> {
    let client = &sweep.launch.client;
    let no_count = || PointError::Requests(client.num_prompts.clone());
    let requests = match client.num_prompts.as_str() {
        Some(text) => count_at_concurrency(text, concurrency)?,
        None => client.num_prompts.as_u64().ok_or_else(no_count)?,
    };
    let env = sweep.launch.env.iter().map(|(name, value)| Ok((name.clone(), at_concurrency(value, concurrency)?)));
    Ok(Scenario {
        kind: ScenarioKind::Scenario,
        name: format!("{} {} c{concurrency}", sweep.scenario, sweep.label),
        seed: 0,
        model: String::new(),
        engine: EngineChoice { kind: sweep.framework.clone(), version: None, written_for: None },
        cluster: Cluster::Single(SingleGroup { hardware: sweep.gpu.clone(), nodes: 1, gpus_per_node: None, fabric: None }),
        pools: vec![Pool {
            name: POOL.to_owned(),
            role: Role::Both,
            on: None,
            replicas: 1,
            command: Some(at_concurrency(&sweep.launch.server_command, concurrency)?),
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
        expert_routing: None,
        frame: Frame { start: StartState::Empty, stop: Stop { requests: Some(requests), horizon_s: None }, measure: Measure::default() },
        objectives: IndexMap::new(),
        cost: None,
    })
}

/// The same scenario with the warm-up the client ran: two copies of the first request for each place in flight.
pub fn with_warm_up(mut scenario: Scenario) -> Scenario {
    if let Workload::Benchmark(BenchmarkClient::Inferencex(client)) = &mut scenario.workload {
        client.warmup = 2 * client.concurrency;
    }
    scenario
}
