//! A network between nodes: published facts, each with where it was read, and the rate that is left for payload.
//!
//! Every accelerator has a port of its own, as in the vendors' reference nodes. Left out: the time a message takes on its way, which
//! is a coefficient of whoever sends it; switches above the first, and how far they are shared.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chip::Cited;
use crate::units::{BytesPerPacket, BytesPerSecond};

/// A network between nodes. Rates are those of one port, in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// The catalog name: lower case, unique.
    pub name: String,
    /// How remote memory is reached.
    pub transport: Cited<Transport>,
    /// Data rate of a port.
    pub rate: Cited<BytesPerSecond>,
    /// Payload of the largest packet.
    pub packet_payload: Cited<BytesPerPacket>,
    /// What a packet takes on the wire beside its payload: headers, checks and gaps.
    pub packet_overhead: Cited<BytesPerPacket>,
}

/// How remote memory is reached over a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// `InfiniBand`.
    Infiniband,
    /// The same messages in UDP datagrams over Ethernet.
    RoceV2,
}

impl Transport {
    /// The name documents use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Infiniband => "infiniband",
            Self::RoceV2 => "roce_v2",
        }
    }
}

impl Network {
    /// The rate at which a port moves payload in full packets: its data rate times payload over all that is sent.
    pub fn payload_rate(&self) -> BytesPerSecond {
        let (payload, overhead) = (self.packet_payload.value.as_f64(), self.packet_overhead.value.as_f64());
        BytesPerSecond::new(self.rate.value.get() * payload / (payload + overhead))
    }
}
