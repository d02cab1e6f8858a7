//! A sweep as its source records it: one deployment, run at several concurrencies. One JSON object per line.
//!
//! Read strictly: a field that nobody knows is refused. What identifies a run without describing it is carried, and so is what the
//! client's record says in words. No measured value is among the fields.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::jsonl::{Input, InputError, Numbered, unique_keys};

/// What complaints call a line of the file.
pub(crate) const WHAT: &str = "a sweep as its source records it";

/// One sweep.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// The deployment's name: model, chip, precision, engine and layout.
    pub scenario: String,
    /// Its prompt and output lengths, as a short name.
    pub label: String,
    /// The engine that ran.
    pub framework: String,
    /// The chip, by its short name.
    pub gpu: String,
    /// The format of the weights.
    pub precision: String,
    /// How the model was laid out over the chips.
    pub parallel: Parallel,
    /// The day it ran, as an ISO date.
    pub run_date: Option<String>,
    /// The concurrency of each of its points.
    pub concurrency: Vec<u32>,
    /// What the engine's own log says it ran with; absent where no log was kept.
    pub settings: Option<Settings>,
    /// How it was launched.
    pub launch: Launch,
}

/// What the engine's log says it ran with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// At every concurrency.
    pub all: Logged,
    /// At single concurrencies, beside that.
    #[serde(deserialize_with = "unique_keys")]
    pub by_concurrency: BTreeMap<u32, Logged>,
}

/// Settings in a log, by the engine's own names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Logged {
    /// What the engine was passed.
    #[serde(default)]
    pub passed: IndexMap<String, Value>,
    /// What it made of that.
    #[serde(default)]
    pub resolved: IndexMap<String, Value>,
}

/// Widths of a layout. A width the source does not know is null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Parallel {
    /// Tensor-parallel width of attention.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Data-parallel width of attention.
    pub adp: u32,
    /// Tensor-parallel width of the experts.
    pub mtp: Option<u32>,
    /// Expert-parallel width.
    pub mep: Option<u32>,
}

/// How a sweep was launched.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// The recipe, with the commit it was read at.
    pub script: String,
    /// The container image.
    pub image: String,
    /// The launch line, concurrency symbolic.
    pub server_command: String,
    /// The same line as names and values.
    pub args: IndexMap<String, Value>,
    /// Environment variables of the server.
    pub env: IndexMap<String, String>,
    /// The benchmark client.
    pub client: Client,
    /// What whoever extracted it had to say.
    pub notes: String,
}

/// The benchmark client. What is not read here is carried.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub struct Client {
    /// Largest prompt length.
    pub isl: u32,
    /// Largest output length.
    pub osl: u32,
    /// Smallest length as a share of the largest.
    pub range_ratio: f64,
    /// Seed of the client's generator.
    pub seed: u32,
    /// Number of requests: a number, or text in terms of `$CONC`.
    pub num_prompts: Value,
    /// What was sent before the timed requests, in words.
    pub warmups: String,
    /// Requests in flight at most, as text.
    pub max_concurrency: Option<Value>,
    /// Requests sent a second, as text: `inf` where each is sent as soon as it may be in flight.
    pub request_rate: Option<Value>,
    /// Whether every output has the length that was asked for.
    pub ignore_eos: Option<Value>,
    /// Where the client's code is from, in words.
    pub source: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: IndexMap<String, Value>,
}

impl Sweep {
    /// The model's name: what stands before chip, precision and engine in the deployment's name.
    pub(crate) fn model(&self) -> Option<&str> {
        self.scenario.split_once(&format!("-{}-{}-{}-", self.gpu, self.precision, self.framework)).map(|(model, _)| model)
    }

    /// What was built into the image: its tag.
    pub(crate) fn build(&self) -> &str {
        self.launch.image.rsplit_once(':').map_or(self.launch.image.as_str(), |(_, tag)| tag)
    }

    /// What the log says was passed at a point.
    pub(crate) fn passed(&self, concurrency: u32) -> impl Iterator<Item = (&String, &Value)> {
        self.logged(concurrency).flat_map(|logged| &logged.passed)
    }

    /// What the log says was resolved at a point.
    pub(crate) fn resolved(&self, concurrency: u32) -> impl Iterator<Item = (&String, &Value)> {
        self.logged(concurrency).flat_map(|logged| &logged.resolved)
    }

    fn logged(&self, concurrency: u32) -> impl Iterator<Item = &Logged> {
        self.settings.iter().flat_map(move |settings| [Some(&settings.all), settings.by_concurrency.get(&concurrency)]).flatten()
    }

    /// Chips that the deployment used.
    pub(crate) fn gpus(&self) -> u32 {
        self.parallel.tp * self.parallel.pp * self.parallel.adp
    }

    /// The mean output length that the client asks for: lengths are uniform whole numbers between the two bounds.
    pub(crate) fn mean_output_tokens(&self) -> f64 {
        let osl = f64::from(self.launch.client.osl);
        f64::midpoint((osl * self.launch.client.range_ratio).floor(), osl)
    }
}

impl Parallel {
    /// The layout in short: widths of one are left out, except that of tensor parallelism.
    pub(crate) fn layout(&self) -> String {
        let wide = [("pp", self.pp), ("dp", self.adp), ("ep", self.mep.unwrap_or(1))];
        let more = wide.into_iter().filter(|(_, width)| *width > 1).map(|(name, width)| format!(" {name}{width}"));
        format!("tp{}{}", self.tp, more.collect::<String>())
    }
}

/// Every sweep of a file. A sweep stated twice, a point stated twice and a name that does not say its model are refused.
pub fn read_sweeps(input: &Input) -> Result<Vec<Sweep>, InputError> {
    let mut seen = BTreeSet::new();
    let mut sweeps = Vec::new();
    for Numbered { line, value } in input.lines::<Sweep>(WHAT)? {
        let sweep = checked(input, line, value)?;
        if !seen.insert((sweep.scenario.clone(), sweep.label.clone())) {
            return Err(input.at(line, format!("{} {} stands on an earlier line too", sweep.scenario, sweep.label)));
        }
        sweeps.push(sweep);
    }
    Ok(sweeps)
}

/// A sweep whose fields agree with each other.
pub(crate) fn checked(input: &Input, line: usize, sweep: Sweep) -> Result<Sweep, InputError> {
    let Sweep { scenario, label, gpu, precision, framework, .. } = &sweep;
    let fault = |message: String| Err(input.at(line, format!("{scenario} {label}: {message}")));
    if sweep.model().is_none_or(str::is_empty) {
        return fault(format!("scenario must read MODEL-{gpu}-{precision}-{framework}-LAYOUT, as the fields of the unit say"));
    }
    let mut points = BTreeSet::new();
    if let Some(point) = sweep.concurrency.iter().find(|&&point| point == 0 || !points.insert(point)) {
        return fault(format!("concurrency lists {point}; it must be above 0 and stand once"));
    }
    if points.is_empty() {
        return fault("concurrency lists no point".to_owned());
    }
    let Parallel { tp, pp, adp, mtp, mep } = sweep.parallel;
    if [tp, pp, adp].contains(&0) || mtp == Some(0) || mep == Some(0) {
        return fault("parallel states a width of 0; the least is 1".to_owned());
    }
    let client = &sweep.launch.client;
    if client.osl < 2 || !(client.range_ratio > 0.0 && client.range_ratio <= 1.0) {
        return fault(format!(
            "client asks for outputs of {} tokens and ratio {}; at least 2 and above 0, at most 1",
            client.osl, client.range_ratio
        ));
    }
    Ok(sweep)
}
