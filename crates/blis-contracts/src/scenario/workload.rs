//! Who sends requests: clients described by distributions, a benchmark client with its own exact generator, or a recorded trace.
//!
//! When clients send is in `arrival`. Left out: what a trace holds, which is a file of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::arrival::{Arrival, Profile, require_concurrency};
use super::distribution::{MAX_COUNT, require_count, require_positive_time};
use super::{CountDistribution, DEFAULT_CLASS, MAX_REQUESTS, TimeDistribution, require_distinct, require_text};
use crate::strict::{Problem, Problems};
use crate::tagged_enum;

/// The most clients of a workload: a request's number has this much room for its client.
const MAX_CLIENTS: usize = 1 << 24;

/// The most rounds of a session: with the most requests of a run, numbers of requests stay below 2^40, the room a client has.
const MAX_ROUNDS: u32 = 1000;

/// The most clients alike.
const MAX_POPULATION: u32 = 1_000_000;

tagged_enum! {
    /// The workload.
    pub enum Workload by key {
        /// Clients described by distributions.
        Clients(Clients) = "clients",
        /// A benchmark client.
        Benchmark(BenchmarkClient) = "client",
        /// A recorded trace.
        Trace(TraceWorkload) = "trace",
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
    /// How many clients like it there are; each is one of its own, named `ID-0`, `ID-1` and so on. 1, named `ID`, where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub population: Option<u32>,
    /// When it sends. A rate and a concurrency are those of the whole population.
    pub arrival: Arrival,
    /// How the rate changes over time; not at all where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Prompt tokens of a request's own: without the shared prefix, and without what its session has grown by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<CountDistribution>,
    /// Tokens a request generates, unless a limit ends it sooner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<CountDistribution>,
    /// Prompt and output tokens together, instead of `input` and `output`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lengths: Option<PairedLengths>,
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
    /// How long the client waits for the last token before it gives up, in seconds; for ever where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
}

/// Prompt and output lengths that belong together, as a trace pairs them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PairedLengths {
    /// Pairs of prompt and output tokens.
    pub pairs: Vec<[u32; 2]>,
    /// Which pair a request takes.
    pub order: PairOrder,
}

/// Which pair of lengths a request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PairOrder {
    /// Any of them, each equally often.
    Drawn,
    /// The next one, from the first again after the last.
    Listed,
}

/// Text shared by requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prefix {
    /// The text's name: clients that name the same group share it from its first token on.
    pub group: String,
    /// Tokens of it that each prompt starts with.
    pub length: u32,
    /// How many different texts the group has; each session takes one of them, each equally often. 1 where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variants: Option<u32>,
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

/// A trace to replay instead of drawing requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceWorkload {
    /// The file, seen from the scenario's folder.
    pub trace: String,
    /// What the file is; found by its ending where left out, if that tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<TraceFormat>,
    /// The unit of its times, for a format whose files do not all use the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_unit: Option<TimeUnit>,
    /// Tokens of a block that one of its hashes stands for, for a format with hashes; 512 where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_tokens: Option<u32>,
    /// Whether requests that share an instant are spread evenly until the next one, as for a file whose times lie on a grid of seconds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread_times: bool,
}

/// A format of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TraceFormat {
    /// A BLIS trace: a header in YAML with a table in CSV beside it.
    Blis,
    /// Mooncake's JSON lines, with the hashes of prompt blocks.
    Mooncake,
    /// Azure's CSV of 2023 and 2024.
    Azure,
    /// BurstGPT's CSV.
    Burstgpt,
}

impl TraceFormat {
    /// Every format, by name.
    pub const ALL: [(Self, &'static str); 4] =
        [(Self::Blis, "blis"), (Self::Mooncake, "mooncake"), (Self::Azure, "azure"), (Self::Burstgpt, "burstgpt")];
}

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimeUnit {
    /// Seconds.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
}

impl TimeUnit {
    /// Every unit, by name.
    pub const ALL: [(Self, &'static str); 3] = [(Self::S, "s"), (Self::Ms, "ms"), (Self::Us, "us")];
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
    /// The service classes of its clients, in the workload's order; those of a trace stand in the trace.
    pub fn classes(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Self::Clients(workload) => Box::new(workload.clients.iter().map(|client| client.slo_class.as_deref().unwrap_or(DEFAULT_CLASS))),
            Self::Benchmark(BenchmarkClient::Inferencex(_)) => Box::new(std::iter::once(DEFAULT_CLASS)),
            Self::Trace(_) => Box::new(std::iter::empty()),
        }
    }

    /// Everything wrong with it that it alone can show.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Problems::new();
        problems.within("workload", |problems| self.validate(problems));
        problems.into_vec()
    }

    pub(super) fn validate(&self, problems: &mut Problems) {
        match self {
            Self::Clients(workload) => workload.validate(problems),
            Self::Benchmark(BenchmarkClient::Inferencex(client)) => client.validate(problems),
            Self::Trace(trace) => {
                require_text(problems, "trace", &trace.trace);
                if let Some(tokens) = trace.block_tokens {
                    require_count(problems, "block_tokens", tokens);
                }
            }
        }
    }

    /// Whether it sends a limited number of requests by itself, so that a run needs no other end.
    pub fn ends(&self) -> bool {
        match self {
            Self::Clients(workload) => workload.clients.iter().all(Client::ends),
            Self::Benchmark(BenchmarkClient::Inferencex(client)) => client.num_prompts.is_some(),
            Self::Trace(_) => true,
        }
    }
}

impl Clients {
    fn validate(&self, problems: &mut Problems) {
        let count = self.clients.len();
        problems.require("clients", (1..=MAX_CLIENTS).contains(&count), format_args!("from 1 to {MAX_CLIENTS} clients"), count);
        problems.each("clients", &self.clients, |problems, client| client.validate(problems));
        let total: u64 = self.clients.iter().map(|client| u64::from(client.members())).sum();
        problems.require(
            "clients",
            total <= MAX_CLIENTS as u64,
            format_args!("at most {MAX_CLIENTS} clients with their populations"),
            total,
        );
        let named = |client: &Client| client.population.is_none().then(|| client.id.clone());
        let names = self.clients.iter().map(|client| named(client).unwrap_or_else(|| format!("{}-0", client.id)));
        let names: Vec<String> = names.collect();
        require_distinct(problems, "clients", "id", names.iter().map(String::as_str));
    }
}

impl Client {
    /// How many clients like it there are.
    pub fn members(&self) -> u32 {
        self.population.unwrap_or(1)
    }

    /// Whether it stops sending by itself.
    pub fn ends(&self) -> bool {
        matches!(self.arrival, Arrival::Phases(_)) || self.profile.as_ref().is_some_and(Profile::ends)
    }

    /// About how many requests its arrival process sends in a time, in seconds, at most.
    pub(super) fn expected(&self, seconds: f64) -> f64 {
        self.arrival.expected(seconds) * self.profile.as_ref().map_or(1.0, Profile::most)
    }

    fn validate(&self, problems: &mut Problems) {
        require_text(problems, "id", &self.id);
        if let Some(population) = self.population {
            problems.require(
                "population",
                (1..=MAX_POPULATION).contains(&population),
                format_args!("from 1 to {MAX_POPULATION}"),
                population,
            );
        }
        problems.within("arrival", |problems| self.arrival.validate(problems));
        self.validate_profile(problems);
        self.validate_lengths(problems);
        if let Some(Prefix { group, length, variants }) = &self.prefix {
            problems.within("prefix", |problems| {
                require_text(problems, "group", group);
                require_count(problems, "length", *length);
                let variants = variants.unwrap_or(1);
                problems.require(
                    "variants",
                    (1..=MAX_POPULATION).contains(&variants),
                    format_args!("from 1 to {MAX_POPULATION}"),
                    variants,
                );
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
        if let Some(seconds) = self.timeout_s {
            require_positive_time(problems, "timeout_s", seconds);
        }
    }

    fn validate_profile(&self, problems: &mut Problems) {
        if let Some(profile) = &self.profile {
            problems.within("profile", |problems| profile.validate(problems));
            if self.arrival.rate().is_none() {
                problems.refuse("profile", "changes a rate, and the arrival process has none; use poisson, constant, gamma or weibull");
            }
        }
        if let Arrival::ClosedLoop(closed) = &self.arrival
            && !closed.concurrency.is_multiple_of(self.members().max(1))
        {
            let message = format!("must share out evenly over a population of {}, found {}", self.members(), closed.concurrency);
            problems.within("arrival", |problems| problems.refuse("concurrency", message));
        }
    }

    fn validate_lengths(&self, problems: &mut Problems) {
        for (key, length) in [("input", &self.input), ("output", &self.output)] {
            match (length, &self.lengths) {
                (Some(length), None) => problems.within(key, |problems| length.validate(problems)),
                (None, None) => problems.refuse("", format!("has no `{key}`; state `input` and `output`, or `lengths`")),
                (Some(_), Some(_)) => problems.refuse(key, "excludes `lengths`; keep one of them"),
                (None, Some(_)) => {}
            }
        }
        if let Some(paired) = &self.lengths {
            problems.within("lengths", |problems| {
                if paired.order == PairOrder::Listed && self.sessions.is_some() {
                    problems.refuse("order", "`listed` needs requests in one order, which sessions do not have; use `drawn`");
                }
                problems.require("pairs", !paired.pairs.is_empty(), "at least one pair", paired.pairs.len());
                problems.each("pairs", &paired.pairs, |problems, pair| {
                    for (index, tokens) in pair.iter().enumerate() {
                        problems.require("", (1..=MAX_COUNT).contains(tokens), format_args!("from 1 to {MAX_COUNT} at {index}"), tokens);
                    }
                });
            });
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
fn is_zero(value: &i32) -> bool {
    *value == 0
}
