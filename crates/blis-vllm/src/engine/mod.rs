//! The engine as the simulator drives it: one serving endpoint with all its engine cores, each upstream's busy loop on simulated time.
//!
//! upstream: vllm `v1/engine/core.py::EngineCoreProc.run_busy_loop`, `DPEngineCoreProc.run_busy_loop`, `step_with_batch_queue`, `step`
//!
//! The loop is one sequential thread. An iteration reads the input queue, schedules a step where there is something to schedule, and
//! then either goes round again, while the batch queue has room, or waits for the oldest batch and processes its output. Here each
//! stretch of host work is an interval of simulated time, and [`Engine::advance`] does what is due. Reading order: [`VllmEngine`],
//! `cores` (who is due), `core` (the loop), `lockstep` (cores that share the experts of a mixture), `coordinator` (how requests find a
//! core), [`gate`] (who is not let in), [`settings`] (what it is built from), `shape` (what the cost model is asked), [`recorder`] (who may look on).
//!
//! When each kind of input takes effect: a request at the top of the loop, once the host is free; an abort there too, or, when it
//! arrives while the host waits for a batch, before that batch's output is processed. Upstream hands several aborts of one wait to the
//! scheduler as a set, in no fixed order; here they go in order of arrival. A request finds its core when it arrives.
//!
//! Left out: pausing, sleeping, start-up and shutdown.

mod coordinator;
mod core;
mod cores;
pub mod gate;
mod lockstep;
pub mod recorder;
pub mod settings;
mod shape;
mod tournament;

#[cfg(test)]
mod tests;

use blis_contracts::engine::{Effects, Engine, EngineCounters, EngineSnapshot, Input, StepTicket};
use blis_contracts::environment::{Environment, PlanId};
use blis_contracts::plan::{PoolPlan, PrimitiveShape};
use blis_contracts::provenance::ResolvedSetting;
use blis_contracts::request::RequestSlot;
use blis_contracts::step::{RankStep, StepEstimate, StepShape};
use blis_contracts::units::{Blocks, SimDuration, SimTime, Tokens};

use self::coordinator::{Counts, FrontEnds, Home, Notice, StartWave};
use self::core::{Core, CoreInput};
use self::cores::Cores;
use self::lockstep::Wave;
use crate::cudagraph::CudaGraphs;
use crate::kv::events::Naming;
use crate::kv::manager::KvConfig;
use crate::sched::features::Features;
use crate::sched::scheduler::{Scheduler, SchedulerConfig};
use gate::{Gate, QueueLimits};
use recorder::Recorder;

/// What an engine is built from, all of it resolved.
#[derive(Debug, Clone)]
pub struct EngineParts {
    /// The plan, as the cost model compiled it.
    pub plan: PoolPlan,
    /// Its compiled name.
    pub plan_id: PlanId,
    /// The settings in force, each with its source.
    pub settings: Vec<ResolvedSetting>,
    /// The scheduler's settings.
    pub scheduler: SchedulerConfig,
    /// The KV cache.
    pub kv: KvConfig,
    /// The captured graphs.
    pub graphs: CudaGraphs,
    /// The engine cores.
    pub cores: CoreLayout,
}

/// The engine cores of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreLayout {
    /// How many there are; the other parts of an engine are each core's.
    pub count: u32,
    /// Front-end processes that choose among them.
    pub front_ends: u32,
    /// How they keep step, where they share the experts of a mixture.
    pub lockstep: Option<Lockstep>,
}

impl CoreLayout {
    /// One core.
    pub const SINGLE: Self = Self { count: 1, front_ends: 1, lockstep: None };
}

/// How cores keep step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lockstep {
    /// `dp_sync_interval`: steps between two agreements on whether any core has requests.
    pub sync_interval: u64,
    /// `prefill_schedule_interval`: steps between those at which prompts may begin or go on.
    pub prefill_schedule_interval: u64,
}

/// One vLLM endpoint.
#[derive(Debug)]
pub struct VllmEngine {
    plan: PoolPlan,
    plan_id: PlanId,
    /// Whether preparing a step reads lengths back from the accelerator, which is done with the step before by then.
    reads_back: bool,
    settings: Vec<ResolvedSetting>,
    graphs: CudaGraphs,
    cores: Cores,
    shape: StepShape,
    counters: EngineCounters,
    gate: Gate,
    routes: Option<Routes>,
    /// Requests turned away since the last `advance`.
    turned_away: Vec<(RequestSlot, String)>,
}

/// How requests find a core, where there are several.
#[derive(Debug)]
struct Routes {
    front_ends: FrontEnds,
    /// Where the live request of each slot went.
    homes: Vec<Option<Home>>,
}

/// What a core sees of the world while it runs.
struct Around<'a> {
    plan_id: PlanId,
    reads_back: bool,
    graphs: &'a CudaGraphs,
    shape: &'a mut StepShape,
    counters: &'a mut EngineCounters,
    gate: &'a mut Gate,
    routes: Option<&'a mut Routes>,
    environment: &'a mut dyn Environment,
    effects: &'a mut Effects,
}

impl Around<'_> {
    fn ticket(&mut self, ticket: StepTicket) {
        self.effects.started.push(ticket);
        self.counters.steps += 1;
    }

    /// When the host has launched a step it began to prepare at `now`, where the accelerator is done with all before it at `free`.
    ///
    /// upstream: vllm `v1/attention/backends/utils.py::make_local_attention_virtual_batches`
    fn launched(&self, now: SimTime, free: SimTime, estimate: &StepEstimate) -> SimTime {
        let prepared = now + estimate.before();
        let ready = if self.reads_back { prepared.max(free) } else { prepared };
        ready + estimate.launch()
    }

    /// What the step last described takes on a later stage of the pipeline.
    fn of_stage(&mut self, stage: u32) -> StepEstimate {
        self.shape.stage = stage;
        let estimate = self.environment.price(self.plan_id, self.shape);
        self.shape.stage = 0;
        estimate
    }

    /// A request has ended; where it had been, if there are several cores.
    fn leave(&mut self, slot: RequestSlot) -> Option<Home> {
        self.gate.leave();
        let routes = self.routes.as_mut()?;
        Some(routes.homes[slot.0 as usize].take().expect("a live request has a core"))
    }

    /// The front ends learn that requests have ended.
    fn report(&mut self, ended: impl IntoIterator<Item = Home>) {
        if let Some(routes) = &mut self.routes {
            ended.into_iter().for_each(|home| routes.front_ends.ended(home));
        }
    }

    /// What the coordinator says to all cores.
    fn take_mail(&mut self) -> Vec<StartWave> {
        self.routes.as_mut().map(|routes| routes.front_ends.take_mail()).unwrap_or_default()
    }

    fn show(&mut self, now: SimTime, core: u32, counts: Counts, at: (u64, u64)) {
        let routes = self.routes.as_mut().expect("only one of several cores shows its counts");
        routes.front_ends.show(now, core, counts, at);
    }

    fn notify(&mut self, now: SimTime, core: u32, notice: Notice) {
        let routes = self.routes.as_mut().expect("only one of several cores has waves");
        routes.front_ends.notice(now, core, notice);
    }
}

impl VllmEngine {
    /// An engine that has just started up.
    pub fn new(parts: EngineParts) -> Self {
        let EngineParts { plan, plan_id, settings, scheduler, kv, graphs, cores } = parts;
        let several = cores.count > 1;
        let wave = |lockstep: Lockstep| Wave::new(lockstep.sync_interval, lockstep.prefill_schedule_interval);
        let cut = plan.layout.pipeline > 1;
        let core = |index| {
            let scheduler = Scheduler::new(scheduler.clone(), kv.clone());
            let core = Core::new(index, scheduler, cores.lockstep.map(wave), several);
            if cut { core.waiting_for_tokens() } else { core }
        };
        let ranks = if cores.lockstep.is_some() { cores.count } else { 1 };
        let front_ends = || FrontEnds::new(cores.count, cores.front_ends, cores.lockstep.is_some());
        let reads_back = plan.layers.iter().any(|layer| matches!(layer.shape, PrimitiveShape::Attention { chunk, .. } if chunk > 0));
        Self {
            plan,
            plan_id,
            reads_back,
            settings,
            graphs,
            cores: Cores::new((0..cores.count).map(core).collect()),
            shape: StepShape { ranks: vec![RankStep::default(); ranks as usize], stage: 0 },
            counters: EngineCounters::default(),
            gate: Gate::default(),
            routes: several.then(|| Routes { front_ends: front_ends(), homes: Vec::new() }),
            turned_away: Vec::new(),
        }
    }

    /// Limits what may be in the engine at once.
    #[must_use]
    pub fn with_queue_limits(mut self, limits: QueueLimits) -> Self {
        self.gate.limits = limits;
        self
    }

    /// Gives every core drafts, adapters or grammars, which a scenario cannot ask for: nothing prices them.
    #[must_use]
    pub fn with_features(mut self, features: &Features) -> Self {
        self.cores.iter_mut().for_each(|core| core.scheduler.set_features(features.clone()));
        self
    }

    /// Lets somebody look on at each core, in order; nothing a recorder does can change the run.
    #[must_use]
    pub fn with_recorders(mut self, recorders: impl IntoIterator<Item = Box<dyn Recorder>>) -> Self {
        for (core, recorder) in self.cores.iter_mut().zip(recorders) {
            core.recorder = Some(recorder);
        }
        self
    }

    /// Has every core keep a journal of its KV cache's events.
    #[must_use]
    pub fn with_kv_events(mut self, naming: &Naming) -> Self {
        self.cores.iter_mut().for_each(|core| core.scheduler.record_kv_events(naming.clone()));
        self
    }

    /// The schedulers of all cores, to be looked at.
    pub fn schedulers(&self) -> impl Iterator<Item = &Scheduler> {
        self.cores.iter().map(|core| &core.scheduler)
    }

    /// The settings that every core's scheduler has.
    pub fn scheduler_config(&self) -> &SchedulerConfig {
        self.schedulers().next().expect("an endpoint has a core").config()
    }

    /// The core that a live request went to.
    pub fn core_of(&self, slot: RequestSlot) -> Option<u32> {
        let Some(routes) = &self.routes else { return Some(0) };
        routes.homes.get(slot.0 as usize).copied().flatten().map(|home| home.core)
    }

    /// The captured graphs.
    pub fn graphs(&self) -> &CudaGraphs {
        &self.graphs
    }

    /// The plan's compiled name.
    pub fn plan_id(&self) -> PlanId {
        self.plan_id
    }

    /// Panics when the engine's parts disagree.
    pub fn check_invariants(&self) {
        self.cores.check_invariants();
    }

    /// The core an input is for, with the wave that a request's front end takes for current.
    fn route(&mut self, now: SimTime, input: &Input) -> (usize, u64) {
        let Some(routes) = &mut self.routes else { return (0, 0) };
        match input {
            Input::Request(request) => {
                let (home, wave) = routes.front_ends.route(now);
                let slot = request.slot.0 as usize;
                if slot >= routes.homes.len() {
                    routes.homes.resize(slot + 1, None);
                }
                routes.homes[slot] = Some(home);
                (home.core as usize, wave)
            }
            Input::Abort(slot) => (routes.homes.get(slot.0 as usize).copied().flatten().map_or(0, |home| home.core as usize), 0),
        }
    }

    /// Lets every core do what is due; answers whether there is more to do now.
    fn run_cores(&mut self, now: SimTime, environment: &mut dyn Environment, effects: &mut Effects) -> bool {
        let mut around = Around {
            plan_id: self.plan_id,
            reads_back: self.reads_back,
            graphs: &self.graphs,
            shape: &mut self.shape,
            counters: &mut self.counters,
            gate: &mut self.gate,
            routes: self.routes.as_mut(),
            environment,
            effects,
        };
        self.cores.run(now, &mut around)
    }
}

impl Engine for VllmEngine {
    fn plan(&self) -> &PoolPlan {
        &self.plan
    }

    fn settings(&self) -> &[ResolvedSetting] {
        &self.settings
    }

    fn deliver(&mut self, now: SimTime, input: Input) {
        if let Input::Request(request) = &input
            && let Err(reason) = self.gate.enter(request.prompt_tokens())
        {
            self.turned_away.push((request.slot, reason.to_string()));
            return;
        }
        let (core, wave) = self.route(now, &input);
        self.cores.tell(core, now, CoreInput::Client(input, wave));
        if let Some(routes) = &mut self.routes {
            self.cores.tell_all(now, &routes.front_ends.take_mail());
        }
    }

    fn advance(&mut self, now: SimTime, environment: &mut dyn Environment, effects: &mut Effects) {
        effects.refused.append(&mut self.turned_away);
        while self.run_cores(now, environment, effects) {}
        effects.wake_at = self.cores.wake();
    }

    fn snapshot(&self) -> EngineSnapshot {
        self.cores.snapshot()
    }

    fn counters(&self, until: SimTime) -> EngineCounters {
        let sum = |of: fn(&Scheduler) -> u64| self.schedulers().map(of).sum();
        // Cores in lockstep share the time at which their accelerators are free.
        let in_lockstep = self.cores.iter().len() as u64 * self.cores.device_free().as_micros().saturating_sub(until.as_micros());
        let alone: u64 = self.cores.iter().map(|core| core.ahead(until)).sum();
        EngineCounters {
            busy: SimDuration::from_micros(self.counters.busy.as_micros().saturating_sub(in_lockstep + alone)),
            preemptions: sum(Scheduler::preemptions),
            prefix_queries: Tokens::new(sum(|scheduler| scheduler.kv().stats().queries)),
            prefix_hits: Tokens::new(sum(|scheduler| scheduler.kv().stats().hits)),
            blocks_allocated: Blocks::new(sum(|scheduler| scheduler.kv().pool().handed_out())),
            ..self.counters
        }
    }
}
