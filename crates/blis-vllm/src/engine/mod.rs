//! The engine core as the simulator drives it: upstream's busy loop on simulated time.
//!
//! upstream: vllm `v1/engine/core.py::EngineCoreProc.run_busy_loop`, `step_with_batch_queue`, `step`
//!
//! The loop is one sequential thread. An iteration reads the input queue, schedules a step where there is something to schedule, and
//! then either goes round again, while the batch queue has room, or waits for the oldest batch and processes its output. Here each
//! stretch of host work is an interval of simulated time, and [`Engine::advance`] does what is due. Reading order: [`VllmEngine`],
//! `host` (the loop), [`gate`] (who is not let in), [`settings`] (what it is built from), `shape` (what the cost
//! model is asked), [`recorder`] (who may look on).
//!
//! When each kind of input takes effect: a request at the top of the loop, once the host is free; an abort there too, or, when it
//! arrives while the host waits for a batch, before that batch's output is processed. Upstream hands several aborts of one wait to the
//! scheduler as a set, in no fixed order; here they go in order of arrival.
//!
//! Left out: pausing, sleeping, data-parallel waves, start-up and shutdown.

pub mod gate;
mod host;
pub mod recorder;
pub mod settings;
mod shape;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use blis_contracts::engine::{Effects, Engine, EngineCounters, EngineSnapshot, Input};
use blis_contracts::environment::{Environment, PlanId};
use blis_contracts::plan::PoolPlan;
use blis_contracts::provenance::ResolvedSetting;
use blis_contracts::request::RequestSlot;
use blis_contracts::step::{RankStep, StepShape};
use blis_contracts::units::{Blocks, SimTime, Tokens};

use crate::cudagraph::CudaGraphs;
use crate::kv::manager::KvConfig;
use crate::sched::batch::Batch;
use crate::sched::scheduler::{Barrier, Output, Scheduler, SchedulerConfig};
use gate::{Gate, QueueLimits};
use host::{InFlight, Phase};
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
}

/// One vLLM engine core with its workers.
#[derive(Debug)]
pub struct VllmEngine {
    plan: PoolPlan,
    plan_id: PlanId,
    settings: Vec<ResolvedSetting>,
    graphs: CudaGraphs,
    scheduler: Scheduler,
    /// Inputs the loop has not read, with their times.
    inputs: VecDeque<(SimTime, Input)>,
    phase: Phase,
    /// Batches launched and not processed, oldest first.
    queue: VecDeque<InFlight>,
    /// Buffers of processed batches.
    spare: Vec<Batch>,
    /// When the accelerator has done all that was launched.
    device_free: SimTime,
    /// Calls of the step function.
    calls: u64,
    shape: StepShape,
    outputs: Vec<Output>,
    counters: EngineCounters,
    /// What the head of the waiting queue has been waiting behind, and since when.
    waiting_since: Option<(SimTime, Barrier)>,
    recorder: Option<Box<dyn Recorder>>,
    gate: Gate,
    /// Requests turned away since the last `advance`.
    turned_away: Vec<(RequestSlot, String)>,
}

impl VllmEngine {
    /// An engine that has just started up.
    pub fn new(parts: EngineParts) -> Self {
        let EngineParts { plan, plan_id, settings, scheduler, kv, graphs } = parts;
        Self {
            plan,
            plan_id,
            settings,
            graphs,
            scheduler: Scheduler::new(scheduler, kv),
            inputs: VecDeque::new(),
            phase: Phase::Idle,
            queue: VecDeque::new(),
            spare: Vec::new(),
            device_free: SimTime::ZERO,
            calls: 0,
            shape: StepShape { ranks: vec![RankStep::default()], stage: 0 },
            outputs: Vec::new(),
            counters: EngineCounters::default(),
            waiting_since: None,
            recorder: None,
            gate: Gate::default(),
            turned_away: Vec::new(),
        }
    }

    /// Limits what may be in the engine at once.
    #[must_use]
    pub fn with_queue_limits(mut self, limits: QueueLimits) -> Self {
        self.gate.limits = limits;
        self
    }

    /// Lets somebody look on; nothing a recorder does can change the run.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Box<dyn Recorder>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// The scheduler, to be looked at.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
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
        assert!(self.queue.len() <= self.scheduler.config().max_concurrent_batches as usize, "the batch queue holds at most its size");
        let ends: Vec<_> = self.queue.iter().filter(|in_flight| in_flight.batch.tokens > 0).map(|in_flight| in_flight.end).collect();
        assert!(ends.is_sorted(), "batches with tokens end in order");
        self.scheduler.check_invariants();
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
        self.inputs.push_back((now, input));
    }

    fn advance(&mut self, now: SimTime, environment: &mut dyn Environment, effects: &mut Effects) {
        effects.refused.append(&mut self.turned_away);
        self.run_host(now, environment, effects);
    }

    fn snapshot(&self) -> EngineSnapshot {
        let pool = self.scheduler.kv().pool();
        EngineSnapshot {
            running: u32::try_from(self.scheduler.running().len()).expect("fewer than 2^32 requests run"),
            waiting: u32::try_from(self.scheduler.waiting_count()).expect("fewer than 2^32 requests wait"),
            used_blocks: Blocks::new(u64::from(pool.usable_blocks() - pool.free_blocks())),
            usable_blocks: Blocks::new(u64::from(pool.usable_blocks())),
        }
    }

    fn counters(&self) -> EngineCounters {
        let kv = self.scheduler.kv();
        EngineCounters {
            preemptions: self.scheduler.preemptions(),
            prefix_queries: Tokens::new(kv.stats().queries),
            prefix_hits: Tokens::new(kv.stats().hits),
            blocks_allocated: Blocks::new(kv.pool().handed_out()),
            ..self.counters
        }
    }
}
