//! Attention to a window and to compressed tokens: its backend, its cache formats and its block size.
//!
//! upstream: vllm `models/deepseek_v4/nvidia/model.py::_select_dsv4_attn_cls`, `models/deepseek_v4/attention.py::_resolve_dsv4_kv_cache_dtype`,
//! `models/deepseek_v4/sparse_mla.py::DeepseekV4SparseMLABackend`, `v1/attention/backends/mla/indexer.py::dsa_indexer_uses_fp4`
//!
//! The layers choose their class themselves; the generic selection by priority plays no part. Left out: FlashInfer's classes, which
//! are the default on compute capability 12 and elsewhere run only when asked for.

use std::collections::BTreeMap;

use blis_contracts::model::{Attention, CompressedAttention, ModelGraph};

use super::Machine;
use super::ledger::Ledger;
use super::model::divides;
use crate::config::choices::{AttentionBackend, GraphSupport, IndexerKvDtype, KvCacheDtype};
use crate::config::error::ConfigError;
use crate::config::resolved::{AttentionSettings, CacheSettings};
use crate::config::setting::Setting;

/// Tokens of the blocks that the kernels read.
pub(super) const BLOCK_SIZE: u32 = 256;

/// The attention parts of the distinct layers that compress; none where the model has another kind.
pub(super) fn attentions(model: &ModelGraph) -> impl Iterator<Item = &CompressedAttention> {
    model.blocks.values().filter_map(|block| match &block.attention {
        Attention::Compressed(attention) => Some(attention),
        Attention::GroupedQuery(_) | Attention::Latent(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => None,
    })
}

/// Ranks that cannot share heads or groups of heads.
pub(super) fn check_ranks(model: &ModelGraph, ranks: u32) -> Result<(), ConfigError> {
    for attention in attentions(model) {
        for (what, count) in
            [("total number of attention heads", attention.query_heads), ("total number of output groups", attention.output_groups)]
        {
            divides(what, count, ranks)?;
        }
    }
    Ok(())
}

pub(super) fn resolve(ledger: &mut Ledger<'_>, machine: Machine<'_>, cache: &CacheSettings) -> Result<AttentionSettings, ConfigError> {
    let backend = backend(ledger, machine)?;
    if cache.kv_cache_dtype == KvCacheDtype::Bfloat16 {
        return Err(ConfigError::Refused(
            "DeepseekV4 fp8_ds_mla layout only supports fp8 kv-cache, got bfloat16. Please set `--kv-cache-dtype fp8` or select a backend that \
             supports bfloat16 KV cache."
                .to_owned(),
        ));
    }
    if cache.block_size_stated && cache.block_size != BLOCK_SIZE {
        return Err(ConfigError::Refused(format!(
            "--block-size {}: {backend} reads blocks of {BLOCK_SIZE} tokens, and blocks of packed pages cannot be split into them; leave it out",
            cache.block_size
        )));
    }
    let selects = |attention: &CompressedAttention| attention.compression.as_ref().is_some_and(|c| c.selection.is_some());
    Ok(AttentionSettings {
        backend,
        flash_attn_versions: BTreeMap::new(),
        graph_support: GraphSupport::UniformBatch,
        use_trtllm_attention: None,
        indexer_kv_dtype: indexer_kv_dtype(ledger, machine)?,
        mla_prefill: None,
        mla_prefill_fp8: false,
        block_sparse: None,
        packs_pages: attentions(machine.model).any(selects),
        disable_flashinfer_q_quantization: ledger.flag(Setting::AttentionConfigDisableFlashinferQQuantization),
    })
}

fn backend(ledger: &mut Ledger<'_>, machine: Machine<'_>) -> Result<AttentionBackend, ConfigError> {
    let spelling = ledger.either(Setting::AttentionBackend, Setting::AttentionConfigBackend)?;
    let stated = ledger.stated(spelling).and_then(|value| value.as_str()).and_then(AttentionBackend::named);
    let only = AttentionBackend::FlashMlaSparseDsv4;
    match stated {
        None => ledger.derive(Setting::AttentionBackend, only, "what the layers of this architecture choose"),
        Some(stated) if stated == only => drop(ledger.value(spelling)),
        Some(other) => {
            return Err(ConfigError::Refused(format!(
                "selected backend {other} has no kernel for attention to compressed tokens; leave --attention-backend out"
            )));
        }
    }
    match machine.chip.compute_capability.value {
        (9 | 10, _) => Ok(only),
        (12, _) => Err(ConfigError::NotPorted(
            "on compute capability 12 attention to compressed tokens runs FLASHINFER_MLA_SPARSE_DSV4, which is not modelled; serve \
             this model on compute capability 9 or 10"
                .to_owned(),
        )),
        (major, minor) => Err(ConfigError::Refused(format!(
            "{only}: compute capability {major}.{minor} not supported; serve this model on compute capability 9 or 10"
        ))),
    }
}

fn indexer_kv_dtype(ledger: &mut Ledger<'_>, machine: Machine<'_>) -> Result<IndexerKvDtype, ConfigError> {
    let stated = ledger.choice(Setting::AttentionConfigIndexerKvDtype, IndexerKvDtype::named);
    match stated {
        IndexerKvDtype::Mxfp4 if !machine.family(10) => Err(ConfigError::Refused(
            "indexer_kv_dtype='mxfp4' requires Blackwell datacenter GPUs (sm_10x, e.g. B200/GB200); sm_120 (consumer Blackwell) and earlier \
             architectures are not supported. Set attention_config.indexer_kv_dtype to fp8."
                .to_owned(),
        )),
        IndexerKvDtype::Auto => {
            ledger.derive(Setting::AttentionConfigIndexerKvDtype, IndexerKvDtype::Fp8, "auto: what the model's code prefers");
            Ok(IndexerKvDtype::Fp8)
        }
        IndexerKvDtype::Bf16 => {
            Err(ConfigError::Refused("indexer_kv_dtype='bf16': the indexer of this model knows fp8 and mxfp4".to_owned()))
        }
        IndexerKvDtype::Fp8 | IndexerKvDtype::Mxfp4 => Ok(stated),
    }
}
