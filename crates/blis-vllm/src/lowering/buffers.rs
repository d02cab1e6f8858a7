//! Buffers the engine allocates before it sizes the KV cache and keeps for its life: what its memory profile finds.
//!
//! upstream: vllm `model_executor/layers/rotary_embedding/base.py::RotaryEmbeddingBase`, `v1/worker/gpu/sample/penalties.py::PenaltiesState`
//!
//! Left out: what is allocated after sizing (block tables, the workspaces of attention backends), which upstream pays from the share
//! of memory it leaves free; buffers of a few kilobytes; what a library allocates on its own (coefficients of the cost model).

use blis_contracts::model::{Attention, LayerBlock};
use blis_contracts::plan::Buffer;
use blis_contracts::units::BytesPerRank;

use super::pass::QK_NORM_MOST_ROWS;
use super::site::Site;
use super::{collective, compressed, exchange, gemma4, selected};
use crate::config::MlaPrefillBackend;

pub(super) fn list(site: &Site<'_>) -> Vec<Buffer> {
    let communicators = collective::buffer_bytes(site);
    [("rotary table", rotary_table(site)), ("token counts of penalties", penalty_counts(site))]
        .into_iter()
        .chain(communicators)
        .chain(exchange::buffer_bytes(site))
        .chain(prompt_workspace(site).map(|bytes| ("FlashInfer workspace", bytes)))
        .chain(compressed::workspace_bytes(site))
        .chain(selected::workspace_bytes(site))
        .chain(norm_workspace(site).map(|bytes| ("query and key norm workspace", bytes)))
        .map(|(name, bytes)| Buffer { name: name.to_owned(), bytes: BytesPerRank::new(bytes) })
        .collect()
}

/// What FlashInfer's attention of latent prompts works in, taken when the layers are made.
/// upstream: vllm `v1/attention/backends/mla/prefill/flashinfer.py`, `trtllm_ragged.py`
fn prompt_workspace(site: &Site<'_>) -> Option<u64> {
    match site.resolved.attention.mla_prefill? {
        MlaPrefillBackend::Flashinfer | MlaPrefillBackend::TrtllmRagged => Some(site.resolved.kernels.flashinfer_workspace_bytes),
        MlaPrefillBackend::FlashAttn | MlaPrefillBackend::TokenspeedMla => None,
    }
}

/// What norms over all heads exchange their sums through: three slots of 2 MiB granules, each with four rows' sums of either norm
/// in 16 bytes for every rank. upstream: vllm `model_executor/layers/minimax_rms_norm/lamport_workspace.py::LamportWorkspace`
fn norm_workspace(site: &Site<'_>) -> Option<u64> {
    let needed = site.ranks > 1
        && site.model.layers().any(|block| match &block.attention {
            Attention::GroupedQuery(attention) => attention.qk_norm_spans_heads,
            Attention::Latent(_) | Attention::Compressed(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => false,
        });
    let slot = u64::from(site.ranks) * 2 * u64::from(QK_NORM_MOST_ROWS.div_ceil(4)) * 16;
    needed.then(|| 3 * slot.next_multiple_of(2 << 20))
}

/// Cosines and sines of every position, shared by all layers: in 32 bits for gpt-oss and where tokens are compressed, else as activations are.
fn rotary_table(site: &Site<'_>) -> u64 {
    let rotated = |block: &LayerBlock| match &block.attention {
        Attention::GroupedQuery(attention) => attention.rotated(),
        Attention::Latent(attention) => attention.rotary_dim,
        Attention::Compressed(attention) => attention.rotary_dim,
        Attention::GatedDelta(_) | Attention::Mamba2(_) => 0,
    };
    // Layers of two kinds have a table each, over whole heads, and those of one kind one between them.
    let rotated = if site.is_gemma4() { gemma4::rotated(site.model) } else { site.model.layers().map(rotated).max().unwrap_or(0) };
    let element = if site.is_gpt_oss() { 4 } else { site.element_bytes() };
    site.model.max_position_embeddings * u64::from(rotated) * element
}

/// How often each request has produced each token, in 32 bits, and which tokens its prompt holds, in one: for as many requests as may run.
fn penalty_counts(site: &Site<'_>) -> u64 {
    let vocabulary = site.model.vocab_size;
    site.resolved.scheduler.max_num_seqs * 4 * (vocabulary + vocabulary.div_ceil(32))
}
