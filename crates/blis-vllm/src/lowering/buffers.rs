//! Buffers the engine allocates before it sizes the KV cache and keeps for its life: what its memory profile finds.
//!
//! upstream: vllm `model_executor/layers/rotary_embedding/base.py::RotaryEmbeddingBase`
//!
//! Left out: what is allocated after sizing (block tables, the workspaces of attention backends), which upstream pays from the share
//! of memory it leaves free; buffers of a few kilobytes; what a library allocates on its own (coefficients of the cost model).

use blis_contracts::plan::Buffer;
use blis_contracts::units::BytesPerRank;

use super::collective;
use super::site::{Site, attention_of};

pub(super) fn list(site: &Site<'_>) -> Vec<Buffer> {
    let communicators = collective::buffer_bytes(site);
    std::iter::once(("rotary table", rotary_table(site)))
        .chain(communicators)
        .map(|(name, bytes)| Buffer { name: name.to_owned(), bytes: BytesPerRank::new(bytes) })
        .collect()
}

/// Cosines and sines of every position, shared by all layers: in 32 bits for gpt-oss, else as activations are.
fn rotary_table(site: &Site<'_>) -> u64 {
    let head_dim = site.model.layers().map(|block| attention_of(block).head_dim).max().unwrap_or(0);
    let element = if site.is_gpt_oss() { 4 } else { site.element_bytes() };
    site.model.max_position_embeddings * u64::from(head_dim) * element
}
