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
use blis_contracts::scenario::{Arrival, Client, Context, CountDistribution, DEFAULT_CLASS, PairOrder, Sessions};
use blis_contracts::units::{SimDuration, SimTime};

use crate::arrivals::{OpenArrivals, Start};
use crate::lanes::Lanes;
use crate::random::{Substream, largest_count, mean_count};
use crate::source::{Draft, INDEX_BITS, Origin, Round, Source, request_id};

/// A client as a source.
#[derive(Debug)]
pub(crate) struct ClientSource {
    spec: Client,
    name: String,
    client: u32,
    /// Which of its population it is.
    member: u32,
    /// Names the client's substreams.
    component: String,
    seed: u64,
    /// The shared texts a session may start with, by number.
    prefixes: Vec<u32>,
    arrivals: Arrivals,
    /// Room for the rounds of one session in the numbering of requests.
    stride: u64,
    sessions_started: u64,
    /// Sessions that have more to send, by when.
    thinking: BTreeSet<(SimTime, u64)>,
    /// Sessions of several rounds that have begun and not ended.
    open: BTreeMap<u64, Session>,
    sent: u64,
    /// Whether its arrivals end by themselves.
    ends: bool,
}

/// When sessions start.
#[derive(Debug)]
enum Arrivals {
    /// At instants of their own, of which this is the next.
    Open { next: Option<Start>, process: OpenArrivals },
    /// When a place comes free, which one last did at an instant.
    Closed { lanes: Lanes, since: SimTime },
}

/// A session of several rounds, between its first request and the end of its last.
#[derive(Debug)]
struct Session {
    round: u32,
    rounds: u32,
    /// Rounds that have been sent.
    sent: u32,
    /// The rounds so far, as the next prompt repeats them.
    history: Vec<Segment>,
    /// What its next request follows, and how long after.
    after: Option<(RequestId, SimDuration)>,
    phase: Option<u32>,
}

impl ClientSource {
    /// `client` is the source's index in the workload, `member` its index in the client's population, and `prefixes` the numbers of the
    /// shared texts the client names.
    pub(crate) fn new(client: u32, spec: &Client, member: u32, prefixes: Vec<u32>, seed: u64) -> Self {
        let name = if spec.population.is_some() { format!("{}-{member}", spec.id) } else { spec.id.clone() };
        let component = format!("client/{name}");
        let mean_rounds = spec.sessions.as_ref().map_or(1.0, |sessions| mean_count(&sessions.rounds));
        let arrivals = match (&spec.arrival, OpenArrivals::new(spec, member, &component, mean_rounds, seed)) {
            (_, Some(mut process)) => Arrivals::Open { next: process.next(), process },
            (Arrival::ClosedLoop(closed), None) => {
                Arrivals::Closed { lanes: Lanes::new(closed.concurrency / spec.members()), since: SimTime::ZERO }
            }
            (_, None) => panic!("every arrival process but the closed loop is open"),
        };
        Self {
            client,
            member,
            name,
            component,
            seed,
            prefixes,
            arrivals,
            stride: spec.sessions.as_ref().map_or(1, |sessions| u64::from(largest_count(&sessions.rounds))),
            ends: spec.ends(),
            spec: spec.clone(),
            sessions_started: 0,
            thinking: BTreeSet::new(),
            open: BTreeMap::new(),
            sent: 0,
        }
    }

    fn stream(&self, purpose: &str, entity: u64) -> Substream {
        Substream::new(self.seed, &self.component, purpose, entity)
    }

    /// Requests of a session.
    fn rounds(&self, session: u64) -> u32 {
        self.spec.sessions.as_ref().map_or(1, |sessions| self.stream("rounds", session).count(&sessions.rounds))
    }

    /// Prompt and output tokens of a request, by its index.
    fn lengths(&self, index: u64) -> [u32; 2] {
        let drawn = |purpose: &str, distribution: &Option<CountDistribution>| {
            self.stream(purpose, index).count(distribution.as_ref().expect("validation asks for both lengths or for pairs"))
        };
        let Some(paired) = &self.spec.lengths else {
            return [drawn("input", &self.spec.input), drawn("output", &self.spec.output)];
        };
        let count = paired.pairs.len();
        paired.pairs[match paired.order {
            PairOrder::Drawn => self.stream("lengths", index).index(count),
            PairOrder::Listed => {
                let place = index * u64::from(self.spec.members()) + u64::from(self.member);
                usize::try_from(place % count as u64).expect("below the number of pairs")
            }
        }]
    }

    /// The shared text a session's prompts start with.
    fn prefix(&self, session: u64) -> Option<Segment> {
        let prefix = self.spec.prefix.as_ref()?;
        let text = match self.prefixes[..] {
            [only] => only,
            _ => self.prefixes[self.stream("prefix", session).index(self.prefixes.len())],
        };
        Some(Segment { source: TokenSource::Shared(text), length: prefix.length })
    }

    /// Starts the next session and returns its number, and the phase it starts in.
    fn start_session(&mut self) -> (u64, Option<u32>) {
        let session = self.sessions_started;
        self.sessions_started += 1;
        let phase = match &mut self.arrivals {
            Arrivals::Open { next, process } => std::mem::replace(next, process.next()).and_then(|start| start.phase),
            Arrivals::Closed { lanes, .. } => {
                lanes.take(session);
                None
            }
        };
        if self.spec.sessions.is_some() {
            let rounds = self.rounds(session);
            self.open.insert(session, Session { round: 0, rounds, sent: 0, history: Vec::new(), after: None, phase });
        }
        (session, phase)
    }

    /// When the next session starts, and where it stands among sessions that send at that instant: last.
    fn next_start(&self) -> Option<(SimTime, u64)> {
        match &self.arrivals {
            Arrivals::Open { next, .. } => next.map(|start| (start.at, u64::MAX)),
            Arrivals::Closed { lanes, since } => lanes.any_free().then_some((*since, u64::MAX)),
        }
    }

    /// The request of a session's present round.
    fn draft(&self, session: u64, phase: Option<u32>) -> Draft {
        let state = self.open.get(&session);
        let index = session * self.stride + state.map_or(0, |state| u64::from(state.round));
        assert!(index < 1 << INDEX_BITS, "client {} ran out of request numbers", self.name);
        let id = request_id(self.client, index);
        let [input, output_length] = self.lengths(index);
        let own = Segment { source: TokenSource::Unique(id.0), length: input };
        let history = state.map_or(&[][..], |state| &state.history);
        let prompt: Arc<[Segment]> = self.prefix(session).into_iter().chain(history.iter().copied()).chain([own]).collect();
        let lane = match &self.arrivals {
            Arrivals::Open { .. } => None,
            Arrivals::Closed { lanes, .. } => lanes.of(session),
        };
        let round = state.map(|state| Round { session, round: state.round, left: state.rounds - 1 - state.round });
        Draft {
            id,
            prompt,
            output_length,
            max_tokens: self.spec.max_tokens,
            priority: self.spec.priority,
            warm_up: false,
            timeout: self.spec.timeout_s.map(|seconds| SimTime::from_seconds(seconds).since(SimTime::ZERO)),
            origin: Origin { after: state.and_then(|state| state.after), session: round, lane, phase },
        }
    }

    /// Ends a round of a session; the session goes on thinking, or is over.
    fn end_round(&mut self, now: SimTime, session: u64, record: &RequestRecord) {
        let Some(Sessions { think_time, context, .. }) = &self.spec.sessions else { return self.end_session(now, session) };
        let state = self.open.get_mut(&session).expect("a session of several rounds is open until its last has ended");
        state.round += 1;
        if state.round >= state.rounds || record.fate != Fate::Completed {
            self.open.remove(&session);
            return self.end_session(now, session);
        }
        let think_s = self.stream("think_time", record.index).seconds(think_time);
        let delay = SimTime::from_seconds(think_s).since(SimTime::ZERO);
        let text = (*context == Context::Grows).then(|| self.round_text(record));
        let state = self.open.get_mut(&session).expect("as before");
        state.history.extend(text.into_iter().flatten());
        state.after = Some((record.id, delay));
        self.thinking.insert((now + delay, session));
    }

    fn end_session(&mut self, now: SimTime, session: u64) {
        if let Arrivals::Closed { lanes, since } = &mut self.arrivals {
            lanes.give_back(session);
            *since = now;
        }
    }

    /// What a round adds to the context of the next: its own input, and the tokens it generated.
    fn round_text(&self, record: &RequestRecord) -> [Segment; 2] {
        let RequestId(id) = record.id;
        let [input, _] = self.lengths(record.index);
        let output = u32::try_from(record.output_tokens).expect("an output length has 32 bits");
        [Segment { source: TokenSource::Unique(id), length: input }, Segment { source: TokenSource::Output(id), length: output }]
    }
}

impl Source for ClientSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn class(&self) -> &str {
        self.spec.slo_class.as_deref().unwrap_or(DEFAULT_CLASS)
    }

    fn next_send(&self) -> Option<SimTime> {
        self.thinking.first().copied().into_iter().chain(self.next_start()).min().map(|(time, _)| time)
    }

    fn send(&mut self, now: SimTime) -> Draft {
        let returning = self.thinking.first().copied().filter(|(time, _)| *time == now);
        let (session, phase) = if let Some((time, session)) = returning {
            self.thinking.remove(&(time, session));
            (session, self.open.get(&session).and_then(|state| state.phase))
        } else {
            self.start_session()
        };
        self.sent += 1;
        if let Some(state) = self.open.get_mut(&session) {
            state.sent += 1;
        }
        self.draft(session, phase)
    }

    fn ended(&mut self, now: SimTime, record: &RequestRecord) {
        self.end_round(now, record.index / self.stride, record);
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn unsent(&self) -> Option<u64> {
        let Arrivals::Open { next, process } = &self.arrivals else { return None };
        if !self.ends {
            return None;
        }
        let begun: u64 = self.open.values().map(|state| u64::from(state.rounds - state.sent)).sum();
        let (mut process, mut next, mut session, mut left) = (process.clone(), *next, self.sessions_started, begun);
        while next.is_some() {
            left += u64::from(self.rounds(session));
            session += 1;
            next = process.next();
        }
        Some(left)
    }
}
