//! One engine core: a scheduler, its batch queue and the loop that serves them, as intervals of simulated time.
//!
//! upstream: vllm `v1/engine/core.py::EngineCore.step_with_batch_queue`, `EngineCoreProc._process_input_queue`, `_process_engine_step`
//!
//! With two batches in flight and the host never late, start(n+1) = max(end(n), end(n-1) + after(n-1) + before(n+1) + launch(n+1)); a
//! host that is still busy when batch n-1 ends starts that sum when it is free. A batch of no tokens takes a place in the queue, is done
//! at once, and costs nothing. Cores in lockstep take the turns that `lockstep` adds.

use std::collections::VecDeque;

use blis_contracts::engine::{EngineCounters, Finished, Input, StepTicket, TokensOut};
use blis_contracts::request::RequestSlot;
use blis_contracts::step::StepEstimate;
use blis_contracts::units::{SimDuration, SimTime, Tokens};

use super::coordinator::{Home, StartWave};
use super::lockstep::Wave;
use super::recorder::{Processed, Recorder};
use super::{Around, shape};
use crate::sched::batch::{Batch, Entry};
use crate::sched::scheduler::{Barrier, Output, Scheduler};

/// The loop's sleep after a call that scheduled no token while requests are left.
const IDLE_SLEEP: SimDuration = SimDuration::from_micros(1_000);

/// Where the loop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Blocked on the input queue.
    Idle,
    /// Busy until the top of the next iteration.
    Busy(SimTime),
    /// Waiting for the oldest batch, then processing its output.
    Waiting {
        /// When the wait is over.
        woken: SimTime,
        /// When the output has been processed.
        processed: SimTime,
        /// The call scheduled a batch with tokens.
        executed: bool,
    },
    /// In lockstep: waiting for the others to launch.
    Launching,
    /// In lockstep: the call returns.
    Returning {
        /// When.
        at: SimTime,
        /// The call scheduled a batch with tokens.
        executed: bool,
    },
    /// In lockstep: a step without requests has been launched, or was not needed.
    Stepped(SimTime),
    /// In lockstep: waiting for the others to say whether they have requests left.
    Agreeing,
}

impl Phase {
    /// When the loop goes on by itself.
    pub(super) const fn until(self) -> Option<SimTime> {
        match self {
            Self::Idle | Self::Launching | Self::Agreeing => None,
            Self::Busy(until) | Self::Waiting { processed: until, .. } | Self::Returning { at: until, .. } | Self::Stepped(until) => {
                Some(until)
            }
        }
    }
}

/// What a core's loop reads from its queue.
#[derive(Debug)]
pub(super) enum CoreInput {
    /// A request or an abort, with the wave that the front end thought current.
    Client(Input, u64),
    /// The coordinator wakes the cores.
    StartWave(StartWave),
}

/// A batch on its way through the workers.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) call: u64,
    pub(super) batch: Batch,
    /// When the accelerator has done it.
    pub(super) end: SimTime,
    /// Host time to process its output.
    after: SimDuration,
}

/// One engine core with its workers.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) index: u32,
    pub(super) scheduler: Scheduler,
    /// Inputs the loop has not read, with their times.
    pub(super) inputs: VecDeque<(SimTime, CoreInput)>,
    pub(super) phase: Phase,
    /// Batches launched and not processed, oldest first.
    pub(super) queue: VecDeque<InFlight>,
    /// Buffers of processed batches.
    spare: Vec<Batch>,
    /// When the accelerators of each pipeline stage have done all that was launched.
    stages_free: Vec<SimTime>,
    /// From when to when stages work on steps that had not all ended at the last launch.
    under_way: VecDeque<(SimTime, SimTime)>,
    /// Batches on the way through the stages of a pipeline, by the number of the step, and when they end; none
    /// where the accelerators' time is given from outside, as when a recording is replayed.
    passing: Option<VecDeque<(u32, SimTime)>>,
    /// When the last stage has the tokens that the next batch may build on.
    returned: SimTime,
    /// Calls of the step function.
    pub(super) calls: u64,
    /// What the requests of the last batch gained, for who looks on.
    outputs: Vec<Output>,
    /// What the head of the waiting queue has been waiting behind, and since when.
    waiting_since: Option<(SimTime, Barrier)>,
    pub(super) recorder: Option<Box<dyn Recorder>>,
    /// In lockstep: where it stands with the others.
    pub(super) wave: Option<Wave>,
    /// Running and waiting requests as last shown to the front end; none where it has no choice of cores.
    pub(super) shown: Option<(usize, usize)>,
    /// Requests whose end the front ends learn with the next output.
    unreported: Vec<Home>,
}

impl Core {
    pub(super) fn new(index: u32, scheduler: Scheduler, wave: Option<Wave>, several: bool) -> Self {
        let stages = scheduler.config().pipeline_stages as usize;
        Self {
            index,
            scheduler,
            inputs: VecDeque::new(),
            phase: Phase::Idle,
            queue: VecDeque::new(),
            spare: Vec::new(),
            stages_free: vec![SimTime::ZERO; stages],
            under_way: VecDeque::new(),
            passing: None,
            returned: SimTime::ZERO,
            calls: 0,
            outputs: Vec::new(),
            waiting_since: None,
            recorder: None,
            wave,
            shown: several.then_some((0, 0)),
            unreported: Vec::new(),
        }
    }

    /// Has decodes wait for the last stage, which samples the tokens they begin with and sends them to the first.
    /// upstream: vllm `v1/worker/gpu/model_runner.py::GPUModelRunner.execute_model`
    pub(super) fn waiting_for_tokens(mut self) -> Self {
        self.passing = Some(VecDeque::with_capacity(self.stages_free.len() + 1));
        self
    }

    pub(super) fn check_invariants(&self) {
        assert!(self.queue.len() <= self.scheduler.config().max_concurrent_batches as usize, "the batch queue holds at most its size");
        let ends: Vec<_> = self.queue.iter().filter(|in_flight| in_flight.batch.tokens > 0).map(|in_flight| in_flight.end).collect();
        assert!(ends.is_sorted(), "batches with tokens end in order");
        self.scheduler.check_invariants();
    }

    /// Does everything the loop does up to and at `now`; answers when it goes on by itself.
    pub(super) fn run(&mut self, now: SimTime, around: &mut Around<'_>) -> Option<SimTime> {
        loop {
            match self.phase {
                Phase::Idle if self.inputs.is_empty() => return None,
                Phase::Idle => self.phase = Phase::Busy(now),
                Phase::Busy(until) if until <= now => self.iterate(until, around),
                Phase::Waiting { woken, processed, executed } if processed <= now => {
                    self.process_oldest(woken, processed, executed, around);
                }
                Phase::Returning { at, executed } if at <= now => self.after_call(at, executed, around),
                Phase::Stepped(at) if at <= now => self.after_step(at, around),
                Phase::Launching
                | Phase::Agreeing
                | Phase::Busy(_)
                | Phase::Waiting { .. }
                | Phase::Returning { .. }
                | Phase::Stepped(_) => return self.phase.until(),
            }
        }
    }

    /// One iteration, up to the point where it has to wait.
    fn iterate(&mut self, now: SimTime, around: &mut Around<'_>) {
        if let Some(wave) = &mut self.wave {
            wave.note_running();
        }
        self.read_inputs(now, around);
        let stepping = self.wave.as_ref().is_some_and(Wave::running);
        if !stepping && !self.scheduler.has_requests() && self.queue.is_empty() {
            self.phase = Phase::Idle;
            return;
        }
        self.show_counts(now, around);
        if let Some(recorder) = &mut self.recorder {
            recorder.called(self.calls, now);
        }
        self.calls += 1;
        if !self.scheduler.has_requests() {
            return self.wait_or_return(now, false);
        }
        let batch = self.schedule(now, around);
        if batch.tokens == 0 {
            self.queue.push_back(InFlight { call: self.calls - 1, batch, end: now, after: SimDuration::ZERO });
            return self.scheduled(now, false);
        }
        if let Some(wave) = &mut self.wave {
            wave.hold(now, Some(batch));
            self.phase = Phase::Launching;
            return;
        }
        shape::describe(&batch, around.graphs, &mut around.shape.ranks[0]);
        let estimate = around.environment.price(around.plan_id, around.shape);
        let launched = around.launched(now, self.stages_free[0], &estimate);
        let decodes = batch.tokens > batch.prefill_tokens;
        let end = self.occupy((launched, decodes), &estimate, around);
        around.ticket(StepTicket {
            step: around.counters.steps,
            start: end.0,
            end: end.1,
            requests: requests(&batch),
            tokens: batch.tokens,
            prefill_tokens: batch.prefill_tokens,
            stream: self.index,
            readers: 1,
        });
        self.launched(launched, batch, end.1, estimate.after());
    }

    /// Puts a launched batch into the queue and goes on.
    pub(super) fn launched(&mut self, now: SimTime, batch: Batch, end: SimTime, after: SimDuration) {
        let waits = batch.waits_for_tokens;
        self.queue.push_back(InFlight { call: self.calls - 1, batch, end, after });
        if waits {
            // It is sampled once the batch before it has been processed, so the call goes on to that.
            return self.wait_or_return(now, true);
        }
        self.scheduled(now, true);
    }

    /// Runs a step through the accelerators: when it starts, and when the last stage has done it.
    fn occupy(&mut self, (launched, decodes): (SimTime, bool), estimate: &StepEstimate, around: &mut Around<'_>) -> (SimTime, SimTime) {
        let (steps, stages) = (self.scheduler.steps(), self.scheduler.config().pipeline_stages);
        if let Some(passing) = &mut self.passing {
            while let Some((_, end)) = passing.pop_front_if(|(number, _)| *number + stages <= steps) {
                self.returned = end;
            }
        }
        let ready = if decodes { launched.max(self.returned) } else { launched };
        let start = ready.max(self.stages_free[0]);
        let mut end = start;
        let mut worked = SimDuration::ZERO;
        while self.under_way.pop_front_if(|(_, end)| *end <= launched).is_some() {}
        for (stage, free) in (0..).zip(&mut self.stages_free) {
            let device = if stage == 0 { estimate.device() } else { around.of_stage(stage).device() };
            let from = end.max(*free);
            end = from + device;
            *free = end;
            worked += device;
            self.under_way.push_back((from, end));
        }
        if let Some(passing) = &mut self.passing {
            passing.push_back((steps, end));
        }
        // Time of all accelerators, of which each has one stage.
        around.counters.busy += SimDuration::from_micros(worked.as_micros() / self.stages_free.len() as u64);
        (start, end)
    }

    /// Microseconds of work after an instant on the steps in flight, as a mean over the core's accelerators.
    pub(super) fn ahead(&self, until: SimTime) -> u64 {
        let after = |(from, end): &(SimTime, SimTime)| end.as_micros().saturating_sub(from.as_micros().max(until.as_micros()));
        self.under_way.iter().map(after).sum::<u64>() / self.stages_free.len() as u64
    }

    /// A batch went into the queue: the call returns while there is room and something to fill it with.
    fn scheduled(&mut self, now: SimTime, executed: bool) {
        let room = self.queue.len() < self.scheduler.config().max_concurrent_batches as usize;
        if room && (executed || self.scheduler.has_requests()) {
            return self.end_call(now, executed);
        }
        self.wait_or_return(now, executed);
    }

    /// Waits for the oldest batch; in lockstep there may be none.
    fn wait_or_return(&mut self, now: SimTime, executed: bool) {
        let Some(oldest) = self.queue.front() else { return self.end_call(now, executed) };
        let woken = now.max(oldest.end);
        self.phase = Phase::Waiting { woken, processed: woken + oldest.after, executed };
    }

    /// The call returns; the loop sleeps where nothing could be scheduled although requests are left.
    fn end_call(&mut self, now: SimTime, executed: bool) {
        if let Some(recorder) = &mut self.recorder {
            recorder.returned(&self.scheduler, &mut self.queue.iter().map(|in_flight| in_flight.call));
        }
        let sleeps = !executed && self.scheduler.has_requests();
        let at = if sleeps { now + IDLE_SLEEP } else { now };
        self.phase = if self.shown.is_some() { Phase::Returning { at, executed } } else { Phase::Busy(at) };
    }

    fn read_inputs(&mut self, now: SimTime, around: &mut Around<'_>) {
        while self.inputs.front().is_some_and(|(time, _)| *time <= now) {
            let (time, input) = self.inputs.pop_front().expect("an input was just seen");
            let (input, wave) = match input {
                CoreInput::Client(input, wave) => (input, wave),
                CoreInput::StartWave(message) => {
                    self.start_wave(message);
                    continue;
                }
            };
            if let Some(recorder) = &mut self.recorder {
                recorder.input(&input);
            }
            match input {
                Input::Request(request) => {
                    match self.scheduler.add(&request) {
                        Ok(_) => {
                            self.waiting_since.get_or_insert((time, Barrier::Step));
                        }
                        Err(refusal) => {
                            around.gate.prompt_done(request.prompt_tokens());
                            let home = around.leave(request.slot);
                            around.report(home);
                            around.effects.refused.push((request.slot, refusal.to_string()));
                        }
                    }
                    self.request_of_wave(wave, now, around);
                }
                Input::Abort(slot) => {
                    self.abort(slot, around);
                }
            }
        }
    }

    fn schedule(&mut self, now: SimTime, around: &mut Around<'_>) -> Batch {
        self.count_waiting(now, around.counters);
        let mut batch = self.spare.pop().unwrap_or_default();
        self.scheduler.now = now;
        let throttled = self.wave.as_ref().is_some_and(Wave::throttles_prompts);
        self.scheduler.schedule(&mut batch, throttled);
        if let Some(recorder) = &mut self.recorder {
            recorder.scheduled(&self.scheduler, &batch);
        }
        let external = |slot| self.scheduler.identity(slot).external;
        let first = batch.rows.iter().rev().take_while(|row| row.admission.is_some()).filter(|row| row.admission == Some(Entry::First));
        let known = around.effects.admitted.len();
        around.effects.admitted.extend(first.map(|row| external(row.slot)));
        around.effects.admitted[known..].reverse();
        around.effects.preempted.extend(batch.preempted.iter().map(|slot| external(*slot)));
        self.waiting_since = self.scheduler.barrier().map(|barrier| (now, barrier));
        around.counters.prompt_tokens_computed += Tokens::new(u64::from(batch.prefill_tokens));
        batch
    }

    /// Adds the time since the last look to what the head of the queue waited behind.
    fn count_waiting(&mut self, now: SimTime, counters: &mut EngineCounters) {
        if let Some((since, barrier)) = self.waiting_since.take() {
            let waits = &mut counters.waits;
            let share = match barrier {
                Barrier::Step => &mut waits.step,
                Barrier::RunningCap => &mut waits.running_cap,
                Barrier::TokenBudget => &mut waits.token_budget,
                Barrier::KvBlocks => &mut waits.kv_blocks,
            };
            *share += now.since(since);
        }
    }

    /// The oldest batch is done and its output read: aborts that arrived during the wait come first.
    fn process_oldest(&mut self, woken: SimTime, now: SimTime, executed: bool, around: &mut Around<'_>) {
        let aborted = self.abort_early(woken, around);
        let InFlight { call, batch, .. } = self.queue.pop_front().expect("the loop waits only for a batch in flight");
        let watched = self.recorder.is_some();
        self.outputs.clear();
        let failed = self.scheduler.process(&batch, |output| {
            around.effects.tokens.push(TokensOut { slot: output.external, count: output.gained });
            if output.outputs == output.gained {
                around.gate.prompt_done(u64::from(output.prompt));
            }
            if output.finished.is_some() {
                self.unreported.extend(around.leave(output.external));
                around.effects.finished.extend(finished(&output));
            }
            if watched {
                self.outputs.push(output);
            }
        });
        for output in failed {
            if output.outputs == 0 {
                around.gate.prompt_done(u64::from(output.prompt));
            }
            self.unreported.extend(around.leave(output.external));
            around.effects.refused.push((output.external, "its grammar does not compile".to_owned()));
            self.outputs.push(output);
        }
        around.report(self.unreported.drain(..));
        if let Some(recorder) = &mut self.recorder {
            recorder.processed(&self.scheduler, Processed { call, at: woken, aborted: &aborted, outputs: &self.outputs });
        }
        if let Some(last) = self.queue.back_mut().filter(|last| last.batch.waits_for_tokens) {
            last.batch.waits_for_tokens = false;
            self.scheduler.name_drafts(&batch, &mut last.batch);
            if let Some(recorder) = &mut self.recorder {
                recorder.sampled(&self.scheduler, &last.batch);
            }
        }
        self.spare.push(batch);
        self.end_call(now, executed);
    }

    /// Whether there was such a request.
    fn abort(&mut self, slot: RequestSlot, around: &mut Around<'_>) -> bool {
        let Some(output) = self.scheduler.abort(slot) else { return false };
        if output.outputs == 0 {
            around.gate.prompt_done(u64::from(output.prompt));
        }
        self.unreported.extend(around.leave(slot));
        around.effects.finished.extend(finished(&output));
        true
    }

    /// Aborts travel on a queue of their own as well, which is read before an output is processed; each is read again at the top of
    /// the loop, to no effect.
    fn abort_early(&mut self, woken: SimTime, around: &mut Around<'_>) -> Vec<RequestSlot> {
        let mut aborted = Vec::new();
        for index in 0..self.inputs.partition_point(|(time, _)| *time <= woken) {
            if let CoreInput::Client(Input::Abort(slot), _) = self.inputs[index].1
                && self.abort(slot, around)
            {
                aborted.push(slot);
            }
        }
        aborted
    }
}

/// Requests of a batch.
pub(super) fn requests(batch: &Batch) -> u32 {
    u32::try_from(batch.rows.len()).expect("a step holds fewer than 2^32 requests")
}

fn finished(output: &Output) -> Option<Finished> {
    let Output { external, finished, cached_prompt, .. } = *output;
    finished.map(|reason| Finished { slot: external, reason, cached_prompt_tokens: cached_prompt })
}
