//! A scenario's model whose layers with a window have heads of another number and width than those that see everything.
//!
//! The oracle transcribes the same: `layer_types` says which see everything.

use blis_contracts::model::{Attention, GroupedQueryAttention, LayerBlock, ModelGraph, StackRun};
use indexmap::IndexMap;
use serde_json::{Map, Value};

use super::model::{assembled, feed_forward, grouped_query, tiny as plain};
use super::setup::SetupError;

/// The model type of the preset.
pub(super) const MODEL_TYPE: &str = "gemma4_text";

/// The preset.
pub(super) fn tiny() -> Map<String, Value> {
    let mut config = plain(MODEL_TYPE, 6);
    let counts = [("num_key_value_heads", 4), ("num_global_key_value_heads", 1), ("global_head_dim", 128), ("sliding_window", 64)];
    config.extend(counts.map(|(key, count)| (key.to_owned(), count.into())));
    config.insert("layer_types".to_owned(), ["sliding_attention", "sliding_attention", "full_attention"].repeat(2).into());
    config
}

/// The graph of the model; its feed-forward parts are a stand-in that no decision reads.
pub(super) fn graph(config: &Map<String, Value>, count: &impl Fn(&str) -> Result<u32, SetupError>) -> Result<ModelGraph, SetupError> {
    let kinds = config.get("layer_types").and_then(Value::as_array);
    let kinds = kinds.ok_or_else(|| SetupError::model("layer_types is not a list".to_owned()))?;
    let block = |window: Option<u32>, kv_heads: u32, head_dim: u32| -> Result<LayerBlock, SetupError> {
        Ok(LayerBlock {
            attention: Attention::GroupedQuery(GroupedQueryAttention {
                window,
                qk_norm: true,
                values_are_keys: window.is_none(),
                ..grouped_query(count("num_attention_heads")?, kv_heads, head_dim)
            }),
            feed_forward: feed_forward(0),
            norms: 2,
        })
    };
    let sliding = block(Some(count("sliding_window")?), count("num_key_value_heads")?, count("head_dim")?)?;
    let full = block(None, count("num_global_key_value_heads")?, count("global_head_dim")?)?;
    let blocks = IndexMap::from([("sliding".to_owned(), sliding), ("full".to_owned(), full)]);
    let kind = |kind: &Value| if kind.as_str() == Some("sliding_attention") { "sliding" } else { "full" };
    let stack = kinds.iter().map(|each| StackRun { cycle: vec![kind(each).to_owned()], times: 1 });
    assembled(count, "Gemma4ForCausalLM", blocks, stack.collect())
}
