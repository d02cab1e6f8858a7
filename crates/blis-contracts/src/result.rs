//! The Result: everything a run tells, as one JSON document.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fate::Fate;
use crate::provenance::{Method, ResolvedSetting};
use crate::scenario::ExpertRouting;
use crate::series::{Series, StepKind, StepMix};
use crate::validity::Validity;

/// The Result of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// Always `Result`.
    pub kind: ResultKind,
    /// The scenario's name.
    pub name: String,
    /// What went in.
    pub inputs: Inputs,
    /// What computed it.
    pub versions: Versions,
    /// The conditions under which the figures mean something.
    pub frame: FrameRecord,
    /// Every resolved setting of each pool.
    pub settings: IndexMap<String, Vec<ResolvedSetting>>,
    /// Settings that the engine takes otherwise than they are stated: spellings of other releases, values that a rule replaces, and what else
    /// it would warn of, by pool.
    pub substitutions: IndexMap<String, Vec<String>>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Requests by fate; their sum is the number the workload generated.
    pub fates: IndexMap<Fate, u64>,
    /// Reasons of refusals, with counts.
    pub refusals: IndexMap<String, u64>,
    /// Token totals.
    pub tokens: TokenTotals,
    /// KV figures of each pool.
    pub kv: IndexMap<String, KvFigures>,
    /// Steps of each pool by what their requests were doing.
    pub steps: IndexMap<String, IndexMap<StepKind, StepMix>>,
    /// Each pool over simulated time.
    pub series: IndexMap<String, Series>,
    /// What the waiting was for.
    pub binds: Binds,
    /// Where the prices came from.
    pub prices: PriceProvenance,
    /// Whether runs like this one were compared with measurements, and how far those lay from simulation.
    pub validity: Validity,
    /// What a reader should know before trusting a figure.
    pub warnings: Vec<String>,
}

/// The document's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ResultKind {
    /// A Result.
    Result,
}

/// What went into a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// SHA-256 of the scenario as read, edits applied.
    pub scenario_sha256: String,
    /// The scenario's seed.
    pub seed: u64,
    /// Edits made on the command line, in order.
    pub edits: Vec<String>,
    /// SHA-256 of the trace that was replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_sha256: Option<String>,
    /// Whether the data are those the program was released with.
    pub data: DataOrigin,
    /// Content hash of the catalog in use.
    pub catalog_sha256: String,
    /// Content hash of the coefficient registry in use.
    pub registry_sha256: String,
    /// Content hashes of the overlays on either, in the order applied; the two hashes above count them in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlays_sha256: Vec<String>,
}

/// Whether a run used the data it was released with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DataOrigin {
    /// The embedded copies.
    Released,
    /// A path or an overlay.
    Experimental,
}

/// What computed a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Versions {
    /// The version of BLIS.
    pub blis: String,
    /// The engine's kind and the upstream release it models.
    pub engine: String,
    /// The random generator and how it is seeded.
    pub generator: String,
}

/// The conditions of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrameRecord {
    /// The state the run started from.
    pub start: String,
    /// What ended the run.
    pub stop: String,
    /// Start of the measured window, in seconds of simulated time.
    pub window_start_s: f64,
    /// End of the measured window, in seconds of simulated time.
    pub window_end_s: f64,
    /// How tokens were taken to spread over experts, where the model has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expert_routing: Option<ExpertRouting>,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The metric's identifier.
    pub metric: String,
    /// What it ranges over: `cluster`, `pool/<name>`, or `class/<name>` for a service class.
    pub scope: String,
    /// The statistic.
    pub statistic: Statistic,
    /// The value; null where the run gives none.
    pub value: Option<f64>,
    /// The unit.
    pub unit: String,
    /// Samples behind it.
    pub n: u64,
    /// Requests of the population without a sample because they had not finished: they are left out of the value.
    pub unfinished: u64,
}

/// A statistic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The arithmetic mean.
    Mean,
    /// The median.
    P50,
    /// The 90th percentile.
    P90,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    P99,
    /// The largest sample.
    Max,
    /// A count over a duration.
    Rate,
}

impl Statistic {
    /// Every statistic, in the order reports list them.
    pub const ALL: [Self; 7] = [Self::Mean, Self::P50, Self::P90, Self::P95, Self::P99, Self::Max, Self::Rate];

    /// The share of samples at or below the statistic, for percentiles.
    pub const fn quantile(self) -> Option<f64> {
        match self {
            Self::P50 => Some(0.5),
            Self::P90 => Some(0.9),
            Self::P95 => Some(0.95),
            Self::P99 => Some(0.99),
            Self::Mean | Self::Max | Self::Rate => None,
        }
    }

    /// The name documents and reports use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::Max => "max",
            Self::Rate => "rate",
        }
    }
}

/// Token totals of a run, warm-up included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenTotals {
    /// Prompt tokens of the requests sent.
    pub prompt: u64,
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_queries: u64,
    /// Of these, found.
    pub prefix_hits: u64,
    /// Prompt tokens computed, recomputation after preemption included.
    pub prompt_computed: u64,
    /// Tokens clients received.
    pub output: u64,
}

/// KV figures of one pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KvFigures {
    /// Blocks, as the engine counts them: those it keeps to itself, which no request can use, are among them.
    pub blocks: u64,
    /// Tokens the pool holds at the engine's own reckoning, as it logs them.
    pub tokens: u64,
    /// Engine cores behind the pool's endpoint, each with blocks of its own; blocks and tokens are sums over them.
    pub cores: u32,
    /// Bytes of the pool on one rank.
    pub bytes_per_rank: u64,
    /// Largest share in use of the blocks that requests can use.
    pub peak_utilisation: f64,
    /// Preemptions.
    pub preemptions: u64,
    /// Steps launched.
    pub steps: u64,
    /// Share of the run in which the accelerators were at work, averaged over those of the pool.
    pub device_busy: f64,
}

/// What requests waited for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Binds {
    /// The limit with the largest share of waiting time; `nothing` where nothing waited.
    pub limit: Limit,
    /// Share of the waiting time behind each limit.
    pub shares: IndexMap<Limit, f64>,
}

/// A limit that can make a request wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Nothing waited.
    Nothing,
    /// A step had to end first.
    Step,
    /// The cap on running requests.
    RunningCap,
    /// The token budget of a step.
    TokenBudget,
    /// Free KV blocks.
    KvBlocks,
}

impl Limit {
    /// The name documents and reports use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Step => "step",
            Self::RunningCap => "running_cap",
            Self::TokenBudget => "token_budget",
            Self::KvBlocks => "kv_blocks",
        }
    }
}

/// Where the prices of a run came from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceProvenance {
    /// Share of priced time by how its coefficients were obtained.
    pub by_method: IndexMap<Method, f64>,
    /// Share of priced time by primitive.
    pub by_primitive: IndexMap<String, f64>,
    /// Share of priced time outside the fitted range of its coefficients.
    pub extrapolated: f64,
    /// The least trusted method used.
    pub least_trusted: Option<Method>,
}
