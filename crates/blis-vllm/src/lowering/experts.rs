//! Which kernel runs the experts, and how it wants their weights padded and laid out.
//!
//! upstream: vllm `model_executor/layers/fused_moe/oracle/mxfp4.py::select_mxfp4_moe_backend`, `mxfp4_round_up_hidden_size_and_intermediate_size`
//! upstream: vllm `model_executor/layers/fused_moe/oracle/fp8.py::select_fp8_moe_backend`
//! upstream: vllm `model_executor/layers/fused_moe/oracle/nvfp4.py::select_nvfp4_moe_backend`
//! upstream: vllm `model_executor/layers/fused_moe/oracle/int_wna16.py::select_wna16_moe_backend`
//! upstream: vllm `model_executor/layers/fused_moe/oracle/unquantized.py::select_unquantized_moe_backend`
//!
//! A table lists upstream's backends for one storage format in its order of preference; `--moe-backend` keeps the rows of that
//! backend. For mxfp4, a requested activation format puts its variants first, and without a request only 16-bit variants take part.
//! Experts that read tokens from slots have a table of their own. Left out: backends of exchanges that the configuration refuses, and of other
//! vendors; emulation.

use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::model::MixtureOfExperts;
use blis_contracts::plan::{PrimitiveShape, RowRange};

use super::former::Former;
use super::names::{
    CUTLASS_EXPERTS, DEEPGEMM_EXPERTS, DEEPGEMM_SLOT_EXPERTS, FLASHINFER_CUTEDSL_EXPERTS, FLASHINFER_CUTLASS_EXPERTS, HUMMING_EXPERTS,
    KernelName, MARLIN_EXPERTS, OPENAI_TRITON_MXFP4, OPENAI_TRITON_MXFP4_UNFUSED, TRITON_EXPERTS, TRITON_SLOT_EXPERTS, TRTLLM_EXPERTS,
    TRTLLM_UNTUNED_EXPERTS,
};
use super::site::Site;
use super::{LoweringError, compressed, exchange};
use crate::config::{All2AllBackend, MoeBackend};

/// How a backend keeps the experts' scales and biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    /// Scales as stored, biases in 16 bits.
    Plain,
    /// Scales as stored, biases in 32 bits.
    WideBiases,
    /// Scales swizzled for the chip's Triton kernels, biases in 32 bits.
    TritonSwizzle,
}

/// The chosen backend with everything that follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExpertsChoice {
    pub(super) kernel: KernelName,
    /// Whether the kernel's tiles were left untuned.
    untuned: bool,
    /// Weights as stored, activations as the kernel multiplies them.
    pub(super) format: MatmulFormat,
    /// Width of the residual stream as the kernel sees it.
    pub(super) hidden: u64,
    /// Width between an expert's projections on one rank, as the kernel sees it.
    pub(super) intermediate: u64,
    pub(super) storage: Storage,
    /// Whether the residual stream is padded in front of the kernel.
    pub(super) pads_input: bool,
    /// Width of the output that the ranks sum.
    pub(super) output: u64,
}

impl ExpertsChoice {
    /// The kernel by the rows that are spread over the experts.
    pub(super) fn kernels(&self, moe: &MixtureOfExperts) -> Vec<(RowRange, KernelName)> {
        if !self.untuned {
            return vec![(RowRange::ALL, self.kernel)];
        }
        let most = u32::try_from(ALIKE_PICKS * u64::from(moe.experts) / u64::from(moe.top_k)).unwrap_or(u32::MAX - 1);
        vec![(RowRange { least: 0, most }, self.kernel), (RowRange { least: most + 1, most: u32::MAX }, TRTLLM_UNTUNED_EXPERTS)]
    }

    /// The experts of one rank as this kernel multiplies them.
    pub(super) fn shape(&self, site: &Site<'_>, moe: &MixtureOfExperts) -> PrimitiveShape {
        PrimitiveShape::Moe {
            experts: moe.experts,
            local_experts: site.local_experts(moe),
            top_k: moe.top_k,
            hidden: self.hidden,
            intermediate: self.intermediate,
            gated: moe.gated,
            format: self.format,
        }
    }
}

/// A backend of upstream.
#[derive(Debug, Clone, Copy)]
struct Row {
    /// The `--moe-backend` that asks for it; none where nothing does.
    backend: Option<MoeBackend>,
    /// upstream's `is_supported_config`.
    holds: fn(&Site<'_>) -> bool,
    kernel: KernelName,
    /// Activations, where they are not what the weights are usually multiplied with.
    activations: Option<FormatName>,
    /// Multiples that the residual stream and an expert's width are padded to, where [`width_multiple`] has no other for the width.
    multiples: (u64, u64),
    storage: Storage,
    /// Whether the kernel cuts its output back to the model's width.
    trims_output: bool,
    /// Whether the row takes part only when asked for.
    on_request: bool,
}

const fn row(backend: MoeBackend, holds: fn(&Site<'_>) -> bool, kernel: KernelName) -> Row {
    Row {
        backend: Some(backend),
        holds,
        kernel,
        activations: None,
        multiples: (1, 1),
        storage: Storage::Plain,
        trims_output: false,
        on_request: false,
    }
}

const fn blackwell(site: &Site<'_>) -> bool {
    site.family(10)
}

fn hopper(site: &Site<'_>) -> bool {
    site.capability == (9, 0)
}

/// Whether experts have the activation that every kernel has: gpt-oss and `MiniMax` M3 clamp theirs, Gemma 4 has a Gaussian one.
fn silu(site: &Site<'_>) -> bool {
    !site.is_gpt_oss() && !site.is_minimax_m3() && !site.is_gemma4()
}

/// Whether every rank has the tokens of all.
fn gathers(site: &Site<'_>) -> bool {
    exchange::backend(site) == All2AllBackend::AllgatherReducescatter
}

const fn always(_: &Site<'_>) -> bool {
    true
}

/// gpt-oss experts: upstream's `_get_priority_backends_for_gpt_oss`.
const MXFP4: &[Row] = &[
    Row {
        multiples: (256, 1),
        storage: Storage::WideBiases,
        trims_output: true,
        ..row(MoeBackend::FlashinferTrtllm, blackwell, TRTLLM_EXPERTS)
    },
    Row {
        multiples: (256, 1),
        storage: Storage::WideBiases,
        trims_output: true,
        activations: Some(FormatName::Mxfp8),
        ..row(MoeBackend::FlashinferTrtllm, blackwell, TRTLLM_EXPERTS)
    },
    Row {
        multiples: (1, 64),
        storage: Storage::TritonSwizzle,
        ..row(MoeBackend::Triton, |site| site.capability >= (9, 0) && site.capability < (13, 0), OPENAI_TRITON_MXFP4)
    },
    Row { multiples: (128, 128), ..row(MoeBackend::FlashinferCutlass, hopper, FLASHINFER_CUTLASS_EXPERTS) },
    Row {
        multiples: (128, 128),
        activations: Some(FormatName::Mxfp8),
        ..row(MoeBackend::FlashinferCutlass, |site| site.capability >= (10, 0), FLASHINFER_CUTLASS_EXPERTS)
    },
    HUMMING,
    Row { multiples: (256, 128), ..row(MoeBackend::Marlin, always, MARLIN_EXPERTS) },
    Row {
        multiples: (1, 64),
        storage: Storage::TritonSwizzle,
        on_request: true,
        ..row(MoeBackend::TritonUnfused, |site| site.capability >= (9, 0) && site.capability < (13, 0), OPENAI_TRITON_MXFP4_UNFUSED)
    },
];

/// Experts that the checkpoint's own recipe multiplies with 8-bit activations: upstream's `_get_priority_backends`.
/// upstream: vllm `model_executor/layers/fused_moe/oracle/mxfp4.py::select_deepseek_v4_mxfp4_moe_backend`
const MXFP4_EIGHT_BIT: &[Row] = &[
    Row { multiples: (256, 1), activations: Some(FormatName::Mxfp8), ..row(MoeBackend::FlashinferTrtllm, blackwell, TRTLLM_EXPERTS) },
    Row { multiples: (128, 128), activations: Some(FormatName::Fp8), ..row(MoeBackend::DeepGemm, blackwell, DEEPGEMM_EXPERTS) },
    HUMMING,
    Row { multiples: (256, 128), ..row(MoeBackend::Marlin, always, MARLIN_EXPERTS) },
];

/// Humming outranks Marlin on Hopper; elsewhere it comes after it, where it is never reached.
const HUMMING: Row = Row { backend: None, ..row(MoeBackend::Auto, hopper, HUMMING_EXPERTS) };

/// 8-bit floats with one scale per tensor.
const FP8: &[Row] = &[
    row(MoeBackend::FlashinferTrtllm, |site| blackwell(site) && !site.is_gemma4(), TRTLLM_EXPERTS),
    row(MoeBackend::FlashinferCutlass, |site| site.capability >= (9, 0), FLASHINFER_CUTLASS_EXPERTS),
    row(MoeBackend::Triton, always, TRITON_EXPERTS),
    Row { activations: Some(FormatName::Bf16), ..HUMMING },
    Row { activations: Some(FormatName::Bf16), ..row(MoeBackend::Marlin, always, MARLIN_EXPERTS) },
];

/// 8-bit floats with a scale per block; on Hopper without expert parallelism Triton comes first.
const FP8_BLOCK: &[Row] = &[
    Row { backend: None, ..row(MoeBackend::Auto, triton_first, TRITON_EXPERTS) },
    row(MoeBackend::FlashinferTrtllm, |site| blackwell(site) && !site.is_gemma4() && gathers(site), TRTLLM_EXPERTS),
    row(MoeBackend::FlashinferCutlass, hopper, FLASHINFER_CUTLASS_EXPERTS),
    row(MoeBackend::DeepGemm, |site| deep_gemm(site) && !site.is_gemma4(), DEEPGEMM_EXPERTS),
    row(MoeBackend::Triton, always, TRITON_EXPERTS),
    Row { activations: Some(FormatName::Bf16), ..HUMMING },
    Row { activations: Some(FormatName::Bf16), ..row(MoeBackend::Marlin, always, MARLIN_EXPERTS) },
];

/// The same, read from slots.
const FP8_BLOCK_IN_SLOTS: &[Row] = &[
    row(MoeBackend::DeepGemm, |site| deep_gemm(site) && !site.is_gemma4(), DEEPGEMM_SLOT_EXPERTS),
    row(MoeBackend::Triton, always, TRITON_SLOT_EXPERTS),
];

/// NVFP4.
const NVFP4: &[Row] = &[
    Row { multiples: (256, 1), trims_output: true, ..row(MoeBackend::FlashinferTrtllm, blackwell, TRTLLM_EXPERTS) },
    Row {
        multiples: (256, 1),
        trims_output: true,
        ..row(MoeBackend::FlashinferCutedsl, |site| blackwell(site) && !site.is_gemma4(), FLASHINFER_CUTEDSL_EXPERTS)
    },
    row(MoeBackend::FlashinferCutlass, |site| site.capability >= (10, 0), FLASHINFER_CUTLASS_EXPERTS),
    row(MoeBackend::Cutlass, |site| site.capability >= (10, 0), CUTLASS_EXPERTS),
    Row { activations: Some(FormatName::Bf16), ..HUMMING },
    Row { activations: Some(FormatName::Bf16), ..row(MoeBackend::Marlin, always, MARLIN_EXPERTS) },
];

/// 4-bit integers, multiplied with 16-bit activations. FlashInfer's kernel takes part only where a variable asks for it.
const INT4: &[Row] = &[
    Row { activations: Some(FormatName::Bf16), ..HUMMING },
    Row { activations: Some(FormatName::Bf16), ..row(MoeBackend::Marlin, always, MARLIN_EXPERTS) },
    Row { activations: Some(FormatName::Bf16), ..row(MoeBackend::Triton, always, TRITON_EXPERTS) },
];

/// Unquantised: Triton first on Hopper, and for the clamped activation that FlashInfer's kernels lack; before CUTLASS's where engine cores
/// run in lockstep.
const UNQUANTISED: &[Row] = &[
    Row { backend: None, ..row(MoeBackend::Auto, |site| site.family(9) || site.is_gpt_oss(), TRITON_EXPERTS) },
    Row { multiples: (1, 128), ..row(MoeBackend::FlashinferTrtllm, |site| site.family(10) && silu(site), TRTLLM_EXPERTS) },
    Row { backend: None, ..row(MoeBackend::Auto, |site| site.cores > 1, TRITON_EXPERTS) },
    row(MoeBackend::FlashinferCutlass, |site| site.capability >= (9, 0), FLASHINFER_CUTLASS_EXPERTS),
    row(MoeBackend::Triton, always, TRITON_EXPERTS),
];

fn triton_first(site: &Site<'_>) -> bool {
    hopper(site) && site.expert_ranks == 1 && !Former::CutlassBeforeTriton.ran(site)
}

/// upstream: vllm `utils/deep_gemm.py::is_deep_gemm_supported`, with the switch for experts.
fn deep_gemm(site: &Site<'_>) -> bool {
    let settings = &site.resolved.kernels;
    settings.use_deep_gemm && settings.moe_use_deep_gemm && (hopper(site) || blackwell(site))
}

/// Chooses the backend of a layer's experts.
pub(super) fn choose(site: &Site<'_>, moe: &MixtureOfExperts) -> Result<ExpertsChoice, LoweringError> {
    let stored = moe.expert_format;
    let table = match stored.weights {
        FormatName::Mxfp4 if site.is_gpt_oss() => MXFP4,
        FormatName::Mxfp4 if compressed::applies(site) => MXFP4_EIGHT_BIT,
        FormatName::Fp8 => FP8,
        FormatName::Fp8Block if exchange::backend(site) == All2AllBackend::DeepepLowLatency => FP8_BLOCK_IN_SLOTS,
        FormatName::Fp8Block => FP8_BLOCK,
        FormatName::Nvfp4 => NVFP4,
        FormatName::Int4Group32 | FormatName::Int4Group128 => INT4,
        FormatName::Bf16 | FormatName::Fp16 => UNQUANTISED,
        FormatName::Fp32 | FormatName::Mxfp8 | FormatName::Mxfp4 | FormatName::Int8 => &[],
    };
    let settings = &site.resolved.kernels;
    let variable = settings.asks_for_deep_gemm.filter(|_| matches!(stored.weights, FormatName::Fp8 | FormatName::Fp8Block));
    let (requested, asked) = match (settings.moe_backend, variable) {
        (MoeBackend::Auto, Some(variable)) => (MoeBackend::DeepGemm, format!("{variable}=1, which asks for deep_gemm")),
        (backend, _) => (backend, format!("--moe-backend {}", backend.as_str())),
    };
    let refined = refined_blocks(site, moe);
    let fits = |row: &Row| !refined || settings.moe_backend != MoeBackend::Auto || row.kernel == TRITON_EXPERTS;
    let found = candidates(site, table, stored.weights, requested).into_iter().find(|row| (row.holds)(site) && fits(row));
    let Some(row) = found else {
        let capability = site.capability;
        let format =
            if refined { format!("{} in blocks of {}", stored.label(), scale_block(site.expert_width(moe))) } else { stored.label() };
        return Err(if requested == MoeBackend::Auto {
            LoweringError::NoKernel { what: "experts", format, capability }
        } else {
            LoweringError::ExpertsBackend { asked, format, capability }
        });
    };
    Ok(shaped(site, moe, row))
}

/// Whether a rank's width of an expert cuts through the blocks that share a scale. Upstream then scales smaller blocks, which only
/// Triton reads; for a backend that a flag asks for by name and that cannot, it pads the width to whole blocks.
/// upstream: vllm `model_executor/layers/fused_moe/oracle/fp8.py::resolve_fp8_moe_weight_block_shape`
fn refined_blocks(site: &Site<'_>, moe: &MixtureOfExperts) -> bool {
    moe.expert_format.weights == FormatName::Fp8Block && !site.expert_width(moe).is_multiple_of(BLOCK)
}

/// Elements of an expert's width that share a scale.
const BLOCK: u64 = 128;

/// Side of the square that shares a scale where a rank holds `width` of an expert: the largest that fits both.
/// upstream: vllm `model_executor/layers/fused_moe/oracle/fp8.py::refine_fp8_moe_block_shape`
pub(super) const fn scale_block(width: u64) -> u64 {
    let lowest = 1 << width.trailing_zeros();
    if lowest < BLOCK { lowest } else { BLOCK }
}

/// The rows that take part, in the order they are tried.
fn candidates(site: &Site<'_>, table: &[Row], weights: FormatName, requested: MoeBackend) -> Vec<Row> {
    let asked = |row: &&Row| if requested == MoeBackend::Auto { !row.on_request } else { row.backend == Some(requested) };
    let rows: Vec<Row> = table.iter().filter(asked).copied().collect();
    if weights != FormatName::Mxfp4 || !site.is_gpt_oss() {
        return rows;
    }
    // As upstream's `_filter_by_activation`.
    let (narrow, wide): (Vec<Row>, Vec<Row>) = rows.iter().copied().partition(|row| row.activations == Some(FormatName::Mxfp8));
    match (site.resolved.kernels.moe_activation_mxfp8, wide.is_empty()) {
        (true, _) => [narrow, wide].concat(),
        (false, true) => narrow,
        (false, false) => wide,
    }
}

fn shaped(site: &Site<'_>, moe: &MixtureOfExperts, row: Row) -> ExpertsChoice {
    let usual = match moe.expert_format.weights {
        FormatName::Mxfp4 | FormatName::Bf16 | FormatName::Fp16 => site.dtype(),
        FormatName::Fp32
        | FormatName::Fp8
        | FormatName::Fp8Block
        | FormatName::Mxfp8
        | FormatName::Nvfp4
        | FormatName::Int4Group32
        | FormatName::Int4Group128
        | FormatName::Int8 => moe.expert_format.activations,
    };
    // Weights that are not quantised are loaded in the type of the activations.
    let stored = moe.expert_format.weights;
    let weights = if matches!(stored, FormatName::Bf16 | FormatName::Fp16) { site.dtype() } else { stored };
    let width = stream_width(site, moe);
    let hidden = width.next_multiple_of(row.multiples.0);
    let padded = hidden != width;
    let by_kernel = !Former::PaddingAroundExperts.ran(site);
    // TensorRT-LLM's quantisation to mxfp8 pads while it quantises (upstream's `skip_forward_padding`).
    let quantises_and_pads = by_kernel && row.kernel == TRTLLM_EXPERTS && row.activations == Some(FormatName::Mxfp8);
    let format = MatmulFormat { weights, activations: row.activations.unwrap_or(usual) };
    ExpertsChoice {
        kernel: row.kernel,
        untuned: told_apart(row.kernel, format) && !tunes(site),
        format,
        hidden,
        intermediate: site.expert_width(moe).next_multiple_of(width_multiple(site, moe, row)),
        storage: row.storage,
        pads_input: padded && !quantises_and_pads,
        output: if by_kernel && row.trims_output { width } else { hidden },
    }
}

/// What kernels in front of TensorRT-LLM's experts read and write of a row, of former releases: a cast of what corrects the choice, a few hundred
/// bytes whatever the rows (one byte a row stands for them); the choice, and its packing.
pub(super) fn picking_bytes(site: &Site<'_>, moe: &MixtureOfExperts, chosen: &ExpertsChoice) -> Vec<u64> {
    let casts = match chosen.format.weights {
        FormatName::Nvfp4 => Former::CastCorrectionOfNvfp4.ran(site),
        FormatName::Fp8 => Former::CastCorrectionOfFp8.ran(site),
        FormatName::Fp8Block
        | FormatName::Fp32
        | FormatName::Bf16
        | FormatName::Fp16
        | FormatName::Mxfp8
        | FormatName::Mxfp4
        | FormatName::Int4Group32
        | FormatName::Int4Group128
        | FormatName::Int8 => false,
    };
    if !moe.selection_bias || !exchange::picks_inside(site, chosen) {
        Vec::new()
    } else if casts {
        vec![1]
    } else if site.is_minimax_m3() && Former::PickedInFront.ran(site) {
        let (scores, picks) = (u64::from(moe.experts) * 4, u64::from(moe.top_k) * 8);
        vec![scores + picks, picks + picks / 2]
    } else {
        Vec::new()
    }
}

/// Picks of an expert up to which the launcher takes the tile that tuning would: `fitting/tuned.py::UNTUNED`.
const ALIKE_PICKS: u64 = 8;

/// What FlashInfer's tuner calls TensorRT-LLM's experts of four bits. upstream: flashinfer `fused_moe/core.py::get_trtllm_moe_sm100_module`
const TUNED_OPERATION: &str = "flashinfer::trtllm_fp4_block_scale_moe";

/// Whether those experts are tuned at start-up.
fn tunes(site: &Site<'_>) -> bool {
    let settings = &site.resolved.kernels;
    settings.enable_flashinfer_autotune && !settings.flashinfer_autotune_skip_ops.iter().any(|skipped| skipped == TUNED_OPERATION)
}

/// Whether the kernel runs at other tiles where FlashInfer tunes nothing at start-up. Of its other kernels, and of other formats of this one, it is
/// not known what tuning saves. upstream: vllm `model_executor/warmup/kernel_warmup.py::flashinfer_autotune`
fn told_apart(kernel: KernelName, format: MatmulFormat) -> bool {
    let of_format = match format.weights {
        FormatName::Nvfp4 => true,
        FormatName::Mxfp4 => format.activations == FormatName::Mxfp8,
        FormatName::Fp32
        | FormatName::Bf16
        | FormatName::Fp16
        | FormatName::Fp8
        | FormatName::Fp8Block
        | FormatName::Mxfp8
        | FormatName::Int4Group32
        | FormatName::Int4Group128
        | FormatName::Int8 => false,
    };
    kernel == TRTLLM_EXPERTS && of_format
}

/// Multiple that an expert's width is padded to. FlashInfer's kernels for NVFP4 want the up projection to yield a multiple of 128, with its
/// gate where it has one. upstream: vllm `model_executor/layers/quantization/utils/flashinfer_fp4_moe.py::prepare_nvfp4_moe_layer_for_fi_or_cutlass`
fn width_multiple(site: &Site<'_>, moe: &MixtureOfExperts, row: Row) -> u64 {
    let weights = moe.expert_format.weights;
    if refined_blocks(site, moe) && row.kernel != TRITON_EXPERTS {
        BLOCK
    } else if row.kernel == TRTLLM_EXPERTS && weights == FormatName::Mxfp4 {
        site.resolved.rules.trtllm_mxfp4_width
    } else if weights == FormatName::Nvfp4 && [TRTLLM_EXPERTS, FLASHINFER_CUTEDSL_EXPERTS].contains(&row.kernel) {
        if moe.gated { 64 } else { 128 }
    } else {
        row.multiples.1
    }
}

/// Width of what experts read and write: the residual stream, or what it is projected to before them.
pub(super) fn stream_width(site: &Site<'_>, moe: &MixtureOfExperts) -> u64 {
    moe.latent.map_or(site.model.hidden_size, |latent| latent.width)
}
