//! The layers of Gemma 4: a norm before and one behind every part, and in some models experts beside the network of every layer.
//!
//! upstream: vllm `model_executor/models/gemma4.py::Gemma4DecoderLayer.forward`, `Gemma4Attention.forward`, `Gemma4Router.forward`
//! upstream: vllm `model_executor/models/gemma4_mm.py::Gemma4ForConditionalGeneration.forward`, `model_executor/layers/logits_processor.py::LogitsProcessor.forward`
//! upstream: vllm `compilation/passes/fusion/allreduce_rms_fusion.py::AllReduceRMSNormPattern`
//!
//! Network and experts read the same residual stream, each through a norm of its own, and each sums over the ranks by itself. Between two
//! products the compiler writes one kernel of whatever norms, sums and scales stand there; where norms are a custom operation, each is a
//! kernel. A sum over the ranks with the norm behind it may be one kernel, which is handed a residual stream of zeros. The keys' matrix is
//! kept twice where values are keys, and multiplied twice.

use blis_contracts::model::{Attention, FeedForward, GroupedQueryAttention, LayerBlock, ModelGraph};
use blis_contracts::plan::{LoweredLayer, Primitive, PrimitiveShape, RowRange, RowSet};

use super::LoweringError;
use super::collective::{all_reduce, fused_rows};
use super::elementwise::{self, Input};
use super::linear::{self, Matrix};
use super::names::{FUSED_ALL_REDUCE_NORM, INDUCTOR_FUSED, KernelName, TORCH_ADD, TORCH_ELEMENTWISE, TORCH_EMBEDDING};
use super::pass::{Pass, Sum, above, intersection, qkv};
use super::site::Site;

/// Norms over the residual stream in a layer.
pub(super) fn norms(block: &LayerBlock) -> u32 {
    if matches!(block.feed_forward, FeedForward::MixtureOfExperts(_)) { 7 } else { 4 }
}

/// Refuses layers that no model of the family has, and widths that the ranks cannot share.
pub(super) fn check(site: &Site<'_>) -> Result<(), LoweringError> {
    for block in site.model.blocks.values() {
        let network = match &block.feed_forward {
            FeedForward::Dense(dense) => Some(dense),
            FeedForward::MixtureOfExperts(moe) => moe.shared.as_ref().filter(|_| moe.latent.is_none()),
            FeedForward::Absent => None,
        };
        let Some(network) = network.filter(|_| matches!(block.attention, Attention::GroupedQuery(_))) else {
            let reason = "has layers that no model of its architecture has".to_owned();
            return Err(LoweringError::NotModelled { model: site.model.name.clone(), reason, instead: "" });
        };
        site.check_width("an intermediate size", network.intermediate_size)?;
    }
    Ok(())
}

/// Elements of a position in the tables that turn heads: one table for each kind of layers, over the whole head.
pub(super) fn rotated(model: &ModelGraph) -> u32 {
    model.blocks.values().map(|block| grouped_query(block).head_dim).sum()
}

/// The pieces of a pass. `kv_group` names each layer's KV group.
pub(super) fn layers(site: &Site<'_>, kv_group: &[u32]) -> Result<Vec<LoweredLayer>, LoweringError> {
    let blocks: Vec<&LayerBlock> = site.model.layers().collect();
    let mut pass = Pass::new(site);
    pass.embed();
    let into = |block: Option<&&LayerBlock>| -> Result<Input, LoweringError> {
        block.map_or(Ok(Input::Plain), |block| Ok(Input::of(&qkv(site, grouped_query(block))?)))
    };
    pass.between(&[], Between { norms: 1, sums: 0, scales: 0, reads: 1, writes: 1 });
    pass.quantise_if_needed(into(blocks.first())?, site.model.hidden_size, RowSet::Tokens, RowRange::ALL);
    for (index, block) in (0..).zip(&blocks) {
        pass.layer = index;
        let attended = pass.attend_normed(grouped_query(block), kv_group[index as usize])?;
        let summed = pass.feed(block, attended)?;
        let next = blocks.get(index as usize + 1);
        pass.leave(&summed, next.is_some());
        pass.quantise_if_needed(into(next)?, site.model.hidden_size, RowSet::Tokens, RowRange::ALL);
    }
    pass.logits()?;
    Ok(pass.pieces)
}

fn grouped_query(block: &LayerBlock) -> &GroupedQueryAttention {
    match &block.attention {
        Attention::GroupedQuery(attention) => attention,
        Attention::Latent(_) | Attention::Compressed(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => {
            unreachable!("refused by `check`")
        }
    }
}

/// What stands between two products beside the norms of what ranks sum, in rows of the residual stream's width.
#[derive(Debug, Clone, Copy)]
struct Between {
    norms: u32,
    sums: u32,
    scales: u32,
    /// Rows that one kernel of all of it reads and writes.
    reads: u64,
    writes: u64,
}

impl Pass<'_> {
    fn row(&self) -> u64 {
        self.site.element_bytes() * self.site.model.hidden_size
    }

    /// Embeddings, scaled. Where images could come, their embeddings are put among those of text before anything compiled runs.
    fn embed(&mut self) {
        let (site, row) = (self.site, self.row());
        let compiled = site.compiled() && (site.model.encoders.is_empty() || site.resolved.language_model_only);
        let (embedding, scale) = if compiled { (INDUCTOR_FUSED, INDUCTOR_FUSED) } else { (TORCH_EMBEDDING, TORCH_ELEMENTWISE) };
        self.stream(Primitive::Embedding, embedding, 2 * row);
        self.all_reduce(row);
        self.stream(Primitive::Embedding, scale, 2 * row);
    }

    /// One kernel of everything, or one for each norm, sum and scale. `summed` holds the rows for which each norm of a sum is still to do.
    fn between(&mut self, summed: &[Option<RowRange>], between: Between) {
        let (site, row) = (self.site, self.row());
        if !elementwise::norms_by_itself(site) {
            self.stream(Primitive::Norm, INDUCTOR_FUSED, (between.reads + between.writes) * row);
            return;
        }
        let norm = PrimitiveShape::Stream { bytes_per_row: 2 * row };
        for range in summed.iter().flatten() {
            self.push(Primitive::Norm, elementwise::norm(site), norm, RowSet::Tokens, *range);
        }
        for _ in 0..between.norms {
            self.stream(Primitive::Norm, elementwise::norm(site), 2 * row);
        }
        let own = |eager: KernelName| if site.compiled() { INDUCTOR_FUSED } else { eager };
        for _ in 0..between.sums {
            self.stream(Primitive::Activation, own(TORCH_ADD), 3 * row);
        }
        for _ in 0..between.scales {
            self.stream(Primitive::Activation, own(TORCH_ELEMENTWISE), 2 * row);
        }
    }

    /// A sum over the ranks, with the norm behind it where one kernel does both. Returns the rows for which that norm is still to do.
    fn sum(&mut self, sum: Sum) -> Option<RowRange> {
        let site = self.site;
        let bytes_per_row = site.element_bytes() * sum.width;
        let shape = PrimitiveShape::Collective { group: site.ranks, bytes_per_row };
        let fused = fused_rows(site).filter(|_| sum.adjacent && sum.needed);
        if let Some(range) = fused {
            let zeros = PrimitiveShape::Stream { bytes_per_row };
            self.push(Primitive::Activation, INDUCTOR_FUSED, zeros, RowSet::Tokens, range);
            self.push(Primitive::AllReduce, FUSED_ALL_REDUCE_NORM, shape, RowSet::Tokens, range);
        }
        let rest = fused.map_or(Some(RowRange::ALL), above)?;
        if site.ranks > 1 && sum.needed {
            for (range, kernel) in all_reduce(site, bytes_per_row) {
                if let Some(range) = intersection(range, rest) {
                    self.push(Primitive::AllReduce, kernel, shape, RowSet::Tokens, range);
                }
            }
        }
        Some(rest)
    }

    fn whole_sum(&mut self) -> Option<RowRange> {
        self.sum(Sum { width: self.site.model.hidden_size, adds: false, adjacent: true, needed: true })
    }

    /// Attention; queries and keys are normed with weights and turned, values normed without.
    fn attend_normed(&mut self, attention: &GroupedQueryAttention, kv_group: u32) -> Result<Option<RowRange>, LoweringError> {
        let site = self.site;
        let columns = site.qkv_columns(attention);
        let choice = qkv(site, attention)?;
        self.gemm(Matrix { columns, depth: site.model.hidden_size, format: attention.qkv_format }, &choice, RowSet::Tokens);
        let normed = 2 * columns * site.element_bytes();
        if elementwise::norms_by_itself(site) || site.custom_op("rotary_embedding") {
            self.stream(Primitive::Norm, elementwise::norm(site), normed);
            self.stream(Primitive::Rope, elementwise::rope(site), 2 * site.query_and_key_width(attention) * site.element_bytes());
        } else {
            self.stream(Primitive::Rope, INDUCTOR_FUSED, normed);
        }
        self.attend(attention, kv_group);
        self.project_output(attention)?;
        Ok(self.whole_sum())
    }

    /// The network of a layer, and the experts beside it, behind attention whose answer is normed for some rows already.
    fn feed(&mut self, block: &LayerBlock, attended: Option<RowRange>) -> Result<Vec<Option<RowRange>>, LoweringError> {
        let (site, hidden) = (self.site, self.site.model.hidden_size);
        let (dense, moe) = match &block.feed_forward {
            FeedForward::Dense(dense) => (dense, None),
            FeedForward::MixtureOfExperts(moe) => (moe.shared.as_ref().expect("others are refused by `check`"), Some(moe)),
            FeedForward::Absent => unreachable!("refused by `check`"),
        };
        // Attention's answer is normed and added; the stream is normed for the network, and once more for experts and for their router.
        let (beside, scales) = if moe.is_some() { (2, 2) } else { (0, 0) };
        self.between(&[attended], Between { norms: 1 + beside, sums: 1, scales, reads: 2, writes: 2 + u64::from(beside) });
        let columns = site.share(dense.intermediate_size) * if dense.gated { 2 } else { 1 };
        let up = linear::choose(site, "gate and up projections", Matrix { columns, depth: hidden, format: dense.up_format })?;
        self.quantise_if_needed(Input::of(&up), hidden, RowSet::Tokens, RowRange::ALL);
        self.network(dense, RowSet::Tokens, RowRange::ALL)?;
        let mut summed = vec![self.whole_sum()];
        if let Some(moe) = moe {
            let sum = self.picked(moe, None)?;
            summed.push(self.sum(sum));
        }
        Ok(summed)
    }

    /// From the answers of network and experts to the next layer's input, or to what logits are computed from.
    fn leave(&mut self, summed: &[Option<RowRange>], goes_on: bool) {
        let writes = if goes_on { 2 } else { 1 };
        let between = match summed.len() {
            1 => Between { norms: 1, sums: 1, scales: 1, reads: 2, writes },
            _ => Between { norms: 2, sums: 2, scales: 1, reads: 3, writes },
        };
        self.between(summed, between);
    }

    /// Logits are divided, bent and multiplied back by kernels of their own, on every rank.
    pub(super) fn cap_logits(&mut self) {
        let bytes_per_row = 2 * self.site.element_bytes() * self.site.model.vocab_size;
        for _ in 0..3 {
            let shape = PrimitiveShape::Stream { bytes_per_row };
            self.push(Primitive::Activation, TORCH_ELEMENTWISE, shape, RowSet::Sampled, RowRange::ALL);
        }
    }
}
