//! A device of a node that holds what does not fit an accelerator: published facts, each with where it was read.
//!
//! What one accelerator gets of it is also bounded by its own link to the host, a figure of the chip. Left out: file systems, and
//! storage that several nodes share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chip::Cited;
use crate::units::{BytesPerDevice, BytesPerSecond, SimDuration};

/// A memory or storage device of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageDevice {
    /// The catalog name: lower case, unique.
    pub name: String,
    /// What kind of device it is.
    pub medium: Cited<Medium>,
    /// How many of it the vendor's reference node has.
    pub per_node: Cited<u32>,
    /// What one device holds; absent where the buyer chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Cited<BytesPerDevice>>,
    /// Sequential reads of one device.
    pub read_bandwidth: Cited<BytesPerSecond>,
    /// Sequential writes of one device.
    pub write_bandwidth: Cited<BytesPerSecond>,
    /// Time to the first byte of a read, where it is microseconds or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_latency_us: Option<Cited<SimDuration>>,
    /// Time to acknowledge a write, where it is microseconds or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_latency_us: Option<Cited<SimDuration>>,
}

/// What kind of device holds the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Medium {
    /// The memory of one processor socket.
    HostMemory,
    /// A block device.
    Nvme,
}

impl Medium {
    /// The name documents use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HostMemory => "host_memory",
            Self::Nvme => "nvme",
        }
    }
}
