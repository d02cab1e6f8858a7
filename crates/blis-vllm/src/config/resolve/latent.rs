//! Which backends of latent attention run: one for decodes, one for prompts.
//!
//! upstream: vllm `platforms/cuda.py::_get_backend_priorities` with `use_mla`; the classes of `v1/attention/backends/mla/`;
//! `platforms/interface.py::Platform.get_mla_prefill_backend_cls`; `v1/attention/backends/mla/prefill/`;
//! `model_executor/layers/attention/mla_attention.py::MLACommonMetadataBuilder.determine_prefill_query_data_type`
//!
//! Attention to tokens that an indexer picks has a file of its own, [`super::selected`]. Left out: several ranks that share one context.

use blis_contracts::model::LatentAttention;

use super::Machine;
use super::attention::{first_valid, names};
use super::ledger::Ledger;
use crate::config::choices::{AttentionBackend, GraphSupport, IndexerKvDtype, KvCacheDtype, MlaPrefillBackend};
use crate::config::error::ConfigError;
use crate::config::resolved::{AttentionSettings, CacheSettings};
use crate::config::setting::Setting;

/// What a layer asks of a backend.
#[derive(Debug, Clone, Copy)]
struct Need {
    capability: (u32, u32),
    kv_cache_dtype: KvCacheDtype,
    block_size: Option<u32>,
    /// Unrotated, rotated and value elements of a head.
    dims: (u32, u32, u32),
    /// Elements cached for each token.
    head_size: u32,
}

pub(super) fn resolve(
    ledger: &mut Ledger<'_>,
    machine: Machine<'_>,
    cache: &CacheSettings,
    attention: &LatentAttention,
) -> Result<AttentionSettings, ConfigError> {
    let need = Need {
        capability: machine.chip.compute_capability.value,
        kv_cache_dtype: cache.kv_cache_dtype,
        block_size: cache.block_size_stated.then_some(cache.block_size),
        dims: (attention.plain_dim, attention.rotary_dim, attention.value_dim),
        head_size: attention.cached(),
    };
    let spelling = ledger.either(Setting::AttentionBackend, Setting::AttentionConfigBackend)?;
    let stated = ledger.stated(spelling).and_then(|value| value.as_str()).and_then(AttentionBackend::named);
    let backend = first_valid(stated, priorities(need.capability), need.block_size, |backend, block_size| {
        obstacles(backend, Need { block_size, ..need })
    })?;
    match stated {
        Some(_) => drop(ledger.value(spelling)),
        None => ledger.derive(Setting::AttentionBackend, backend, format!("first valid of {}", names(priorities(need.capability)))),
    }
    let setting = Setting::AttentionConfigMlaPrefillBackend;
    let stated = ledger.stated(setting).and_then(|value| value.as_str()).and_then(MlaPrefillBackend::named);
    let prefill = prefill_backend(stated, need.capability, need.dims)?;
    match stated {
        Some(_) => drop(ledger.value(setting)),
        None => ledger.derive(setting, prefill, "the first that the chip and the head sizes admit"),
    }
    let wanted = ledger.flag(Setting::AttentionConfigUsePrefillQueryQuantization);
    let can = machine.family(10) && prefill != MlaPrefillBackend::FlashAttn && cache.kv_cache_dtype.is_quantized();
    if wanted && !can {
        let note = format!("use_prefill_query_quantization has no effect: {prefill} prompts over this KV cache stay in 16 bits");
        ledger.note(Some(Setting::AttentionConfigUsePrefillQueryQuantization), note);
    }
    Ok(AttentionSettings {
        backend,
        flash_attn_versions: flash_attn_version(need.capability).map(|version| (attention.query_dim(), version)).into_iter().collect(),
        graph_support: graph_support(backend),
        use_trtllm_attention: ledger.optional_flag(Setting::AttentionConfigUseTrtllmAttention),
        indexer_kv_dtype: IndexerKvDtype::Auto,
        packs_pages: false,
        block_sparse: None,
        mla_prefill: Some(prefill),
        mla_prefill_fp8: wanted && can,
        disable_flashinfer_q_quantization: ledger.flag(Setting::AttentionConfigDisableFlashinferQQuantization),
    })
}

/// Refuses, for a model without latent attention, what only its layers read.
pub(super) fn refuse_its_settings(ledger: &Ledger<'_>) -> Result<(), ConfigError> {
    for setting in [Setting::AttentionConfigMlaPrefillBackend, Setting::AttentionConfigUsePrefillQueryQuantization] {
        if ledger.stated(setting).is_some_and(|value| !value.is_null() && value != false) {
            return Err(ConfigError::Refused(format!("{}: this model has no latent attention; leave it out", setting.key())));
        }
    }
    Ok(())
}

/// Tokens of a block where nothing is stated; none for backends of other attention.
pub(super) fn block_size(backend: AttentionBackend) -> Option<u32> {
    blocks_and_graphs(backend).map(|(tokens, _)| tokens)
}

/// What CUDA graphs a backend allows; nothing for those of other attention.
pub(super) fn graph_support(backend: AttentionBackend) -> GraphSupport {
    blocks_and_graphs(backend).map_or(GraphSupport::Never, |(_, support)| support)
}

/// Tokens of a block and what CUDA graphs are allowed; none for backends of other attention.
const fn blocks_and_graphs(backend: AttentionBackend) -> Option<(u32, GraphSupport)> {
    match backend {
        AttentionBackend::FlashinferMla => Some((32, GraphSupport::Always)),
        AttentionBackend::TokenspeedMla => Some((32, GraphSupport::UniformBatch)),
        AttentionBackend::FlashAttnMla | AttentionBackend::TritonMla => Some((16, GraphSupport::UniformBatch)),
        AttentionBackend::FlashMla => Some((64, GraphSupport::UniformBatch)),
        AttentionBackend::CutlassMla => Some((128, GraphSupport::UniformSingleTokenDecode)),
        AttentionBackend::FlashAttn
        | AttentionBackend::Flashinfer
        | AttentionBackend::TritonAttn
        | AttentionBackend::FlexAttention
        | AttentionBackend::TritonFlashAttn
        | AttentionBackend::TritonFlashinfer
        | AttentionBackend::FlashMlaSparseDsv4
        | AttentionBackend::FlashMlaSparse
        | AttentionBackend::FlashinferMlaSparse
        | AttentionBackend::FlashinferMlaSparseSm120
        | AttentionBackend::FlashinferMlaSparseSm90
        | AttentionBackend::FlashAttnMlaSparse => None,
    }
}

/// The backends in the order they are tried; sparse ones, which end each list, never serve dense layers.
const fn priorities(capability: (u32, u32)) -> &'static [AttentionBackend] {
    use AttentionBackend::{CutlassMla, FlashAttnMla, FlashMla, FlashinferMla, TokenspeedMla, TritonMla};
    match capability.0 {
        10 => &[FlashinferMla, TokenspeedMla, CutlassMla, FlashAttnMla, FlashMla, TritonMla],
        12 => &[TritonMla],
        _ => &[FlashAttnMla, FlashMla, FlashinferMla, TritonMla],
    }
}

/// Why a backend cannot serve a layer; empty where it can.
fn obstacles(backend: AttentionBackend, need: Need) -> Vec<&'static str> {
    let (major, quantized) = (need.capability.0, need.kv_cache_dtype.is_quantized());
    // Capability, KV cache, and the dimensions that a kernel was built for.
    let (capability, kv, dims) = match backend {
        AttentionBackend::FlashinferMla => (major == 10, true, [64, 128, 192].contains(&need.dims.0)),
        AttentionBackend::TokenspeedMla => (major == 10, quantized, need.dims == (128, 64, 128)),
        AttentionBackend::CutlassMla => (major == 10, true, true),
        AttentionBackend::FlashAttnMla => (major == 9, !quantized, true),
        // Its dense kernel is compiled for Hopper alone.
        AttentionBackend::FlashMla => (major == 9, true, true),
        AttentionBackend::TritonMla => (true, true, true),
        AttentionBackend::FlashAttn
        | AttentionBackend::Flashinfer
        | AttentionBackend::TritonAttn
        | AttentionBackend::FlexAttention
        | AttentionBackend::TritonFlashAttn
        | AttentionBackend::TritonFlashinfer => return vec!["MLA not supported"],
        AttentionBackend::FlashMlaSparseDsv4
        | AttentionBackend::FlashMlaSparse
        | AttentionBackend::FlashinferMlaSparse
        | AttentionBackend::FlashinferMlaSparseSm120
        | AttentionBackend::FlashinferMlaSparseSm90
        | AttentionBackend::FlashAttnMlaSparse => return vec!["non-sparse not supported"],
    };
    let head_size = backend == AttentionBackend::TritonMla || [320, 512, 576].contains(&need.head_size);
    let page = block_size(backend).unwrap_or(1);
    let checks = [
        (head_size, "head_size not supported"),
        (kv, "kv_cache_dtype not supported"),
        (need.block_size.is_none_or(|size| size.is_multiple_of(page)), "block_size not supported"),
        (capability, "compute capability not supported"),
        (dims, "head dimensions not supported"),
    ];
    checks.into_iter().filter(|(holds, _)| !holds).map(|(_, reason)| reason).collect()
}

/// What short prompts run of a model whose other prompts do not need it; none where no backend has its head sizes.
pub(super) fn prompts(
    ledger: &mut Ledger<'_>,
    machine: Machine<'_>,
    attention: &LatentAttention,
) -> Result<Option<MlaPrefillBackend>, ConfigError> {
    let dims = (attention.plain_dim, attention.rotary_dim, attention.value_dim);
    let setting = Setting::AttentionConfigMlaPrefillBackend;
    let stated = ledger.stated(setting).and_then(|value| value.as_str()).and_then(MlaPrefillBackend::named);
    let found = prefill_backend(stated, machine.chip.compute_capability.value, dims);
    match (stated, &found) {
        (Some(_), _) => drop(ledger.value(setting)),
        (None, Ok(backend)) => ledger.derive(setting, *backend, "the first that the chip and the head sizes admit"),
        (None, Err(_)) => return Ok(None),
    }
    if ledger.flag(Setting::AttentionConfigUsePrefillQueryQuantization) {
        let note = "use_prefill_query_quantization has no effect: prompts of sparse latent attention stay in 16 bits".to_owned();
        ledger.note(Some(Setting::AttentionConfigUsePrefillQueryQuantization), note);
    }
    found.map(Some)
}

fn prefill_backend(
    stated: Option<MlaPrefillBackend>,
    capability: (u32, u32),
    dims: (u32, u32, u32),
) -> Result<MlaPrefillBackend, ConfigError> {
    use MlaPrefillBackend::{FlashAttn, Flashinfer, TokenspeedMla, TrtllmRagged};
    let valid = |backend: MlaPrefillBackend| match backend {
        FlashAttn => [(128, 64, 128), (192, 64, 256), (64, 64, 128), (256, 0, 256)].contains(&dims),
        TrtllmRagged => capability.0 == 10 && [(128, 64, 128), (192, 64, 256)].contains(&dims),
        Flashinfer | TokenspeedMla => capability.0 == 10 && dims == (128, 64, 128),
    };
    if let Some(backend) = stated {
        return if valid(backend) {
            Ok(backend)
        } else {
            Err(ConfigError::Refused(format!(
                "selected MLA prefill backend {backend} is not valid for this configuration; leave attention_config.mla_prefill_backend out"
            )))
        };
    }
    let tried = match (capability.0, dims) {
        (10, (192, 64, 256)) => &[TrtllmRagged, FlashAttn, Flashinfer, TokenspeedMla][..],
        (10, _) => &[FlashAttn, TrtllmRagged, Flashinfer, TokenspeedMla],
        _ => &[FlashAttn],
    };
    let found = tried.iter().copied().find(|backend| valid(*backend));
    found.ok_or_else(|| ConfigError::Refused("no valid MLA prefill backend found for the model's head dimensions".to_owned()))
}

/// The `FlashAttention` version that prompts would use.
pub(super) const fn flash_attn_version(capability: (u32, u32)) -> Option<u8> {
    match capability.0 {
        9 => Some(3),
        10 | 11 => Some(4),
        8 | 12 => Some(2),
        _ => None,
    }
}
