//! inference-perf's configuration: stages of a constant or Poisson rate, or a number of requests in flight, over drawn lengths.
//!
//! What is read is `load` and `data`; the rest describes the server and the reports. Between stages nothing is sent for `interval`.

use blis_contracts::scenario::{Arrival, ClosedLoop, CountDistribution, Phase, Phases, Prefix, Rate};
use blis_contracts::strict::{Document, DocumentErrors, LineEndings};
use serde::Deserialize;
use serde_json::Value;

use super::{Converted, at, constant, normal, plain};

/// What the tool waits between stages where the file does not say, in seconds.
const INTERVAL_S: f64 = 1.0;

#[derive(Debug, Deserialize)]
struct Config {
    data: Data,
    load: Load,
    #[serde(default, rename = "api")]
    _api: Value,
    #[serde(default, rename = "server")]
    _server: Value,
    #[serde(default, rename = "report")]
    _report: Value,
    #[serde(default, rename = "metrics")]
    _metrics: Value,
    #[serde(default, rename = "storage")]
    _storage: Value,
    #[serde(default, rename = "tokenizer")]
    _tokenizer: Value,
}

#[derive(Debug, Deserialize)]
struct Data {
    #[serde(rename = "type")]
    kind: String,
    shared_prefix: Option<SharedPrefix>,
    input_distribution: Option<Lengths>,
    output_distribution: Option<Lengths>,
}

#[derive(Debug, Deserialize)]
struct SharedPrefix {
    num_groups: Option<u32>,
    num_unique_system_prompts: Option<u32>,
    num_prompts_per_group: Option<u32>,
    num_users_per_system_prompt: Option<u32>,
    system_prompt_len: u32,
    question_len: u32,
    output_len: u32,
    enable_multi_turn_chat: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Lengths {
    min: u32,
    max: u32,
    mean: f64,
    std_dev: Option<f64>,
    std: Option<f64>,
    #[serde(default, rename = "total_count")]
    _total_count: Value,
}

#[derive(Debug, Deserialize)]
struct Load {
    #[serde(rename = "type")]
    kind: String,
    interval: Option<f64>,
    stages: Option<Vec<Stage>>,
    sweep: Option<Value>,
    lora_traffic_split: Option<Value>,
    #[serde(default, rename = "num_workers")]
    _num_workers: Value,
    #[serde(default, rename = "worker_max_concurrency")]
    _worker_max_concurrency: Value,
}

#[derive(Debug, Deserialize)]
struct Stage {
    rate: Option<f64>,
    duration: Option<f64>,
    concurrency_level: Option<u32>,
    num_requests: Option<u64>,
}

/// Reads a configuration; `file` names it in errors. `stage` picks one of several numbers in flight.
pub fn read_inference_perf(file: &str, bytes: &[u8], stage: usize) -> Result<Converted, DocumentErrors> {
    let document = Document::parse(file, bytes, LineEndings::LfOrCrLf)?;
    let config: Config = document.decode()?;
    let (arrival, stop) = load(&document, &config.load, stage)?;
    let mut client = plain("inference-perf", arrival, None, None);
    let mut notes = Vec::new();
    let stages = config.load.stages.as_ref().map_or(0, Vec::len);
    if config.load.kind == "concurrent" && stages > 1 {
        notes.push(format!("the load has {stages} numbers in flight, one after another; this is the one at {stage} (`--benchmark`)"));
    }
    match (&config.data.shared_prefix, config.data.kind.as_str()) {
        (Some(shared), "shared_prefix") => {
            if shared.enable_multi_turn_chat == Some(true) {
                return Err(at(
                    &document,
                    "data.shared_prefix.enable_multi_turn_chat",
                    "is refused: the file does not say how many turns a chat has",
                ));
            }
            let groups = shared.num_groups.or(shared.num_unique_system_prompts);
            let groups = groups.ok_or_else(|| at(&document, "data.shared_prefix", "`num_groups` is missing"))?;
            let questions = shared.num_prompts_per_group.or(shared.num_users_per_system_prompt);
            client.prefix = Some(Prefix { group: "system-prompt".to_owned(), length: shared.system_prompt_len, variants: Some(groups) });
            client.input = Some(constant(shared.question_len));
            client.output = Some(constant(shared.output_len));
            if let Some(questions) = questions {
                let prompts = u64::from(questions) * u64::from(groups);
                notes.push(format!(
                    "the tool has {prompts} different prompts and repeats them after that; here each question is a new text"
                ));
            }
        }
        (None, "shared_prefix") => return Err(at(&document, "data", "`shared_prefix` is missing")),
        (_, "random" | "synthetic") => {
            client.input = Some(lengths(&document, "input_distribution", config.data.input_distribution.as_ref())?);
            client.output = Some(lengths(&document, "output_distribution", config.data.output_distribution.as_ref())?);
        }
        (_, kind) => {
            let message = format!("`{kind}` states no lengths here; shared_prefix, random and synthetic do");
            return Err(at(&document, "data.type", message));
        }
    }
    Converted::of(file, vec![client], stop, notes)
}

fn lengths(document: &Document, key: &str, lengths: Option<&Lengths>) -> Result<CountDistribution, DocumentErrors> {
    let lengths = lengths.ok_or_else(|| at(document, "data", format!("`{key}` is missing")))?;
    Ok(normal(lengths.mean, lengths.std_dev.or(lengths.std).unwrap_or(0.0), lengths.min, lengths.max))
}

/// The arrivals, and the number of requests that ends them.
fn load(document: &Document, load: &Load, stage: usize) -> Result<(Arrival, Option<String>), DocumentErrors> {
    if load.sweep.is_some() {
        return Err(at(document, "load.sweep", "is refused: its rates are found by running; state `stages`"));
    }
    if load.lora_traffic_split.is_some() {
        return Err(at(document, "load.lora_traffic_split", "is refused: adapters are not simulated"));
    }
    let stages = load.stages.as_deref().unwrap_or_default();
    if stages.is_empty() {
        return Err(at(document, "load", "`stages` is missing or empty"));
    }
    match load.kind.as_str() {
        "constant" | "poisson" => {
            let mut phases = Vec::new();
            for (index, stage) in stages.iter().enumerate() {
                let path = format!("load.stages[{index}]");
                let (Some(rate), Some(duration_s)) = (stage.rate, stage.duration) else {
                    return Err(at(document, &path, "needs `rate` and `duration`"));
                };
                if rate * duration_s < 1.0 {
                    return Err(at(document, &path, format!("makes less than one request: {rate} per second for {duration_s} s")));
                }
                let interval = load.interval.unwrap_or(INTERVAL_S);
                if index > 0 && interval > 0.0 {
                    phases.push(Phase { duration_s: interval, arrival: None });
                }
                let rate = Rate { rate };
                let arrival = if load.kind == "poisson" { Arrival::Poisson(rate) } else { Arrival::Constant(rate) };
                phases.push(Phase { duration_s, arrival: Some(arrival) });
            }
            Ok((Arrival::Phases(Phases { phases }), None))
        }
        "concurrent" => match stages.get(stage) {
            Some(Stage { concurrency_level: Some(concurrency), num_requests: Some(requests), .. }) => {
                let stop = format!("{{requests: {requests}}}");
                Ok((Arrival::ClosedLoop(ClosedLoop { concurrency: *concurrency }), Some(stop)))
            }
            Some(_) => Err(at(document, &format!("load.stages[{stage}]"), "needs `concurrency_level` and `num_requests`")),
            None => Err(at(document, "load.stages", format!("has {} stages, and none at {stage}", stages.len()))),
        },
        kind => Err(at(document, "load.type", format!("must be constant, poisson or concurrent, found {kind:?}"))),
    }
}
