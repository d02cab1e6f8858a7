//! The model architectures the deriver knows: what their code fixes and their `config.json` does not say, and how they name tensors.
//!
//! Each row states facts of the architecture's definition in the `transformers` library (module names, which projections carry a
//! bias, whether query and key heads are normed). Left out: everything a checkpoint states itself.

use super::chunked::LLAMA4;
use super::gemma4::GEMMA4;
use super::recurrent::{NEMOTRON_H, QWEN3_5, QWEN3_5_MOE, Recurrence};

/// How an architecture decides on the biases of its attention projections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttentionBias {
    /// None.
    Never,
    /// On query, key and value, never on the output.
    QueryKeyValue,
    /// On all four where `attention_bias` says so.
    Stated,
}

/// Whether queries and keys are normed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QkNorm {
    /// They are not.
    None,
    /// Each head by itself.
    PerHead,
    /// All query heads together and all key heads together, where `use_qk_norm` is set.
    PerLayer,
}

/// Which layers see a window of the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowRule {
    /// None; a window key is unknown to the architecture.
    Full,
    /// All of them where `sliding_window` is set.
    Every,
    /// Those `layer_types` names, else those from `max_window_layers` upwards, both only where `use_sliding_window` is set.
    UpperLayers,
    /// Those `layer_types` names; without it every second layer, the first one included.
    Alternating,
    /// Those `layer_types` names, else all but every n-th, n being `sliding_window_pattern`.
    Pattern,
}

/// How the feed-forward parts are built and named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeedForwardKind {
    /// Gate, up and down projections.
    Dense,
    /// One tensor per expert and projection.
    Experts {
        /// Key that counts the experts.
        count: &'static str,
        /// Key of an expert's width.
        width: &'static str,
        /// Module that holds router and experts.
        module: &'static str,
        /// Names of an expert's gate, up and down projections.
        projections: [&'static str; 3],
        /// Whether `mlp_only_layers` and `decoder_sparse_step` may make some layers dense.
        mixed: bool,
    },
    /// One tensor per projection, experts stacked, all with biases (gpt-oss).
    StackedExperts,
}

/// The encoders that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EncoderKind {
    /// Moonshot's, of three dimensions.
    MoonVit,
    /// `MiniMax`'s, whose patches span two frames.
    MiniMaxVl,
    /// Qwen's, whose merged patches a projector brings to the text's width.
    QwenVl,
    /// Meta's, whose patches are shuffled before they are projected.
    Llama4,
    /// Google's, whose positions have rows and columns.
    Gemma4,
}

/// How a text model inside another says what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InnerName {
    /// By the class it names itself.
    Class(&'static str),
    /// By its `model_type` alone.
    ModelType(&'static str),
}

/// A text model inside a model of several inputs: its configuration is the object `text_config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nested {
    /// What it calls itself.
    pub(crate) name: InnerName,
    /// What the names of its modules start with; where that is itself inside `model.`, it stands for their own `model.`.
    pub(crate) modules: &'static str,
    /// The encoder beside it.
    pub(crate) encoder: EncoderKind,
    /// Keys of the whole that leave the shape alone.
    pub(crate) without_effect: &'static [&'static str],
}

/// One architecture.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each states an independent fact of the architecture")]
pub(crate) struct Family {
    /// The class a checkpoint names.
    pub(crate) architecture: &'static str,
    /// The `model_type` that goes with it.
    pub(crate) model_type: &'static str,
    /// Other names of it.
    pub(crate) other_model_types: &'static [&'static str],
    pub(crate) attention_bias: AttentionBias,
    pub(crate) window: WindowRule,
    /// A norm over queries and keys.
    pub(crate) qk_norm: QkNorm,
    /// A learned sink logit per query head.
    pub(crate) sinks: bool,
    /// Norms over the residual stream in one layer.
    pub(crate) norms: u32,
    /// What `tie_word_embeddings` means where it is absent.
    pub(crate) tied_by_default: bool,
    pub(crate) feed_forward: FeedForwardKind,
    /// Whether the configuration states how scores become a choice of experts and which part of a head positions rotate
    /// (`scoring_func`, `use_routing_bias`, `shared_intermediate_size`, `rotary_dim`).
    pub(crate) states_routing: bool,
    /// Whether attention is multi-head latent attention; experts are then routed and stacked as [`super::latent`] reads it.
    pub(crate) latent: bool,
    /// Whether its queries see the tokens an indexer picks, as [`super::selected`] reads it.
    pub(crate) selects_tokens: bool,
    /// Whether attention is to a window and to compressed earlier tokens; everything but the common widths is then read by
    /// [`super::compressed`].
    pub(crate) compressed: bool,
    /// Whether the configuration states of each layer whether an indexer picks what its queries see and whether its network is a
    /// mixture, which then has shared experts (`sparse_attention_config`, `moe_layer_freq`, `n_shared_experts`).
    pub(crate) states_layers: bool,
    /// Whether layers attend within chunks of the context, as [`super::chunked`] reads it with everything but the common widths.
    pub(crate) chunked: bool,
    /// Whether layers of two kinds differ in their heads, as [`super::gemma4`] reads it with everything but the common widths.
    pub(crate) two_heads: bool,
    /// What some layers have instead of attention, as [`super::recurrent`] reads it; absent where all attend.
    pub(crate) recurrence: Option<Recurrence>,
    /// Where the text model stands inside a model of several inputs; absent where it is the whole.
    pub(crate) nested: Option<Nested>,
    /// Keys that only this architecture has and that leave its shape alone.
    pub(crate) without_effect: &'static [&'static str],
}

pub(super) const DENSE: Family = Family {
    architecture: "LlamaForCausalLM",
    model_type: "llama",
    attention_bias: AttentionBias::Stated,
    window: WindowRule::Full,
    qk_norm: QkNorm::None,
    sinks: false,
    norms: 2,
    tied_by_default: false,
    feed_forward: FeedForwardKind::Dense,
    states_routing: false,
    latent: false,
    selects_tokens: false,
    compressed: false,
    states_layers: false,
    chunked: false,
    two_heads: false,
    recurrence: None,
    nested: None,
    other_model_types: &[],
    without_effect: &[],
};

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

/// Its router is multiplied in 32 bits whatever `moe_router_dtype` says, and a part of every head is turned in pairs.
const GLM_DSA: Family = Family {
    architecture: "GlmMoeDsaForCausalLM",
    model_type: "glm_moe_dsa",
    without_effect: &[
        "ep_size",
        "index_share_for_mtp_iteration",
        "indexer_rope_interleave",
        "moe_router_dtype",
        "norm_topk_prob",
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
        without_effect: &["norm_topk_prob"],
        ..DENSE
    },
    QWEN3_5,
    QWEN3_5_MOE,
];

/// Keys that leave the shape of every known architecture alone.
pub(crate) const WITHOUT_EFFECT: &[&str] = &[
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
    "transformers_version",
    "use_cache",
];

impl Nested {
    /// The whole's name of a module.
    pub(crate) fn module(&self, name: &str) -> String {
        const TEXT: &str = "model.";
        match name.strip_prefix(TEXT) {
            _ if !self.modules.starts_with(TEXT) => format!("{}{name}", self.modules),
            Some(rest) => format!("{}{rest}", self.modules),
            None => name.to_owned(),
        }
    }
}

impl Family {
    /// The family of an architecture class.
    pub(crate) fn of(architecture: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.architecture == architecture)
    }

    /// The module that holds router and experts, or the dense network.
    pub(crate) fn feed_forward_module(&self) -> &'static str {
        match self.feed_forward {
            FeedForwardKind::Experts { module, .. } => module,
            FeedForwardKind::Dense | FeedForwardKind::StackedExperts => "mlp",
        }
    }

    /// The router's name within that module.
    pub(crate) fn router_module(&self) -> &'static str {
        match self.feed_forward {
            FeedForwardKind::StackedExperts => "router",
            FeedForwardKind::Dense | FeedForwardKind::Experts { .. } => "gate",
        }
    }
}
