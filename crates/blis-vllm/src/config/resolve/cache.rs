//! The longest request and the KV cache's settings, its block size excepted.
//!
//! upstream: vllm `config/model.py::_get_and_verify_max_len`, `utils/torch_utils.py::resolve_kv_cache_dtype_string`,
//! `engine/arg_utils.py::EngineArgs._set_default_chunked_prefill_and_prefix_caching_args`. Rope scaling is in the graph's
//! `max_position_embeddings` already.

use blis_contracts::format::FormatName;
use blis_contracts::model::{Attention, ModelGraph};

use super::ledger::Ledger;
use super::{Machine, chunked};
use crate::config::choices::{HashAlgo, KvCacheDtype};
use crate::config::error::ConfigError;
use crate::config::resolved::CacheSettings;
use crate::config::setting::Setting;

pub(super) fn resolve(ledger: &mut Ledger<'_>, machine: Machine<'_>) -> Result<CacheSettings, ConfigError> {
    let (max_model_len, max_model_len_fits_memory) = max_model_len(ledger, machine)?;
    let kv_cache_dtype = kv_cache_dtype(ledger, machine)?;
    let stated = ledger.optional_count(Setting::BlockSize)?;
    let block_size = u32::try_from(stated.unwrap_or(DEFAULT_BLOCK_SIZE)).map_err(|_| {
        ConfigError::Refused(format!("--block-size {}: no kernel reads such blocks; leave it out", stated.unwrap_or_default()))
    })?;
    let enable_prefix_caching = ledger.flag_or(Setting::EnablePrefixCaching, true, "generative decoders support prefix caching");
    Ok(CacheSettings {
        max_model_len,
        max_model_len_fits_memory,
        block_size,
        block_size_stated: stated.is_some(),
        kv_cache_dtype,
        gpu_memory_utilization: ledger.real(Setting::GpuMemoryUtilization),
        kv_cache_memory_bytes: ledger.optional_count(Setting::KvCacheMemoryBytes)?,
        num_gpu_blocks_override: ledger.optional_count(Setting::NumGpuBlocksOverride)?,
        estimate_cudagraph_memory: ledger.flag(Setting::VllmMemoryProfilerEstimateCudagraphs),
        enable_prefix_caching,
        prefix_caching_hash_algo: ledger.choice(Setting::PrefixCachingHashAlgo, HashAlgo::named),
        prefix_cache_retention_interval: retention(ledger)?,
        disable_hybrid_kv_cache_manager: chunked::disables_hybrid(ledger, machine)?,
        states: None,
    })
}

/// Tokens of a block unless the line or the attention backend says otherwise.
pub(super) const DEFAULT_BLOCK_SIZE: u64 = 16;

/// `None` is a value of its own here (keep every checkpoint), so a stated null must not read as the default.
fn retention(ledger: &mut Ledger<'_>) -> Result<Option<u64>, ConfigError> {
    if ledger.states_null(Setting::PrefixCacheRetentionInterval) {
        ledger.derive(Setting::PrefixCacheRetentionInterval, "None", "stated as None: every checkpoint is kept");
        return Ok(None);
    }
    ledger.optional_count(Setting::PrefixCacheRetentionInterval)
}

fn max_model_len(ledger: &mut Ledger<'_>, machine: Machine<'_>) -> Result<(u64, bool), ConfigError> {
    let derived = machine.model.max_position_embeddings;
    let stated = ledger.value(Setting::MaxModelLen);
    let allowed = ledger.flag(Setting::VllmAllowLongMaxModelLen);
    match stated.as_i64() {
        None => {
            ledger.derive(Setting::MaxModelLen, derived, "max_position_embeddings of the checkpoint");
            Ok((derived, false))
        }
        Some(-1) => {
            ledger.derive(Setting::MaxModelLen, derived, "auto: max_position_embeddings of the checkpoint, or what fits the KV cache");
            Ok((derived, true))
        }
        Some(length) => {
            let length = u64::try_from(length).ok().filter(|length| *length > 0).ok_or_else(|| ConfigError::OutOfRange {
                name: "--max-model-len".to_owned(),
                value: length.to_string(),
                wanted: "at least 1, or auto".to_owned(),
            })?;
            if length > derived && !allowed {
                return Err(ConfigError::Refused(format!(
                    "user-specified max_model_len ({length}) is greater than the derived max_model_len \
                     (max_position_embeddings={derived} in model's config.json); to allow it, set VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
                )));
            }
            Ok((length, false))
        }
    }
}

/// As stated; `auto` is the format the checkpoint declares for its KV cache, if any.
fn kv_cache_dtype(ledger: &mut Ledger<'_>, machine: Machine<'_>) -> Result<KvCacheDtype, ConfigError> {
    let stated = ledger.choice(Setting::KvCacheDtype, KvCacheDtype::named);
    match (stated, machine.model.kv_format) {
        (KvCacheDtype::Auto, Some(FormatName::Fp8)) => {
            ledger.derive(Setting::KvCacheDtype, KvCacheDtype::Fp8E4m3, "auto: the checkpoint declares a calibrated fp8 KV cache");
            Ok(KvCacheDtype::Fp8E4m3)
        }
        (KvCacheDtype::Auto, Some(other)) if other != machine.model.dtype => Err(ConfigError::NotPorted(format!(
            "the checkpoint declares a KV cache of format {other}, which is not modelled; state --kv-cache-dtype bfloat16 or fp8"
        ))),
        (KvCacheDtype::Fp8DsMla, _) if !packs_latent_vectors(machine.model) => Err(ConfigError::Refused(format!(
            "--kv-cache-dtype {stated}: kv_cache_dtype not supported by the attention backends of this model; state fp8"
        ))),
        (KvCacheDtype::Bfloat16, _) if takes_bfloat16_for_auto(machine.model) => {
            ledger.derive(Setting::KvCacheDtype, KvCacheDtype::Auto, "bfloat16 is what this architecture calls auto");
            Ok(KvCacheDtype::Auto)
        }
        (stated, _) => Ok(stated),
    }
}

/// Whether a stated bfloat16 is read as no statement.
/// upstream: vllm `model_executor/models/config.py::DeepseekV32ForCausalLM.verify_and_update_config`
pub(super) fn takes_bfloat16_for_auto(model: &ModelGraph) -> bool {
    model.architecture == "DeepseekV32ForCausalLM"
}

/// Whether some backend of the model's attention stores latent vectors with scales of their own.
fn packs_latent_vectors(model: &ModelGraph) -> bool {
    model.blocks.values().any(|block| match &block.attention {
        Attention::GroupedQuery(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => false,
        Attention::Latent(attention) => attention.selection.is_some(),
        Attention::Compressed(_) => true,
    })
}
