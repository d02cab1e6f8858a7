//! Latent attention to the earlier tokens that score best: a small attention of its own scores every token, each query sees the best.
//!
//! All heads of a query see the same tokens. A layer may score for itself or see what the nearest layer below it that scores chose.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format::MatmulFormat;

/// Which earlier tokens a query sees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenSelection {
    /// Tokens a query sees at most, itself included.
    pub top_k: u32,
    /// What scores them; absent where the layer sees what the nearest layer below it that scores chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indexer: Option<TokenIndexer>,
}

/// A small attention whose scores choose tokens: queries of several heads from the query latent, one normed key, a weight for each head.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenIndexer {
    /// Scoring heads of the whole layer.
    pub heads: u32,
    /// Elements of a scoring head and of the key.
    pub head_dim: u32,
    /// How the projection from the query latent to the scoring heads is stored and multiplied.
    pub query_format: MatmulFormat,
    /// How the projection to the key is stored and multiplied.
    pub key_format: MatmulFormat,
    /// How the projection to the heads' weights is stored and multiplied.
    pub weights_format: MatmulFormat,
}
