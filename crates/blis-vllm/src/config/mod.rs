//! A vLLM launch line, read and resolved as the modelled release would.
//!
//! Reading order: `resolved` and `choices` (what the rest of the engine sees), `table` (the generated field table that drives parsing,
//! types, defaults, refusal and translation), `command`, `args`, `nested` and `env` (reading), `formerly` (spellings of earlier
//! releases), `former_defaults` and `former_rules` (what measured runs of them resolved otherwise), `resolve` (upstream's start-up rules). Left out: everything `data/status.toml` calls inert or not modelled.

mod args;
mod choices;
mod command;
mod devices;
mod env;
mod error;
mod former_defaults;
mod former_rules;
mod formerly;
mod inert;
mod launch;
mod nested;
mod resolve;
mod resolved;
mod setting;
mod statements;
mod table;
#[cfg(test)]
mod tests;
mod value;

pub use choices::{
    All2AllBackend, AttentionBackend, CompilationMode, CudagraphMode, Dtype, FlashinferAllreduce, GraphSupport, HashAlgo, IndexerKvDtype,
    KvCacheDtype, LinearBackend, MambaCacheMode, MambaDtype, MatmulPrecision, MlaPrefillBackend, MoeBackend, MsaDecodeBackend,
    SchedulingPolicy, SparseBackend,
};
pub use error::{ConfigError, Place};
pub use former_defaults::release_after;
pub use former_rules::{CapacityCount, LargeChips, ReleaseRules, WindowReach};
pub(crate) use formerly::Release;
pub use launch::{Estimated, Launch, Reading, Stated, read, read_estimating};
pub use resolve::{DraftWidths, Machine, Unpriced, UsageContext, resolve, resolve_for, resolve_unpriced};
pub use resolved::{
    AttentionSettings, BlockSparseSettings, CacheSettings, CompilationSettings, DataParallelSettings, Explained, KernelSettings,
    PassSettings, Resolved, SchedulerSettings, Source, StateSettings,
};
pub use setting::Setting;
pub use table::{
    Becomes, ConfigClass, Estimation, Field, Former, Gone, Kind, StandIn, Status, config_classes, fields, formerly as former_spellings,
    gone_flags,
};
