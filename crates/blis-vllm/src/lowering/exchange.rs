//! How the tokens of engine cores in lockstep meet their experts: all gathered before, and sums scattered after; or each sent to its own
//! experts by `DeepEP`, and what they yield sent back.
//!
//! upstream: vllm `distributed/device_communicators/all2all.py::AgRsAll2AllManager`
//! upstream: vllm `model_executor/layers/fused_moe/prepare_finalize/naive_dp_ep.py::MoEPrepareAndFinalizeNaiveDPEPModular`, `MoEPrepareAndFinalizeNaiveDPEPMonolithic`
//! upstream: vllm `model_executor/layers/fused_moe/prepare_finalize/deepep_ht.py::DeepEPHTPrepareAndFinalize`
//! upstream: vllm `model_executor/layers/fused_moe/prepare_finalize/deepep_ll.py::DeepEPLLPrepareAndFinalize`
//!
//! Gathered, every rank gets the tokens of all cores, computes its own experts, or its own part of all, and keeps the sum of its own rows.
//! What travels is the quantised input with its scales, and which experts each token picks: the router's own output where the kernel
//! picks, else choices and weights. Sent, an expert sees the tokens that picked it, which is the same work: each once for every expert
//! (low latency, into slots laid out beforehand), or once for every rank with any of them, drawn evenly (high throughput).
//!
//! Left out: that the input is quantised before it travels (its quantisation is priced with the kernel, on the gathered rows); that shared
//! experts run while `DeepEP`'s tokens travel (they are priced as where none do); a copy of what `DeepEP`'s ranks bring back; ranks
//! that receive more than others; that a host which has waited for counts no longer runs ahead of the accelerator; other all-to-all
//! backends, which the configuration refuses.

use blis_contracts::format::FormatName;
use blis_contracts::model::{FeedForward, MixtureOfExperts, ModelGraph};
use blis_contracts::plan::{Primitive, RowSet};

use super::LoweringError;
use super::experts::ExpertsChoice;
use super::names::{
    CUTLASS_EXPERTS, DEEPEP_COMBINE, DEEPEP_DISPATCH, DEEPEP_LOW_LATENCY_COMBINE, DEEPEP_LOW_LATENCY_DISPATCH, FLASHINFER_CUTLASS_EXPERTS,
    KernelName, NCCL_ALL_GATHER, NCCL_REDUCE_SCATTER, TRTLLM_EXPERTS,
};
use super::parts::TokenParts;
use super::site::Site;
use crate::config::All2AllBackend;

/// Bytes of a choice: an expert's number and the token's weight for it, in 32 bits each.
const CHOICE_BYTES: u64 = 8;

/// Bytes in front of a token in a slot.
const SLOT_HEADER_BYTES: u64 = 16;

/// Widths that `DeepEP`'s low-latency kernels are built for: `SUPPORTED_HIDDEN_SIZES`.
const SLOT_WIDTHS: [u64; 8] = [2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192];

/// Elements of 16 bits that its other kernels copy at a time.
const COPIED_WIDTH: u64 = 256;

/// How tokens reach the experts of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exchange {
    /// Ranks that exchange; 1 where every token stays.
    pub(super) group: u32,
    /// Rows the router and the exchange see on a rank.
    pub(super) own: RowSet,
    /// Rows the experts see.
    pub(super) at_experts: RowSet,
    /// The way there.
    pub(super) there: Leg,
    /// Bytes of a row on the way there.
    pub(super) dispatched: u64,
    /// The way back.
    pub(super) back: Leg,
    /// Whether the ranks of a core gather the parts they had taken, in place of a sum.
    pub(super) gathers_parts: bool,
}

/// One way of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leg {
    pub(super) primitive: Primitive,
    pub(super) kernel: KernelName,
    /// How often a row travels, in thousandths.
    times: u64,
}

impl Leg {
    const fn once(primitive: Primitive, kernel: KernelName) -> Self {
        Self { primitive, kernel, times: THOUSAND }
    }

    /// Bytes that a row of so many takes however often it travels.
    pub(super) const fn all_bytes(self, row: u64) -> u64 {
        (self.times * row).div_ceil(THOUSAND)
    }
}

const THOUSAND: u64 = 1000;

/// What carries tokens to their experts and back.
pub(super) fn backend(site: &Site<'_>) -> All2AllBackend {
    site.resolved.data_parallel.exchange_over(site.expert_ranks)
}

/// The exchange around a layer's experts.
pub(super) fn around(site: &Site<'_>, moe: &MixtureOfExperts, choice: &ExpertsChoice) -> Exchange {
    let own = own_rows(site);
    let group = if own == RowSet::Split { site.ranks * site.cores } else { site.cores };
    let input = travels_as(site, choice).stored_bytes(1, choice.hidden);
    let (there, dispatched, back) = match backend(site) {
        All2AllBackend::AllgatherReducescatter => {
            let picks = if picks_inside(site, choice) {
                site.router_output().stored_bytes(1, moe.experts.into())
            } else {
                u64::from(moe.top_k) * CHOICE_BYTES
            };
            let back = Leg::once(Primitive::ReduceScatter, NCCL_REDUCE_SCATTER);
            (Leg::once(Primitive::AllGather, NCCL_ALL_GATHER), input + picks, back)
        }
        All2AllBackend::DeepepLowLatency => {
            let leg = |kernel| Leg { primitive: Primitive::AllToAll, kernel, times: THOUSAND * u64::from(moe.top_k) };
            let row = FormatName::Fp8Block.stored_bytes(1, choice.hidden) + SLOT_HEADER_BYTES;
            (leg(DEEPEP_LOW_LATENCY_DISPATCH), row, leg(DEEPEP_LOW_LATENCY_COMBINE))
        }
        All2AllBackend::DeepepHighThroughput => {
            let leg = |kernel| Leg { primitive: Primitive::AllToAll, kernel, times: reached(group, moe.top_k) };
            (leg(DEEPEP_DISPATCH), input, leg(DEEPEP_COMBINE))
        }
    };
    Exchange {
        group,
        own,
        at_experts: if site.cores > 1 { RowSet::Gathered } else { RowSet::Tokens },
        there,
        dispatched,
        back,
        gathers_parts: TokenParts::of(site) == TokenParts::AroundExperts,
    }
}

/// Ranks of a group that hold any of a token's experts, in thousandths, where those are drawn evenly.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and at most a thousand times the ranks")]
fn reached(group: u32, top_k: u32) -> u64 {
    let ranks = f64::from(group);
    let missed = (0..top_k).fold(1.0, |missed, _| missed * (1.0 - 1.0 / ranks));
    libm::round(1e3 * ranks * (1.0 - missed)) as u64
}

/// Refuses what nothing says of `DeepEP`'s kernels, or of the experts beside them.
pub(super) fn check(site: &Site<'_>) -> Result<(), LoweringError> {
    let backend = backend(site);
    if backend == All2AllBackend::AllgatherReducescatter {
        return Ok(());
    }
    let width = site.model.hidden_size;
    let in_slots = backend == All2AllBackend::DeepepLowLatency;
    let unpadded = if in_slots { SLOT_WIDTHS.contains(&width) } else { width.is_multiple_of(COPIED_WIDTH) };
    let joined = site.capability.0 >= 9 && site.has_fast_links();
    let reason = if !joined {
        "no table times DeepEP's kernels on this chip".to_owned()
    } else if site.ranks * site.cores > site.resolved.placement.ranks_per_node {
        "no table times DeepEP's kernels as vLLM calls them over several nodes".to_owned()
    } else if site.ranks > 1 && TokenParts::of(site) == TokenParts::None {
        "every rank of a core would send the tokens of all of them".to_owned()
    } else if !unpadded {
        format!("a residual stream of {width} elements is padded for DeepEP's kernels")
    } else if let Some(format) = other_experts(site.model) {
        format!("which kernel runs experts stored as {format} beside DeepEP is not ported")
    } else {
        return Ok(());
    };
    Err(LoweringError::Exchange { backend: backend.as_str(), reason })
}

/// The format of experts stored otherwise than in blocks of 8-bit floats.
fn other_experts(model: &ModelGraph) -> Option<FormatName> {
    mixtures(model).map(|moe| moe.expert_format.weights).find(|weights| *weights != FormatName::Fp8Block)
}

fn mixtures(model: &ModelGraph) -> impl Iterator<Item = &MixtureOfExperts> {
    model.blocks.values().filter_map(|block| match &block.feed_forward {
        FeedForward::MixtureOfExperts(moe) => Some(moe),
        FeedForward::Dense(_) | FeedForward::Absent => None,
    })
}

/// Bytes through which `DeepEP` copies between ranks: `VLLM_DEEPEP_BUFFER_SIZE_MB`.
const COPY_BYTES: u64 = 1 << 30;

/// Bytes that the exchange keeps: what `DeepEP` copies through, its slots, and what experts work in that read from slots.
pub(super) fn buffer_bytes(site: &Site<'_>) -> Vec<(&'static str, u64)> {
    let copied = ("DeepEP buffer", COPY_BYTES);
    match backend(site) {
        All2AllBackend::AllgatherReducescatter => Vec::new(),
        All2AllBackend::DeepepHighThroughput => vec![copied],
        All2AllBackend::DeepepLowLatency => {
            let widest =
                |bytes: fn(&Site<'_>, &MixtureOfExperts) -> u64| mixtures(site.model).map(|moe| bytes(site, moe)).max().unwrap_or(0);
            vec![copied, ("DeepEP slots", widest(slot_bytes)), ("workspace of experts in slots", widest(work_bytes))]
        }
    }
}

/// Slots of every expert for the most tokens of a rank, to send from and to receive in, each twice: `DeepEP`'s `LowLatencyLayout`. The
/// largest messages are those of the way back, with two bounds of 16 bits for every 128 elements.
fn slot_bytes(site: &Site<'_>, moe: &MixtureOfExperts) -> u64 {
    let hidden = site.model.hidden_size;
    let message = 2 * hidden + 4 * hidden.div_ceil(128);
    4 * u64::from(moe.experts) * site.resolved.scheduler.max_num_batched_tokens * message
}

/// What a rank's experts read, multiply and yield over all slots, the first two in turn in one place.
/// upstream: vllm `model_executor/layers/fused_moe/experts/batched_deep_gemm_moe.py::BatchedDeepGemmExperts.workspace_shapes`
fn work_bytes(site: &Site<'_>, moe: &MixtureOfExperts) -> u64 {
    let (hidden, width) = (site.model.hidden_size, moe.intermediate_size);
    let up = if moe.gated { 2 * width } else { width };
    let of_a_rank = site.resolved.scheduler.max_num_batched_tokens * u64::from(site.local_experts(moe));
    of_a_rank * u64::from(site.ranks * site.cores) * site.element_bytes() * (hidden.max(up) + width)
}

/// The rows in front of the experts on a rank.
pub(super) fn own_rows(site: &Site<'_>) -> RowSet {
    if TokenParts::of(site) == TokenParts::None { RowSet::Tokens } else { RowSet::Split }
}

/// How the experts' input travels: quantised, except to kernels that quantise it themselves.
/// upstream: vllm `model_executor/layers/fused_moe/experts` (`expects_unquantized_inputs`)
fn travels_as(site: &Site<'_>, choice: &ExpertsChoice) -> FormatName {
    let late =
        choice.kernel == CUTLASS_EXPERTS || (choice.kernel == FLASHINFER_CUTLASS_EXPERTS && choice.format.weights == FormatName::Fp8Block);
    if late { site.dtype() } else { choice.format.activations }
}

/// Whether the experts' kernel picks the experts too: upstream's monolithic kernels.
/// upstream: vllm `model_executor/layers/fused_moe/experts` (`_supports_parallel_config` of the TensorRT-LLM kernels)
pub(super) fn picks_inside(site: &Site<'_>, choice: &ExpertsChoice) -> bool {
    choice.kernel == TRTLLM_EXPERTS
        && match choice.format.weights {
            FormatName::Nvfp4 => site.expert_ranks == 1,
            FormatName::Fp8 | FormatName::Fp8Block => TokenParts::of(site) == TokenParts::None,
            FormatName::Bf16 | FormatName::Fp16 => true,
            FormatName::Mxfp4
            | FormatName::Mxfp8
            | FormatName::Fp32
            | FormatName::Int4Group32
            | FormatName::Int4Group128
            | FormatName::Int8 => false,
        }
}
