//! Compilation: mode, custom operations, fused kernels, and the CUDA graphs that follow from them.
//!
//! upstream: vllm `config/vllm.py::VllmConfig.__post_init__` with its optimization levels, `_normalize_piecewise_cudagraph_mode`;
//! `config/compilation.py::CompilationConfig.set_splitting_ops_for_v1`, `PassConfig.flashinfer_max_size`;
//! `model_executor/models/config.py::GptOssForCausalLMConfig`.

use indexmap::IndexSet;
use serde_json::Value;

use super::graphs::{Sizing, decode_tiers, with_support};
use super::ledger::{Ledger, count};
use super::model::{GPT_OSS, has_blocked_weights, is_nvfp4};
use super::{DraftWidths, Machine, Start};
use crate::config::choices::{All2AllBackend, CompilationMode, CudagraphMode, GraphSupport};
use crate::config::error::ConfigError;
use crate::config::former_rules::LargeChips;
use crate::config::resolved::{CompilationSettings, DataParallelSettings, PassSettings, SchedulerSettings, custom_op_enabled};
use crate::config::setting::Setting;

pub(super) fn resolve(
    ledger: &mut Ledger<'_>,
    (machine, start, cores): (Machine<'_>, Start<'_>, DataParallelSettings),
    ranks: u32,
    scheduler: &SchedulerSettings,
    support: GraphSupport,
) -> Result<CompilationSettings, ConfigError> {
    let eager = ledger.flag(Setting::EnforceEager);
    let level = ledger.count(Setting::OptimizationLevel)?;
    let breakable = BREAKABLE_GRAPHS.contains(&machine.model.architecture.as_str());
    let mode = if breakable { breakable_mode(ledger) } else { mode(ledger, eager, level) };
    let custom_ops = custom_ops(ledger, machine, mode)?;
    let passes = passes(ledger, machine, ranks, level, mode, &custom_ops)?;
    let mut cudagraph_mode = stated_graph_mode(ledger, eager, level);
    if mode != CompilationMode::VllmCompile && !breakable {
        cudagraph_mode = cudagraph_mode.without_piecewise();
    }
    let sizes = if cudagraph_mode == CudagraphMode::None {
        Vec::new()
    } else {
        sizes(ledger, machine, scheduler, start.unpriced.drafting.as_ref())?
    };
    let (splits, cudagraph_mode) = splitting(ledger, mode, &passes, cudagraph_mode)?;
    let waits = waits_for_host(cores, mode, cudagraph_mode)?;
    let cudagraph_mode = if waits { CudagraphMode::None } else { cudagraph_mode };
    let splits_at_attention = splits || breakable;
    let cudagraph_mode = with_support(cudagraph_mode, support, splits_at_attention)?;
    let setting = Setting::CompilationConfigCudagraphMode;
    if ledger.stated(setting).and_then(Value::as_str) != Some(cudagraph_mode.as_str()) {
        let rule = if eager {
            Setting::EnforceEager.key().to_owned()
        } else if waits {
            Setting::All2allBackend.key().to_owned()
        } else {
            format!("optimization level {level}, compilation mode {mode}, attention backend support {support}")
        };
        ledger.derive(setting, cudagraph_mode, rule);
    }
    let largest = sizes.last().copied().unwrap_or(0);
    write_sizes(ledger, &sizes, largest);
    Ok(CompilationSettings {
        mode,
        cudagraph_mode,
        cudagraph_capture_sizes: sizes,
        max_cudagraph_capture_size: largest,
        custom_ops,
        splits_at_attention,
        passes,
    })
}

/// Architectures whose graphs break at attention while they are captured, instead of being split by the compiler.
/// upstream: vllm `config/vllm.py::DEFAULT_BREAKABLE_CUDAGRAPH_ARCHITECTURES`, of which those that a rule derives
const BREAKABLE_GRAPHS: &[&str] = &[
    "DeepseekV32ForCausalLM",
    "DeepseekV4ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "MiniMaxM3ForCausalLM",
    "MiniMaxM3SparseForConditionalGeneration",
];

/// upstream: vllm `config/vllm.py::VllmConfig._maybe_enable_breakable_cudagraph`
fn breakable_mode(ledger: &mut Ledger<'_>) -> CompilationMode {
    let setting = Setting::CompilationConfigMode;
    ledger.derive(setting, CompilationMode::None, "graphs of this architecture break at attention while they are captured");
    CompilationMode::None
}

fn mode(ledger: &mut Ledger<'_>, eager: bool, level: u64) -> CompilationMode {
    let setting = Setting::CompilationConfigMode;
    let stated = ledger.value(setting).as_str().and_then(CompilationMode::named);
    let (mode, rule) = match (eager, stated) {
        (true, _) => (CompilationMode::None, Setting::EnforceEager.key().to_owned()),
        (false, Some(stated)) => return stated,
        (false, None) if level > 0 => (CompilationMode::VllmCompile, format!("optimization level {level}")),
        (false, None) => (CompilationMode::None, "optimization level 0".to_owned()),
    };
    ledger.derive(setting, mode, rule);
    mode
}

/// What the fusion of norms with rotary embedding looks for, so that it switches it on.
const ROTARY: &str = "+rotary_embedding";

/// upstream: vllm `config/compilation.py::CompilationConfig.__post_init__`
fn custom_ops(ledger: &mut Ledger<'_>, machine: Machine<'_>, mode: CompilationMode) -> Result<Vec<String>, ConfigError> {
    let setting = Setting::CompilationConfigCustomOps;
    let mut ops = ledger.words(setting);
    let stated = ops.len();
    let fuses_rotation = ledger.optional_flag(Setting::CompilationConfigPassConfigEnableQkNormRopeFusion) == Some(true);
    if fuses_rotation && !ops.iter().any(|op| op == ROTARY) {
        ops.push(ROTARY.to_owned());
    }
    let is_base = |op: &&String| *op == "all" || *op == "none";
    if let Some(bad) = ops.iter().find(|op| !is_base(op) && (op.len() < 2 || !op.starts_with(['+', '-']))) {
        let syntax = "must be 'all', 'none', '+op' or '-op' (where 'op' is the registered op name)";
        return Err(ConfigError::Inconsistent(format!("invalid syntax '{bad}' for custom op, {syntax}")));
    }
    if ops.iter().filter(is_base).count() > 1 {
        return Err(ConfigError::Inconsistent("custom_ops can contain only one base mode: 'all' or 'none'".to_owned()));
    }
    let conflict = ops.iter().filter_map(|op| op.strip_prefix('+')).find(|op| ops.iter().any(|other| other.strip_prefix('-') == Some(op)));
    if let Some(op) = conflict {
        return Err(ConfigError::Inconsistent(format!("custom_ops cannot both enable and disable the same operation: {op}")));
    }
    let quant = |ops: &mut Vec<String>| {
        if has_blocked_weights(machine.model) && !ops.iter().any(|op| op == "-quant_fp8") {
            ops.push("+quant_fp8".to_owned());
        }
    };
    quant(&mut ops);
    if !ops.iter().any(|op| is_base(&op)) {
        ops.push(if mode == CompilationMode::None { "all" } else { "none" }.to_owned());
    }
    // Upstream appends it once more at the end of start-up.
    quant(&mut ops);
    if ops.len() > stated {
        let told: IndexSet<&str> = ops.iter().map(String::as_str).collect();
        ledger.derive(setting, told.into_iter().collect::<Vec<_>>().join(","), "as stated, and the base mode that the compiler implies");
    }
    Ok(ops)
}

fn passes(
    ledger: &mut Ledger<'_>,
    machine: Machine<'_>,
    ranks: u32,
    level: u64,
    mode: CompilationMode,
    custom_ops: &[String],
) -> Result<PassSettings, ConfigError> {
    let native_norm = mode != CompilationMode::None;
    let quant_op = custom_op_enabled(custom_ops, "quant_fp8");
    let norm = level > 0 && (custom_op_enabled(custom_ops, "rms_norm") || quant_op || !native_norm);
    let act = level > 0 && (custom_op_enabled(custom_ops, "silu_and_mul") || quant_op || is_nvfp4(machine.model));
    let hopper_or_blackwell = machine.chip.compute_capability.value == (9, 0) || machine.family(10);
    let allreduce = level > 1 && ranks > 1 && hopper_or_blackwell;
    let mut pass = |setting, derived: bool, rule: &str| ledger.flag_or(setting, derived, rule);
    let fuse_norm_quant = pass(Setting::CompilationConfigPassConfigFuseNormQuant, norm, "on where a custom norm or quantisation is");
    let fuse_act_quant = pass(Setting::CompilationConfigPassConfigFuseActQuant, act, "on for custom quantisation and NVFP4 models");
    let fuse_attn_quant = pass(Setting::CompilationConfigPassConfigFuseAttnQuant, false, "off at every optimization level");
    let fuse_allreduce_rms =
        pass(Setting::CompilationConfigPassConfigFuseAllreduceRms, allreduce, "on from level 2 for several Hopper or Blackwell ranks");
    let rope = pass(Setting::CompilationConfigPassConfigEnableQkNormRopeFusion, false, "off at every optimization level");
    let limit = ledger.value(Setting::CompilationConfigPassConfigFiAllreduceFusionMaxSizeMb).as_f64();
    if limit.is_some_and(|megabytes| megabytes < 0.0) {
        return Err(ConfigError::OutOfRange {
            name: Setting::CompilationConfigPassConfigFiAllreduceFusionMaxSizeMb.key().to_owned(),
            value: limit.unwrap_or_default().to_string(),
            wanted: "at least 0".to_owned(),
        });
    }
    Ok(PassSettings {
        fuse_norm_quant,
        fuse_act_quant,
        fuse_attn_quant,
        fuse_allreduce_rms,
        enable_qk_norm_rope_fusion: rope,
        allreduce_fusion_max_tokens: if fuse_allreduce_rms { fused_tokens(machine, ranks, limit) } else { None },
    })
}

/// Most tokens of a fused all-reduce: the size limit over the bytes of one token's residual (two per element).
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "upstream cuts the fraction off a non-negative size")]
fn fused_tokens(machine: Machine<'_>, ranks: u32, stated_mb: Option<f64>) -> Option<u64> {
    if ![2, 4, 8, 16].contains(&ranks) {
        return None;
    }
    // upstream: vllm `compilation/passes/fusion/allreduce_rms_fusion.py::FI_ALLREDUCE_FUSION_MAX_SIZE_MB`.
    let default = match (machine.chip.compute_capability.value, ranks) {
        ((9, 0), 2) | ((10, 0), 2 | 16) | ((10, 3), 2 | 4 | 16) => Some(64.0),
        ((9, 0), 4) => Some(2.0),
        ((9, 0), 8) => Some(0.5),
        ((10, 0), 4) => Some(32.0),
        ((10, 0), 8) => Some(1.0),
        ((10, 3), 8) => Some(4.0),
        _ => None,
    };
    let bytes = (stated_mb.or(default)? * f64::from(1024 * 1024)) as u64;
    Some(bytes / (machine.model.hidden_size * 2))
}

fn stated_graph_mode(ledger: &mut Ledger<'_>, eager: bool, level: u64) -> CudagraphMode {
    let stated = ledger.value(Setting::CompilationConfigCudagraphMode).as_str().and_then(CudagraphMode::named);
    match (eager, stated, level) {
        (true, _, _) | (false, None, 0) => CudagraphMode::None,
        (false, Some(stated), _) => stated,
        (false, None, 1) => CudagraphMode::Piecewise,
        (false, None, _) => CudagraphMode::FullAndPiecewise,
    }
}

fn sizes(
    ledger: &mut Ledger<'_>,
    machine: Machine<'_>,
    scheduler: &SchedulerSettings,
    drafting: Option<&DraftWidths>,
) -> Result<Vec<u64>, ConfigError> {
    let size_setting = ledger.either(Setting::CudagraphCaptureSizes, Setting::CompilationConfigCudagraphCaptureSizes)?;
    let ceiling_setting = ledger.either(Setting::MaxCudagraphCaptureSize, Setting::CompilationConfigMaxCudagraphCaptureSize)?;
    let sizes: Option<Vec<u64>> = match ledger.stated(size_setting) {
        Some(Value::Array(items)) => {
            Some(items.iter().map(|item| count(size_setting, item).map(Option::unwrap_or_default)).collect::<Result<_, _>>()?)
        }
        _ => None,
    };
    let stated_ceiling = ledger.stated(ceiling_setting).map_or(Ok(None), |value| count(ceiling_setting, value))?;
    let own = (machine.model.architecture == GPT_OSS && sizes.is_none() && stated_ceiling.is_none()).then_some(1024);
    let sizing = Sizing {
        ceiling: stated_ceiling.or(own),
        sizes: sizes.as_deref(),
        max_num_seqs: scheduler.max_num_seqs,
        drafts: drafting.map_or(0, |drafting| drafting.tokens.into()),
        tiers: drafting.map_or_else(Vec::new, |drafting| decode_tiers(drafting, scheduler.max_num_seqs)),
        max_num_batched_tokens: scheduler.max_num_batched_tokens,
        large: machine.family(10) && ledger.rules().large_chips == LargeChips::Twice,
        interactivity: ledger.value(Setting::PerformanceMode).as_str() == Some("interactivity"),
    };
    let sizes = sizing.capture_sizes()?;
    if let (Some(stated), Some(largest)) = (stated_ceiling, sizes.last())
        && stated != *largest
    {
        ledger.note(Some(Setting::MaxCudagraphCaptureSize), format!("max_cudagraph_capture_size {stated} is truncated to {largest}"));
    }
    Ok(sizes)
}

fn write_sizes(ledger: &mut Ledger<'_>, sizes: &[u64], largest: u64) {
    let rule = "from the stated sizes or ceiling, the requests and the tokens of one step";
    ledger.derive(Setting::MaxCudagraphCaptureSize, largest, rule);
    let list = sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    ledger.derive(Setting::CudagraphCaptureSizes, format!("[{list}]"), rule);
}

/// Whether the exchange of tokens waits for the host in the middle of a step, which no graph can hold. Upstream drops graphs where the
/// compiler runs, and elsewhere tries to capture them all the same.
fn waits_for_host(cores: DataParallelSettings, mode: CompilationMode, graphs: CudagraphMode) -> Result<bool, ConfigError> {
    let waits = cores.lockstep && cores.exchange == All2AllBackend::DeepepHighThroughput;
    if waits && mode != CompilationMode::VllmCompile && graphs != CudagraphMode::None {
        return Err(ConfigError::NotModelled {
            name: "--all2all-backend".to_owned(),
            value: cores.exchange.as_str().to_owned(),
            reason:
                "upstream leaves graphs on without the compiler, and what becomes of kernels in them that wait for the host is not known"
                    .to_owned(),
            instead: "; add --enforce-eager, or state --all2all-backend deepep_low_latency".to_owned(),
        });
    }
    Ok(waits)
}

/// Whether the compiled graph is split at attention, and what that leaves of the graph mode.
fn splitting(
    ledger: &mut Ledger<'_>,
    mode: CompilationMode,
    passes: &PassSettings,
    graphs: CudagraphMode,
) -> Result<(bool, CudagraphMode), ConfigError> {
    let stated = ledger.value(Setting::CompilationConfigSplittingOps);
    let stated = stated.as_array();
    if stated.is_some_and(|ops| !ops.is_empty()) {
        return Err(ConfigError::NotModelled {
            name: Setting::CompilationConfigSplittingOps.key().to_owned(),
            value: format!("{} operations", stated.map(Vec::len).unwrap_or_default()),
            reason: "only upstream's own list and the empty list are modelled".to_owned(),
            instead: "; leave it out, or state []".to_owned(),
        });
    }
    let empty_list = stated.is_some();
    Ok(if mode == CompilationMode::None {
        (false, graphs)
    } else if passes.fuse_attn_quant {
        let piecewise = graphs.mixed() == CudagraphMode::Piecewise;
        (false, if piecewise && !empty_list { CudagraphMode::Full } else { graphs })
    } else if empty_list {
        // Nothing is left between which pieces could be captured.
        let whole = match graphs {
            CudagraphMode::Piecewise => CudagraphMode::None,
            CudagraphMode::FullAndPiecewise => CudagraphMode::Full,
            CudagraphMode::None | CudagraphMode::Full | CudagraphMode::FullDecodeOnly => graphs,
        };
        (false, whole)
    } else {
        (true, graphs)
    })
}
