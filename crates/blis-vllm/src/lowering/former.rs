//! What the model code and kernels of earlier releases launched otherwise where no setting says so, for measured runs of them.
//!
//! Each was read in the sources of the releases it names and of those next to them that measured runs had. What settings say is in
//! `config/former_defaults.rs`, what start-up counts in `config/former_rules.rs`, since when a kernel is a programmatic dependent in
//! `dependents.rs`.

use super::site::Site;
use crate::config::Release;

/// A way of earlier releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Former {
    /// FlashInfer fuses sums within a rank's share of the limit; a larger one is summed and normalised by other kernels inside the fused
    /// operation, which copies what it summed back to where it was read.
    /// upstream: vllm `compilation/collective_fusion.py::AllReduceFusionPass.__init__`, `call_trtllm_fused_allreduce_norm`
    SumsWithinShare,
    /// Attention quantises its queries itself and writes to memory that was zeroed, and queries and keys are turned by a kernel each.
    /// upstream: vllm `attention/layer.py::Attention.forward`, `v1/attention/backends/flash_attn.py::FlashAttentionImpl.forward`
    UnmergedAttention,
    /// `FlashAttention` 3 deals its requests' blocks in the order they come, not sorted.
    /// upstream: vllm `v1/attention/backends/flash_attn.py::FlashAttentionMetadataBuilder`, by the size of its `scheduler_metadata`
    DealtInTurn,
    /// Experts of 8-bit floats in blocks run in CUTLASS on Hopper whatever shares them.
    /// upstream: vllm `model_executor/layers/fused_moe/oracle/fp8.py::select_fp8_moe_backend`
    CutlassBeforeTriton,
    /// Norms are vLLM's own kernel where the line makes them a custom operation, compiled or not.
    /// upstream: vllm `model_executor/layers/layernorm.py::RMSNorm`
    NormsAsCustomOps,
    /// Rows are padded in front of experts by a kernel of its own, and what experts yield is summed over ranks before it is cut.
    /// upstream: vllm `model_executor/layers/fused_moe/runner/default_moe_runner.py::DefaultMoERunner.forward`
    PaddingAroundExperts,
    /// Norms over all heads are reductions of the compiler around a sum over ranks.
    /// upstream: vllm `model_executor/layers/mamba/linear_attn.py::MiniMaxText01RMSNormTP.forward_qk`
    SpanningNormsApart,
    /// cuBLAS multiplies routers in 32 bits, few rows too.
    /// upstream: vllm `model_executor/models/minimax_m2.py::MiniMaxM2MoE`
    WideRoutersByLibrary,
    /// What corrects a router's choice is cast in front of TensorRT-LLM's experts in NVFP4.
    /// upstream: vllm `model_executor/layers/fused_moe/experts/trtllm_nvfp4_moe.py::TrtLlmNvFp4ExpertsMonolithic.apply`
    CastCorrectionOfNvfp4,
    /// The same of experts in 8-bit floats with a scale per tensor.
    /// upstream: vllm `model_executor/layers/fused_moe/experts/trtllm_fp8_moe.py::TrtLlmFp8ExpertsMonolithic._apply_per_tensor`
    CastCorrectionOfFp8,
    /// `MiniMax` M3 scales what experts yield.
    /// upstream: vllm `model_executor/layers/fused_moe/runner/moe_runner.py::MoERunner`
    ScaledBehindExperts,
    /// `MiniMax` M3's experts are picked in front of their kernel.
    /// upstream: vllm `model_executor/layers/fused_moe/config.py::get_routing_method_type`
    PickedInFront,
    /// cuBLAS multiplies routers in 32 bits beyond a few rows.
    /// upstream: vllm `model_executor/layers/fused_moe/router/gate_linear.py::GateLinear`
    WideRoutersWhole,
    /// Lanes of `DeepSeek` V4 are mixed by one kernel up to 16 rows.
    /// upstream: vllm `model_executor/kernels/mhc/tilelang.py`
    NarrowMixing,
}

impl Former {
    /// The first release that was read and had it, where an earlier one had not, and the last.
    const fn held(self) -> (Option<[u32; 3]>, [u32; 3]) {
        match self {
            Self::SumsWithinShare | Self::UnmergedAttention => (None, [0, 10, 2]),
            Self::DealtInTurn => (None, [0, 16, 0]),
            Self::CutlassBeforeTriton => (Some([0, 15, 1]), [0, 16, 0]),
            Self::NormsAsCustomOps | Self::PaddingAroundExperts => (None, [0, 18, 0]),
            Self::SpanningNormsApart | Self::WideRoutersByLibrary => (None, [0, 22, 0]),
            Self::CastCorrectionOfNvfp4 => (Some([0, 15, 1]), [0, 22, 0]),
            Self::CastCorrectionOfFp8 => (Some([0, 21, 0]), [0, 22, 0]),
            Self::ScaledBehindExperts => (None, [0, 25, 0]),
            Self::PickedInFront => (Some([0, 26, 0]), [0, 28, 0]),
            Self::WideRoutersWhole | Self::NarrowMixing => (None, [0, 28, 0]),
        }
    }

    /// Whether the run that is priced had it; the modelled release has none.
    pub(super) fn ran(self, site: &Site<'_>) -> bool {
        let (first, last) = self.held();
        site.resolved.rules.ran.is_some_and(|ran| ran <= Release::new(last) && first.is_none_or(|first| Release::new(first) <= ran))
    }
}
