//! One forward pass on one rank, piece by piece, in the order it runs.
//!
//! upstream: vllm `model_executor/models/llama.py::LlamaModel.forward`, `model_executor/models/gpt_oss.py::GptOssModel.forward`
//! upstream: vllm `model_executor/layers/logits_processor.py::LogitsProcessor._get_logits`
//!
//! With expert parallelism every rank has every token already, as tensor-parallel ranks do, so nothing is exchanged in front of the
//! experts; each rank's partial output is summed behind them.
//!
//! A sum over the ranks and the norm behind it are one kernel for few rows and several for many. Writing keys and values to the
//! cache belongs to attention, choosing experts and their activation to the experts; both are priced with them.

use blis_contracts::format::MatmulFormat;
use blis_contracts::model::{Attention, FeedForward, GroupedQueryAttention, LayerBlock};
use blis_contracts::part::Part;
use blis_contracts::plan::{LoweredLayer, Primitive, PrimitiveShape, RowRange, RowSet};

use super::collective::{all_reduce, all_reduce_of_squares, fused_rows};
use super::elementwise::{self, Input};
use super::feed_forward::into_feed_forward;
use super::former::Former;
use super::linear::{self, LinearChoice, Matrix};
use super::names::{
    CSRC_QK_NORM_ALL_REDUCE, CSRC_QK_NORM_ROPE, CSRC_QK_NORM_ROPE_INSERT, CSRC_QUANTISE, FLASH_ATTN_SHARE_OUT, FLASHINFER_MXFP8_QUANTISE,
    FUSED_ALL_REDUCE_NORM, INDUCTOR_FUSED, KernelName, NCCL_ALL_GATHER, NCCL_SEND, TORCH_COPY, TORCH_SAMPLER, TRITON_QK_NORM,
    TRITON_SAMPLER,
};
use super::parts::{Joint, TokenParts};
use super::site::Site;
use super::{LoweringError, attention, dependents, latent, mamba2, recurrent, stages};

/// Bytes of a request that FlashAttention 3 reads and writes to share out its blocks: tokens, blocks, parts and its place, in 32 bits each.
const SHARE_BYTES: u64 = 4 * 4;

/// Rows up to which norms over all heads and their sum are one kernel: `MINIMAX_QK_NORM_MAX_TOKEN_NUM`.
pub(super) const QK_NORM_MOST_ROWS: u32 = 2048;

/// The pieces of a pass. `kv_group` names each layer's KV group.
pub(super) fn layers(site: &Site<'_>, kv_group: &[u32]) -> Result<Vec<LoweredLayer>, LoweringError> {
    let blocks: Vec<&LayerBlock> = site.model.layers().collect();
    let mut pass = Pass::new(site);
    let hidden = site.model.hidden_size;
    let row = site.element_bytes() * hidden;
    pass.stream(Primitive::Embedding, elementwise::embedding(site), 2 * row);
    let first = blocks.first().map(|block| into_attention(site, block)).transpose()?;
    let parts = TokenParts::of(site);
    pass.joint = parts.behind_embedding();
    // Where a model's own code fuses sums and norms, it fuses none behind the embedding.
    pass.sum_and_norm(Sum { adjacent: !site.fuses_sums_itself(), ..Sum::of_embedding(hidden) }, first.unwrap_or(Input::Plain));
    // One past the last layer of each stage that another follows.
    let ends: Vec<usize> = stages::layers(site).iter().rev().skip(1).map(|layers| layers.end).collect();
    for (index, block) in (0..).zip(&blocks) {
        pass.layer = index;
        pass.hands_over = false;
        pass.joint = parts.behind_attention(block);
        let next = blocks.get(index as usize + 1).map(|block| into_attention(site, block)).transpose()?.unwrap_or(Input::Plain);
        let (group, behind) = (kv_group[index as usize], into_feed_forward(site, block)?.unwrap_or(next));
        match &block.attention {
            Attention::GroupedQuery(attention) => pass.attention(attention, group, behind)?,
            Attention::Latent(attention) => match &attention.selection {
                Some(selection) => pass.selected(attention, selection, group, behind)?,
                None => pass.latent(attention, group, behind)?,
            },
            Attention::Compressed(_) => unreachable!("lowered by `compressed`"),
            Attention::GatedDelta(rule) => pass.delta(rule, behind)?,
            Attention::Mamba2(space) => pass.mamba2(space, behind)?,
        }
        pass.hands_over = ends.contains(&(index as usize + 1));
        pass.joint = parts.behind(block, blocks.get(index as usize + 1).copied());
        match &block.feed_forward {
            FeedForward::Dense(dense) => {
                let rows = parts.rows(block);
                pass.network(dense, rows, RowRange::ALL)?;
                pass.sum_and_norm(Sum { width: hidden, adds: true, adjacent: true, needed: rows == RowSet::Tokens }, next);
            }
            FeedForward::MixtureOfExperts(moe) => pass.experts(moe, next)?,
            FeedForward::Absent => {}
        }
    }
    pass.logits()?;
    Ok(pass.pieces)
}

/// What the attention part wants its norm to write.
fn into_attention(site: &Site<'_>, block: &LayerBlock) -> Result<Input, LoweringError> {
    Ok(Input::of(&match &block.attention {
        Attention::GroupedQuery(attention) => qkv(site, attention)?,
        Attention::Latent(attention) => latent::down(site, attention)?.1,
        Attention::Compressed(_) => unreachable!("lowered by `compressed`"),
        Attention::GatedDelta(rule) => recurrent::input(site, rule)?.1,
        Attention::Mamba2(space) => mamba2::input(site, space)?.1,
    }))
}

/// The fused query, key and value projection.
pub(super) fn qkv(site: &Site<'_>, attention: &GroupedQueryAttention) -> Result<LinearChoice, LoweringError> {
    let matrix = Matrix { columns: site.qkv_columns(attention), depth: site.model.hidden_size, format: attention.qkv_format };
    linear::choose(site, "query, key and value projections", matrix)
}

/// A sum over the ranks with the norm behind it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sum {
    /// Width of what is summed.
    pub(super) width: u64,
    /// Whether the norm adds the residual stream.
    pub(super) adds: bool,
    /// Whether nothing stands between sum and norm.
    pub(super) adjacent: bool,
    /// Whether there is anything to sum.
    pub(super) needed: bool,
}

impl Sum {
    const fn of_embedding(width: u64) -> Self {
        Self { width, adds: false, adjacent: true, needed: true }
    }
}

pub(super) struct Pass<'a> {
    pub(super) site: &'a Site<'a>,
    pub(super) layer: u32,
    stage: u32,
    /// Whether the next sum is the last of its stage.
    hands_over: bool,
    /// The part of a step that the next pieces serve.
    part: Part,
    /// What the next sum does to the tokens a rank holds.
    joint: Joint,
    pub(super) pieces: Vec<LoweredLayer>,
}

impl<'a> Pass<'a> {
    /// A pass without pieces.
    pub(super) fn new(site: &'a Site<'a>) -> Self {
        Self { site, layer: 0, stage: 0, hands_over: false, part: Part::Whole, joint: Joint::Whole, pieces: Vec::new() }
    }
}

impl Pass<'_> {
    pub(super) fn push(&mut self, primitive: Primitive, kernel: KernelName, shape: PrimitiveShape, rows: RowSet, runs_for: RowRange) {
        let Self { layer, stage, part, .. } = *self;
        let start = dependents::start(self.site, kernel);
        self.pieces.push(LoweredLayer { layer, stage, primitive, kernel: kernel.to_impl(), shape, part, rows, runs_for, start });
    }

    /// Pushes pieces that serve a part of a step alone.
    pub(super) fn over<T>(&mut self, part: Part, push: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.part, part);
        let pushed = push(self);
        self.part = before;
        pushed
    }

    pub(super) fn stream(&mut self, primitive: Primitive, kernel: KernelName, bytes_per_row: u64) {
        self.push(primitive, kernel, PrimitiveShape::Stream { bytes_per_row }, RowSet::Tokens, RowRange::ALL);
    }

    pub(super) fn gemm(&mut self, matrix: Matrix, choice: &LinearChoice, rows: RowSet) {
        self.gemm_within(matrix, choice, rows, RowRange::ALL);
    }

    pub(super) fn gemm_within(&mut self, matrix: Matrix, choice: &LinearChoice, rows: RowSet, within: RowRange) {
        let shape = PrimitiveShape::Gemm { columns: matrix.columns, depth: matrix.depth, format: choice.format };
        for (range, kernel) in &choice.kernels {
            if let Some(range) = intersection(*range, within) {
                self.push(Primitive::Gemm, *kernel, shape, rows, range);
            }
        }
    }

    /// A quantisation of its own: reads activations, writes what the matrix reads.
    pub(super) fn quantise(&mut self, input: Input, width: u64, rows: RowSet, range: RowRange) {
        let plain = self.site.element_bytes();
        let bytes_per_row = plain * width + input.bytes(width, plain);
        let kernel = if input == Input::Mxfp8 { FLASHINFER_MXFP8_QUANTISE } else { CSRC_QUANTISE };
        self.push(Primitive::Activation, kernel, PrimitiveShape::Stream { bytes_per_row }, rows, range);
    }

    pub(super) fn quantise_if_needed(&mut self, input: Input, width: u64, rows: RowSet, range: RowRange) {
        if input != Input::Plain {
            self.quantise(input, width, rows, range);
        }
    }

    /// A sum over the ranks, the norm, and the quantisation for what comes next.
    pub(super) fn sum_and_norm(&mut self, sum: Sum, next: Input) {
        match std::mem::take(&mut self.joint) {
            Joint::Whole => {}
            joint @ (Joint::Scatter | Joint::Gather | Joint::GatherStream) => return self.join(joint, sum, next),
        }
        let site = self.site;
        let bytes_per_row = site.element_bytes() * sum.width;
        let collective = PrimitiveShape::Collective { group: site.ranks, bytes_per_row };
        let hidden = site.model.hidden_size;
        let hands_over = std::mem::take(&mut self.hands_over);
        let fused = fused_rows(site).filter(|_| sum.adjacent && sum.needed && !hands_over);
        if let Some(range) = fused {
            self.push(Primitive::AllReduce, FUSED_ALL_REDUCE_NORM, collective, RowSet::Tokens, range);
            if !elementwise::fused_all_reduce_quantises(site, next) {
                self.quantise(next, hidden, RowSet::Tokens, range);
            }
        }
        let Some(rest) = fused.map_or(Some(RowRange::ALL), above) else { return };
        if site.ranks > 1 && sum.needed {
            for (range, kernel) in all_reduce(site, bytes_per_row) {
                if let Some(range) = intersection(range, rest) {
                    self.push(Primitive::AllReduce, kernel, collective, RowSet::Tokens, range);
                }
            }
        }
        if hands_over {
            self.hand_over();
        }
        self.norm(sum.adds, next, RowSet::Tokens, rest);
        if fused.is_some() && Former::SumsWithinShare.ran(site) {
            let bytes_per_row = 2 * bytes_per_row;
            self.push(Primitive::Activation, TORCH_COPY, PrimitiveShape::Stream { bytes_per_row }, RowSet::Tokens, rest);
        }
    }

    /// A norm, and the quantisation for what comes next.
    pub(super) fn norm(&mut self, adds: bool, next: Input, rows: RowSet, range: RowRange) {
        let (site, hidden) = (self.site, self.site.model.hidden_size);
        let quantised = elementwise::norm_quantises(site, next);
        let row = site.element_bytes() * hidden;
        let written = if quantised { next.bytes(hidden, site.element_bytes()) } else { row };
        // Reads the sum, and where it adds reads and writes the residual stream.
        let bytes_per_row = row + written + if adds { 2 * row } else { 0 };
        self.push(Primitive::Norm, elementwise::norm(site), PrimitiveShape::Stream { bytes_per_row }, rows, range);
        if !quantised {
            self.quantise(next, hidden, rows, range);
        }
    }

    /// From a stage to the next go the layer's output and the residual stream, a part of each from every rank, which the ranks of the
    /// next stage gather. upstream: vllm `v1/worker/gpu_worker.py::Worker.execute_model`, `distributed/parallel_state.py::GroupCoordinator.isend_tensor_dict`
    fn hand_over(&mut self) {
        let ranks = self.site.ranks;
        let bytes_per_row = self.site.element_bytes() * self.site.model.hidden_size / u64::from(ranks);
        for _ in 0..2 {
            let sent = PrimitiveShape::Collective { group: 2, bytes_per_row };
            self.push(Primitive::Send, NCCL_SEND, sent, RowSet::Tokens, RowRange::ALL);
        }
        self.stage += 1;
        for _ in (0..2).filter(|_| ranks > 1) {
            let gathered = PrimitiveShape::Collective { group: ranks, bytes_per_row };
            self.push(Primitive::AllGather, NCCL_ALL_GATHER, gathered, RowSet::Tokens, RowRange::ALL);
        }
    }

    fn attention(&mut self, attention: &GroupedQueryAttention, kv_group: u32, next: Input) -> Result<(), LoweringError> {
        let site = self.site;
        let (columns, hidden) = (site.qkv_columns(attention), site.model.hidden_size);
        let choice = qkv(site, attention)?;
        self.gemm(Matrix { columns, depth: hidden, format: attention.qkv_format }, &choice, RowSet::Tokens);
        if site.is_minimax_m3() {
            self.stream(Primitive::Rope, CSRC_QK_NORM_ROPE_INSERT, 2 * columns * site.element_bytes());
        } else if elementwise::turns_as_it_norms(site) {
            self.stream(Primitive::Rope, CSRC_QK_NORM_ROPE, 2 * site.query_and_key_width(attention) * site.element_bytes());
        } else {
            self.qk_norm(attention);
            self.turn(attention);
        }
        match &attention.indexer {
            Some(indexer) => self.block_sparse(attention, indexer, kv_group),
            None => self.attend(attention, kv_group),
        }
        self.project_output(attention)?;
        self.sum_and_norm(Sum { width: hidden, adds: true, adjacent: true, needed: true }, next);
        Ok(())
    }

    /// What attention yields, gated where it is, and its projection; the ranks' answers are not summed.
    pub(super) fn project_output(&mut self, attention: &GroupedQueryAttention) -> Result<(), LoweringError> {
        let site = self.site;
        let depth = site.output_depth(attention);
        if attention.output_gate {
            // Attention's output and the gate are read, their product is written.
            self.stream(Primitive::Activation, INDUCTOR_FUSED, 3 * depth * site.element_bytes());
        }
        let output = Matrix { columns: site.model.hidden_size, depth, format: attention.output_format };
        let choice = linear::choose(site, "output projection", output)?;
        let input = Input::of(&choice);
        if input != Input::Plain && (attention.output_gate || !attention::quantises_output(site, attention)) {
            self.quantise(input, depth, RowSet::Tokens, RowRange::ALL);
        }
        self.gemm(output, &choice, RowSet::Tokens);
        Ok(())
    }

    /// The rotation of queries and keys, or what stands in its place where positions turn nothing.
    fn turn(&mut self, attention: &GroupedQueryAttention) {
        let site = self.site;
        if attention.rotated() > 0 {
            // The turned part of queries and keys, read and written.
            let (queries, keys) = (site.query_heads(attention), site.kv_heads(attention));
            let together = !Former::UnmergedAttention.ran(site) || elementwise::rope(site) != INDUCTOR_FUSED;
            for heads in if together { vec![queries + keys] } else { vec![queries, keys] } {
                let turned = u64::from(heads) * u64::from(attention.rotated()) * site.element_bytes();
                self.stream(Primitive::Rope, elementwise::rope(site), 2 * turned);
            }
        } else if site.is_llama4() {
            self.scale_queries(attention);
        }
    }

    /// Attention to the context, a window of it or a chunk of it.
    pub(super) fn attend(&mut self, attention: &GroupedQueryAttention, kv_group: u32) {
        let site = self.site;
        let shape = PrimitiveShape::Attention {
            query_heads: site.query_heads(attention),
            kv_heads: site.kv_heads(attention),
            head_dim: attention.head_dim,
            kv_group,
            window: attention.window.unwrap_or(0),
            chunk: attention.chunk.unwrap_or(0),
            sinks: attention.sinks,
            kv_format: site.kv_format(),
            dealing: attention::dealing(site, attention),
        };
        let width = u64::from(site.query_heads(attention)) * u64::from(attention.head_dim);
        if Former::UnmergedAttention.ran(site) {
            let element = if attention::quantises_output(site, attention) { 1 } else { site.element_bytes() };
            self.stream(Primitive::Activation, elementwise::native(site), element * width);
        }
        if let Some(kernel) = attention::query_quantisation(site, attention) {
            self.stream(Primitive::Activation, kernel, width * (site.element_bytes() + 1));
        }
        if attention::shares_out(site, attention) {
            // A few numbers of each request, of which there are no more than tokens.
            self.stream(Primitive::Activation, FLASH_ATTN_SHARE_OUT, SHARE_BYTES);
        }
        let prefill = attention::prefill(site, attention);
        self.push(Primitive::AttentionPrefill, prefill, shape, RowSet::Requests, RowRange::ALL);
        let decode = attention::decode(site, attention);
        self.push(Primitive::AttentionDecode, decode, shape, RowSet::Requests, RowRange::ALL);
    }

    /// The norms of queries and keys, where they are not part of the compiled kernel that turns them: what they divide by is, where it is of one
    /// head and the compiler writes both, and is a kernel in front of it where it is of all.
    fn qk_norm(&mut self, attention: &GroupedQueryAttention) {
        let site = self.site;
        let bytes = site.query_and_key_width(attention) * site.element_bytes();
        match (attention.qk_norm, attention.qk_norm_spans_heads) {
            (false, _) => {}
            (true, false) if !elementwise::norms_by_itself(site) && elementwise::rope(site) == INDUCTOR_FUSED => {}
            (true, false) => self.stream(Primitive::Norm, elementwise::norm(site), 2 * bytes),
            (true, true) if site.ranks > 1 => self.qk_norm_over_ranks(bytes),
            (true, true) if site.compiled() => self.stream(Primitive::Norm, INDUCTOR_FUSED, bytes),
            (true, true) => self.stream(Primitive::Norm, TRITON_QK_NORM, 2 * bytes),
        }
    }

    /// Norms over all heads, which need a sum of squares over the ranks: one kernel for few rows, else Triton, sum and Triton again.
    /// upstream: vllm `model_executor/layers/minimax_rms_norm/rms_norm_tp.py::_minimax_qk_norm_fusion`
    fn qk_norm_over_ranks(&mut self, bytes: u64) {
        // Two sums of 32 bits.
        let shape = PrimitiveShape::Collective { group: self.site.ranks, bytes_per_row: 8 };
        if Former::SpanningNormsApart.ran(self.site) && !self.site.resolved.rules.fuses_spanning_norms {
            self.stream(Primitive::Norm, elementwise::native(self.site), bytes + 8);
            return self.sum_squares(shape, RowRange::ALL);
        }
        let few = RowRange { least: 0, most: QK_NORM_MOST_ROWS };
        self.push(Primitive::AllReduce, CSRC_QK_NORM_ALL_REDUCE, shape, RowSet::Tokens, few);
        let Some(many) = above(few) else { return };
        let read = PrimitiveShape::Stream { bytes_per_row: bytes + 8 };
        self.push(Primitive::Norm, TRITON_QK_NORM, read, RowSet::Tokens, many);
        self.sum_squares(shape, many);
        let apply = PrimitiveShape::Stream { bytes_per_row: 2 * bytes + 8 };
        self.push(Primitive::Norm, TRITON_QK_NORM, apply, RowSet::Tokens, many);
    }

    /// Sums of squares over the ranks.
    fn sum_squares(&mut self, shape: PrimitiveShape, rows: RowRange) {
        for (range, kernel) in all_reduce_of_squares(self.site, 8) {
            if let Some(range) = intersection(range, rows) {
                self.push(Primitive::AllReduce, kernel, shape, RowSet::Tokens, range);
            }
        }
    }

    /// A sum over the ranks with nothing around it.
    pub(super) fn all_reduce(&mut self, bytes_per_row: u64) {
        let shape = PrimitiveShape::Collective { group: self.site.ranks, bytes_per_row };
        if self.site.ranks > 1 {
            for (range, kernel) in all_reduce(self.site, bytes_per_row) {
                self.push(Primitive::AllReduce, kernel, shape, RowSet::Tokens, range);
            }
        }
    }

    pub(super) fn logits(&mut self) -> Result<(), LoweringError> {
        let site = self.site;
        let vocabulary = site.share(site.padded_vocabulary());
        let matrix = Matrix { columns: vocabulary, depth: site.model.hidden_size, format: output_format(site) };
        let choice = linear::choose(site, "output embedding", matrix)?;
        self.gemm(matrix, &choice, RowSet::Sampled);
        if site.ranks > 1 {
            let shape = PrimitiveShape::Collective { group: site.ranks, bytes_per_row: site.element_bytes() * vocabulary };
            self.push(Primitive::AllGather, NCCL_ALL_GATHER, shape, RowSet::Sampled, RowRange::ALL);
            // What lies rank by rank is laid row by row. upstream: vllm `distributed/device_communicators/cuda_communicator.py::CudaCommunicator.all_gather`
            let copied = PrimitiveShape::Stream { bytes_per_row: 2 * site.element_bytes() * u64::from(site.ranks) * vocabulary };
            self.push(Primitive::Activation, TORCH_COPY, copied, RowSet::Sampled, RowRange { least: 2, most: u32::MAX });
        }
        if site.is_gemma4() {
            self.cap_logits();
        }
        // The second runner's profiling step samples the logits as they are. The first one's copies them to 32 bits, filters, and draws
        // from probabilities beside as much noise.
        // upstream: vllm `v1/worker/gpu/model_runner.py::GPUModelRunner._dummy_sampler_run`, `v1/worker/gpu_model_runner.py` alike
        let (kernel, trial_bytes) =
            if site.resolved.model_runner_v2 { (TRITON_SAMPLER, site.element_bytes()) } else { (TORCH_SAMPLER, site.element_bytes() + 12) };
        let shape = PrimitiveShape::Sampling { vocabulary: site.model.vocab_size, trial_bytes };
        self.push(Primitive::Sampling, kernel, shape, RowSet::Sampled, RowRange::ALL);
        Ok(())
    }
}

/// How the output embedding is stored.
pub(super) fn output_format(site: &Site<'_>) -> MatmulFormat {
    site.model.output_projection
}

/// The row counts above a range.
pub(super) fn above(range: RowRange) -> Option<RowRange> {
    (range.most < u32::MAX).then(|| RowRange { least: range.most + 1, most: u32::MAX })
}

pub(super) fn intersection(a: RowRange, b: RowRange) -> Option<RowRange> {
    let range = RowRange { least: a.least.max(b.least), most: a.most.min(b.most) };
    (range.least <= range.most).then_some(range)
}
