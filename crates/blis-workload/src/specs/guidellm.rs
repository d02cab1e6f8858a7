//! guidellm: a benchmark's strategy with the lengths of its requests, from a report or from the arguments of one.
//!
//! A report (`benchmarks.json`) holds each request's tokens, which are kept pair by pair in the order in which they were sent, or
//! as listed where a time is missing. Arguments state them as data ([`synthetic`]). Keys that are not read are left: reports hold every metric of the run, arguments its server.

mod synthetic;

use blis_contracts::scenario::{Arrival, Client, ClosedLoop, PairOrder, PairedLengths, Rate};
use blis_contracts::strict::{DocumentError, DocumentErrors};
use serde_json::Value;

use super::{Converted, plain};
use synthetic::Synthetic;

/// Reads a report, or arguments as JSON; `file` names it in errors. `benchmark` picks one of a report's benchmarks, or of the rates of
/// arguments.
pub fn read_guidellm(file: &str, bytes: &[u8], benchmark: usize) -> Result<Converted, DocumentErrors> {
    let wrong = |path: &str, message: String| Err(misread(file, path, message));
    let root: Value = serde_json::from_slice(bytes).map_err(|error| misread(file, "", format!("is not JSON: {error}")))?;
    if let Some(benchmarks) = root.get("benchmarks") {
        return report(file, &root, benchmarks, benchmark);
    }
    match root.get("data") {
        Some(data) => arguments(file, &root, data, benchmark),
        None => wrong("", "has neither `benchmarks` nor `data`; it is no report and no arguments of guidellm".to_owned()),
    }
}

fn misread(file: &str, path: &str, message: String) -> DocumentErrors {
    DocumentError { path: path.to_owned(), ..DocumentError::whole(file, message) }.into()
}

/// One benchmark of a report.
fn report(file: &str, root: &Value, benchmarks: &Value, benchmark: usize) -> Result<Converted, DocumentErrors> {
    let wrong = |path: &str, message: String| misread(file, path, message);
    let count = benchmarks.as_array().map_or(0, Vec::len);
    let path = format!("benchmarks[{benchmark}]");
    let Some(one) = benchmarks.get(benchmark) else {
        return Err(wrong("benchmarks", format!("has {count} benchmarks, and none at {benchmark}")));
    };
    let strategy = one.pointer("/config/strategy").ok_or_else(|| wrong(&path, "has no config.strategy".to_owned()))?;
    let (arrival, mut notes) = arrival(strategy, 0).map_err(|message| wrong(&format!("{path}.config.strategy"), message))?;
    let requests = one.pointer("/requests/successful").and_then(Value::as_array);
    let requests = requests.ok_or_else(|| wrong(&path, "has no requests.successful, where the lengths are".to_owned()))?;
    let mut sent: Vec<(Option<f64>, [u32; 2])> = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let tokens = |key: &str| {
            let value = request.get(key).and_then(Value::as_u64).and_then(|tokens| u32::try_from(tokens).ok());
            value.ok_or_else(|| wrong(&format!("{path}.requests.successful[{index}].{key}"), "must be a whole number of tokens".to_owned()))
        };
        let start_s = request.get("request_start_time").and_then(Value::as_f64);
        sent.push((start_s, [tokens("prompt_tokens")?, tokens("output_tokens")?]));
    }
    // A report lists requests as they completed.
    let untimed = sent.iter().filter(|(start_s, _)| start_s.is_none()).count();
    if untimed == 0 {
        sent.sort_by(|(one, _), (other, _)| one.unwrap_or_default().total_cmp(&other.unwrap_or_default()));
    } else {
        notes.push(format!("{untimed} requests have no request_start_time, so that all stay in the order in which the report lists them"));
    }
    let mut pairs: Vec<[u32; 2]> = sent.into_iter().map(|(_, pair)| pair).collect();
    for (kind, what) in [("incomplete", "did not end"), ("errored", "failed")] {
        let count = one.pointer(&format!("/requests/{kind}")).and_then(Value::as_array).map_or(0, Vec::len);
        if count > 0 {
            notes.push(format!("{count} requests {what} and are left out"));
        }
    }
    // What the data were is known where the report's arguments say that they were drawn; else they are a file's texts.
    let data = root.pointer("/args/data").filter(|data| data.to_string().contains("prompt_tokens"));
    let data = data.map(Synthetic::read).transpose().map_err(|message| wrong("args.data", message))?;
    let prefix = data.and_then(|data| data.prefix);
    if let Some(prefix) = &prefix {
        for pair in &mut pairs {
            pair[0] = pair[0]
                .checked_sub(prefix.length)
                .ok_or_else(|| wrong("args.data", format!("states a prefix of {} tokens, and a prompt has {}", prefix.length, pair[0])))?;
        }
    }
    let stop = Some(format!("{{requests: {}}}", pairs.len()));
    let lengths = PairedLengths { pairs, order: PairOrder::Listed };
    Converted::of(file, vec![Client { lengths: Some(lengths), prefix, ..plain("guidellm", arrival, None, None) }], stop, notes)
}

/// Arguments of a benchmark: data, profile and rate.
fn arguments(file: &str, arguments: &Value, data: &Value, benchmark: usize) -> Result<Converted, DocumentErrors> {
    let wrong = |path: &str, message: String| misread(file, path, message);
    let synthetic = Synthetic::read(data).map_err(|message| wrong("data", message))?;
    let profile = ["profile", "rate_type"].into_iter().find_map(|key| arguments.get(key).cloned()).unwrap_or_default();
    // What the rate counts depends on the profile.
    let counts = match profile.as_str() {
        Some("concurrent") => "streams",
        Some("throughput") => "max_concurrency",
        Some(_) | None => "rate",
    };
    let mut strategy = arguments.clone();
    strategy["type_"] = profile;
    if strategy.get(counts).is_none() {
        strategy[counts] = arguments.get("rate").cloned().unwrap_or_default();
    }
    let (arrival, mut notes) = arrival(&strategy, benchmark).map_err(|message| wrong("profile", message))?;
    let rates = arguments.get("rate").and_then(Value::as_array).map_or(0, Vec::len);
    if rates > 1 {
        notes
            .push(format!("the arguments have {rates} rates, each a benchmark of its own; this is the one at {benchmark} (`--benchmark`)"));
    }
    for key in ["warmup", "cooldown"] {
        if arguments.get(key).is_some_and(|value| !value.is_null()) {
            notes.push(format!("`{key}` says what is measured, not what is sent; state `frame.measure.discard_first` for it"));
        }
    }
    let requests = arguments.get("max_requests").and_then(Value::as_u64).map(|requests| format!("requests: {requests}"));
    let seconds = arguments.get("max_seconds").and_then(Value::as_f64).map(|seconds| format!("horizon_s: {seconds}"));
    let ends: Vec<String> = requests.into_iter().chain(seconds).collect();
    let stop = (!ends.is_empty()).then(|| format!("{{{}}}", ends.join(", ")));
    let Synthetic { input, output, prefix } = synthetic;
    let client = Client { prefix, ..plain("guidellm", arrival, Some(input), Some(output)) };
    Converted::of(file, vec![client], stop, notes)
}

/// When a strategy sends, and what of it is not kept; `benchmark` picks one of several rates.
fn arrival(strategy: &Value, benchmark: usize) -> Result<(Arrival, Vec<String>), String> {
    let number = |key: &str| match strategy.get(key) {
        Some(Value::Array(several)) => several
            .get(benchmark)
            .and_then(Value::as_f64)
            .ok_or_else(|| format!("has {} of `{key}`, and none at {benchmark}", several.len())),
        Some(value) => value.as_f64().ok_or_else(|| format!("has no `{key}`")),
        None => Err(format!("has no `{key}`")),
    };
    let in_flight = |key: &str| {
        let streams = number(key)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
        let concurrency = (1.0..=f64::from(u32::MAX)).contains(&streams).then_some(streams as u32);
        concurrency
            .map(|concurrency| Arrival::ClosedLoop(ClosedLoop { concurrency }))
            .ok_or_else(|| format!("`{key}` must be a number of requests, found {streams}"))
    };
    let rate = || number("rate").map(|rate| Rate { rate });
    let arrival = match strategy.get("type_").and_then(Value::as_str) {
        Some("poisson") => Arrival::Poisson(rate()?),
        Some("constant") => Arrival::Constant(rate()?),
        Some("synchronous") => Arrival::ClosedLoop(ClosedLoop { concurrency: 1 }),
        Some("concurrent") => in_flight("streams")?,
        Some("throughput") => in_flight("max_concurrency").map_err(|_| {
            "`throughput` without `max_concurrency` sends everything at once; state a number of requests in flight".to_owned()
        })?,
        Some("sweep") => {
            return Err("the rates of a `sweep` are found by running; state one of them, as `poisson` or `constant`".to_owned());
        }
        Some(other) => return Err(format!("must be poisson, constant, synchronous, concurrent or throughput, found {other:?}")),
        None => return Err("has no type".to_owned()),
    };
    let mut notes = Vec::new();
    if number("rampup_duration").or_else(|_| number("rampup")).is_ok_and(|seconds| seconds > 0.0) {
        notes.push("the ramp at the start is not kept: the whole load is there from the start".to_owned());
    }
    if arrival.rate().is_some() && number("max_concurrency").is_ok() {
        notes.push("`max_concurrency` is not kept: requests are sent at their times, however many are in flight".to_owned());
    }
    Ok((arrival, notes))
}
