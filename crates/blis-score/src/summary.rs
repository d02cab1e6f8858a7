//! The summary: everything a comparison of simulation with measurement says, as one document.
//!
//! Every figure carries the number of points and sweeps it covers. A figure over fewer points than [`Rules::minimum_points`] has no
//! value: it is "too few points", not a number. Errors are in percent, times in microseconds unless a name says otherwise.
//!
//! Reading order: [`Summary`], [`Figure`] and [`Figures`], lanes, arms, coverage and backlog; then [`paired`] and [`sweep`].

pub mod paired;
pub mod sweep;

use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grade::{Grade, ReasonCode};
pub use paired::{Latency, Outcome, Paired, PairedLane};
pub use sweep::{Band, Deployment, MeasuredPoint, PeerPoint, PointSummary, Simulated, SweepSummary, Tier};

/// The version of this document. A reader refuses every other.
pub const SCHEMA: u32 = 3;

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
    /// The code of the reason.
    pub code: ReasonCode,
    /// What the reason is about.
    pub subject: String,
    /// The reason in a sentence; where points word it differently, one of them.
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
