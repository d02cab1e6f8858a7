//! Clients described by distributions: arrivals, lengths, shared prefixes and sessions.
//!
//! A client starts sessions; a request that belongs to none is a session of one round. What a request asks for depends on its
//! session and round alone, never on when it is sent, so the same client asks the same in every configuration. Requests are numbered
//! session by session, with room for the longest session the client can have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use blis_contracts::fate::Fate;
use blis_contracts::record::RequestRecord;
use blis_contracts::request::{RequestId, Segment, TokenSource};
use blis_contracts::scenario::{Arrival, Client, Context, Sessions};
use blis_contracts::units::SimTime;

use crate::random::{Substream, largest_count, mean_count};
use crate::source::{Draft, INDEX_BITS, Source, request_id};

/// A client as a source.
#[derive(Debug)]
pub(crate) struct ClientSource {
    spec: Client,
    client: u32,
    /// Names the client's substreams.
    component: String,
    seed: u64,
    prefix: Option<Segment>,
    arrivals: Arrivals,
    /// Room for the rounds of one session in the numbering of requests.
    stride: u64,
    sessions_started: u64,
    /// Sessions that have more to send, by when.
    thinking: BTreeSet<(SimTime, u64)>,
    /// Sessions of several rounds that have begun and not ended.
    open: BTreeMap<u64, Session>,
    sent: u64,
}

/// When sessions start.
#[derive(Debug)]
enum Arrivals {
    /// At instants of their own; the next one, and the sum of gaps behind it in seconds.
    Open { next: SimTime, elapsed_s: f64 },
    /// When a place comes free: places free now, and since when.
    Closed { free: u32, since: SimTime },
}

/// A session between two of its requests.
#[derive(Debug)]
struct Session {
    round: u32,
    rounds: u32,
    /// The rounds so far, as the next prompt repeats them.
    history: Vec<Segment>,
}

impl ClientSource {
    /// `prefix_group` is the number of the shared text the client names, where it names one.
    pub(crate) fn new(client: u32, spec: &Client, prefix_group: Option<u32>, seed: u64) -> Self {
        let prefix = spec
            .prefix
            .as_ref()
            .map(|prefix| Segment { source: TokenSource::Shared(prefix_group.expect("a named group is numbered")), length: prefix.length });
        let mut source = Self {
            client,
            component: format!("client/{}", spec.id),
            seed,
            prefix,
            arrivals: match &spec.arrival {
                Arrival::ClosedLoop(closed) => Arrivals::Closed { free: closed.concurrency, since: SimTime::ZERO },
                Arrival::Poisson(_) | Arrival::Constant(_) => Arrivals::Open { next: SimTime::ZERO, elapsed_s: 0.0 },
            },
            stride: spec.sessions.as_ref().map_or(1, |sessions| u64::from(largest_count(&sessions.rounds))),
            spec: spec.clone(),
            sessions_started: 0,
            thinking: BTreeSet::new(),
            open: BTreeMap::new(),
            sent: 0,
        };
        source.draw_next_arrival();
        source
    }

    fn stream(&self, purpose: &str, entity: u64) -> Substream {
        Substream::new(self.seed, &self.component, purpose, entity)
    }

    /// Moves an open arrival process to its next instant.
    fn draw_next_arrival(&mut self) {
        let Some(rate) = self.spec.arrival.rate() else { return };
        let mean_rounds = self.spec.sessions.as_ref().map_or(1.0, |sessions| mean_count(&sessions.rounds));
        let mean_gap_s = mean_rounds / rate;
        let gap_s = match &self.spec.arrival {
            Arrival::Poisson(_) => self.stream("arrival", self.sessions_started).exponential(mean_gap_s),
            Arrival::Constant(_) | Arrival::ClosedLoop(_) => mean_gap_s,
        };
        if let Arrivals::Open { next, elapsed_s } = &mut self.arrivals {
            *elapsed_s += gap_s;
            *next = SimTime::from_seconds(*elapsed_s);
        }
    }

    /// Starts the next session and returns its number.
    fn start_session(&mut self) -> u64 {
        let session = self.sessions_started;
        self.sessions_started += 1;
        match &mut self.arrivals {
            Arrivals::Open { .. } => self.draw_next_arrival(),
            Arrivals::Closed { free, .. } => *free -= 1,
        }
        if let Some(Sessions { rounds, .. }) = &self.spec.sessions {
            let rounds = self.stream("rounds", session).count(rounds);
            self.open.insert(session, Session { round: 0, rounds, history: Vec::new() });
        }
        session
    }

    /// When the next session starts, and where it stands among sessions that send at that instant: last.
    fn next_start(&self) -> Option<(SimTime, u64)> {
        match self.arrivals {
            Arrivals::Open { next, .. } => Some((next, u64::MAX)),
            Arrivals::Closed { free: 0, .. } => None,
            Arrivals::Closed { since, .. } => Some((since, u64::MAX)),
        }
    }

    /// The request of a session's present round.
    fn draft(&self, session: u64) -> Draft {
        let state = self.open.get(&session);
        let index = session * self.stride + state.map_or(0, |state| u64::from(state.round));
        assert!(index < 1 << INDEX_BITS, "client {} ran out of request numbers", self.spec.id);
        let id = request_id(self.client, index);
        let own = Segment { source: TokenSource::Unique(id.0), length: self.stream("input", index).count(&self.spec.input) };
        let history = state.map_or(&[][..], |state| &state.history);
        let prompt: Arc<[Segment]> = self.prefix.iter().chain(history).copied().chain([own]).collect();
        let output_length = self.stream("output", index).count(&self.spec.output);
        Draft { id, prompt, output_length, max_tokens: self.spec.max_tokens, priority: self.spec.priority, warm_up: false }
    }

    /// Ends a round of a session of several; the session goes on thinking, or is over.
    fn end_round(&mut self, now: SimTime, session: u64, record: &RequestRecord) {
        let Some(Sessions { think_time, context, .. }) = &self.spec.sessions else { return self.end_session(now) };
        let state = self.open.get_mut(&session).expect("a session of several rounds is open until its last has ended");
        state.round += 1;
        if state.round >= state.rounds || record.fate != Fate::Completed {
            self.open.remove(&session);
            return self.end_session(now);
        }
        if *context == Context::Grows {
            state.history.extend(round_text(self.seed, &self.component, &self.spec, record));
        }
        let think_s = self.stream("think_time", record.index).seconds(think_time);
        let next = SimTime::from_micros(now.as_micros() + SimTime::from_seconds(think_s).as_micros());
        self.thinking.insert((next, session));
    }

    fn end_session(&mut self, now: SimTime) {
        if let Arrivals::Closed { free, since } = &mut self.arrivals {
            *free += 1;
            *since = now;
        }
    }
}

impl Source for ClientSource {
    fn name(&self) -> &str {
        &self.spec.id
    }

    fn next_send(&self) -> Option<SimTime> {
        self.thinking.first().copied().into_iter().chain(self.next_start()).min().map(|(time, _)| time)
    }

    fn send(&mut self, now: SimTime) -> Draft {
        let returning = self.thinking.first().copied().filter(|(time, _)| *time == now);
        let session = if let Some((time, session)) = returning {
            self.thinking.remove(&(time, session));
            session
        } else {
            self.start_session()
        };
        self.sent += 1;
        self.draft(session)
    }

    fn ended(&mut self, now: SimTime, record: &RequestRecord) {
        self.end_round(now, record.index / self.stride, record);
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn unsent(&self) -> Option<u64> {
        None
    }
}

/// What a round adds to the context of the next: its own input, and the tokens it generated.
fn round_text(seed: u64, component: &str, spec: &Client, record: &RequestRecord) -> [Segment; 2] {
    let RequestId(id) = record.id;
    let input = Substream::new(seed, component, "input", record.index).count(&spec.input);
    let output = u32::try_from(record.output_tokens).expect("an output length has 32 bits");
    [Segment { source: TokenSource::Unique(id), length: input }, Segment { source: TokenSource::Output(id), length: output }]
}
