//! Attention to blocks that an indexer picks: which implementations run, and how the indexer's keys are stored.
//!
//! upstream: vllm `models/minimax_m3/common/sparse_attention.py::select_main_backend_and_impl_cls`,
//! `models/minimax_m3/common/indexer.py::select_indexer_impl_cls`,
//! `models/minimax_m3/nvidia/msa_cutlass_sparse_decode.py::supports_cutlass_sparse_decode`;
//! `config/attention.py::AttentionConfig.resolve_indexer_kv_dtype`
//!
//! Layers without an indexer keep the backend that [`super::attention`] chooses. Left out: other vendors' implementations, NVFP4 caches.

use blis_contracts::model::{BlockIndexer, GroupedQueryAttention};

use super::Machine;
use super::ledger::Ledger;
use super::model::attentions;
use crate::config::choices::{IndexerKvDtype, MsaDecodeBackend};
use crate::config::error::ConfigError;
use crate::config::resolved::{BlockSparseSettings, CacheSettings};
use crate::config::setting::Setting;

/// Tokens of a page and of a block that is picked: the kernels know one size.
pub(super) const PAGE_TOKENS: u32 = 128;

/// Blocks a query may see where Blackwell's own attention runs, and where its own indexer does.
const MSA_TOP_K: [u32; 4] = [4, 8, 16, 32];
const MSA_INDEX_TOP_K: u32 = 16;

/// Query and key heads of one rank that CUTLASS's decode takes at most.
const CUTLASS_HEADS: (u32, u32) = (64, 4);

/// The settings of a model with an indexer; for one without, refuses what only an indexer reads.
pub(super) fn resolve(
    ledger: &mut Ledger<'_>,
    machine: Machine<'_>,
    ranks: u32,
    cache: &CacheSettings,
) -> Result<Option<BlockSparseSettings>, ConfigError> {
    let Some((attention, indexer)) = attentions(machine.model).find_map(|attention| Some((attention, attention.indexer.as_ref()?))) else {
        refuse(ledger)?;
        return Ok(None);
    };
    if cache.block_size_stated && !cache.block_size.is_multiple_of(PAGE_TOKENS) {
        let size = cache.block_size;
        return Err(ConfigError::Refused(format!(
            "--block-size {size}: layers with an indexer need a multiple of {PAGE_TOKENS}; state one, or leave it out"
        )));
    }
    if indexer.block_tokens != PAGE_TOKENS {
        let tokens = indexer.block_tokens;
        return Err(ConfigError::Refused(format!("an indexer over blocks of {tokens} tokens: its kernels know only {PAGE_TOKENS}")));
    }
    let indexer_kv_dtype = indexer_kv_dtype(ledger, machine)?;
    let msa = machine.family(10) && MSA_TOP_K.contains(&indexer.top_k);
    Ok(Some(BlockSparseSettings {
        indexer_kv_dtype,
        msa,
        msa_indexer: machine.family(10) && indexer.top_k == MSA_INDEX_TOP_K,
        cutlass_decode: cutlass_decode(ledger, attention, indexer, ranks, msa && cache.kv_cache_dtype.is_quantized()),
    }))
}

fn refuse(ledger: &Ledger<'_>) -> Result<(), ConfigError> {
    let settings = [
        (Setting::AttentionConfigIndexerKvDtype, "auto"),
        (Setting::AttentionConfigMinimaxM3MsaDecodeBackend, MsaDecodeBackend::Triton.as_str()),
    ];
    for (setting, default) in settings {
        if ledger.stated(setting).and_then(|value| value.as_str()).is_some_and(|stated| stated != default) {
            return Err(ConfigError::Refused(format!("{}: this model has no indexer; leave it out", setting.key())));
        }
    }
    Ok(())
}

fn indexer_kv_dtype(ledger: &mut Ledger<'_>, machine: Machine<'_>) -> Result<IndexerKvDtype, ConfigError> {
    let setting = Setting::AttentionConfigIndexerKvDtype;
    match ledger.choice(setting, IndexerKvDtype::named) {
        IndexerKvDtype::Auto => {
            ledger.derive(setting, IndexerKvDtype::Bf16, "auto: what the model defaults to");
            Ok(IndexerKvDtype::Bf16)
        }
        IndexerKvDtype::Fp8 if machine.chip.compute_capability.value < (8, 9) => {
            Err(ConfigError::Refused("indexer_kv_dtype='fp8' requires CUDA fp8 support; set attention_config.indexer_kv_dtype to bf16".to_owned()))
        }
        IndexerKvDtype::Mxfp4 => {
            Err(ConfigError::Refused("indexer_kv_dtype='mxfp4' needs an indexer that upstream does not have yet; set attention_config.indexer_kv_dtype to bf16 or fp8".to_owned()))
        }
        stated @ (IndexerKvDtype::Bf16 | IndexerKvDtype::Fp8) => Ok(stated),
    }
}

fn cutlass_decode(ledger: &mut Ledger<'_>, attention: &GroupedQueryAttention, indexer: &BlockIndexer, ranks: u32, cache: bool) -> bool {
    let asked = ledger.choice(Setting::AttentionConfigMinimaxM3MsaDecodeBackend, MsaDecodeBackend::named) == MsaDecodeBackend::Cutlass;
    let heads = (attention.query_heads / ranks, (attention.kv_heads / ranks).max(1));
    let fits = heads.0 <= CUTLASS_HEADS.0 && heads.1 <= CUTLASS_HEADS.1 && indexer.top_k == MSA_INDEX_TOP_K;
    if asked && !(cache && fits) {
        let note = "minimax_m3_msa_decode_backend cutlass has no effect: it needs Blackwell and an fp8 KV cache".to_owned();
        ledger.note(Some(Setting::AttentionConfigMinimaxM3MsaDecodeBackend), note);
    }
    asked && cache && fits
}
