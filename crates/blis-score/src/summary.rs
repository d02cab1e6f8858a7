//! The summary: everything a comparison of simulation with measurement says, as one document.
//!
//! Every figure carries the number of points and sweeps it covers. A figure over fewer points than [`Rules::minimum_points`] has no
//! value: it is "too few points", not a number. Errors are in percent, times in microseconds unless a name says otherwise.
//!
//! Reading order: [`Summary`], [`Figure`] and [`Figures`], lanes, arms, the paired comparison, then sweeps and their points.

use std::collections::BTreeMap;

use blis_contracts::provenance::Method;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::prediction::Grade;

/// The version of this document. A reader refuses every other.
pub const SCHEMA: u32 = 1;

/// The document's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SummaryKind {
    /// A summary of a comparison.
    ScoreSummary,
}

/// What a comparison says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Always `ScoreSummary`.
    pub kind: SummaryKind,
    /// The version of this document.
    pub schema: u32,
    /// What was compared, by what.
    pub provenance: Provenance,
    /// The rules that the figures follow.
    pub rules: Rules,
    /// How many points there are of each kind.
    pub counts: Counts,
    /// Errors over every compared point.
    pub headline: Figures,
    /// Errors by what the points have in common.
    pub lanes: Vec<Lane>,
    /// Other estimators, each beside ours on the points that both answer.
    pub peers: Vec<Arm>,
    /// Two sets of predictions against each other; null where one was given.
    pub paired: Option<Paired>,
    /// Points by model, chip, engine and build. Empty where no units were given.
    pub coverage: Vec<Coverage>,
    /// What lowers coverage or grade, what blocks most first.
    pub backlog: Vec<Blocker>,
    /// Every sweep with its points.
    pub sweeps: Vec<SweepSummary>,
}

/// What was compared, by what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// Version of the comparing program.
    pub version: String,
    /// The predictions.
    pub predictions: FileIdentity,
    /// The measurements.
    pub measured: FileIdentity,
    /// The units; null where none were given.
    pub units: Option<FileIdentity>,
    /// Other estimators' figures.
    pub peers: Option<FileIdentity>,
    /// The predictions compared with.
    pub base: Option<FileIdentity>,
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileIdentity {
    /// Its name, without its folder.
    pub name: String,
    /// SHA-256 of its bytes.
    pub sha256: String,
}

/// The rules that the figures follow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// A figure over fewer points has no value.
    pub minimum_points: usize,
    /// A figure over fewer sweeps has no interval, and two sets of predictions are not compared on fewer.
    pub minimum_sweeps: usize,
    /// Confidence of intervals, in percent.
    pub confidence_percent: f64,
    /// Bootstrap resamples of a figure. Whole sweeps are drawn, since the points of one are not independent.
    pub resamples: u32,
    /// Bootstrap resamples of a paired comparison, whose levels are stricter.
    pub paired_resamples: u32,
    /// Seed of the resamples.
    pub seed: u64,
    /// Chance of any false verdict over all lanes of a paired comparison, in percent.
    pub familywise_percent: f64,
    /// Share of other sweeps' points that a sweep's error band spans, in percent.
    pub band_percent: f64,
    /// What each figure means, by its name.
    pub definitions: IndexMap<String, String>,
}

/// How many points there are of each kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Points of the units; where no units were given, of the predictions and the measurements.
    pub points: usize,
    /// Points with a line of predictions.
    pub answered: usize,
    /// Points with simulated figures.
    pub simulated: usize,
    /// Points with a line that says why there are no figures.
    pub refused: usize,
    /// Points without a line of predictions.
    pub unanswered: usize,
    /// Points with a measurement.
    pub measured: usize,
    /// Points with both.
    pub compared: usize,
    /// Answered points by grade; they add up to `answered`.
    pub by_grade: BTreeMap<Grade, usize>,
}

/// One figure with what it covers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The figure; null where it covers too few points.
    pub value: Option<f64>,
    /// Bootstrap interval of the figure over sweeps; null where there are too few points or sweeps. It covers which deployments were
    /// measured, not the noise of a measurement.
    pub interval: Option<[f64; 2]>,
    /// Points it covers.
    pub points: usize,
    /// Sweeps they belong to.
    pub sweeps: usize,
}

/// Errors of one latency, in percent of the measured one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatencyErrors {
    /// Mean of the sizes of the errors.
    pub absolute: Figure,
    /// Median of the sizes of the errors.
    pub median: Figure,
    /// Mean of the errors; positive where the simulation is slower.
    pub signed: Figure,
    /// Mean size of the shape errors.
    pub shape: Figure,
    /// Mean of the shape errors.
    pub shape_signed: Figure,
    /// Mean size of the errors of the percentiles that were measured.
    pub percentiles: Figure,
}

/// Errors over a set of points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Compared points.
    pub points: usize,
    /// Sweeps they belong to.
    pub sweeps: usize,
    /// Time per output token.
    pub tpot: LatencyErrors,
    /// Time to first token.
    pub ttft: LatencyErrors,
    /// Mean of simulated over measured tokens that the KV cache holds, where the server logged them.
    pub kv_pool_ratio: Figure,
}

/// What points are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// The model's family.
    Family,
    /// The model.
    Model,
    /// The chip.
    Chip,
    /// The engine.
    Engine,
    /// Parallel widths.
    Layout,
    /// Format of the weights.
    Precision,
    /// Prompt and output lengths.
    Lengths,
    /// Concurrency, in bands.
    Concurrency,
    /// How close the simulated run is to the measured one.
    Grade,
    /// Whether the server's own log was kept.
    Tier,
}

/// Errors of the points that share a value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lane {
    /// What they are grouped by.
    pub dimension: Dimension,
    /// The value they share.
    pub value: String,
    /// Their errors.
    pub figures: Figures,
}

/// Another estimator beside ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Its name.
    pub estimator: String,
    /// Its answers to points that ours or the measurements leave out.
    pub unmatched: usize,
    /// Over every point that both answer, then by family, chip and tier.
    pub lanes: Vec<ArmLane>,
}

/// Two estimators on the same points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArmLane {
    /// What the points are grouped by; null for all of them.
    pub dimension: Option<Dimension>,
    /// The value they share; `all` for all of them.
    pub value: String,
    /// The other estimator's errors.
    pub theirs: Figures,
    /// Ours.
    pub ours: Figures,
}

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

/// Points of one model on one chip under one build of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Coverage {
    /// The model.
    pub model: String,
    /// The chip.
    pub chip: String,
    /// The engine.
    pub engine: String,
    /// The build: the image's tag.
    pub build: String,
    /// Points of the units.
    pub points: usize,
    /// Those with simulated figures.
    pub simulated: usize,
    /// Those with a measurement to compare with.
    pub compared: usize,
    /// Answered points by grade.
    pub by_grade: BTreeMap<Grade, usize>,
}

/// How something lowers coverage or grade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockerKind {
    /// The point has no figures because of it.
    Refused,
    /// The point's grade is lower because of it.
    Demoted,
    /// A share of the point's time is priced by a method less trusted than a fit.
    Price,
}

/// Something that lowers coverage or grade.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Blocker {
    /// How.
    pub kind: BlockerKind,
    /// What.
    pub what: String,
    /// The engine it concerns; null where no units were given.
    pub engine: Option<String>,
    /// Points it blocks or demotes.
    pub points: usize,
    /// Those for which nothing else does.
    pub alone: usize,
    /// Sweeps they belong to.
    pub sweeps: usize,
    /// Models they concern.
    pub models: Vec<String>,
    /// Chips they concern.
    pub chips: Vec<String>,
    /// For a price: the mean share of those points' time that it prices, in percent.
    pub time_percent: Option<f64>,
}

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
    pub logged: Option<Value>,
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
    pub grade_reasons: Vec<String>,
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
