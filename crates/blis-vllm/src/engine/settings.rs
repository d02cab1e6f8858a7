//! From the resolved configuration to what the engine core runs on.

use super::gate::QueueLimits;
use super::{CoreLayout, Lockstep};
use crate::config::{Resolved, SchedulingPolicy, Setting, WindowReach};
use crate::cudagraph::CudaGraphs;
use crate::kv_sizing::{LayerKv, SizingInput};
use crate::sched::queue::Policy;
use crate::sched::scheduler::SchedulerConfig;

/// A setting is beyond what the engine core counts with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {value} is too large; expected at most {}", setting.key(), u32::MAX - 1)]
pub struct SettingTooLarge {
    /// Which.
    pub setting: Setting,
    /// Its value.
    pub value: u64,
}

/// Refuses settings beyond what plans and the engine core count with; to be asked before a plan is made.
pub fn check_counts(resolved: &Resolved) -> Result<(), SettingTooLarge> {
    let scheduler = &resolved.scheduler;
    narrow(Setting::MaxNumBatchedTokens, scheduler.max_num_batched_tokens)?;
    narrow(Setting::MaxNumSeqs, scheduler.max_num_seqs)?;
    narrow(Setting::StreamInterval, scheduler.stream_interval)?;
    resolved.compilation.cudagraph_capture_sizes.iter().try_for_each(|size| narrow(Setting::CudagraphCaptureSizes, *size).map(drop))
}

/// The scheduler's settings. `max_model_len` is the one the KV sizing settled on.
pub fn scheduler_config(resolved: &Resolved, max_model_len: u32) -> Result<SchedulerConfig, SettingTooLarge> {
    let settings = &resolved.scheduler;
    Ok(SchedulerConfig {
        max_model_len,
        max_num_batched_tokens: narrow(Setting::MaxNumBatchedTokens, settings.max_num_batched_tokens)?,
        max_num_scheduled_tokens: narrow(Setting::MaxNumScheduledTokens, settings.max_num_scheduled_tokens)?,
        max_num_active_seqs: narrow(Setting::MaxNumActiveSeqs, settings.max_num_active_seqs)?,
        enable_chunked_prefill: settings.enable_chunked_prefill,
        long_prefill_token_threshold: narrow(Setting::LongPrefillTokenThreshold, settings.long_prefill_token_threshold)?,
        long_prefill_token_threshold_adaptive: settings.long_prefill_token_threshold_adaptive,
        scheduler_reserve_full_isl: settings.scheduler_reserve_full_isl,
        policy: match settings.policy {
            SchedulingPolicy::Fcfs => Policy::Fcfs,
            SchedulingPolicy::Priority => Policy::Priority,
        },
        async_scheduling: settings.async_scheduling,
        max_concurrent_batches: settings.max_concurrent_batches,
        pipeline_stages: settings.pipeline_stages,
    })
}

/// The engine cores of the endpoint.
pub fn cores(resolved: &Resolved) -> CoreLayout {
    let settings = &resolved.data_parallel;
    let lockstep = Lockstep { sync_interval: settings.sync_interval, prefill_schedule_interval: settings.prefill_schedule_interval };
    CoreLayout { count: settings.size, front_ends: resolved.api_server_count, lockstep: settings.lockstep.then_some(lockstep) }
}

/// What the KV sizing starts from, given the bytes the profiler leaves for KV.
pub fn sizing_input(
    resolved: &Resolved,
    layers: Vec<LayerKv>,
    available_bytes: u64,
    allocatable_bytes: u64,
) -> Result<SizingInput, SettingTooLarge> {
    let (cache, scheduler) = (&resolved.cache, &resolved.scheduler);
    let optional = |setting, value: Option<u64>| value.map(|value| narrow(setting, value)).transpose();
    Ok(SizingInput {
        layers,
        packs_pages: resolved.attention.packs_pages,
        max_model_len: narrow(Setting::MaxModelLen, cache.max_model_len)?,
        max_model_len_fits_memory: cache.max_model_len_fits_memory,
        max_in_flight_tokens: narrow(Setting::MaxNumBatchedTokens, scheduler.max_in_flight_tokens())?,
        windows_count: match resolved.rules.windows {
            WindowReach::StepsInFlight => narrow(Setting::MaxNumBatchedTokens, scheduler.max_in_flight_tokens())?,
            WindowReach::OneStep => narrow(Setting::MaxNumBatchedTokens, scheduler.max_num_batched_tokens)?,
        },
        capacity: resolved.rules.capacity,
        disable_hybrid_kv_cache_manager: cache.disable_hybrid_kv_cache_manager,
        available_bytes: cache.kv_cache_memory_bytes.unwrap_or(available_bytes),
        bytes_stated: cache.kv_cache_memory_bytes.is_some(),
        allocatable_bytes,
        num_gpu_blocks_override: optional(Setting::NumGpuBlocksOverride, cache.num_gpu_blocks_override)?,
        prefix_cache_retention_interval: optional(Setting::PrefixCacheRetentionInterval, cache.prefix_cache_retention_interval)?,
        watermark: scheduler.watermark,
        enable_prefix_caching: cache.enable_prefix_caching,
    })
}

/// What the front end lets into the engine.
pub fn queue_limits(resolved: &Resolved) -> QueueLimits {
    QueueLimits { requests: resolved.scheduler.max_num_queued_reqs, tokens: resolved.scheduler.max_num_queued_tokens }
}

/// The captured graphs.
pub fn cuda_graphs(resolved: &Resolved) -> Result<CudaGraphs, SettingTooLarge> {
    let compilation = &resolved.compilation;
    let sizes: Result<Vec<u32>, _> =
        compilation.cudagraph_capture_sizes.iter().map(|size| narrow(Setting::CudagraphCaptureSizes, *size)).collect();
    let max_num_seqs = narrow(Setting::MaxNumSeqs, resolved.scheduler.max_num_seqs)?;
    let graphs = CudaGraphs::new(compilation.cudagraph_mode, &sizes?, max_num_seqs);
    Ok(if resolved.model_runner_v2 { graphs } else { graphs.of_first_runner() })
}

fn narrow(setting: Setting, value: u64) -> Result<u32, SettingTooLarge> {
    // One below the greatest number stays free: sizes are compared with "one more".
    u32::try_from(value).ok().filter(|value| *value < u32::MAX).ok_or(SettingTooLarge { setting, value })
}
