//! Which kernels only move data, and where quantising activations is part of another kernel.
//!
//! upstream: vllm `platforms/cuda.py::CudaPlatformBase.get_default_ir_op_priority`, `config/vllm.py::enable_norm_fusion`, `enable_act_fusion`
//! upstream: vllm `compilation/passes/fusion/rms_quant_fusion.py`, `compilation/passes/fusion/act_quant_fusion.py`
//!
//! Compiled steps use the compiler's own code unless a custom operation is switched on. The compiler merges what it writes itself;
//! where either side is a custom operation, a pass of upstream must be on.

use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::model::{Attention, LayerBlock};

use super::former::Former;
use super::linear::{LinearChoice, scales_per_tensor};
use super::names::{
    CSRC_GELU_AND_MUL, CSRC_RELU_SQUARED, CSRC_RMS_NORM, CSRC_ROTARY, CSRC_SILU_AND_MUL, FLASHINFER_NORM, INDUCTOR_FUSED, KernelName,
    TORCH_ELEMENTWISE, TORCH_EMBEDDING, TORCH_PAD, TRITON_RELU_SQUARED_QUANTISE,
};
use super::site::Site;

/// What a matrix wants its input to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// As activations are, or quantised by the matrix's own kernel.
    Plain,
    /// 8-bit floats.
    Fp8,
    /// NVFP4, which no compiler writes.
    Nvfp4,
    /// 8-bit floats with block scales, which a kernel of its own writes.
    Mxfp8,
}

impl Input {
    /// What the chosen kernels of a matrix read.
    pub(super) fn of(choice: &LinearChoice) -> Self {
        let both = |format| choice.format == MatmulFormat { weights: format, activations: format };
        if both(FormatName::Fp8) {
            Self::Fp8
        } else if both(FormatName::Nvfp4) {
            Self::Nvfp4
        } else if both(FormatName::Mxfp8) {
            Self::Mxfp8
        } else {
            // Block-scaled kernels quantise their input themselves; the others read it as it is.
            Self::Plain
        }
    }

    /// Bytes of `width` elements as the matrix reads them, where `plain` is the size of an unquantised element.
    pub(super) fn bytes(self, width: u64, plain: u64) -> u64 {
        match self {
            Self::Plain => plain * width,
            Self::Fp8 => FormatName::Fp8.stored_bytes(1, width),
            Self::Nvfp4 => FormatName::Nvfp4.stored_bytes(1, width),
            Self::Mxfp8 => FormatName::Mxfp8.stored_bytes(1, width),
        }
    }
}

/// The kernel of a norm.
pub(super) fn norm(site: &Site<'_>) -> KernelName {
    if site.is_minimax_m3() {
        FLASHINFER_NORM
    } else if norms_by_itself(site) {
        CSRC_RMS_NORM
    } else {
        INDUCTOR_FUSED
    }
}

/// Whether norms are vLLM's own kernel: where nothing is compiled. Custom operation or not, what is compiled is the compiler's.
/// upstream: vllm `platforms/cuda.py::CudaPlatformBase.get_default_ir_op_priority`
pub(super) fn norms_by_itself(site: &Site<'_>) -> bool {
    if Former::NormsAsCustomOps.ran(site) { site.custom_op("rms_norm") } else { !site.compiled() }
}

/// The kernel of an activation, which may write what the next matrix reads.
pub(super) fn activation(site: &Site<'_>, input: Input, gated: bool) -> KernelName {
    if !gated {
        let own = if site.custom_op("relu2") { CSRC_RELU_SQUARED } else { INDUCTOR_FUSED };
        return if squares_and_quantises(site, input) { TRITON_RELU_SQUARED_QUANTISE } else { own };
    }
    if site.is_gemma4() {
        return if site.custom_op("gelu_and_mul") { CSRC_GELU_AND_MUL } else { INDUCTOR_FUSED };
    }
    let with_quantisation =
        activation_quantises(site, input, gated) && (input == Input::Nvfp4 || site.custom_op("quant_fp8") && input == Input::Fp8);
    if with_quantisation || site.custom_op("silu_and_mul") { CSRC_SILU_AND_MUL } else { INDUCTOR_FUSED }
}

/// The kernel of plain steps that models write out: the compiler's, where it runs.
pub(super) fn native(site: &Site<'_>) -> KernelName {
    if site.compiled() { INDUCTOR_FUSED } else { TORCH_ELEMENTWISE }
}

/// The kernel that pads the residual stream for experts.
pub(super) fn pad(site: &Site<'_>) -> KernelName {
    if site.compiled() { INDUCTOR_FUSED } else { TORCH_PAD }
}

/// The kernel of rotary embedding.
pub(super) fn rope(site: &Site<'_>) -> KernelName {
    if site.custom_op("rotary_embedding") { CSRC_ROTARY } else { INDUCTOR_FUSED }
}

/// Widths of heads that one kernel norms and turns: `SUPPORTED_FUSED_QK_NORM_ROPE_HEAD_DIMS`.
const NORMED_AND_TURNED: [u32; 3] = [64, 128, 256];

/// Whether the compiler's pass finds norms of queries and keys right in front of their rotation, as Qwen3 has them, and takes one kernel for both.
/// It looks at no layer unless it could serve all.
/// upstream: vllm `compilation/passes/fusion/qk_norm_rope_fusion.py::QKNormRoPEFusionPass`
pub(super) fn turns_as_it_norms(site: &Site<'_>) -> bool {
    let serves = |layer: &LayerBlock| match &layer.attention {
        Attention::GroupedQuery(attention) => NORMED_AND_TURNED.contains(&attention.head_dim),
        Attention::Latent(_) | Attention::Compressed(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => false,
    };
    let asked = site.compiled() && site.resolved.compilation.passes.enable_qk_norm_rope_fusion;
    asked && site.is_qwen3() && site.model.layers().all(serves)
}

/// The kernel that looks embeddings up.
pub(super) fn embedding(site: &Site<'_>) -> KernelName {
    if site.compiled() { INDUCTOR_FUSED } else { TORCH_EMBEDDING }
}

/// Whether a norm writes its output quantised.
pub(super) fn norm_quantises(site: &Site<'_>, input: Input) -> bool {
    let native = !norms_by_itself(site) && !site.custom_op("quant_fp8");
    match input {
        Input::Plain => true,
        Input::Fp8 => site.compiled() && (native || site.resolved.compilation.passes.fuse_norm_quant),
        Input::Nvfp4 | Input::Mxfp8 => false,
    }
}

/// Whether models call a kernel that squares and quantises, whatever is compiled.
/// upstream: vllm `model_executor/layers/fusion/fused_act_quant.py::maybe_fused_act_quant`
fn squares_and_quantises(site: &Site<'_>, input: Input) -> bool {
    input == Input::Fp8 && scales_per_tensor(site) && site.capability >= (9, 0)
}

/// Whether a kernel that the compiler writes around no custom operation writes its output quantised.
pub(super) fn compiled_quantises(site: &Site<'_>, input: Input) -> bool {
    match input {
        Input::Plain => true,
        Input::Fp8 => site.compiled() && !site.custom_op("quant_fp8"),
        Input::Nvfp4 | Input::Mxfp8 => false,
    }
}

/// Whether an activation writes its output quantised.
pub(super) fn activation_quantises(site: &Site<'_>, input: Input, gated: bool) -> bool {
    if !gated {
        return squares_and_quantises(site, input) || compiled_quantises(site, input) && !site.custom_op("relu2");
    }
    if site.is_gemma4() {
        // No pass of upstream fuses a quantisation into this activation.
        return compiled_quantises(site, input) && !site.custom_op("gelu_and_mul") || input == Input::Plain;
    }
    let native = !site.custom_op("silu_and_mul") && !site.custom_op("quant_fp8");
    match input {
        Input::Plain => true,
        Input::Fp8 => site.compiled() && (native || site.resolved.compilation.passes.fuse_act_quant),
        Input::Mxfp8 => false,
        Input::Nvfp4 => site.compiled() && site.resolved.compilation.passes.fuse_act_quant,
    }
}

/// Whether the fused all-reduce and norm quantises too: patterns exist for static scales, for NVFP4 on Blackwell.
/// upstream: vllm `compilation/passes/fusion/allreduce_rms_fusion.py::AllReduceFusionPass.register_patterns`
pub(super) fn fused_all_reduce_quantises(site: &Site<'_>, input: Input) -> bool {
    match input {
        Input::Plain => true,
        Input::Fp8 => scales_per_tensor(site),
        Input::Mxfp8 => false,
        Input::Nvfp4 => site.capability >= (10, 0),
    }
}
