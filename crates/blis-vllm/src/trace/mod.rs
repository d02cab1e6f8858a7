//! The port's own trace of an oracle scenario, in the format the oracle records upstream's in (`oracle/FORMAT.md`).
//!
//! The engine is driven through the same trait as by the simulator; a recorder reads its state. Reading order: [`scenario`] (the file),
//! `setup` (the engine it asks for), [`run`] (the clock), `recorder` (the lines), [`metrics()`] (what a scrape reads).

mod block_sparse;
mod chunked;
mod compressed;
mod metrics;
mod model;
mod recorder;
pub mod scenario;
mod setup;
mod speculative;
mod two_heads;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use blis_contracts::engine::{Effects, Engine, Input};
use blis_contracts::environment::{Environment, EnvironmentError, MemoryBreakdown, PlanId};
use blis_contracts::model::ModelGraph;
use blis_contracts::plan::PoolPlan;
use blis_contracts::request::{Request, RequestId, RequestSlot, Segment};
use blis_contracts::step::{StepEstimate, StepShape};
use blis_contracts::units::SimTime;

use crate::engine::VllmEngine;
use crate::engine::recorder::Recorder;
use crate::kv::events::{Naming, TokenIds};
use crate::sched::features::{Features, Grammar, RequestFeatures};
pub use metrics::{Snapshot, metrics};
use recorder::{CoreOfTrace, TraceRecorder};
use scenario::{Scenario, ScenarioRequest};
use setup::Setup;
pub use setup::SetupError;

/// Runs a scenario and returns its trace, a line per call of the step function after the header: those of the first engine core, then
/// those of the next, and where requests went. `each_step` sees the engine between two instants.
pub fn run(scenario: &Scenario, each_step: &mut dyn FnMut(&VllmEngine)) -> Result<Vec<String>, SetupError> {
    let Setup { parts, features, header, naming } = setup::setup(scenario)?;
    let first = serde_json::to_string(&header).expect("a header has only text keys");
    let cores = parts.cores.count;
    let lines: Vec<Rc<RefCell<Vec<String>>>> = (0..cores).map(|_| Rc::default()).collect();
    let events = events(scenario);
    let names = events.names.clone();
    let (groups, asynchronous, lockstep) = (parts.kv.groups.len(), parts.scheduler.async_scheduling, parts.cores.lockstep.is_some());
    let grammars = scenario.requests.iter().any(|request| request.grammar.is_some());
    let recorders = (0..cores).zip(&lines).map(|(index, lines)| -> Box<dyn Recorder> {
        let core = CoreOfTrace { index: (cores > 1).then_some(index), lockstep, grammars };
        Box::new(TraceRecorder::new(names.clone(), groups, asynchronous, core, Rc::clone(lines)))
    });
    let recorders: Vec<_> = recorders.collect();
    let made = Setup { parts, features, header, naming };
    let routes = drive(scenario, made, events, recorders, &mut |_, _| {}, each_step);
    let routes = (cores > 1).then(|| serde_json::json!({ "routes": routes }).to_string());
    Ok(std::iter::once(first).chain(lines.iter().flat_map(|lines| lines.take())).chain(routes).collect())
}

/// Drives an engine through a scenario's events; answers which core each request went to. `tell` hears of an event as it happens,
/// `each_step` sees the engine between two instants.
fn drive(
    scenario: &Scenario,
    made: Setup,
    mut events: Events,
    recorders: Vec<Box<dyn Recorder>>,
    tell: &mut dyn FnMut(SimTime, &Input),
    each_step: &mut dyn FnMut(&VllmEngine),
) -> Vec<(String, u32)> {
    let features = Features { requests: events.features(scenario), ..made.features };
    let mut engine = VllmEngine::new(made.parts).with_features(&features).with_recorders(recorders);
    if let Some(naming) = made.naming {
        let output = events.output_ids.clone();
        engine = engine.with_kv_events(&Naming { tokens: TokenIds { output, ..naming.tokens }, ..naming });
    }
    let mut world = ScriptedDevice { base_us: scenario.step_time.base_us, per_token_us: scenario.step_time.per_token_us };
    let mut effects = Effects::default();
    let mut wake = None;
    let mut routes = Vec::new();
    while let Some(now) = [events.next_time(), wake].into_iter().flatten().min() {
        while events.next_time() == Some(now) {
            let input = events.pop();
            tell(now, &input);
            let request = if let Input::Request(request) = &input { Some(request.slot) } else { None };
            engine.deliver(now, input);
            routes.extend(request.and_then(|slot| Some((events.names[slot.0 as usize].clone(), engine.core_of(slot)?))));
        }
        effects.clear();
        engine.advance(now, &mut world, &mut effects);
        wake = effects.wake_at;
        each_step(&engine);
    }
    routes
}

/// Requests and aborts in order of time.
struct Events {
    queue: VecDeque<(SimTime, Input)>,
    /// The name of each slot.
    names: Vec<String>,
    /// The first token that each request generates, by its number.
    output_ids: Vec<u32>,
}

impl Events {
    fn next_time(&self) -> Option<SimTime> {
        self.queue.front().map(|(time, _)| *time)
    }

    /// What each request has, by its number; none where no request of the scenario has anything.
    fn features(&self, scenario: &Scenario) -> Vec<RequestFeatures> {
        let plain = |request: &ScenarioRequest| request.adapter.is_none() && request.grammar.is_none();
        if scenario.speculation.is_none() && scenario.requests.iter().all(plain) {
            return Vec::new();
        }
        let mut features = vec![RequestFeatures::default(); scenario.requests.len()];
        let requests = self.queue.iter().filter_map(|(_, input)| if let Input::Request(request) = input { Some(request) } else { None });
        for known in requests {
            let request = &scenario.requests[known.slot.0 as usize];
            let ready = |compile_us| SimTime::from_micros(request.arrival_us + compile_us);
            features[usize::try_from(known.id.0).expect("requests are numbered from 0")] = RequestFeatures {
                ordinal: known.slot.0,
                adapter: request.adapter,
                grammar: request.grammar.map(|grammar| Grammar { ready: ready(grammar.compile_us), fails: grammar.fails }),
            };
        }
        features
    }

    fn pop(&mut self) -> Input {
        self.queue.pop_front().expect("an event is due").1
    }
}

fn events(scenario: &Scenario) -> Events {
    let mut names: Vec<String> = scenario.requests.iter().map(|request| request.id.clone()).collect();
    // Identifiers compare as text upstream and as numbers here.
    let mut by_name: Vec<usize> = (0..names.len()).collect();
    by_name.sort_by_key(|index| (&scenario.requests[*index].id, *index));
    let first_output = |index: &usize| (1 << 29) + (u32::try_from(*index).expect("a scenario has fewer than 2^12 requests") << 16);
    let output_ids = by_name.iter().map(first_output).collect();
    let mut queue = Vec::new();
    for (rank, index) in by_name.into_iter().enumerate() {
        let request = &scenario.requests[index];
        queue.push((request.arrival_us, false, index, Input::Request(input(request, index, rank))));
    }
    for (index, abort) in scenario.aborts.iter().enumerate() {
        // The latest request of that name to have come by then; a slot of its own where there is none.
        let meant = (0..scenario.requests.len())
            .filter(|request| scenario.requests[*request].id == abort.id && scenario.requests[*request].arrival_us <= abort.at_us)
            .max_by_key(|request| scenario.requests[*request].arrival_us)
            .unwrap_or_else(|| {
                names.push(abort.id.clone());
                names.len() - 1
            });
        queue.push((abort.at_us, true, index, Input::Abort(slot(meant))));
    }
    queue.sort_by_key(|(time, is_abort, index, _)| (*time, *is_abort, *index));
    let queue = queue.into_iter().map(|(time, _, _, input)| (SimTime::from_micros(time), input)).collect();
    Events { queue, names, output_ids }
}

fn slot(index: usize) -> RequestSlot {
    RequestSlot(u32::try_from(index).expect("a scenario names fewer than 2^32 requests"))
}

fn input(request: &ScenarioRequest, index: usize, rank: usize) -> Request {
    let prompt: Vec<Segment> = request.prompt.clone();
    Request::new(RequestId(rank as u64), slot(index), SimTime::from_micros(request.arrival_us), prompt.into(), request.output_length)
        .with_max_tokens(Some(request.max_tokens))
        .with_priority(request.priority)
}

/// A device that takes the scenario's step time; host work takes none.
struct ScriptedDevice {
    base_us: u64,
    per_token_us: u64,
}

impl Environment for ScriptedDevice {
    fn graph(&self, model: &str) -> Result<&ModelGraph, EnvironmentError> {
        Err(EnvironmentError::UnknownModel { name: model.to_owned(), nearest: Vec::new() })
    }

    fn chip(&self, name: &str) -> Result<&blis_contracts::chip::Chip, EnvironmentError> {
        Err(EnvironmentError::UnknownChip { name: name.to_owned(), nearest: Vec::new() })
    }

    fn memory(&self, _: &PoolPlan) -> Result<MemoryBreakdown, EnvironmentError> {
        Err(EnvironmentError::Unpriced { what: "memory of a scripted device".to_owned() })
    }

    fn compile(&mut self, _: &PoolPlan) -> Result<PlanId, EnvironmentError> {
        Err(EnvironmentError::Unpriced { what: "a plan on a scripted device".to_owned() })
    }

    fn price(&mut self, _: PlanId, step: &StepShape) -> StepEstimate {
        let tokens: u64 = step.ranks.iter().map(blis_contracts::step::RankStep::tokens).sum();
        let micros = self.base_us + self.per_token_us * tokens;
        StepEstimate { device_ns: micros as f64 * 1e3, ..StepEstimate::default() }
    }
}
