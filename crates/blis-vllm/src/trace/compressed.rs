//! A scenario's model whose layers compress.
//!
//! The oracle transcribes the same: which caches a layer of each compression ratio has.

use blis_contracts::model::{Attention, CompressedAttention, Compression, LayerBlock, ModelGraph, ResidualLanes, Selection, StackRun};
use indexmap::IndexMap;
use serde_json::{Map, Value};

use super::model::{PLAIN, assembled, feed_forward, tiny as plain};
use super::setup::SetupError;

/// Upstream's class of the model.
pub(super) const ARCHITECTURE: &str = "DeepseekV4ForCausalLM";

/// The ratio at which queries choose among the compressed entries.
const SELECTING: u64 = 4;

/// The graph of the model; its experts are a stand-in that no decision reads.
pub(super) fn graph(config: &Map<String, Value>, count: &impl Fn(&str) -> Result<u32, SetupError>) -> Result<ModelGraph, SetupError> {
    let wrong = || SetupError::model("compress_ratios: expected a ratio for each layer".to_owned());
    let ratios = config.get("compress_ratios").and_then(Value::as_array).ok_or_else(wrong)?;
    let ratios: Vec<u64> = ratios.iter().map(Value::as_u64).collect::<Option<_>>().ok_or_else(wrong)?;
    let layers = count("num_hidden_layers")?;
    let stacked: Vec<u64> = ratios.into_iter().take(layers as usize).collect();
    if stacked.len() != layers as usize {
        return Err(wrong());
    }
    let name = |ratio: u64| format!("compressed-{ratio}");
    let mut blocks = IndexMap::new();
    for ratio in &stacked {
        blocks.insert(name(*ratio), block(*ratio, count)?);
    }
    let stack = stacked.iter().map(|ratio| StackRun { cycle: vec![name(*ratio)], times: 1 }).collect();
    let graph = assembled(count, ARCHITECTURE, blocks, stack)?;
    Ok(ModelGraph { residual_lanes: Some(ResidualLanes { lanes: 4, balancing_rounds: 1 }), ..graph })
}

fn block(ratio: u64, count: &impl Fn(&str) -> Result<u32, SetupError>) -> Result<LayerBlock, SetupError> {
    let selection = Selection {
        heads: count("index_n_heads")?,
        head_dim: count("index_head_dim")?,
        top_k: count("index_topk")?,
        query_format: PLAIN,
        weights_format: PLAIN,
    };
    let compression = Compression {
        ratio: u32::try_from(ratio).map_err(|_| SetupError::model(format!("compress_ratios: {ratio} is too large")))?,
        overlaps: ratio == SELECTING,
        format: PLAIN,
        selection: (ratio == SELECTING).then_some(selection),
    };
    let attention = CompressedAttention {
        query_heads: count("num_attention_heads")?,
        head_dim: count("head_dim")?,
        rotary_dim: count("qk_rope_head_dim")?,
        window: count("sliding_window")?,
        sinks: true,
        query_rank: count("q_lora_rank")?,
        output_groups: count("o_groups")?,
        output_rank: count("o_lora_rank")?,
        compression: (ratio > 1).then_some(compression),
        down_format: PLAIN,
        query_format: PLAIN,
        group_format: PLAIN,
        output_format: PLAIN,
    };
    Ok(LayerBlock { attention: Attention::Compressed(attention), feed_forward: feed_forward(4), norms: 2 })
}

/// The preset.
pub(super) fn tiny() -> Map<String, Value> {
    let mut config = plain("deepseek_v4", 6);
    let counts = [
        ("head_dim", 512),
        ("qk_rope_head_dim", 64),
        ("num_attention_heads", 64),
        ("num_key_value_heads", 1),
        ("q_lora_rank", 96),
        ("o_lora_rank", 96),
        ("o_groups", 8),
        ("index_head_dim", 128),
        ("index_n_heads", 64),
        ("index_topk", 512),
    ];
    config.extend(counts.map(|(key, count)| (key.to_owned(), count.into())));
    config.insert("compress_ratios".to_owned(), vec![0, 0, 4, 128, 4, 128].into());
    config
}
