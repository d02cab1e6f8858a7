//! Engine cores of a mixture of experts, which share the experts and so launch every step together.
//!
//! upstream: vllm `v1/engine/core.py::DPEngineCoreProc`; `v1/worker/gpu/dp_utils.py::sync_cudagraph_and_dp_padding`
//!
//! A core whose call ran no batch runs a step of one token without a request instead, while any core has requests. Before each step
//! the workers agree over the host on graph and padding, so no core launches before the last has come; the step ends on all at once,
//! because each layer's experts wait for every rank. Every few steps the cores agree on whether any has requests left; when none has,
//! the wave is over and the first core tells the coordinator.
//!
//! Upstream waits for the others in the worker: with several ranks per core its loop could process an older output meanwhile, which it
//! does afterwards here. Pausing and elastic scaling are left out.

use blis_contracts::engine::StepTicket;
use blis_contracts::step::{Launch, RankStep};
use blis_contracts::units::SimTime;

use super::coordinator::{Counts, Notice, StartWave};
use super::core::{Core, Phase, requests};
use super::recorder::LockstepState;
use super::{Around, shape};
use crate::cudagraph::{CudaGraphs, Dispatch, RankBatch};
use crate::sched::batch::Batch;

/// Where a core stands with the others.
#[derive(Debug)]
pub(super) struct Wave {
    /// Steps between agreements.
    sync_interval: u64,
    /// Steps between those at which prompts may begin or go on.
    prefill_interval: u64,
    /// Whether some core has requests, as far as this one knows.
    running: bool,
    /// The same at the top of the iteration.
    was_running: bool,
    /// Number of the wave.
    number: u64,
    /// Steps of the wave.
    step: u64,
    /// When the core came to the launch, and with what.
    held: Option<(SimTime, Option<Batch>)>,
    /// When the core came to the agreement, and whether it has requests left.
    asked: Option<(SimTime, bool)>,
    /// The iteration ran a step without requests.
    ran_dummy: bool,
}

impl Wave {
    pub(super) const fn new(sync_interval: u64, prefill_interval: u64) -> Self {
        Self {
            sync_interval,
            prefill_interval,
            running: false,
            was_running: false,
            number: 0,
            step: 0,
            held: None,
            asked: None,
            ran_dummy: false,
        }
    }

    pub(super) const fn running(&self) -> bool {
        self.running
    }

    pub(super) const fn note_running(&mut self) {
        self.was_running = self.running;
        self.ran_dummy = false;
    }

    /// Whether a step leaves prompts for a later one. upstream: vllm `v1/engine/core.py::DPEngineCoreProc._should_throttle_prefills`
    pub(super) const fn throttles_prompts(&self) -> bool {
        self.prefill_interval > 1 && !self.step.is_multiple_of(self.prefill_interval)
    }

    pub(super) fn hold(&mut self, now: SimTime, batch: Option<Batch>) {
        self.ran_dummy = batch.is_none();
        self.held = Some((now, batch));
    }
}

impl Core {
    /// The coordinator wakes the core for a wave, unless the core knows better.
    pub(super) fn start_wave(&mut self, message: StartWave) {
        let Some(wave) = &mut self.wave else { return };
        if message.exclude != Some(self.index) && message.wave >= wave.number {
            wave.number = message.wave;
            wave.running = true;
        }
    }

    /// A request came that its front end took for one of wave `of`.
    pub(super) fn request_of_wave(&mut self, of: u64, now: SimTime, around: &mut Around<'_>) {
        let Some(wave) = &mut self.wave else { return };
        if of > wave.number {
            wave.number = of;
        } else if of < wave.number && !wave.running {
            wave.running = true;
            around.notify(now, self.index, Notice::Started(wave.number));
        }
    }

    /// Shows the front end how many requests run and wait, where that has changed.
    pub(super) fn show_counts(&mut self, now: SimTime, around: &mut Around<'_>) {
        let Some(shown) = &mut self.shown else { return };
        let counts = (self.scheduler.running().len(), self.scheduler.waiting_count());
        if counts != *shown {
            *shown = counts;
            let pool = self.scheduler.kv().pool();
            let kv_usage = 1.0 - f64::from(pool.free_blocks()) / f64::from(pool.usable_blocks());
            let shown = Counts { running: counts.0 as u64, waiting: counts.1 as u64, kv_usage };
            let at = self.wave.as_ref().map_or((0, 0), |wave| (wave.number, wave.step));
            around.show(now, self.index, shown, at);
        }
    }

    /// The call of the step function has returned.
    pub(super) fn after_call(&mut self, now: SimTime, executed: bool, around: &mut Around<'_>) {
        self.show_counts(now, around);
        let unfinished = self.has_unfinished();
        match &mut self.wave {
            None => self.phase = Phase::Busy(now),
            Some(_) if executed => self.phase = Phase::Stepped(now),
            Some(wave) if !unfinished && !wave.running => {
                self.record_lockstep();
                self.phase = Phase::Busy(now);
            }
            Some(wave) => {
                wave.hold(now, None);
                self.phase = Phase::Launching;
            }
        }
    }

    fn has_unfinished(&self) -> bool {
        !self.scheduler.running().is_empty() || self.scheduler.waiting_count() > 0
    }

    /// The iteration's step is launched: between agreements, every core takes it that some core has requests.
    pub(super) fn after_step(&mut self, now: SimTime, around: &mut Around<'_>) {
        let unfinished = self.has_unfinished();
        let wave = self.wave.as_mut().expect("only cores in lockstep come here");
        wave.step += 1;
        if wave.step == 1 || wave.step.is_multiple_of(wave.sync_interval) {
            wave.asked = Some((now, unfinished));
            self.phase = Phase::Agreeing;
        } else {
            self.agreed(now, true, around);
        }
    }

    /// The cores know whether any has requests left.
    fn agreed(&mut self, now: SimTime, running: bool, around: &mut Around<'_>) {
        let wave = self.wave.as_mut().expect("only cores in lockstep agree");
        wave.running = running;
        if !running {
            if self.index == 0 {
                around.notify(now, self.index, Notice::Completed(wave.number));
            }
            wave.number += 1;
            wave.step = 0;
        } else if !wave.was_running && self.index == 0 {
            around.notify(now, self.index, Notice::Started(wave.number));
        }
        self.record_lockstep();
        self.phase = Phase::Busy(now);
    }

    fn record_lockstep(&mut self) {
        if let (Some(recorder), Some(wave)) = (&mut self.recorder, &self.wave) {
            let state = LockstepState { wave: wave.number, step: wave.step, running: wave.running, ran_dummy: wave.ran_dummy };
            recorder.in_lockstep(state);
        }
    }
}

/// Tells every core what all of them have come to say.
pub(super) fn agree(cores: &mut [Core], around: &mut Around<'_>) {
    let answers: Vec<(SimTime, bool)> = cores
        .iter_mut()
        .map(|core| core.wave.as_mut().and_then(|wave| wave.asked.take()).expect("a core at the agreement has come with an answer"))
        .collect();
    let at = answers.iter().map(|(time, _)| *time).max().expect("there are cores");
    let running = answers.iter().any(|(_, unfinished)| *unfinished);
    for core in cores {
        core.agreed(at, running, around);
    }
}

/// Launches one step on every core.
pub(super) fn launch(cores: &mut [Core], device_free: &mut SimTime, around: &mut Around<'_>) {
    let held: Vec<(SimTime, Option<Batch>)> = cores
        .iter_mut()
        .map(|core| core.wave.as_mut().and_then(|wave| wave.held.take()).expect("a core at the launch holds its step"))
        .collect();
    let come = held.iter().map(|(time, _)| *time).max().expect("there are cores");
    describe(&held, around);
    let estimate = around.environment.price(around.plan_id, around.shape);
    let launched = around.launched(come, *device_free, &estimate);
    let start = launched.max(*device_free);
    let end = start + estimate.device();
    *device_free = end;
    let batches = || held.iter().filter_map(|(_, batch)| batch.as_ref());
    for _ in &*cores {
        around.counters.busy += estimate.device();
    }
    if batches().next().is_some() {
        around.ticket(StepTicket {
            step: around.counters.steps,
            start,
            end,
            requests: batches().map(requests).sum(),
            tokens: batches().map(|batch| batch.tokens).sum(),
            prefill_tokens: batches().map(|batch| batch.prefill_tokens).sum(),
            stream: 0,
            readers: u32::try_from(batches().count()).expect("a node has few cores"),
        });
    }
    for (core, (_, batch)) in cores.iter_mut().zip(held) {
        match batch {
            Some(batch) => core.launched(launched, batch, end, estimate.after()),
            None => core.phase = Phase::Stepped(launched),
        }
    }
}

/// Describes what every core runs, padded as they agree on.
fn describe(held: &[(SimTime, Option<Batch>)], around: &mut Around<'_>) {
    for (rank, (_, batch)) in around.shape.ranks.iter_mut().zip(held) {
        match batch {
            Some(batch) => shape::fill(batch, rank),
            None => rank.clear(),
        }
    }
    let ranks: Vec<RankBatch> = held
        .iter()
        .zip(&around.shape.ranks)
        .map(|((_, batch), rank)| batch.as_ref().map_or(RankBatch::DUMMY, |batch| of_rank(batch, around.graphs, rank)))
        .collect();
    for (rank, Dispatch { launch, padded_tokens }) in around.shape.ranks.iter_mut().zip(around.graphs.agree(&ranks)) {
        (rank.launch, rank.padded_tokens) = (launch, padded_tokens);
    }
    debug_assert!(around.shape.ranks.iter().all(|rank| (rank.launch == Launch::Eager) == (around.shape.ranks[0].launch == Launch::Eager)));
}

fn of_rank(batch: &Batch, graphs: &CudaGraphs, rank: &RankStep) -> RankBatch {
    RankBatch { tokens: batch.tokens, requests: requests(batch), uniform_decode: shape::uniform_decode(batch, graphs, rank) }
}
