//! Encoders of images that stand beside a text model, by their parameters. Known: Moonshot's `MoonViT` of three dimensions, Qwen's, and
//! `MiniMax`'s tower over patches of two frames.

use blis_contracts::format::FormatName;
use blis_contracts::model::{Encoder, EncoderPart};

use super::DeriveError;
use super::keys::Keys;
use crate::tree::Tree;

/// Channels of an image.
const CHANNELS: u64 = 3;

/// Keys of `vision_config` that leave the tensors' shapes alone.
const WITHOUT_EFFECT: &[&str] = &[
    "_attn_implementation",
    "init_pos_emb_time",
    "merge_type",
    "model_type",
    "pos_emb_type",
    "projector_hidden_act",
    "projector_ln_eps",
    "video_attn_type",
    "vt_num_attention_heads",
];

/// The tower and the projector of a `MoonViT`, both in the model's own element type: patches, learned positions, layers of full
/// attention with biases throughout, a last norm; then a norm and two matrices over merged patches.
pub(super) fn moon_vit(keys: &Keys<'_>, dtype: FormatName) -> Result<Vec<Encoder>, DeriveError> {
    let number = |key| keys.required(key, keys.natural(key)?);
    let (width, inner, layers) = (number("vt_hidden_size")?, number("vt_intermediate_size")?, number("vt_num_hidden_layers")?);
    let (height, breadth, patch) = (number("init_pos_emb_height")?, number("init_pos_emb_width")?, number("patch_size")?);
    let (given, text) = (number("mm_hidden_size")?, number("text_hidden_size")?);
    match keys.text("mm_projector_type")? {
        Some("patchmerger") => {}
        other => return Err(keys.wrong("mm_projector_type", &Tree::Text(other.unwrap_or("none").to_owned()), "patchmerger")),
    }
    let merge = keys.required("merge_kernel_size", keys.any("merge_kernel_size"))?;
    let sides: Option<Vec<u64>> = merge.as_sequence().and_then(|sides| sides.iter().map(Tree::as_natural).collect());
    let merged = sides.filter(|sides| sides.len() == 2).ok_or_else(|| keys.wrong("merge_kernel_size", merge, "a height and a width"))?;
    keys.refuse_others(WITHOUT_EFFECT)?;

    let matrix = |columns: u64, rows: u64| columns * rows + rows;
    let norm = 2 * width;
    let attention = matrix(width, 3 * width) + matrix(width, width);
    let layer = attention + matrix(width, inner) + matrix(inner, width) + 2 * norm;
    let tower = matrix(CHANNELS * patch * patch, width) + height * breadth * width + layers * layer + norm;
    let merged = given * merged.iter().product::<u64>();
    let projector = 2 * given + matrix(merged, merged) + matrix(merged, text);
    Ok(vec![
        Encoder { part: EncoderPart::Tower, parameters: tower, format: dtype },
        Encoder { part: EncoderPart::Projector, parameters: projector, format: dtype },
    ])
}

/// Keys of that tower's `vision_config` that leave the tensors' shapes alone.
const MINIMAX_WITHOUT_EFFECT: &[&str] = &[
    "attention_dropout",
    "hidden_act",
    "image_size",
    "initializer_factor",
    "initializer_range",
    "layer_norm_eps",
    "model_type",
    "num_attention_heads",
    "position_embedding_type",
    "rope_mode",
    "rope_theta",
    "vision_segment_max_frames",
    "vocab_size",
];

/// The tower, the projector and the merger of patches: patches without bias, a norm, layers of full attention with biases
/// throughout; then two matrices with biases to the text's width, and two more over merged patches.
/// upstream: vllm `models/minimax_m3/common/vision_tower.py::MiniMaxVLVisionModel`
pub(super) fn minimax_vl(keys: &Keys<'_>, whole: &Keys<'_>, dtype: FormatName) -> Result<Vec<Encoder>, DeriveError> {
    let number = |key| keys.required(key, keys.natural(key)?);
    let (width, inner, layers) = (number("hidden_size")?, number("intermediate_size")?, number("num_hidden_layers")?);
    let (channels, patch, text) = (number("num_channels")?, number("patch_size")?, number("projection_dim")?);
    let compression = keys.required("img_token_compression_config", keys.any("img_token_compression_config"))?;
    let inside = |key: &str| compression.get(key).and_then(Tree::as_natural);
    let (Some(merge), Some(frames)) = (inside("spatial_merge_size"), inside("temporal_patch_size")) else {
        return Err(keys.wrong(
            "img_token_compression_config",
            compression,
            "spatial_merge_size and temporal_patch_size, positive integers",
        ));
    };
    if whole.flag("multimodal_projector_bias")? == Some(false) {
        return Err(whole.wrong("multimodal_projector_bias", &Tree::Flag(false), "true, as a projector without biases is not understood"));
    }
    let middle = whole.natural("projector_hidden_size")?.unwrap_or(text);
    keys.refuse_others(MINIMAX_WITHOUT_EFFECT)?;

    let matrix = |columns: u64, rows: u64| columns * rows + rows;
    let norm = 2 * width;
    let layer = matrix(width, 3 * width) + matrix(width, width) + matrix(width, inner) + matrix(inner, width) + 2 * norm;
    let tower = channels * frames * patch * patch * width + norm + layers * layer;
    let projector = matrix(width, middle) + matrix(middle, text);
    let merger = matrix(text * merge * merge, middle) + matrix(middle, text);
    Ok(vec![
        Encoder { part: EncoderPart::Tower, parameters: tower, format: dtype },
        Encoder { part: EncoderPart::Projector, parameters: projector + merger, format: dtype },
    ])
}

/// Keys of that tower's `vision_config` that leave the tensors' shapes alone.
const QWEN_WITHOUT_EFFECT: &[&str] = &["dtype", "hidden_act", "initializer_range", "model_type", "num_heads"];

/// The tower and the merger of patches: patches and learned positions, layers of full attention, biases throughout; then a norm and
/// two matrices over merged patches. upstream: vllm `model_executor/models/qwen3_vl.py::Qwen3_VisionTransformer`
pub(super) fn qwen_vl(keys: &Keys<'_>, dtype: FormatName) -> Result<Vec<Encoder>, DeriveError> {
    let number = |key| keys.required(key, keys.natural(key)?);
    let (width, inner, layers) = (number("hidden_size")?, number("intermediate_size")?, number("depth")?);
    let (channels, patch, frames) = (number("in_channels")?, number("patch_size")?, number("temporal_patch_size")?);
    let (positions, merge, text) = (number("num_position_embeddings")?, number("spatial_merge_size")?, number("out_hidden_size")?);
    let deep = keys.any("deepstack_visual_indexes").filter(|list| list.as_sequence().is_none_or(|list| !list.is_empty()));
    if let Some(list) = deep {
        return Err(keys.wrong("deepstack_visual_indexes", list, "empty, as mergers between layers are not understood"));
    }
    keys.refuse_others(QWEN_WITHOUT_EFFECT)?;

    let matrix = |columns: u64, rows: u64| columns * rows + rows;
    let norm = 2 * width;
    let layer = matrix(width, 3 * width) + matrix(width, width) + matrix(width, inner) + matrix(inner, width) + 2 * norm;
    let tower = matrix(channels * frames * patch * patch, width) + positions * width + layers * layer;
    let merged = width * merge * merge;
    let projector = norm + matrix(merged, merged) + matrix(merged, text);
    Ok(vec![
        Encoder { part: EncoderPart::Tower, parameters: tower, format: dtype },
        Encoder { part: EncoderPart::Projector, parameters: projector, format: dtype },
    ])
}

/// Keys of Meta's `vision_config` that leave the tensors' shapes alone.
const LLAMA4_WITHOUT_EFFECT: &[&str] = &[
    "attention_dropout",
    "hidden_act",
    "initializer_range",
    "model_type",
    "multi_modal_projector_bias",
    "norm_eps",
    "num_attention_heads",
    "num_channels",
    "projector_dropout",
    "rope_parameters",
    "rope_theta",
    "vision_feature_layer",
    "vision_feature_select_strategy",
    "vision_output_dim",
];

/// The tower and the projectors of Llama 4: patches without bias, a class and learned positions, a norm at either end, layers of full
/// attention with biases throughout; then two matrices over shuffled patches, and one to the width of the text.
pub(super) fn llama4(keys: &Keys<'_>, text: u64, dtype: FormatName) -> Result<Vec<Encoder>, DeriveError> {
    let number = |key| keys.required(key, keys.natural(key)?);
    let (width, inner, layers) = (number("hidden_size")?, number("intermediate_size")?, number("num_hidden_layers")?);
    let (image, patch) = (number("image_size")?, number("patch_size")?);
    let (given, written) = (number("projector_input_dim")?, number("projector_output_dim")?);
    match keys.any("pixel_shuffle_ratio") {
        Some(Tree::Real(ratio)) if (*ratio - 0.5).abs() < f64::EPSILON => {}
        found => return Err(keys.wrong("pixel_shuffle_ratio", found.unwrap_or(&Tree::Null), "0.5")),
    }
    keys.refuse_others(LLAMA4_WITHOUT_EFFECT)?;
    let matrix = |columns: u64, rows: u64| columns * rows + rows;
    let norm = 2 * width;
    let layer = 4 * matrix(width, width) + matrix(width, inner) + matrix(inner, width) + 2 * norm;
    let positions = (image / patch) * (image / patch) + 1;
    let tower = CHANNELS * patch * patch * width + width + positions * width + 2 * norm + layers * layer;
    let projector = 4 * width * given + given * written + written * text;
    Ok(vec![
        Encoder { part: EncoderPart::Tower, parameters: tower, format: dtype },
        Encoder { part: EncoderPart::Projector, parameters: projector, format: dtype },
    ])
}
