//! When a client sends: arrival processes, phases with processes of their own, and how a rate changes over a day or an incident.
//!
//! These are the parameters; the samplers are the workload's. A rate is that of the whole client, over all sessions and rounds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MAX_SECONDS;
use super::distribution::{require_positive_time, require_time};
use crate::strict::Problems;
use crate::tagged_enum;

/// The most requests a client may send per second: simulated time counts microseconds.
const MAX_RATE: f64 = 1e6;

/// The fewest requests a client may send per second: one in the longest time a document may state.
const MIN_RATE: f64 = 1.0 / MAX_SECONDS;

/// The least and the most a coefficient of variation may be; beyond, a gap is either constant or lost in a microsecond.
const CV_RANGE: std::ops::RangeInclusive<f64> = 0.01..=100.0;

/// The most requests one client may hold in flight.
const MAX_CONCURRENCY: u32 = 1_000_000;

tagged_enum! {
    /// When a client sends.
    pub enum Arrival by tag "process" {
        /// At random, independently of everything.
        Poisson(Rate) = "poisson",
        /// At equal intervals, the first after one interval.
        Constant(Rate) = "constant",
        /// After gaps of a gamma distribution.
        Gamma(VariedRate) = "gamma",
        /// After gaps of a Weibull distribution.
        Weibull(VariedRate) = "weibull",
        /// One process after another, each for a stated time; nothing is sent after the last.
        Phases(Phases) = "phases",
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

/// A rate of sending with gaps that vary by a stated amount.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VariedRate {
    /// Requests per second of the whole client, as with a plain rate.
    pub rate: f64,
    /// Standard deviation of the gaps as a share of their mean: 1 is as bursty as a Poisson process, more is burstier.
    pub cv: f64,
}

/// One process after another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// The phases, in order. Each begins when the one before it ends, and its first gap begins with it.
    pub phases: Vec<Phase>,
}

/// A phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// How long it lasts, in seconds.
    pub duration_s: f64,
    /// The process of the phase; nothing is sent where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrival: Option<Arrival>,
}

/// A number of requests held in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClosedLoop {
    /// Requests in flight. With sessions it is the number of sessions, each held through its think times.
    pub concurrency: u32,
}

tagged_enum! {
    /// How a client's rate changes over simulated time, as a factor on the rate its arrival process states.
    pub enum Profile by tag "shape" {
        /// Up and down like a cosine, with the stated rate as its mean.
        Diurnal(Diurnal) = "diurnal",
        /// A stretch with more (or less) traffic.
        Spike(Spike) = "spike",
        /// Traffic that fades to nothing.
        Drain(Drain) = "drain",
    }
}

/// A rate that goes up and down like a cosine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Diurnal {
    /// Time from one peak to the next, in seconds; a day has 86,400.
    pub period_s: f64,
    /// When the first peak is, in seconds after the start.
    pub peak_s: f64,
    /// The rate at a peak as a multiple of the rate at a trough.
    pub peak_to_trough: f64,
}

/// A stretch with a rate of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spike {
    /// When it begins, in seconds after the start.
    pub start_s: f64,
    /// How long it lasts, in seconds.
    pub duration_s: f64,
    /// The rate within it as a multiple of the stated rate.
    pub factor: f64,
}

/// A rate that falls evenly to nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// When the rate begins to fall, in seconds after the start.
    pub start_s: f64,
    /// How long it takes to fall to nothing, in seconds.
    pub duration_s: f64,
}

impl Arrival {
    /// Requests per second, of a process that has one rate.
    pub fn rate(&self) -> Option<f64> {
        match self {
            Self::Poisson(Rate { rate })
            | Self::Constant(Rate { rate })
            | Self::Gamma(VariedRate { rate, .. })
            | Self::Weibull(VariedRate { rate, .. }) => Some(*rate),
            Self::Phases(_) | Self::ClosedLoop(_) => None,
        }
    }

    /// About how many requests an open process sends in a time, in seconds.
    pub(super) fn expected(&self, seconds: f64) -> f64 {
        match self {
            Self::Phases(Phases { phases }) => {
                let of = |phase: &Phase| phase.arrival.as_ref().map_or(0.0, |arrival| arrival.expected(phase.duration_s));
                phases.iter().map(of).sum()
            }
            other @ (Self::Poisson(_) | Self::Constant(_) | Self::Gamma(_) | Self::Weibull(_) | Self::ClosedLoop(_)) => {
                other.rate().unwrap_or(0.0) * seconds
            }
        }
    }

    pub(super) fn validate(&self, problems: &mut Problems) {
        match self {
            Self::Poisson(Rate { rate }) | Self::Constant(Rate { rate }) => require_rate(problems, *rate),
            Self::Gamma(VariedRate { rate, cv }) | Self::Weibull(VariedRate { rate, cv }) => {
                require_rate(problems, *rate);
                let (least, most) = (CV_RANGE.start(), CV_RANGE.end());
                problems.require("cv", CV_RANGE.contains(cv), format_args!("from {least} to {most}"), cv);
            }
            Self::Phases(Phases { phases }) => {
                problems.require("phases", !phases.is_empty(), "at least one phase", phases.len());
                problems.each("phases", phases, |problems, phase| phase.validate(problems));
                if phases.iter().all(|phase| phase.arrival.is_none()) && !phases.is_empty() {
                    problems.refuse("phases", "send nothing; state `arrival` in one of them");
                }
            }
            Self::ClosedLoop(ClosedLoop { concurrency }) => require_concurrency(problems, *concurrency),
        }
    }
}

impl Phase {
    fn validate(&self, problems: &mut Problems) {
        require_positive_time(problems, "duration_s", self.duration_s);
        let Some(arrival) = &self.arrival else { return };
        let Some(rate) = arrival.rate() else {
            return problems.refuse("arrival", "must be poisson, constant, gamma or weibull within a phase");
        };
        problems.within("arrival", |problems| arrival.validate(problems));
        if rate > 0.0 && self.duration_s > 0.0 && rate * self.duration_s < 1.0 {
            let message = format!(
                "makes less than one request: {rate} per second for {} s; make the phase longer, or leave `arrival` out for a pause",
                self.duration_s
            );
            problems.refuse("arrival", message);
        }
    }
}

impl Profile {
    /// Whether traffic ends for good.
    pub(super) fn ends(&self) -> bool {
        match self {
            Self::Drain(_) => true,
            Self::Diurnal(_) | Self::Spike(_) => false,
        }
    }

    /// A bound on the factor's mean.
    pub(super) fn most(&self) -> f64 {
        match self {
            Self::Diurnal(_) => 2.0,
            Self::Spike(spike) => spike.factor.max(1.0),
            Self::Drain(_) => 1.0,
        }
    }

    pub(super) fn validate(&self, problems: &mut Problems) {
        match self {
            Self::Diurnal(Diurnal { period_s, peak_s, peak_to_trough }) => {
                require_positive_time(problems, "period_s", *period_s);
                require_time(problems, "peak_s", *peak_s);
                let holds = (1.0..=1e6).contains(peak_to_trough);
                problems.require("peak_to_trough", holds, "from 1 to 1000000", peak_to_trough);
            }
            Self::Spike(Spike { start_s, duration_s, factor }) => {
                require_time(problems, "start_s", *start_s);
                require_positive_time(problems, "duration_s", *duration_s);
                problems.require("factor", *factor > 0.0 && *factor <= 1e6, "above 0 and at most 1000000", factor);
            }
            Self::Drain(Drain { start_s, duration_s }) => {
                require_time(problems, "start_s", *start_s);
                require_positive_time(problems, "duration_s", *duration_s);
            }
        }
    }
}

fn require_rate(problems: &mut Problems, rate: f64) {
    problems.require("rate", rate > 0.0, "above 0 requests per second", rate);
    if rate > 0.0 {
        let holds = (MIN_RATE..=MAX_RATE).contains(&rate);
        problems.require("rate", holds, format_args!("from {MIN_RATE:e} to {MAX_RATE:e} requests per second"), rate);
    }
}

pub(super) fn require_concurrency(problems: &mut Problems, concurrency: u32) {
    let holds = (1..=MAX_CONCURRENCY).contains(&concurrency);
    problems.require("concurrency", holds, format_args!("from 1 to {MAX_CONCURRENCY}"), concurrency);
}
