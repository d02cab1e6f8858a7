//! Gemma 4: layers that see a window beside layers that see everything, with heads of another number and width; a network in every
//! layer, and in some models experts beside it.
//!
//! Layers that see everything may project values by the keys' matrix. Queries and keys are normed by weights, values without; every part
//! has a norm before and one behind it, and beside experts the network and they have one more each. The tokens of an image see each other,
//! and logits are capped, in every model of the family that is understood. Left out: the one value that scales what a layer writes.
//! Embeddings for each layer, caches that layers share and sounds are refused.

use blis_contracts::format::FormatName;
use blis_contracts::format::MatmulFormat;
use blis_contracts::model::{
    Attention, DenseFeedForward, Encoder, EncoderPart, FeedForward, GroupedQueryAttention, LayerBlock, MixtureOfExperts,
};

use super::DeriveError;
use super::family::{AttentionBias, DENSE, EncoderKind, Family, InnerName, Nested};
use super::keys::Keys;
use super::quantisation::Quantisation;
use crate::patterns::CONFIG;
use crate::tree::Tree;

pub(super) const GEMMA4: Family = Family {
    architecture: "Gemma4ForConditionalGeneration",
    model_type: "gemma4",
    other_model_types: &["gemma4_text"],
    attention_bias: AttentionBias::Stated,
    tied_by_default: true,
    two_heads: true,
    nested: Some(Nested {
        name: InnerName::ModelType("gemma4_text"),
        modules: "model.language_model.",
        encoder: EncoderKind::Gemma4,
        without_effect: &[
            "audio_token_id",
            "boa_token_id",
            "boi_token_id",
            "eoa_token_id",
            "eoa_token_index",
            "eoi_token_id",
            "image_token_id",
            "video_token_id",
            "vision_soft_tokens_per_image",
        ],
    }),
    without_effect: &["hidden_activation", "model_type", "use_double_wide_mlp", "vocab_size_per_layer_input"],
    ..DENSE
};

/// Widths of the layers with a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windowed {
    pub(super) layers: u32,
    pub(super) query_heads: u32,
    pub(super) kv_heads: u32,
    pub(super) head_dim: u32,
}

/// The kinds of layers, in the words of `layer_types`.
const KINDS: [&str; 2] = ["sliding_attention", "full_attention"];

/// Builds every layer, bottom to top.
pub(super) fn build(keys: &Keys<'_>, heads: Windowed, quantisation: &Quantisation) -> Result<Vec<LayerBlock>, DeriveError> {
    refuse_other_parts(keys)?;
    let kinds = keys.texts("layer_types")?;
    let known = |kind: &&str| KINDS.contains(kind);
    if kinds.len() != heads.layers as usize || !kinds.iter().all(known) {
        let found = keys.any("layer_types").unwrap_or(&Tree::Null);
        let expected = format!("sliding_attention or full_attention for each of the {} layers", heads.layers);
        return Err(keys.wrong("layer_types", found, &expected));
    }
    let attending = Attending::read(keys, heads)?;
    let networks = Networks::read(keys)?;
    let layer = |(index, kind): (u32, &str)| {
        let same = |modules: &[&str]| super::layers::same_format(quantisation, index, &format!("model.layers.{index}"), modules);
        let attention = Attention::GroupedQuery(attending.layer(kind == KINDS[0], &same)?);
        let feed_forward = networks.layer(&same)?;
        let norms = if networks.experts.is_some() { 7 } else { 4 };
        Ok(LayerBlock { attention, feed_forward, norms })
    };
    (0..).zip(kinds).map(layer).collect()
}

/// The longest context; positions are turned by a rule for each kind of layers, none of which extends it.
pub(super) fn max_positions(keys: &Keys<'_>) -> Result<u64, DeriveError> {
    for kind in KINDS {
        let (file, tree) = rope(keys, kind)?;
        let inner = Keys::of(CONFIG, &file, tree)?;
        match inner.text("rope_type")? {
            Some("default" | "proportional") => {}
            other => {
                return Err(inner.wrong("rope_type", &Tree::Text(other.unwrap_or("none").to_owned()), "default or proportional"));
            }
        }
    }
    keys.required("max_position_embeddings", keys.natural("max_position_embeddings")?)
}

/// How layers of a kind turn positions, and its path.
fn rope<'a>(keys: &Keys<'a>, kind: &str) -> Result<(String, &'a Tree), DeriveError> {
    let all = keys.required("rope_parameters", keys.any("rope_parameters"))?;
    let one = all.get(kind).ok_or_else(|| keys.wrong("rope_parameters", all, "an object with sliding_attention and full_attention"))?;
    Ok((format!("rope_parameters.{kind}"), one))
}

/// Refuses what some models of the family have and no graph states, and what others lack that every graph of the family implies.
fn refuse_other_parts(keys: &Keys<'_>) -> Result<(), DeriveError> {
    let (sight, cap) = (keys.any("use_bidirectional_attention"), keys.any("final_logit_softcapping"));
    if sight != Some(&Tree::Text("vision".to_owned())) {
        let expected = "\"vision\", as images whose tokens do not see each other are not understood";
        return Err(keys.wrong("use_bidirectional_attention", sight.unwrap_or(&Tree::Null), expected));
    }
    if !cap.and_then(Tree::as_number).is_some_and(|cap| cap > 0.0) {
        let expected = "a positive number, as logits without a cap are not understood";
        return Err(keys.wrong("final_logit_softcapping", cap.unwrap_or(&Tree::Null), expected));
    }
    let refused = [
        ("hidden_size_per_layer_input", "0, as embeddings for each layer (embed_tokens_per_layer) are not understood"),
        ("num_kv_shared_layers", "0, as layers that read the cache of another (kv_sharing_target_layer_name) are not understood"),
    ];
    for (key, expected) in refused {
        match keys.any(key) {
            None | Some(Tree::Natural(0)) => {}
            Some(found) => return Err(keys.wrong(key, found, expected)),
        }
    }
    Ok(())
}

/// The two kinds of attention.
struct Attending {
    windowed: Windowed,
    window: u32,
    /// Key heads and head width of layers that see everything, and the part of a head that positions turn.
    full: (u32, u32, u32),
    values_are_keys: bool,
    bias: bool,
}

impl Attending {
    fn read(keys: &Keys<'_>, windowed: Windowed) -> Result<Self, DeriveError> {
        let small = |key| keys.required(key, keys.small(key)?);
        let (path, tree) = rope(keys, KINDS[1])?;
        let inner = Keys::of(CONFIG, &path, tree)?;
        let head_dim = small("global_head_dim")?;
        let share = match inner.any("partial_rotary_factor") {
            None => 1.0,
            Some(found) => found
                .as_number()
                .filter(|share| (0.0..=1.0).contains(share))
                .ok_or_else(|| inner.wrong("partial_rotary_factor", found, "a number from 0 to 1"))?,
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a width is no longer than it")]
        let rotated = libm::floor(share * f64::from(head_dim)) as u32;
        let kv_heads = keys.small("num_global_key_value_heads")?.unwrap_or(windowed.kv_heads);
        Ok(Self {
            windowed,
            window: small("sliding_window")?,
            full: (kv_heads, head_dim, rotated),
            values_are_keys: keys.flag("attention_k_eq_v")?.unwrap_or(false),
            bias: keys.flag("attention_bias")?.unwrap_or(false),
        })
    }

    fn layer(
        &self,
        windowed: bool,
        same: &impl Fn(&[&str]) -> Result<MatmulFormat, DeriveError>,
    ) -> Result<GroupedQueryAttention, DeriveError> {
        let Windowed { query_heads, kv_heads, head_dim, .. } = self.windowed;
        let (kv_heads, head_dim, rotated) = if windowed { (kv_heads, head_dim, head_dim) } else { self.full };
        Ok(GroupedQueryAttention {
            query_heads,
            kv_heads,
            head_dim,
            window: windowed.then_some(self.window),
            chunk: None,
            sinks: false,
            qk_norm: true,
            qk_norm_spans_heads: false,
            qk_norm_unweighted: false,
            rotary_dim: (rotated < head_dim).then_some(rotated),
            qkv_bias: self.bias,
            output_bias: self.bias,
            output_gate: false,
            values_are_keys: self.values_are_keys && !windowed,
            indexer: None,
            qkv_format: same(&["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"])?,
            output_format: same(&["self_attn.o_proj"])?,
        })
    }
}

/// The network of every layer, and the experts beside it.
struct Networks {
    width: u64,
    /// How many there are, how many a token passes, and how wide each is.
    experts: Option<(u32, u32, u64)>,
}

impl Networks {
    fn read(keys: &Keys<'_>) -> Result<Self, DeriveError> {
        let width = keys.required("intermediate_size", keys.natural("intermediate_size")?)?;
        let (count, top_k) = (keys.small("num_experts")?, keys.small("top_k_experts")?);
        let expert = keys.natural("moe_intermediate_size")?.or(keys.natural("expert_intermediate_size")?);
        let experts = match count {
            None => None,
            Some(count) => Some((count, keys.required("top_k_experts", top_k)?, keys.required("moe_intermediate_size", expert)?)),
        };
        match keys.flag("enable_moe_block")? {
            Some(stated) if stated != experts.is_some() => {
                let expected = format!("{}, as num_experts says", experts.is_some());
                Err(keys.wrong("enable_moe_block", &Tree::Flag(stated), &expected))
            }
            Some(_) | None => Ok(Self { width, experts }),
        }
    }

    fn layer(&self, same: &impl Fn(&[&str]) -> Result<MatmulFormat, DeriveError>) -> Result<FeedForward, DeriveError> {
        let network = DenseFeedForward {
            intermediate_size: self.width,
            gated: true,
            bias: false,
            up_format: same(&["mlp.gate_proj", "mlp.up_proj"])?,
            down_format: same(&["mlp.down_proj"])?,
        };
        let Some((experts, top_k, intermediate_size)) = self.experts else { return Ok(FeedForward::Dense(network)) };
        Ok(FeedForward::MixtureOfExperts(MixtureOfExperts {
            experts,
            top_k,
            intermediate_size,
            gated: true,
            bias: false,
            router_bias: false,
            router_scales: true,
            selection_bias: false,
            picks_by_token: false,
            expert_format: same(&["experts.gate_up_proj", "experts.down_proj"])?,
            router_format: same(&["router.proj"])?,
            groups: None,
            shared: Some(network),
            shared_gate: false,
            latent: None,
        }))
    }
}

/// Keys of Google's `vision_config` that leave the tensors' shapes alone.
const TOWER_WITHOUT_EFFECT: &[&str] = &[
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "chunk_size_feed_forward",
    "default_output_length",
    "dtype",
    "global_head_dim",
    "hidden_activation",
    "id2label",
    "image_seq_length",
    "initializer_range",
    "is_encoder_decoder",
    "label2id",
    "max_position_embeddings",
    "model_type",
    "output_attentions",
    "output_hidden_states",
    "pooling_kernel_size",
    "problem_type",
    "return_dict",
    "rms_norm_eps",
    "rope_parameters",
    "standardize",
    "video_seq_length",
];

/// The tower and the projector: patches without bias, learned positions for rows and for columns, layers of gated networks with four
/// norms, queries and keys normed; then one matrix to the text's width. Its standardisation's offsets and scales are not counted.
pub(super) fn tower(keys: &Keys<'_>, text: u64, dtype: FormatName) -> Result<Vec<Encoder>, DeriveError> {
    let number = |key| keys.required(key, keys.natural(key)?);
    let (width, inner, layers) = (number("hidden_size")?, number("intermediate_size")?, number("num_hidden_layers")?);
    let (heads, kv_heads, head_dim) = (number("num_attention_heads")?, number("num_key_value_heads")?, number("head_dim")?);
    let (patch, positions) = (number("patch_size")?, number("position_embedding_size")?);
    for key in ["attention_bias", "use_clipped_linears"] {
        if keys.flag(key)? == Some(true) {
            return Err(keys.wrong(key, &Tree::Flag(true), "false, as the tensors that go with it are not understood"));
        }
    }
    keys.refuse_others(TOWER_WITHOUT_EFFECT)?;
    let attention = width * head_dim * 2 * (heads + kv_heads) + 2 * head_dim;
    let layer = attention + 3 * width * inner + 4 * width;
    let tower = 3 * patch * patch * width + 2 * positions * width + layers * layer;
    Ok(vec![
        Encoder { part: EncoderPart::Tower, parameters: tower, format: dtype },
        Encoder { part: EncoderPart::Projector, parameters: width * text, format: dtype },
    ])
}

#[cfg(test)]
mod tests {
    use blis_contracts::model::{Attention, ModelGraph};

    use crate::derive::{DeriveError, Inputs, derive};
    use crate::entry::ModelEntry;

    const SMALL: &str = r#"{"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "audio_config": null, "text_config":
        {"model_type": "gemma4_text", "dtype": "bfloat16", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "vocab_size": 1000,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_global_key_value_heads": 1, "head_dim": 64, "global_head_dim": 128,
        "attention_k_eq_v": true, "sliding_window": 32, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {"sliding_attention": {"rope_type": "default"}, "full_attention": {"rope_type": "proportional",
        "partial_rotary_factor": 0.25}}, "max_position_embeddings": 4096, "enable_moe_block": true, "num_experts": 8, "top_k_experts": 2,
        "moe_intermediate_size": 64, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0, "final_logit_softcapping": 30.0,
        "use_bidirectional_attention": "vision"}, "vision_config": {"hidden_size": 32,
        "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8, "patch_size": 2,
        "position_embedding_size": 10}}"#;

    fn small(from: &str, to: &str) -> Result<ModelGraph, DeriveError> {
        assert!(SMALL.contains(from), "{from}");
        let config = SMALL.replacen(from, to, 1).into_bytes();
        derive(&Inputs { entry: ModelEntry::local("small"), config, quantisation_config: None, headers: Vec::new() })
    }

    #[test]
    fn layers_that_see_everything_have_heads_of_their_own_and_store_no_values_projection() {
        let graph = small("", "").unwrap();
        assert_eq!(graph.layer_names().collect::<Vec<_>>(), ["sliding", "sliding", "full"]);
        let Attention::GroupedQuery(full) = &graph.blocks["full"].attention else { panic!("all layers attend") };
        assert_eq!((full.kv_heads, full.head_dim, full.rotary_dim, full.values_are_keys), (1, 128, Some(32), true));
        let sliding = 256 * 64 * (4 + 2 * 2) + 4 * 64 * 256 + 2 * 64;
        let seeing = 256 * 128 * (4 + 1) + 4 * 128 * 256 + 2 * 128;
        let around = 7 * 256 + 3 * 256 * 512 + 8 * 3 * 256 * 64 + 8 * 256 + 256 + 8;
        let tower = 12 * 32 + 2 * 10 * 32 + 2 * (4 * 32 * 32 + 2 * 8 + 3 * 32 * 64 + 4 * 32);
        assert_eq!(graph.parameters.total, 1000 * 256 + 256 + 2 * sliding + seeing + 3 * around + tower + 32 * 256);
    }

    #[test]
    fn parts_that_no_graph_states_are_refused_by_their_key() {
        for (from, to, expected) in [
            (
                "\"num_kv_shared_layers\": 0",
                "\"num_kv_shared_layers\": 1",
                "num_kv_shared_layers: 1 is not 0, as layers that read the cache",
            ),
            ("\"hidden_size_per_layer_input\": 0", "\"hidden_size_per_layer_input\": 256", "hidden_size_per_layer_input: 256 is not 0"),
            ("\"audio_config\": null", "\"audio_config\": {}", "audio_config"),
            ("\"vision\"}", "\"all\"}", "use_bidirectional_attention: \"all\" is not \"vision\""),
            (
                "\"final_logit_softcapping\": 30.0",
                "\"final_logit_softcapping\": null",
                "final_logit_softcapping: null is not a positive number",
            ),
            ("\"sliding_attention\", \"sliding", "\"full\", \"sliding", "layer_types: [\"full\""),
            ("\"enable_moe_block\": true", "\"enable_moe_block\": false", "enable_moe_block: false is not true, as num_experts says"),
            ("\"rope_type\": \"proportional\"", "\"rope_type\": \"yarn\"", "rope_type: \"yarn\" is not default or proportional"),
        ] {
            let message = small(from, to).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}\nwanted {expected}");
        }
    }
}
