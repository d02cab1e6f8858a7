//! Layers that look back through a state instead of keys and values: the gated delta rule and Mamba-2.
//!
//! Both convolve the last few tokens of their projections, then update one matrix per head with each token. What has to be
//! remembered of a sequence is that matrix and the tokens the convolution still reaches, however long the sequence is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format::{FormatName, MatmulFormat};

/// A gated delta rule: the state decays, forgets what it held under a token's key, and takes in the token's value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatedDelta {
    /// Query (and key) heads of the whole layer.
    pub key_heads: u32,
    /// Value heads of the whole layer, each with a state, a decay and a step of its own.
    pub value_heads: u32,
    /// Elements of a query or key head.
    pub key_dim: u32,
    /// Elements of a value head.
    pub value_dim: u32,
    /// Tokens that the convolution over queries, keys and values spans, the current one included.
    pub conv_tokens: u32,
    /// How states are kept where the checkpoint says so; absent where that is left to engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_format: Option<FormatName>,
    /// How the projections to queries, keys, values and the gate over the output are stored and multiplied.
    pub input_format: MatmulFormat,
    /// How the projections to decays and steps are stored and multiplied.
    pub gates_format: MatmulFormat,
    /// How the output projection is stored and multiplied.
    pub output_format: MatmulFormat,
}

/// A selective state space with one decay per head (Mamba-2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mamba2 {
    /// Heads of the whole layer, each with a state of its own.
    pub heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Groups of heads that share what writes to and reads from the state.
    pub groups: u32,
    /// Elements of the state for each element of a head.
    pub state_dim: u32,
    /// Tokens that the convolution spans, the current one included.
    pub conv_tokens: u32,
    /// Whether the convolution carries a bias.
    pub conv_bias: bool,
    /// Tokens of a prompt that are computed at once.
    pub chunk_tokens: u32,
    /// How states are kept where the checkpoint says so; absent where that is left to engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_format: Option<FormatName>,
    /// How the projection from the residual stream is stored and multiplied.
    pub input_format: MatmulFormat,
    /// How the output projection is stored and multiplied.
    pub output_format: MatmulFormat,
}

impl GatedDelta {
    /// Elements of all keys of a token, and of all its queries.
    pub fn key_width(&self) -> u64 {
        u64::from(self.key_heads) * u64::from(self.key_dim)
    }

    /// Elements of all values of a token.
    pub fn value_width(&self) -> u64 {
        u64::from(self.value_heads) * u64::from(self.value_dim)
    }

    /// What the convolution runs over: queries, keys and values.
    pub fn conv_width(&self) -> u64 {
        2 * self.key_width() + self.value_width()
    }

    /// Elements of the states of all heads.
    pub fn state_elements(&self) -> u64 {
        self.value_width() * u64::from(self.key_dim)
    }
}

impl Mamba2 {
    /// Elements of all heads of a token.
    pub fn width(&self) -> u64 {
        u64::from(self.heads) * u64::from(self.head_dim)
    }

    /// What the convolution runs over: the heads' input, and what writes to and reads from each group's states.
    pub fn conv_width(&self) -> u64 {
        self.width() + 2 * u64::from(self.groups) * u64::from(self.state_dim)
    }

    /// Columns of the projection from the residual stream: the gate, what is convolved, and one step per head.
    pub fn input_width(&self) -> u64 {
        self.width() + self.conv_width() + u64::from(self.heads)
    }

    /// Elements of the states of all heads.
    pub fn state_elements(&self) -> u64 {
        self.width() * u64::from(self.state_dim)
    }
}
