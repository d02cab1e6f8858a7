//! Multi-head latent attention, and the mixture of experts that the architectures with it have: routed in groups, beside shared
//! experts, above some dense layers.
//!
//! The module for multi-token prediction behind the stack (`num_nextn_predict_layers`) is no part of a graph.

use blis_contracts::format::MatmulFormat;
use blis_contracts::model::{DenseFeedForward, ExpertGroups, LatentAttention};

use super::DeriveError;
use super::keys::Keys;
use crate::tree::Tree;

/// The names of a layer's feed-forward projections within a module.
const PROJECTIONS: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

/// The widths of latent attention, which all layers share.
#[derive(Debug, Clone, Copy)]
pub(super) struct LatentShape {
    query_heads: u32,
    query_rank: Option<u32>,
    kv_rank: u32,
    plain_dim: u32,
    rotary_dim: u32,
    value_dim: u32,
}

impl LatentShape {
    pub(super) fn read(keys: &Keys<'_>, query_heads: u32, kv_heads: u32) -> Result<Self, DeriveError> {
        if kv_heads != query_heads {
            let expected = format!("{query_heads}, as num_attention_heads says");
            return Err(keys.wrong("num_key_value_heads", &Tree::Natural(kv_heads.into()), &expected));
        }
        if keys.flag("attention_bias")?.unwrap_or(false) {
            return Err(keys.wrong("attention_bias", &Tree::Flag(true), "false, as no bias of latent attention is understood"));
        }
        let small = |key| keys.required(key, keys.small(key)?);
        let (plain_dim, rotary_dim) = (small("qk_nope_head_dim")?, small("qk_rope_head_dim")?);
        match keys.small("qk_head_dim")? {
            Some(stated) if u64::from(stated) != u64::from(plain_dim) + u64::from(rotary_dim) => {
                let expected = format!("{}, as qk_nope_head_dim and qk_rope_head_dim say", u64::from(plain_dim) + u64::from(rotary_dim));
                return Err(keys.wrong("qk_head_dim", &Tree::Natural(stated.into()), &expected));
            }
            _ => {}
        }
        Ok(Self {
            query_heads,
            query_rank: keys.small("q_lora_rank")?,
            kv_rank: small("kv_lora_rank")?,
            plain_dim,
            rotary_dim,
            value_dim: small("v_head_dim")?,
        })
    }

    pub(super) fn layer(&self, same: &impl Fn(&[&str]) -> Result<MatmulFormat, DeriveError>) -> Result<LatentAttention, DeriveError> {
        let down: &[&str] = match self.query_rank {
            Some(_) => &["self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"],
            None => &["self_attn.kv_a_proj_with_mqa"],
        };
        Ok(LatentAttention {
            query_heads: self.query_heads,
            query_rank: self.query_rank,
            kv_rank: self.kv_rank,
            plain_dim: self.plain_dim,
            rotary_dim: self.rotary_dim,
            value_dim: self.value_dim,
            selection: None,
            down_format: same(down)?,
            query_format: same(&[if self.query_rank.is_some() { "self_attn.q_b_proj" } else { "self_attn.q_proj" }])?,
            kv_format: same(&["self_attn.kv_b_proj"])?,
            output_format: same(&["self_attn.o_proj"])?,
        })
    }
}

/// Layers at the bottom that are dense.
pub(super) fn dense_layers(keys: &Keys<'_>, layers: u32) -> Result<Vec<u64>, DeriveError> {
    match keys.natural("moe_layer_freq")? {
        None | Some(1) => {}
        Some(other) => return Err(keys.wrong("moe_layer_freq", &Tree::Natural(other), "1, experts in every layer above the dense ones")),
    }
    let first = match keys.any("first_k_dense_replace") {
        None | Some(Tree::Natural(0)) => 0,
        Some(_) => keys.natural("first_k_dense_replace")?.unwrap_or(0),
    };
    if let Some(found) = keys.any("mlp_layer_types") {
        let stated = keys.texts("mlp_layer_types")?;
        let derived = (0..layers).map(|layer| if u64::from(layer) < first { "dense" } else { "sparse" });
        if !stated.iter().copied().eq(derived) {
            return Err(keys.wrong("mlp_layer_types", found, &format!("dense for the first {first} layers, sparse for the others")));
        }
    }
    Ok((0..first).collect())
}

/// How experts are picked and what stands beside them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Routing {
    pub(super) selection_bias: bool,
    pub(super) groups: Option<ExpertGroups>,
    shared_width: Option<u64>,
}

impl Routing {
    /// Reads how `experts` are picked; `width` is that of one expert.
    pub(super) fn read(keys: &Keys<'_>, experts: u32, width: u64) -> Result<Self, DeriveError> {
        let selection_bias = match (keys.text("topk_method")?, keys.text("scoring_func")?) {
            (Some("noaux_tc"), Some("sigmoid")) => true,
            (Some("greedy" | "group_limited_greedy"), None | Some("softmax")) => false,
            (method, scoring) => {
                let found = Tree::Text(format!("{} with {}", method.unwrap_or("none"), scoring.unwrap_or("none")));
                let expected = "noaux_tc with scoring_func sigmoid, greedy or group_limited_greedy with softmax";
                return Err(keys.wrong("topk_method", &found, expected));
            }
        };
        let shared = keys.natural("n_shared_experts")?;
        Ok(Self { selection_bias, groups: groups(keys, experts)?, shared_width: shared.map(|shared| shared * width) })
    }

    /// The shared experts of a layer as one network.
    pub(super) fn shared(
        &self,
        same: &impl Fn(&[&str]) -> Result<MatmulFormat, DeriveError>,
    ) -> Result<Option<DenseFeedForward>, DeriveError> {
        let Some(intermediate_size) = self.shared_width else { return Ok(None) };
        let [gate, up, down] = PROJECTIONS.map(|name| format!("mlp.shared_experts.{name}"));
        Ok(Some(DenseFeedForward {
            intermediate_size,
            gated: true,
            bias: false,
            up_format: same(&[&gate, &up])?,
            down_format: same(&[&down])?,
        }))
    }
}

fn groups(keys: &Keys<'_>, experts: u32) -> Result<Option<ExpertGroups>, DeriveError> {
    let (count, picked) = (keys.small("n_group")?.unwrap_or(1), keys.small("topk_group")?.unwrap_or(1));
    if !experts.is_multiple_of(count) {
        return Err(keys.wrong("n_group", &Tree::Natural(count.into()), &format!("a divisor of the {experts} experts")));
    }
    if picked > count {
        return Err(keys.wrong("topk_group", &Tree::Natural(picked.into()), &format!("at most n_group ({count})")));
    }
    Ok((count > 1).then_some(ExpertGroups { count, picked }))
}

#[cfg(test)]
mod tests {
    use blis_contracts::format::FormatName;
    use blis_contracts::model::{Attention, FeedForward, ModelGraph};

    use crate::derive::{DeriveError, Inputs, derive};
    use crate::entry::ModelEntry;

    const SMALL: &str = r#"{"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "torch_dtype": "bfloat16",
        "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 64, "num_hidden_layers": 3, "vocab_size": 1000,
        "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 4096, "first_k_dense_replace": 1,
        "q_lora_rank": 96, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24,
        "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
        "topk_method": "noaux_tc", "scoring_func": "sigmoid", "num_nextn_predict_layers": 1}"#;

    fn small(from: &str, to: &str) -> Result<ModelGraph, DeriveError> {
        assert!(from.is_empty() || SMALL.contains(from), "{from}");
        let config = SMALL.replacen(from, to, usize::from(!from.is_empty())).into_bytes();
        derive(&Inputs { entry: ModelEntry::local("small"), config, quantisation_config: None, headers: Vec::new() })
    }

    #[test]
    fn layers_above_the_dense_ones_have_grouped_and_shared_experts() {
        let graph = small("", "").unwrap();
        assert_eq!(graph.layer_names().collect::<Vec<_>>(), ["dense", "moe", "moe"]);
        let FeedForward::MixtureOfExperts(moe) = &graph.blocks["moe"].feed_forward else { panic!("{:?}", graph.blocks) };
        let groups = moe.groups.unwrap();
        assert_eq!((groups.count, groups.picked, moe.selection_bias), (4, 2, true));
        assert_eq!(moe.shared.as_ref().unwrap().intermediate_size, 2 * 64);
        let ungrouped = small("\"n_group\": 4, \"topk_group\": 2", "\"n_group\": 1, \"topk_group\": 1").unwrap();
        let FeedForward::MixtureOfExperts(moe) = &ungrouped.blocks["moe"].feed_forward else { panic!("{:?}", ungrouped.blocks) };
        assert_eq!(moe.groups, None);
    }

    #[test]
    fn parameters_are_those_of_the_matrices_written_out() {
        let attention = 256 * 96 + 96 + 96 * 4 * 24 + 256 * (32 + 8) + 32 + 32 * 4 * (16 + 24) + 4 * 24 * 256;
        let expert = |width: u64| 3 * 256 * width;
        let dense = expert(512);
        let moe = 8 * (256 + 1) + 8 * expert(64) + expert(2 * 64);
        let graph = small("", "").unwrap();
        assert_eq!(graph.parameters.total, 2 * 1000 * 256 + 256 + 3 * (attention + 2 * 256) + dense + 2 * moe);
        assert_eq!(graph.parameters.total - graph.parameters.active, 2 * 6 * expert(64));
    }

    #[test]
    fn queries_without_a_latent_vector_are_projected_from_the_stream() {
        let graph = small("\"q_lora_rank\": 96", "\"q_lora_rank\": null").unwrap();
        let Attention::Latent(attention) = &graph.blocks["moe"].attention else { panic!("{:?}", graph.blocks) };
        assert_eq!((attention.query_rank, attention.query_dim(), attention.cached()), (None, 24, 40));
    }

    #[test]
    fn what_the_engine_would_compute_differently_is_refused_by_its_key() {
        for (from, to, expected) in [
            ("\"num_key_value_heads\": 4", "\"num_key_value_heads\": 2", "num_key_value_heads: 2 is not 4, as num_attention_heads says"),
            ("\"kv_lora_rank\": 32,", "", "kv_lora_rank: missing"),
            ("\"n_group\": 4", "\"n_group\": 3", "n_group: 3 is not a divisor of the 8 experts"),
            ("\"topk_group\": 2", "\"topk_group\": 5", "topk_group: 5 is not at most n_group (4)"),
            ("\"scoring_func\": \"sigmoid\"", "\"scoring_func\": \"softmax\"", "topk_method: \"noaux_tc with softmax\" is not"),
            ("\"vocab_size\"", "\"moe_layer_freq\": 2, \"vocab_size\"", "moe_layer_freq: 2 is not 1"),
            ("\"vocab_size\"", "\"attention_bias\": true, \"vocab_size\"", "attention_bias: true is not false"),
        ] {
            let message = small(from, to).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn no_method_converts_the_router() {
        let fp8 = r#""quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}, "vocab_size""#;
        let graph = small("\"vocab_size\"", fp8).unwrap();
        let FeedForward::MixtureOfExperts(moe) = &graph.blocks["moe"].feed_forward else { panic!("{:?}", graph.blocks) };
        assert_eq!((moe.router_format.weights, moe.expert_format.weights), (FormatName::Bf16, FormatName::Fp8Block));
    }
}
