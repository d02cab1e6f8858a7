//! The busy loop as intervals of simulated time.
//!
//! upstream: vllm `v1/engine/core.py::EngineCore.step_with_batch_queue`, `EngineCoreProc._process_input_queue`, `_process_engine_step`
//!
//! With two batches in flight and the host never late, start(n+1) = max(end(n), end(n-1) + after(n-1) + before(n+1) + launch(n+1)); a
//! host that is still busy when batch n-1 ends starts that sum when it is free. A batch of no tokens takes a place in the queue, is done
//! at once, and costs nothing.

use blis_contracts::engine::{Effects, Finished, Input, StepTicket, TokensOut};
use blis_contracts::environment::Environment;
use blis_contracts::request::RequestSlot;
use blis_contracts::units::{SimDuration, SimTime, Tokens};

use super::recorder::Processed;
use super::{VllmEngine, shape};
use crate::sched::batch::{Batch, Entry};
use crate::sched::scheduler::{Barrier, Output};

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

impl VllmEngine {
    /// Does everything the loop does up to and at `now`.
    pub(super) fn run_host(&mut self, now: SimTime, environment: &mut dyn Environment, effects: &mut Effects) {
        loop {
            match self.phase {
                Phase::Idle if self.inputs.is_empty() => {
                    effects.wake_at = None;
                    return;
                }
                Phase::Idle => self.phase = Phase::Busy(now),
                Phase::Busy(until) if until <= now => self.iterate(until, environment, effects),
                Phase::Waiting { woken, processed, executed } if processed <= now => {
                    self.process_oldest(woken, processed, executed, effects);
                }
                Phase::Busy(until) | Phase::Waiting { processed: until, .. } => {
                    effects.wake_at = Some(until);
                    return;
                }
            }
        }
    }

    /// One iteration, up to the point where it has to wait.
    fn iterate(&mut self, now: SimTime, environment: &mut dyn Environment, effects: &mut Effects) {
        self.read_inputs(now, effects);
        if !self.scheduler.has_requests() && self.queue.is_empty() {
            self.phase = Phase::Idle;
            return;
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.called(self.calls, now);
        }
        let call = self.calls;
        self.calls += 1;
        let mut host = now;
        let mut executed = false;
        if self.scheduler.has_requests() {
            let batch = self.schedule(now, effects);
            executed = batch.tokens > 0;
            host = self.launch(now, call, batch, environment, effects);
            let room = self.queue.len() < self.scheduler.config().max_concurrent_batches as usize;
            if room && (executed || self.scheduler.has_requests()) {
                self.end_call(host, executed);
                return;
            }
        }
        let oldest = self.queue.front().expect("a call that schedules nothing was made because a batch is in flight");
        let woken = host.max(oldest.end);
        self.phase = Phase::Waiting { woken, processed: woken + oldest.after, executed };
    }

    /// The call returns; the loop sleeps where nothing could be scheduled although requests are left.
    fn end_call(&mut self, now: SimTime, executed: bool) {
        if let Some(recorder) = &mut self.recorder {
            recorder.returned(&self.scheduler, &mut self.queue.iter().map(|in_flight| in_flight.call));
        }
        let sleeps = !executed && self.scheduler.has_requests();
        self.phase = Phase::Busy(if sleeps { now + IDLE_SLEEP } else { now });
    }

    fn read_inputs(&mut self, now: SimTime, effects: &mut Effects) {
        while self.inputs.front().is_some_and(|(time, _)| *time <= now) {
            let (time, input) = self.inputs.pop_front().expect("an input was just seen");
            if let Some(recorder) = &mut self.recorder {
                recorder.input(&input);
            }
            match input {
                Input::Request(request) => match self.scheduler.add(&request) {
                    Ok(_) => {
                        self.waiting_since.get_or_insert((time, Barrier::Step));
                    }
                    Err(refusal) => {
                        self.gate.prompt_done(request.prompt_tokens());
                        self.gate.leave();
                        effects.refused.push((request.slot, refusal.to_string()));
                    }
                },
                Input::Abort(slot) => {
                    self.abort(slot, effects);
                }
            }
        }
    }

    fn schedule(&mut self, now: SimTime, effects: &mut Effects) -> Batch {
        self.count_waiting(now);
        let mut batch = self.spare.pop().unwrap_or_default();
        self.scheduler.schedule(&mut batch);
        if let Some(recorder) = &mut self.recorder {
            recorder.scheduled(&self.scheduler, &batch);
        }
        let external = |slot| self.scheduler.identity(slot).external;
        let first = batch.rows.iter().rev().take_while(|row| row.admission.is_some()).filter(|row| row.admission == Some(Entry::First));
        let known = effects.admitted.len();
        effects.admitted.extend(first.map(|row| external(row.slot)));
        effects.admitted[known..].reverse();
        effects.preempted.extend(batch.preempted.iter().map(|slot| external(*slot)));
        self.waiting_since = self.scheduler.barrier().map(|barrier| (now, barrier));
        batch
    }

    /// Adds the time since the last look to what the head of the queue waited behind.
    fn count_waiting(&mut self, now: SimTime) {
        if let Some((since, barrier)) = self.waiting_since.take() {
            let waits = &mut self.counters.waits;
            let share = match barrier {
                Barrier::Step => &mut waits.step,
                Barrier::RunningCap => &mut waits.running_cap,
                Barrier::TokenBudget => &mut waits.token_budget,
                Barrier::KvBlocks => &mut waits.kv_blocks,
            };
            *share += now.since(since);
        }
    }

    /// Hands a batch to the workers; answers when the host is free again.
    fn launch(&mut self, now: SimTime, call: u64, batch: Batch, environment: &mut dyn Environment, effects: &mut Effects) -> SimTime {
        if batch.tokens == 0 {
            self.queue.push_back(InFlight { call, batch, end: now, after: SimDuration::ZERO });
            return now;
        }
        shape::describe(&batch, &self.graphs, &mut self.shape.ranks[0]);
        let estimate = environment.price(self.plan_id, &self.shape);
        let launched = now + estimate.before() + estimate.launch();
        let start = launched.max(self.device_free);
        let end = start + estimate.device();
        self.device_free = end;
        let prefill_tokens = batch.rows.iter().filter(|row| row.prefill).map(|row| row.tokens).sum();
        let requests = u32::try_from(batch.rows.len()).expect("a step holds fewer than 2^32 requests");
        effects.started.push(StepTicket { step: self.counters.steps, start, end, requests, tokens: batch.tokens, prefill_tokens });
        self.counters.steps += 1;
        self.counters.prompt_tokens_computed += Tokens::new(u64::from(prefill_tokens));
        self.counters.busy += estimate.device();
        self.queue.push_back(InFlight { call, batch, end, after: estimate.after() });
        launched
    }

    /// The oldest batch is done and its output read: aborts that arrived during the wait come first.
    fn process_oldest(&mut self, woken: SimTime, now: SimTime, executed: bool, effects: &mut Effects) {
        let aborted = self.abort_early(woken, effects);
        let InFlight { call, batch, .. } = self.queue.pop_front().expect("the loop waits only for a batch in flight");
        self.outputs.clear();
        self.scheduler.process(&batch, &mut self.outputs);
        for output in &self.outputs {
            effects.tokens.push(TokensOut { slot: output.external, count: 1 });
            if output.outputs == 1 {
                self.gate.prompt_done(u64::from(output.prompt));
            }
            if output.finished.is_some() {
                self.gate.leave();
                effects.finished.extend(finished(output));
            }
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.processed(&self.scheduler, Processed { call, at: woken, aborted: &aborted, outputs: &self.outputs });
        }
        self.spare.push(batch);
        self.end_call(now, executed);
    }

    /// Whether there was such a request.
    fn abort(&mut self, slot: RequestSlot, effects: &mut Effects) -> bool {
        let Some(output) = self.scheduler.abort(slot) else { return false };
        if output.outputs == 0 {
            self.gate.prompt_done(u64::from(output.prompt));
        }
        self.gate.leave();
        effects.finished.extend(finished(&output));
        true
    }

    /// Aborts travel on a queue of their own as well, which is read before an output is processed; each is read again at the top of
    /// the loop, to no effect.
    fn abort_early(&mut self, woken: SimTime, effects: &mut Effects) -> Vec<RequestSlot> {
        let mut aborted = Vec::new();
        for index in 0..self.inputs.partition_point(|(time, _)| *time <= woken) {
            if let Input::Abort(slot) = self.inputs[index].1
                && self.abort(slot, effects)
            {
                aborted.push(slot);
            }
        }
        aborted
    }
}

fn finished(output: &Output) -> Option<Finished> {
    let Output { external, finished, cached_prompt, .. } = *output;
    finished.map(|reason| Finished { slot: external, reason, cached_prompt_tokens: cached_prompt })
}
