//! Latent attention to the tokens that an indexer picks: its kernels, and the pieces of a layer that has it.
//!
//! upstream: vllm `models/deepseek_v32/attention.py::DeepseekV32Attention.forward`, `models/deepseek_v32/nvidia/model.py::DeepseekV32DecoderLayer.forward`
//! upstream: vllm `model_executor/layers/sparse_attn_indexer.py::sparse_attn_indexer`
//! upstream: vllm `model_executor/layers/attention/sparse_mla_attention.py::SparseMLACommonMetadataBuilder.build`, `_use_dense_mha_prefill`
//! upstream: vllm `v1/attention/backends/mla/flashmla_sparse.py::FlashMLASparseImpl`, `flashinfer_mla_sparse.py`, `flashattn_mla_sparse.py`
//!
//! Down projections and the indexer are whole on every rank. All tokens attend to the latent vectors as they are cached: their queries
//! go through the key half of the up-projection, their answers through the value half, each one batched product. Writing new
//! latent vectors and keys is part of the kernel that norms and turns them. A layer without an indexer of its own takes the choice
//! of the one below. Steps do not run through the compiler; their graphs break around scoring and attention.
//!
//! Where every prompt of a step ends within the tokens that a query sees, prompts attend to all of it as dense latent attention does
//! ([`super::latent`]), if the backend has a kernel for that; scores are left out where no other request needs them. Requests of few new
//! tokens count as ones that generate, by a limit of each backend's own.
//!
//! Left out: prompts that Blackwell serves with a mask over all tokens; rows of long prompts whose scores ranks share; kernels for few rows
//! that GLM's projections have on compute capability 10.3; that prompts of few new tokens run the kernels of decodes; that queries which
//! a graph has quantised are turned once more for dense prompts.

use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::model::{Attention, LatentAttention, TokenIndexer, TokenSelection};
use blis_contracts::part::{DensePrompts, Part};
use blis_contracts::plan::{Primitive, PrimitiveShape, RowRange, RowSet};

use super::LoweringError;
use super::elementwise::Input;
use super::latent::{self, Widths};
use super::linear::{self, Matrix};
use super::names::{
    CSRC_MLA_GATHER, CSRC_QUANTISE, CUBLAS_BATCHED, DEEPGEMM_PAGED_TOKEN_SCORES, DEEPGEMM_TOKEN_SCORES, FLASH_ATTN_SPARSE_MLA,
    FLASHINFER_SPARSE_MLA_SM90, FLASHINFER_SPARSE_MLA_SM120, FLASHMLA_SPARSE_MLA, FLASHMLA_SPARSE_MLA_FP8, KernelName, TORCH_COPY,
    TRITON_LATENT_NORM_ROPE, TRITON_LATENT_QUERY, TRTLLM_SPARSE_MLA,
};
use super::pass::{Pass, Sum};
use super::site::Site;
use crate::config::SparseBackend;

/// Bytes of an entry in 8 bits: 512 elements, four scales in 32 bits, 64 elements in 16.
const PACKED_BYTES: u64 = 656;

/// Elements of an indexer's key that share a scale in 32 bits.
const KEY_BLOCK: u64 = 128;

/// Heads that FlashMLA's kernels run; fewer are padded to the next, more to its multiple.
const KERNEL_HEADS: u32 = 64;

/// Heads from which prompts over packed entries are widened first: `MIN_HEADS_FOR_BF16_PREFILL`.
const WIDENED_FROM_HEADS: u32 = 32;

/// Scores up to which a prompt's row is selected from by ranking every pair.
const RANKED_SCORES: u32 = 2048;

/// Tokens of the greatest length that prompts' entries are gathered for at once, by what fits a length of 262,144.
/// upstream: vllm `config/vllm.py::VllmConfig.__post_init__` (`sparse_mla_prefill_workspace_factor`)
const GATHERED_LENGTHS: (u64, u64) = (5, 2);

/// Bytes of scores that start-up sets aside: `VLLM_SPARSE_INDEXER_MAX_LOGITS_MB`.
const SCORE_BYTES: u64 = 512 << 20;

/// The choice of tokens in a layer, where it has one.
fn selection_of(attention: &Attention) -> Option<(&LatentAttention, &TokenSelection)> {
    match attention {
        Attention::Latent(attention) => Some((attention, attention.selection.as_ref()?)),
        Attention::GroupedQuery(_) | Attention::Compressed(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => None,
    }
}

/// Whether the model's layers attend to tokens that an indexer picks.
pub(super) fn applies(site: &Site<'_>) -> bool {
    site.model.blocks.values().any(|block| selection_of(&block.attention).is_some())
}

/// Which prompts attend to all of their context; none where the backend has no kernel for it.
///
/// upstream: vllm `v1/attention/backends/mla/flashmla_sparse.py::FlashMLASparseMetadataBuilder`, and those of the other backends
pub(super) fn dense_prompts(site: &Site<'_>) -> Option<DensePrompts> {
    let (attention, selection) = site.model.blocks.values().find_map(|block| selection_of(&block.attention))?;
    site.resolved.attention.mla_prefill?;
    let heads = attention.query_heads / site.ranks;
    let blackwell = match heads {
        8 | 16 | 32 => 128,
        64 => 256,
        _ => 1024,
    };
    let hopper = match heads {
        16 | 32 => 128,
        _ => 256,
    };
    let generates_to = match site.resolved.attention.backend.sparse()? {
        SparseBackend::FlashMla if site.family(10) => blackwell,
        SparseBackend::FlashMla | SparseBackend::FlashAttn => hopper,
        SparseBackend::Flashinfer | SparseBackend::FlashinferSm90 => blackwell,
        SparseBackend::FlashinferSm120 => return None,
    };
    Some(DensePrompts { generates_to, ends_within: selection.top_k })
}

/// Bytes that attention caches for each token.
pub(super) fn entry_bytes(site: &Site<'_>, attention: &LatentAttention) -> u64 {
    if site.resolved.attention.backend.packs_entries(site.resolved.cache.kv_cache_dtype) {
        PACKED_BYTES
    } else {
        site.kv_format().stored_bytes(1, attention.cached().into())
    }
}

/// Bytes of an indexer's key as cached: 8 bits an element, and scales.
pub(super) fn key_bytes(indexer: &TokenIndexer) -> u64 {
    let elements = u64::from(indexer.head_dim);
    elements + elements / KEY_BLOCK * 4
}

/// The projections of one token to the indexer's key and to the weights of its heads, kept and multiplied as one in 16 bits.
fn key_and_weights(site: &Site<'_>, indexer: &TokenIndexer) -> Matrix {
    let format = MatmulFormat { weights: site.dtype(), activations: site.dtype() };
    Matrix { columns: u64::from(indexer.head_dim + indexer.heads), depth: site.model.hidden_size, format }
}

/// Bytes of an indexer's weights on a rank.
pub(super) fn indexer_weight_bytes(site: &Site<'_>, indexer: &TokenIndexer, query_depth: u64) -> u64 {
    let matrix = key_and_weights(site, indexer);
    let norm = FormatName::Fp32.stored_bytes(2, indexer.head_dim.into());
    let queries = linear::resident_bytes(site, indexer.query_format, u64::from(indexer.heads) * u64::from(indexer.head_dim), query_depth);
    queries + linear::resident_bytes(site, matrix.format, matrix.columns, matrix.depth) + norm
}

/// Buffers that the profile finds: lists of picked tokens, scores, and a workspace that attention and scoring share.
pub(super) fn workspace_bytes(site: &Site<'_>) -> Vec<(&'static str, u64)> {
    let Some((attention, selection)) = site.model.blocks.values().find_map(|block| selection_of(&block.attention)) else {
        return Vec::new();
    };
    let (tokens, length) = (site.resolved.scheduler.max_num_batched_tokens, site.resolved.cache.max_model_len);
    let lengths = if length <= 256 << 10 { GATHERED_LENGTHS.0 } else { GATHERED_LENGTHS.1 };
    let wide = 2 * u64::from(attention.cached());
    // As many keys as the same bytes hold.
    let keys = site
        .model
        .blocks
        .values()
        .find_map(|block| selection_of(&block.attention)?.1.indexer.as_ref())
        .map_or(0, |indexer| lengths * length * (wide / key_bytes(indexer)) * key_bytes(indexer));
    let heads = site.share(attention.query_heads.into());
    let padded = heads.next_multiple_of(KERNEL_HEADS.into());
    let (rank, element) = (u64::from(attention.kv_rank), site.element_bytes());
    let queries = match site.resolved.attention.backend.sparse() {
        Some(SparseBackend::FlashMla) if site.resolved.cache.kv_cache_dtype.is_quantized() => {
            lengths * length * wide + tokens * ((heads + padded) * wide + (padded + heads) * rank * element)
        }
        Some(SparseBackend::FlashMla) => tokens * padded * wide,
        Some(SparseBackend::Flashinfer | SparseBackend::FlashinferSm120 | SparseBackend::FlashinferSm90 | SparseBackend::FlashAttn)
        | None => 0,
    };
    vec![
        ("picked tokens", tokens * u64::from(selection.top_k) * 4),
        ("workspace of sparse attention", keys.max(queries)),
        ("scores of prompts", SCORE_BYTES),
    ]
}

/// What one kernel attends with.
#[derive(Debug, Clone, Copy)]
struct Attends {
    kernel: KernelName,
    heads: u32,
    entry_bytes: u64,
    multiplied: FormatName,
    /// Whether entries are first gathered and widened.
    widens: bool,
}

/// What prompts and decodes attend with.
fn attends(site: &Site<'_>, attention: &LatentAttention) -> (Attends, Attends) {
    let heads = attention.query_heads / site.ranks;
    let (stored, plain) = (entry_bytes(site, attention), site.dtype());
    let quantised = site.resolved.cache.kv_cache_dtype.is_quantized();
    let of = |kernel, heads, multiplied| Attends { kernel, heads, entry_bytes: stored, multiplied, widens: false };
    let padded = heads.next_multiple_of(KERNEL_HEADS);
    let both = |attends| (attends, attends);
    let backend = site.resolved.attention.backend.sparse().expect("attention to picked tokens resolves to one of its backends");
    match backend {
        SparseBackend::FlashMla if quantised => {
            let as_cached = of(FLASHMLA_SPARSE_MLA_FP8, padded, plain);
            let widened = Attends {
                entry_bytes: plain.stored_bytes(1, attention.cached().into()),
                widens: true,
                ..of(FLASHMLA_SPARSE_MLA, padded, plain)
            };
            (if heads < WIDENED_FROM_HEADS { as_cached } else { widened }, as_cached)
        }
        SparseBackend::FlashMla => both(of(FLASHMLA_SPARSE_MLA, padded, plain)),
        SparseBackend::Flashinfer => both(of(TRTLLM_SPARSE_MLA, heads, if quantised { FormatName::Fp8 } else { plain })),
        SparseBackend::FlashinferSm120 => both(of(FLASHINFER_SPARSE_MLA_SM120, heads, plain)),
        SparseBackend::FlashinferSm90 => both(of(FLASHINFER_SPARSE_MLA_SM90, heads, plain)),
        SparseBackend::FlashAttn => both(of(FLASH_ATTN_SPARSE_MLA, heads, plain)),
    }
}

impl Pass<'_> {
    /// The attention part of a layer, with the norm behind it.
    pub(super) fn selected(
        &mut self,
        attention: &LatentAttention,
        selection: &TokenSelection,
        kv_group: u32,
        next: Input,
    ) -> Result<(), LoweringError> {
        let (site, hidden) = (self.site, self.site.model.hidden_size);
        let element = site.element_bytes();
        let rank = attention.query_rank.map_or(hidden, u64::from);
        let heads = site.share(attention.query_heads.into());
        let (matrix, choice) = latent::down(site, attention)?;
        self.gemm(matrix, &choice, RowSet::Tokens);
        let indexer = selection.indexer.as_ref();
        if let Some(indexer) = indexer {
            self.product("indexer's key and weights", key_and_weights(site, indexer))?;
        }
        // Both latent vectors, the rotated key and the indexer's key, read and written; what is cached, written once more.
        let latents = element * (rank + u64::from(attention.cached()));
        let key = indexer.map_or(0, |indexer| element * u64::from(indexer.head_dim) + key_bytes(indexer));
        self.stream(Primitive::Norm, TRITON_LATENT_NORM_ROPE, 2 * latents + entry_bytes(site, attention) + key);
        let query = Matrix { columns: heads * u64::from(attention.query_dim()), depth: rank, format: attention.query_format };
        self.product("query projection", query)?;
        let plain = MatmulFormat { weights: site.dtype(), activations: site.dtype() };
        let halves = |columns: u32, depth: u32| PrimitiveShape::BatchedGemm {
            batch: attention.query_heads / site.ranks,
            columns: columns.into(),
            depth: depth.into(),
            format: plain,
        };
        let absorb = halves(attention.kv_rank, attention.plain_dim);
        let absorbed = |pass: &mut Self| pass.push(Primitive::BatchedGemm, CUBLAS_BATCHED, absorb, RowSet::Tokens, RowRange::ALL);
        self.over(Part::Readied, absorbed);
        let scoring = indexer.map_or(0, |indexer| u64::from(indexer.heads) * u64::from(indexer.head_dim));
        if let Some(indexer) = indexer {
            self.product("indexer's queries", Matrix { columns: scoring, depth: rank, format: indexer.query_format })?;
        }
        // The rotated part of queries turned, scoring heads turned and written in 8 bits.
        let quantised = attends(site, attention).1.multiplied == FormatName::Fp8;
        let packed = if quantised { heads * u64::from(attention.cached()) * (element + 1) } else { 0 };
        let turned = 2 * element * heads * u64::from(attention.rotary_dim) + scoring * (element + 1);
        self.over(Part::Readied, |pass| pass.stream(Primitive::Rope, TRITON_LATENT_QUERY, turned + packed));
        self.over(Part::Unreadied, |pass| pass.stream(Primitive::Rope, TRITON_LATENT_QUERY, turned));
        if let Some(indexer) = indexer {
            self.over(Part::Scored, |pass| pass.scores(indexer, selection.top_k));
        }
        if dense_prompts(site).is_some() {
            let w = Widths::of(site, attention);
            // Queries' two parts put together.
            self.over(Part::Mixed, |pass| pass.stream(Primitive::Activation, TORCH_COPY, 2 * w.query_bytes()));
            self.over(Part::DensePrompts, |pass| pass.latent_prompts(attention, kv_group, w, entry_bytes(site, attention)))?;
            self.over(Part::BesideDense, absorbed);
            if quantised {
                self.over(Part::BesideDense, |pass| pass.stream(Primitive::Activation, CSRC_QUANTISE, packed));
            }
        }
        self.over(Part::Picking, |pass| pass.attend_picked(attention, selection.top_k));
        let values = halves(attention.value_dim, attention.kv_rank);
        self.over(Part::Picking, |pass| pass.push(Primitive::BatchedGemm, CUBLAS_BATCHED, values, RowSet::Tokens, RowRange::ALL));
        let output = Matrix { columns: hidden, depth: heads * u64::from(attention.value_dim), format: attention.output_format };
        self.product("output projection", output)?;
        self.sum_and_norm(Sum { width: hidden, adds: true, adjacent: true, needed: true }, next);
        Ok(())
    }

    fn scores(&mut self, indexer: &TokenIndexer, top_k: u32) {
        let shape = |entry_bytes: u64| PrimitiveShape::Scores {
            heads: indexer.heads,
            head_dim: indexer.head_dim,
            entry_bytes: narrow(entry_bytes),
            ratio: 1,
            top_k,
            ranked: RANKED_SCORES,
            multiplied: FormatName::Fp8,
        };
        // A prompt's rows read each other's keys from the second-level cache: what moves for each is the score, written and read.
        let (prompts, decodes) = (shape(2 * FormatName::Fp32.stored_bytes(1, 1)), shape(key_bytes(indexer)));
        self.push(Primitive::SelectionPrefill, DEEPGEMM_TOKEN_SCORES, prompts, RowSet::Requests, RowRange::ALL);
        self.push(Primitive::SelectionDecode, DEEPGEMM_PAGED_TOKEN_SCORES, decodes, RowSet::Requests, RowRange::ALL);
    }

    fn attend_picked(&mut self, attention: &LatentAttention, top_k: u32) {
        let site = self.site;
        let shape = |attends: Attends| PrimitiveShape::Gathered {
            query_heads: attends.heads,
            // A key of all that is cached and a value of the latent vector alone: stated as one width of both.
            head_dim: u32::midpoint(attention.cached(), attention.kv_rank),
            entry_bytes: narrow(attends.entry_bytes),
            window: 0,
            ratio: 1,
            top_k,
            multiplied: attends.multiplied,
        };
        let (prompts, decodes) = attends(site, attention);
        if prompts.widens {
            let moved = PrimitiveShape::Stream { bytes_per_row: entry_bytes(site, attention) + prompts.entry_bytes };
            for rows in [RowSet::Prefills, RowSet::Cached] {
                self.push(Primitive::Activation, CSRC_MLA_GATHER, moved, rows, RowRange::ALL);
            }
        }
        self.push(Primitive::SparsePrefill, prompts.kernel, shape(prompts), RowSet::Requests, RowRange::ALL);
        self.push(Primitive::SparseDecode, decodes.kernel, shape(decodes), RowSet::Requests, RowRange::ALL);
    }

    /// A product over every token launched, its input quantised first where it wants it so.
    fn product(&mut self, what: &'static str, matrix: Matrix) -> Result<(), LoweringError> {
        let choice = linear::choose(self.site, what, matrix)?;
        self.quantise_if_needed(Input::of(&choice), matrix.depth, RowSet::Tokens, RowRange::ALL);
        self.gemm(matrix, &choice, RowSet::Tokens);
        Ok(())
    }
}

fn narrow(bytes: u64) -> u32 {
    u32::try_from(bytes).expect("widths of a head have 32 bits in a graph")
}
