//! Two sets of predictions against each other: what a summary says of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Dimension;

/// Two sets of predictions against each other, on the points that both answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Paired {
    /// Measured points that both answer.
    pub points: usize,
    /// Measured points that only the base answers.
    pub only_base: usize,
    /// Measured points that only the candidate answers.
    pub only_candidate: usize,
    /// Verdicts that the correction covers.
    pub lanes_compared: usize,
    /// Each lane, all points first.
    pub lanes: Vec<PairedLane>,
}

/// A latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Latency {
    /// Time per output token.
    Tpot,
    /// Time to first token.
    Ttft,
}

/// One lane of a paired comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PairedLane {
    /// What the points are grouped by; null for all of them.
    pub dimension: Option<Dimension>,
    /// The value they share; `all` for all of them.
    pub value: String,
    /// Which latency.
    pub latency: Latency,
    /// Points.
    pub points: usize,
    /// Sweeps they belong to.
    pub sweeps: usize,
    /// Mean of the candidate's absolute error less the base's, in percentage points; null where there are too few points.
    pub difference: Option<f64>,
    /// Bootstrap interval of the difference at the level that the correction gives this lane.
    pub interval: Option<[f64; 2]>,
    /// Chance of a difference this far from zero if there were none, corrected for the number of lanes.
    pub corrected_p: Option<f64>,
    /// The verdict; null where there are too few points or sweeps.
    pub outcome: Option<Outcome>,
}

/// What a paired comparison finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The whole interval lies below zero: the candidate's error is smaller.
    Better,
    /// The whole interval lies above zero.
    Worse,
    /// The interval holds zero, or that of a clearer lane does.
    NotDistinguished,
}
