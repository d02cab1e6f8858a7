//! Who sends requests: clients described by distributions, or a benchmark client with its own exact generator.
//!
//! Left out: traces to replay, which are files of their own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::distribution::require_count;
use super::{CountDistribution, DEFAULT_CLASS, MAX_REQUESTS, MAX_SECONDS, TimeDistribution, require_distinct, require_text};
use crate::strict::Problems;
use crate::tagged_enum;

/// The most requests a client may send per second: simulated time counts microseconds.
const MAX_RATE: f64 = 1e6;

/// The fewest requests a client may send per second: one in the longest time a document may state.
const MIN_RATE: f64 = 1.0 / MAX_SECONDS;

/// The most requests one client may hold in flight.
const MAX_CONCURRENCY: u32 = 1_000_000;

/// The most clients of a workload: a request's number has this much room for its client.
const MAX_CLIENTS: usize = 1 << 24;

/// The most rounds of a session: with the most requests of a run, numbers of requests stay below 2^40, the room a client has.
const MAX_ROUNDS: u32 = 1000;

tagged_enum! {
    /// The workload.
    pub enum Workload by key {
        /// Clients described by distributions.
        Clients(Clients) = "clients",
        /// A benchmark client.
        Benchmark(BenchmarkClient) = "client",
    }
}

/// Clients described by distributions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// The clients. Each is one source: what it sends does not depend on the others.
    pub clients: Vec<Client>,
}

/// A client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// What results call it.
    pub id: String,
    /// When it sends.
    pub arrival: Arrival,
    /// Prompt tokens of a request's own: without the shared prefix, and without what its session has grown by.
    pub input: CountDistribution,
    /// Tokens a request generates, unless a limit ends it sooner.
    pub output: CountDistribution,
    /// Text that every prompt of the client starts with; none where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Prefix>,
    /// How requests form sessions; where left out every request stands alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Sessions>,
    /// Scheduling priority; lower runs first where the engine looks at it. 0 where left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// The limit on generated tokens that each request states; the engine's own rule where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// The service class whose objective its requests are judged by; `default` where left out. No scheduling decision looks at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo_class: Option<String>,
}

tagged_enum! {
    /// When a client sends.
    pub enum Arrival by tag "process" {
        /// At random, independently of everything.
        Poisson(Rate) = "poisson",
        /// At equal intervals, the first after one interval.
        Constant(Rate) = "constant",
        /// As soon as an earlier request ends, holding a number of them in flight.
        ClosedLoop(ClosedLoop) = "closed_loop",
    }
}

/// A rate of sending.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Requests per second of the whole client. With sessions it is the mean over all their rounds: sessions start at the rate
    /// divided by the mean number of rounds.
    pub rate: f64,
}

/// A number of requests held in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClosedLoop {
    /// Requests in flight. With sessions it is the number of sessions, each held through its think times.
    pub concurrency: u32,
}

/// Text shared by requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prefix {
    /// The text's name: clients that name the same group share it from its first token on.
    pub group: String,
    /// Tokens of it that each prompt starts with.
    pub length: u32,
}

/// How requests form sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sessions {
    /// Requests of a session, one after the other.
    pub rounds: CountDistribution,
    /// Time from the end of a round to the next, in seconds.
    pub think_time: TimeDistribution,
    /// What a round's prompt holds of the rounds before it.
    pub context: Context,
}

/// What a round's prompt holds of the rounds before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Context {
    /// Every earlier round's own input and output, in order, after the prefix.
    Grows,
    /// Nothing.
    Fresh,
}

tagged_enum! {
    /// A benchmark client, by name.
    pub enum BenchmarkClient by tag "client" {
        /// The client of InferenceX.
        Inferencex(Inferencex) = "inferencex",
    }
}

/// The benchmark client of InferenceX: a closed loop of requests whose lengths are drawn before the first is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Inferencex {
    /// Largest prompt length, in tokens.
    pub isl: u32,
    /// Largest output length, in tokens.
    pub osl: u32,
    /// Requests in flight.
    pub concurrency: u32,
    /// Smallest length as a share of the largest: above 0, at most 1.
    pub range_ratio: f64,
    /// The seed of the client's own generator, apart from the scenario's.
    pub seed: u32,
    /// Copies of the first request sent and awaited before the measured ones; 0 for none.
    pub warmup: u32,
    /// Requests whose lengths are drawn; `frame.stop.requests` where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_prompts: Option<u64>,
}

impl Workload {
    /// The service class of each source of requests, in the workload's order.
    pub fn classes(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Self::Clients(workload) => Box::new(workload.clients.iter().map(|client| client.slo_class.as_deref().unwrap_or(DEFAULT_CLASS))),
            Self::Benchmark(BenchmarkClient::Inferencex(_)) => Box::new(std::iter::once(DEFAULT_CLASS)),
        }
    }

    pub(super) fn validate(&self, problems: &mut Problems) {
        match self {
            Self::Clients(workload) => workload.validate(problems),
            Self::Benchmark(BenchmarkClient::Inferencex(client)) => client.validate(problems),
        }
    }
}

impl Clients {
    fn validate(&self, problems: &mut Problems) {
        let count = self.clients.len();
        problems.require("clients", (1..=MAX_CLIENTS).contains(&count), format_args!("from 1 to {MAX_CLIENTS} clients"), count);
        problems.each("clients", &self.clients, |problems, client| client.validate(problems));
        require_distinct(problems, "clients", "id", self.clients.iter().map(|client| client.id.as_str()));
    }
}

impl Client {
    fn validate(&self, problems: &mut Problems) {
        require_text(problems, "id", &self.id);
        problems.within("arrival", |problems| self.arrival.validate(problems));
        problems.within("input", |problems| self.input.validate(problems));
        problems.within("output", |problems| self.output.validate(problems));
        if let Some(Prefix { group, length }) = &self.prefix {
            problems.within("prefix", |problems| {
                require_text(problems, "group", group);
                require_count(problems, "length", *length);
            });
        }
        if let Some(sessions) = &self.sessions {
            problems.within("sessions", |problems| {
                problems.within("rounds", |problems| sessions.rounds.validate(problems));
                let largest = sessions.rounds.largest();
                problems.require("rounds", largest <= MAX_ROUNDS, format_args!("at most {MAX_ROUNDS}"), largest);
                problems.within("think_time", |problems| sessions.think_time.validate(problems));
            });
        }
        if let Some(limit) = self.max_tokens {
            require_count(problems, "max_tokens", limit);
        }
        if let Some(class) = &self.slo_class {
            require_text(problems, "slo_class", class);
        }
    }
}

impl Arrival {
    /// Requests per second, of a process that has a rate.
    pub fn rate(&self) -> Option<f64> {
        match self {
            Self::Poisson(Rate { rate }) | Self::Constant(Rate { rate }) => Some(*rate),
            Self::ClosedLoop(_) => None,
        }
    }

    fn validate(&self, problems: &mut Problems) {
        match self {
            Self::Poisson(Rate { rate }) | Self::Constant(Rate { rate }) => {
                problems.require("rate", *rate > 0.0, "above 0 requests per second", rate);
                if *rate > 0.0 {
                    let holds = (MIN_RATE..=MAX_RATE).contains(rate);
                    problems.require("rate", holds, format_args!("from {MIN_RATE:e} to {MAX_RATE:e} requests per second"), rate);
                }
            }
            Self::ClosedLoop(ClosedLoop { concurrency }) => require_concurrency(problems, *concurrency),
        }
    }
}

impl Inferencex {
    fn validate(&self, problems: &mut Problems) {
        require_count(problems, "isl", self.isl);
        require_count(problems, "osl", self.osl);
        require_concurrency(problems, self.concurrency);
        problems.require("warmup", u64::from(self.warmup) <= MAX_REQUESTS, format_args!("at most {MAX_REQUESTS}"), self.warmup);
        let holds = self.range_ratio > 0.0 && self.range_ratio <= 1.0;
        problems.require("range_ratio", holds, "above 0 and at most 1", self.range_ratio);
        for (key, length) in [("isl", self.isl), ("osl", self.osl)] {
            if holds && length > 0 && f64::from(length) * self.range_ratio < 1.0 {
                problems.refuse("range_ratio", format!("lets {key} ({length}) become 0, found {:?}", self.range_ratio));
            }
        }
        if let Some(count) = self.num_prompts {
            problems.require("num_prompts", (1..=MAX_REQUESTS).contains(&count), format_args!("from 1 to {MAX_REQUESTS}"), count);
        }
    }
}

fn require_concurrency(problems: &mut Problems, concurrency: u32) {
    let holds = (1..=MAX_CONCURRENCY).contains(&concurrency);
    problems.require("concurrency", holds, format_args!("from 1 to {MAX_CONCURRENCY}"), concurrency);
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
fn is_zero(value: &i32) -> bool {
    *value == 0
}
