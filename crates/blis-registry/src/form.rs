//! Which coefficients each form reads, in which unit, and what values make sense.
//!
//! The table is what validators hold entries against; the cost model reads exactly these names. Left out: the formulas.

use crate::vocabulary::{FormName, Input, Unit};

/// One coefficient a form reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoefficientSpec {
    /// Its name in documents.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// What values make sense.
    pub kind: Kind,
    /// Its value where an entry leaves it out; `None` where every entry must state it.
    pub neutral: Option<Neutral>,
}

/// What values of a coefficient make sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// In (0, 1].
    Efficiency,
    /// At least 1.
    Sharpness,
    /// At least 0.
    NonNegative,
    /// 0 or 1.
    Switch,
}

/// The value of a coefficient an entry leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Neutral {
    /// Adds nothing.
    Zero,
    /// Blends two terms to nearly their maximum.
    Sharp,
}

impl Neutral {
    /// The value.
    pub const fn value(self) -> f64 {
        match self {
            Self::Zero => 0.0,
            Self::Sharp => 8.0,
        }
    }
}

impl Kind {
    /// Whether a value makes sense.
    pub fn admits(self, value: f64) -> bool {
        value.is_finite()
            && match self {
                Self::Efficiency => value > 0.0 && value <= 1.0,
                Self::Sharpness => value >= 1.0,
                Self::NonNegative => value >= 0.0,
                Self::Switch => [0.0, 1.0].iter().any(|admitted| value.total_cmp(admitted).is_eq()),
            }
    }

    /// In words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Efficiency => "above 0 and at most 1",
            Self::Sharpness => "at least 1",
            Self::NonNegative => "at least 0",
            Self::Switch => "0 or 1",
        }
    }
}

const fn required(name: &'static str, unit: Unit, kind: Kind) -> CoefficientSpec {
    CoefficientSpec { name, unit, kind, neutral: None }
}

const fn optional(name: &'static str, unit: Unit, kind: Kind, neutral: Neutral) -> CoefficientSpec {
    CoefficientSpec { name, unit, kind, neutral: Some(neutral) }
}

const MEMORY_EFFICIENCY: CoefficientSpec = required("memory_efficiency", Unit::Ratio, Kind::Efficiency);
const COMPUTE_EFFICIENCY: CoefficientSpec = required("compute_efficiency", Unit::Ratio, Kind::Efficiency);
const SHARPNESS: CoefficientSpec = optional("sharpness", Unit::Ratio, Kind::Sharpness, Neutral::Sharp);
const LATENCY: CoefficientSpec = required("latency", Unit::Microseconds, Kind::NonNegative);
const FLOOR: CoefficientSpec = required("floor", Unit::Microseconds, Kind::NonNegative);

const fn extra(name: &'static str, unit: Unit) -> CoefficientSpec {
    optional(name, unit, Kind::NonNegative, Neutral::Zero)
}

/// What pricing a dense product needs.
const MATMUL: &[CoefficientSpec] = &[
    LATENCY,
    MEMORY_EFFICIENCY,
    COMPUTE_EFFICIENCY,
    SHARPNESS,
    extra("depth_time", Unit::Microseconds),
    extra("tile_first", Unit::Rows),
    extra("tile_second", Unit::Rows),
    extra("tile_third", Unit::Rows),
    extra("tile_rows", Unit::Rows),
];

/// What pricing work on listed entries needs.
const GATHERED: &[CoefficientSpec] = &[
    LATENCY,
    MEMORY_EFFICIENCY,
    COMPUTE_EFFICIENCY,
    SHARPNESS,
    required("query_time", Unit::Microseconds, Kind::NonNegative),
    extra("request_time", Unit::Microseconds),
    extra("comparison_time", Unit::Microseconds),
];

/// What [`FormName::Scan`] reads.
const SCAN: &[CoefficientSpec] = &[
    LATENCY,
    MEMORY_EFFICIENCY,
    SHARPNESS,
    required("walk_time", Unit::Microseconds, Kind::NonNegative),
    extra("cache_gain", Unit::Ratio),
];

/// The inputs of [`FormName::Matmul`].
const MATMUL_INPUTS: &[Input] =
    &[Input::Rows, Input::Columns, Input::Depth, Input::WeightBytes, Input::InputBytes, Input::Bandwidth, Input::Peak];

/// What [`FormName::Network`] reads.
const NETWORK: &[CoefficientSpec] =
    &[required("hop_time", Unit::Microseconds, Kind::NonNegative), required("efficiency", Unit::Ratio, Kind::Efficiency)];

/// What [`FormName::Exchange`] reads.
const EXCHANGE: &[CoefficientSpec] =
    &[FLOOR, SHARPNESS, required("megabyte_time", Unit::Microseconds, Kind::NonNegative), extra("token_time", Unit::Microseconds)];

/// What [`FormName::PerUnit`] reads.
const PER_UNIT: &[CoefficientSpec] = &[
    required("base", Unit::Microseconds, Kind::NonNegative),
    extra("per_request", Unit::Microseconds),
    extra("per_token", Unit::Microseconds),
    extra("per_operation", Unit::Microseconds),
];

/// What [`FormName::Recurrence`] reads.
const RECURRENCE: &[CoefficientSpec] = &[
    LATENCY,
    SHARPNESS,
    required("walk_time", Unit::Microseconds, Kind::NonNegative),
    required("unit_time", Unit::Microseconds, Kind::NonNegative),
    required("token_time", Unit::Microseconds, Kind::NonNegative),
];

impl FormName {
    /// The coefficients it reads.
    pub const fn coefficients(self) -> &'static [CoefficientSpec] {
        match self {
            Self::Matmul => MATMUL,
            Self::AttentionDecode => {
                const {
                    &[
                        LATENCY,
                        MEMORY_EFFICIENCY,
                        required("unit_time", Unit::Microseconds, Kind::NonNegative),
                        extra("window_latency", Unit::Microseconds),
                        extra("window_unit_time", Unit::Microseconds),
                    ]
                }
            }
            Self::AttentionPrefill => {
                const {
                    &[
                        LATENCY,
                        MEMORY_EFFICIENCY,
                        COMPUTE_EFFICIENCY,
                        SHARPNESS,
                        extra("tile_time", Unit::Microseconds),
                        extra("window_tile_time", Unit::Microseconds),
                        extra("key_time", Unit::Microseconds),
                        optional("packs_group", Unit::Ratio, Kind::Switch, Neutral::Zero),
                    ]
                }
            }
            Self::LatentDecode => {
                const {
                    &[
                        LATENCY,
                        MEMORY_EFFICIENCY,
                        COMPUTE_EFFICIENCY,
                        SHARPNESS,
                        required("unit_time", Unit::Microseconds, Kind::NonNegative),
                    ]
                }
            }
            Self::Gathered => GATHERED,
            Self::Recurrence => RECURRENCE,
            Self::Scan => SCAN,
            Self::Moe => {
                const {
                    &[
                        FLOOR,
                        MEMORY_EFFICIENCY,
                        COMPUTE_EFFICIENCY,
                        required("element_time", Unit::Microseconds, Kind::NonNegative),
                        extra("expert_time", Unit::Microseconds),
                        extra("width_time", Unit::Microseconds),
                    ]
                }
            }
            Self::Collective => &[],
            Self::Stream => const { &[FLOOR, MEMORY_EFFICIENCY, extra("cache_gain", Unit::Ratio)] },
            Self::Network => NETWORK,
            Self::Exchange => EXCHANGE,
            Self::Sampling => const { &[FLOOR, MEMORY_EFFICIENCY, required("bytes_per_logit", Unit::Bytes, Kind::NonNegative)] },
            Self::PerUnit => PER_UNIT,
            Self::Stored => {
                const { &[required("base", Unit::Bytes, Kind::NonNegative), extra("per_rank", Unit::Bytes), extra("per_node", Unit::Bytes)] }
            }
        }
    }

    /// The specification of one coefficient.
    pub fn coefficient(self, name: &str) -> Option<&'static CoefficientSpec> {
        self.coefficients().iter().find(|spec| spec.name == name)
    }

    /// The inputs it reads: those that ranges and curves may be stated over.
    pub const fn inputs(self) -> &'static [Input] {
        match self {
            Self::Matmul => MATMUL_INPUTS,
            Self::AttentionDecode => &[
                Input::Requests,
                Input::Context,
                Input::MeanContext,
                Input::KvHeads,
                Input::QueryHeads,
                Input::HeadDim,
                Input::ElementBytes,
                Input::Windowed,
                Input::Bandwidth,
                Input::Peak,
            ],
            Self::AttentionPrefill => &[
                Input::Rows,
                Input::New,
                Input::Cached,
                Input::Window,
                Input::KvHeads,
                Input::QueryHeads,
                Input::HeadDim,
                Input::ElementBytes,
                Input::Bandwidth,
                Input::Peak,
            ],
            Self::LatentDecode => &[
                Input::Requests,
                Input::Context,
                Input::MeanContext,
                Input::QueryHeads,
                Input::HeadDim,
                Input::ValueDim,
                Input::ElementBytes,
                Input::Bandwidth,
                Input::Peak,
            ],
            Self::Gathered => &[
                Input::Requests,
                Input::Queries,
                Input::Entries,
                Input::EntryBytes,
                Input::EntryOperations,
                Input::Comparisons,
                Input::Bandwidth,
                Input::Peak,
            ],
            Self::Recurrence => &[Input::Rows, Input::New, Input::Tokens, Input::States],
            Self::Scan => &[Input::New, Input::Bytes, Input::Bandwidth],
            Self::Moe => &[
                Input::Tokens,
                Input::Experts,
                Input::Pairs,
                Input::Hit,
                Input::RowsPerExpert,
                Input::ExpertBytes,
                Input::PairOperations,
                Input::Width,
                Input::Bandwidth,
                Input::Peak,
            ],
            Self::Collective => &[Input::Bytes],
            Self::Exchange => &[Input::Tokens, Input::Bytes],
            Self::Network => &[Input::Bytes, Input::Hops, Input::PortBytes, Input::NetworkBandwidth],
            Self::Stream => &[Input::Bytes, Input::Bandwidth],
            Self::Sampling => &[Input::Rows, Input::Vocabulary, Input::Bandwidth],
            Self::PerUnit => &[Input::Requests, Input::Tokens, Input::Operations],
            Self::Stored => &[Input::Ranks, Input::GraphNodes],
        }
    }
}
