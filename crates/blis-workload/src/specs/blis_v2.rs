//! The workload documents of earlier versions of BLIS (`version: "2"`): clients and cohorts that share one rate.
//!
//! Fractions must sum to one: they are shares of `aggregate_rate`. What such a document left to a default is asked for: a prefix states
//! its length, and a client gives up only where a timeout is stated.

use blis_contracts::scenario::distribution::{MAX_COUNT, MeanCount, SpreadCount};
use blis_contracts::scenario::{
    Arrival, Client, ClosedLoop, Context, CountDistribution, Diurnal, Drain, Phase, Phases, Prefix, Profile, Rate, Sessions,
    TimeDistribution, VariedRate,
};
use blis_contracts::strict::{Document, DocumentErrors, LineEndings};
use indexmap::IndexMap;
use serde::Deserialize;

use super::{Converted, at, constant, normal, plain};

/// How far the sum of all fractions may be from one.
const FRACTIONS: f64 = 0.01;

/// Seconds of a day.
const DAY_S: f64 = 86_400.0;

#[derive(Debug, Deserialize)]
struct Spec {
    version: String,
    #[serde(default, rename = "seed")]
    _seed: serde_json::Value,
    #[serde(default, rename = "category")]
    _category: serde_json::Value,
    aggregate_rate: Option<f64>,
    num_requests: Option<u64>,
    horizon: Option<u64>,
    #[serde(default)]
    clients: Vec<Sender>,
    #[serde(default)]
    cohorts: Vec<Sender>,
}

#[derive(Debug, Deserialize)]
struct Sender {
    id: String,
    population: Option<u32>,
    tenant_id: Option<String>,
    slo_class: Option<String>,
    model: Option<String>,
    rate_fraction: Option<f64>,
    concurrency: Option<u32>,
    arrival: Option<Process>,
    input_distribution: Lengths,
    output_distribution: Lengths,
    prefix_group: Option<String>,
    prefix_length: Option<u32>,
    #[serde(default, rename = "streaming")]
    _streaming: serde_json::Value,
    timeout: Option<u64>,
    lifecycle: Option<Lifecycle>,
    reasoning: Option<Reasoning>,
    diurnal: Option<Day>,
    spike: Option<Burst>,
    drain: Option<Fade>,
}

#[derive(Debug, Deserialize)]
struct Process {
    process: String,
    cv: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Lengths {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    params: IndexMap<String, f64>,
}

#[derive(Debug, Deserialize)]
struct Lifecycle {
    windows: Vec<Window>,
}

#[derive(Debug, Deserialize)]
struct Window {
    start_us: u64,
    end_us: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Reasoning {
    #[serde(default, rename = "reason_ratio_distribution")]
    _reason_ratio_distribution: serde_json::Value,
    multi_turn: Option<MultiTurn>,
}

#[derive(Debug, Deserialize)]
struct MultiTurn {
    max_rounds: u32,
    think_time_us: u64,
    context_growth: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Day {
    peak_hour: f64,
    peak_to_trough_ratio: f64,
}

#[derive(Debug, Deserialize)]
struct Burst {
    start_time_us: u64,
    duration_us: u64,
}

#[derive(Debug, Deserialize)]
struct Fade {
    start_time_us: u64,
    ramp_duration_us: u64,
}

/// Reads a document; `file` names it in errors.
pub fn read_blis_v2(file: &str, bytes: &[u8]) -> Result<Converted, DocumentErrors> {
    let document = Document::parse(file, bytes, LineEndings::LfOrCrLf)?;
    let spec: Spec = document.decode()?;
    if spec.version != "2" {
        return Err(at(&document, "version", format!("must be \"2\", found {:?}", spec.version)));
    }
    let senders = || {
        let clients = spec.clients.iter().enumerate().map(|(index, sender)| (format!("clients[{index}]"), sender));
        clients.chain(spec.cohorts.iter().enumerate().map(|(index, sender)| (format!("cohorts[{index}]"), sender)))
    };
    let open = || senders().filter(|(_, sender)| sender.concurrency.is_none());
    let sum: f64 = open().filter_map(|(_, sender)| sender.rate_fraction).sum();
    if open().count() > 0 && (sum - 1.0).abs() > FRACTIONS {
        return Err(at(&document, "", format!("the rate fractions sum to {sum}; they are shares of aggregate_rate and sum to 1")));
    }
    let mut clients = Vec::new();
    let mut tenants = 0u64;
    for (path, sender) in senders() {
        tenants += u64::from(sender.tenant_id.is_some());
        clients.push(client(&document, &path, sender, &spec)?);
    }
    let stop = match (spec.num_requests.filter(|count| *count > 0), spec.horizon.filter(|horizon| *horizon > 0)) {
        (Some(requests), Some(horizon)) => Some(format!("{{requests: {requests}, horizon_s: {}}}", seconds(horizon))),
        (Some(requests), None) => Some(format!("{{requests: {requests}}}")),
        (None, Some(horizon)) => Some(format!("{{horizon_s: {}}}", seconds(horizon))),
        (None, None) => None,
    };
    let note = (tenants > 0).then(|| format!("{tenants} clients state a tenant, which changes nothing of a run"));
    Converted::of(file, clients, stop, note.into_iter().collect())
}

fn client(document: &Document, path: &str, sender: &Sender, spec: &Spec) -> Result<Client, DocumentErrors> {
    let within = |key: &str| format!("{path}.{key}");
    if sender.model.is_some() {
        return Err(at(document, &within("model"), "is refused: one model serves a scenario, which names it"));
    }
    let lengths = |key: &str, stated: &Lengths| lengths(stated).map_err(|message| at(document, &within(key), message));
    let input = lengths("input_distribution", &sender.input_distribution)?;
    let output = lengths("output_distribution", &sender.output_distribution)?;
    let arrival = arrival(document, path, sender, spec)?;
    let mut client = plain(&sender.id, arrival, Some(input), Some(output));
    client.population = sender.population;
    client.slo_class.clone_from(&sender.slo_class);
    client.timeout_s = sender.timeout.filter(|timeout| *timeout > 0).map(seconds);
    client.prefix = match (&sender.prefix_group, sender.prefix_length) {
        (Some(group), Some(length)) => Some(Prefix { group: group.clone(), length, variants: None }),
        (None, None) => None,
        (Some(_), None) => return Err(at(document, path, "`prefix_length` is missing; it has no default here")),
        (None, Some(_)) => return Err(at(document, &within("prefix_length"), "is stated without `prefix_group`")),
    };
    client.profile = match (&sender.diurnal, &sender.drain) {
        (Some(day), None) => {
            Some(Profile::Diurnal(Diurnal { period_s: DAY_S, peak_s: day.peak_hour * 3600.0, peak_to_trough: day.peak_to_trough_ratio }))
        }
        (None, Some(fade)) => {
            Some(Profile::Drain(Drain { start_s: seconds(fade.start_time_us), duration_s: seconds(fade.ramp_duration_us) }))
        }
        (None, None) => None,
        (Some(_), Some(_)) => return Err(at(document, path, "states both `diurnal` and `drain`; keep one of them")),
    };
    if let Some(turns) = sender.reasoning.as_ref().and_then(|reasoning| reasoning.multi_turn.as_ref()) {
        let context = match turns.context_growth.as_deref() {
            Some("accumulate") => Context::Grows,
            None | Some("") => Context::Fresh,
            Some(other) => {
                return Err(at(document, &within("reasoning.multi_turn.context_growth"), format!("must be accumulate, found {other:?}")));
            }
        };
        let think = blis_contracts::scenario::distribution::ConstantTime { value_s: seconds(turns.think_time_us) };
        client.sessions = Some(Sessions { rounds: constant(turns.max_rounds), think_time: TimeDistribution::Constant(think), context });
    }
    Ok(client)
}

/// A sender's arrivals: its share of the rate, in its windows where it has some.
fn arrival(document: &Document, path: &str, sender: &Sender, spec: &Spec) -> Result<Arrival, DocumentErrors> {
    if let Some(concurrency) = sender.concurrency {
        return Ok(Arrival::ClosedLoop(ClosedLoop { concurrency }));
    }
    let (Some(total), Some(fraction)) = (spec.aggregate_rate, sender.rate_fraction) else {
        return Err(at(document, path, "needs `rate_fraction`, and the document `aggregate_rate`; or `concurrency`"));
    };
    let rate = total * fraction;
    let Some(stated) = &sender.arrival else { return Err(at(document, path, "`arrival` is missing")) };
    let cv = || stated.cv.ok_or_else(|| at(document, &format!("{path}.arrival"), "`cv` is missing"));
    let process = match stated.process.as_str() {
        "poisson" => Arrival::Poisson(Rate { rate }),
        "constant" => Arrival::Constant(Rate { rate }),
        "gamma" => Arrival::Gamma(VariedRate { rate, cv: cv()? }),
        "weibull" => Arrival::Weibull(VariedRate { rate, cv: cv()? }),
        other => {
            let message = format!("must be poisson, constant, gamma or weibull, found {other:?}");
            return Err(at(document, &format!("{path}.arrival.process"), message));
        }
    };
    let spike = sender.spike.as_ref().map(|burst| (burst.start_time_us, Some(burst.start_time_us + burst.duration_us)));
    let windows = sender.lifecycle.iter().flat_map(|lifecycle| &lifecycle.windows).map(|window| (window.start_us, window.end_us));
    let windows: Vec<(u64, Option<u64>)> = windows.chain(spike).collect();
    if windows.is_empty() {
        return Ok(process);
    }
    let (mut phases, mut now) = (Vec::new(), 0);
    for (start, end) in windows {
        let Some(end) = end.filter(|end| *end > 0).or(spec.horizon.filter(|horizon| *horizon > 0)) else {
            return Err(at(document, path, "has a window without an end, and the document no `horizon`; state one of them"));
        };
        if start < now || end <= start {
            return Err(at(
                document,
                path,
                format!("has a window from {start} to {end} us, which is empty or begins before the one above ends"),
            ));
        }
        if start > now {
            phases.push(Phase { duration_s: seconds(start - now), arrival: None });
        }
        phases.push(Phase { duration_s: seconds(end - start), arrival: Some(process.clone()) });
        now = end;
    }
    Ok(Arrival::Phases(Phases { phases }))
}

/// A distribution of lengths.
fn lengths(stated: &Lengths) -> Result<CountDistribution, String> {
    let param = |name: &str| stated.params.get(name).copied();
    let need = |name: &str| param(name).ok_or_else(|| format!("`params.{name}` is missing"));
    let known: &[&str] = match stated.kind.as_str() {
        "gaussian" => &["mean", "std_dev", "min", "max"],
        "exponential" => &["mean", "min", "max"],
        "lognormal" => &["mu", "sigma", "min", "max"],
        "constant" => &["value"],
        other => return Err(format!("`{other}` is refused; gaussian, exponential, lognormal and constant are read")),
    };
    if let Some(unknown) = stated.params.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("`params.{unknown}` is no parameter of {}; they are {}", stated.kind, known.join(", ")));
    }
    let whole = |value: f64| -> Result<u32, String> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
        let count = ((1.0..=f64::from(MAX_COUNT)).contains(&value)).then_some(libm::round(value) as u32);
        count.ok_or_else(|| format!("must count from 1 to {MAX_COUNT} tokens, found {value}"))
    };
    let bound = |name: &str, otherwise: u32| param(name).map_or(Ok(otherwise), whole);
    let (min, max) = (bound("min", 1)?, bound("max", MAX_COUNT)?);
    match stated.kind.as_str() {
        "gaussian" => Ok(normal(need("mean")?, need("std_dev")?, min, max)),
        "exponential" => Ok(CountDistribution::Exponential(MeanCount { mean: need("mean")?, min, max })),
        "constant" => Ok(constant(whole(need("value")?)?)),
        _ => {
            let (mu, sigma) = (need("mu")?, need("sigma")?);
            let mean = libm::exp(mu + sigma * sigma / 2.0);
            let std = mean * libm::sqrt(libm::expm1(sigma * sigma));
            Ok(CountDistribution::Lognormal(SpreadCount { mean, std, min, max }))
        }
    }
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}
