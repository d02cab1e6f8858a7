//! Which layers share a block table.
//!
//! upstream: vllm `v1/core/kv_cache_utils.py::get_kv_cache_groups`, `_get_kv_cache_groups_uniform_page_size`, `unify_hybrid_kv_cache_specs`

use super::{KvSizingError, LayerKv, packed, unify};
use crate::kv::group::{Attention, GroupConfig};

/// Layers that share a block table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerGroup {
    /// Their positions among the layers given.
    pub layers: Vec<usize>,
    /// How the group's blocks are managed.
    pub attention: Attention,
    /// Tokens of one block.
    pub block_size: u32,
    /// Bytes of one block on one rank, over all its layers.
    pub bytes_per_block: u64,
    /// Bytes of one block of its first layer on one rank.
    pub page_bytes: u64,
    /// The window its layers compute with, which blocks may be kept beyond; absent for full attention and for chunks.
    pub window: Option<u32>,
}

impl LayerGroup {
    /// A group of some of the layers.
    pub(super) fn new(all: &[LayerKv], members: Vec<usize>, config: GroupConfig) -> Self {
        let GroupConfig { attention, block_size } = config;
        Self {
            attention,
            block_size,
            bytes_per_block: members.iter().map(|&layer| all[layer].page_bytes).sum(),
            page_bytes: members.first().map_or(0, |&layer| all[layer].page_bytes),
            layers: members,
            window: window(attention),
        }
    }

    /// What the KV manager needs to know of it.
    pub fn config(&self) -> GroupConfig {
        self.attention.in_blocks(self.block_size)
    }
}

/// Splits the layers into groups that share block tables, in order of first appearance.
///
/// `packs` says whether the layers of a block lie side by side in memory, so that pages of different sizes can share one.
pub fn group_layers(layers: &[LayerKv], disable_hybrid: bool, packs: bool) -> Result<Vec<LayerGroup>, KvSizingError> {
    let first = layers.first().ok_or(KvSizingError::NoLayers)?;
    let alike = |layer: &LayerKv| layer.attention == first.attention && layer.block_size == first.block_size;
    if layers.iter().all(alike) {
        let config = first.attention.in_blocks(first.block_size);
        return Ok(vec![LayerGroup::new(layers, (0..layers.len()).collect(), config)]);
    }
    let differs = |layer: &&LayerKv| layer.page_bytes != first.page_bytes;
    let promotes = disable_hybrid && !packs && layers.iter().all(|layer| layer.block_size == first.block_size);
    let unified;
    let mut layers = layers;
    if let Some(other) = layers.iter().find(differs) {
        if packs && !disable_hybrid {
            return Ok(packed::groups(layers));
        }
        if disable_hybrid && !promotes {
            return Err(KvSizingError::MixedPages {
                first: first.name.clone(),
                first_bytes: first.page_bytes,
                second: other.name.clone(),
                second_bytes: other.page_bytes,
            });
        }
        if !disable_hybrid {
            unified = unify::pages(layers);
            layers = &unified;
        }
    }
    let mut buckets: Vec<(GroupConfig, Vec<usize>)> = Vec::new();
    for (index, layer) in layers.iter().enumerate() {
        let config = layer.attention.in_blocks(layer.block_size);
        match buckets.iter_mut().find(|(other, _)| *other == config) {
            Some((_, members)) => members.push(index),
            None => buckets.push((config, vec![index])),
        }
    }
    if buckets.len() > 1 && disable_hybrid {
        if buckets.iter().any(|(config, _)| matches!(config.attention, Attention::Mamba(_))) {
            return Err(KvSizingError::CannotPromote);
        }
        return promote(layers, &buckets);
    }
    let smallest = buckets.iter().map(|(_, members)| members.len()).min().unwrap_or(0);
    let largest = buckets.iter().map(|(_, members)| members.len()).max().unwrap_or(0);
    // A little padding is better than halving the groups: "a little" is less than half as many layers again.
    let size = if 2 * largest < 3 * smallest { largest } else { smallest };
    let mut groups = Vec::new();
    for (config, members) in buckets {
        let count = members.len().div_ceil(size);
        for offset in 0..count {
            let members = members.iter().copied().skip(offset).step_by(count).collect();
            groups.push(LayerGroup::new(layers, members, config));
        }
    }
    Ok(groups)
}

/// One group with blocks for every token, where the layers differ only in one window or one chunk.
fn promote(layers: &[LayerKv], buckets: &[(GroupConfig, Vec<usize>)]) -> Result<Vec<LayerGroup>, KvSizingError> {
    if !buckets.iter().any(|(config, _)| config.attention == Attention::Full) {
        return Err(KvSizingError::CannotPromote);
    }
    let mut windows = buckets.iter().filter_map(|(config, _)| window(config.attention));
    let mut chunks = buckets.iter().filter_map(|(config, _)| chunk(config.attention));
    let (window, chunk) = (windows.next(), chunks.next());
    if windows.next().is_some() || chunks.next().is_some() {
        return Err(KvSizingError::MixedWindows);
    }
    let group = LayerGroup::new(layers, (0..layers.len()).collect(), Attention::Full.in_blocks(layers[0].block_size));
    // Layers of both kinds are described by the first of them.
    let window = if chunk.is_some() { self::window(layers[0].attention) } else { window };
    Ok(vec![LayerGroup { window, ..group }])
}

fn chunk(attention: Attention) -> Option<u32> {
    match attention {
        Attention::Full | Attention::SlidingWindow { .. } | Attention::Mamba(_) => None,
        Attention::Chunked { chunk } => Some(chunk),
    }
}

fn window(attention: Attention) -> Option<u32> {
    match attention {
        Attention::Full | Attention::Chunked { .. } | Attention::Mamba(_) => None,
        Attention::SlidingWindow { window } => Some(window),
    }
}
