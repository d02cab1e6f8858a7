//! Layers whose queries see the blocks an indexer picks.
//!
//! upstream: vllm `models/minimax_m3/nvidia/model.py::MiniMaxM3SparseAttention.forward`, `MiniMaxM3Attention.forward`
//! upstream: vllm `models/minimax_m3/nvidia/indexer_msa.py::MiniMaxM3IndexerMSAImpl.forward`,
//! `models/minimax_m3/nvidia/msa_cutlass_sparse_decode.py::should_prepare_decode_metadata`
//!
//! The indexer's projections are part of the one in front of attention. An indexer call scores every block of the context and picks
//! the best; the attention behind it reads those. To the cost model the second is attention to a window as wide as the picked
//! blocks, which is what it reads and multiplies; a last block that is not yet full is counted as full.

use blis_contracts::format::FormatName;
use blis_contracts::model::{BlockIndexer, GroupedQueryAttention};
use blis_contracts::plan::{Dealing, Primitive, PrimitiveShape, RowRange, RowSet};

use super::names::{
    CUTEDSL_MSA_INDEX_DECODE, FMHA_MSA_DECODE, FMHA_MSA_INDEX_PREFILL, FMHA_MSA_PREFILL, TRITON_MSA_DECODE, TRITON_MSA_INDEX_DECODE,
    TRITON_MSA_INDEX_PREFILL, TRITON_MSA_PREFILL,
};
use super::pass::Pass;
use super::site::Site;
use crate::config::{BlockSparseSettings, CudagraphMode, IndexerKvDtype};

/// Requests from which CUTLASS's decode is used where it may be: `_MIN_CUTLASS_BATCH_SIZE`.
const CUTLASS_LEAST_REQUESTS: u64 = 16;

/// How an indexer's keys are stored.
pub(super) fn key_format(site: &Site<'_>) -> FormatName {
    match settings(site).indexer_kv_dtype {
        IndexerKvDtype::Auto | IndexerKvDtype::Bf16 => FormatName::Bf16,
        IndexerKvDtype::Fp8 => FormatName::Fp8,
        IndexerKvDtype::Mxfp4 => unreachable!("refused when the configuration was resolved"),
    }
}

/// The settings that resolving such a model leaves behind.
fn settings(site: &Site<'_>) -> BlockSparseSettings {
    site.resolved.attention.block_sparse.expect("resolved for every model with an indexer")
}

impl Pass<'_> {
    /// Scores, choice, and attention to what was chosen.
    pub(super) fn block_sparse(&mut self, attention: &GroupedQueryAttention, indexer: &BlockIndexer, kv_group: u32) {
        let site = self.site;
        let BlockSparseSettings { msa, msa_indexer, cutlass_decode, .. } = settings(site);
        let index = index_shape(site, attention, indexer, kv_group);
        let attend = PrimitiveShape::Attention {
            query_heads: site.query_heads(attention),
            kv_heads: site.kv_heads(attention),
            head_dim: attention.head_dim,
            kv_group,
            window: indexer.visible_tokens(),
            chunk: 0,
            sinks: attention.sinks,
            kv_format: site.kv_format(),
            dealing: Dealing::Evenly,
        };
        let (index_prefill, index_decode) = if msa_indexer {
            (FMHA_MSA_INDEX_PREFILL, CUTEDSL_MSA_INDEX_DECODE)
        } else {
            (TRITON_MSA_INDEX_PREFILL, TRITON_MSA_INDEX_DECODE)
        };
        let prefill = if msa { FMHA_MSA_PREFILL } else { TRITON_MSA_PREFILL };
        for (kernel, shape) in [(index_prefill, index), (prefill, attend)] {
            self.push(Primitive::AttentionPrefill, kernel, shape, RowSet::Requests, RowRange::ALL);
        }
        self.push(Primitive::AttentionDecode, index_decode, index, RowSet::Requests, RowRange::ALL);
        let least = if cutlass_decode { cutlass_from(site) } else { u32::MAX };
        if least > 0 {
            let few = RowRange { least: 0, most: if cutlass_decode { least - 1 } else { u32::MAX } };
            self.push(Primitive::AttentionDecode, TRITON_MSA_DECODE, attend, RowSet::Requests, few);
        }
        if cutlass_decode {
            let many = RowRange { least, most: u32::MAX };
            self.push(Primitive::AttentionDecode, FMHA_MSA_DECODE, attend, RowSet::Requests, many);
        }
    }
}

/// An indexer as an attention: its one key head has no values, which is half of what an attention of its head width would read and
/// multiply, so it is stated at half of that width.
fn index_shape(site: &Site<'_>, attention: &GroupedQueryAttention, indexer: &BlockIndexer, kv_group: u32) -> PrimitiveShape {
    PrimitiveShape::Attention {
        query_heads: site.kv_heads(attention),
        kv_heads: 1,
        head_dim: indexer.head_dim / 2,
        kv_group,
        window: 0,
        chunk: 0,
        sinks: false,
        kv_format: key_format(site),
        dealing: Dealing::Evenly,
    }
}

/// Requests of a step from which CUTLASS decodes: it goes by a batch as padded, so the sizes of captured decodes count.
fn cutlass_from(site: &Site<'_>) -> u32 {
    let compilation = &site.resolved.compilation;
    let sizes = compilation.cudagraph_capture_sizes.iter().filter(|_| compilation.cudagraph_mode.decode() == CudagraphMode::Full);
    let below = sizes.copied().filter(|&size| size < CUTLASS_LEAST_REQUESTS).max().unwrap_or(CUTLASS_LEAST_REQUESTS - 1);
    u32::try_from(below + 1).expect("below sixteen")
}
