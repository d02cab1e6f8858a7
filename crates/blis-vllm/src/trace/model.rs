//! A scenario's model and accelerator as the port's own types.
//!
//! The oracle transcribes the same few model files: layer names, and which layers have a window or keep a state.

use blis_contracts::chip::{Chip, CitationKind, Cited};
use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::model::{
    Attention, DenseFeedForward, Derivation, FeedForward, GatedDelta, GroupedQueryAttention, LatentAttention, LayerBlock, Mamba2,
    MixtureOfExperts, ModelGraph, ParameterCount, StackRun, TokenIndexer, TokenSelection,
};
use blis_contracts::units::{BytesPerRank, BytesPerSecond};
use indexmap::IndexMap;
use serde_json::{Map, Value};

use super::setup::SetupError;
use super::{block_sparse, chunked, compressed, two_heads};
use crate::kv_sizing::LayerKv;

pub(super) const PLAIN: MatmulFormat = MatmulFormat { weights: FormatName::Bf16, activations: FormatName::Bf16 };

/// The graph of the model: its attention is the scenario's, the rest is a stand-in that no decision reads.
pub(super) fn graph(given: &Value) -> Result<ModelGraph, SetupError> {
    let config = merged(given)?;
    let count = |key: &str| {
        let value = config.get(key).and_then(Value::as_u64).and_then(|value| u32::try_from(value).ok());
        value.ok_or_else(|| SetupError::model(format!("{key} is not a count")))
    };
    match config.get("model_type").and_then(Value::as_str).unwrap_or_default() {
        "deepseek_v4" => return compressed::graph(&config, &count),
        block_sparse::MODEL_TYPE => return block_sparse::graph(&count),
        chunked::MODEL_TYPE => return chunked::graph(&config, &count),
        two_heads::MODEL_TYPE => return two_heads::graph(&config, &count),
        _ => {}
    }
    let (architecture, has_window) = architecture(&config)?;
    let window = if has_window { Some(count("sliding_window")?) } else { None };
    let (query_heads, kv_heads, head_dim) = (count("num_attention_heads")?, count("num_key_value_heads")?, count("head_dim")?);
    // Whether there are experts decides how engine cores keep step; what they are does not matter.
    let experts = ["num_experts", "num_local_experts"].into_iter().find_map(|key| config.get(key).and_then(Value::as_u64)).unwrap_or(0);
    let feed_forward = feed_forward(experts);
    let latent = latent_of(architecture, &count)?;
    let grouped_query = |window| {
        Attention::GroupedQuery(GroupedQueryAttention { window, sinks: has_window, ..grouped_query(query_heads, kv_heads, head_dim) })
    };
    let block = |window| LayerBlock {
        attention: latent.clone().map_or_else(|| grouped_query(window), Attention::Latent),
        feed_forward: feed_forward.clone(),
        norms: 2,
    };
    let states = states(&config, architecture)?;
    let kind = |index: u32| match states.get(index as usize) {
        Some(true) => "state",
        _ if has_window && index.is_multiple_of(2) => "window",
        Some(false) | None => "full",
    };
    let run = |index| StackRun { cycle: vec![kind(index).to_owned()], times: 1 };
    let mut blocks = IndexMap::from([("full".to_owned(), block(None))]);
    if has_window {
        blocks.insert("window".to_owned(), block(window));
    }
    if !states.is_empty() {
        let attention = if architecture == MAMBA2 { mamba2(&count)? } else { gated_delta(&count)? };
        blocks.insert("state".to_owned(), LayerBlock { attention, ..block(None) });
    }
    let stack = (0..count("num_hidden_layers")?).map(run).collect();
    assembled(&count, architecture, blocks, stack)
}

/// Attention over the whole context without anything around it.
pub(super) const fn grouped_query(query_heads: u32, kv_heads: u32, head_dim: u32) -> GroupedQueryAttention {
    GroupedQueryAttention {
        query_heads,
        kv_heads,
        head_dim,
        window: None,
        chunk: None,
        sinks: false,
        qk_norm: false,
        qk_norm_spans_heads: false,
        qk_norm_unweighted: false,
        rotary_dim: None,
        qkv_bias: false,
        output_bias: false,
        output_gate: false,
        values_are_keys: false,
        indexer: None,
        qkv_format: PLAIN,
        output_format: PLAIN,
    }
}

/// A model of these layers.
pub(super) fn assembled(
    count: &impl Fn(&str) -> Result<u32, SetupError>,
    architecture: &str,
    blocks: IndexMap<String, LayerBlock>,
    stack: Vec<StackRun>,
) -> Result<ModelGraph, SetupError> {
    Ok(ModelGraph {
        name: "scenario".to_owned(),
        aliases: Vec::new(),
        architecture: architecture.to_owned(),
        derived_from: Derivation { source: "a scenario".to_owned(), files: IndexMap::new(), inferred: Vec::new() },
        dtype: FormatName::Bf16,
        hidden_size: u64::from(count("hidden_size")?),
        vocab_size: u64::from(count("vocab_size")?),
        max_position_embeddings: u64::from(count("max_position_embeddings")?),
        tied_embeddings: false,
        output_projection: PLAIN,
        kv_format: None,
        quantisation: None,
        residual_lanes: None,
        blocks,
        stack,
        encoders: Vec::new(),
        parameters: ParameterCount { total: 1, active: 1, active_leaves_out: Vec::new(), published: None },
    })
}

/// The class of a model, and whether some of its layers have a window.
fn architecture(config: &Map<String, Value>) -> Result<(&'static str, bool), SetupError> {
    Ok(match config.get("model_type").and_then(Value::as_str).unwrap_or_default() {
        "gpt_oss" => ("GptOssForCausalLM", true),
        "llama" => ("LlamaForCausalLM", false),
        "qwen3" => ("Qwen3ForCausalLM", false),
        "qwen3_moe" => ("Qwen3MoeForCausalLM", false),
        "deepseek_v3" => ("DeepseekV3ForCausalLM", false),
        "deepseek_v32" => ("DeepseekV32ForCausalLM", false),
        "qwen3_next" => (DELTA, false),
        "nemotron_h" => (MAMBA2, false),
        other => return Err(SetupError::model(format!("model_type {other:?} has no transcription of its layers"))),
    })
}

/// The architecture of a hybrid of gated delta rules and attention.
const DELTA: &str = "Qwen3NextForCausalLM";

/// The architecture of a hybrid of Mamba-2 and attention.
const MAMBA2: &str = "NemotronHForCausalLM";

/// Of each layer of a hybrid, whether it keeps a state; nothing for another model.
fn states(config: &Map<String, Value>, architecture: &str) -> Result<Vec<bool>, SetupError> {
    let (key, word) = match architecture {
        DELTA => ("layer_types", "linear_attention"),
        MAMBA2 => ("layers_block_type", "mamba"),
        _ => return Ok(Vec::new()),
    };
    let kinds = config.get(key).and_then(Value::as_array).ok_or_else(|| SetupError::model(format!("{key} is not a list")))?;
    Ok(kinds.iter().map(|kind| kind.as_str() == Some(word)).collect())
}

fn gated_delta(count: &impl Fn(&str) -> Result<u32, SetupError>) -> Result<Attention, SetupError> {
    Ok(Attention::GatedDelta(GatedDelta {
        key_heads: count("linear_num_key_heads")?,
        value_heads: count("linear_num_value_heads")?,
        key_dim: count("linear_key_head_dim")?,
        value_dim: count("linear_value_head_dim")?,
        conv_tokens: count("linear_conv_kernel_dim")?,
        state_format: None,
        input_format: PLAIN,
        gates_format: PLAIN,
        output_format: PLAIN,
    }))
}

fn mamba2(count: &impl Fn(&str) -> Result<u32, SetupError>) -> Result<Attention, SetupError> {
    Ok(Attention::Mamba2(Mamba2 {
        heads: count("mamba_num_heads")?,
        head_dim: count("mamba_head_dim")?,
        groups: count("n_groups")?,
        state_dim: count("ssm_state_size")?,
        conv_tokens: count("conv_kernel")?,
        conv_bias: true,
        chunk_tokens: count("chunk_size")?,
        state_format: None,
        input_format: PLAIN,
        output_format: PLAIN,
    }))
}

/// A width that any number of a node's ranks can share.
const ANY_RANKS: u64 = 6720;

pub(super) fn feed_forward(experts: u64) -> FeedForward {
    if experts > 0 {
        return FeedForward::MixtureOfExperts(MixtureOfExperts {
            experts: u32::try_from(experts).unwrap_or(u32::MAX),
            top_k: 1,
            intermediate_size: ANY_RANKS,
            gated: true,
            bias: false,
            router_bias: false,
            selection_bias: false,
            groups: None,
            picks_by_token: false,
            shared: None,
            shared_gate: false,
            router_scales: false,
            latent: None,
            router_format: PLAIN,
            expert_format: PLAIN,
        });
    }
    FeedForward::Dense(DenseFeedForward { intermediate_size: ANY_RANKS, gated: true, bias: false, up_format: PLAIN, down_format: PLAIN })
}

/// The latent attention of an architecture that has it.
fn latent_of(architecture: &str, count: &impl Fn(&str) -> Result<u32, SetupError>) -> Result<Option<LatentAttention>, SetupError> {
    Ok(match architecture {
        "DeepseekV3ForCausalLM" => Some(latent(count)?),
        "DeepseekV32ForCausalLM" => Some(LatentAttention { selection: Some(selection(count)?), ..latent(count)? }),
        _ => None,
    })
}

fn latent(count: &impl Fn(&str) -> Result<u32, SetupError>) -> Result<LatentAttention, SetupError> {
    Ok(LatentAttention {
        query_heads: count("num_attention_heads")?,
        query_rank: Some(count("q_lora_rank")?),
        kv_rank: count("kv_lora_rank")?,
        plain_dim: count("qk_nope_head_dim")?,
        rotary_dim: count("qk_rope_head_dim")?,
        value_dim: count("v_head_dim")?,
        selection: None,
        down_format: PLAIN,
        query_format: PLAIN,
        kv_format: PLAIN,
        output_format: PLAIN,
    })
}

/// Layers that draft the next tokens, behind the model's own; 0 where the configuration has none.
pub(super) fn prediction_layers(given: &Value) -> Result<u32, SetupError> {
    let value = merged(given)?.get("num_nextn_predict_layers").cloned().unwrap_or(Value::from(0));
    let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
    count.ok_or_else(|| SetupError::model(format!("num_nextn_predict_layers: {value} is not a count")))
}

/// Gives the caches of the layers upstream's names.
pub(super) fn name_layers(graph: &ModelGraph, layers: &mut [LayerKv]) {
    for layer in layers {
        match graph.architecture.as_str() {
            compressed::ARCHITECTURE => {}
            block_sparse::ARCHITECTURE => layer.name.insert_str(0, block_sparse::PREFIX),
            _ => layer.name = cache_name(graph, &layer.name),
        }
    }
}

/// The name upstream gives the attention of a layer.
fn layer_name(graph: &ModelGraph, index: usize) -> String {
    let attends =
        graph.layers().nth(index).is_some_and(|block| matches!(block.attention, Attention::GroupedQuery(_) | Attention::Latent(_)));
    let module = match (graph.architecture.as_str(), attends) {
        (DELTA, false) => "linear_attn",
        (MAMBA2, false) => "mixer",
        (MAMBA2, true) => "mixer.attn",
        ("GptOssForCausalLM", _) => "attn.attn",
        _ => "self_attn.attn",
    };
    format!("model.layers.{index}.{module}")
}

/// The name upstream gives the cache that the port calls so.
fn cache_name(graph: &ModelGraph, own: &str) -> String {
    let index = own.split('.').nth(2).and_then(|index| index.parse().ok());
    match index {
        Some(index) if !own.ends_with(".indexer.k_cache") => layer_name(graph, index),
        _ => own.to_owned(),
    }
}

fn selection(count: &impl Fn(&str) -> Result<u32, SetupError>) -> Result<TokenSelection, SetupError> {
    let indexer = TokenIndexer {
        heads: count("index_n_heads")?,
        head_dim: count("index_head_dim")?,
        query_format: PLAIN,
        key_format: PLAIN,
        weights_format: PLAIN,
    };
    Ok(TokenSelection { top_k: count("index_topk")?, indexer: Some(indexer) })
}

/// The accelerator: one of the oracle's stand-ins (`oracle/world.py`), or the properties stated.
pub(super) fn chip(given: &Value) -> Result<Chip, SetupError> {
    let (name, capability, memory, multiprocessors) = match given {
        Value::String(short) => match short.as_str() {
            "a100" => ("NVIDIA A100-SXM4-80GB", (8, 0), 81_920 << 20, 108),
            "h100" => ("NVIDIA H100 80GB HBM3", (9, 0), 81_559 << 20, 132),
            "h200" => ("NVIDIA H200", (9, 0), 143_771 << 20, 132),
            "b200" => ("NVIDIA B200", (10, 0), 183_359 << 20, 148),
            other => return Err(SetupError::gpu(format!("unknown name {other:?}; known are a100, h100, h200, b200"))),
        },
        Value::Object(properties) => {
            let number = |value: Option<&Value>| value.and_then(Value::as_u64).and_then(|value| u32::try_from(value).ok());
            let pair = properties.get("capability").and_then(Value::as_array);
            let part = |index: usize| number(pair.and_then(|pair| pair.get(index)));
            let read = (
                properties.get("name").and_then(Value::as_str),
                part(0).zip(part(1)),
                properties.get("memory_bytes").and_then(Value::as_u64),
                number(properties.get("sms")),
            );
            match read {
                (Some(name), Some(capability), Some(memory), Some(sms)) => (name, capability, memory, sms),
                _ => return Err(SetupError::gpu("expected name, capability, memory_bytes and sms".to_owned())),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return Err(SetupError::gpu("expected a short name or a map".to_owned()));
        }
    };
    Ok(Chip {
        name: name.to_lowercase(),
        device_name: cited(name.to_owned()),
        compute_capability: cited(capability),
        multiprocessors: cited(multiprocessors),
        memory: cited(BytesPerRank::new(memory)),
        reported_memory: cited(BytesPerRank::new(memory)),
        memory_bandwidth: cited(BytesPerSecond::new(0.0)),
        l2_cache: cited(BytesPerRank::ZERO),
        peak: IndexMap::new(),
        gpus_per_node: cited(GPUS),
        gpus_per_domain: cited(GPUS),
        link_bandwidth: cited(BytesPerSecond::new(0.0)),
        host_bandwidth: cited(BytesPerSecond::new(0.0)),
    })
}

/// Accelerators of the oracle's machine.
pub(super) const GPUS: u32 = 8;

fn cited<T>(value: T) -> Cited<T> {
    Cited { value, kind: CitationKind::Published, source: "the scenario".to_owned() }
}

/// The preset's keys under the given ones.
fn merged(given: &Value) -> Result<Map<String, Value>, SetupError> {
    let (preset, keys) = match given {
        Value::String(name) => (Some(name.clone()), Map::new()),
        Value::Object(keys) => {
            let mut keys = keys.clone();
            let preset = keys.remove("preset").and_then(|name| name.as_str().map(str::to_owned));
            (preset, keys)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return Err(SetupError::model("expected a preset's name or a map".to_owned()));
        }
    };
    let mut config = match preset.as_deref() {
        None => Map::new(),
        Some("tiny-llama") => tiny("llama", 2),
        Some("tiny-gptoss") => tiny("gpt_oss", 4),
        Some("tiny-qwen3") => tiny("qwen3", 2),
        Some("tiny-mla") => tiny_latent("deepseek_v3"),
        Some("tiny-dsa") => tiny_selecting(),
        Some("tiny-delta") => tiny_delta(),
        Some("tiny-mamba2") => tiny_mamba2(),
        Some("tiny-llama4") => chunked::tiny(),
        Some("tiny-gemma4") => two_heads::tiny(),
        Some("tiny-dsv4") => compressed::tiny(),
        Some("tiny-m3") if keys.is_empty() => block_sparse::tiny(),
        Some(other) => {
            let known = "tiny-llama, tiny-gptoss, tiny-llama4, tiny-gemma4, tiny-qwen3, tiny-mla, tiny-dsa, tiny-delta, tiny-mamba2, tiny-dsv4, and tiny-m3 as it is";
            return Err(SetupError::model(format!("unknown preset {other:?}; known are {known}")));
        }
    };
    config.extend(keys);
    Ok(config)
}

fn tiny_delta() -> Map<String, Value> {
    let mut config = tiny("qwen3_next", 8);
    let counts = [
        ("linear_num_key_heads", 2),
        ("linear_num_value_heads", 4),
        ("linear_key_head_dim", 16),
        ("linear_value_head_dim", 16),
        ("linear_conv_kernel_dim", 4),
    ];
    config.extend(counts.map(|(key, value)| (key.to_owned(), Value::from(value))));
    let linear = "linear_attention";
    config.insert("layer_types".to_owned(), [linear, linear, linear, "full_attention"].repeat(2).into());
    config
}

fn tiny_mamba2() -> Map<String, Value> {
    let mut config = tiny("nemotron_h", 5);
    let counts =
        [("mamba_num_heads", 4), ("mamba_head_dim", 16), ("n_groups", 2), ("ssm_state_size", 16), ("conv_kernel", 4), ("chunk_size", 128)];
    config.extend(counts.map(|(key, value)| (key.to_owned(), Value::from(value))));
    config.insert("layers_block_type".to_owned(), ["mamba", "attention", "mamba", "mamba", "attention"].to_vec().into());
    config
}

fn tiny_selecting() -> Map<String, Value> {
    let mut config = tiny_latent("deepseek_v32");
    let counts = [("index_n_heads", 64), ("index_head_dim", 128), ("index_topk", 2048)];
    config.extend(counts.map(|(key, value)| (key.to_owned(), Value::from(value))));
    config
}

fn tiny_latent(model_type: &str) -> Map<String, Value> {
    let mut config = tiny(model_type, 3);
    let counts = [
        ("num_key_value_heads", 4),
        ("q_lora_rank", 96),
        ("kv_lora_rank", 512),
        ("qk_nope_head_dim", 128),
        ("qk_rope_head_dim", 64),
        ("v_head_dim", 128),
    ];
    config.extend(counts.map(|(key, value)| (key.to_owned(), Value::from(value))));
    config
}

pub(super) fn tiny(model_type: &str, layers: u32) -> Map<String, Value> {
    let counts = [
        ("num_hidden_layers", layers),
        ("hidden_size", 64),
        ("num_attention_heads", 4),
        ("num_key_value_heads", 2),
        ("head_dim", 64),
        ("vocab_size", 1 << 30),
        ("max_position_embeddings", 4096),
        ("sliding_window", 128),
    ];
    let mut config: Map<String, Value> = counts.into_iter().map(|(key, count)| (key.to_owned(), count.into())).collect();
    config.insert("model_type".to_owned(), model_type.into());
    if model_type == "gpt_oss" {
        config.insert("num_local_experts".to_owned(), 4.into());
    }
    config
}
