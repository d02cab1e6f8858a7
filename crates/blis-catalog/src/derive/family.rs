//! What the code of an architecture fixes and a `config.json` does not say, and how it names tensors.
//!
//! Left out: the architectures themselves, which [`super::families`] lists, and everything a checkpoint states itself.

use super::recurrent::Recurrence;

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

/// What most architectures share; the others differ from it.
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
