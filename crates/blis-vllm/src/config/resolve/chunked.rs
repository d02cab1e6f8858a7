//! Layers that see a chunk of the context: whether they share the cache's manager with others, which blocks they read, and that they
//! allow no graphs of whole steps.
//!
//! upstream: vllm `config/vllm.py::VllmConfig.__post_init__`; `v1/attention/backends/utils.py::make_local_attention_virtual_batches`;
//! `model_executor/layers/attention/chunked_local_attention.py::create_chunked_local_attention_backend`

use super::Machine;
use super::ledger::Ledger;
use super::model::attentions;
use crate::config::error::ConfigError;
use crate::config::resolved::CacheSettings;
use crate::config::setting::Setting;

/// Whether some layer of the model sees a chunk of the context.
pub(super) fn applies(machine: Machine<'_>) -> bool {
    attentions(machine.model).any(|attention| attention.chunk.is_some())
}

/// Whether all layers keep blocks for every token: as stated, else where chunks may not have a manager of their own.
pub(super) fn disables_hybrid(ledger: &mut Ledger<'_>, machine: Machine<'_>) -> Result<bool, ConfigError> {
    let allowed = ledger.flag(Setting::VllmAllowChunkedLocalAttnWithHybridKvCache);
    let needed = applies(machine) && !allowed;
    let rule =
        if needed { Setting::VllmAllowChunkedLocalAttnWithHybridKvCache.key() } else { "nothing in this configuration needs it off" };
    let disabled = ledger.flag_or(Setting::DisableHybridKvCacheManager, needed, rule);
    if needed && !disabled {
        return Err(ConfigError::Refused(
            "hybrid KV cache manager was explicitly enabled but is not supported in this configuration: layers attend within chunks and \
             VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE is 0; leave --no-disable-hybrid-kv-cache-manager out"
                .to_owned(),
        ));
    }
    Ok(disabled)
}

/// A chunk is read in whole blocks.
pub(super) fn check_blocks(machine: Machine<'_>, cache: &CacheSettings) -> Result<(), ConfigError> {
    let block_size = cache.block_size;
    match attentions(machine.model).filter_map(|attention| attention.chunk).find(|chunk| !chunk.is_multiple_of(block_size)) {
        Some(chunk) => {
            Err(ConfigError::Refused(format!("attn_chunk_size {chunk} is not divisible by block_size {block_size}; state --block-size 16")))
        }
        None => Ok(()),
    }
}
