//! Whether runs like this one were ever compared with measurements, and how far those lay from simulation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is known of a run's errors.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Validity {
    /// Whether deployments like this one were measured and compared.
    pub inside: bool,
    /// Why not: each bound it lies outside.
    pub outside: Vec<String>,
    /// Where the measured mean time per output token is expected.
    pub tpot: Option<ErrorInterval>,
    /// Where the measured mean time to first token is expected.
    pub ttft: Option<ErrorInterval>,
}

/// Where a measured mean is expected, as multiples of the simulated one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorInterval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Share of measured points it is to cover.
    pub level: f64,
    /// Share it covered of deployments that were left out of it.
    pub covered: f64,
    /// The points it rests on, in words.
    pub over: String,
    /// How many.
    pub points: u32,
    /// Deployments they belong to.
    pub deployments: u32,
}
