//! Attention over a window of recent tokens and a compressed form of all earlier ones, and a residual stream of several lanes.
//!
//! Keys and values are one vector of `head_dim` elements per token, shared by every query head. Beside the window's vectors a layer
//! may keep one vector for each `ratio` tokens, weighted sums whose weights the layer computes ([`Compression`]); where a
//! [`Selection`] stands beside it, queries attend to the compressed vectors that score highest, else to all of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format::MatmulFormat;

/// Attention to a window and to compressed earlier tokens, with latent queries and a grouped output projection of low rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompressedAttention {
    /// Query heads of the whole layer.
    pub query_heads: u32,
    /// Elements of one query head and of the one vector that is key and value.
    pub head_dim: u32,
    /// Elements of a head that positions rotate.
    pub rotary_dim: u32,
    /// Tokens a query sees uncompressed, itself included.
    pub window: u32,
    /// One learned sink logit per query head.
    pub sinks: bool,
    /// Width of the latent that queries are projected from; it is normed, and so is the key.
    pub query_rank: u32,
    /// Groups of heads, each with an output projection of its own.
    pub output_groups: u32,
    /// Width each group's output is projected to before all are projected back to the residual stream.
    pub output_rank: u32,
    /// What a layer keeps of tokens before the window; absent where it keeps nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// How the projections to the query latent and to the key are stored and multiplied.
    pub down_format: MatmulFormat,
    /// How the projection from the query latent is stored and multiplied.
    pub query_format: MatmulFormat,
    /// How the groups' output projections are stored and multiplied.
    pub group_format: MatmulFormat,
    /// How the projection back to the residual stream is stored and multiplied.
    pub output_format: MatmulFormat,
}

/// Several tokens' keys made into one, by weights from a projection of their own and a table of 32-bit offsets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Compression {
    /// Tokens that one compressed vector stands for.
    pub ratio: u32,
    /// Whether each vector also draws on the tokens of the one before it, which doubles both projections and the table.
    pub overlaps: bool,
    /// How the projections to keys and to weights are stored and multiplied.
    pub format: MatmulFormat,
    /// How queries choose among the compressed vectors; absent where they attend to all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
}

/// A small attention that scores compressed vectors; each query attends to the best.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// Scoring heads.
    pub heads: u32,
    /// Elements of one scoring head and of the vectors it is compared with, which are compressed as the keys are.
    pub head_dim: u32,
    /// Compressed vectors a query attends to at most.
    pub top_k: u32,
    /// How the projection from the query latent to the scoring heads is stored and multiplied.
    pub query_format: MatmulFormat,
    /// How the projection to the heads' weights is stored and multiplied.
    pub weights_format: MatmulFormat,
}

/// A residual stream of several lanes that every sublayer mixes into its input and out of its output.
///
/// The mixing weights come from one 32-bit projection of all lanes per sublayer, offsets and three scales; the last norm reads one
/// lane mixed by a projection of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResidualLanes {
    /// Lanes, each as wide as the model.
    pub lanes: u32,
    /// Rounds in which the matrix that mixes lanes is made doubly stochastic.
    pub balancing_rounds: u32,
}

impl CompressedAttention {
    /// Width of what the group projections write, over all groups.
    pub fn grouped_width(&self) -> u64 {
        u64::from(self.output_groups) * u64::from(self.output_rank)
    }

    /// Elements of all query heads.
    pub fn query_width(&self) -> u64 {
        u64::from(self.query_heads) * u64::from(self.head_dim)
    }
}

impl Compression {
    /// Columns of each of the two projections that compress vectors of `head_dim` elements.
    pub fn columns(&self, head_dim: u32) -> u64 {
        u64::from(head_dim) * if self.overlaps { 2 } else { 1 }
    }

    /// Latest tokens whose projections a compressed vector still needs.
    pub fn reach(&self) -> u32 {
        self.ratio * if self.overlaps { 2 } else { 1 }
    }
}

impl ResidualLanes {
    /// Mixing weights of one sublayer for one token: into its input, out of its output, and from lane to lane.
    pub fn weights(self) -> u64 {
        let lanes = u64::from(self.lanes);
        (2 + lanes) * lanes
    }
}
