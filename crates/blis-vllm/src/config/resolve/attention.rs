//! Which attention backend runs: an ordered list per device, each entry checked against what the model and the line ask for.
//!
//! upstream: vllm `platforms/cuda.py::_get_backend_priorities`, `get_attn_backend_cls`;
//! `v1/attention/backend.py::AttentionBackend.validate_configuration` and its overrides in `flash_attn.py`, `flashinfer.py`,
//! `triton_attn.py`, `flex_attention.py`; `v1/attention/backends/fa_utils.py::get_flash_attn_version`;
//! `platforms/interface.py::Platform.update_block_size_for_backend`; `v1/attention/backends/composite.py`, `triton_flash_attn.py`,
//! `triton_flashinfer.py`. Latent attention has a file of its own, [`latent`]. Left out: encoders, `TurboQuant`.

use blis_contracts::model::GroupedQueryAttention;

use super::Machine;
use super::cache::DEFAULT_BLOCK_SIZE;
use super::ledger::Ledger;
use super::model::{attentions, latent_attention, recurrent};
use super::{block_sparse, chunked, compressed, gemma4, latent, selected};
use crate::config::choices::{AttentionBackend, GraphSupport, IndexerKvDtype, KvCacheDtype};
use crate::config::error::ConfigError;
use crate::config::resolved::{AttentionSettings, CacheSettings};
use crate::config::setting::Setting;

/// What a layer asks of a backend.
#[derive(Debug, Clone, Copy)]
struct Need {
    head_size: u32,
    /// Elements of the model's widest head.
    widest: u32,
    kv_cache_dtype: KvCacheDtype,
    block_size: Option<u32>,
    has_sink: bool,
    /// Whether the tokens of an image see each other.
    masks_images: bool,
    capability: (u32, u32),
    stated_version: Option<u8>,
    trtllm: Option<bool>,
}

pub(super) fn resolve(
    ledger: &mut Ledger<'_>,
    machine: Machine<'_>,
    ranks: u32,
    cache: &CacheSettings,
    language_model_only: bool,
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
    let version = version.and_then(|version| u8::try_from(version).ok());
    let preferred = gemma4::prefer(ledger, machine, cache, gemma4::Preference { version, backend: stated });
    let need_of = |attention: &GroupedQueryAttention| Need {
        head_size: attention.head_dim,
        widest: widest(machine),
        kv_cache_dtype: cache.kv_cache_dtype,
        block_size: cache.block_size_stated.then_some(cache.block_size),
        has_sink: attention.sinks,
        masks_images: gemma4::masks_images(machine, language_model_only),
        capability: machine.chip.compute_capability.value,
        stated_version: preferred.version,
        trtllm,
    };
    let needs: Vec<Need> = attentions(machine.model).map(need_of).collect();
    let (backend, need) = choose(&needs, preferred.backend)?;
    match (stated, preferred.backend) {
        (Some(_), _) => drop(ledger.value(spelling)),
        (None, Some(_)) => {
            ledger.derive(Setting::AttentionBackend, backend, "heads of two widths, which no FlashAttention of this chip reads");
        }
        (None, None) => ledger.derive(Setting::AttentionBackend, backend, format!("first valid of {}", names(priorities(need)))),
    }
    let version = |need: &Need| Some((need.head_size, flash_attn_version(*need, Some(need.head_size))?));
    let flash_attn_versions = needs.iter().filter_map(version).collect();
    let support = if chunked::applies(machine) { GraphSupport::Never } else { graph_support(backend, need, machine) };
    let block_sparse = block_sparse::resolve(ledger, machine, ranks, cache)?;
    Ok(AttentionSettings {
        backend,
        flash_attn_versions,
        graph_support: if block_sparse.is_some() || recurrent(machine.model) { GraphSupport::UniformBatch.min(support) } else { support },
        use_trtllm_attention: trtllm,
        indexer_kv_dtype: IndexerKvDtype::Auto,
        packs_pages: false,
        block_sparse,
        mla_prefill: None,
        mla_prefill_fp8: false,
        disable_flashinfer_q_quantization: ledger.flag(Setting::AttentionConfigDisableFlashinferQQuantization),
    })
}

/// One backend for what every layer asks, with the last of these.
fn choose(needs: &[Need], preferred: Option<AttentionBackend>) -> Result<(AttentionBackend, Need), ConfigError> {
    let mut chosen: Option<(AttentionBackend, Need)> = None;
    for &need in needs {
        let backend = first_valid(preferred, priorities(need), need.block_size, |backend, block_size| {
            obstacles(backend, Need { block_size, ..need })
        })?;
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
    if backend == AttentionBackend::TritonAttn && need.kv_cache_dtype.is_quantized() && need.capability < TRITON_FP8_FROM {
        let (major, minor) = need.capability;
        return Err(ConfigError::Refused(format!(
            "FP8 KV cache is not supported by the Triton attention backend on compute capability {major}.{minor}; \
             state --kv-cache-dtype bfloat16"
        )));
    }
    Ok((backend, need))
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

fn widest(machine: Machine<'_>) -> u32 {
    attentions(machine.model).map(|layer| layer.head_dim).max().unwrap_or_default()
}

/// Tokens of the smallest block the kernels of keys and values read, which the backend prefers too.
pub(super) fn kernel_block_size(machine: Machine<'_>, attention: &AttentionSettings, cache: &CacheSettings) -> u32 {
    let head_size = widest(machine);
    if attention.backend == AttentionBackend::TritonFlashinfer {
        return TRITON_FLASHINFER_BLOCK;
    }
    let flash_attn = matches!(attention.backend, AttentionBackend::FlashAttn | AttentionBackend::TritonFlashAttn);
    let wide_pages = flash_attn && attention.flash_attn_version(head_size) == Some(4);
    if wide_pages && head_size == 256 && machine.family(10) {
        128
    } else if wide_pages && head_size == 512 && machine.family(9) && cache.kv_cache_dtype.is_quantized() {
        FLASH_ATTN_4_FP8_BLOCK
    } else {
        u32::try_from(DEFAULT_BLOCK_SIZE).expect("a small constant")
    }
}

/// Compute capability from which Triton reads 8-bit floats. upstream: vllm `v1/attention/backends/triton_attn.py::TritonAttentionImpl`
const TRITON_FP8_FROM: (u32, u32) = (8, 9);

/// Tokens of a block that both kernels of Triton's composite with FlashInfer read.
const TRITON_FLASHINFER_BLOCK: u32 = 64;

/// Tokens of a block of 8-bit keys and values that `FlashAttention` 4 reads on Hopper.
const FLASH_ATTN_4_FP8_BLOCK: u32 = 64;

/// Head widths that composites are made for.
const COMPOSITE_WIDTHS: [u32; 2] = [256, 512];

/// The backends in the order they are tried. Where images are masked, a composite comes first: Triton for steps with an image, another
/// kernel for the rest.
const fn priorities(need: Need) -> &'static [AttentionBackend] {
    use AttentionBackend::{FlashAttn, Flashinfer, FlexAttention, TritonAttn, TritonFlashAttn, TritonFlashinfer};
    match (need.capability.0, need.masks_images) {
        (10, true) => &[TritonFlashinfer, Flashinfer, FlashAttn, TritonAttn, FlexAttention],
        (10, false) => &[Flashinfer, FlashAttn, TritonAttn, FlexAttention],
        (9, true) => &[TritonFlashAttn, FlashAttn, Flashinfer, TritonAttn, FlexAttention],
        _ => &[FlashAttn, Flashinfer, TritonAttn, FlexAttention],
    }
}

/// Backends by name, in the order they are tried.
pub(super) fn names(backends: &[AttentionBackend]) -> String {
    backends.iter().map(|backend| backend.as_str()).collect::<Vec<_>>().join(", ")
}

/// Sizes of a block that a refusal may propose, in tokens.
const PROPOSED_BLOCKS: [u32; 6] = [16, 32, 64, 128, 256, 512];

/// The backend the line states, or the first of those tried that has no obstacle. `block_size` is the one the line states.
pub(super) fn first_valid(
    stated: Option<AttentionBackend>,
    tried: &[AttentionBackend],
    block_size: Option<u32>,
    obstacles: impl Fn(AttentionBackend, Option<u32>) -> Vec<&'static str>,
) -> Result<AttentionBackend, ConfigError> {
    let candidates = stated.as_ref().map_or(tried, std::slice::from_ref);
    let reads = |size: Option<u32>| candidates.iter().any(|backend| obstacles(*backend, size).is_empty());
    if let Some(size) = block_size.filter(|_| !reads(block_size)) {
        let sizes: Vec<String> = PROPOSED_BLOCKS.iter().filter(|size| reads(Some(**size))).map(u32::to_string).collect();
        if !sizes.is_empty() {
            return Err(ConfigError::Refused(format!(
                "--block-size {size}: block_size not supported by {}; leave it out, or state a size such as {}",
                names(candidates),
                sizes.join(", ")
            )));
        }
    }
    let obstacles = |backend| obstacles(backend, block_size);
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
        AttentionBackend::TritonFlashAttn => (
            COMPOSITE_WIDTHS.contains(&need.head_size),
            !quantized || flash_attn_reads_fp8(version, family, None),
            false,
            family == 9,
            flash_attn_combination(Need { masks_images: false, ..need }).or_else(|| {
                let reads = matches!(flash_attn_version(need, Some(need.head_size)), Some(3 | 4));
                (!reads).then_some("causal route requires FlashAttention v3 or v4")
            }),
        ),
        AttentionBackend::TritonFlashinfer => (COMPOSITE_WIDTHS.contains(&need.head_size), true, false, family == 10, None),
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
    let flash_attn = matches!(backend, AttentionBackend::FlashAttn | AttentionBackend::TritonFlashAttn);
    let dequantises =
        flash_attn && quantized && family == 9 && need.widest == 512 && flash_attn_version(need, Some(need.widest)) == Some(4);
    let own = if dequantises { FLASH_ATTN_4_FP8_BLOCK } else { 16 };
    let block = if backend == AttentionBackend::TritonFlashinfer { TRITON_FLASHINFER_BLOCK } else { own };
    let images = backend != AttentionBackend::Flashinfer && (backend != AttentionBackend::FlashAttn || matches!(family, 9..=11));
    let checks = [
        (head_size, "head_size not supported"),
        (kv, "kv_cache_dtype not supported"),
        (need.block_size.is_none_or(|size| size.is_multiple_of(block)), "block_size not supported"),
        (images || !need.masks_images, "partial multimodal token full attention not supported"),
        (sink || !need.has_sink, "attention sinks not supported"),
        (capability, "compute capability not supported"),
    ];
    checks.into_iter().filter(|(holds, _)| !holds).map(|(_, reason)| reason).chain(combination).collect()
}

fn flash_attn_combination(need: Need) -> Option<&'static str> {
    if need.has_sink && need.capability < (9, 0) {
        return Some("sink not supported on compute capability < 9.0");
    }
    if need.masks_images && need.kv_cache_dtype.is_quantized() && need.capability == (9, 0) {
        return Some("SM90 FP8 KV with mm_prefix requires Triton");
    }
    let version = flash_attn_version(need, Some(need.head_size));
    let reads = flash_attn_reads_fp8(version, need.capability.0, Some(need.head_size));
    if need.kv_cache_dtype.is_quantized() && !reads {
        return Some("FP8 KV cache requires FA3 on SM90, FA4 with head_size=512 on SM90, or FA4 on SM100");
    }
    (need.masks_images && version != Some(4)).then_some("mm_prefix requires FlashAttention v4, which does not resolve for this head_size")
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
    let reads_pages = need.block_size.is_none_or(|size| size.is_multiple_of(128));
    if version == 4 && dedicated && (need.has_sink || need.kv_cache_dtype.is_quantized() || need.masks_images || !reads_pages) {
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
        // Which kernel runs depends on the batch, unless each request has one token.
        AttentionBackend::TritonFlashAttn | AttentionBackend::TritonFlashinfer => GraphSupport::UniformSingleTokenDecode,
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
