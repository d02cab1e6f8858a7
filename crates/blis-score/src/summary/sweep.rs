//! Sweeps and their points: what a summary says of each. Times are in microseconds.

use blis_contracts::provenance::Method;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grade::{Grade, GradeReason};
use crate::sweep::Settings;

/// A sweep with its points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepSummary {
    /// The deployment's name.
    pub scenario: String,
    /// Its lengths.
    pub label: String,
    /// How it was run; null where no units were given.
    pub deployment: Option<Deployment>,
    /// What the errors of other sweeps lead one to expect of the time per output token.
    pub tpot_band: Option<Band>,
    /// The same for the time to first token.
    pub ttft_band: Option<Band>,
    /// Its points, by concurrency.
    pub points: Vec<PointSummary>,
}

/// How a sweep was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Deployment {
    /// The model.
    pub model: String,
    /// The model's family.
    pub family: String,
    /// The chip.
    pub chip: String,
    /// Chips used.
    pub gpus: u32,
    /// The engine.
    pub engine: String,
    /// The build: the image's tag.
    pub build: String,
    /// Format of the weights.
    pub precision: String,
    /// Parallel widths.
    pub layout: String,
    /// Whether the server's own log was kept.
    pub tier: Tier,
    /// The day it ran.
    pub run_date: Option<String>,
    /// The launch line, concurrency symbolic.
    pub command: String,
    /// Environment variables of the server.
    pub env: IndexMap<String, String>,
    /// What the server's log says it was passed and resolved; null where none was kept.
    pub logged: Option<Settings>,
}

/// Whether a unit's settings are known from the server itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// The server's log was kept.
    Logged,
    /// It was not: what ran is known from the launch recipe alone.
    Unlogged,
}

/// Where a measurement is expected, as multiples of the simulated value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Points of other sweeps it rests on.
    pub points: usize,
    /// Which points those are.
    pub over: String,
}

/// One point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PointSummary {
    /// Requests in flight.
    pub concurrency: u32,
    /// Its grade; null where no prediction answers it.
    pub grade: Option<Grade>,
    /// Why the grade is not better.
    pub grade_reasons: Vec<GradeReason>,
    /// Why there are no simulated figures.
    pub refused: Option<String>,
    /// The simulation.
    pub simulated: Option<Simulated>,
    /// The measurement.
    pub measured: Option<MeasuredPoint>,
    /// Error of the time per output token, in percent.
    pub tpot_error: Option<f64>,
    /// Error of the time to first token, in percent.
    pub ttft_error: Option<f64>,
    /// Simulated over measured tokens that the KV cache holds.
    pub kv_pool_ratio: Option<f64>,
    /// Share of priced time by how its coefficients were obtained.
    pub price_ranks: Option<IndexMap<Method, f64>>,
    /// Share of priced time by what is priced.
    pub price_primitives: Option<IndexMap<String, f64>>,
    /// Other estimators' answers.
    pub peers: Vec<PeerPoint>,
}

/// The simulation of a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Simulated {
    /// Mean time per output token.
    pub mean_tpot_us: f64,
    /// Mean time to first token.
    pub mean_ttft_us: f64,
    /// Output tokens per second and chip, by Little's law from the two means; null where no units were given.
    pub output_tok_s_gpu: Option<f64>,
    /// Output tokens per second, as simulated.
    pub output_tok_s: Option<f64>,
    /// Tokens the KV cache holds.
    pub kv_tokens: Option<u64>,
    /// Preemptions.
    pub preemptions: Option<u64>,
}

/// The measurement of a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredPoint {
    /// Mean time per output token.
    pub mean_tpot_us: Option<f64>,
    /// Mean time to first token.
    pub mean_ttft_us: Option<f64>,
    /// Output tokens per second and chip, by Little's law from the two means; null where either or the units are missing.
    pub output_tok_s_gpu: Option<f64>,
    /// Tokens the KV cache holds, as the server logged.
    pub kv_tokens: Option<u64>,
}

/// Another estimator's answer to a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerPoint {
    /// Its name.
    pub estimator: String,
    /// Mean time per output token.
    pub mean_tpot_us: Option<f64>,
    /// Mean time to first token.
    pub mean_ttft_us: Option<f64>,
}
