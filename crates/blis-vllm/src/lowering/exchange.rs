//! How the tokens of engine cores in lockstep meet at the experts: gathered before, summed and scattered after.
//!
//! upstream: vllm `distributed/device_communicators/all2all.py::AgRsAll2AllManager`
//! upstream: vllm `model_executor/layers/fused_moe/prepare_finalize/naive_dp_ep.py::MoEPrepareAndFinalizeNaiveDPEPModular`, `MoEPrepareAndFinalizeNaiveDPEPMonolithic`
//!
//! Every rank gets the tokens of all cores, computes its own experts, or its own part of all, and keeps the sum of its own rows. What
//! travels is the quantised input with its scales, and which experts each token picks: the router's own output where the kernel
//! picks, else choices and weights. Left out: that the input is quantised before it travels (its quantisation is priced with the
//! kernel, on the gathered rows); other all-to-all backends, which the configuration refuses.

use blis_contracts::format::FormatName;
use blis_contracts::model::MixtureOfExperts;
use blis_contracts::plan::RowSet;

use super::experts::ExpertsChoice;
use super::names::{CUTLASS_EXPERTS, FLASHINFER_CUTLASS_EXPERTS, TRTLLM_EXPERTS};
use super::parts::TokenParts;
use super::site::Site;

/// Bytes of a choice: an expert's number and the token's weight for it, in 32 bits each.
const CHOICE_BYTES: u64 = 8;

/// How tokens reach the experts of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exchange {
    /// Ranks that exchange; 1 where every token stays.
    pub(super) group: u32,
    /// Rows the router and the exchange see on a rank.
    pub(super) own: RowSet,
    /// Rows the experts see.
    pub(super) at_experts: RowSet,
    /// Bytes of a row on its way to the experts.
    pub(super) dispatched: u64,
    /// Whether the ranks of a core gather the parts they had taken, in place of a sum.
    pub(super) gathers_parts: bool,
}

/// The exchange around a layer's experts.
pub(super) fn around(site: &Site<'_>, moe: &MixtureOfExperts, choice: &ExpertsChoice) -> Exchange {
    let (parts, own) = (TokenParts::of(site), own_rows(site));
    let picks = if picks_inside(site, choice) {
        site.router_output().stored_bytes(1, moe.experts.into())
    } else {
        u64::from(moe.top_k) * CHOICE_BYTES
    };
    Exchange {
        group: if own == RowSet::Split { site.ranks * site.cores } else { site.cores },
        own,
        at_experts: if site.cores > 1 { RowSet::Gathered } else { RowSet::Tokens },
        dispatched: travels_as(site, choice).stored_bytes(1, choice.hidden) + picks,
        gathers_parts: parts == TokenParts::AroundExperts,
    }
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
fn picks_inside(site: &Site<'_>, choice: &ExpertsChoice) -> bool {
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
