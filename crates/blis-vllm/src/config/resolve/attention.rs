//! Which attention backend runs: an ordered list per device, each entry checked against what the model and the line ask for.
//!
//! upstream: vllm `platforms/cuda.py::_get_backend_priorities`, `get_attn_backend_cls`;
//! `v1/attention/backend.py::AttentionBackend.validate_configuration` and its overrides in `flash_attn.py`, `flashinfer.py`,
//! `triton_attn.py`, `flex_attention.py`; `v1/attention/backends/fa_utils.py::get_flash_attn_version`;
//! `platforms/interface.py::Platform.update_block_size_for_backend`. Latent attention has a file of its own, [`latent`]. Left out:
//! encoders, `TurboQuant`.

use super::Machine;
use super::cache::DEFAULT_BLOCK_SIZE;
use super::ledger::Ledger;
use super::model::{attentions, latent_attention, recurrent};
use super::{block_sparse, chunked, compressed, latent, selected};
use crate::config::choices::{AttentionBackend, GraphSupport, IndexerKvDtype, KvCacheDtype};
use crate::config::error::ConfigError;
use crate::config::resolved::{AttentionSettings, CacheSettings};
use crate::config::setting::Setting;

/// What a layer asks of a backend.
#[derive(Debug, Clone, Copy)]
struct Need {
    head_size: u32,
    kv_cache_dtype: KvCacheDtype,
    block_size: Option<u32>,
    has_sink: bool,
    capability: (u32, u32),
    stated_version: Option<u8>,
    trtllm: Option<bool>,
}

pub(super) fn resolve(
    ledger: &mut Ledger<'_>,
    machine: Machine<'_>,
    ranks: u32,
    cache: &CacheSettings,
) -> Result<AttentionSettings, ConfigError> {
    if compressed::attentions(machine.model).next().is_some() {
        latent::refuse_its_settings(ledger)?;
        return compressed::resolve(ledger, machine, cache);
    }
    if let Some(attention) = latent_attention(machine.model)? {
        return if attention.selection.is_some() {
            selected::resolve(ledger, machine, ranks, cache, attention)
        } else {
            latent::resolve(ledger, machine, cache, attention)
        };
    }
    latent::refuse_its_settings(ledger)?;
    let version = ledger.optional_count(Setting::AttentionConfigFlashAttnVersion)?;
    let trtllm = ledger.optional_flag(Setting::AttentionConfigUseTrtllmAttention);
    let spelling = ledger.either(Setting::AttentionBackend, Setting::AttentionConfigBackend)?;
    let stated = ledger.stated(spelling).and_then(|value| value.as_str()).and_then(AttentionBackend::named);
    let need = |attention: &blis_contracts::model::GroupedQueryAttention| Need {
        head_size: attention.head_dim,
        kv_cache_dtype: cache.kv_cache_dtype,
        block_size: cache.block_size_stated.then_some(cache.block_size),
        has_sink: attention.sinks,
        capability: machine.chip.compute_capability.value,
        stated_version: version.and_then(|version| u8::try_from(version).ok()),
        trtllm,
    };
    let mut chosen: Option<(AttentionBackend, Need)> = None;
    for need in attentions(machine.model).map(need) {
        let backend = first_valid(stated, priorities(need.capability), |backend| obstacles(backend, need))?;
        match chosen {
            Some((other, _)) if other != backend => {
                return Err(ConfigError::NotPorted(format!(
                    "layers of this model would use different attention backends ({other} and {backend}), which is not modelled; \
                     state one that serves all with --attention-backend"
                )));
            }
            _ => chosen = Some((backend, need)),
        }
    }
    let (backend, need) = chosen.ok_or_else(|| ConfigError::Refused("the model has no attention layer".to_owned()))?;
    match stated {
        Some(_) => drop(ledger.value(spelling)),
        None => ledger.derive(Setting::AttentionBackend, backend, format!("first valid of {}", names(priorities(need.capability)))),
    }
    let flash_attn_version = flash_attn_version(need, Some(need.head_size));
    let support = if chunked::applies(machine) { GraphSupport::Never } else { graph_support(backend, need, machine) };
    let block_sparse = block_sparse::resolve(ledger, machine, ranks, cache)?;
    Ok(AttentionSettings {
        backend,
        flash_attn_version,
        graph_support: if block_sparse.is_some() || recurrent(machine.model) { GraphSupport::UniformBatch.min(support) } else { support },
        flash_attn_max_num_splits_for_cuda_graph: ledger.count(Setting::AttentionConfigFlashAttnMaxNumSplitsForCudaGraph)?,
        use_trtllm_attention: trtllm,
        indexer_kv_dtype: IndexerKvDtype::Auto,
        packs_pages: false,
        block_sparse,
        mla_prefill: None,
        mla_prefill_fp8: false,
        disable_flashinfer_q_quantization: ledger.flag(Setting::AttentionConfigDisableFlashinferQQuantization),
    })
}

/// Tokens of a KV block: as stated, else the backend's preference.
pub(super) fn block_size(ledger: &mut Ledger<'_>, machine: Machine<'_>, attention: &AttentionSettings, cache: &CacheSettings) -> u32 {
    if cache.block_size_stated {
        return cache.block_size;
    }
    if let Some(preferred) = latent::block_size(attention.backend) {
        ledger.derive(Setting::BlockSize, preferred, format!("what {} prefers", attention.backend));
        return preferred;
    }
    if attention.backend == AttentionBackend::FlashMlaSparseDsv4 {
        ledger.derive(Setting::BlockSize, compressed::BLOCK_SIZE, format!("what {} prefers", attention.backend));
        return compressed::BLOCK_SIZE;
    }
    if latent_attention(machine.model).ok().flatten().is_some_and(|attention| attention.selection.is_some()) {
        let preferred = selected::BLOCK_SIZE;
        ledger.derive(Setting::BlockSize, preferred, "the least that attention and its indexer read");
        return preferred;
    }
    if attention.block_sparse.is_some() {
        let preferred = block_sparse::PAGE_TOKENS;
        ledger.derive(Setting::BlockSize, preferred, "the one that layers with an indexer read");
        return preferred;
    }
    let preferred = kernel_block_size(machine, attention, cache);
    ledger.derive(Setting::BlockSize, preferred, format!("what {} prefers", attention.backend));
    preferred
}

/// Tokens of the smallest block the kernels of keys and values read, which the backend prefers too.
pub(super) fn kernel_block_size(machine: Machine<'_>, attention: &AttentionSettings, cache: &CacheSettings) -> u32 {
    let head_size = attentions(machine.model).map(|layer| layer.head_dim).max().unwrap_or_default();
    let wide_pages = attention.backend == AttentionBackend::FlashAttn && attention.flash_attn_version == Some(4);
    if wide_pages && head_size == 256 && machine.family(10) {
        128
    } else if wide_pages && head_size == 512 && machine.family(9) && cache.kv_cache_dtype.is_quantized() {
        64
    } else {
        u32::try_from(DEFAULT_BLOCK_SIZE).expect("a small constant")
    }
}

/// The backends in the order they are tried.
const fn priorities(capability: (u32, u32)) -> &'static [AttentionBackend] {
    use AttentionBackend::{FlashAttn, Flashinfer, FlexAttention, TritonAttn};
    if capability.0 == 10 {
        &[Flashinfer, FlashAttn, TritonAttn, FlexAttention]
    } else {
        &[FlashAttn, Flashinfer, TritonAttn, FlexAttention]
    }
}

/// Backends by name, in the order they are tried.
pub(super) fn names(backends: &[AttentionBackend]) -> String {
    backends.iter().map(|backend| backend.as_str()).collect::<Vec<_>>().join(", ")
}

/// The backend the line states, or the first of those tried that has no obstacle.
pub(super) fn first_valid(
    stated: Option<AttentionBackend>,
    tried: &[AttentionBackend],
    obstacles: impl Fn(AttentionBackend) -> Vec<&'static str>,
) -> Result<AttentionBackend, ConfigError> {
    if let Some(backend) = stated {
        let reasons = obstacles(backend);
        return if reasons.is_empty() {
            Ok(backend)
        } else {
            Err(ConfigError::Refused(format!(
                "selected backend {backend} is not valid for this configuration: {}; leave --attention-backend out",
                reasons.join(", ")
            )))
        };
    }
    tried.iter().copied().find(|backend| obstacles(*backend).is_empty()).ok_or_else(|| {
        let why: Vec<String> = tried.iter().map(|backend| format!("{backend}: {}", obstacles(*backend).join(", "))).collect();
        ConfigError::Refused(format!("no valid attention backend found: {}", why.join("; ")))
    })
}

/// Why a backend cannot serve a layer; empty where it can.
fn obstacles(backend: AttentionBackend, need: Need) -> Vec<&'static str> {
    let quantized = need.kv_cache_dtype.is_quantized();
    let family = need.capability.0;
    let version = flash_attn_version(need, None);
    let (head_size, kv, sink, capability, combination) = match backend {
        AttentionBackend::FlashAttn => (
            need.head_size.is_multiple_of(8) && need.head_size <= if matches!(family, 9..=11) { 512 } else { 256 },
            !quantized || flash_attn_reads_fp8(version, family, None),
            matches!(version, Some(3 | 4)),
            need.capability >= (8, 0),
            flash_attn_combination(need),
        ),
        AttentionBackend::Flashinfer => (
            [64, 128, 256, 512].contains(&need.head_size),
            true,
            need.trtllm != Some(false) && (need.capability == (9, 0) || matches!(family, 10 | 12)),
            ((8, 0)..=(12, 1)).contains(&need.capability),
            None,
        ),
        AttentionBackend::TritonAttn => (need.head_size >= 32, true, true, true, None),
        AttentionBackend::FlexAttention => (true, !quantized, false, true, None),
        AttentionBackend::FlashinferMla
        | AttentionBackend::TokenspeedMla
        | AttentionBackend::CutlassMla
        | AttentionBackend::FlashAttnMla
        | AttentionBackend::FlashMla
        | AttentionBackend::TritonMla
        | AttentionBackend::FlashMlaSparseDsv4
        | AttentionBackend::FlashMlaSparse
        | AttentionBackend::FlashinferMlaSparse
        | AttentionBackend::FlashinferMlaSparseSm120
        | AttentionBackend::FlashinferMlaSparseSm90
        | AttentionBackend::FlashAttnMlaSparse => return vec!["non-MLA not supported"],
    };
    let checks = [
        (head_size, "head_size not supported"),
        (kv, "kv_cache_dtype not supported"),
        (need.block_size.is_none_or(|size| size.is_multiple_of(16)), "block_size not supported"),
        (sink || !need.has_sink, "attention sinks not supported"),
        (capability, "compute capability not supported"),
    ];
    checks.into_iter().filter(|(holds, _)| !holds).map(|(_, reason)| reason).chain(combination).collect()
}

fn flash_attn_combination(need: Need) -> Option<&'static str> {
    if need.has_sink && need.capability < (9, 0) {
        return Some("sink not supported on compute capability < 9.0");
    }
    let version = flash_attn_version(need, Some(need.head_size));
    let reads = flash_attn_reads_fp8(version, need.capability.0, Some(need.head_size));
    (need.kv_cache_dtype.is_quantized() && !reads)
        .then_some("FP8 KV cache requires FA3 on SM90, FA4 with head_size=512 on SM90, or FA4 on SM100")
}

fn flash_attn_reads_fp8(version: Option<u8>, family: u32, head_size: Option<u32>) -> bool {
    match (version, family) {
        (Some(3), 9) | (Some(4), 10) => true,
        (Some(4), 9) => matches!(head_size, None | Some(512)),
        _ => false,
    }
}

/// The `FlashAttention` version for a head size (or in general): by device, then by what the line states, then by what exists.
fn flash_attn_version(need: Need, head_size: Option<u32>) -> Option<u8> {
    let family = need.capability.0;
    let mut version = need.stated_version.unwrap_or(match family {
        9 => 3,
        10 => 4,
        _ => 2,
    });
    if family >= 10 && version == 3 {
        version = if matches!(family, 10 | 11) { 4 } else { 2 };
    }
    if version == 3 && family == 9 && head_size.is_some_and(|size| size > 256) {
        version = 4;
    }
    let dedicated = head_size == Some(256) && matches!(family, 10 | 11);
    if version == 4 && dedicated && (need.has_sink || need.kv_cache_dtype.is_quantized() || need.block_size.is_some_and(|b| b % 128 != 0)) {
        version = 2;
    }
    if version == 4 && family >= 10 && head_size.is_some_and(|size| size > 128 && size != 256) {
        version = 2;
    }
    let supported = match version {
        2 => family >= 8,
        3 => family == 9,
        _ => matches!(family, 9..=11),
    };
    supported.then_some(version)
}

/// What CUDA graphs a backend allows. `FlashAttention` states it before it reads any configuration: by device alone.
fn graph_support(backend: AttentionBackend, need: Need, machine: Machine<'_>) -> GraphSupport {
    match backend {
        AttentionBackend::FlashAttn if machine.family(9) => GraphSupport::Always,
        AttentionBackend::FlashAttn
        | AttentionBackend::FlashMlaSparseDsv4
        | AttentionBackend::FlashMlaSparse
        | AttentionBackend::FlashinferMlaSparse
        | AttentionBackend::FlashinferMlaSparseSm120
        | AttentionBackend::FlashinferMlaSparseSm90
        | AttentionBackend::FlashAttnMlaSparse => GraphSupport::UniformBatch,
        AttentionBackend::TritonAttn | AttentionBackend::FlexAttention => GraphSupport::Always,
        AttentionBackend::Flashinfer => {
            let compact = need.capability == (9, 0) || machine.family(12);
            let head_fits = (16..=256).contains(&need.head_size) && need.head_size.is_multiple_of(16);
            let kernels = need.trtllm != Some(false) && (machine.family(10) || (compact && head_fits));
            if kernels { GraphSupport::UniformBatch } else { GraphSupport::UniformSingleTokenDecode }
        }
        AttentionBackend::FlashinferMla
        | AttentionBackend::TokenspeedMla
        | AttentionBackend::CutlassMla
        | AttentionBackend::FlashAttnMla
        | AttentionBackend::FlashMla
        | AttentionBackend::TritonMla => latent::graph_support(backend),
    }
}
