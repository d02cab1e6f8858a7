//! A scenario's model with layers that see a chunk of the context.
//!
//! The oracle transcribes the same: `no_rope_layers` says 0 of the layers that see all of it.

use blis_contracts::model::{Attention, GroupedQueryAttention, LayerBlock, ModelGraph, StackRun};
use indexmap::IndexMap;
use serde_json::{Map, Value};

use super::model::{assembled, feed_forward, grouped_query, tiny as plain};
use super::setup::SetupError;

/// The model type of the preset.
pub(super) const MODEL_TYPE: &str = "llama4_text";

/// The preset.
pub(super) fn tiny() -> Map<String, Value> {
    let mut config = plain(MODEL_TYPE, 8);
    config.extend([("attention_chunk_size", 128), ("num_local_experts", 4)].map(|(key, count)| (key.to_owned(), count.into())));
    config.insert("no_rope_layers".to_owned(), [1, 1, 1, 0].repeat(2).into());
    config
}

/// The graph of the model; its feed-forward parts are a stand-in that no decision reads.
pub(super) fn graph(config: &Map<String, Value>, count: &impl Fn(&str) -> Result<u32, SetupError>) -> Result<ModelGraph, SetupError> {
    let layers = count("num_hidden_layers")?;
    let stated = config.get("no_rope_layers").and_then(Value::as_array).filter(|list| list.len() == layers as usize);
    let turned =
        stated.ok_or_else(|| SetupError::model(format!("no_rope_layers is not a list of 0 or 1 for each of the {layers} layers")))?;
    let block = |chunk: Option<u32>| -> Result<LayerBlock, SetupError> {
        Ok(LayerBlock {
            attention: Attention::GroupedQuery(GroupedQueryAttention {
                chunk,
                ..grouped_query(count("num_attention_heads")?, count("num_key_value_heads")?, count("head_dim")?)
            }),
            feed_forward: feed_forward(count("num_local_experts")?.into()),
            norms: 2,
        })
    };
    let blocks = IndexMap::from([("chunked".to_owned(), block(Some(count("attention_chunk_size")?))?), ("full".to_owned(), block(None)?)]);
    let kind = |turns: &Value| if turns.as_u64() == Some(0) { "full" } else { "chunked" };
    let stack = turned.iter().map(|turns| StackRun { cycle: vec![kind(turns).to_owned()], times: 1 });
    assembled(count, "Llama4ForCausalLM", blocks, stack.collect())
}
