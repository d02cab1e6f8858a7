//! How the ranks of an endpoint lie on nodes.
//!
//! upstream: vllm `engine/arg_utils.py::EngineArgs.create_engine_config`, `config/parallel.py::ParallelConfig.nnodes_within_dp`
//! upstream: vllm `v1/executor/multiproc_executor.py::MultiprocExecutor._get_parallel_sizes`, `v1/worker/gpu_worker.py::Worker.init_device`
//!
//! The line is that of the first node, which has the front end; the others' lines say the same, with their own rank and `--headless`.
//! Where it states only how many engine cores its own node runs, every further node is taken to run as many. Left out: Ray, and
//! balancers outside the endpoint.

use super::Machine;
use super::ledger::Ledger;
use crate::config::error::ConfigError;
use crate::config::resolved::Placement;
use crate::config::setting::Setting;

/// Nodes that the line states its ranks over; 1 where it states none.
pub(super) fn stated(ledger: &mut Ledger<'_>) -> Result<u64, ConfigError> {
    if ledger.stated(Setting::Nnodes).is_none() { Ok(1) } else { ledger.count(Setting::Nnodes) }
}

/// Stages of the pipeline that the line states; 1 where it states none.
pub(super) fn stages(ledger: &mut Ledger<'_>) -> Result<u32, ConfigError> {
    if ledger.stated(Setting::PipelineParallelSize).is_none() {
        return Ok(1);
    }
    let stages = ledger.count(Setting::PipelineParallelSize)?;
    u32::try_from(stages).map_err(|_| {
        ConfigError::Inconsistent(format!("--pipeline-parallel-size {stages} is too large; it should be at most the model's layers"))
    })
}

/// Where `cores` engine cores of `ranks` ranks each lie.
pub(super) fn placement(
    ledger: &mut Ledger<'_>,
    machine: Machine<'_>,
    nnodes: u64,
    (cores, ranks): (u64, u64),
) -> Result<Placement, ConfigError> {
    let local = local_cores(ledger, cores)?;
    let (nodes, ranks_per_node) = if nnodes > 1 {
        over_nodes(nnodes, local, (cores, ranks))?
    } else {
        let local = local.unwrap_or(cores);
        check_one_node(machine, local, (cores, ranks))?;
        if local < cores {
            ledger.note(
                None,
                format!("every node after the first is taken to run {local} engine cores too, as the lines of those nodes state"),
            );
        }
        (cores.div_ceil(local), local.saturating_mul(ranks))
    };
    if ranks_per_node > u64::from(machine.gpus) {
        return Err(ConfigError::Refused(format!(
            "local rank {} of {ranks_per_node} on a node is out of bounds for {} devices; raise --nnodes {nnodes}, or lower \
             --data-parallel-size {cores} or the {ranks} ranks of --tensor-parallel-size and --pipeline-parallel-size",
            ranks_per_node - 1,
            machine.gpus
        )));
    }
    let narrow = |value: u64| {
        u32::try_from(value).map_err(|_| {
            ConfigError::Refused(format!(
                "--nnodes, --data-parallel-size: {value} nodes or ranks are too many; at most {} are counted",
                u32::MAX
            ))
        })
    };
    Ok(Placement { nodes: narrow(nodes)?, ranks_per_node: narrow(ranks_per_node)? })
}

/// Engine cores that the line puts on its own node.
fn local_cores(ledger: &mut Ledger<'_>, cores: u64) -> Result<Option<u64>, ConfigError> {
    if ledger.stated(Setting::DataParallelSizeLocal).is_none() {
        return Ok(None);
    }
    let local = ledger.optional_count(Setting::DataParallelSizeLocal)?;
    match local {
        Some(0) => Err(ConfigError::NotModelled {
            name: "--data-parallel-size-local".to_owned(),
            value: "0".to_owned(),
            reason: "a first node without engine cores is not modelled".to_owned(),
            instead: "; state how many of them a node runs".to_owned(),
        }),
        Some(local) if local > cores => {
            Err(ConfigError::Inconsistent(format!("data_parallel_size_local ({local}) must be <= data_parallel_size ({cores})")))
        }
        Some(_) | None => Ok(local),
    }
}

/// The nodes, and the ranks of each, where the line states the nodes.
fn over_nodes(nnodes: u64, local: Option<u64>, (cores, ranks): (u64, u64)) -> Result<(u64, u64), ConfigError> {
    let world = cores.saturating_mul(ranks);
    if !world.is_multiple_of(nnodes) {
        return Err(ConfigError::Refused(format!("--nnodes {nnodes} must evenly divide the total world size ({world})")));
    }
    let local = local.unwrap_or((world / nnodes / ranks).max(1));
    let groups = cores / local;
    if !nnodes.is_multiple_of(groups) {
        return Err(ConfigError::Refused(format!(
            "nnodes ({nnodes}) must be divisible by the number of data parallel node groups ({groups} = data_parallel_size {cores} / \
             data_parallel_size_local {local})"
        )));
    }
    let nodes_of_core = nnodes / groups;
    if !ranks.is_multiple_of(nodes_of_core) {
        return Err(ConfigError::Refused(format!(
            "global world_size ({ranks}) must be divisible by nnodes_within_dp ({nodes_of_core}); change --tensor-parallel-size, --pipeline-parallel-size or --nnodes {nnodes}"
        )));
    }
    if nodes_of_core > 1 && local > 1 {
        return Err(ConfigError::NotPorted(format!(
            "--data-parallel-size-local {local}: engine cores that each span {nodes_of_core} nodes and share them are not modelled; \
             state 1"
        )));
    }
    Ok((nnodes, local * ranks / nodes_of_core))
}

/// Whether a node has the devices for the engine cores on it.
fn check_one_node(machine: Machine<'_>, local: u64, (cores, ranks): (u64, u64)) -> Result<(), ConfigError> {
    if local.saturating_mul(ranks) <= u64::from(machine.gpus) {
        return Ok(());
    }
    let flag = if local == cores { "--data-parallel-size" } else { "--data-parallel-size-local" };
    Err(ConfigError::Refused(format!(
        "{flag} {local}: {local} engine cores of {ranks} GPUs are larger than the number of available GPUs ({}) in this node; \
         lower it, or state more nodes with --nnodes",
        machine.gpus
    )))
}
