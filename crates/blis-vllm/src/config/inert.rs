//! What upstream refuses of settings that move no decision: a launch line that it would not start is not run here either.
//!
//! upstream: vllm `config/parallel.py::EPLBConfig`, `ParallelConfig._validate_numa_bind_nodes`, `_validate_numa_bind_cpus`,
//! `_validate_parallel_config`, `_verify_args`. Left out: the devices of a node, which are in `devices`.

use serde_json::Value;

use super::devices;
use super::error::ConfigError;
use super::statements::Statements;
use super::value::shown;

/// Adds a refusal for each such setting that upstream would not take.
pub(super) fn check(statements: &Statements, refusals: &mut Vec<ConfigError>) {
    let value = |key: &str| statements.value(key).filter(|value| !value.is_null());
    let is_true = |key: &str| value(key).is_some_and(|value| *value == Value::Bool(true));
    refusals.extend(balancer_of_experts(value));
    let (nodes, cpus) = (value("numa_bind_nodes"), value("numa_bind_cpus"));
    let unbound = [("--numa-bind-nodes", nodes), ("--numa-bind-cpus", cpus)].into_iter().find(|(_, stated)| stated.is_some());
    if let (Some((name, Some(stated))), false) = (unbound, is_true("numa_bind")) {
        refusals.push(wrong(name, &shown(stated), "left out, or given together with --numa-bind"));
    }
    refusals.extend(nodes.and_then(numa_nodes));
    refusals.extend(cpus.and_then(numa_cpus));
    if is_true("ray_workers_use_nsight") {
        refusals.push(wrong("--ray-workers-use-nsight", "true", "left out: workers do not run with Ray"));
    }
    devices::check_names(statements, refusals);
}

pub(super) fn wrong(name: &str, value: &str, wanted: &str) -> ConfigError {
    ConfigError::OutOfRange { name: name.to_owned(), value: value.to_owned(), wanted: wanted.to_owned() }
}

fn balancer_of_experts<'a>(value: impl Fn(&str) -> Option<&'a Value>) -> Option<ConfigError> {
    const REDUNDANT: &str = "eplb_config.num_redundant_experts";
    const COMMUNICATOR: &str = "eplb_config.communicator";
    if let Some(experts) = value(REDUNDANT).filter(|experts| experts.as_u64() != Some(0)) {
        return Some(wrong(REDUNDANT, &shown(experts), "0 without --enable-eplb"));
    }
    let asynchronous = value("eplb_config.use_async").is_none_or(|value| *value == Value::Bool(true));
    let communicator = value(COMMUNICATOR).and_then(Value::as_str).filter(|name| ["torch_nccl", "pynccl"].contains(name));
    let communicator = communicator.filter(|_| asynchronous)?;
    Some(wrong(COMMUNICATOR, communicator, "torch_gloo, nixl or left out while eplb_config.use_async is true"))
}

fn numa_nodes(value: &Value) -> Option<ConfigError> {
    let nodes = value.as_array()?;
    let negative = nodes.iter().any(|node| node.as_i64().is_some_and(|node| node < 0));
    negative.then(|| wrong("--numa-bind-nodes", &shown(value), "whole numbers from 0 on"))
}

/// Sets of processors, in the syntax of `numactl`.
fn numa_cpus(value: &Value) -> Option<ConfigError> {
    let sets = value.as_array()?;
    let number = |word: &str| word.chars().all(|digit| digit.is_ascii_digit()).then(|| word.parse::<u64>().ok()).flatten();
    let ascends = |part: &str| match part.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)).is_some_and(|(first, last)| first <= last),
        None => number(part).is_some(),
    };
    let is_set = |set: &Value| set.as_str().is_some_and(|set| set.split(',').all(ascends));
    let holds = sets.iter().all(is_set);
    (!holds).then(|| wrong("--numa-bind-cpus", &shown(value), "lists of processors, such as 0-3 or 0,2,4-7, each range ascending"))
}
