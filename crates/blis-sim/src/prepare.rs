//! From a scenario to an engine that is about to start: names resolved, launch line read, KV sized.

use blis_catalog::CatalogError;
use blis_contracts::chip::Chip;
use blis_contracts::environment::MemoryBreakdown;
use blis_contracts::model::ModelGraph;
use blis_contracts::network::Network;
use blis_contracts::plan::{PoolPlan, PrimitiveShape};
use blis_contracts::provenance::ResolvedSetting;
use blis_contracts::scenario::{EngineChoice, ExpertRouting, Packaging, Pool, Scenario};
use blis_contracts::step::{PrefillRow, RankStep, StepShape};
use blis_contracts::strict::{Problem, did_you_mean};
use blis_kernel::{CostModel, PricedEnvironment, RoutingBalance};
use blis_registry::{ChipCoefficients, RegistryError};
use blis_vllm::config::{ConfigError, Launch, Place, Reading, Stated, read as read_strictly, read_estimating};
use blis_vllm::engine::VllmEngine;
use blis_vllm::startup::{KvPool, Site, StartError, Started, start};

use crate::outcome::SimulationError;
use crate::world::World;

/// The engines a scenario may name.
const ENGINE_KINDS: [&str; 1] = [blis_vllm::KIND];

/// A scenario up to the instant at which simulated time starts.
#[derive(Debug)]
pub struct Prepared {
    /// The engine.
    pub engine: VllmEngine,
    /// The world it runs in.
    pub environment: PricedEnvironment,
    /// Memory of one rank before any KV.
    pub memory: MemoryBreakdown,
    /// The KV pool.
    pub kv: KvPool,
    /// How tokens are taken to spread over experts, where the model has some.
    pub expert_routing: Option<ExpertRouting>,
    /// Spellings of another release that were translated, and what else the engine would warn about.
    pub notes: Vec<String>,
}

/// Why a scenario gives no Result.
#[derive(Debug, Clone, PartialEq)]
pub enum RunError {
    /// The scenario asks for something that cannot be: each problem at its place.
    Scenario(Problem),
    /// The engine does not start on its launch line: where that stands, with the engine's own error.
    Start(Problem, Box<StartError>),
    /// The run went wrong.
    Simulation(SimulationError),
}

impl From<SimulationError> for RunError {
    fn from(error: SimulationError) -> Self {
        match error {
            SimulationError::NothingArrives { .. } => Self::Scenario(Problem::new("frame.stop.horizon_s", error.to_string())),
            SimulationError::NothingMeasured { .. } => Self::Scenario(Problem::new("frame", error.to_string())),
            SimulationError::TooLong { .. } => Self::Scenario(Problem::new("frame.stop", error.to_string())),
            SimulationError::NoRequests => Self::Scenario(Problem::new("workload", error.to_string())),
            SimulationError::Stalled { .. } | SimulationError::Livelock { .. } => Self::Simulation(error),
        }
    }
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Scenario(problem) | Self::Start(problem, _) => write!(f, "{}: {}", problem.path, problem.message),
            Self::Simulation(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

impl Prepared {
    /// The plan the engine runs.
    pub fn plan(&self) -> &PoolPlan {
        blis_contracts::engine::Engine::plan(&self.engine)
    }

    /// A step of these requests as the engine launches it: its own rule gives padding and launch mode.
    ///
    /// `decode` has the tokens cached for each request that generates one.
    pub fn launched(&self, decode: &[u32], prefill: &[PrefillRow]) -> StepShape {
        let mut rank = RankStep { decode: decode.to_vec(), prefill: prefill.to_vec(), ..RankStep::default() };
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let requests = count(rank.requests() as u64);
        let dispatch = self.engine.graphs().dispatch(count(rank.tokens()), requests, rank.prefill.is_empty());
        rank.sampled = requests;
        rank.launch = dispatch.launch;
        rank.padded_tokens = dispatch.padded_tokens;
        StepShape { ranks: vec![rank], stage: 0 }
    }

    /// The settings in force.
    pub fn settings(&self) -> &[ResolvedSetting] {
        blis_contracts::engine::Engine::settings(&self.engine)
    }
}

/// Builds the engine of a validated scenario's one pool.
pub fn prepare(scenario: &Scenario, world: &World) -> Result<Prepared, RunError> {
    prepare_with(scenario, None, world)
}

/// The same, where what the launch line states has been read, and estimated, already.
pub fn prepare_stated(scenario: &Scenario, stated: &Stated, world: &World) -> Result<Prepared, RunError> {
    prepare_with(scenario, Some(stated), world)
}

/// Everything that keeps a validated scenario from starting, as far as it can be told at once: what one part of it gets wrong does not
/// hide what another does.
pub fn problems(scenario: &Scenario, world: &World) -> Vec<RunError> {
    match named(scenario, None, world) {
        Ok(parts) => parts.start(&scenario.pools[0]).err().into_iter().collect(),
        Err(found) => found,
    }
}

fn prepare_with(scenario: &Scenario, read: Option<&Stated>, world: &World) -> Result<Prepared, RunError> {
    let parts = named(scenario, read, world).map_err(|mut found| found.swap_remove(0))?;
    parts.start(&scenario.pools[0])
}

/// What a scenario names, found.
struct Parts {
    graph: ModelGraph,
    chip: Chip,
    packaging: Packaging,
    network: Option<Network>,
    group_path: String,
    coefficients: ChipCoefficients,
    expert_routing: Option<ExpertRouting>,
    stated: Stated,
}

/// Finds everything that the scenario names; every part that is not found is told.
fn named(scenario: &Scenario, read: Option<&Stated>, world: &World) -> Result<Parts, Vec<RunError>> {
    let pool = &scenario.pools[0];
    let choice = scenario.engine_of(pool);
    let group = scenario.group_of(pool).expect("a validated pool names its group");
    let group_path = scenario.cluster.path_of(&group.name);
    let hardware_path = format!("{group_path}.hardware");
    let model_path = if pool.model.is_some() { "pools[0].model" } else { "model" };

    let mut found = Vec::new();
    let engine = note(check_engine(choice, engine_path(pool)), &mut found);
    let chips = || world.catalog.chips().collect();
    let chip = world.catalog.chip(&group.hardware).map_err(|error| not_in_catalog(&hardware_path, &error, chips));
    let chip = note(chip, &mut found);
    let packaging = chip.as_ref().and_then(|chip| note(group.packaging(chip, &group_path).map_err(RunError::Scenario), &mut found));
    let networks = || world.catalog.networks().collect();
    let network = scenario.cluster.fabric().map(|name| {
        let network = world.catalog.network(name).map_err(|error| not_in_catalog("cluster.fabric", &error, networks));
        note(network, &mut found)
    });
    let models = || world.catalog.models().collect();
    let graph = world.catalog.model(scenario.model_of(pool)).map_err(|error| not_in_catalog(model_path, &error, models));
    let graph = note(graph, &mut found);
    let unpriced = |error: RegistryError| RunError::Scenario(Problem::new(hardware_path.as_str(), error.to_string()));
    let coefficients = chip.as_ref().and_then(|_| note(world.registry.chip(&group.hardware).map_err(unpriced), &mut found));
    let read_it = || read_line(pool, choice, read_strictly).map_err(|error| does_not_start(pool, &group_path, error.into()));
    let stated = match read {
        Some(stated) => Some(stated.clone()),
        None => engine.and_then(|()| note(read_it(), &mut found)),
    };
    if let (Some(stated), Some(graph)) = (&stated, &graph) {
        note(check_model(pool, stated, graph, world), &mut found);
    }
    match (chip, packaging, graph, coefficients, stated) {
        (Some(chip), Some(packaging), Some(graph), Some(coefficients), Some(stated)) if found.is_empty() => {
            let expert_routing = scenario.expert_routing;
            Ok(Parts { graph, chip, packaging, network: network.flatten(), group_path, coefficients, expert_routing, stated })
        }
        _ => Err(found),
    }
}

/// What was found; what was not is added to the others.
fn note<T>(result: Result<T, RunError>, found: &mut Vec<RunError>) -> Option<T> {
    result.map_err(|error| found.push(error)).ok()
}

/// Whether the launch line serves the model of the scenario.
fn check_model(pool: &Pool, stated: &Stated, graph: &ModelGraph, world: &World) -> Result<(), RunError> {
    if world.catalog.resolve(stated.model()) == Some(graph.name.as_str()) {
        return Ok(());
    }
    let names: Vec<String> = graph.aliases.iter().map(|name| format!("`{name}`")).collect();
    let (served, model, names) = (stated.model(), &graph.name, names.join(" or "));
    let message = format!("serves `{served}`, which is not `{model}`, the model of the scenario; launch lines call that {names}");
    Err(RunError::Scenario(Problem::new(launch_path(pool), message)))
}

impl Parts {
    /// Starts the engine.
    fn start(self, pool: &Pool) -> Result<Prepared, RunError> {
        let Self { graph, chip, packaging, network, group_path, coefficients, expert_routing, stated } = self;
        let (model, hardware) = (graph.name.clone(), chip.name.clone());
        let fabric = network.as_ref().map(|network| network.name.as_str());
        let site = Site { model: &model, hardware: &hardware, gpus: packaging.gpus_per_node, nodes: packaging.nodes, fabric };
        let prices = CostModel::new(&chip, coefficients, balance(expert_routing.unwrap_or(ExpertRouting::ASSUMED)));
        let prices = match &network {
            Some(network) => prices.on_network(network),
            None => prices,
        };
        let mut environment = PricedEnvironment::new(graph, chip, prices);
        let Started { engine, nodes, memory, kv, mut notes } =
            start(&stated, site, &mut environment).map_err(|error| does_not_start(pool, &group_path, error))?;
        notes.extend(idle_nodes(&group_path, packaging.nodes, nodes));
        let crossed = !blis_contracts::engine::Engine::plan(&engine).fabric.is_empty();
        notes.extend(network.filter(|_| !crossed).map(|network| unused_network(&network)));
        let experts =
            blis_contracts::engine::Engine::plan(&engine).layers.iter().any(|layer| matches!(layer.shape, PrimitiveShape::Moe { .. }));
        notes.extend(expert_routing.filter(|_| !experts).map(|_| "expert_routing has no effect: the model has no experts".to_owned()));
        let expert_routing = experts.then(|| expert_routing.unwrap_or(ExpertRouting::ASSUMED));
        Ok(Prepared { engine, environment, memory, kv, expert_routing, notes })
    }
}

/// The routing of a workload as the cost model takes it.
fn balance(routing: ExpertRouting) -> RoutingBalance {
    if routing.exponent > 0.0 { RoutingBalance::PowerLaw { exponent: routing.exponent } } else { RoutingBalance::Uniform }
}

/// What is told of nodes that no rank lies on.
fn idle_nodes(group_path: &str, there: u32, taken: u32) -> Option<String> {
    (there > taken).then(|| format!("{group_path}.nodes ({there}): the launch line takes {taken}, and the others have no effect"))
}

/// What is told of a network that no ranks exchange data over.
fn unused_network(network: &Network) -> String {
    format!("cluster.fabric ({}) has no effect: ranks that exchange data lie in one domain of links", network.name)
}

/// A name that the catalog does not know, with the one that was meant, or all there are.
fn not_in_catalog<'a>(path: &str, error: &CatalogError, known: impl Fn() -> Vec<&'a str>) -> RunError {
    let CatalogError::Unknown { kind, name, nearest, .. } = error else {
        return RunError::Scenario(Problem::new(path, error.to_string()));
    };
    let problem = Problem::new(path, format!("no {kind} `{name}` in the catalog"));
    let hint = nearest.first().map(|nearest| format!("did you mean `{nearest}`?")).or_else(|| did_you_mean(name, &known()));
    RunError::Scenario(match hint {
        Some(hint) => problem.with_hint(hint),
        None => problem,
    })
}

/// What the launch line of a scenario's one pool states, the engine's estimation rules in the place of what is not modelled.
pub fn estimated_line(scenario: &Scenario) -> Result<Reading, ConfigError> {
    let pool = &scenario.pools[0];
    read_line(pool, scenario.engine_of(pool), read_estimating)
}

/// Reads a pool's launch line.
fn read_line<T>(pool: &Pool, choice: &EngineChoice, read: impl FnOnce(Launch<'_>) -> Result<T, ConfigError>) -> Result<T, ConfigError> {
    let args = pool.args.as_ref().map(|args| args.clone().into_iter().collect());
    let env: Vec<(String, String)> = pool.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    read(Launch { command: pool.command.as_deref(), args: args.as_ref(), env: &env, written_for: choice.written_for.as_deref() })
}

/// An engine that does not start, at the part of the scenario that is why: the pool, or the group of machines at `group_path`.
fn does_not_start(pool: &Pool, group_path: &str, error: StartError) -> RunError {
    let path = match &error {
        StartError::Config(refusal) => match refusal.place() {
            Place::Variable(name) if pool.env.contains_key(name) => format!("pools[0].env.{name}"),
            Place::WrittenFor => format!("{}.written_for", engine_path(pool)),
            Place::Variable(_) | Place::Line => launch_path(pool).to_owned(),
        },
        StartError::TooFewNodes { .. } => format!("{group_path}.nodes"),
        StartError::NoNetwork { .. } => "cluster".to_owned(),
        StartError::Lowering(_)
        | StartError::Environment(_)
        | StartError::WeightsDoNotFit { .. }
        | StartError::BudgetExceedsFree { .. }
        | StartError::TooFewStates { .. }
        | StartError::Setting(_)
        | StartError::Kv(_) => launch_path(pool).to_owned(),
    };
    let problem = Problem::new(path, error.to_string());
    let unjoined = matches!(error, StartError::NoNetwork { .. });
    let hint = "name one that `blis catalog list` shows, as in `fabric: infiniband-ndr-400`";
    RunError::Start(if unjoined { problem.with_hint(hint) } else { problem }, Box::new(error))
}

fn engine_path(pool: &Pool) -> &'static str {
    if pool.engine.is_some() { "pools[0].engine" } else { "engine" }
}

fn launch_path(pool: &Pool) -> &'static str {
    if pool.command.is_some() { "pools[0].command" } else { "pools[0].args" }
}

fn check_engine(choice: &EngineChoice, path: &str) -> Result<(), RunError> {
    if !ENGINE_KINDS.contains(&choice.kind.as_str()) {
        let mut problem =
            Problem::new(format!("{path}.kind"), format!("no engine `{}`; there is {}", choice.kind, ENGINE_KINDS.join(", ")));
        if let Some(hint) = did_you_mean(&choice.kind, &ENGINE_KINDS) {
            problem = problem.with_hint(hint);
        }
        return Err(RunError::Scenario(problem));
    }
    match &choice.version {
        Some(version) if version != blis_vllm::RELEASE => {
            let message = format!(
                "{} {version} is not modelled; this program models {} {}. Leave `version` out, and state `written_for: \"{version}\"` if the launch line was written for that release",
                choice.kind,
                blis_vllm::KIND,
                blis_vllm::RELEASE,
            );
            Err(RunError::Scenario(Problem::new(format!("{path}.version"), message)))
        }
        Some(_) | None => Ok(()),
    }
}
