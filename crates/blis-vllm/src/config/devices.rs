//! Which devices of a node a launch line names, and whether the ranks there find one each.
//!
//! upstream: vllm `engine/arg_utils.py::EngineArgs._resolve_device_ids`, `v1/worker/gpu_worker.py::Worker.init_device`,
//! `platforms/cuda.py::_cuda_device_count_stateless`, `platforms/cuda.py::NvmlCudaPlatform.device_control_id_to_physical_device_id`
//!
//! `CUDA_VISIBLE_DEVICES` hides devices as CUDA does: the list ends before the first that is not there, and one named twice hides all.
//! `--device-ids` picks among those that are left. Which of them they are changes nothing: the devices of a node are alike. Left out:
//! whether a device of a stated UUID is there.

use std::collections::BTreeSet;

use serde_json::Value;

use super::error::ConfigError;
use super::inert::wrong;
use super::statements::Statements;
use super::value::shown;

const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
const FLAG: &str = "--device-ids";
/// What UUIDs of whole devices begin with, and those of slices.
const WHOLE: &str = "GPU-";
const SLICE: &str = "MIG-";

/// What an entry of a list names; two that are equal name one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Device<'a> {
    Number(i64),
    /// By UUID.
    Whole(&'a str),
    Other(&'a str),
}

impl<'a> Device<'a> {
    /// The device of an entry without spaces around it.
    fn of(entry: &'a str) -> Self {
        match entry.parse() {
            Ok(number) => Self::Number(number),
            Err(_) if entry.starts_with(WHOLE) => Self::Whole(entry),
            Err(_) => Self::Other(entry),
        }
    }
}

/// Adds a refusal where devices are named as upstream would not read them.
pub(super) fn check_names(statements: &Statements, refusals: &mut Vec<ConfigError>) {
    if let Some(list) = stated(statements, VARIABLE) {
        if entries(&list).any(|entry| entry.starts_with(SLICE)) {
            refusals.push(ConfigError::NotModelled {
                name: VARIABLE.to_owned(),
                value: list.clone(),
                reason: "a slice of a device has less memory and fewer processors than its chip".to_owned(),
                instead: "; name whole devices".to_owned(),
            });
        } else if !list.is_empty() && entries(&list).map(Device::of).any(|device| matches!(device, Device::Other(_))) {
            refusals.push(wrong(VARIABLE, &list, "a list of devices, by number or by UUID, such as 0,1"));
        }
    }
    if let Some(list) = stated(statements, "device_ids") {
        let ids: Vec<&str> = entries(&list).collect();
        let seen: BTreeSet<Device<'_>> = ids.iter().copied().map(Device::of).collect();
        let numbers = ids.iter().filter(|id| is_number(id)).count();
        let whole = seen.iter().filter(|device| matches!(device, Device::Whole(_))).count();
        if seen.len() != ids.len() || ![numbers, whole].contains(&ids.len()) {
            refusals.push(wrong(FLAG, &list, "distinct devices, all by number or all by UUID"));
        }
    }
}

/// Whether each of the `ranks` on a node of `gpus` devices finds one.
pub(super) fn check_ranks(statements: &Statements, gpus: u32, ranks: u32) -> Result<(), ConfigError> {
    let few = |name: &str, value: &str, devices: u32| {
        Err(ConfigError::TooFewDevices { name: name.to_owned(), value: value.to_owned(), devices, ranks })
    };
    let hidden = stated(statements, VARIABLE);
    let visible = hidden.as_deref().map_or(gpus, |list| visible(list, gpus));
    if let Some(list) = hidden.filter(|_| visible < ranks) {
        return few(VARIABLE, &list, visible);
    }
    let Some(list) = stated(statements, "device_ids") else { return Ok(()) };
    let beyond = |id: &&str| is_number(id) && id.parse::<u32>().map_or(true, |id| id >= visible);
    if let Some(id) = entries(&list).find(beyond) {
        let refusal = format!("{FLAG} index {id} is out of range: {visible} devices of a node are visible, from 0 on");
        return Err(ConfigError::Refused(refusal));
    }
    match u32::try_from(entries(&list).count()) {
        Ok(named) if named < ranks => few(FLAG, &list, named),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn stated(statements: &Statements, key: &str) -> Option<String> {
    statements.value(key).filter(|value| **value != Value::Null).map(shown)
}

fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

fn is_number(id: &str) -> bool {
    !id.is_empty() && id.chars().all(|digit| digit.is_ascii_digit())
}

/// Devices that the variable leaves of `gpus`.
fn visible(list: &str, gpus: u32) -> u32 {
    let mut devices = entries(list).map(Device::of).peekable();
    let by_name = matches!(devices.peek(), Some(Device::Whole(_)));
    let named: Vec<Device<'_>> = devices
        .take_while(|device| match device {
            Device::Whole(_) => by_name,
            Device::Number(number) => !by_name && *number >= 0,
            Device::Other(_) => false,
        })
        .collect();
    if named.iter().collect::<BTreeSet<_>>().len() < named.len() {
        return 0;
    }
    let beyond = |device: &Device<'_>| matches!(device, Device::Number(number) if *number >= i64::from(gpus));
    let there = named.iter().take_while(|device| !beyond(device)).count();
    u32::try_from(there).map_or(gpus, |there| there.min(gpus))
}
