//! A trace as sources: one for each client, which sends the client's rows when their causes say.
//!
//! A row without a cause is sent at its instant; one that follows a request, a delay after that request completes, and never if it does
//! not; one that took a place of a closed loop, as soon as any of the client's places is free, in the order of the rows. A closed loop
//! that enters a later phase first waits for everything it has in flight. Rows that are due at one instant are sent in their order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use blis_contracts::fate::Fate;
use blis_contracts::record::RequestRecord;
use blis_contracts::request::{RequestId, Segment, TokenSource};
use blis_contracts::scenario::DEFAULT_CLASS;
use blis_contracts::units::{SimDuration, SimTime};

use super::{Part, Row, Trace};
use crate::Offered;
use crate::lanes::Lanes;
use crate::source::{Draft, Origin, Round, Source, request_id};

impl Trace {
    /// The trace as sources of a run.
    pub fn offered(self) -> Offered {
        let linked = Arc::new(Linked::new(self));
        let clients = 0..u32::try_from(linked.trace.clients.len()).expect("fewer clients than numbers");
        let sources = clients.map(|client| Box::new(TraceSource::new(Arc::clone(&linked), client)) as Box<dyn Source>).collect();
        Offered { sources, texts: linked.trace.texts.clone() }
    }
}

/// A trace with its references resolved.
#[derive(Debug)]
struct Linked {
    trace: Trace,
    /// The number each row's request has in the run: its client's, in the order of the rows' own numbers.
    ids: Vec<RequestId>,
    /// What requests of the trace, and others whose text it repeats, are called in the run, by their number in the trace.
    names: BTreeMap<u64, u64>,
    /// Rows by the request's number in the trace.
    rows: BTreeMap<u64, usize>,
    /// The rows that follow each row.
    followers: BTreeMap<usize, Vec<usize>>,
    /// Rows whose round another row repeats.
    repeated: BTreeSet<usize>,
}

impl Linked {
    fn new(trace: Trace) -> Self {
        let rows: BTreeMap<u64, usize> = trace.rows.iter().enumerate().map(|(index, row)| (row.id, index)).collect();
        let mut counts = vec![0u64; trace.clients.len()];
        let mut ids = vec![RequestId(0); trace.rows.len()];
        for index in rows.values() {
            let client = trace.rows[*index].client;
            let count = &mut counts[client as usize];
            ids[*index] = request_id(client, *count);
            *count += 1;
        }
        let mut names: BTreeMap<u64, u64> = rows.iter().map(|(id, index)| (*id, ids[*index].0)).collect();
        let mut followers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut repeated = BTreeSet::new();
        let mut strangers = 0;
        for (index, row) in trace.rows.iter().enumerate() {
            if let Some((cause, _)) = row.after {
                followers.entry(rows[&cause]).or_default().push(index);
            }
            for part in &row.prompt.parts {
                match part {
                    Part::Shared { .. } => {}
                    Part::Round { request } => {
                        repeated.insert(rows[request]);
                    }
                    Part::Input { request, .. } | Part::Output { request, .. } => {
                        // A request the trace does not hold: its text has a name of its own all the same.
                        names.entry(*request).or_insert_with(|| {
                            strangers += 1;
                            u64::MAX - strangers
                        });
                    }
                }
            }
        }
        Self { trace, ids, names, rows, followers, repeated }
    }
}

/// A client of a trace.
#[derive(Debug)]
struct TraceSource {
    linked: Arc<Linked>,
    client: u32,
    /// The client's rows by their index in the run.
    by_index: Vec<usize>,
    /// Rows that are sent at their own instant, in order, and how many have been.
    timed: Vec<usize>,
    timed_sent: usize,
    /// Rows that start in a place of a closed loop, in order, and how many have.
    starts: Vec<usize>,
    starts_sent: usize,
    /// Rows whose cause has ended, by when they are due.
    due: BTreeSet<(SimTime, usize)>,
    lanes: Lanes,
    /// When a place last came free.
    since: SimTime,
    in_flight: u64,
    /// Tokens that requests which others repeat have generated.
    outputs: BTreeMap<usize, u32>,
    sent: u64,
}

impl TraceSource {
    fn new(linked: Arc<Linked>, client: u32) -> Self {
        let mine = || linked.trace.rows.iter().enumerate().filter(|(_, row)| row.client == client);
        let uncaused =
            |in_lane: bool| mine().filter(move |(_, row)| row.after.is_none() && row.lane.is_some() == in_lane).map(|(index, _)| index);
        let mut by_index: Vec<usize> = mine().map(|(index, _)| index).collect();
        by_index.sort_unstable_by_key(|index| linked.ids[*index]);
        let places: BTreeSet<u32> = mine().filter_map(|(_, row)| row.lane).collect();
        let (timed, starts) = (uncaused(false).collect(), uncaused(true).collect());
        Self {
            client,
            by_index,
            timed,
            timed_sent: 0,
            starts,
            starts_sent: 0,
            due: BTreeSet::new(),
            lanes: Lanes::new(u32::try_from(places.len()).expect("places are 32-bit numbers")),
            since: SimTime::ZERO,
            in_flight: 0,
            outputs: BTreeMap::new(),
            sent: 0,
            linked,
        }
    }

    fn row(&self, index: usize) -> &Row {
        &self.linked.trace.rows[index]
    }

    /// The next row that starts in a place of the loop, where one is free for it.
    fn next_start(&self) -> Option<(SimTime, usize)> {
        let next = *self.starts.get(self.starts_sent)?;
        let before = self.starts_sent.checked_sub(1).map(|last| self.starts[last]);
        let new_phase = before.is_some_and(|before| self.row(before).phase != self.row(next).phase);
        let waits = new_phase && (self.in_flight > 0 || !self.due.is_empty());
        (self.lanes.any_free() && !waits).then_some((self.since, next))
    }

    /// The next row of each kind, with when it is due.
    fn candidates(&self) -> [Option<(SimTime, usize)>; 3] {
        let timed = self.timed.get(self.timed_sent).map(|index| (SimTime::from_micros(self.row(*index).arrival_us), *index));
        [timed, self.due.first().copied(), self.next_start()]
    }

    fn draft(&self, index: usize) -> Draft {
        let (row, linked) = (self.row(index), &*self.linked);
        let id = linked.ids[index];
        let origin = Origin {
            after: row.after.map(|(cause, delay)| (linked.ids[linked.rows[&cause]], SimDuration::from_micros(delay))),
            session: row.session.map(|session| Round { session: session.into(), round: row.round, left: row.rounds_left }),
            lane: self.lanes.of(index as u64),
            phase: row.phase,
        };
        Draft {
            id,
            prompt: self.prompt(row, id),
            output_length: row.output_tokens,
            max_tokens: row.max_tokens,
            priority: row.priority,
            warm_up: row.warm_up,
            timeout: row.timeout_us.map(SimDuration::from_micros),
            origin,
        }
    }

    fn prompt(&self, row: &Row, id: RequestId) -> Arc<[Segment]> {
        let linked = &*self.linked;
        let mut prompt = Vec::with_capacity(row.prompt.parts.len() + 2);
        let mut push = |source, length| {
            if length > 0 {
                prompt.push(Segment { source, length });
            }
        };
        if let Some((text, length)) = row.prompt.prefix {
            push(TokenSource::Shared(text), length);
        }
        for part in &row.prompt.parts {
            match *part {
                Part::Shared { text, length } => push(TokenSource::Shared(text), length),
                Part::Input { request, length } => push(TokenSource::Unique(linked.names[&request]), length),
                Part::Output { request, length } => push(TokenSource::Output(linked.names[&request]), length),
                Part::Round { request } => {
                    let index = linked.rows[&request];
                    let name = linked.ids[index].0;
                    push(TokenSource::Unique(name), linked.trace.rows[index].prompt.own);
                    push(TokenSource::Output(name), self.outputs[&index]);
                }
            }
        }
        push(TokenSource::Unique(id.0), row.prompt.own);
        prompt.into()
    }
}

impl Source for TraceSource {
    fn name(&self) -> &str {
        &self.linked.trace.clients[self.client as usize]
    }

    fn class(&self) -> &str {
        let class = self.linked.trace.classes.get(self.client as usize);
        class.map(String::as_str).filter(|class| !class.is_empty()).unwrap_or(DEFAULT_CLASS)
    }

    fn next_send(&self) -> Option<SimTime> {
        self.candidates().into_iter().flatten().min().map(|(time, _)| time)
    }

    fn send(&mut self, now: SimTime) -> Draft {
        // Whatever is due goes in the order of the rows, even where it has been due for longer than another row.
        let due = |candidate: &Option<(SimTime, usize)>| candidate.filter(|(time, _)| *time <= now).map(|(_, index)| index);
        let [timed, caused, start] = self.candidates();
        let index = [timed, caused, start].iter().filter_map(due).min().expect("a row is due at the instant the source named");
        if due(&timed) == Some(index) {
            self.timed_sent += 1;
        } else if due(&caused) == Some(index) {
            self.due.pop_first();
        } else {
            self.starts_sent += 1;
            self.lanes.take(index as u64);
        }
        self.sent += 1;
        self.in_flight += 1;
        self.draft(index)
    }

    fn ended(&mut self, now: SimTime, record: &RequestRecord) {
        self.in_flight -= 1;
        let place = usize::try_from(record.index).expect("an index of the client's rows");
        let index = self.by_index[place];
        let linked = Arc::clone(&self.linked);
        if linked.repeated.contains(&index) {
            self.outputs.insert(index, u32::try_from(record.output_tokens).expect("an output length has 32 bits"));
        }
        let completed = record.fate == Fate::Completed;
        let followers = linked.followers.get(&index).filter(|_| completed);
        for follower in followers.into_iter().flatten() {
            let delay = self.row(*follower).after.map_or(0, |(_, delay)| delay);
            self.due.insert((now + SimDuration::from_micros(delay), *follower));
            self.lanes.hand_over(index as u64, *follower as u64);
        }
        if followers.is_none() && !(completed && self.row(index).rounds_left > 0) {
            self.lanes.give_back(index as u64);
        }
        self.since = now;
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn unsent(&self) -> Option<u64> {
        let rest = if self.client == 0 { self.linked.trace.not_started } else { 0 };
        (!self.linked.trace.open_ended).then(|| self.by_index.len() as u64 - self.sent + rest)
    }
}
