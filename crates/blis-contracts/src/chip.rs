//! An accelerator and the node it sits in: published facts, each with where it was read.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format::FormatName;
use crate::units::{BytesPerRank, BytesPerSecond, FlopsPerSecond};

/// A value with its citation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cited<T> {
    /// The value.
    pub value: T,
    /// What kind of figure it is.
    pub kind: CitationKind,
    /// Where a reader finds it.
    pub source: String,
}

/// What kind of figure a catalog field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CitationKind {
    /// From the vendor's data sheet.
    Datasheet,
    /// From another publication.
    Published,
    /// Measured on one named device.
    Measurement,
}

/// An accelerator with its packaging. Peaks are dense, bandwidths in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Chip {
    /// The catalog name: lower case, unique.
    pub name: String,
    /// The name the driver reports.
    pub device_name: Cited<String>,
    /// Compute capability, major and minor.
    pub compute_capability: Cited<(u32, u32)>,
    /// Streaming multiprocessors.
    pub multiprocessors: Cited<u32>,
    /// Memory the data sheet states, in bytes.
    pub memory: Cited<BytesPerRank>,
    /// Memory the driver reports, in bytes: what an engine's budget rule starts from.
    pub reported_memory: Cited<BytesPerRank>,
    /// Peak memory bandwidth.
    pub memory_bandwidth: Cited<BytesPerSecond>,
    /// Second-level cache, in bytes.
    pub l2_cache: Cited<BytesPerRank>,
    /// Peak dense matrix rates by activation format.
    pub peak: IndexMap<FormatName, Cited<FlopsPerSecond>>,
    /// Accelerators of one node.
    pub gpus_per_node: Cited<u32>,
    /// Accelerators of one scale-up domain (NVLink domain).
    pub gpus_per_domain: Cited<u32>,
    /// Bandwidth from one accelerator into its scale-up domain.
    pub link_bandwidth: Cited<BytesPerSecond>,
    /// Bandwidth between one accelerator and its host.
    pub host_bandwidth: Cited<BytesPerSecond>,
}
