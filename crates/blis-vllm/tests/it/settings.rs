//! Every setting that is called modelled changes what the engine does: for each, [`table`] has two launch lines that differ in it alone.
//!
//! What an engine does is what its world sees of it: the plan that it has priced, the steps that it asks the price of, and which tokens
//! its requests get when. No setting is among these; what one merely says again, in the list of settings in force or in a field of the
//! resolved configuration, is no difference.

mod table;

use std::sync::Arc;

use blis_contracts::chip::Chip;
use blis_contracts::conformance::{FixedPrices, Transcript, drive};
use blis_contracts::engine::Engine;
use blis_contracts::environment::{Environment, EnvironmentError, MemoryBreakdown, PlanId};
use blis_contracts::model::ModelGraph;
use blis_contracts::plan::PoolPlan;
use blis_contracts::request::{Request, RequestId, RequestSlot, Segment, TokenSource};
use blis_contracts::step::{StepEstimate, StepShape};
use blis_contracts::units::{BytesPerRank, SimTime};
use blis_vllm::config::{ConfigError, Kind, Launch, Setting, Stated, fields, read};
use blis_vllm::engine::VllmEngine;
use blis_vllm::startup::{Site, StartError, Started, start};
use blis_vllm::trace::run;
use blis_vllm::trace::scenario::Scenario;
use serde_json::json;

use self::table::Then::{Differs, Refused, Traced, Unmodelled};
use self::table::{Row, TABLE, WITHOUT_EFFECT, WITHOUT_EFFECT_AT_MOST};
use crate::catalog::load;

/// The world of one engine.
struct World {
    graph: ModelGraph,
    chip: Chip,
    prices: FixedPrices,
    /// The steps whose prices were asked.
    priced: Vec<StepShape>,
}

impl World {
    fn new(model: &str, chip: &str) -> Self {
        let step = StepEstimate { before_ns: 40e3, launch_ns: 20e3, device_ns: 300e3, after_ns: 30e3 };
        Self {
            graph: load(&format!("models/{model}/graph.yaml")),
            chip: load(&format!("hardware/{chip}.yaml")),
            prices: FixedPrices { step, per_token_ns: 900.0 },
            priced: Vec::new(),
        }
    }
}

impl Environment for World {
    fn graph(&self, _model: &str) -> Result<&ModelGraph, EnvironmentError> {
        Ok(&self.graph)
    }

    fn chip(&self, _name: &str) -> Result<&Chip, EnvironmentError> {
        Ok(&self.chip)
    }

    /// Weights and buffers as the plan lists them, and a mebibyte for each captured graph.
    fn memory(&self, partial: &PoolPlan) -> Result<MemoryBreakdown, EnvironmentError> {
        let graphs = partial.graphs.full.len() + partial.graphs.piecewise.len();
        Ok(MemoryBreakdown {
            weights: partial.weights.iter().map(|tensor| BytesPerRank::new(tensor.bytes.get() * u64::from(tensor.count))).sum(),
            buffers: partial.buffers.iter().map(|buffer| buffer.bytes).sum(),
            graphs: BytesPerRank::new((graphs as u64) << 20),
            ..MemoryBreakdown::default()
        })
    }

    fn compile(&mut self, plan: &PoolPlan) -> Result<PlanId, EnvironmentError> {
        self.prices.compile(plan)
    }

    fn price(&mut self, plan: PlanId, step: &StepShape) -> StepEstimate {
        self.priced.push(step.clone());
        self.prices.price(plan, step)
    }
}

/// An engine that has just started, in its world.
struct Running {
    engine: VllmEngine,
    world: World,
}

impl Running {
    fn start(line: &Stated, hardware: &str) -> Result<Self, StartError> {
        let model = line.model();
        let mut world = World::new(model, hardware);
        let site = Site { model, hardware, gpus: 8, nodes: 2, fabric: Some("a network") };
        let Started { engine, .. } = start(line, site, &mut world)?;
        Ok(Self { engine, world })
    }

    /// Whether it does the same as another.
    fn does_the_same_as(self, other: Self) -> bool {
        self.engine.plan() == other.engine.plan() && self.run() == other.run()
    }

    /// What it does with requests, the same few for all.
    fn run(mut self) -> (Vec<StepShape>, Transcript) {
        let mut transcript = drive(&mut self.engine, &mut self.world, &requests());
        // A refusal may say a setting again.
        transcript.refused.iter_mut().for_each(|(_, reason)| reason.clear());
        (self.world.priced, transcript)
    }
}

/// Half of the requests come in one burst, the others when that is over; these find again what they share with the first.
fn requests() -> Vec<(Request, u32)> {
    let request = |index: u32| {
        let arrival = SimTime::from_micros(if index < 12 { u64::from(index) * 100 } else { 200_000 + u64::from(index) * 5_000 });
        let shared = Segment { source: TokenSource::Shared(index % 2), length: 700 };
        let own = Segment { source: TokenSource::Unique(u64::from(index)), length: 40 + 97 * (index % 7) };
        let output = 5 + 9 * (index % 5);
        let prompt: Arc<[Segment]> = Arc::new([shared, own]);
        let priority = i32::try_from(24 - index).expect("a small number");
        (Request::new(RequestId(u64::from(index)), RequestSlot(index), arrival, prompt, output).with_priority(priority), output)
    };
    (0..24).map(request).collect()
}

/// The line of some words, which serves a model.
fn line(model: &str, words: &str) -> Result<Stated, ConfigError> {
    let (variables, arguments): (Vec<&str>, Vec<&str>) = words.split_whitespace().partition(|word| word.starts_with("VLLM_"));
    let command = format!("{} vllm serve --model {model} {}", variables.join(" "), arguments.join(" "));
    read(Launch { command: Some(&command), ..Launch::default() })
}

/// What differs between two lines; an object differs by its keys.
fn changed(before: &Stated, after: &Stated) -> Vec<&'static str> {
    let differs = |key: &&str| before.value(key) != after.value(key);
    fields().iter().filter(|field| field.kind != Kind::Nested).map(|field| field.key).filter(differs).collect()
}

/// The trace of a line's value of a setting, with KV events; without its header.
fn traced(setting: Setting, line: &Stated) -> Vec<String> {
    let mut args = json!({"max_model_len": 160, "kv_events_config": {"enable_kv_cache_events": true, "publisher": "null"}});
    args[setting.key()] = line.value(setting.key()).cloned().expect("both lines state the setting");
    let request = json!({"id": "a", "arrival_us": 0, "prompt": [{"unique": 40}], "max_tokens": 4});
    let document = json!({
        "name": "traced", "seed": 0, "engine_args": args, "gpu": "h100", "model": "tiny-llama",
        "step_time": {"base_us": 1000, "per_token_us": 10}, "requests": [request],
    });
    let scenario = Scenario::parse("traced", document.to_string().as_bytes()).expect("a document of JSON is one of YAML");
    run(&scenario, &mut |_| ()).expect("the tracer takes the line").split_off(1)
}

/// Whether what the row says comes of its lines; else what does.
fn check(&(setting, (model, chip), both, second, then): &Row) -> Result<(), String> {
    let read = |words: &str| line(model, words).map_err(|error| format!("`{words}`: {error}"));
    let (before, after) = (read(both)?, read(&format!("{both} {second}"))?);
    let changed = changed(&before, &after);
    if changed != [setting.key()] {
        return Err(format!("the lines differ in {changed:?}"));
    }
    let first = Running::start(&before, chip).map_err(|error| format!("the first line: {error}"))?;
    let shown = match (then, Running::start(&after, chip)) {
        (Differs, Ok(second)) => !first.does_the_same_as(second),
        (Traced, Ok(_)) => traced(setting, &before) != traced(setting, &after),
        (Refused(words), Err(error)) if !is_unmodelled(&error) && error.to_string().contains(words) => true,
        (Unmodelled(words), Err(error)) if is_unmodelled(&error) && error.to_string().contains(words) => true,
        (Differs | Traced | Refused(_) | Unmodelled(_), Err(error)) => return Err(format!("the second line: {error}")),
        (Refused(_) | Unmodelled(_), Ok(_)) => return Err("the second line starts".to_owned()),
    };
    if shown { Ok(()) } else { Err("the engine does the same".to_owned()) }
}

fn is_unmodelled(error: &StartError) -> bool {
    matches!(error, StartError::Config(ConfigError::NotModelled { .. }))
}

#[test]
fn every_modelled_setting_changes_what_the_engine_does() {
    let faults: Vec<String> = TABLE.iter().filter_map(|row| check(row).err().map(|fault| format!("{}: {fault}", row.0.key()))).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_modelled_setting_has_its_row() {
    let listed = || TABLE.iter().map(|row| row.0).chain(WITHOUT_EFFECT.iter().map(|(setting, _)| *setting));
    for setting in Setting::ALL {
        assert_eq!(listed().filter(|other| other == setting).count(), 1, "rows of {}", setting.key());
    }
    assert!(WITHOUT_EFFECT.len() <= WITHOUT_EFFECT_AT_MOST && WITHOUT_EFFECT.iter().all(|(_, reason)| !reason.is_empty()));
}
