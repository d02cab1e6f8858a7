//! The series that upstream's front end would show of a scenario: `oracle/metrics.py` records upstream's.

use std::cell::RefCell;
use std::rc::Rc;

use blis_contracts::engine::{FinishReason, Input};
use blis_contracts::request::RequestSlot;
use blis_contracts::units::SimTime;

use super::scenario::Scenario;
use super::setup::{Setup, SetupError, setup};
use super::{drive, events};
use crate::engine::recorder::{LockstepState, Processed, Recorder};
use crate::kv::manager::PrefixStats;
use crate::metrics::front_end::{Arrival, Event, FrontEnd, Output, Reason};
use crate::metrics::logger::{Logger, SchedulerStats};
use crate::request::Slot;
use crate::sched::batch::Batch;
use crate::sched::scheduler::{self, Scheduler};

/// What a scrape reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// After how many calls of the step function; none at the end of the scenario.
    pub calls: Option<u64>,
    /// The text.
    pub lines: Vec<String>,
}

/// Arguments that change which series there are, or their buckets; none moves a decision.
const NOT_MODELLED: [&str; 4] = ["kv_cache_metrics", "custom_histogram_buckets", "enable_mfu_metrics", "show_hidden_metrics_for_version"];

/// Runs a scenario and scrapes the front end after each of these numbers of calls of a lone core, and at the end.
pub fn metrics(scenario: &Scenario, after_calls: &[u64]) -> Result<Vec<Snapshot>, SetupError> {
    if let Some(stated) = NOT_MODELLED.into_iter().find(|name| scenario.engine_args.contains_key(*name)) {
        return Err(SetupError::Series(stated));
    }
    let made = setup(scenario)?;
    let front_end = Rc::new(RefCell::new(FrontEnd::new(logger(&made))));
    let snapshots = Rc::new(RefCell::new(Vec::new()));
    let cores = made.parts.cores.count;
    let max_model_len = made.parts.scheduler.max_model_len;
    let events = events(scenario);
    let recorders = (0..cores).map(|core| -> Box<dyn Recorder> {
        Box::new(MetricsRecorder {
            core,
            front_end: Rc::clone(&front_end),
            called: SimTime::ZERO,
            calls: 0,
            added: Vec::new(),
            events: vec![Vec::new(); events.names.len()],
            stats: PrefixStats::default(),
            after_calls: if cores == 1 { after_calls.to_vec() } else { Vec::new() },
            snapshots: Rc::clone(&snapshots),
        })
    });
    let recorders: Vec<_> = recorders.collect();
    let mut tell = |now: SimTime, input: &Input| {
        let mut front_end = front_end.borrow_mut();
        match input {
            Input::Request(request) => front_end.add(request.slot, arrival(scenario, request.slot, now, max_model_len)),
            Input::Abort(slot) => front_end.abort(*slot),
        }
    };
    drive(scenario, made, events, recorders, &mut tell, &mut |_| {});
    let mut snapshots = snapshots.take();
    snapshots.push(Snapshot { calls: None, lines: front_end.borrow().scrape() });
    Ok(snapshots)
}

fn logger(made: &Setup) -> Logger {
    let drafts_max = made.features.speculation.as_ref().map(|speculation| speculation.tokens);
    Logger::new("scenario".to_owned(), made.parts.cores.count, made.parts.scheduler.max_model_len, drafts_max, made.features.max_loras)
}

/// A request as the front end sees it, whose output limit is cut to what the context leaves.
fn arrival(scenario: &Scenario, slot: RequestSlot, at: SimTime, max_model_len: u32) -> Arrival {
    let request = &scenario.requests[slot.0 as usize];
    let prompt = request.prompt.iter().map(|piece| piece.length).sum();
    let room = max_model_len.saturating_sub(prompt).max(1);
    let adapter = request.adapter.map(|adapter| format!("adapter-{adapter}"));
    Arrival { at, prompt, max_tokens: request.max_tokens.min(room), adapter }
}

/// Tells the front end what a core comes to.
#[derive(Debug)]
struct MetricsRecorder {
    core: u32,
    front_end: Rc<RefCell<FrontEnd>>,
    /// When the step function was called, and how often it has been.
    called: SimTime,
    calls: u64,
    /// Requests read since.
    added: Vec<RequestSlot>,
    /// What happened to each request since its last output.
    events: Vec<Vec<Event>>,
    stats: PrefixStats,
    after_calls: Vec<u64>,
    snapshots: Rc<RefCell<Vec<Snapshot>>>,
}

impl MetricsRecorder {
    fn note(&mut self, scheduler: &Scheduler, slot: Slot, event: Event) {
        self.events[scheduler.identity(slot).external.0 as usize].push(event);
    }

    fn output(&mut self, output: &scheduler::Output) -> Output {
        let finished = output.finished.map(|reason| match reason {
            FinishReason::Stop => Reason::Stop,
            FinishReason::Length => Reason::Length,
            FinishReason::Abort => Reason::Abort,
        });
        Output {
            slot: output.external,
            tokens: output.gained,
            finished: if output.failed { Some(Reason::Error) } else { finished },
            events: std::mem::take(&mut self.events[output.external.0 as usize]),
            cached_prompt: (output.gained > 0 && output.outputs == output.gained).then_some(output.cached_prompt),
        }
    }
}

impl Recorder for MetricsRecorder {
    fn input(&mut self, input: &Input) {
        if let Input::Request(request) = input {
            self.added.push(request.slot);
        }
    }

    fn called(&mut self, _: u64, now: SimTime) {
        self.called = now;
        self.calls += 1;
        for slot in self.added.drain(..) {
            self.events[slot.0 as usize].push(Event::Queued(now));
        }
    }

    fn scheduled(&mut self, scheduler: &Scheduler, batch: &Batch) {
        batch.preempted.iter().for_each(|slot| self.note(scheduler, *slot, Event::Preempted));
        let at = self.called;
        batch.rows.iter().filter(|row| row.admission.is_some()).for_each(|row| self.note(scheduler, row.slot, Event::Scheduled(at)));
    }

    fn sampled(&mut self, _: &Scheduler, _: &Batch) {}

    fn processed(&mut self, scheduler: &Scheduler, done: Processed<'_>) {
        let now = scheduler.kv().stats();
        let before = std::mem::replace(&mut self.stats, now);
        let pool = scheduler.kv().pool();
        let free = f64::from(pool.free_blocks()) / f64::from(pool.usable_blocks());
        let stats = SchedulerStats {
            running: scheduler.running().len(),
            waiting: scheduler.waiting_count() - scheduler.deferred_count() as usize,
            deferred: scheduler.deferred_count(),
            kv_cache_usage: 1.0 - free,
            queries: now.queries - before.queries,
            hits: now.hits - before.hits,
            drafts: scheduler.draft_stats().filter(|stats| stats.drafts > 0).cloned(),
        };
        let outputs: Vec<_> = done.outputs.iter().map(|output| self.output(output)).collect();
        self.front_end.borrow_mut().receive(self.core, done.at, &stats, &outputs);
    }

    fn in_lockstep(&mut self, _: LockstepState) {}

    fn returned(&mut self, _: &Scheduler, _: &mut dyn Iterator<Item = u64>) {
        if self.after_calls.contains(&self.calls) {
            let lines = self.front_end.borrow().scrape();
            self.snapshots.borrow_mut().push(Snapshot { calls: Some(self.calls), lines });
        }
    }
}
