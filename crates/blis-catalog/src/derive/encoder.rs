//! Encoders of images that stand beside a text model, by their parameters. Known: Moonshot's `MoonViT` of three dimensions.

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
