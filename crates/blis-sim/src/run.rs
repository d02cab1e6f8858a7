//! One run: a scenario in, a Result out.

use blis_contracts::engine::Engine;
use blis_contracts::result::RunResult;
use blis_contracts::scenario::Scenario;
use blis_contracts::strict::Problem;
use blis_contracts::units::{SimDuration, SimTime};
use blis_kernel::FrontEndPrice;
use blis_workload::source::Source;
use blis_workload::sources;

use crate::front_end::FrontEndCosts;
use crate::objectives::Objectives;
use crate::outcome::{Frame, Observer, Statistics};
use crate::prepare::{Prepared, RunError, prepare};
use crate::result::{Finished, assemble};
use crate::simulation::Simulation;
use crate::world::World;

/// What the caller knows of the document a scenario was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// SHA-256 of the document, in hexadecimal.
    pub scenario_sha256: String,
    /// Edits made to it, in order.
    pub edits: Vec<String>,
    /// SHA-256 of the trace that is replayed, in hexadecimal, where one is.
    pub trace_sha256: Option<String>,
}

/// What a run gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The Result.
    pub result: RunResult,
    /// Counts of the run's own work.
    pub statistics: RunStatistics,
}

/// Counts of a run's own work: they move when the program's work does, whatever the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunStatistics {
    /// The event loop's.
    pub events: Statistics,
    /// Steps priced.
    pub steps: u64,
    /// Prices worked out and remembered.
    pub cells: usize,
    /// KV blocks taken from the pool.
    pub blocks_allocated: u64,
}

/// Runs a validated scenario, with the sources of its own workload.
pub fn run(scenario: &Scenario, origin: &Origin, world: &World, observer: &mut dyn Observer) -> Result<Run, RunError> {
    run_prepared(scenario, prepare(scenario, world)?, origin, world, observer)
}

/// Runs what was prepared from a validated scenario.
pub fn run_prepared(
    scenario: &Scenario,
    prepared: Prepared,
    origin: &Origin,
    world: &World,
    observer: &mut dyn Observer,
) -> Result<Run, RunError> {
    let offered = sources(&scenario.workload, scenario.frame.stop.requests, scenario.seed)
        .map_err(|error| RunError::Scenario(Problem::new(error.path, error.message)))?;
    go(scenario, prepared, offered.sources, origin, world, observer)
}

/// Runs a validated scenario with the sources given, whatever its workload says.
pub fn run_offered(
    scenario: &Scenario,
    sources: Vec<Box<dyn Source>>,
    origin: &Origin,
    world: &World,
    observer: &mut dyn Observer,
) -> Result<Run, RunError> {
    go(scenario, prepare(scenario, world)?, sources, origin, world, observer)
}

/// Runs what was prepared, with the sources given.
fn go(
    scenario: &Scenario,
    prepared: Prepared,
    sources: Vec<Box<dyn Source>>,
    origin: &Origin,
    world: &World,
    observer: &mut dyn Observer,
) -> Result<Run, RunError> {
    let Prepared { engine, mut environment, memory, kv, expert_routing, notes } = prepared;
    let plan = engine.plan().clone();
    let settings = engine.settings().to_vec();
    let price =
        environment.cost_model().front_end(&plan).map_err(|error| RunError::Scenario(Problem::new("pools[0]", error.to_string())))?;
    let plan_id = engine.plan_id();
    let usable_blocks = engine.snapshot().usable_blocks.get();
    let objectives = Objectives::of(scenario, &sources);
    let simulation = Simulation::new(sources, Box::new(engine), costs(&price), frame(scenario), &mut environment, observer);
    let outcome = simulation.judging(objectives).run()?;
    let compiled = environment.plan(plan_id);
    let statistics = RunStatistics {
        events: outcome.statistics,
        steps: compiled.steps(),
        cells: compiled.cells_filled(),
        blocks_allocated: outcome.engine.blocks_allocated.get(),
    };
    let finished = Finished { outcome, plan, settings, notes, memory, kv, expert_routing, usable_blocks, prices: compiled.totals() };
    Ok(Run { result: assemble(scenario, origin, world, finished), statistics })
}

fn frame(scenario: &Scenario) -> Frame {
    let stop = &scenario.frame.stop;
    let horizon = stop.horizon_s.map(|seconds| SimTime::ZERO + SimDuration::from_nanoseconds(seconds * 1e9));
    Frame { requests: stop.requests, horizon, discard_first: scenario.frame.measure.discard_first }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "host work is a small non-negative number of nanoseconds")]
fn costs(price: &FrontEndPrice) -> FrontEndCosts {
    let whole = |ns: f64| libm::round(ns) as u64;
    FrontEndCosts {
        per_request_ns: whole(price.per_request_ns),
        per_prompt_token_ns: whole(price.per_prompt_token_ns),
        tokenise_token_ns: whole(price.tokenise_token_ns),
        per_response_ns: whole(price.per_response_ns),
        per_step_ns: whole(price.per_step_ns),
        per_output_ns: whole(price.per_output_token_ns),
        per_chunk_ns: whole(price.per_chunk_ns),
    }
}
