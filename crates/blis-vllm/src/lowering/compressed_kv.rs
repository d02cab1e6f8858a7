//! The caches of layers that compress: the window, the compressed entries, what selects among them, and the projections that the next
//! entries still need.
//!
//! upstream: vllm `models/deepseek_v4/attention.py::DeepseekV4Attention.get_kv_cache_spec`, `DeepseekV4IndexerCache`
//! upstream: vllm `models/deepseek_v4/compressor.py::CompressorStateCache`, `v1/attention/backends/mla/sparse_swa.py::DeepseekV4SWACache`
//!
//! Every rank keeps all of them whole. Only the packed 8-bit layout is here: the configuration refuses others.

use blis_contracts::model::{CompressedAttention, Compression};

use super::compressed::{self, ENTRY_BYTES};
use super::site::Site;
use crate::kv::group::Attention;
use crate::kv_sizing::LayerKv;

/// Pages are padded to a multiple of this.
const PAGE_MULTIPLE: u64 = 576;

/// Tokens of a block of the window's cache.
const WINDOW_BLOCK: u32 = 64;

/// The caches in the order in which upstream's layers register them.
pub(super) fn layers(site: &Site<'_>) -> Vec<LayerKv> {
    let of = |(index, block)| compressed::attention_of(block).map(|attention| caches(site, index, attention));
    site.model.layers().enumerate().filter_map(of).flatten().collect()
}

fn caches(site: &Site<'_>, index: usize, attention: &CompressedAttention) -> Vec<LayerKv> {
    let block_size = site.resolved.cache.block_size;
    let cache = |suffix: &str, kind: Attention, block_size: u32, bytes: u64| LayerKv {
        name: format!("model.layers.{index}.attn{suffix}"),
        attention: kind,
        block_size,
        page_bytes: bytes.next_multiple_of(PAGE_MULTIPLE),
    };
    // Both projections of every token within reach, in 32 bits.
    let state = |suffix: &str, compression: &Compression, width: u32| {
        let block_size = if compression.overlaps { 4 } else { 8 };
        let bytes = u64::from(block_size) * 2 * compression.columns(width) * 4;
        cache(suffix, Attention::SlidingWindow { window: compression.reach() }, block_size, bytes)
    };
    let entries = |ratio: u32, bytes: u32| u64::from(block_size / ratio) * u64::from(bytes);
    let mut caches = Vec::new();
    if let Some(compression) = &attention.compression
        && let Some(selection) = &compression.selection
    {
        let bytes = entries(compression.ratio, compressed::score_bytes(site, selection.head_dim));
        caches.push(cache(".indexer.k_cache", Attention::Full, block_size, bytes));
        caches.push(state(".indexer.compressor.state_cache", compression, selection.head_dim));
    }
    let window = Attention::SlidingWindow { window: attention.window };
    caches.push(cache(".swa_cache", window, WINDOW_BLOCK, u64::from(WINDOW_BLOCK) * u64::from(ENTRY_BYTES)));
    if let Some(compression) = &attention.compression {
        caches.push(cache("", Attention::Full, block_size, entries(compression.ratio, ENTRY_BYTES)));
        caches.push(state(".compressor.state_cache", compression, attention.head_dim));
    }
    caches
}
