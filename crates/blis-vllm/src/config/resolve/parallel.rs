//! The layout beyond one tensor-parallel group: engine cores, experts, front-end processes.
//!
//! upstream: vllm `config/parallel.py::ParallelConfig`; `entrypoints/cli/serve.py::ServeSubcommand.cmd`;
//! `v1/engine/core.py::EngineCoreProc.run_engine_core`.
//!
//! Left out: where the ranks lie (`nodes`), and balancers outside the endpoint; that front ends reach engine cores which Ray places over TCP.

use blis_contracts::model::{FeedForward, ModelGraph};

use super::ledger::Ledger;
use super::{Machine, nodes};
use crate::config::choices::All2AllBackend;
use crate::config::error::ConfigError;
use crate::config::resolved::{DataParallelSettings, Placement};
use crate::config::setting::Setting;

/// The all-to-all backends that upstream has replaced by its default.
const REMOVED_BACKENDS: [&str; 2] = ["naive", "pplx"];

/// Engine cores that messages can name. upstream: vllm `v1/engine/core.py::EngineCoreProc.__init__`
const MOST_CORES: u64 = 1 << 16;

/// The engine cores: in lockstep for a mixture of experts, else independent; and where their ranks lie.
pub(super) fn data_parallel(
    ledger: &mut Ledger<'_>,
    machine: Machine<'_>,
    nnodes: u64,
    ranks: u32,
) -> Result<(DataParallelSettings, Placement), ConfigError> {
    let size = ledger.count(Setting::DataParallelSize)?;
    if size > MOST_CORES {
        return Err(ConfigError::Inconsistent(format!(
            "--data-parallel-size {size}: int too big to convert; engine cores are told apart by two bytes, so that there are at most {MOST_CORES}"
        )));
    }
    check_executor(ledger, ranks)?;
    check_backend(ledger, nnodes, size.saturating_mul(ranks.into()))?;
    let placement = nodes::placement(ledger, machine, nnodes, (size, ranks.into()))?;
    let all2all = ledger.value(Setting::All2allBackend);
    if let Some(removed) = all2all.as_str().filter(|backend| REMOVED_BACKENDS.contains(backend)) {
        ledger.derive(Setting::All2allBackend, "allgather_reducescatter", format!("upstream has removed {removed}"));
    }
    let exchange = match all2all.as_str() {
        Some(stated) => All2AllBackend::named(stated).unwrap_or(All2AllBackend::AllgatherReducescatter),
        None => All2AllBackend::AllgatherReducescatter,
    };
    let settings = DataParallelSettings {
        size: u32::try_from(size).expect("checked against the GPUs of all nodes"),
        lockstep: size > 1 && has_experts(machine.model),
        exchange,
        sync_interval: ledger.count(Setting::DpSyncInterval)?,
        prefill_schedule_interval: ledger.count(Setting::PrefillScheduleInterval)?,
    };
    Ok((settings, placement))
}

/// The executor within the engine core's process has one worker, whose rank would wait for the others.
/// upstream: vllm `v1/executor/uniproc_executor.py::UniProcExecutor`
fn check_executor(ledger: &mut Ledger<'_>, ranks: u32) -> Result<(), ConfigError> {
    if ranks > 1 && ledger.value(Setting::DistributedExecutorBackend).as_str() == Some("uni") {
        return Err(ConfigError::Refused(format!(
            "--distributed-executor-backend uni: one process runs one rank and would wait for the others of {ranks} without end; write mp, or leave it out"
        )));
    }
    Ok(())
}

/// Ray may place the engine cores, which then run as they do otherwise; it may not run their workers too, as it does unless another
/// executor is named. upstream: vllm `config/parallel.py::ParallelConfig.__post_init__`, `v1/engine/utils.py::CoreEngineActorManager`
fn check_backend(ledger: &mut Ledger<'_>, nnodes: u64, ranks: u64) -> Result<(), ConfigError> {
    if ledger.stated(Setting::DataParallelBackend).is_none() {
        return Ok(());
    }
    let stated = ledger.value(Setting::DataParallelBackend);
    let backend = stated.as_str().unwrap_or_default();
    if nnodes > 1 && backend != "mp" {
        return Err(ConfigError::Inconsistent(format!(
            "Invalid data-parallel launch options: `--nnodes {nnodes}` requires `--data-parallel-backend mp`; got `--data-parallel-backend \
             {backend}`. Use the MP backend or set `--nnodes 1`."
        )));
    }
    if backend == "ray" && ranks > 1 && ledger.stated(Setting::DistributedExecutorBackend).is_none() {
        return Err(ConfigError::NotModelled {
            name: "--data-parallel-backend".to_owned(),
            value: backend.to_owned(),
            reason: "it makes Ray's executor that of the workers too, which schedules no step ahead and whose messages have no price"
                .to_owned(),
            instead: "; add --distributed-executor-backend mp, beside which Ray only places the engine cores".to_owned(),
        });
    }
    Ok(())
}

/// Ranks that share the experts: all of every engine core with `--enable-expert-parallel`.
/// upstream: vllm `model_executor/layers/fused_moe/config.py::FusedMoEParallelConfig.make`
pub(super) fn expert_parallel_size(ledger: &mut Ledger<'_>, machine: Machine<'_>, ranks: u32) -> Result<u32, ConfigError> {
    if !ledger.flag(Setting::EnableExpertParallel) {
        return Ok(1);
    }
    if !has_experts(machine.model) {
        return Err(ConfigError::Refused(
            "--enable-expert-parallel: the number of experts in the model must be greater than 0 when expert parallelism is enabled; leave it \
             out"
                .to_owned(),
        ));
    }
    Ok(ranks)
}

/// Tells of a stated way of tokens between engine cores that none of them go.
pub(super) fn note_unused_exchange(ledger: &mut Ledger<'_>, cores: DataParallelSettings, expert_ranks: u32) {
    if ledger.stated(Setting::All2allBackend).is_some() && cores.exchange_over(expert_ranks) != cores.exchange {
        let beside =
            "it carries tokens between engine cores that share experts, so --data-parallel-size above 1 with --enable-expert-parallel";
        ledger.note(Some(Setting::All2allBackend), format!("--all2all-backend {} has no effect: {beside}", cores.exchange));
    }
}

/// What the stages of a pipeline cannot go with here.
pub(super) fn check_stages((stages, layers): (u32, usize), cores: DataParallelSettings, second_runner: bool) -> Result<(), ConfigError> {
    let (beside, instead) = if stages as usize > layers {
        ("fewer layers than stages", format!("state at most {layers}, the model's layers"))
    } else if cores.lockstep {
        ("engine cores that share experts", format!("leave it out, or --data-parallel-size {}", cores.size))
    } else if !second_runner {
        ("the first model runner", "leave it out, or VLLM_USE_V2_MODEL_RUNNER=0".to_owned())
    } else {
        return Ok(());
    };
    if stages > 1 {
        Err(ConfigError::NotPorted(format!("--pipeline-parallel-size {stages} with {beside} is not modelled; {instead}")))
    } else {
        Ok(())
    }
}

/// HTTP processes: as stated, else one per engine core.
pub(super) fn api_server_count(ledger: &mut Ledger<'_>, cores: u32) -> Result<u32, ConfigError> {
    let Some(stated) = ledger.optional_count(Setting::ApiServerCount)? else {
        ledger.derive(Setting::ApiServerCount, cores, Setting::DataParallelSize.key());
        return Ok(cores);
    };
    let refused = |wanted: String| Err(ConfigError::Inconsistent(format!("--api-server-count {stated}: {wanted}")));
    match u32::try_from(stated) {
        Ok(0) => refused("a server that answers requests needs at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => refused(format!("more processes than any machine has; state at most {}", u32::MAX)),
    }
}

/// Whether any layer of a model is a mixture of experts.
pub(in crate::config) fn has_experts(model: &ModelGraph) -> bool {
    model.blocks.values().any(|block| matches!(block.feed_forward, FeedForward::MixtureOfExperts(_)))
}
