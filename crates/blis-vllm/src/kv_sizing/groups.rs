//! Which layers share a block table.
//!
//! upstream: vllm `v1/core/kv_cache_utils.py::get_kv_cache_groups`, `_get_kv_cache_groups_uniform_page_size`, `unify_hybrid_kv_cache_specs`

use super::{KvSizingError, LayerKv};
use crate::kv::group::Attention;

/// Layers that share a block table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerGroup {
    /// Their positions among the layers given.
    pub layers: Vec<usize>,
    /// How the group's blocks are managed.
    pub attention: Attention,
    /// The window its layers compute with, which blocks may be kept beyond; absent for full attention.
    pub window: Option<u32>,
}

/// Splits the layers into groups of equal size, a kind of attention each, in order of first appearance.
pub fn group_layers(layers: &[LayerKv], disable_hybrid: bool) -> Result<Vec<LayerGroup>, KvSizingError> {
    let first = layers.first().ok_or(KvSizingError::NoLayers)?;
    if let Some(other) = layers.iter().find(|layer| layer.bytes_per_token != first.bytes_per_token) {
        return Err(KvSizingError::MixedPages {
            first: first.name.clone(),
            first_bytes: first.bytes_per_token,
            second: other.name.clone(),
            second_bytes: other.bytes_per_token,
        });
    }
    let mut buckets: Vec<(Attention, Vec<usize>)> = Vec::new();
    for (index, layer) in layers.iter().enumerate() {
        match buckets.iter_mut().find(|(attention, _)| *attention == layer.attention) {
            Some((_, members)) => members.push(index),
            None => buckets.push((layer.attention, vec![index])),
        }
    }
    if buckets.len() > 1 && disable_hybrid {
        return promote(layers.len(), &buckets);
    }
    let smallest = buckets.iter().map(|(_, members)| members.len()).min().unwrap_or(0);
    let largest = buckets.iter().map(|(_, members)| members.len()).max().unwrap_or(0);
    // A little padding is better than halving the groups: "a little" is less than half as many layers again.
    let size = if 2 * largest < 3 * smallest { largest } else { smallest };
    let mut groups = Vec::new();
    for (attention, members) in buckets {
        let count = members.len().div_ceil(size);
        for offset in 0..count {
            let layers = members.iter().copied().skip(offset).step_by(count).collect();
            groups.push(LayerGroup { layers, attention, window: window(attention) });
        }
    }
    Ok(groups)
}

/// One group with blocks for every token, where the layers differ only in one window.
fn promote(layers: usize, buckets: &[(Attention, Vec<usize>)]) -> Result<Vec<LayerGroup>, KvSizingError> {
    let mut windows = buckets.iter().filter_map(|(attention, _)| window(*attention));
    let has_full = buckets.iter().any(|(attention, _)| *attention == Attention::Full);
    match (has_full, windows.next(), windows.next()) {
        (true, window, None) => Ok(vec![LayerGroup { layers: (0..layers).collect(), attention: Attention::Full, window }]),
        (true, _, Some(_)) => Err(KvSizingError::MixedWindows),
        (false, ..) => Err(KvSizingError::CannotPromote),
    }
}

fn window(attention: Attention) -> Option<u32> {
    match attention {
        Attention::Full => None,
        Attention::SlidingWindow { window } => Some(window),
    }
}
