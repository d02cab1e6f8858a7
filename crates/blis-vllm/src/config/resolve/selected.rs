//! Latent attention to tokens that an indexer picks: its backend, and what its caches hold.
//!
//! upstream: vllm `platforms/cuda.py::_get_backend_priorities`, the classes of `v1/attention/backends/mla/*_sparse*.py`;
//! `model_executor/layers/attention/mla_attention.py::_canonicalize_sparse_mla_kv_cache_dtype`;
//! `models/deepseek_v32/attention.py::DeepseekV32Indexer`, `v1/attention/backends/mla/indexer.py::DeepseekV32IndexerBackend`
//!
//! Left out: contexts that several ranks share, caches of four bits, prompts that a mask over all tokens serves on Blackwell.

use blis_contracts::model::LatentAttention;

use super::Machine;
use super::attention::{first_valid, names};
use super::cache::takes_bfloat16_for_auto;
use super::latent;
use super::ledger::Ledger;
use crate::config::choices::{AttentionBackend, GraphSupport, IndexerKvDtype, KvCacheDtype};
use crate::config::error::ConfigError;
use crate::config::resolved::{AttentionSettings, CacheSettings};
use crate::config::setting::Setting;

/// Tokens of the blocks that the indexer's kernels read.
pub(super) const BLOCK_SIZE: u32 = 64;

/// Tokens a query sees that the kernel for consumer Blackwell was built for.
const SM120_TOP_K: u32 = 2048;

/// Query heads of one rank up to which FlashInfer is tried first on Blackwell over a cache of 16 bits.
const FEW_HEADS: u32 = 16;

#[derive(Debug, Clone, Copy)]
struct Need<'a> {
    capability: (u32, u32),
    kv_cache_dtype: KvCacheDtype,
    block_size: Option<u32>,
    attention: &'a LatentAttention,
}

pub(super) fn resolve(
    ledger: &mut Ledger<'_>,
    machine: Machine<'_>,
    ranks: u32,
    cache: &CacheSettings,
    attention: &LatentAttention,
) -> Result<AttentionSettings, ConfigError> {
    let need = Need {
        capability: machine.chip.compute_capability.value,
        kv_cache_dtype: cache.kv_cache_dtype,
        block_size: cache.block_size_stated.then_some(cache.block_size),
        attention,
    };
    let backend = backend(ledger, need, ranks)?;
    if let Some(size) = need.block_size.filter(|size| !size.is_multiple_of(BLOCK_SIZE)) {
        let wanted = format!("the indexer of this model (DEEPSEEK_V32_INDEXER) reads blocks of {BLOCK_SIZE} tokens");
        return Err(ConfigError::Refused(format!("--block-size {size}: {wanted}; leave it out, or state a multiple of that")));
    }
    if backend.packs_entries(cache.kv_cache_dtype) && cache.kv_cache_dtype != KvCacheDtype::Fp8DsMla {
        let rule = match cache.kv_cache_dtype {
            KvCacheDtype::Auto if takes_bfloat16_for_auto(machine.model) => {
                format!("{backend} knows no 16 bits, and this architecture takes bfloat16 for auto")
            }
            KvCacheDtype::Auto => format!("{backend} knows no 16 bits"),
            KvCacheDtype::Bfloat16 | KvCacheDtype::Fp8E4m3 | KvCacheDtype::Fp8 | KvCacheDtype::Fp8DsMla => {
                format!("how {backend} stores 8 bits")
            }
        };
        ledger.derive(Setting::KvCacheDtype, KvCacheDtype::Fp8DsMla, rule);
    }
    let indexer_kv_dtype = indexer_kv_dtype(ledger)?;
    // Prompts no longer than what a query sees attend to all of it.
    let prompts = if dense_prompts(backend) { latent::prompts(ledger, machine, attention)? } else { None };
    Ok(AttentionSettings {
        backend,
        flash_attn_versions: latent::flash_attn_version(need.capability)
            .map(|version| (attention.query_dim(), version))
            .into_iter()
            .collect(),
        graph_support: GraphSupport::UniformBatch,
        use_trtllm_attention: ledger.optional_flag(Setting::AttentionConfigUseTrtllmAttention),
        indexer_kv_dtype,
        packs_pages: false,
        block_sparse: None,
        mla_prefill: prompts,
        mla_prefill_fp8: false,
        disable_flashinfer_q_quantization: ledger.flag(Setting::AttentionConfigDisableFlashinferQQuantization),
    })
}

/// Whether short prompts may attend as dense latent attention does.
fn dense_prompts(backend: AttentionBackend) -> bool {
    backend != AttentionBackend::FlashinferMlaSparseSm120
}

fn backend(ledger: &mut Ledger<'_>, need: Need<'_>, ranks: u32) -> Result<AttentionBackend, ConfigError> {
    let spelling = ledger.either(Setting::AttentionBackend, Setting::AttentionConfigBackend)?;
    let stated = ledger.stated(spelling).and_then(|value| value.as_str()).and_then(AttentionBackend::named);
    let tried = priorities(need, need.attention.query_heads / ranks);
    let backend = first_valid(stated, tried, need.block_size, |backend, block_size| obstacles(backend, Need { block_size, ..need }))?;
    match stated {
        Some(_) => drop(ledger.value(spelling)),
        None => ledger.derive(Setting::AttentionBackend, backend, format!("first valid of {}", names(tried))),
    }
    Ok(backend)
}

/// The sparse backends in the order they are tried; the dense ones in front of them never serve such layers.
fn priorities(need: Need<'_>, heads: u32) -> &'static [AttentionBackend] {
    use AttentionBackend::{FlashAttnMlaSparse, FlashMlaSparse, FlashinferMlaSparse, FlashinferMlaSparseSm90, FlashinferMlaSparseSm120};
    match need.capability.0 {
        10 if need.kv_cache_dtype.is_quantized() || heads <= FEW_HEADS => &[FlashinferMlaSparse, FlashMlaSparse],
        10 => &[FlashMlaSparse, FlashinferMlaSparse],
        12 => &[FlashinferMlaSparseSm120],
        _ if need.attention.cached() == 512 => &[FlashinferMlaSparseSm90, FlashAttnMlaSparse, FlashMlaSparse],
        _ => &[FlashAttnMlaSparse, FlashMlaSparse, FlashinferMlaSparseSm90],
    }
}

/// Why a backend cannot serve a layer; empty where it can.
fn obstacles(backend: AttentionBackend, need: Need<'_>) -> Vec<&'static str> {
    let (major, dtype, packed) = (need.capability.0, need.kv_cache_dtype, need.kv_cache_dtype == KvCacheDtype::Fp8DsMla);
    let LatentAttention { plain_dim, rotary_dim, kv_rank, .. } = *need.attention;
    // Capability, KV cache, page, and the dimensions that a kernel was built for.
    let (capability, kv, page, dims) = match backend {
        AttentionBackend::FlashMlaSparse => ([9, 10].contains(&major), dtype != KvCacheDtype::Fp8E4m3, BLOCK_SIZE, true),
        AttentionBackend::FlashinferMlaSparse => (major == 10, !packed, 32, [128, 192].contains(&plain_dim)),
        AttentionBackend::FlashinferMlaSparseSm120 => {
            let top_k = need.attention.selection.as_ref().map(|selection| selection.top_k);
            (major == 12, dtype != KvCacheDtype::Bfloat16, BLOCK_SIZE, top_k == Some(SM120_TOP_K))
        }
        AttentionBackend::FlashinferMlaSparseSm90 => (major == 9, !packed, BLOCK_SIZE, (kv_rank, rotary_dim) == (512, 64)),
        AttentionBackend::FlashAttnMlaSparse => (major == 9, !dtype.is_quantized(), BLOCK_SIZE, true),
        AttentionBackend::FlashAttn
        | AttentionBackend::Flashinfer
        | AttentionBackend::TritonAttn
        | AttentionBackend::FlexAttention
        | AttentionBackend::TritonFlashAttn
        | AttentionBackend::TritonFlashinfer => return vec!["MLA not supported"],
        AttentionBackend::FlashinferMla
        | AttentionBackend::TokenspeedMla
        | AttentionBackend::CutlassMla
        | AttentionBackend::FlashAttnMla
        | AttentionBackend::FlashMla
        | AttentionBackend::TritonMla
        | AttentionBackend::FlashMlaSparseDsv4 => return vec!["sparse not supported"],
    };
    let head_size = backend == AttentionBackend::FlashAttnMlaSparse || need.attention.cached() == 576;
    let checks = [
        (head_size, "head_size not supported"),
        (kv, "kv_cache_dtype not supported"),
        (need.block_size.is_none_or(|size| size.is_multiple_of(page)), "block_size not supported"),
        (capability, "compute capability not supported"),
        (dims, "head dimensions or index_topk not supported"),
    ];
    checks.into_iter().filter(|(holds, _)| !holds).map(|(_, reason)| reason).collect()
}

fn indexer_kv_dtype(ledger: &mut Ledger<'_>) -> Result<IndexerKvDtype, ConfigError> {
    let setting = Setting::AttentionConfigIndexerKvDtype;
    match ledger.choice(setting, IndexerKvDtype::named) {
        IndexerKvDtype::Auto => {
            ledger.derive(setting, IndexerKvDtype::Fp8, "auto: what the model's code stores");
            Ok(IndexerKvDtype::Fp8)
        }
        IndexerKvDtype::Fp8 => Ok(IndexerKvDtype::Fp8),
        stated @ (IndexerKvDtype::Bf16 | IndexerKvDtype::Mxfp4) => {
            Err(ConfigError::Refused(format!("indexer_kv_dtype='{stated}': the indexer of this model stores 8 bits; leave it out")))
        }
    }
}
