//! Llama 4: attention within chunks of the context in all layers but some that attend to all of it and turn no position, and experts in
//! every layer or every few, beside one that all tokens pass.
//!
//! A configuration that lists no layers without positions has every fourth so, which is a default of its class. Norms over queries and
//! keys carry no weights and stand in layers that turn positions alone. Layers without positions scale
//! queries, which changes no tensor; a configuration that switches this off is refused.

use blis_contracts::format::MatmulFormat;
use blis_contracts::model::{Attention, DenseFeedForward, FeedForward, GroupedQueryAttention, LayerBlock, MixtureOfExperts};

use super::DeriveError;
use super::family::{AttentionBias, DENSE, EncoderKind, Family, InnerName, Nested};
use super::keys::Keys;
use super::quantisation::Quantisation;
use crate::tree::Tree;

pub(super) const LLAMA4: Family = Family {
    architecture: "Llama4ForConditionalGeneration",
    model_type: "llama4",
    other_model_types: &["llama4_text"],
    attention_bias: AttentionBias::Never,
    chunked: true,
    nested: Some(Nested {
        name: InnerName::ModelType("llama4_text"),
        modules: "language_model.",
        encoder: EncoderKind::Llama4,
        without_effect: &["boi_token_index", "eoi_token_index", "image_token_index", "tie_word_embeddings", "torch_dtype"],
    }),
    without_effect: &["attention_bias", "attn_scale", "floor_scale", "for_llm_compressor", "model_type", "router_jitter_noise"],
    ..DENSE
};

/// Layers that turn positions where none are listed: all but every so many-th.
pub(super) const DEFAULT_INTERVAL: u64 = 4;

/// Widths of attention, which all layers share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attending {
    pub(super) layers: u32,
    pub(super) query_heads: u32,
    pub(super) kv_heads: u32,
    pub(super) head_dim: u32,
}

/// Builds every layer, bottom to top.
pub(super) fn build(keys: &Keys<'_>, heads: Attending, quantisation: &Quantisation) -> Result<Vec<LayerBlock>, DeriveError> {
    let chunk = keys.required("attention_chunk_size", keys.small("attention_chunk_size")?)?;
    let normed = keys.flag("use_qk_norm")?.unwrap_or(true);
    let turned = turned(keys, heads.layers)?;
    check_kinds(keys, &turned)?;
    check_scaling(keys)?;
    let networks = Networks::read(keys)?;
    let layer = |(index, turns): (u32, bool)| {
        let same = |modules: &[&str]| super::layers::same_format(quantisation, index, &format!("model.layers.{index}"), modules);
        let attention = Attention::GroupedQuery(GroupedQueryAttention {
            query_heads: heads.query_heads,
            kv_heads: heads.kv_heads,
            head_dim: heads.head_dim,
            window: None,
            chunk: turns.then_some(chunk),
            sinks: false,
            qk_norm: normed && turns,
            qk_norm_spans_heads: false,
            qk_norm_unweighted: normed && turns,
            rotary_dim: if turns { None } else { Some(0) },
            qkv_bias: false,
            output_bias: false,
            output_gate: false,
            values_are_keys: false,
            indexer: None,
            qkv_format: same(&["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"])?,
            output_format: same(&["self_attn.o_proj"])?,
        });
        Ok(LayerBlock { attention, feed_forward: networks.layer(index, &same)?, norms: 2 })
    };
    (0..).zip(turned).map(layer).collect()
}

/// Of each layer, whether it turns positions.
fn turned(keys: &Keys<'_>, layers: u32) -> Result<Vec<bool>, DeriveError> {
    let interval = keys.natural("no_rope_layer_interval")?.unwrap_or(DEFAULT_INTERVAL);
    let Some(found) = keys.any("no_rope_layers") else {
        return Ok((1..=u64::from(layers)).map(|layer| !layer.is_multiple_of(interval)).collect());
    };
    let switch = |item: &Tree| item.as_natural().filter(|&value| value <= 1).map(|value| value == 1);
    let list: Option<Vec<bool>> = found.as_sequence().and_then(|items| items.iter().map(switch).collect());
    list.filter(|list| list.len() == layers as usize)
        .ok_or_else(|| keys.wrong("no_rope_layers", found, &format!("a list of 0 or 1 for each of the {layers} layers")))
}

/// Refuses a list of kinds that says otherwise.
fn check_kinds(keys: &Keys<'_>, turned: &[bool]) -> Result<(), DeriveError> {
    let Some(found) = keys.any("layer_types") else { return Ok(()) };
    let stated = keys.texts("layer_types")?;
    let derived = turned.iter().map(|&turns| if turns { "chunked_attention" } else { "full_attention" });
    if stated.iter().copied().eq(derived) {
        return Ok(());
    }
    Err(keys.wrong("layer_types", found, "chunked_attention where no_rope_layers says 1, full_attention elsewhere"))
}

/// Refuses queries that are left as they are in layers without positions: a graph does not say whether they are scaled.
fn check_scaling(keys: &Keys<'_>) -> Result<(), DeriveError> {
    let Some(found) = keys.any("attn_temperature_tuning") else { return Ok(()) };
    if matches!(found, Tree::Flag(false) | Tree::Natural(0)) {
        return Err(keys.wrong("attn_temperature_tuning", found, "true, as queries of layers without positions are scaled"));
    }
    Ok(())
}

/// The feed-forward parts: a mixture in every so many-th layer.
struct Networks {
    experts: u32,
    top_k: u32,
    expert_width: u64,
    dense_width: u64,
    step: u64,
}

impl Networks {
    fn read(keys: &Keys<'_>) -> Result<Self, DeriveError> {
        let small = |key| keys.required(key, keys.small(key)?);
        let wide = |key| keys.required(key, keys.natural(key)?);
        if let Some(found) = keys.any("moe_layers") {
            return Err(keys.wrong("moe_layers", found, "absent, as engines go by interleave_moe_layer_step"));
        }
        Ok(Self {
            experts: small("num_local_experts")?,
            top_k: small("num_experts_per_tok")?,
            expert_width: wide("intermediate_size")?,
            dense_width: wide("intermediate_size_mlp")?,
            step: keys.natural("interleave_moe_layer_step")?.unwrap_or(1),
        })
    }

    fn layer(&self, index: u32, same: &impl Fn(&[&str]) -> Result<MatmulFormat, DeriveError>) -> Result<FeedForward, DeriveError> {
        let network = |module: &str, intermediate_size| -> Result<DenseFeedForward, DeriveError> {
            let [gate, up, down] = ["gate_proj", "up_proj", "down_proj"].map(|name| format!("{module}.{name}"));
            let (up_format, down_format) = (same(&[&gate, &up])?, same(&[&down])?);
            Ok(DenseFeedForward { intermediate_size, gated: true, bias: false, up_format, down_format })
        };
        if !(u64::from(index) + 1).is_multiple_of(self.step) {
            return Ok(FeedForward::Dense(network("feed_forward", self.dense_width)?));
        }
        Ok(FeedForward::MixtureOfExperts(MixtureOfExperts {
            experts: self.experts,
            top_k: self.top_k,
            intermediate_size: self.expert_width,
            gated: true,
            bias: false,
            router_bias: false,
            selection_bias: false,
            picks_by_token: false,
            expert_format: same(&["feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj"])?,
            router_format: same(&["feed_forward.router"])?,
            groups: None,
            shared: Some(network("feed_forward.shared_expert", self.expert_width)?),
            shared_gate: false,
            router_scales: false,
            latent: None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use blis_contracts::model::ModelGraph;

    use crate::derive::{DeriveError, Inputs, derive};
    use crate::entry::{ModelEntry, StatedEncoder};

    const SMALL: &str = r#"{"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "text_config": {"model_type": "llama4_text",
        "torch_dtype": "bfloat16", "hidden_size": 256, "intermediate_size": 64, "intermediate_size_mlp": 512, "num_hidden_layers": 4,
        "vocab_size": 1000, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 4096,
        "attention_chunk_size": 128, "use_qk_norm": true, "num_local_experts": 8, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2}}"#;

    fn small(from: &str, to: &str) -> Result<ModelGraph, DeriveError> {
        assert!(SMALL.contains(from), "{from}");
        let config = SMALL.replacen(from, to, 1).into_bytes();
        let encoders = Some(StatedEncoder { tower: 1000, projector: 100, source: "a test".to_owned() });
        let entry = ModelEntry { encoders, ..ModelEntry::local("small") };
        derive(&Inputs { entry, config, quantisation_config: None, headers: Vec::new() })
    }

    #[test]
    fn every_fourth_layer_sees_all_of_the_context_and_every_second_has_experts() {
        let graph = small("", "").unwrap();
        assert_eq!(graph.layer_names().collect::<Vec<_>>(), ["chunked-dense", "chunked-moe", "chunked-dense", "full-moe"]);
        let attention = 2 * 256 * (256 + 128) + 2 * 256;
        let moe = 8 * 256 + (8 + 1) * 3 * 256 * 64;
        assert_eq!(graph.parameters.total, 1100 + 2 * 1000 * 256 + 256 + 4 * attention + 2 * (moe + 3 * 256 * 512));
        let all = small("\"use_qk_norm\"", "\"no_rope_layers\": [0, 1, 1, 1], \"use_qk_norm\"").unwrap();
        assert_eq!(all.layer_names().collect::<Vec<_>>(), ["full-dense", "chunked-moe", "chunked-dense", "chunked-moe"]);
    }

    #[test]
    fn what_contradicts_itself_is_refused_by_its_key() {
        for (from, to, expected) in [
            ("\"attention_chunk_size\": 128,", "", "attention_chunk_size: missing"),
            (
                "\"use_qk_norm\"",
                "\"no_rope_layers\": [1], \"use_qk_norm\"",
                "no_rope_layers: [1] is not a list of 0 or 1 for each of the 4",
            ),
            ("\"use_qk_norm\"", "\"layer_types\": [\"full_attention\"], \"use_qk_norm\"", "layer_types: [\"full_attention\"] is not"),
            ("\"use_qk_norm\"", "\"moe_layers\": [1], \"use_qk_norm\"", "moe_layers: [1] is not absent"),
            ("\"use_qk_norm\"", "\"attn_temperature_tuning\": 0, \"use_qk_norm\"", "attn_temperature_tuning: 0 is not true"),
        ] {
            let message = small(from, to).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}\nwanted {expected}");
        }
    }
}
