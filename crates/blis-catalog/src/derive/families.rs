//! The model architectures the deriver knows, each a row of what [`family`](mod@super::family) asks.
//!
//! Each row states facts of the architecture's definition in the `transformers` library (module names, which projections carry a
//! bias, whether query and key heads are normed). Rows of families with a file of their own stand there.

use super::chunked::LLAMA4;
use super::family::{AttentionBias, DENSE, EncoderKind, Family, FeedForwardKind, InnerName, Nested, QkNorm, WindowRule};
use super::gemma4::GEMMA4;
use super::recurrent::{NEMOTRON_H, QWEN3_5, QWEN3_5_MOE};

const DEEPSEEK_V3: Family = Family {
    architecture: "DeepseekV3ForCausalLM",
    model_type: "deepseek_v3",
    other_model_types: &["kimi_k2"],
    attention_bias: AttentionBias::Never,
    feed_forward: FeedForwardKind::Experts {
        count: "n_routed_experts",
        width: "moe_intermediate_size",
        module: "mlp",
        projections: ["gate_proj", "up_proj", "down_proj"],
        mixed: false,
    },
    latent: true,
    without_effect: &[
        "auto_map",
        "aux_loss_alpha",
        "ep_size",
        "norm_topk_prob",
        "num_nextn_predict_layers",
        "routed_scaling_factor",
        "seq_aux",
    ],
    ..DENSE
};

const DEEPSEEK_V32: Family = Family {
    architecture: "DeepseekV32ForCausalLM",
    model_type: "deepseek_v32",
    other_model_types: &[],
    selects_tokens: true,
    ..DEEPSEEK_V3
};

/// Its router is multiplied in 32 bits whatever `moe_router_dtype` says, and a part of every head is turned in pairs. What it attends to
/// follows from its indexers, its projections have no bias, and `n_routed_experts` counts its experts, whatever the keys say that repeat it.
const GLM_DSA: Family = Family {
    architecture: "GlmMoeDsaForCausalLM",
    model_type: "glm_moe_dsa",
    without_effect: &[
        "ep_size",
        "index_share_for_mtp_iteration",
        "indexer_rope_interleave",
        "layer_types",
        "mlp_bias",
        "moe_router_dtype",
        "norm_topk_prob",
        "num_experts",
        "num_nextn_predict_layers",
        "rope_interleave",
        "routed_scaling_factor",
    ],
    ..DEEPSEEK_V32
};

const DEEPSEEK_V4: Family = Family {
    architecture: "DeepseekV4ForCausalLM",
    model_type: "deepseek_v4",
    attention_bias: AttentionBias::Never,
    sinks: true,
    feed_forward: FeedForwardKind::Experts {
        count: "n_routed_experts",
        width: "moe_intermediate_size",
        module: "ffn",
        projections: ["w1", "w3", "w2"],
        mixed: false,
    },
    compressed: true,
    without_effect: &["compress_rope_theta", "hc_eps", "norm_topk_prob", "routed_scaling_factor", "swiglu_limit"],
    ..DENSE
};

pub(super) const QWEN3_EXPERTS: FeedForwardKind = FeedForwardKind::Experts {
    count: "num_experts",
    width: "moe_intermediate_size",
    module: "mlp",
    projections: ["gate_proj", "up_proj", "down_proj"],
    mixed: true,
};

const MIXTRAL_EXPERTS: FeedForwardKind = FeedForwardKind::Experts {
    count: "num_local_experts",
    width: "intermediate_size",
    module: "block_sparse_moe",
    projections: ["w1", "w3", "w2"],
    mixed: false,
};

const MINIMAX_M3: Family = Family {
    architecture: "MiniMaxM3ForCausalLM",
    model_type: "minimax_m3",
    qk_norm: QkNorm::PerHead,
    feed_forward: MIXTRAL_EXPERTS,
    states_routing: true,
    states_layers: true,
    // The modules for multi-token prediction are no part of the published checkpoints.
    without_effect: &[
        "num_mtp_modules",
        "num_nextn_predict_layers",
        "partial_rotary_factor",
        "routed_scaling_factor",
        "swiglu_alpha",
        "swiglu_limit",
        "use_gemma_norm",
    ],
    ..DENSE
};

/// A text model of `DeepSeek` V3's architecture with an encoder of images; its inner configuration is written out with every default.
const KIMI_K25: Family = Family {
    architecture: "KimiK25ForConditionalGeneration",
    model_type: "kimi_k25",
    nested: Some(Nested {
        name: InnerName::Class(DEEPSEEK_V3.architecture),
        modules: "language_model.",
        encoder: EncoderKind::MoonVit,
        without_effect: &[
            "auto_map",
            "ignore_index",
            "media_placeholder_token_id",
            "tie_word_embeddings",
            "use_unified_vision_chunk",
            "video_placeholder",
        ],
    }),
    without_effect: &[
        "add_cross_attention",
        "auto_map",
        "aux_loss_alpha",
        "bad_words_ids",
        "begin_suppress_tokens",
        "chunk_size_feed_forward",
        "cross_attention_hidden_size",
        "decoder_start_token_id",
        "diversity_penalty",
        "do_sample",
        "early_stopping",
        "encoder_no_repeat_ngram_size",
        "ep_size",
        "exponential_decay_length_penalty",
        "finetuning_task",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "id2label",
        "is_decoder",
        "is_encoder_decoder",
        "label2id",
        "length_penalty",
        "max_length",
        "min_length",
        "model_type",
        "no_repeat_ngram_size",
        "norm_topk_prob",
        "num_beam_groups",
        "num_beams",
        "num_nextn_predict_layers",
        "num_return_sequences",
        "output_attentions",
        "output_hidden_states",
        "output_scores",
        "prefix",
        "problem_type",
        "pruned_heads",
        "remove_invalid_values",
        "repetition_penalty",
        "return_dict",
        "return_dict_in_generate",
        "routed_scaling_factor",
        "sep_token_id",
        "seq_aux",
        "suppress_tokens",
        "task_specific_params",
        "temperature",
        "tf_legacy_loss",
        "tie_encoder_decoder",
        "tokenizer_class",
        "top_k",
        "top_p",
        "torchscript",
        "typical_p",
        "use_bfloat16",
    ],
    ..DEEPSEEK_V3
};

/// Every architecture, in the order of their names.
pub(crate) const FAMILIES: &[Family] = &[
    DEEPSEEK_V32,
    DEEPSEEK_V3,
    DEEPSEEK_V4,
    Family {
        architecture: "Gemma3ForCausalLM",
        model_type: "gemma3_text",
        window: WindowRule::Pattern,
        qk_norm: QkNorm::PerHead,
        norms: 4,
        tied_by_default: true,
        without_effect: &[
            "attn_logit_softcapping",
            "cache_implementation",
            "final_logit_softcapping",
            "hidden_activation",
            "query_pre_attn_scalar",
            "rope_local_base_freq",
        ],
        ..DENSE
    },
    GLM_DSA,
    Family {
        architecture: "GptOssForCausalLM",
        model_type: "gpt_oss",
        window: WindowRule::Alternating,
        sinks: true,
        feed_forward: FeedForwardKind::StackedExperts,
        without_effect: &["initial_context_length", "swiglu_limit"],
        ..DENSE
    },
    KIMI_K25,
    GEMMA4,
    LLAMA4,
    DENSE,
    Family {
        architecture: "MiniMaxM2ForCausalLM",
        model_type: "minimax_m2",
        window: WindowRule::Every,
        qk_norm: QkNorm::PerLayer,
        feed_forward: MIXTRAL_EXPERTS,
        states_routing: true,
        // The modules for multi-token prediction are no part of the published checkpoints.
        without_effect: &[
            "auto_map",
            "mtp_transformer_layers",
            "num_mtp_modules",
            "partial_rotary_factor",
            "router_jitter_noise",
            "use_mtp",
        ],
        ..DENSE
    },
    MINIMAX_M3,
    Family {
        architecture: "MiniMaxM3SparseForConditionalGeneration",
        model_type: "minimax_m3_vl",
        nested: Some(Nested {
            name: InnerName::Class("MiniMaxM3SparseForCausalLM"),
            modules: "language_model.",
            encoder: EncoderKind::MiniMaxVl,
            without_effect: &[
                "auto_map",
                "image_grid_pinpoints",
                "image_seq_length",
                "image_token_index",
                "img_token_compression_config",
                "num_reward_heads",
                "process_image_mode",
                "projector_hidden_act",
                "torch_dtype",
                "video_token_index",
                "vision_feature_layer",
                "vision_feature_select_strategy",
            ],
        }),
        ..MINIMAX_M3
    },
    Family {
        architecture: "MistralForCausalLM",
        model_type: "mistral",
        attention_bias: AttentionBias::Never,
        window: WindowRule::Every,
        ..DENSE
    },
    Family {
        architecture: "MixtralForCausalLM",
        model_type: "mixtral",
        attention_bias: AttentionBias::Never,
        window: WindowRule::Every,
        feed_forward: MIXTRAL_EXPERTS,
        without_effect: &["router_jitter_noise"],
        ..DENSE
    },
    NEMOTRON_H,
    Family {
        architecture: "Qwen2ForCausalLM",
        model_type: "qwen2",
        attention_bias: AttentionBias::QueryKeyValue,
        window: WindowRule::UpperLayers,
        ..DENSE
    },
    Family { architecture: "Qwen3ForCausalLM", model_type: "qwen3", window: WindowRule::UpperLayers, qk_norm: QkNorm::PerHead, ..DENSE },
    Family {
        architecture: "Qwen3MoeForCausalLM",
        model_type: "qwen3_moe",
        window: WindowRule::UpperLayers,
        qk_norm: QkNorm::PerHead,
        feed_forward: QWEN3_EXPERTS,
        // `attention_bias` states biases, heads are always normed, and there is no shared expert.
        without_effect: &["norm_topk_prob", "qkv_bias", "shared_expert_intermediate_size", "use_qk_norm"],
        ..DENSE
    },
    QWEN3_5,
    QWEN3_5_MOE,
];

/// Keys that leave the shape of every known architecture alone.
pub(crate) const WITHOUT_EFFECT: &[&str] = &[
    "_attn_implementation_autoset",
    "_name_or_path",
    "attention_dropout",
    "bos_token_id",
    "eos_token_id",
    "hidden_act",
    "initializer_range",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "rms_norm_eps",
    "rope_theta",
    "router_aux_loss_coef",
    "transformers.js_config",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
];

impl Family {
    /// The family of an architecture class.
    pub(crate) fn of(architecture: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.architecture == architecture)
    }
}
