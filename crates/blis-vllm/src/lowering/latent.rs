//! Multi-head latent attention: its kernels, and the pieces of a layer that has it.
//!
//! upstream: vllm `model_executor/layers/mla.py::MultiHeadLatentAttentionWrapper.forward`,
//! `model_executor/layers/attention/mla_attention.py::MLAAttention.forward_impl`, `MLACommonImpl.forward_mha`, `_compute_prefill_context`
//!
//! The down projections are whole on every rank. A decode attends to the latent vectors as they are cached: its queries go through the
//! key half of the up-projection first, its answer through the value half, each one batched product. A prompt writes keys and
//! values out for every head, those of its cached tokens too. As for other attention, writing new latent vectors to the cache and
//! putting a decode's queries together in the cache's format belong to attention and are priced with it.
//!
//! Left out: merging the parts of a context longer than the workspace and of context and prompt; that `FlashAttention`'s and
//! `FlashMLA`'s builders take short prompts for decodes; heads padded for a kernel.

use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::model::LatentAttention;
use blis_contracts::plan::{Primitive, PrimitiveShape, RowRange, RowSet};

use super::LoweringError;
use super::elementwise::{self, Input};
use super::linear::{self, LinearChoice, Matrix};
use super::names::{
    CSRC_MLA_GATHER, CUBLAS_BATCHED, CUTLASS_MLA_DECODE, CUTLASS_MLA_PREFILL, FLASH_ATTN_2, FLASH_ATTN_3, FLASH_ATTN_4,
    FLASH_ATTN_MLA_DECODE, FLASHMLA_DECODE, KernelName, TOKENSPEED_MLA_DECODE, TOKENSPEED_MLA_PREFILL, TORCH_COPY, TRITON_MLA_DECODE,
    TRTLLM_MLA_DECODE, TRTLLM_MLA_PREFILL,
};
use super::pass::{Pass, Sum};
use super::site::Site;
use crate::config::{AttentionBackend, MlaPrefillBackend};

/// The kernel of decodes.
fn decode_kernel(site: &Site<'_>) -> KernelName {
    match site.resolved.attention.backend {
        AttentionBackend::FlashinferMla => TRTLLM_MLA_DECODE,
        AttentionBackend::TokenspeedMla => TOKENSPEED_MLA_DECODE,
        AttentionBackend::CutlassMla => CUTLASS_MLA_DECODE,
        AttentionBackend::FlashAttnMla => FLASH_ATTN_MLA_DECODE,
        AttentionBackend::FlashMla => FLASHMLA_DECODE,
        AttentionBackend::TritonMla => TRITON_MLA_DECODE,
        AttentionBackend::FlashAttn
        | AttentionBackend::Flashinfer
        | AttentionBackend::TritonAttn
        | AttentionBackend::FlexAttention
        | AttentionBackend::TritonFlashAttn
        | AttentionBackend::TritonFlashinfer
        | AttentionBackend::FlashMlaSparseDsv4
        | AttentionBackend::FlashMlaSparse
        | AttentionBackend::FlashinferMlaSparse
        | AttentionBackend::FlashinferMlaSparseSm120
        | AttentionBackend::FlashinferMlaSparseSm90
        | AttentionBackend::FlashAttnMlaSparse => {
            unreachable!("no configuration resolves to it for latent attention")
        }
    }
}

/// The kernel of prompts.
fn prefill_kernel(site: &Site<'_>, attention: &LatentAttention) -> KernelName {
    let settings = &site.resolved.attention;
    match (settings.mla_prefill, settings.flash_attn_version(attention.query_dim())) {
        (Some(MlaPrefillBackend::TrtllmRagged), _) => TRTLLM_MLA_PREFILL,
        (Some(MlaPrefillBackend::Flashinfer), _) => CUTLASS_MLA_PREFILL,
        (Some(MlaPrefillBackend::TokenspeedMla), _) => TOKENSPEED_MLA_PREFILL,
        (Some(MlaPrefillBackend::FlashAttn) | None, Some(4)) => FLASH_ATTN_4,
        (Some(MlaPrefillBackend::FlashAttn) | None, Some(3)) => FLASH_ATTN_3,
        (Some(MlaPrefillBackend::FlashAttn) | None, _) => FLASH_ATTN_2,
    }
}

/// The projections into the latent vectors, and into queries where these have none.
pub(super) fn down(site: &Site<'_>, attention: &LatentAttention) -> Result<(Matrix, LinearChoice), LoweringError> {
    let columns = u64::from(attention.query_rank.unwrap_or(0) + attention.cached());
    let matrix = Matrix { columns, depth: site.model.hidden_size, format: attention.down_format };
    Ok((matrix, linear::fused_a(site, matrix)?))
}

/// Widths of one rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Widths {
    heads: u64,
    element: u64,
    kv_rank: u64,
    cached: u64,
    plain: u64,
    query: u64,
    value: u64,
}

impl Widths {
    pub(super) fn of(site: &Site<'_>, attention: &LatentAttention) -> Self {
        Self {
            heads: site.share(attention.query_heads.into()),
            element: site.element_bytes(),
            kv_rank: attention.kv_rank.into(),
            cached: attention.cached().into(),
            plain: attention.plain_dim.into(),
            query: attention.query_dim().into(),
            value: attention.value_dim.into(),
        }
    }

    /// Bytes of a token's queries.
    pub(super) const fn query_bytes(self) -> u64 {
        self.heads * self.query * self.element
    }
}

impl Pass<'_> {
    /// The attention part of a layer, with the norm behind it.
    pub(super) fn latent(&mut self, attention: &LatentAttention, kv_group: u32, next: Input) -> Result<(), LoweringError> {
        let (site, w) = (self.site, Widths::of(self.site, attention));
        let hidden = site.model.hidden_size;
        let (matrix, choice) = down(site, attention)?;
        self.gemm(matrix, &choice, RowSet::Tokens);
        let query_depth = attention.query_rank.map_or(hidden, u64::from);
        self.latent_norms(attention, w);
        let query = Matrix { columns: w.heads * w.query, depth: query_depth, format: attention.query_format };
        let choice = linear::choose(site, "query projection", query)?;
        let input = Input::of(&choice);
        if input != Input::Plain {
            self.quantise(input, query_depth, RowSet::Tokens, RowRange::ALL);
        }
        self.gemm(query, &choice, RowSet::Tokens);
        // The turned part of queries and of the shared key, read and written.
        let turned = (w.heads + 1) * u64::from(attention.rotary_dim) * w.element;
        self.stream(Primitive::Rope, elementwise::rope(site), 2 * turned);
        self.latent_prompts(attention, kv_group, w, site.kv_format().stored_bytes(1, w.cached))?;
        self.latent_decodes(kv_group, w);
        let depth = w.heads * w.value;
        let output = Matrix { columns: hidden, depth, format: attention.output_format };
        let choice = linear::choose(site, "output projection", output)?;
        let input = Input::of(&choice);
        if input != Input::Plain {
            self.quantise(input, depth, RowSet::Tokens, RowRange::ALL);
        }
        self.gemm(output, &choice, RowSet::Tokens);
        self.sum_and_norm(Sum { width: hidden, adds: true, adjacent: true, needed: true }, next);
        Ok(())
    }

    /// The norms of what queries and keys are projected from. The compiler puts independent kernels of its own into one.
    /// upstream: vllm `config/compilation.py::CompilationConfig.__post_init__`, where it switches `combo_kernels` on
    fn latent_norms(&mut self, attention: &LatentAttention, w: Widths) {
        let (site, query) = (self.site, attention.query_rank.map(u64::from));
        if !elementwise::norms_by_itself(site) {
            self.stream(Primitive::Norm, elementwise::norm(site), 2 * w.element * (query.unwrap_or(0) + w.kv_rank));
            return;
        }
        for width in query.into_iter().chain([w.kv_rank]) {
            self.stream(Primitive::Norm, elementwise::norm(site), 2 * w.element * width);
        }
    }

    /// Prompts: keys and values of new and cached tokens, of which the cache has `stored` bytes each, are written out, and every head
    /// attends to its own.
    pub(super) fn latent_prompts(
        &mut self,
        attention: &LatentAttention,
        kv_group: u32,
        w: Widths,
        stored: u64,
    ) -> Result<(), LoweringError> {
        let site = self.site;
        let up = Matrix { columns: w.heads * (w.plain + w.value), depth: w.kv_rank, format: attention.kv_format };
        let choice = linear::choose(site, "key and value projections", up)?;
        let fp8 = site.resolved.attention.mla_prefill_fp8;
        let gathered = if fp8 { stored } else { w.cached * w.element };
        let over = |pass: &mut Self, kernel, bytes_per_row, rows| {
            pass.push(Primitive::Activation, kernel, PrimitiveShape::Stream { bytes_per_row }, rows, RowRange::ALL);
        };
        over(self, CSRC_MLA_GATHER, stored + gathered, RowSet::Cached);
        // Keys are put together from their two parts.
        let joined = w.heads * (w.plain + w.query) * w.element;
        for rows in [RowSet::Prefills, RowSet::Cached] {
            self.gemm(up, &choice, rows);
            over(self, TORCH_COPY, joined, rows);
        }
        let format = if fp8 { FormatName::Fp8 } else { site.dtype() };
        let heads = count(w.heads);
        let shape = PrimitiveShape::Latent {
            query_heads: heads,
            kv_heads: heads,
            key_dim: attention.query_dim(),
            value_dim: attention.value_dim,
            kv_group,
            format,
        };
        self.push(Primitive::LatentPrefill, prefill_kernel(site, attention), shape, RowSet::Requests, RowRange::ALL);
        over(self, TORCH_COPY, 2 * w.heads * w.value * w.element, RowSet::Prefills);
        Ok(())
    }

    /// Decodes: over the latent vectors as they are cached.
    fn latent_decodes(&mut self, kv_group: u32, w: Widths) {
        let site = self.site;
        let plain = MatmulFormat { weights: site.dtype(), activations: site.dtype() };
        let product = |columns, depth| PrimitiveShape::BatchedGemm { batch: count(w.heads), columns, depth, format: plain };
        self.push(Primitive::BatchedGemm, CUBLAS_BATCHED, product(w.kv_rank, w.plain), RowSet::Decodes, RowRange::ALL);
        let shape = PrimitiveShape::Latent {
            query_heads: count(w.heads),
            kv_heads: 1,
            key_dim: count(w.cached),
            value_dim: count(w.kv_rank),
            kv_group,
            format: site.kv_format(),
        };
        self.push(Primitive::LatentDecode, decode_kernel(site), shape, RowSet::Requests, RowRange::ALL);
        self.push(Primitive::BatchedGemm, CUBLAS_BATCHED, product(w.value, w.kv_rank), RowSet::Decodes, RowRange::ALL);
    }
}

fn count(value: u64) -> u32 {
    u32::try_from(value).expect("widths of a head and numbers of heads have 32 bits in a graph")
}
