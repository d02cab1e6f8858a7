//! Ranks that share every matrix and yet divide the tokens among them, so that none reaches the experts twice.
//!
//! upstream: vllm `config/parallel.py::ParallelConfig.use_sequence_parallel_moe`, and the model files that read it
//! upstream: vllm `model_executor/models/deepseek_v2.py::DeepseekV2DecoderLayer.forward`, `DeepseekV2Model.forward`
//! upstream: vllm `models/deepseek_v32/nvidia/model.py::DeepseekV32DecoderLayer.forward`, `models/common/ops/sequence_parallel.py`
//! upstream: vllm `model_executor/models/qwen3_next.py::Qwen3NextDecoderLayer.forward`, `model_executor/models/qwen3_5.py::Qwen3_5DecoderLayer`
//!
//! Where a rank holds its part of the tokens, what it multiplies them with is whole. Attention sees every token: its input is gathered in
//! front of it, and what the ranks' heads yield is summed in parts behind it. Left out: that the part a rank takes of what it has is
//! copied, and the padding of parts that are not full.

use blis_contracts::model::{FeedForward, LayerBlock};
use blis_contracts::plan::{Primitive, PrimitiveShape, RowRange, RowSet};

use super::elementwise::{self, Input};
use super::names::{INDUCTOR_FUSED, TORCH_COPY};
use super::pass::{Pass, Sum};
use super::site::Site;
use super::{collective, compressed, selected};

/// How the ranks of an engine core divide its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenParts {
    /// Not at all.
    None,
    /// Each takes a part in front of the experts, and the parts are gathered behind them.
    AroundExperts,
    /// Each keeps a part of the residual stream while layers have experts.
    WithExperts,
    /// Each keeps a part of the residual stream from the embedding to the last norm.
    Throughout,
}

const AROUND_EXPERTS: [&str; 5] =
    ["GptOssForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM", "Llama4ForConditionalGeneration", "NemotronHForCausalLM"];

const WITH_EXPERTS: [&str; 3] = ["DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration"];

const THROUGHOUT: [&str; 5] = [
    "DeepseekV32ForCausalLM",
    "DeepseekV4ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
];

impl TokenParts {
    /// How a model's ranks divide tokens: where ranks of several engine cores share experts whole and several share each matrix.
    pub(super) fn of(site: &Site<'_>) -> Self {
        let architecture = &site.model.architecture.as_str();
        if site.cores < 2 || site.ranks < 2 || site.expert_ranks < 2 {
            Self::None
        } else if AROUND_EXPERTS.contains(architecture) {
            Self::AroundExperts
        } else if WITH_EXPERTS.contains(architecture) {
            Self::WithExperts
        } else if THROUGHOUT.contains(architecture) {
            Self::Throughout
        } else {
            Self::None
        }
    }

    /// Whether a rank holds a part of the residual stream in front of a layer's feed-forward part.
    fn hold(self, block: &LayerBlock) -> bool {
        match self {
            Self::None | Self::AroundExperts => false,
            Self::WithExperts => matches!(block.feed_forward, FeedForward::MixtureOfExperts(_)),
            Self::Throughout => true,
        }
    }

    /// The rows that a layer's feed-forward part is given.
    pub(super) fn rows(self, block: &LayerBlock) -> RowSet {
        if self.hold(block) { RowSet::Split } else { RowSet::Tokens }
    }

    /// What joins the embedding to the first layer's attention.
    pub(super) fn behind_embedding(self) -> Joint {
        if self == Self::Throughout { Joint::Gather } else { Joint::Whole }
    }

    /// What joins a layer's attention to its feed-forward part.
    pub(super) fn behind_attention(self, block: &LayerBlock) -> Joint {
        if self.hold(block) { Joint::Scatter } else { Joint::Whole }
    }

    /// What joins a layer to the one behind it, or to the last norm.
    pub(super) fn behind(self, block: &LayerBlock, next: Option<&LayerBlock>) -> Joint {
        if !self.hold(block) {
            Joint::Whole
        } else if self == Self::Throughout || next.is_some_and(|next| self.hold(next)) {
            Joint::Gather
        } else {
            Joint::GatherStream
        }
    }
}

/// Whether a model's code asks for vLLM's own kernels that gather and scatter parts, and pads only where it must.
pub(super) fn has_own_collectives(site: &Site<'_>) -> bool {
    selected::applies(site) || compressed::applies(site)
}

/// What the sum over the ranks and the norm behind it do to the tokens a rank holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Joint {
    /// Every rank has every token on either side.
    #[default]
    Whole,
    /// A rank keeps its part of the sum.
    Scatter,
    /// Parts are normed, and gathered.
    Gather,
    /// Parts are gathered with the residual stream, and normed.
    GatherStream,
}

impl Pass<'_> {
    /// A joint that takes tokens apart or together.
    pub(super) fn join(&mut self, joint: Joint, sum: Sum, next: Input) {
        let (site, hidden) = (self.site, self.site.model.hidden_size);
        let row = site.element_bytes() * hidden;
        match joint {
            Joint::Whole => unreachable!("summed and normed by `sum_and_norm`"),
            Joint::Scatter => {
                if !has_own_collectives(site) {
                    // Padding copies what is to be summed, even where there is nothing to pad.
                    self.stream(Primitive::Activation, elementwise::pad(site), 2 * row);
                }
                self.scatter(row);
                self.norm(sum.adds, next, RowSet::Split, RowRange::ALL);
            }
            Joint::Gather => {
                if sum.needed {
                    self.all_reduce(row);
                }
                self.norm(sum.adds, Input::Plain, RowSet::Split, RowRange::ALL);
                self.gather(row);
                self.quantise_if_needed(next, hidden, RowSet::Tokens, RowRange::ALL);
            }
            Joint::GatherStream => {
                let kernel = if site.compiled() { INDUCTOR_FUSED } else { TORCH_COPY };
                let copied = PrimitiveShape::Stream { bytes_per_row: 4 * row };
                self.push(Primitive::Activation, kernel, copied, RowSet::Split, RowRange::ALL);
                self.gather(2 * row);
                self.norm(sum.adds, next, RowSet::Tokens, RowRange::ALL);
            }
        }
    }

    /// Gathers the ranks' parts.
    pub(super) fn gather(&mut self, bytes_per_row: u64) {
        let shape = PrimitiveShape::Collective { group: self.site.ranks, bytes_per_row };
        for (range, kernel) in collective::all_gather(self.site, bytes_per_row) {
            self.push(Primitive::AllGather, kernel, shape, RowSet::Split, range);
        }
    }

    /// Sums over the ranks, of which each keeps its part.
    pub(super) fn scatter(&mut self, bytes_per_row: u64) {
        let shape = PrimitiveShape::Collective { group: self.site.ranks, bytes_per_row };
        for (range, kernel) in collective::reduce_scatter(self.site, bytes_per_row) {
            self.push(Primitive::ReduceScatter, kernel, shape, RowSet::Split, range);
        }
    }
}
