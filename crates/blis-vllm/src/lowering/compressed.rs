//! One forward pass of a model that attends to compressed tokens and has several residual lanes.
//!
//! upstream: vllm `models/deepseek_v4/nvidia/model.py::DeepseekV4DecoderLayer.forward`, `DeepseekV4Model.forward`
//! upstream: vllm `models/deepseek_v4/attention.py::DeepseekV4Attention.forward`, `_run_parallel_input_projections`, `_prepare_and_attn`
//! upstream: vllm `models/deepseek_v4/nvidia/flashmla.py::DeepseekV4FlashMLAAttention`, `models/deepseek_v4/nvidia/ops/o_proj.py::deep_gemm_fp8_o_proj`
//! upstream: vllm `model_executor/kernels/mhc/tilelang.py::mhc_fused_post_pre_tilelang`
//!
//! Steps do not run through the compiler. For few rows projections of the same input run on several streams: of those beside the query
//! and key projection the traffic of their weights remains. Compressing itself runs beside the query projection and adds its traffic
//! to the piece behind it. Choosing experts, by scores or by a table, belongs to the experts.
//!
//! Where ranks of several engine cores share the experts, those of one core each keep a part of the lanes, and attention alone sees every
//! token.
//!
//! Left out: the megakernels that exchange tokens themselves, which only `--moe-backend` asks for; that a pass without graphs skips scoring
//! while all entries fit the list; that a coarse compressor skips a pass in which no vector is complete.

use blis_contracts::format::FormatName;
use blis_contracts::model::{Attention, CompressedAttention, Compression, DenseFeedForward, FeedForward, LayerBlock, MixtureOfExperts};
use blis_contracts::plan::{LoweredLayer, Primitive, PrimitiveShape, RowRange, RowSet};

use super::LoweringError;
use super::elementwise;
use super::exchange;
use super::experts;
use super::feed_forward::SHARED_BESIDE_MOST_ROWS;
use super::former::Former;
use super::linear::{self, Matrix};
use super::names::{
    CSRC_RMS_NORM, DEEPGEMM_PAGED_SCORES, DEEPGEMM_SCORES, FLASHMLA_SPARSE_DECODE, FLASHMLA_SPARSE_PREFILL, FUSED_INVERSE_ROTATION,
    FUSED_KEY_INSERT, KernelName, MHC_IN, MHC_OUT, MHC_OUT_IN, PROJECTION_STREAMS, SHARED_STREAM, TORCH_ADD, TRITON_QK_LATENT_NORM,
};
use super::pass::Pass;
use super::site::Site;
use crate::config::IndexerKvDtype;

/// Rows up to which input projections run on several streams: `VLLM_MULTI_STREAM_GEMM_TOKEN_THRESHOLD`.
const STREAMS_MOST_ROWS: u32 = 1024;

/// Rows up to which mixing out of a sublayer and the projection for the next are one kernel: `_FUSED_POST_PRE_MAX_TOKENS`.
const JOINED_MIXING_MOST_ROWS: u32 = 32;
/// The same in releases that had it so: `use_small_fma`.
const NARROW_MIXING_MOST_ROWS: u32 = 16;

/// Query heads that FlashMLA runs; fewer are padded to the next.
const KERNEL_HEADS: [u32; 2] = [64, 128];

/// The heads that FlashMLA runs for a rank that has `heads`; sinks are kept for all of them.
pub(super) fn kernel_heads(site: &Site<'_>, heads: u32) -> Result<u32, LoweringError> {
    KERNEL_HEADS.into_iter().find(|&padded| heads <= padded).ok_or_else(|| LoweringError::NotModelled {
        model: site.model.name.clone(),
        reason: format!("has {heads} heads on a rank, more than FlashMLA runs"),
        instead: "raise --tensor-parallel-size",
    })
}

/// Bytes of a cached entry: 448 elements of 8 bits, 64 of 16, and eight scales.
pub(super) const ENTRY_BYTES: u32 = 584;

/// Scores up to which a prompt's row is selected from by ranking every pair.
const RANKED_SCORES: u32 = 2048;

/// Elements that share a scale of a block format.
const BLOCK: u64 = 128;

/// The compressed attention of a layer, where it has it.
pub(super) fn attention_of(block: &LayerBlock) -> Option<&CompressedAttention> {
    match &block.attention {
        Attention::Compressed(attention) => Some(attention),
        Attention::GroupedQuery(_) | Attention::Latent(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => None,
    }
}

/// Whether a model is lowered by this file.
pub(super) fn applies(site: &Site<'_>) -> bool {
    site.model.layers().any(|block| attention_of(block).is_some())
}

/// Refuses what this file does not lower.
pub(super) fn check(site: &Site<'_>) -> Result<(), LoweringError> {
    let refuse = |reason: &str, instead: &'static str| {
        Err(LoweringError::NotModelled { model: site.model.name.clone(), reason: reason.to_owned(), instead })
    };
    if site.model.residual_lanes.is_none() {
        return refuse("attends to compressed tokens over a single residual stream", "");
    }
    for block in site.model.blocks.values() {
        match (attention_of(block), &block.feed_forward) {
            (Some(_), FeedForward::MixtureOfExperts(_)) => {}
            (None, _) => return refuse("mixes attention to compressed tokens with another kind", ""),
            (Some(_), FeedForward::Dense(_) | FeedForward::Absent) => {
                return refuse("has a dense layer beside attention to compressed tokens", "");
            }
        }
    }
    Ok(())
}

/// Bytes that each pair of a prompt's scoring moves: its score, written and read. Keys are read once for a tile of rows.
const SCORE_BYTES: u32 = 8;

/// Bytes of a vector that entries are scored by, as cached.
pub(super) fn score_bytes(site: &Site<'_>, head_dim: u32) -> u32 {
    match site.resolved.attention.indexer_kv_dtype {
        IndexerKvDtype::Auto | IndexerKvDtype::Fp8 => head_dim + head_dim / 128 * 4,
        IndexerKvDtype::Mxfp4 => head_dim / 2 + head_dim / 32,
        IndexerKvDtype::Bf16 => unreachable!("refused when the configuration was resolved"),
    }
}

/// The width of the shared experts on one rank: whole blocks of scales, so that every rank has as many; all of it over parts of the tokens.
pub(super) fn shared_width(site: &Site<'_>, shared: &DenseFeedForward, rows: RowSet) -> u64 {
    if rows == RowSet::Split {
        shared.intermediate_size
    } else if shared.up_format.weights == FormatName::Fp8Block {
        shared.intermediate_size.div_ceil(BLOCK).div_ceil(site.ranks.into()) * BLOCK
    } else {
        site.share(shared.intermediate_size)
    }
}

/// Buffers that the profile finds: the list of selected entries, the lists of all entries of coarse layers, and what prompts' entries are
/// gathered into.
pub(super) fn workspace_bytes(site: &Site<'_>) -> Vec<(&'static str, u64)> {
    let (tokens, length) = (site.resolved.scheduler.max_num_batched_tokens, site.resolved.cache.max_model_len);
    let attentions = || site.model.layers().filter_map(attention_of);
    let Some(head_dim) = attentions().next().map(|attention| u64::from(attention.head_dim)) else { return Vec::new() };
    let compressions = || attentions().filter_map(|attention| attention.compression.as_ref());
    let top_k = compressions().filter_map(|compression| compression.selection.as_ref()).map(|selection| selection.top_k).max().unwrap_or(0);
    let window = attentions().map(|attention| attention.window).max().unwrap_or(0);
    let finest = compressions().map(|compression| compression.ratio).min().unwrap_or(u32::MAX);
    let coarse = compressions().filter(|compression| compression.selection.is_none()).map(|compression| compression.ratio).min();
    let listed = coarse.map_or(0, |ratio| 2 * tokens * length.div_ceil(ratio.into()).next_multiple_of(LIST_MULTIPLE) * 4);
    let gathered = GATHERED_REQUESTS * (length.div_ceil(finest.into()) + u64::from(window) + tokens) * head_dim * site.element_bytes();
    let lists = tokens * (u64::from(top_k) + u64::from(window)).next_multiple_of(LIST_MULTIPLE) * 4;
    vec![
        ("selected entries", tokens * u64::from(top_k) * 4),
        ("lists of coarse entries", listed),
        ("gathered entries and their lists", gathered + lists),
    ]
}

/// Requests whose entries are gathered at once: `DeepseekV4Attention.PREFILL_CHUNK_SIZE`.
const GATHERED_REQUESTS: u64 = 4;

/// Lists are padded to a multiple of this: `_C128A_TOPK_ALIGNMENT`.
const LIST_MULTIPLE: u64 = 128;

/// The pieces of a pass.
pub(super) fn layers(site: &Site<'_>) -> Result<Vec<LoweredLayer>, LoweringError> {
    check(site)?;
    let lanes = site.model.residual_lanes.expect("checked just now");
    let mut pass = Pass::new(site);
    let row = site.element_bytes() * site.model.hidden_size;
    pass.stream(Primitive::Embedding, elementwise::embedding(site), 2 * row);
    pass.all_reduce(row);
    let own = exchange::own_rows(site);
    let mixing = Mixing { lanes: u64::from(lanes.lanes), rows: own };
    let mut first = true;
    for (index, block) in (0..).zip(site.model.layers()) {
        pass.layer = index;
        let attention = attention_of(block).expect("checked just now");
        if first {
            mixing.one_way(&mut pass, MHC_IN, RowRange::ALL);
        } else {
            mixing.between(&mut pass);
        }
        first = false;
        if own == RowSet::Split {
            pass.gather(row);
            attend(&mut pass, attention)?;
            pass.scatter(row);
        } else {
            attend(&mut pass, attention)?;
            pass.all_reduce(row);
        }
        mixing.between(&mut pass);
        let FeedForward::MixtureOfExperts(moe) = &block.feed_forward else { unreachable!("checked just now") };
        feed_forward(&mut pass, moe)?;
    }
    mixing.one_way(&mut pass, MHC_OUT, RowRange::ALL);
    if own == RowSet::Split {
        pass.gather(mixing.lanes * row);
    }
    Mixing { rows: RowSet::Tokens, ..mixing }.one_way(&mut pass, MHC_IN, RowRange::ALL);
    pass.stream(Primitive::Norm, CSRC_RMS_NORM, 2 * row);
    pass.logits()?;
    Ok(pass.pieces)
}

/// The residual lanes of the tokens that a rank holds between sublayers.
#[derive(Debug, Clone, Copy)]
struct Mixing {
    lanes: u64,
    rows: RowSet,
}

impl Mixing {
    /// Mixing lanes one way: all of them twice and the sublayer's side once. The norm of the sublayer's input is part of it.
    fn one_way(self, pass: &mut Pass<'_>, kernel: KernelName, range: RowRange) {
        let row = pass.site.element_bytes() * pass.site.model.hidden_size;
        let one_way = (2 * self.lanes + 1) * row;
        let bytes_per_row = if kernel == MHC_OUT_IN { 2 * one_way } else { one_way };
        pass.push(Primitive::Norm, kernel, PrimitiveShape::Stream { bytes_per_row }, self.rows, range);
    }

    /// Out of one sublayer and into the next.
    fn between(self, pass: &mut Pass<'_>) {
        let (few, many) = split(if Former::NarrowMixing.ran(pass.site) { NARROW_MIXING_MOST_ROWS } else { JOINED_MIXING_MOST_ROWS });
        self.one_way(pass, MHC_OUT_IN, few);
        self.one_way(pass, MHC_OUT, many);
        self.one_way(pass, MHC_IN, many);
    }
}

fn attend(pass: &mut Pass<'_>, attention: &CompressedAttention) -> Result<(), LoweringError> {
    let (site, hidden) = (pass.site, pass.site.model.hidden_size);
    let (rank, head_dim) = (u64::from(attention.query_rank), u64::from(attention.head_dim));
    let heads = attention.query_heads / site.ranks;
    let down = Matrix { columns: rank + head_dim, depth: hidden, format: attention.down_format };
    pass.product_within("query and key projections", down, RowSet::Tokens, RowRange::ALL)?;
    if let Some(compression) = &attention.compression {
        compress_projections(pass, attention, compression)?;
    }
    let plain = site.element_bytes();
    pass.stream(Primitive::Norm, TRITON_QK_LATENT_NORM, 2 * plain * (rank + head_dim));
    let query = u64::from(heads) * head_dim;
    let selection = attention.compression.as_ref().and_then(|compression| compression.selection.as_ref());
    let scoring = selection.map_or(0, |selection| u64::from(selection.heads) * u64::from(selection.head_dim));
    let up = Matrix { columns: query + scoring, depth: rank, format: attention.query_format };
    pass.product_within("query projection", up, RowSet::Tokens, RowRange::ALL)?;
    let kernel_heads = kernel_heads(site, heads)?;
    let padded = u64::from(kernel_heads) * head_dim;
    let compressed = attention.compression.as_ref().map_or(0, |compression| compression_bytes(attention, compression));
    pass.stream(Primitive::Rope, FUSED_KEY_INSERT, plain * (query + padded + head_dim) + scoring * (plain + 1) + compressed);
    if let Some((selection, ratio)) = selection.zip(attention.compression.as_ref().map(|compression| compression.ratio)) {
        let scores = |entry_bytes: u32| PrimitiveShape::Scores {
            heads: selection.heads,
            head_dim: selection.head_dim,
            entry_bytes,
            ratio,
            top_k: selection.top_k,
            ranked: RANKED_SCORES,
            multiplied: FormatName::Fp8,
        };
        let (prompts, decodes) = (scores(SCORE_BYTES), scores(score_bytes(site, selection.head_dim)));
        pass.push(Primitive::SelectionPrefill, DEEPGEMM_SCORES, prompts, RowSet::Requests, RowRange::ALL);
        pass.push(Primitive::SelectionDecode, DEEPGEMM_PAGED_SCORES, decodes, RowSet::Requests, RowRange::ALL);
    }
    let gathered = |entry_bytes| PrimitiveShape::Gathered {
        query_heads: kernel_heads,
        head_dim: attention.head_dim,
        entry_bytes,
        window: attention.window,
        ratio: attention.compression.as_ref().map_or(0, |compression| compression.ratio),
        top_k: selection.map_or(0, |selection| selection.top_k),
        multiplied: FormatName::Bf16,
    };
    // Prompts read entries that were widened and gathered first.
    let widened = attention.head_dim * 2;
    pass.push(Primitive::SparsePrefill, FLASHMLA_SPARSE_PREFILL, gathered(widened), RowSet::Requests, RowRange::ALL);
    pass.push(Primitive::SparseDecode, FLASHMLA_SPARSE_DECODE, gathered(ENTRY_BYTES), RowSet::Requests, RowRange::ALL);
    let quantised = attention.group_format.weights == FormatName::Fp8Block;
    pass.stream(Primitive::Rope, FUSED_INVERSE_ROTATION, plain * query + if quantised { query } else { plain * query });
    let groups = u64::from(attention.output_groups / site.ranks);
    let between = groups * u64::from(attention.output_rank);
    let depth = attention.query_width() / u64::from(attention.output_groups);
    pass.product_within(
        "output projections of groups",
        Matrix { columns: between, depth, format: attention.group_format },
        RowSet::Tokens,
        RowRange::ALL,
    )?;
    pass.product_within(
        "output projection",
        Matrix { columns: hidden, depth: between, format: attention.output_format },
        RowSet::Tokens,
        RowRange::ALL,
    )
}

/// The projections that compressing and scoring start from: beside each other for few rows, one after the other for many.
fn compress_projections(pass: &mut Pass<'_>, attention: &CompressedAttention, compression: &Compression) -> Result<(), LoweringError> {
    let hidden = pass.site.model.hidden_size;
    let mut columns = vec![2 * compression.columns(attention.head_dim)];
    if let Some(selection) = &compression.selection {
        columns.extend([u64::from(selection.heads), 2 * compression.columns(selection.head_dim)]);
    }
    let matrix = |columns| Matrix { columns, depth: hidden, format: compression.format };
    let (few, many) = split(STREAMS_MOST_ROWS);
    let bytes = compression.format.weights.stored_bytes(columns.iter().sum(), hidden);
    pass.push(Primitive::Beside, PROJECTION_STREAMS, PrimitiveShape::Traffic { bytes }, RowSet::Tokens, few);
    columns.into_iter().try_for_each(|columns| pass.product_within("projections to compressed keys", matrix(columns), RowSet::Tokens, many))
}

/// Bytes that compressing moves for each token: its projections written to the state and read back for the vector they are part of.
fn compression_bytes(attention: &CompressedAttention, compression: &Compression) -> u64 {
    let state = |width: u32| FormatName::Fp32.stored_bytes(1, 2 * compression.columns(width));
    let scores = compression.selection.as_ref().map_or(0, |selection| state(selection.head_dim));
    // Overlapping vectors read every state twice.
    let reads = u64::from(compression.reach() / compression.ratio);
    (1 + reads) * (state(attention.head_dim) + scores)
}

fn feed_forward(pass: &mut Pass<'_>, moe: &MixtureOfExperts) -> Result<(), LoweringError> {
    let (site, hidden) = (pass.site, pass.site.model.hidden_size);
    let chosen = experts::choose(site, moe)?;
    let exchange = exchange::around(site, moe, &chosen);
    let router = Matrix { columns: moe.experts.into(), depth: hidden, format: site.router_format(moe) };
    pass.product_within("router", router, exchange.own, RowRange::ALL)?;
    if let Some(shared) = &moe.shared {
        shared_experts(pass, shared, exchange.own)?;
    }
    pass.dispatched(exchange);
    pass.multiplied(moe, &chosen, exchange.at_experts);
    let row = site.element_bytes() * hidden;
    pass.combined(exchange, row);
    if moe.shared.is_some() {
        let shape = PrimitiveShape::Stream { bytes_per_row: 3 * row };
        pass.push(Primitive::Activation, TORCH_ADD, shape, exchange.own, RowRange::ALL);
    }
    if exchange.own == RowSet::Tokens {
        pass.all_reduce(row);
    }
    Ok(())
}

/// Experts that every token passes: beside the routed ones for few rows, in front of them for many.
fn shared_experts(pass: &mut Pass<'_>, shared: &DenseFeedForward, rows: RowSet) -> Result<(), LoweringError> {
    let (site, hidden) = (pass.site, pass.site.model.hidden_size);
    let width = shared_width(site, shared, rows);
    let up = Matrix { columns: 2 * width, depth: hidden, format: shared.up_format };
    let down = Matrix { columns: hidden, depth: width, format: shared.down_format };
    let (few, many) = split(SHARED_BESIDE_MOST_ROWS);
    let bytes = [up, down].iter().map(|matrix| matrix.format.weights.stored_bytes(matrix.columns, matrix.depth)).sum();
    pass.push(Primitive::Beside, SHARED_STREAM, PrimitiveShape::Traffic { bytes }, rows, few);
    pass.product_within("shared experts' gate and up projections", up, rows, many)?;
    let shape = PrimitiveShape::Stream { bytes_per_row: 3 * site.element_bytes() * width };
    pass.push(Primitive::Activation, elementwise::activation(site, elementwise::Input::Plain, true), shape, rows, many);
    pass.product_within("shared experts' down projection", down, rows, many)
}

/// Row counts up to a limit, and above it.
const fn split(most: u32) -> (RowRange, RowRange) {
    (RowRange { least: 0, most }, RowRange { least: most + 1, most: u32::MAX })
}

impl Pass<'_> {
    /// A product with what ranks hold of it.
    fn product_within(&mut self, what: &'static str, matrix: Matrix, rows: RowSet, range: RowRange) -> Result<(), LoweringError> {
        let choice = linear::choose(self.site, what, matrix)?;
        self.gemm_within(matrix, &choice, rows, range);
        Ok(())
    }
}
