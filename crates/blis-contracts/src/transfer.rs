//! A KV move between ranks or tiers, in physical units.
//!
//! No engine makes one yet: the type fixes the shape that links and cost model will read.

use crate::units::Tokens;

/// A move of KV between two places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// Number of the transfer within its engine.
    pub id: u64,
    /// Who started it.
    pub initiator: Initiator,
    /// Whether the receiver has reserved room before the move.
    pub reserved: bool,
    /// Whether sender and receiver agree before the move.
    pub handshake: bool,
    /// The pieces that move together.
    pub parts: Vec<TransferPart>,
}

/// Who starts a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initiator {
    /// The side that has the data.
    Sender,
    /// The side that wants it.
    Receiver,
}

/// One piece of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferPart {
    /// Where the KV is.
    pub from: Place,
    /// Where it goes.
    pub to: Place,
    /// Index of the KV group in the plan.
    pub kv_group: u32,
    /// Tokens moved.
    pub tokens: Tokens,
}

/// Where KV can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An accelerator's memory.
    Rank {
        /// Rank within the pool member.
        rank: u32,
        /// Node it sits in.
        node: u32,
        /// Rack the node sits in.
        rack: u32,
    },
    /// A storage device of a node, by catalog name.
    Tier {
        /// Catalog name of the device.
        device: String,
        /// Node it is attached to.
        node: u32,
        /// Rack the node sits in.
        rack: u32,
    },
}
