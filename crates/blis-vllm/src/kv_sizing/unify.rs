//! Layers whose pages differ in size, each page in memory of its own: blocks hold more tokens, or pages are padded, until all are equal.
//!
//! upstream: vllm `v1/core/kv_cache_utils.py::unify_kv_cache_spec_page_size`
//!
//! Left out: latent attention, whose pages cannot be padded; no model brings it here.

use super::LayerKv;
use crate::kv::group::Attention;

/// The layers with pages of one size: the largest.
pub(super) fn pages(layers: &[LayerKv]) -> Vec<LayerKv> {
    let largest = layers.iter().map(|layer| layer.page_bytes).max().unwrap_or(0);
    let unified = |layer: &LayerKv| {
        let holds_more = !matches!(layer.attention, Attention::Mamba(_)) && largest.is_multiple_of(layer.page_bytes);
        let times = if holds_more { u32::try_from(largest / layer.page_bytes).expect("a page is no 2^32 times another") } else { 1 };
        LayerKv { block_size: layer.block_size * times, page_bytes: largest, ..layer.clone() }
    };
    layers.iter().map(unified).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::group::MambaMode;

    #[test]
    fn smaller_pages_hold_more_tokens_or_are_padded() {
        let layer = |attention, page_bytes| LayerKv { name: String::new(), attention, block_size: 16, page_bytes };
        let window = Attention::SlidingWindow { window: 64 };
        let state = Attention::Mamba(MambaMode::None);
        let unified = pages(&[layer(window, 4096), layer(Attention::Full, 2048), layer(Attention::Full, 1500), layer(state, 1024)]);
        let found: Vec<_> = unified.iter().map(|layer| (layer.block_size, layer.page_bytes)).collect();
        assert_eq!(found, [(16, 4096), (32, 4096), (16, 4096), (16, 4096)]);
    }
}
