//! Which kernel multiplies by a dense layer's weights.
//!
//! upstream: vllm `model_executor/kernels/linear/__init__.py::choose_scaled_mm_linear_kernel`, `init_nvfp4_linear_kernel`, `_filter_kernels_by_backend`
//!
//! A table lists upstream's kernel classes in its order of preference. `--linear-backend` keeps the rows of that backend where the
//! table has any, `VLLM_DISABLED_KERNELS` drops classes by name, and the first row that holds wins. A checkpoint written by
//! modelopt states one static activation scale per tensor; any other fp8 checkpoint gets one dynamic scale per row.
//!
//! Left out: integer weights, mxfp4 outside experts, batch invariance.

use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::plan::RowRange;

use super::LoweringError;
use super::former::Former;
use super::names::{
    CSRC_FUSED_A, CSRC_ROUTER, CUBLAS_LINEAR, CUBLAS_LINEAR_TF32, CUTEDSL_FEW_ROWS_ROUTER, CUTEDSL_ROUTER, CUTLASS_FP8, CUTLASS_FP8_BLOCK,
    CUTLASS_NVFP4, DEEPGEMM_FP8_BLOCK, FLASHINFER_CUDNN_NVFP4, FLASHINFER_CUTEDSL_BF16, FLASHINFER_CUTEDSL_MXFP8, FLASHINFER_CUTEDSL_NVFP4,
    FLASHINFER_CUTLASS_MXFP8, FLASHINFER_CUTLASS_NVFP4, FLASHINFER_FP8, FLASHINFER_SWAP_AB, FLASHINFER_TRTLLM_MXFP8,
    FLASHINFER_TRTLLM_NVFP4, HUMMING_LINEAR, KernelName, MARLIN_LINEAR, TORCH_FP8, TRITON_FP8_BLOCK,
};
use super::site::Site;
use crate::config::{LinearBackend, MatmulPrecision};

/// A weight matrix on one rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix {
    pub(super) columns: u64,
    pub(super) depth: u64,
    pub(super) format: MatmulFormat,
}

/// The kernels of a matrix, each with the row counts it runs for, and what they read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LinearChoice {
    pub(super) kernels: Vec<(RowRange, KernelName)>,
    /// Weights as stored, activations as this kernel multiplies them.
    pub(super) format: MatmulFormat,
}

/// A kernel class of upstream.
#[derive(Clone, Copy)]
struct Row {
    /// The class, as `VLLM_DISABLED_KERNELS` names it.
    class: &'static str,
    /// The `--linear-backend` it belongs to.
    backend: Option<LinearBackend>,
    /// upstream's `is_supported` and `can_implement`.
    holds: fn(&Site<'_>, Matrix) -> bool,
    kernel: KernelName,
    /// Whether activations stay as they are (weights alone are narrow).
    weight_only: bool,
}

const fn row(class: &'static str, backend: LinearBackend, holds: fn(&Site<'_>, Matrix) -> bool, kernel: KernelName) -> Row {
    Row { class, backend: Some(backend), holds, kernel, weight_only: false }
}

const fn weight_only(row: Row) -> Row {
    Row { weight_only: true, ..row }
}

/// 8-bit floats with one scale per tensor or row: upstream's `_POSSIBLE_FP8_KERNELS`.
const FP8: &[Row] = &[
    row(
        "FlashInferFP8ScaledMMLinearKernel",
        LinearBackend::FlashinferCutlass,
        |site, _| site.capability >= (10, 0) && scales_per_tensor(site),
        FLASHINFER_FP8,
    ),
    row("CutlassFP8ScaledMMLinearKernel", LinearBackend::Cutlass, |site, _| site.capability >= (8, 9), CUTLASS_FP8),
    row(
        "PerTensorTorchFP8ScaledMMLinearKernel",
        LinearBackend::Torch,
        |site, _| site.capability >= (8, 9) && scales_per_tensor(site),
        TORCH_FP8,
    ),
    row("ChannelWiseTorchFP8ScaledMMLinearKernel", LinearBackend::Torch, |site, _| site.capability >= (8, 9), TORCH_FP8),
    HUMMING_ON_HOPPER,
    weight_only(row("MarlinFP8ScaledMMLinearKernel", LinearBackend::Marlin, |_, _| true, MARLIN_LINEAR)),
];

/// Humming outranks Marlin on Hopper. upstream: vllm `model_executor/layers/quantization/utils/humming/priority.py::prefers_humming`
const HUMMING_ON_HOPPER: Row = Row {
    class: "HummingFP8ScaledMMLinearKernel",
    backend: None,
    holds: |site, _| site.capability == (9, 0),
    kernel: HUMMING_LINEAR,
    weight_only: true,
};

/// 8-bit floats with a scale per block: upstream's `_POSSIBLE_FP8_BLOCK_KERNELS`.
const FP8_BLOCK: &[Row] = &[
    row(
        "FlashInferFp8DeepGEMMDynamicBlockScaledKernel",
        LinearBackend::FlashinferCutlass,
        |site, matrix| site.capability == (9, 0) && site.resolved.kernels.blockscale_fp8_gemm_flashinfer && deep_gemm(site, matrix),
        FLASHINFER_SWAP_AB,
    ),
    row("DeepGemmFp8BlockScaledMMKernel", LinearBackend::DeepGemm, deep_gemm, DEEPGEMM_FP8_BLOCK),
    row("CutlassFp8BlockScaledMMKernel", LinearBackend::Cutlass, |site, _| site.capability == (9, 0) || site.family(10), CUTLASS_FP8_BLOCK),
    HUMMING_ON_HOPPER,
    weight_only(row("MarlinFP8ScaledMMLinearKernel", LinearBackend::Marlin, |_, _| true, MARLIN_LINEAR)),
    row("TritonFp8BlockScaledMMKernel", LinearBackend::Triton, |_, _| true, TRITON_FP8_BLOCK),
];

/// NVFP4: upstream's `_POSSIBLE_NVFP4_KERNELS`.
const NVFP4: &[Row] = &[
    row("FlashInferCuteDslNvFp4LinearKernel", LinearBackend::FlashinferCutedsl, |site, _| site.family(10), FLASHINFER_CUTEDSL_NVFP4),
    row(
        "FlashInferCutlassNvFp4LinearKernel",
        LinearBackend::FlashinferCutlass,
        |site, _| site.capability >= (10, 0),
        FLASHINFER_CUTLASS_NVFP4,
    ),
    row("CutlassNvFp4LinearKernel", LinearBackend::Cutlass, |site, _| site.capability >= (10, 0), CUTLASS_NVFP4),
    Row { class: "HummingNvFp4LinearKernel", ..HUMMING_ON_HOPPER },
    weight_only(row("MarlinNvFp4LinearKernel", LinearBackend::Marlin, |_, _| true, MARLIN_LINEAR)),
    row(
        "FlashInferTrtllmNvFp4LinearKernel",
        LinearBackend::FlashinferTrtllm,
        |site, _| site.capability >= (10, 0),
        FLASHINFER_TRTLLM_NVFP4,
    ),
    row("FlashInferCudnnNvFp4LinearKernel", LinearBackend::FlashinferCudnn, |site, _| site.capability >= (10, 0), FLASHINFER_CUDNN_NVFP4),
];

/// 8-bit floats with a scale for 32 elements of a row: upstream's `_POSSIBLE_MXFP8_KERNELS`.
const MXFP8: &[Row] = &[
    row(
        "FlashInferCutedslMxfp8LinearKernel",
        LinearBackend::FlashinferCutedsl,
        |site, matrix| site.family(10) && mxfp8_shape(matrix),
        FLASHINFER_CUTEDSL_MXFP8,
    ),
    row(
        "FlashInferCutlassMxfp8LinearKernel",
        LinearBackend::FlashinferCutlass,
        |site, matrix| {
            site.capability >= (10, 0) && mxfp8_shape(matrix) && (!site.family(12) || matrix.columns.is_multiple_of(MXFP8_BLOCK))
        },
        FLASHINFER_CUTLASS_MXFP8,
    ),
    weight_only(row("MarlinMxfp8LinearKernel", LinearBackend::Marlin, |_, matrix| matrix.depth.is_multiple_of(MXFP8_BLOCK), MARLIN_LINEAR)),
    row("FlashInferTrtllmMxfp8LinearKernel", LinearBackend::FlashinferTrtllm, |site, _| site.family(10), FLASHINFER_TRTLLM_MXFP8),
];

/// Elements of a row that share a scale.
const MXFP8_BLOCK: u64 = 32;

/// Shapes FlashInfer multiplies. upstream: vllm `model_executor/kernels/linear/mxfp8/flashinfer.py::_check_mm_mxfp8_shape`
const fn mxfp8_shape(matrix: Matrix) -> bool {
    matrix.depth >= 128 && matrix.columns >= 128 && matrix.depth.is_multiple_of(MXFP8_BLOCK)
}

/// Rows from which FlashInfer's kernel for block-scaled 8-bit floats hands over to `DeepGEMM`.
/// upstream: vllm `model_executor/kernels/linear/scaled_mm/flashinfer.py::_dynamic_flashinfer_deepgemm_blockscale_gemm_impl`
const DEEPGEMM_FROM_ROWS: u32 = 32;

/// Chooses the kernels of a matrix.
pub(super) fn choose(site: &Site<'_>, what: &'static str, matrix: Matrix) -> Result<LinearChoice, LoweringError> {
    let table = match matrix.format.weights {
        FormatName::Bf16 | FormatName::Fp16 => return Ok(unquantised(site)),
        FormatName::Fp32 => return Ok(wide(site, matrix)),
        FormatName::Fp8 => FP8,
        FormatName::Fp8Block => FP8_BLOCK,
        FormatName::Nvfp4 => NVFP4,
        FormatName::Mxfp8 => MXFP8,
        FormatName::Mxfp4 | FormatName::Int4Group32 | FormatName::Int4Group128 | FormatName::Int8 => &[],
    };
    let settings = &site.resolved.kernels;
    let of_backend = |row: &&Row| row.backend == Some(settings.linear_backend);
    let filtered = table.iter().any(|row| of_backend(&row));
    let enabled = |row: &&Row| !settings.disabled_kernels.iter().any(|class| class == row.class);
    let found = table
        .iter()
        .filter(|row| !filtered || of_backend(row))
        .filter(enabled)
        .find(|row| (row.holds)(site, matrix))
        .ok_or_else(|| LoweringError::NoKernel { what, format: matrix.format.label(), capability: site.capability })?;
    let kernels = if found.kernel == FLASHINFER_SWAP_AB {
        let few = RowRange { least: 0, most: DEEPGEMM_FROM_ROWS - 1 };
        let many = RowRange { least: DEEPGEMM_FROM_ROWS, most: u32::MAX };
        vec![(few, FLASHINFER_SWAP_AB), (many, DEEPGEMM_FP8_BLOCK)]
    } else {
        vec![(RowRange::ALL, found.kernel)]
    };
    let activations = if found.weight_only { site.dtype() } else { matrix.format.activations };
    Ok(LinearChoice { kernels, format: MatmulFormat { activations, ..matrix.format } })
}

/// Bytes of a matrix of `columns` outputs as its kernel keeps it.
///
/// `DeepGEMM` reads scales of 8 bits on Blackwell: one for each row and 128 inputs, four to a word, rows in fours; elsewhere those of the
/// checkpoint, widened to 32 bits.
/// upstream: vllm `model_executor/layers/quantization/utils/fp8_utils.py::deepgemm_post_process_fp8_weight_block`
pub(super) fn resident_bytes(site: &Site<'_>, format: MatmulFormat, columns: u64, depth: u64) -> u64 {
    let kernels = choose(site, "weights", Matrix { columns, depth, format }).map(|choice| choice.kernels).unwrap_or_default();
    let packed = site.capability != (9, 0) && kernels.iter().any(|(_, kernel)| *kernel == DEEPGEMM_FP8_BLOCK);
    if packed {
        columns * depth + columns.next_multiple_of(4) * 4 * depth.div_ceil(512)
    } else {
        format.weights.stored_bytes(columns, depth)
    }
}

/// upstream: vllm `model_executor/layers/utils.py::dispatch_unquantized_gemm`
fn unquantised(site: &Site<'_>) -> LinearChoice {
    let cutedsl = site.resolved.kernels.linear_backend == LinearBackend::FlashinferCutedsl && site.family(10);
    let kernel = if cutedsl { FLASHINFER_CUTEDSL_BF16 } else { CUBLAS_LINEAR };
    // Weights are loaded in the type of the activations.
    let format = MatmulFormat { weights: site.dtype(), activations: site.dtype() };
    LinearChoice { kernels: vec![(RowRange::ALL, kernel)], format }
}

/// The one shape of the down projections of latent attention that upstream compiled a kernel for few rows for, as depth and columns.
const FUSED_A_SHAPE: (u64, u64) = (7168, 2112);

/// Rows up to which that kernel runs.
const FUSED_A_MOST_ROWS: u32 = 16;

/// The down projections of latent attention, whole on every rank.
/// upstream: vllm `model_executor/models/deepseek_v2.py::DeepSeekV2FusedQkvAProjLinear`, `_min_latency_fused_qkv_a_proj_impl`
pub(super) fn fused_a(site: &Site<'_>, matrix: Matrix) -> Result<LinearChoice, LoweringError> {
    let usual = choose(site, "down projections of attention", matrix)?;
    let special = matrix.format.weights == FormatName::Bf16
        && (matrix.depth, matrix.columns) == FUSED_A_SHAPE
        && (site.capability == (9, 0) || site.family(10));
    if !special {
        return Ok(usual);
    }
    let few = RowRange { least: 0, most: FUSED_A_MOST_ROWS };
    let many = RowRange { least: FUSED_A_MOST_ROWS + 1, most: u32::MAX };
    let rest = usual.kernels.into_iter().map(|(_, kernel)| (many, kernel));
    Ok(LinearChoice { kernels: std::iter::once((few, CSRC_FUSED_A)).chain(rest).collect(), format: usual.format })
}

/// Shapes upstream compiled a kernel for few rows for: `GateLinear.FP32_SUPPORTED_SHAPES`, as depth and columns.
const WIDE_SHAPES: &[(u64, u64)] = &[(3072, 256), (6144, 128)];

/// Rows up to which that kernel runs: `GateLinear.FP32_MAX_TOKENS`.
const WIDE_MOST_ROWS: u32 = 32;

/// A router kept in 32 bits. The kernels written for it read the residual stream as it is; cuBLAS multiplies a copy in 32 bits, on tensor cores
/// only where the process allows it to drop bits.
/// upstream: vllm `model_executor/layers/fused_moe/router/gate_linear.py::GateLinear.forward`, `fp32_router_gemm_dispatch_impl`
/// upstream: vllm `v1/worker/gpu_worker.py::Worker.__init__`
fn wide(site: &Site<'_>, matrix: Matrix) -> LinearChoice {
    let split = site.family(10) && matrix.depth.is_multiple_of(8) && !Former::WideRoutersWhole.ran(site);
    let cublas = match site.resolved.kernels.float32_matmul_precision {
        MatmulPrecision::Highest => CUBLAS_LINEAR,
        MatmulPrecision::High | MatmulPrecision::Medium => CUBLAS_LINEAR_TF32,
    };
    let many = if split { CUTEDSL_ROUTER } else { cublas };
    let shape = WIDE_SHAPES.contains(&(matrix.depth, matrix.columns));
    let kernels = if shape && site.multiplies_few_rows() && !Former::WideRoutersByLibrary.ran(site) {
        let above = RowRange { least: WIDE_MOST_ROWS + 1, most: u32::MAX };
        vec![(RowRange { least: 0, most: WIDE_MOST_ROWS }, CSRC_ROUTER), (above, many)]
    } else {
        vec![(RowRange::ALL, many)]
    };
    let activations = if split { site.dtype() } else { matrix.format.activations };
    LinearChoice { kernels, format: MatmulFormat { activations, ..matrix.format } }
}

/// Rows up to which a kernel of its own multiplies a router in 16 bits whose output has 32: `GateLinear.LL_BF16_MAX_TOKENS`.
const FEW_ROWS_MOST: u32 = 16;

/// The kernels of a router.
/// upstream: vllm `model_executor/layers/fused_moe/router/gate_linear.py::GateLinear.forward`
pub(super) fn router(site: &Site<'_>, matrix: Matrix) -> Result<LinearChoice, LoweringError> {
    let usual = choose(site, "router", matrix)?;
    // Compiled together with its layer, a router keeps the kernel of the many rows it was first traced with.
    let traced = site.is_gemma4() && site.compiled();
    let written = matrix.format.weights == FormatName::Bf16 && site.router_output() == FormatName::Fp32;
    let special = written && site.multiplies_few_rows() && !traced;
    if !special {
        return Ok(usual);
    }
    let few = RowRange { least: 0, most: FEW_ROWS_MOST };
    let many = RowRange { least: FEW_ROWS_MOST + 1, most: u32::MAX };
    let rest = usual.kernels.into_iter().map(|(_, kernel)| (many, kernel));
    Ok(LinearChoice { kernels: std::iter::once((few, CUTEDSL_FEW_ROWS_ROUTER)).chain(rest).collect(), format: usual.format })
}

/// Whether activations have one scale per tensor, stated by the checkpoint.
pub(super) fn scales_per_tensor(site: &Site<'_>) -> bool {
    site.model.quantisation.as_deref() == Some("modelopt")
}

/// upstream: vllm `utils/deep_gemm.py::is_deep_gemm_supported`, `should_use_deepgemm_for_fp8_linear`
fn deep_gemm(site: &Site<'_>, matrix: Matrix) -> bool {
    let supported = site.resolved.kernels.use_deep_gemm && (site.capability == (9, 0) || site.family(10) || site.family(12));
    supported && matrix.columns.is_multiple_of(64) && matrix.depth.is_multiple_of(128)
}
