//! The scheduler's budgets and rules.
//!
//! upstream: vllm `engine/arg_utils.py::EngineArgs.get_batch_defaults`, `_set_default_max_num_seqs_and_batched_tokens_args`;
//! `config/scheduler.py::SchedulerConfig.verify_max_model_len`; `config/vllm.py::VllmConfig.max_concurrent_batches`.

use super::ledger::Ledger;
use super::{Machine, Start};
use crate::config::choices::SchedulingPolicy;
use crate::config::error::ConfigError;
use crate::config::former_rules::LargeChips;
use crate::config::resolved::SchedulerSettings;
use crate::config::setting::Setting;

const GIB: u64 = 1 << 30;

/// Who starts the engine.
///
/// upstream: vllm `usage/usage_lib.py::UsageContext`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageContext {
    /// `vllm serve`.
    OpenaiApiServer,
    /// A script that works through a batch of prompts; no launch line of a scenario asks for it.
    LlmClass,
}

pub(super) fn resolve(
    ledger: &mut Ledger<'_>,
    machine: Machine<'_>,
    (start, stated_stages, in_slots): (Start<'_>, u32, bool),
    (max_model_len, floor): (u64, u64),
) -> Result<SchedulerSettings, ConfigError> {
    let enable_chunked_prefill = ledger.flag_or(Setting::EnableChunkedPrefill, true, "generative decoders support chunked prefill");
    let async_scheduling = async_scheduling(ledger, start)?;
    let stages = stated_stages.max(start.unpriced.stages);
    let (max_num_batched_tokens, max_num_seqs) = budgets(
        ledger,
        defaults(machine, ledger.rules().large_chips, start.usage, in_slots),
        (max_model_len, floor),
        enable_chunked_prefill,
    )?;
    let scheduled = ledger.optional_count(Setting::MaxNumScheduledTokens)?;
    if scheduled.is_none() {
        ledger.derive(Setting::MaxNumScheduledTokens, max_num_batched_tokens, Setting::MaxNumBatchedTokens.key());
    }
    let active = ledger.optional_count(Setting::MaxNumActiveSeqs)?;
    if active.is_none() {
        ledger.derive(Setting::MaxNumActiveSeqs, max_num_seqs, Setting::MaxNumSeqs.key());
    }
    let settings = SchedulerSettings {
        max_num_batched_tokens,
        max_num_scheduled_tokens: scheduled.unwrap_or(max_num_batched_tokens),
        max_num_seqs,
        max_num_active_seqs: active.unwrap_or(max_num_seqs),
        max_num_queued_reqs: ledger.optional_count(Setting::MaxNumQueuedReqs)?,
        max_num_queued_tokens: ledger.optional_count(Setting::MaxNumQueuedTokens)?,
        long_prefill_token_threshold: ledger.count(Setting::LongPrefillTokenThreshold)?,
        long_prefill_token_threshold_adaptive: ledger.flag(Setting::LongPrefillTokenThresholdAdaptive),
        policy: ledger.choice(Setting::SchedulingPolicy, SchedulingPolicy::named),
        enable_chunked_prefill,
        scheduler_reserve_full_isl: ledger.flag(Setting::SchedulerReserveFullIsl),
        watermark: ledger.real(Setting::Watermark),
        async_scheduling,
        pipeline_stages: stages,
        // Model Runner V2: one batch per pipeline stage, and one more to overlap with.
        max_concurrent_batches: if async_scheduling { stages + 1 } else { stages },
        stream_interval: ledger.count(Setting::StreamInterval)?,
    };
    verify(&settings, max_model_len)?;
    if max_num_batched_tokens > max_num_seqs.saturating_mul(max_model_len) {
        let most = max_num_seqs.saturating_mul(max_model_len);
        ledger.note(None, format!("max_num_batched_tokens ({max_num_batched_tokens}) exceeds max_num_seqs * max_model_len ({most})"));
    }
    Ok(settings)
}

/// Whether a step is scheduled before the last one's output is known.
fn async_scheduling(ledger: &mut Ledger<'_>, start: Start<'_>) -> Result<bool, ConfigError> {
    let rules_it_out = start.unpriced.drafting.as_ref().is_some_and(|drafting| !drafting.asynchronous);
    let rule = if rules_it_out { "this way of drafting does not support it" } else { "nothing in this configuration rules it out" };
    let chosen = ledger.flag_or(Setting::AsyncScheduling, !rules_it_out, rule);
    if chosen && rules_it_out {
        let refusal = "async scheduling is only supported with EAGLE/MTP/Draft Model/NGram GPU/DSpark/DFlash kind of speculative \
                       decoding, and not with disable_padded_drafter_batch=True; leave --async-scheduling out";
        return Err(ConfigError::Refused(refusal.to_owned()));
    }
    Ok(chosen)
}

/// Default tokens and requests of one step, by device memory.
#[derive(Debug, Clone, Copy)]
struct Defaults {
    tokens: u64,
    seqs: u64,
    rule: &'static str,
}

/// Tokens of one step where experts read them from slots laid out for the most that may come: `DEFAULT_MAX_NUM_BATCHED_TOKENS_FOR_BATCHED_DP`.
const TOKENS_IN_SLOTS: u64 = 256;

fn defaults(machine: Machine<'_>, large: LargeChips, usage: UsageContext, in_slots: bool) -> Defaults {
    let memory = machine.chip.reported_memory.value.get();
    let name = machine.chip.device_name.value.to_lowercase();
    let (serving, scripted, seqs, rule) = if memory >= 160 * GIB && large == LargeChips::Twice {
        (16384, 16384, 1024, "default of devices with at least 160 GiB")
    } else if memory >= 70 * GIB && !name.contains("a100") {
        (8192, 16384, 1024, "default of devices with at least 70 GiB")
    } else {
        (2048, 8192, 256, "default of smaller devices and of the A100")
    };
    let tokens = match usage {
        UsageContext::OpenaiApiServer => serving,
        UsageContext::LlmClass => scripted,
    };
    if in_slots {
        return Defaults { tokens: TOKENS_IN_SLOTS, seqs, rule: "default where experts read tokens from slots" };
    }
    Defaults { tokens, seqs, rule }
}

/// `floor` is the least tokens of a step where the line states none.
fn budgets(
    ledger: &mut Ledger<'_>,
    defaults: Defaults,
    (max_model_len, floor): (u64, u64),
    chunked: bool,
) -> Result<(u64, u64), ConfigError> {
    let throughput = ledger.value(Setting::PerformanceMode).as_str() == Some("throughput");
    let Defaults { tokens, seqs, rule } = defaults;
    let scale = if throughput { 2 } else { 1 };
    let stated_tokens = ledger.optional_count(Setting::MaxNumBatchedTokens)?;
    let stated_seqs = ledger.optional_count(Setting::MaxNumSeqs)?;
    let mut max_num_seqs = stated_seqs.unwrap_or(seqs * scale);
    let max_num_batched_tokens = stated_tokens.unwrap_or_else(|| {
        let unsplit = if chunked { tokens * scale } else { max_model_len.max(tokens * scale) };
        let wanted = unsplit.max(floor);
        let capped = wanted.min(max_num_seqs.saturating_mul(max_model_len));
        let why = if capped < wanted {
            "max_num_seqs x max_model_len".to_owned()
        } else if wanted > unsplit {
            "tokens of the longest input that is not split".to_owned()
        } else if wanted > tokens * scale {
            "max_model_len, because prompts are not split".to_owned()
        } else {
            format!("{rule}{}", if throughput { ", doubled for throughput" } else { "" })
        };
        ledger.derive(Setting::MaxNumBatchedTokens, capped, why);
        capped
    });
    if stated_seqs.is_none() {
        let capped = max_num_seqs.min(max_num_batched_tokens);
        let why = if capped < max_num_seqs { Setting::MaxNumBatchedTokens.key() } else { rule };
        ledger.derive(Setting::MaxNumSeqs, capped, why);
        max_num_seqs = capped;
    }
    Ok((max_num_batched_tokens, max_num_seqs))
}

fn verify(settings: &SchedulerSettings, max_model_len: u64) -> Result<(), ConfigError> {
    let SchedulerSettings { max_num_batched_tokens: tokens, max_num_seqs: seqs, max_num_active_seqs: active, .. } = *settings;
    let threshold = settings.long_prefill_token_threshold;
    let refusal = if tokens < max_model_len && !settings.enable_chunked_prefill {
        format!(
            "max_num_batched_tokens ({tokens}) is smaller than max_model_len ({max_model_len}), and without chunked prefill longer \
             requests would be rejected; increase max_num_batched_tokens or decrease max_model_len"
        )
    } else if tokens < seqs {
        format!("max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({seqs})")
    } else if active > seqs {
        format!("max_num_active_seqs ({active}) cannot be greater than max_num_seqs ({seqs})")
    } else if threshold > max_model_len {
        format!("long_prefill_token_threshold ({threshold}) cannot be greater than the max_model_len ({max_model_len})")
    } else {
        return Ok(());
    };
    Err(ConfigError::Refused(refusal))
}
