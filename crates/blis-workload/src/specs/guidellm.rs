//! guidellm: a benchmark's strategy with the lengths of its requests, from a report or from the arguments of one.
//!
//! A report (`benchmarks.json`) holds each request's tokens, which are kept pair by pair in their order. Arguments state them as
//! `prompt_tokens=256,output_tokens=128` with optional spreads. Keys that are not read are left: reports hold every metric of the run.

use blis_contracts::scenario::{Arrival, ClosedLoop, CountDistribution, PairOrder, PairedLengths, Rate};
use blis_contracts::strict::{DocumentError, DocumentErrors};
use serde_json::Value;

use super::{Converted, normal, plain};

/// Reads a report, or arguments as JSON; `file` names it in errors. `benchmark` picks one of a report's benchmarks.
pub fn read_guidellm(file: &str, bytes: &[u8], benchmark: usize) -> Result<Converted, DocumentErrors> {
    let wrong =
        |path: &str, message: String| DocumentErrors::from(DocumentError { path: path.to_owned(), ..DocumentError::whole(file, message) });
    let report: Value = serde_json::from_slice(bytes).map_err(|error| wrong("", format!("is not JSON: {error}")))?;
    let Some(benchmarks) = report.get("benchmarks") else { return arguments(file, &report) };
    let count = benchmarks.as_array().map_or(0, Vec::len);
    let path = format!("benchmarks[{benchmark}]");
    let Some(one) = benchmarks.get(benchmark) else {
        return Err(wrong("benchmarks", format!("has {count} benchmarks, and none at {benchmark}")));
    };
    let strategy = one.pointer("/config/strategy").ok_or_else(|| wrong(&path, "has no config.strategy".to_owned()))?;
    let arrival = arrival(strategy).map_err(|message| wrong(&format!("{path}.config.strategy"), message))?;
    let requests = one.pointer("/requests/successful").and_then(Value::as_array);
    let requests = requests.ok_or_else(|| wrong(&path, "has no requests.successful, where the lengths are".to_owned()))?;
    let mut pairs = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let tokens = |key: &str| {
            let value = request.get(key).and_then(Value::as_u64).and_then(|tokens| u32::try_from(tokens).ok());
            value.ok_or_else(|| wrong(&format!("{path}.requests.successful[{index}].{key}"), "must be a whole number of tokens".to_owned()))
        };
        pairs.push([tokens("prompt_tokens")?, tokens("output_tokens")?]);
    }
    let stop = Some(format!("{{requests: {}}}", pairs.len()));
    let mut client = plain("guidellm", arrival, None, None);
    client.lengths = Some(PairedLengths { pairs, order: PairOrder::Listed });
    Converted::of(file, vec![client], stop, Vec::new())
}

/// Arguments of a benchmark: data, profile and rate.
fn arguments(file: &str, arguments: &Value) -> Result<Converted, DocumentErrors> {
    let wrong =
        |path: &str, message: String| DocumentErrors::from(DocumentError { path: path.to_owned(), ..DocumentError::whole(file, message) });
    let text = |key: &str| arguments.get(key).and_then(Value::as_str);
    let data = text("data")
        .ok_or_else(|| wrong("", "has neither `benchmarks` nor `data`; it is no report and no arguments of guidellm".to_owned()))?;
    let mut strategy = arguments.clone();
    strategy["type_"] = Value::from(text("profile").or(text("rate_type")).unwrap_or_default());
    strategy["streams"] = arguments.get("rate").cloned().unwrap_or_default();
    let arrival = arrival(&strategy).map_err(|message| wrong("profile", message))?;
    let input = lengths(data, "prompt").map_err(|message| wrong("data", message))?;
    let output = lengths(data, "output").map_err(|message| wrong("data", message))?;
    let stop = match (arguments.get("max_requests").and_then(Value::as_u64), arguments.get("max_seconds").and_then(Value::as_f64)) {
        (Some(requests), _) => Some(format!("{{requests: {requests}}}")),
        (None, Some(seconds)) => Some(format!("{{horizon_s: {seconds}}}")),
        (None, None) => None,
    };
    Converted::of(file, vec![plain("guidellm", arrival, Some(input), Some(output))], stop, Vec::new())
}

/// When a strategy sends.
fn arrival(strategy: &Value) -> Result<Arrival, String> {
    let number = |key: &str| strategy.get(key).and_then(|value| value.as_f64().or_else(|| value.get(0).and_then(Value::as_f64)));
    let rate = || number("rate").map(|rate| Rate { rate }).ok_or_else(|| "has no `rate`".to_owned());
    match strategy.get("type_").and_then(Value::as_str) {
        Some("poisson") => Ok(Arrival::Poisson(rate()?)),
        Some("constant") => Ok(Arrival::Constant(rate()?)),
        Some("synchronous") => Ok(Arrival::ClosedLoop(ClosedLoop { concurrency: 1 })),
        Some("concurrent") => {
            let streams = number("streams").filter(|streams| *streams >= 1.0 && *streams <= f64::from(u32::MAX));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
            let concurrency = streams.map(|streams| streams as u32).ok_or("has no `streams`, or none that is a number of requests")?;
            Ok(Arrival::ClosedLoop(ClosedLoop { concurrency }))
        }
        Some("throughput") => {
            Err("`throughput` sends everything at once; state a `concurrent` strategy with a number of streams".to_owned())
        }
        Some(other) => Err(format!("must be poisson, constant, synchronous or concurrent, found {other:?}")),
        None => Err("has no type".to_owned()),
    }
}

/// Lengths as guidellm's data argument states them, one with its optional spread and bounds.
fn lengths(data: &str, which: &str) -> Result<CountDistribution, String> {
    let value = |key: &str| {
        let name = format!("{which}_tokens{key}");
        let field = data.split(',').filter_map(|field| field.trim().split_once('=')).find(|(key, _)| *key == name);
        field.map(|(_, text)| text.parse::<u32>().map_err(|_| format!("{name} must be a whole number, found {text:?}"))).transpose()
    };
    let mean = value("")?.ok_or_else(|| format!("{data:?} states no {which}_tokens"))?;
    let spread = value("_stdev")?.unwrap_or(0);
    let largest = mean.saturating_add(spread.saturating_mul(5));
    Ok(normal(mean.into(), spread.into(), value("_min")?.unwrap_or(1), value("_max")?.unwrap_or(largest)))
}
