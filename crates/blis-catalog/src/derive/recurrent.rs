//! Architectures some of whose layers keep a state instead of attending, and of these the one with gated delta rules (Qwen3.5).
//!
//! `layer_types` names each layer's kind. Attending layers gate their output, and positions turn a part of a head that
//! `rope_parameters` states. The module for multi-token prediction behind the stack is no part of a graph.
//!
//! Left out: tensor names, so that a checkpoint's headers cannot be held against a graph.

use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::model::{Attention, DenseFeedForward, GatedDelta};

use super::DeriveError;
use super::families::QWEN3_EXPERTS;
use super::family::{AttentionBias, DENSE, EncoderKind, Family, FeedForwardKind, InnerName, Nested, QkNorm};
use super::keys::Keys;
use crate::patterns::CONFIG;
use crate::tree::Tree;

/// What layers have instead of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recurrence {
    /// A gated delta rule.
    GatedDelta,
    /// Mamba-2, in layers that [`super::mamba`] reads.
    Mamba2,
}

/// The dense text model, inside a model that also reads images.
pub(super) const QWEN3_5: Family = Family {
    architecture: "Qwen3_5ForConditionalGeneration",
    model_type: "qwen3_5",
    attention_bias: AttentionBias::Stated,
    qk_norm: QkNorm::PerHead,
    recurrence: Some(Recurrence::GatedDelta),
    nested: Some(Nested { name: InnerName::ModelType("qwen3_5_text"), ..BESIDE_IMAGES }),
    without_effect: &[
        "full_attention_interval",
        "mlp_only_layers",
        "mtp_num_hidden_layers",
        "mtp_use_dedicated_embeddings",
        "output_gate_type",
        "partial_rotary_factor",
    ],
    ..DENSE
};

/// The same with experts.
pub(super) const QWEN3_5_MOE: Family = Family {
    architecture: "Qwen3_5MoeForConditionalGeneration",
    model_type: "qwen3_5_moe",
    feed_forward: QWEN3_EXPERTS,
    nested: Some(Nested { name: InnerName::ModelType("qwen3_5_moe_text"), ..BESIDE_IMAGES }),
    ..QWEN3_5
};

const BESIDE_IMAGES: Nested = Nested {
    name: InnerName::ModelType("qwen3_5_text"),
    modules: "model.language_model.",
    encoder: EncoderKind::QwenVl,
    without_effect: &["image_token_id", "language_model_only", "video_token_id", "vision_end_token_id", "vision_start_token_id"],
};

/// A hybrid of Mamba-2, attention and networks, each a layer of its own.
pub(super) const NEMOTRON_H: Family = Family {
    architecture: "NemotronHForCausalLM",
    model_type: "nemotron_h",
    attention_bias: AttentionBias::Never,
    feed_forward: FeedForwardKind::Dense,
    recurrence: Some(Recurrence::Mamba2),
    without_effect: &[
        "auto_map",
        "expand",
        "hidden_dropout",
        "layer_norm_epsilon",
        "moe_shared_expert_overlap",
        "mtp_hybrid_override_pattern",
        "mtp_layers_block_type",
        "norm_eps",
        "norm_topk_prob",
        "num_logits_to_keep",
        "num_nextn_predict_layers",
        "partial_rotary_factor",
        "rescale_prenorm_residual",
        "residual_in_fp32",
        "routed_scaling_factor",
        "time_step_floor",
        "time_step_limit",
        "time_step_max",
        "time_step_min",
        "time_step_rank",
        "use_mamba_kernels",
    ],
    ..DENSE
};

/// What the architecture's definition fixes and no file states.
pub(super) fn inferred(family: &Family) -> Option<String> {
    let part = match family.recurrence? {
        Recurrence::GatedDelta => {
            "gated delta rules: a convolution without bias over queries, keys and values, a decay and an offset of steps per value head, a norm over a value head"
        }
        Recurrence::Mamba2 => "Mamba-2: a decay, a direct path and an offset of steps per head, a norm over all heads",
    };
    Some(format!("{part}: part of {}", family.architecture))
}

/// Whether attention's output is gated.
pub(super) fn output_gate(keys: &Keys<'_>, family: &Family) -> Result<bool, DeriveError> {
    if family.recurrence != Some(Recurrence::GatedDelta) {
        return Ok(false);
    }
    Ok(keys.flag("attn_output_gate")?.unwrap_or(true))
}

/// The part of a head that positions rotate, where it is not the whole.
pub(super) fn rotary_dim(keys: &Keys<'_>, head_dim: u32) -> Result<Option<u32>, DeriveError> {
    const FACTOR: &str = "partial_rotary_factor";
    let scaling = keys.required("rope_parameters", keys.any("rope_parameters"))?;
    let inner = Keys::of(CONFIG, "rope_parameters", scaling)?;
    let Some(found) = inner.any(FACTOR) else { return Ok(None) };
    let rotated = found.as_number().map(|factor| factor * f64::from(head_dim));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked in the same condition")]
    match rotated {
        Some(rotated) if rotated >= 1.0 && rotated <= f64::from(head_dim) => Ok(Some(rotated as u32).filter(|&part| part < head_dim)),
        _ => Err(inner.wrong(FACTOR, found, "a share of a head, at most 1")),
    }
}

/// The layers with a gated delta rule, and the widths they share.
pub(super) struct GatedDeltaLayers {
    shape: Option<(GatedDelta, Vec<bool>)>,
}

impl GatedDeltaLayers {
    /// Reads them; none where the architecture has no such layer.
    pub(super) fn read(keys: &Keys<'_>, family: &Family, layers: u32) -> Result<Self, DeriveError> {
        if family.recurrence != Some(Recurrence::GatedDelta) {
            return Ok(Self { shape: None });
        }
        let small = |key| keys.required(key, keys.small(key)?);
        let unset = MatmulFormat::BF16;
        let rule = GatedDelta {
            key_heads: small("linear_num_key_heads")?,
            value_heads: small("linear_num_value_heads")?,
            key_dim: small("linear_key_head_dim")?,
            value_dim: small("linear_value_head_dim")?,
            conv_tokens: small("linear_conv_kernel_dim")?,
            state_format: state_format(keys, "mamba_ssm_dtype")?,
            input_format: unset,
            gates_format: unset,
            output_format: unset,
        };
        if !rule.value_heads.is_multiple_of(rule.key_heads) {
            let expected = format!("a multiple of linear_num_key_heads ({})", rule.key_heads);
            return Err(keys.wrong("linear_num_value_heads", &Tree::Natural(rule.value_heads.into()), &expected));
        }
        Ok(Self { shape: Some((rule, kinds(keys, layers)?)) })
    }

    /// Whether a layer has one.
    pub(super) fn has(&self, index: u32) -> bool {
        self.shape.as_ref().is_some_and(|(_, linear)| linear[index as usize])
    }

    /// A layer that has one, with its formats.
    pub(super) fn layer(&self, same: &impl Fn(&[&str]) -> Result<MatmulFormat, DeriveError>) -> Result<Attention, DeriveError> {
        let (rule, _) = self.shape.as_ref().expect("only asked where a layer has one");
        Ok(Attention::GatedDelta(GatedDelta {
            input_format: same(&["linear_attn.in_proj_qkv", "linear_attn.in_proj_z"])?,
            gates_format: same(&["linear_attn.in_proj_b", "linear_attn.in_proj_a"])?,
            output_format: same(&["linear_attn.out_proj"])?,
            ..rule.clone()
        }))
    }
}

/// Of each layer, whether it is recurrent.
fn kinds(keys: &Keys<'_>, layers: u32) -> Result<Vec<bool>, DeriveError> {
    let types = keys.texts("layer_types")?;
    if types.len() != layers as usize {
        let found = Tree::Text(format!("a list of {}", types.len()));
        return Err(keys.wrong("layer_types", &found, &format!("one entry for each of the {layers} layers")));
    }
    types
        .into_iter()
        .map(|kind| match kind {
            "linear_attention" => Ok(true),
            "full_attention" => Ok(false),
            other => Err(keys.wrong("layer_types", &Tree::Text(other.to_owned()), "linear_attention or full_attention")),
        })
        .collect()
}

/// How a checkpoint asks for its states to be kept.
pub(super) fn state_format(keys: &Keys<'_>, key: &'static str) -> Result<Option<FormatName>, DeriveError> {
    match keys.text(key)? {
        None => Ok(None),
        Some("float32") => Ok(Some(FormatName::Fp32)),
        Some("bfloat16") => Ok(Some(FormatName::Bf16)),
        Some("float16") => Ok(Some(FormatName::Fp16)),
        Some(other) => Err(keys.wrong(key, &Tree::Text(other.to_owned()), "float32, float16 or bfloat16")),
    }
}

/// The expert that every token passes.
pub(super) fn shared(
    intermediate_size: u64,
    same: &impl Fn(&[&str]) -> Result<MatmulFormat, DeriveError>,
) -> Result<DenseFeedForward, DeriveError> {
    Ok(DenseFeedForward {
        intermediate_size,
        gated: true,
        bias: false,
        up_format: same(&["mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"])?,
        down_format: same(&["mlp.shared_expert.down_proj"])?,
    })
}

#[cfg(test)]
mod tests {
    use blis_contracts::model::{FeedForward, ModelGraph};

    use super::super::{Inputs, derive};
    use super::*;
    use crate::entry::ModelEntry;

    const TEXT: &str = r#""model_type": "qwen3_5_moe_text", "dtype": "bfloat16", "attn_output_gate": true, "head_dim": 64,
        "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4, "vocab_size": 1000,
        "max_position_embeddings": 4096, "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 16, "linear_num_key_heads": 2,
        "linear_num_value_heads": 6, "mamba_ssm_dtype": "float32", "moe_intermediate_size": 64, "num_experts": 8,
        "num_experts_per_tok": 2, "shared_expert_intermediate_size": 96, "mlp_only_layers": [], "mtp_num_hidden_layers": 1,
        "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}"#;

    const VISION: &str = r#"{"depth": 2, "hidden_size": 32, "in_channels": 3, "intermediate_size": 48, "num_position_embeddings": 9,
        "out_hidden_size": 256, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2, "deepstack_visual_indexes": []}"#;

    fn derived(from: &str, to: &str, declared: Option<&str>) -> Result<ModelGraph, String> {
        let whole = format!(
            r#"{{"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "tie_word_embeddings": false,
            "image_token_id": 5, "text_config": {{{TEXT}}}, "vision_config": {VISION}}}"#
        );
        assert!(whole.contains(from), "{from}");
        let config = whole.replacen(from, to, usize::from(!from.is_empty())).into_bytes();
        let quantisation_config = declared.map(|text| text.as_bytes().to_vec());
        derive(&Inputs { entry: ModelEntry::local("small"), config, quantisation_config, headers: Vec::new() })
            .map_err(|error| error.to_string())
    }

    fn small() -> ModelGraph {
        derived("", "", None).unwrap()
    }

    #[test]
    fn listed_layers_have_a_delta_rule_and_the_others_gated_attention() {
        let graph = small();
        assert_eq!(graph.layer_names().collect::<Vec<_>>(), ["delta", "delta", "delta", "attention"]);
        let Attention::GatedDelta(rule) = &graph.blocks["delta"].attention else { panic!("{:?}", graph.blocks) };
        assert_eq!((rule.key_width(), rule.value_width(), rule.conv_width(), rule.state_elements()), (64, 96, 224, 3072));
        assert_eq!(rule.state_format, Some(FormatName::Fp32));
        let Attention::GroupedQuery(attention) = &graph.blocks["attention"].attention else { panic!("{:?}", graph.blocks) };
        assert!(attention.output_gate && attention.qk_norm);
        assert_eq!(attention.rotated(), 16);
    }

    #[test]
    fn parameters_are_those_of_the_matrices_written_out() {
        let delta = 256 * (224 + 96 + 2 * 6) + 96 * 256 + 224 * 4 + 2 * 6 + 16;
        let attention = 256 * (2 * 256 + 2 * 128) + 256 * 256 + 2 * 64;
        let network = 8 * 3 * 64 * 256 + 8 * 256 + 3 * 96 * 256 + 256;
        let (norm, tower) = (2 * 32, 3 * 2 * 16 * 32 + 32 + 9 * 32 + 2 * (33 * (3 * 32 + 32) + 33 * 48 + 49 * 32 + 4 * 32));
        let projector = norm + 129 * 128 + 129 * 256;
        let graph = small();
        let text = 2 * 1000 * 256 + 256 + 3 * delta + attention + 4 * (network + 2 * 256);
        assert_eq!(graph.encoders.iter().map(|encoder| encoder.parameters).collect::<Vec<_>>(), [tower, projector]);
        assert_eq!(graph.parameters.total, text + tower + projector);
        assert_eq!(graph.parameters.total - graph.parameters.active, 4 * 6 * 3 * 64 * 256);
    }

    #[test]
    fn a_declared_quantisation_names_modules_as_the_whole_does() {
        let declared = r#"{"quantization": {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": "FP8", "exclude_modules":
            ["lm_head", "*.mlp.shared_expert.*", "model.language_model.layers.0.linear_attn*", "model.language_model.layers.1.linear_attn*",
            "model.language_model.layers.2.linear_attn*", "model.language_model.layers.3.self_attn*", "*.mlp.gate", "mtp*"]}}"#;
        let graph = derived("", "", Some(declared)).unwrap();
        let Attention::GatedDelta(rule) = &graph.blocks["delta"].attention else { panic!("{:?}", graph.blocks) };
        let FeedForward::MixtureOfExperts(moe) = &graph.blocks["delta"].feed_forward else { panic!("{:?}", graph.blocks) };
        let stored = [rule.input_format, moe.router_format, moe.expert_format, moe.shared.as_ref().unwrap().up_format];
        assert_eq!(stored.map(MatmulFormat::label), ["bf16", "bf16", "nvfp4", "bf16"]);
        assert!(moe.shared_gate);
    }

    #[test]
    fn what_is_not_understood_is_refused_by_its_key() {
        for (from, to, expected) in [
            ("\"linear_attention\", \"full_attention\"]", "\"full_attention\"]", "layer_types: \"a list of 3\" is not one entry for each"),
            ("\"full_attention\"]", "\"sliding_attention\"]", "layer_types: \"sliding_attention\" is not linear_attention or full"),
            ("\"linear_num_value_heads\": 6", "\"linear_num_value_heads\": 5", "linear_num_value_heads: 5 is not a multiple of"),
            ("\"mamba_ssm_dtype\": \"float32\"", "\"mamba_ssm_dtype\": \"fp8\"", "mamba_ssm_dtype: \"fp8\" is not float32"),
            ("0.25", "1.25", "rope_parameters.partial_rotary_factor: 1.25 is not a share of a head"),
            ("qwen3_5_moe_text", "qwen4_text", "text_config.model_type: \"qwen4_text\" is not `qwen3_5_moe_text`"),
            ("\"deepstack_visual_indexes\": []", "\"deepstack_visual_indexes\": [1]", "deepstack_visual_indexes: [1] is not empty"),
            ("\"vocab_size\"", "\"layer_scale\": true, \"vocab_size\"", "layer_scale: unknown key"),
        ] {
            let message = derived(from, to, None).unwrap_err();
            assert!(message.contains(expected), "{message}\nwanted {expected}");
        }
    }
}
