//! One line per call of the step function, in the keys and order of `oracle/FORMAT.md`.

use std::cell::RefCell;
use std::rc::Rc;

use blis_contracts::engine::{FinishReason, Input};
use blis_contracts::request::{RequestId, RequestSlot};
use blis_contracts::units::SimTime;
use serde::Serialize;

use crate::engine::recorder::{LockstepState, Processed, Recorder};
use crate::kv::manager::PrefixStats;
use crate::request::Slot;
use crate::sched::batch::{Batch, Entry, Row};
use crate::sched::scheduler::{Output, Scheduler};
use crate::sched::speculation::DraftStats;
use crate::trace::scenario::hex;

/// How many free blocks a line names.
const HEAD: usize = 8;

type Name = String;
type BlockIds = Vec<Vec<u32>>;

#[derive(Debug, Clone, Default, Serialize)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    core: Option<u32>,
    step: u64,
    t: u64,
    r#in: Vec<(&'static str, Name)>,
    sched: Option<Scheduled>,
    done: Option<Done>,
    #[serde(flatten)]
    state: State,
    /// Absent where no request of the scenario has a grammar; null where nothing was masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    grammar: Option<Nullable<Grammar>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dp: Option<Lockstep>,
}

#[derive(Debug, Clone, Serialize)]
struct Lockstep {
    wave: u64,
    step: u64,
    running: bool,
    dummy: bool,
}

/// Which engine core a recorder looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct CoreOfTrace {
    /// Whether some request has a grammar.
    pub(super) grammars: bool,
    /// Its number, where there are several.
    pub(super) index: Option<u32>,
    /// Whether a line ends with where it stands with the others.
    pub(super) lockstep: bool,
}

#[derive(Debug, Clone, Serialize)]
struct Scheduled {
    new: Vec<(Name, u32, BlockIds, bool)>,
    cached: Vec<(Name, Option<BlockIds>, u32, u32)>,
    tokens: Vec<(Name, u32)>,
    preempted: Vec<(Name, u32)>,
    finished: Vec<Name>,
    free: u32,
    head: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drafts: Option<Vec<(Name, u8)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_drafts: Option<u8>,
}

#[derive(Debug, Clone, Serialize)]
struct Done {
    step: u64,
    t: u64,
    aborted: Vec<Name>,
    out: Vec<(Name, u32, Option<&'static str>)>,
    stats: Stats,
    /// The message of KV events in hexadecimal, where there are any and somebody listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
struct Stats {
    running: usize,
    waiting: usize,
    deferred: u32,
    kv: (u32, u32),
    requests: u64,
    queries: u64,
    hits: u64,
    preempted_requests: u64,
    preempted_queries: u64,
    preempted_hits: u64,
    /// Absent where nothing drafts; null where nobody had drafts.
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<Nullable<Verified>>,
}

/// A value that is written as null where it is absent.
#[derive(Debug, Clone, Serialize)]
struct Nullable<T>(Option<T>);

#[derive(Debug, Clone, Serialize)]
struct Verified {
    drafts: u32,
    tokens: u32,
    accepted: u32,
    tokens_at: Vec<u32>,
    accepted_at: Vec<u32>,
}

#[derive(Debug, Clone, Serialize)]
struct Grammar {
    rows: u32,
    requests: Vec<(Name, u8)>,
}

#[derive(Debug, Clone, Default, Serialize)]
struct State {
    free: u32,
    head: Vec<u32>,
    running: Vec<(Name, u32, u32, u32, u32, u32)>,
    waiting: Vec<(Name, u32, u32)>,
    holding: Vec<Name>,
    deferred: Vec<Name>,
    queue: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attached: Option<Vec<(Name, u8)>>,
}

/// Writes the trace.
#[derive(Debug)]
pub(super) struct TraceRecorder {
    /// Names by the simulator's slot.
    names: Vec<Name>,
    /// Names by number, learnt as requests come.
    by_id: Vec<(RequestId, Name)>,
    groups: usize,
    asynchronous: bool,
    core: CoreOfTrace,
    /// Blocks of each table at its last mention, by slot and group.
    mentioned: Vec<Vec<usize>>,
    stats: PrefixStats,
    /// KV events that earlier lines hold.
    events: usize,
    line: Line,
    lines: Rc<RefCell<Vec<String>>>,
}

impl TraceRecorder {
    pub(super) fn new(names: Vec<String>, groups: usize, asynchronous: bool, core: CoreOfTrace, lines: Rc<RefCell<Vec<String>>>) -> Self {
        Self {
            mentioned: vec![vec![0; groups]; names.len()],
            names,
            by_id: Vec::new(),
            groups,
            asynchronous,
            core,
            stats: PrefixStats::default(),
            events: 0,
            line: Line { grammar: core.grammars.then_some(Nullable(None)), ..Line::default() },
            lines,
        }
    }

    fn masks(&mut self, scheduler: &Scheduler, batch: &Batch) {
        let masks = scheduler.masks(batch);
        let named = |(slot, allowed): &(Slot, u8)| (self.name(scheduler, *slot), *allowed);
        let masks = masks.map(|masks| Grammar { rows: masks.rows, requests: masks.requests.iter().map(named).collect() });
        self.line.grammar = self.core.grammars.then_some(Nullable(masks));
    }

    fn external(&self, slot: RequestSlot) -> Name {
        self.names[slot.0 as usize].clone()
    }

    fn name(&self, scheduler: &Scheduler, slot: Slot) -> Name {
        self.external(scheduler.identity(slot).external)
    }

    fn name_of(&self, id: RequestId) -> Name {
        let known = self.by_id.iter().find(|(known, _)| *known == id);
        known.expect("a request that ended once came").1.clone()
    }

    fn end_line(&mut self) {
        self.line.core = self.core.index;
        let line = serde_json::to_string(&self.line).expect("a line has only text keys");
        self.lines.borrow_mut().push(line);
        self.line = Line { grammar: self.core.grammars.then_some(Nullable(None)), ..Line::default() };
    }

    /// The blocks a table has gained since its last mention; a request that enters mentions all of them.
    fn new_blocks(&mut self, scheduler: &Scheduler, row: &Row) -> BlockIds {
        let mentioned = &mut self.mentioned[scheduler.identity(row.slot).external.0 as usize];
        let mut blocks = Vec::with_capacity(self.groups);
        for (group, known) in mentioned.iter_mut().enumerate() {
            let table = scheduler.kv().table(group, row.slot);
            let from = if row.admission.is_some() { 0 } else { *known };
            blocks.push(table[from..].iter().map(|block| block.0).collect());
            *known = table.len();
        }
        blocks
    }
}

impl Recorder for TraceRecorder {
    fn input(&mut self, input: &Input) {
        match input {
            Input::Request(request) => {
                let name = self.external(request.slot);
                self.by_id.push((request.id, name.clone()));
                self.line.r#in.push(("add", name));
            }
            Input::Abort(slot) => {
                let name = self.external(*slot);
                self.line.r#in.push(("abort", name));
            }
        }
    }

    fn called(&mut self, call: u64, now: SimTime) {
        self.line.step = call;
        self.line.t = now.as_micros();
    }

    fn scheduled(&mut self, scheduler: &Scheduler, batch: &Batch) {
        let (mut new, mut cached, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        for row in &batch.rows {
            let name = self.name(scheduler, row.slot);
            let blocks = self.new_blocks(scheduler, row);
            tokens.push((name.clone(), row.tokens));
            if let Some(entry) = row.admission {
                new.push((name, row.context, blocks, entry == Entry::Resumed));
                continue;
            }
            let progress = scheduler.progress(row.slot);
            let own_placeholder = if self.asynchronous && row.samples { 1 + u32::from(row.drafts) } else { 0 };
            let blocks = Some(blocks).filter(|groups| groups.iter().any(|group| !group.is_empty()));
            cached.push((name, blocks, row.context, progress.outputs() + progress.placeholders - own_placeholder));
        }
        // Upstream lists resumed requests behind new ones, whatever the order of admission.
        new.sort_by_key(|(_, _, _, resumed)| *resumed);
        let stale = |slot: &Slot| (self.name(scheduler, *slot), scheduler.progress(*slot).stale);
        let preempted = batch.preempted.iter().map(stale).collect();
        let mut finished: Vec<Name> = batch.finished.iter().map(|id| self.name_of(*id)).collect();
        finished.sort();
        let (free, head) = free_blocks(scheduler);
        let speculates = scheduler.draft_stats().is_some();
        let drafted = |row: &&Row| row.drafts > 0;
        let drafts = batch.rows.iter().filter(drafted).map(|row| (self.name(scheduler, row.slot), row.drafts));
        let drafts = speculates.then(|| drafts.collect());
        let next_drafts = speculates.then_some(batch.next_drafts);
        self.line.sched = Some(Scheduled { new, cached, tokens, preempted, finished, free, head, drafts, next_drafts });
        if !batch.waits_for_tokens {
            self.masks(scheduler, batch);
        }
    }

    fn sampled(&mut self, scheduler: &Scheduler, batch: &Batch) {
        self.masks(scheduler, batch);
    }

    fn processed(&mut self, scheduler: &Scheduler, done: Processed<'_>) {
        let Processed { call, at, aborted, outputs } = done;
        let now = scheduler.kv().stats();
        let before = std::mem::replace(&mut self.stats, now);
        let pool = scheduler.kv().pool();
        let total = pool.usable_blocks();
        let stats = Stats {
            running: scheduler.running().len(),
            waiting: scheduler.waiting_count() - scheduler.deferred_count() as usize,
            deferred: scheduler.deferred_count(),
            kv: (total - pool.free_blocks(), total),
            requests: now.requests - before.requests,
            queries: now.queries - before.queries,
            hits: now.hits - before.hits,
            preempted_requests: now.preempted_requests - before.preempted_requests,
            preempted_queries: now.preempted_queries - before.preempted_queries,
            preempted_hits: now.preempted_hits - before.preempted_hits,
            spec: scheduler.draft_stats().map(verified),
        };
        let why = |output: &Output| if output.failed { Some("error") } else { output.finished.map(reason) };
        let out = outputs.iter().map(|output| (self.external(output.external), output.gained, why(output))).collect();
        let aborted = aborted.iter().map(|slot| self.external(*slot)).collect();
        let journal = pool.journal().filter(|journal| journal.count() > self.events);
        let events = journal.map(|journal| hex(&journal.batch(std::mem::replace(&mut self.events, journal.count()), 0.0)));
        self.line.done = Some(Done { step: call, t: at.as_micros(), aborted, out, stats, events });
    }

    fn returned(&mut self, scheduler: &Scheduler, queue: &mut dyn Iterator<Item = u64>) {
        let (free, head) = free_blocks(scheduler);
        let running = scheduler.running().iter().map(|slot| {
            let progress = scheduler.progress(*slot);
            let name = self.name(scheduler, *slot);
            (name, progress.computed, progress.placeholders, progress.in_flight, progress.stale, progress.outputs())
        });
        let waiting = scheduler.waiting().map(|slot| {
            let progress = scheduler.progress(slot);
            (self.name(scheduler, slot), progress.stale, progress.preemptions)
        });
        let drafts = |slot: &Slot| (self.name(scheduler, *slot), scheduler.progress(*slot).drafts);
        let attached = scheduler.running().iter().map(drafts).filter(|(_, drafts)| *drafts > 0);
        let mut deferred: Vec<Name> =
            scheduler.waiting().filter(|slot| scheduler.progress(*slot).deferred).map(|slot| self.name(scheduler, slot)).collect();
        deferred.sort();
        self.line.state = State {
            free,
            head,
            running: running.collect(),
            waiting: waiting.collect(),
            holding: Vec::new(),
            deferred,
            queue: queue.collect(),
            attached: scheduler.draft_stats().map(|_| attached.collect()),
        };
        if !self.core.lockstep {
            self.end_line();
        }
    }

    fn in_lockstep(&mut self, state: LockstepState) {
        self.line.dp = Some(Lockstep { wave: state.wave, step: state.step, running: state.running, dummy: state.ran_dummy });
        self.end_line();
    }
}

fn free_blocks(scheduler: &Scheduler) -> (u32, Vec<u32>) {
    let pool = scheduler.kv().pool();
    (pool.free_blocks(), pool.free_order().take(HEAD).map(|block| block.0).collect())
}

/// `None` where nobody had drafts.
fn verified(stats: &DraftStats) -> Nullable<Verified> {
    let DraftStats { drafts, tokens, accepted, tokens_at, accepted_at } = stats.clone();
    Nullable((drafts > 0).then_some(Verified { drafts, tokens, accepted, tokens_at, accepted_at }))
}

fn reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::Abort => "abort",
    }
}
