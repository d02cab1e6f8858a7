//! The KV caches of the layers, as sizing and the plan see them.
//!
//! upstream: vllm `v1/kv_cache_interface.py::FullAttentionSpec`, `SlidingWindowSpec`, `ChunkedLocalAttentionSpec`, `MLAAttentionSpec`
//!
//! Latent attention has one key head, whole on every rank: more ranks do not make its cache smaller.

use blis_contracts::model::{Attention as Kind, LayerBlock, ModelGraph};
use blis_contracts::plan::{KvGroup, KvSpan};
use blis_contracts::units::{BytesPerRank, Tokens};

use super::site::Site;
use super::{LoweringError, block_sparse, compressed, compressed_kv, recurrent, selected};
use crate::config::Resolved;
use crate::kv::group::Attention;
use crate::kv_sizing::LayerKv;
use crate::kv_sizing::groups::{LayerGroup, group_layers};

/// How names of indexers' own caches end.
const INDEXERS: [&str; 2] = [".index_cache", ".indexer.k_cache"];

/// The KV cache of every layer, for start-up sizing.
pub fn layers(model: &ModelGraph, resolved: &Resolved, chip: &blis_contracts::chip::Chip) -> Result<Vec<LayerKv>, LoweringError> {
    Ok(of_site(&Site::new(model, resolved, chip)?))
}

fn of_site(site: &Site<'_>) -> Vec<LayerKv> {
    if compressed::applies(site) {
        return compressed_kv::layers(site);
    }
    let block_size = site.resolved.cache.block_size;
    let layer = |(index, block): (usize, &LayerBlock)| {
        if let Some(state) = recurrent::state(site, index, &block.attention) {
            return vec![state];
        }
        let (elements, window, chunk) = match &block.attention {
            // Keys and values.
            Kind::GroupedQuery(attention) => {
                (2 * u64::from(site.kv_heads(attention)) * u64::from(attention.head_dim), attention.window, attention.chunk)
            }
            Kind::Latent(attention) => (u64::from(attention.cached()), None, None),
            Kind::Compressed(_) | Kind::GatedDelta(_) | Kind::Mamba2(_) => unreachable!("handled by other files"),
        };
        let kind = match (window, chunk) {
            (Some(window), _) => Attention::SlidingWindow { window },
            (None, Some(chunk)) => Attention::Chunked { chunk },
            (None, None) => Attention::Full,
        };
        let token_bytes = match &block.attention {
            Kind::Latent(attention) if attention.selection.is_some() => selected::entry_bytes(site, attention),
            Kind::GroupedQuery(_) | Kind::Latent(_) | Kind::Compressed(_) | Kind::GatedDelta(_) | Kind::Mamba2(_) => {
                site.kv_format().stored_bytes(1, elements)
            }
        };
        let page_bytes = u64::from(block_size) * token_bytes;
        let own = LayerKv { name: format!("model.layers.{index}.self_attn.attn"), attention: kind, block_size, page_bytes };
        // One key for each token. upstream: vllm `models/minimax_m3/common/indexer.py::MiniMaxM3IndexerCache.get_kv_cache_spec`,
        // `model_executor/models/deepseek_v2.py::DeepseekV32IndexerCache.get_kv_cache_spec`
        let keys = match &block.attention {
            Kind::GroupedQuery(attention) => attention.indexer.as_ref().map(|indexer| {
                (format!("{}{}", own.name, INDEXERS[0]), block_sparse::key_format(site).stored_bytes(1, indexer.head_dim.into()))
            }),
            Kind::Latent(attention) => {
                attention.indexer().map(|indexer| (format!("model.layers.{index}.self_attn{}", INDEXERS[1]), selected::key_bytes(indexer)))
            }
            Kind::Compressed(_) | Kind::GatedDelta(_) | Kind::Mamba2(_) => None,
        };
        let keys = keys.map(|(name, bytes)| LayerKv { name, page_bytes: u64::from(block_size) * bytes, ..own.clone() });
        keys.into_iter().chain([own]).collect::<Vec<_>>()
    };
    site.model.layers().enumerate().flat_map(layer).collect()
}

/// The groups of layers that share block tables, and for each cache the index of its group.
pub(super) fn groups(site: &Site<'_>) -> Result<(Vec<KvGroup>, Vec<u32>), LoweringError> {
    let layers = of_site(site);
    let groups = group_layers(&layers, site.resolved.cache.disable_hybrid_kv_cache_manager, site.resolved.attention.packs_pages)?;
    let mut of_layer = vec![0; layers.len()];
    for (index, group) in (0..).zip(&groups) {
        group.layers.iter().for_each(|&layer| of_layer[layer] = index);
    }
    let plan = |group: &LayerGroup| KvGroup {
        layers: u32::try_from(group.layers.len()).expect("a model has fewer than 2^32 layers"),
        tokens_per_block: Tokens::new(group.block_size.into()),
        bytes_per_block: BytesPerRank::new(group.bytes_per_block),
        sees: match (group.window, group.attention) {
            (Some(window), _) | (None, Attention::SlidingWindow { window }) => KvSpan::Window(window),
            (None, Attention::Chunked { chunk }) => KvSpan::Chunk(chunk),
            (None, Attention::Mamba(_)) => KvSpan::State,
            (None, Attention::Full) => KvSpan::All,
        },
    };
    let own =
        layers.iter().zip(of_layer).filter(|(layer, _)| !INDEXERS.iter().any(|end| layer.name.ends_with(end))).map(|(_, group)| group);
    Ok((groups.iter().map(plan).collect(), own.collect()))
}
