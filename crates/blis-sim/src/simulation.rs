//! The loop: events in order of time, each handled by the component it belongs to.
//!
//! A request travels source -> front end -> engine; its tokens travel back. The loop hands each component what reached it, asks when
//! it next has something to do, and writes each request's fate at one place, [`Simulation::close`].

use std::collections::{BTreeSet, VecDeque};

use blis_contracts::engine::{Effects, Engine, Input, TokensOut};
use blis_contracts::environment::Environment;
use blis_contracts::fate::Fate;
use blis_contracts::record::RequestRecord;
use blis_contracts::request::{Request, RequestSlot};
use blis_contracts::units::SimTime;
use blis_workload::source::{Source, client_of};

use crate::backlog::Backlog;
use crate::calendar::{Calendar, Event};
use crate::front_end::{FrontEnd, FrontEndCosts};
use crate::histogram::Histogram;
use crate::live::{LiveRequest, LiveRequests, Standing};
use crate::objectives::Objectives;
use crate::occupancy::Occupancy;
use crate::outcome::{Ended, Frame, Observer, Outcome, Progress, SimulationError, Statistics};
use crate::series::Recorder;
use crate::tally::Tally;

/// Engine wake-ups in a row that may pass without any request changing state while work waits.
const WATCHDOG_WAKES: u64 = 1_000_000;
/// Ended requests between two calls of [`Observer::progress`].
const PROGRESS_EVERY: u64 = 256;

/// A run in progress.
pub struct Simulation<'a> {
    sources: Vec<Box<dyn Source>>,
    engine: Box<dyn Engine>,
    environment: &'a mut dyn Environment,
    observer: &'a mut dyn Observer,
    frame: Frame,
    front_end: FrontEnd,
    calendar: Calendar,
    /// Requests on their way to the engine; times never go back.
    deliveries: VecDeque<(SimTime, Request)>,
    /// Requests on their way to their end at the client; times never go back.
    ends: VecDeque<(SimTime, RequestSlot, Fate)>,
    live: LiveRequests,
    effects: Effects,
    tally: Tally,
    in_flight: Occupancy,
    used_blocks: Occupancy,
    recorder: Recorder,
    backlog: Backlog,
    /// Requests sent, warm-up not counted.
    sent: u64,
    ended: u64,
    window: Option<(SimTime, SimTime)>,
    last_change: (SimTime, u64),
    statistics: Statistics,
    /// When clients that will not wait for ever give up.
    deadlines: BTreeSet<(SimTime, RequestSlot)>,
    /// Clients that stated a priority, by index.
    prioritised: BTreeSet<u32>,
}

impl std::fmt::Debug for Simulation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation")
            .field("frame", &self.frame)
            .field("sent", &self.sent)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl<'a> Simulation<'a> {
    /// A run about to start.
    pub fn new(
        sources: Vec<Box<dyn Source>>,
        engine: Box<dyn Engine>,
        costs: FrontEndCosts,
        frame: Frame,
        environment: &'a mut dyn Environment,
        observer: &'a mut dyn Observer,
    ) -> Self {
        let (front_end, recorder) = (FrontEnd::new(&engine.plan().front_end, costs), Recorder::of(engine.plan()));
        let mut calendar = Calendar::new(sources.len());
        for (source, index) in sources.iter().zip(0..) {
            calendar.set_send(index, source.next_send());
        }
        Self {
            sources,
            engine,
            environment,
            observer,
            frame,
            front_end,
            calendar,
            deliveries: VecDeque::new(),
            ends: VecDeque::new(),
            live: LiveRequests::default(),
            effects: Effects::default(),
            tally: Tally::default(),
            in_flight: Occupancy::default(),
            used_blocks: Occupancy::default(),
            recorder,
            backlog: Backlog::default(),
            sent: 0,
            ended: 0,
            window: None,
            last_change: (SimTime::ZERO, 0),
            statistics: Statistics::default(),
            deadlines: BTreeSet::new(),
            prioritised: BTreeSet::new(),
        }
    }

    /// The same run, its requests judged by objectives.
    pub(crate) fn judging(self, objectives: Objectives) -> Self {
        Self { tally: Tally::judging(objectives), ..self }
    }

    /// Runs to the end.
    pub fn run(mut self) -> Result<Outcome, SimulationError> {
        let first = self.calendar.next().map(|(time, _)| time);
        if let Some(horizon) = self.frame.horizon
            && first.is_none_or(|time| time > horizon)
        {
            return Err(SimulationError::NothingArrives { horizon, first });
        }
        if first.is_none() {
            return Err(SimulationError::NoRequests);
        }
        let mut now = SimTime::ZERO;
        while let Some((time, event)) = self.calendar.next() {
            if self.frame.horizon.is_some_and(|horizon| time > horizon) {
                break;
            }
            if time >= SimTime::BEYOND {
                return Err(SimulationError::TooLong { sent: self.sent });
            }
            debug_assert!(now <= time, "simulated time went back from {now} to {time}");
            now = time;
            self.statistics.events += 1;
            match event {
                Event::RequestEnded => self.request_ended(now),
                Event::ClientGivesUp => self.client_gives_up(now),
                Event::SourceSends(source) => self.source_sends(now, source),
                Event::RequestDelivered => self.request_delivered(now),
                Event::EngineWakes => self.engine_wakes(now)?,
            }
        }
        self.finish(now)
    }

    fn source_sends(&mut self, now: SimTime, index: u32) {
        let source = &mut self.sources[index as usize];
        let draft = source.send(now);
        let next = source.next_send();
        self.calendar.set_send(index, next);
        let measured = !draft.warm_up && self.sent >= self.frame.discard_first;
        if measured && self.window.is_none() {
            self.window = Some((now, now));
            self.in_flight.restart(now);
            self.used_blocks.set(now, self.used_blocks_now());
            self.used_blocks.restart(now);
        }
        if !draft.warm_up {
            self.sent += 1;
            if self.frame.requests == Some(self.sent) {
                self.calendar.close_sends();
            }
        }
        if draft.priority != 0 {
            self.prioritised.insert(index);
        }
        self.observer.sent(now, &draft);
        self.backlog.sent(self.in_flight.amount().saturating_sub(u64::from(self.recorder.state().running)));
        self.in_flight.increase(now);
        self.statistics.peak_in_flight = self.statistics.peak_in_flight.max(self.in_flight.peak());
        let live = LiveRequest::new(&draft, now, measured);
        let delivered = self.front_end.accept(now, live.prompt_tokens);
        let id = draft.id;
        let slot = self.live.insert(live);
        if let Some(timeout) = draft.timeout {
            self.live.get_mut(slot).deadline = Some(now + timeout);
            self.deadlines.insert((now + timeout, slot));
            self.calendar.next_deadline = self.deadlines.first().map(|(time, _)| *time);
        }
        let request = Request::new(id, slot, delivered, draft.prompt, draft.output_length)
            .with_max_tokens(draft.max_tokens)
            .with_priority(draft.priority);
        self.deliveries.push_back((delivered, request));
        self.calendar.next_delivery = self.deliveries.front().map(|(time, _)| *time);
    }

    fn request_delivered(&mut self, now: SimTime) {
        let (_, request) = self.deliveries.pop_front().expect("a delivery is due");
        self.calendar.next_delivery = self.deliveries.front().map(|(time, _)| *time);
        if self.live.get_mut(request.slot).standing == Standing::Abandoned {
            self.live.remove(request.slot);
            return;
        }
        self.live.get_mut(request.slot).received = Some(now);
        self.engine.deliver(now, Input::Request(request));
        self.calendar.engine_wake = Some(now);
    }

    fn engine_wakes(&mut self, now: SimTime) -> Result<(), SimulationError> {
        self.statistics.engine_wakes += 1;
        self.effects.clear();
        self.engine.advance(now, self.environment, &mut self.effects);
        debug_assert!(self.effects.wake_at.is_none_or(|wake| wake > now), "an engine that has advanced at {now} is done with that instant");
        self.calendar.engine_wake = self.effects.wake_at;
        self.pass_effects(now);
        let state = self.engine.snapshot();
        self.recorder.steps(&self.effects.started, || self.engine.counters(SimTime::BEYOND).busy);
        for step in &self.effects.started {
            self.observer.stepped(step, &state);
        }
        self.recorder.observe(now, state);
        self.used_blocks.set(now, state.used_blocks.get());
        self.watch(now)
    }

    /// Hands what the engine did to the front end and the live requests.
    fn pass_effects(&mut self, now: SimTime) {
        let effects = &self.effects;
        for slot in &effects.admitted {
            self.live.get_mut(*slot).scheduled.get_or_insert(now);
        }
        for slot in &effects.preempted {
            self.live.get_mut(*slot).preemptions += 1;
        }
        for finished in &effects.finished {
            let live = self.live.get_mut(finished.slot);
            live.engine_is_done();
            live.cached_tokens = u64::from(finished.cached_prompt_tokens);
        }
        if !effects.tokens.is_empty() {
            self.front_end.begin_step(now);
        }
        self.statistics.tokens += pass_tokens(&effects.tokens, &mut self.front_end, &mut self.live, &mut self.tally.itl_us, &mut self.ends);
        for (slot, reason) in &effects.refused {
            let (at, live) = (self.front_end.answer(now), self.live.get_mut(*slot));
            live.engine_is_done();
            if live.standing == Standing::Ended && !live.comes_too_late(at) {
                live.refusal = Some(reason.clone());
                self.ends.push_back((at, *slot, Fate::Refused));
            }
        }
        for slot in effects.finished.iter().map(|finished| finished.slot).chain(effects.refused.iter().map(|(slot, _)| *slot)) {
            if self.live.get_mut(slot).standing == Standing::Abandoned {
                self.live.remove(slot);
            }
        }
        self.calendar.next_end = self.ends.front().map(|(time, ..)| *time);
    }

    fn request_ended(&mut self, now: SimTime) {
        let (_, slot, fate) = self.ends.pop_front().expect("an end is due");
        self.calendar.next_end = self.ends.front().map(|(time, ..)| *time);
        let live = self.live.remove(slot);
        if let Some(deadline) = live.deadline {
            self.deadlines.remove(&(deadline, slot));
            self.calendar.next_deadline = self.deadlines.first().map(|(time, _)| *time);
        }
        self.settle(now, live, fate);
    }

    /// A client that waited as long as it would gives its request up. It knows at once; the engine learns of it as of any input, and
    /// what the engine or the front end still has of the request reaches nobody.
    fn client_gives_up(&mut self, now: SimTime) {
        let (_, slot) = self.deadlines.pop_first().expect("a deadline is due");
        self.calendar.next_deadline = self.deadlines.first().map(|(time, _)| *time);
        let live = self.live.get_mut(slot);
        if live.standing == Standing::Ended {
            let live = self.live.remove(slot);
            return self.settle(now, live, Fate::TimedOut);
        }
        live.standing = Standing::Abandoned;
        let seen = live.clone();
        if seen.received.is_some() {
            self.engine.deliver(now, Input::Abort(slot));
            self.calendar.engine_wake = Some(now);
        }
        self.settle(now, seen, Fate::TimedOut);
    }

    /// A request's end as its client sees it.
    fn settle(&mut self, now: SimTime, live: LiveRequest, fate: Fate) {
        self.in_flight.decrease(now);
        if live.measured
            && let Some((_, end)) = &mut self.window
        {
            *end = now;
        }
        let record = self.close(live, fate);
        let client = client_of(record.id);
        let source = &mut self.sources[client as usize];
        source.ended(now, &record);
        if self.frame.requests.is_none_or(|limit| self.sent < limit) {
            self.calendar.set_send(client, source.next_send());
        }
        self.ended += 1;
        if self.ended.is_multiple_of(PROGRESS_EVERY) {
            self.observer.progress(Progress { now, ended: self.ended });
        }
    }

    /// The one place where a request's fate is written.
    fn close(&mut self, live: LiveRequest, fate: Fate) -> RequestRecord {
        let (measured, asked) = (live.measured, live.asked_tokens);
        let record = live.into_record(fate);
        self.tally.add(&record, measured);
        if fate == Fate::Completed {
            self.tally.cut.completed(asked, record.output_tokens);
        }
        self.observer.record(&record);
        record
    }

    fn finish(mut self, last: SimTime) -> Result<Outcome, SimulationError> {
        let horizon = self.frame.horizon.filter(|_| self.goes_on());
        let end = horizon.unwrap_or(last);
        let ended = match (horizon, self.frame.requests) {
            (Some(_), _) => Ended::Horizon,
            (None, Some(limit)) if self.sent == limit => Ended::Requests,
            (None, _) => Ended::Workload,
        };
        let in_flight: Vec<LiveRequest> = self.live.drain().filter(|live| live.standing != Standing::Abandoned).collect();
        let stopped_early = self.calendar.next().is_some();
        if !in_flight.is_empty() && !stopped_early {
            return Err(SimulationError::Stalled { now: last, waiting: in_flight.len() as u64 });
        }
        let sent: u64 = self.sources.iter().map(|source| source.sent()).sum();
        let Some((window_start, window_end)) = self.window else {
            let discard_first = self.frame.discard_first;
            return Err(SimulationError::NothingMeasured { end, sent, warm_up: sent - self.sent, discard_first });
        };
        let unfinished_measured = in_flight.iter().any(|live| live.measured);
        for live in in_flight {
            let fate = if live.scheduled.is_some() { Fate::InFlightAtHorizon } else { Fate::QueuedAtHorizon };
            self.close(live, fate);
        }
        self.tally.add_not_started(self.never_sent());
        let not_started = self.tally.fates.get(&Fate::NotStarted).copied().unwrap_or(0);
        assert_eq!(sent + not_started, self.tally.total(), "every request the workload generated has one fate");
        let window_end = if unfinished_measured { end } else { window_end };
        Ok(Outcome {
            window_start,
            window_end,
            concurrency: self.in_flight.average(window_end),
            used_blocks: self.used_blocks.average(window_end),
            peak_blocks: self.used_blocks.peak(),
            engine: self.engine.counters(end),
            recorder: self.recorder.cut(end),
            growth: self.backlog.growth(),
            prioritised: self.prioritised.iter().map(|client| self.sources[*client as usize].name().to_owned()).collect(),
            tally: self.tally,
            end,
            ended,
            statistics: self.statistics,
        })
    }

    /// Whether more would happen if the run went on.
    fn goes_on(&self) -> bool {
        let sends = self.frame.requests.is_none_or(|limit| self.sent < limit);
        self.calendar.next().is_some() || (sends && self.sources.iter().any(|source| source.unsent() != Some(0)))
    }

    /// Requests the frame asked for, or a bounded source had left, that were never sent.
    fn never_sent(&self) -> u64 {
        let left: Option<u64> = self.sources.iter().map(|source| source.unsent()).sum();
        let wanted = self.frame.requests.map(|limit| limit - self.sent);
        match (left, wanted) {
            (Some(left), Some(wanted)) => left.min(wanted),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => 0,
        }
    }

    fn used_blocks_now(&self) -> u64 {
        self.engine.snapshot().used_blocks.get()
    }

    /// Fails a run in which the engine is busy and nothing ever changes.
    fn watch(&mut self, now: SimTime) -> Result<(), SimulationError> {
        let effects = &self.effects;
        let changed =
            !(effects.tokens.is_empty() && effects.admitted.is_empty() && effects.finished.is_empty() && effects.refused.is_empty());
        let computed = effects.started.iter().any(|ticket| ticket.prefill_tokens > 0);
        if changed || computed {
            self.last_change = (now, self.statistics.engine_wakes);
        }
        let (since, wake) = self.last_change;
        let wakes = self.statistics.engine_wakes - wake;
        if wakes < WATCHDOG_WAKES {
            return Ok(());
        }
        Err(SimulationError::Livelock { since, now, wakes, waiting: self.statistics.peak_in_flight })
    }
}

/// Turns a step's tokens into chunks that clients see; answers how many tokens there were.
fn pass_tokens(
    tokens: &[TokensOut],
    front_end: &mut FrontEnd,
    live: &mut LiveRequests,
    gaps_us: &mut Histogram,
    ends: &mut VecDeque<(SimTime, RequestSlot, Fate)>,
) -> u64 {
    let mut passed = 0;
    for out in tokens {
        let live = live.get_mut(out.slot);
        passed += u64::from(out.count);
        if live.standing == Standing::Abandoned {
            continue;
        }
        live.tokens += u64::from(out.count);
        let ended = live.standing == Standing::Ended;
        let Some(at) = front_end.process(live.tokens, live.streamed, ended) else { continue };
        if live.comes_too_late(at) {
            continue;
        }
        live.streamed = front_end.streamed(live.tokens);
        if live.first_token.is_none() {
            live.first_token = Some(at);
        } else if live.measured {
            gaps_us.add(at.since(live.last_chunk).as_micros());
        }
        live.last_chunk = at;
        if ended {
            ends.push_back((at, out.slot, Fate::Completed));
        }
    }
    passed
}
