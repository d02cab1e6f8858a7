//! A scenario's model with layers whose queries see the blocks that an indexer picks.
//!
//! The oracle transcribes the same: which layers have an indexer, and what their caches are called. Only the preset as it stands.

use blis_contracts::model::{Attention, BlockIndexer, GroupedQueryAttention, LayerBlock, ModelGraph, StackRun};
use indexmap::IndexMap;
use serde_json::{Map, Value};

use super::model::{assembled, feed_forward, grouped_query, tiny as plain};
use super::setup::SetupError;

/// Upstream's class of the model.
pub(super) const ARCHITECTURE: &str = "MiniMaxM3SparseForConditionalGeneration";

/// The model type of the preset.
pub(super) const MODEL_TYPE: &str = "minimax_m3_vl";

/// What the names of its layers begin with: the language model is a part of one that also sees.
pub(super) const PREFIX: &str = "language_model.";

/// Layers before the first with an indexer.
const DENSE_LAYERS: u32 = 2;

/// The preset.
pub(super) fn tiny() -> Map<String, Value> {
    let mut config = plain(MODEL_TYPE, 5);
    config.extend([("num_attention_heads", 8), ("head_dim", 128)].map(|(key, count)| (key.to_owned(), count.into())));
    config
}

/// The graph of the model; its feed-forward parts are a stand-in that no decision reads.
pub(super) fn graph(count: &impl Fn(&str) -> Result<u32, SetupError>) -> Result<ModelGraph, SetupError> {
    let picks = BlockIndexer { query_heads: 2, head_dim: 128, block_tokens: 128, top_k: 16, first_blocks: 0, last_blocks: 1 };
    let block = |indexer: Option<BlockIndexer>, experts| -> Result<LayerBlock, SetupError> {
        Ok(LayerBlock {
            attention: Attention::GroupedQuery(GroupedQueryAttention {
                qk_norm: true,
                indexer,
                ..grouped_query(count("num_attention_heads")?, count("num_key_value_heads")?, count("head_dim")?)
            }),
            feed_forward: feed_forward(experts),
            norms: 2,
        })
    };
    let blocks = IndexMap::from([("dense".to_owned(), block(None, 0)?), ("picking".to_owned(), block(Some(picks), 4)?)]);
    let kind = |layer| if layer < DENSE_LAYERS { "dense" } else { "picking" };
    let stack = (0..count("num_hidden_layers")?).map(|layer| StackRun { cycle: vec![kind(layer).to_owned()], times: 1 });
    assembled(count, ARCHITECTURE, blocks, stack.collect())
}
