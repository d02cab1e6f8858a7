//! Which kernel attends: within the backend the configuration resolved, one for prompts and one for decodes.
//!
//! upstream: vllm `v1/attention/backends/flashinfer.py::FlashInferMetadataBuilder`, `utils/flashinfer.py::use_trtllm_attention`, `can_use_trtllm_attention`
//!
//! Left out: choices that depend on a batch (FlashInfer's own decode for more than 256 tokens is reached only off Blackwell).

use std::num::NonZeroU32;

use blis_contracts::model::{Attention, GroupedQueryAttention, LayerBlock};
use blis_contracts::plan::Dealing;

use super::elementwise;
use super::former::Former;
use super::names::{
    CSRC_QUANTISE, FLASH_ATTN_2, FLASH_ATTN_3, FLASH_ATTN_4, FLASHINFER_DECODE, FLASHINFER_PREFILL, FLASHINFER_PREFILL_HOPPER,
    FLEX_ATTENTION, INDUCTOR_FUSED, KernelName, TRITON_ATTENTION, TRTLLM_DECODE, TRTLLM_PREFILL, XQA_DECODE,
};
use super::site::Site;
use crate::config::AttentionBackend;

/// A kernel, and when it is chosen.
struct Row {
    holds: fn(&Site<'_>, &GroupedQueryAttention) -> bool,
    kernel: KernelName,
}

const fn row(holds: fn(&Site<'_>, &GroupedQueryAttention) -> bool, kernel: KernelName) -> Row {
    Row { holds, kernel }
}

/// Widest head that XQA reads.
const XQA_WIDEST: u32 = 256;

/// Kernels for prompts, in order.
const PREFILL: &[Row] = &[
    row(|site, _| uses(site, AttentionBackend::TritonAttn), TRITON_ATTENTION),
    row(|site, _| uses(site, AttentionBackend::FlexAttention), FLEX_ATTENTION),
    row(|site, own| flash_attn(site, own, 4), FLASH_ATTN_4),
    row(|site, own| flash_attn(site, own, 3), FLASH_ATTN_3),
    row(|site, _| uses_flash_attn(site), FLASH_ATTN_2),
    row(trtllm_prefill, TRTLLM_PREFILL),
    row(|site, _| site.family(9), FLASHINFER_PREFILL_HOPPER),
    row(|_, _| true, FLASHINFER_PREFILL),
];

/// Kernels for decodes, in order.
const DECODE: &[Row] = &[
    row(|site, _| uses(site, AttentionBackend::TritonAttn), TRITON_ATTENTION),
    row(|site, _| uses(site, AttentionBackend::FlexAttention), FLEX_ATTENTION),
    row(|site, own| flash_attn(site, own, 4), FLASH_ATTN_4),
    row(|site, own| flash_attn(site, own, 3), FLASH_ATTN_3),
    row(|site, _| uses_flash_attn(site), FLASH_ATTN_2),
    row(|site, _| site.family(10) && trtllm_allowed(site), TRTLLM_DECODE),
    row(|site, own| (site.capability == (9, 0) || site.family(12)) && trtllm_allowed(site) && own.head_dim <= XQA_WIDEST, XQA_DECODE),
    row(|_, _| true, FLASHINFER_DECODE),
];

/// The kernel for prompts of a layer.
pub(super) fn prefill(site: &Site<'_>, own: &GroupedQueryAttention) -> KernelName {
    decide(PREFILL, site, own)
}

/// The kernel for decodes.
pub(super) fn decode(site: &Site<'_>, own: &GroupedQueryAttention) -> KernelName {
    decide(DECODE, site, own)
}

/// Whether attention writes its output quantised, so that the output projection reads it as it is.
/// upstream: vllm `compilation/passes/fusion/attn_quant_fusion.py`, `v1/attention/backends/flashinfer.py::FlashInferImpl.fused_output_quant_supported`
pub(super) fn quantises_output(site: &Site<'_>, own: &GroupedQueryAttention) -> bool {
    let compilation = &site.resolved.compilation;
    let in_one_graph = site.compiled() && compilation.passes.fuse_attn_quant && !compilation.splits_at_attention;
    let kernels = (prefill(site, own), decode(site, own)) == (TRTLLM_PREFILL, TRTLLM_DECODE);
    in_one_graph && kernels && site.resolved.cache.kv_cache_dtype.is_quantized()
}

/// What quantises queries for a cache of 8 bits, where it is not the kernel that turns them: the compiler writes both as one where it writes both.
/// upstream: vllm `model_executor/layers/attention/attention.py::Attention.forward`, `supports_quant_query_input` of the backends
pub(super) fn query_quantisation(site: &Site<'_>, own: &GroupedQueryAttention) -> Option<KernelName> {
    let kernel = decode(site, own);
    let on_request = kernel == TRTLLM_DECODE && !site.resolved.attention.disable_flashinfer_q_quantization;
    let latest = kernel == FLASH_ATTN_4 && site.capability != (9, 0);
    let takes_them = on_request || latest || [FLASH_ATTN_3, TRITON_ATTENTION].contains(&kernel);
    if !site.resolved.cache.kv_cache_dtype.is_quantized() || !takes_them {
        None
    } else if site.custom_op("quant_fp8") || Former::UnmergedAttention.ran(site) {
        Some(CSRC_QUANTISE)
    } else {
        Some(INDUCTOR_FUSED).filter(|&compiler| elementwise::rope(site) != compiler)
    }
}

/// Most parts of one decode inside a graph. upstream: vllm `config/attention.py::AttentionConfig`
const PARTS_IN_GRAPH: NonZeroU32 = NonZeroU32::new(32).expect("not nothing");

/// How decodes' blocks are dealt: later kernels sort requests by their contexts first.
pub(super) fn dealing(site: &Site<'_>, own: &GroupedQueryAttention) -> Dealing {
    if decode(site, own) != FLASH_ATTN_3 || !Former::DealtInTurn.ran(site) {
        return Dealing::Evenly;
    }
    Dealing::InTurn { parts_in_graph: PARTS_IN_GRAPH }
}

/// Whether every layer shares out its requests' blocks anew in a kernel in front of attention: where windows differ, one plan a step does not serve.
/// upstream: vllm `v1/attention/backends/flash_attn.py::FlashAttentionMetadataBuilder.build`. That the kernel then runs is from memory of
/// `FlashAttention`, whose sources are in no wheel.
pub(super) fn shares_out(site: &Site<'_>, own: &GroupedQueryAttention) -> bool {
    let differs = |layer: &LayerBlock| match &layer.attention {
        Attention::GroupedQuery(attention) => attention.window != own.window,
        Attention::Latent(_) | Attention::Compressed(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => false,
    };
    decode(site, own) == FLASH_ATTN_3 && site.model.layers().any(differs)
}

fn decide(table: &[Row], site: &Site<'_>, own: &GroupedQueryAttention) -> KernelName {
    table.iter().find(|row| (row.holds)(site, own)).expect("the last row always holds").kernel
}

fn uses(site: &Site<'_>, backend: AttentionBackend) -> bool {
    site.resolved.attention.backend == backend
}

/// Whether `FlashAttention` serves whatever has no image.
fn uses_flash_attn(site: &Site<'_>) -> bool {
    uses(site, AttentionBackend::FlashAttn) || uses(site, AttentionBackend::TritonFlashAttn)
}

fn flash_attn(site: &Site<'_>, own: &GroupedQueryAttention, version: u8) -> bool {
    uses_flash_attn(site) && site.resolved.attention.flash_attn_version(own.head_dim) == Some(version)
}

fn trtllm_allowed(site: &Site<'_>) -> bool {
    site.resolved.attention.use_trtllm_attention != Some(false)
}

/// On Blackwell, unless forbidden: where queries are quantised, for sinks, for a cache in the model's own type, or where demanded.
fn trtllm_prefill(site: &Site<'_>, own: &GroupedQueryAttention) -> bool {
    let attention = &site.resolved.attention;
    let quantised = site.resolved.cache.kv_cache_dtype.is_quantized();
    let quantised_queries = quantised && !attention.disable_flashinfer_q_quantization;
    let wanted = quantised_queries || own.sinks || !quantised || attention.use_trtllm_attention == Some(true);
    site.family(10) && trtllm_allowed(site) && wanted
}
