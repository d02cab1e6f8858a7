//! Distributions a document states, of whole numbers (tokens, rounds) and of time.
//!
//! These are the parameters; the samplers are the workload's. Moments are those of the distribution itself, before bounds and
//! rounding. A draw is rounded to the nearest whole number, and one beyond a bound takes the bound, so that each quantity costs one
//! draw in every configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MAX_SECONDS;
use crate::strict::Problems;
use crate::tagged_enum;

/// The largest length or count a document may state.
pub const MAX_COUNT: u32 = 1_000_000_000;

tagged_enum! {
    /// A distribution of whole numbers; the key that holds it says of what.
    pub enum CountDistribution by tag "distribution" {
        /// The same number always.
        Constant(ConstantCount) = "constant",
        /// Every number of a range equally often.
        Uniform(UniformCount) = "uniform",
        /// A normal distribution within bounds.
        Normal(SpreadCount) = "normal",
        /// A log-normal distribution within bounds.
        Lognormal(SpreadCount) = "lognormal",
        /// An exponential distribution within bounds.
        Exponential(MeanCount) = "exponential",
        /// Numbers as they were counted.
        Empirical(EmpiricalCount) = "empirical",
    }
}

/// The same number always.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConstantCount {
    /// The number.
    pub value: u32,
}

/// Every number of a range equally often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UniformCount {
    /// The smallest, included.
    pub min: u32,
    /// The largest, included.
    pub max: u32,
}

/// A distribution given by mean and standard deviation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpreadCount {
    /// The mean of the unbounded distribution (of a log-normal one itself, not of its logarithm).
    pub mean: f64,
    /// Its standard deviation.
    pub std: f64,
    /// The smallest number drawn.
    pub min: u32,
    /// The largest number drawn.
    pub max: u32,
}

/// A distribution given by its mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeanCount {
    /// The mean of the unbounded distribution.
    pub mean: f64,
    /// The smallest number drawn.
    pub min: u32,
    /// The largest number drawn.
    pub max: u32,
}

/// Numbers as they were counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmpiricalCount {
    /// The numbers.
    pub values: Vec<u32>,
    /// How often each occurs, in any measure; equally often where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Vec<f64>>,
}

tagged_enum! {
    /// A distribution of time, in seconds.
    pub enum TimeDistribution by tag "distribution" {
        /// The same time always.
        Constant(ConstantTime) = "constant",
        /// Every time of a range equally often.
        Uniform(UniformTime) = "uniform",
        /// An exponential distribution.
        Exponential(ExponentialTime) = "exponential",
        /// A log-normal distribution.
        Lognormal(LognormalTime) = "lognormal",
    }
}

/// The same time always.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConstantTime {
    /// The time, in seconds.
    pub value_s: f64,
}

/// Every time of a range equally often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UniformTime {
    /// The shortest, in seconds.
    pub min_s: f64,
    /// The longest, in seconds.
    pub max_s: f64,
}

/// An exponential distribution of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExponentialTime {
    /// The mean, in seconds.
    pub mean_s: f64,
}

/// A log-normal distribution of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LognormalTime {
    /// The mean of the distribution itself, in seconds.
    pub mean_s: f64,
    /// Its standard deviation, in seconds.
    pub std_s: f64,
}

impl CountDistribution {
    /// The largest number a draw can give.
    pub fn largest(&self) -> u32 {
        match self {
            Self::Constant(ConstantCount { value }) => *value,
            Self::Uniform(UniformCount { max, .. }) | Self::Exponential(MeanCount { max, .. }) => *max,
            Self::Normal(spread) | Self::Lognormal(spread) => spread.max,
            Self::Empirical(counted) => counted.values.iter().copied().max().unwrap_or(0),
        }
    }

    pub(super) fn validate(&self, problems: &mut Problems) {
        match self {
            Self::Constant(ConstantCount { value }) => require_count(problems, "value", *value),
            Self::Uniform(UniformCount { min, max }) => require_bounds(problems, *min, *max),
            Self::Normal(SpreadCount { mean, std, min, max }) | Self::Lognormal(SpreadCount { mean, std, min, max }) => {
                require_bounds(problems, *min, *max);
                require_mean(problems, *mean, *min, *max);
                let holds = *std > 0.0 && *std <= f64::from(MAX_COUNT);
                problems.require("std", holds, format_args!("above 0 and at most {MAX_COUNT}"), std);
            }
            Self::Exponential(MeanCount { mean, min, max }) => {
                require_bounds(problems, *min, *max);
                require_mean(problems, *mean, *min, *max);
            }
            Self::Empirical(counted) => counted.validate(problems),
        }
    }
}

impl EmpiricalCount {
    fn validate(&self, problems: &mut Problems) {
        problems.require("values", !self.values.is_empty(), "at least one number", self.values.len());
        problems.each("values", &self.values, |problems, value| require_count(problems, "", *value));
        let Some(weights) = &self.weights else { return };
        let wanted = self.values.len();
        problems.require("weights", weights.len() == wanted, format_args!("one for each of the {wanted} values"), weights.len());
        problems.each("weights", weights, |problems, weight| problems.require("", *weight >= 0.0, "0 or more", weight));
        let sum: f64 = weights.iter().sum();
        problems.require("weights", sum > 0.0 && sum.is_finite(), "numbers with a positive sum", sum);
    }
}

impl TimeDistribution {
    pub(super) fn validate(&self, problems: &mut Problems) {
        match self {
            Self::Constant(ConstantTime { value_s }) => require_time(problems, "value_s", *value_s),
            Self::Uniform(UniformTime { min_s, max_s }) => {
                require_time(problems, "min_s", *min_s);
                require_time(problems, "max_s", *max_s);
                problems.require("max_s", min_s <= max_s, format_args!("at least min_s ({min_s})"), max_s);
            }
            Self::Exponential(ExponentialTime { mean_s }) => require_positive_time(problems, "mean_s", *mean_s),
            Self::Lognormal(LognormalTime { mean_s, std_s }) => {
                require_positive_time(problems, "mean_s", *mean_s);
                require_positive_time(problems, "std_s", *std_s);
            }
        }
    }
}

/// The one rule for lengths and counts.
pub(super) fn require_count(problems: &mut Problems, key: &str, count: u32) {
    problems.require(key, (1..=MAX_COUNT).contains(&count), format_args!("from 1 to {MAX_COUNT}"), count);
}

/// The one rule for times that may not be zero.
pub(super) fn require_positive_time(problems: &mut Problems, key: &str, seconds: f64) {
    problems.require(key, seconds > 0.0 && seconds <= MAX_SECONDS, format_args!("above 0 and at most {MAX_SECONDS} seconds"), seconds);
}

pub(super) fn require_time(problems: &mut Problems, key: &str, seconds: f64) {
    problems.require(key, (0.0..=MAX_SECONDS).contains(&seconds), format_args!("from 0 to {MAX_SECONDS} seconds"), seconds);
}

fn require_bounds(problems: &mut Problems, min: u32, max: u32) {
    require_count(problems, "min", min);
    require_count(problems, "max", max);
    problems.require("max", min <= max, format_args!("at least min ({min})"), max);
}

fn require_mean(problems: &mut Problems, mean: f64, min: u32, max: u32) {
    let holds = (f64::from(min)..=f64::from(max)).contains(&mean);
    problems.require("mean", holds, format_args!("from min ({min}) to max ({max})"), mean);
}
