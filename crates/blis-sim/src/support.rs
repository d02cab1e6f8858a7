//! Whether a model runs on a chip, and how far its prices can be trusted there, without a workload.
//!
//! The engine is built from a launch line with nothing but the layout and what the user adds, as a run would build it, and two
//! reference steps are priced: sixteen requests that generate over a thousand tokens, and one prompt of 1,024. Left out: whether a
//! deployment is fast enough, which a run answers.

use blis_contracts::provenance::Method;
use blis_contracts::scenario::{
    BenchmarkClient, Cluster, EngineChoice, Frame, Inferencex, Measure, Pool, Role, Scenario, ScenarioKind, SingleGroup, StartState, Stop,
    Workload,
};
use blis_contracts::step::PrefillRow;
use blis_kernel::PriceLine;
use blis_vllm::config::{Launch, read_estimating};
use indexmap::IndexMap;

use crate::prepare::{Prepared, RunError, prepare};
use crate::world::World;

/// Requests of the reference decode step, and the tokens each has cached.
const DECODE: (usize, u32) = (16, 1000);

/// The reference prompt.
const PROMPT: PrefillRow = PrefillRow { query: 1024, context: 0 };

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The model, by catalog name or checkpoint.
    pub model: &'a str,
    /// The chip, by catalog name.
    pub chip: &'a str,
    /// Ranks that share each matrix.
    pub tensor: u32,
    /// What else the launch line states.
    pub flags: &'a Flags,
    /// Nodes there are.
    pub nodes: u32,
    /// The network between them, by catalog name.
    pub fabric: Option<&'a str>,
}

/// Words of a launch line beside the model and the width, which a question states itself; some model and chip may have them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flags {
    words: String,
    /// Whether they say over how many nodes a replica is spread.
    spread: bool,
}

/// What is wrong with words, whatever the model and the chip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WrongFlag {
    /// No launch line may have them.
    Line(String),
    /// They state this width, which a question states itself.
    Width(String),
}

impl Flags {
    /// Reads the words as a user would type them; answers with all that no model and no chip makes right.
    pub fn read(words: &str) -> Result<Self, Vec<WrongFlag>> {
        let line = format!("vllm serve MODEL {words}");
        let reading = read_estimating(Launch { command: Some(&line), ..Launch::default() })
            .map_err(|error| vec![WrongFlag::Line(error.to_string())])?;
        let of_the_line = reading.refusals.iter().filter(|refusal| refusal.is_of_the_line());
        let mut wrong: Vec<WrongFlag> = of_the_line.map(|refusal| WrongFlag::Line(refusal.to_string())).collect();
        wrong.extend(reading.stated.value("tensor_parallel_size").map(|width| WrongFlag::Width(width.to_string())));
        let spread = reading.stated.value("nnodes").is_some();
        if wrong.is_empty() { Ok(Self { words: words.to_owned(), spread }) } else { Err(wrong) }
    }
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsupported {
    /// The flags together are wrong, whatever the model and the chip.
    Flags(String),
    /// The deployment does not start.
    Deployment(String),
}

/// The answer where the engine starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Supported {
    /// Tokens the KV pool holds.
    pub kv_tokens: u64,
    /// Requests of the longest context that it holds at once.
    pub longest_requests: f64,
    /// The price of the reference decode step, line by line.
    pub decode: Vec<PriceLine>,
    /// The price of the reference prompt, line by line.
    pub prefill: Vec<PriceLine>,
}

impl Supported {
    /// Share of the accelerator's time in both reference steps whose rank of trust is `transferred` or better, within the fitted range.
    pub fn trusted(&self) -> f64 {
        let share = |lines: &[PriceLine]| {
            let on_device = || lines.iter().filter(|line| line.on_device);
            let fitted = |line: &&PriceLine| line.rank == Method::NotCharged || (line.rank <= Method::Transferred && !line.extrapolated);
            let whole: f64 = on_device().map(|line| line.ns).sum();
            if whole > 0.0 { on_device().filter(fitted).map(|line| line.ns).sum::<f64>() / whole } else { 0.0 }
        };
        f64::midpoint(share(&self.decode), share(&self.prefill))
    }
}

/// The answer, or why there is none.
pub fn support(question: Question<'_>, world: &World) -> Result<Supported, Unsupported> {
    let scenario = scenario(question, world).map_err(Unsupported::Deployment)?;
    let mut prepared = prepare(&scenario, world).map_err(|error| match error {
        RunError::Start(_, error) if error.is_of_the_line() => Unsupported::Flags(error.to_string()),
        RunError::Start(_, error) => Unsupported::Deployment(error.to_string()),
        RunError::Scenario(_) | RunError::Simulation(_) => Unsupported::Deployment(error.to_string()),
    })?;
    let decode = price(&mut prepared, &vec![DECODE.1; DECODE.0], &[]);
    let prefill = price(&mut prepared, &[], &[PROMPT]);
    Ok(Supported { kv_tokens: prepared.kv.capacity_tokens, longest_requests: prepared.kv.max_concurrency, decode, prefill })
}

fn price(prepared: &mut Prepared, decode: &[u32], prefill: &[PrefillRow]) -> Vec<PriceLine> {
    let shape = prepared.launched(decode, prefill);
    prepared.environment.plan(prepared.engine.plan_id()).explain(&shape)
}

/// A deployment of one replica on the nodes there are; its workload is never sent. A width beyond one node is spread over as many as it takes,
/// unless the flags say over how many.
fn scenario(question: Question<'_>, world: &World) -> Result<Scenario, String> {
    let graph = world.catalog.model(question.model).map_err(|error| error.to_string())?;
    let checkpoint = graph.aliases.first().unwrap_or(&graph.name);
    let chip = world.catalog.chip(question.chip).map_err(|error| error.to_string())?;
    let taken = question.tensor.div_ceil(chip.gpus_per_node.value);
    let spread = if taken > 1 && !question.flags.spread { format!("--nnodes {taken}") } else { String::new() };
    let command = format!("vllm serve {checkpoint} --tensor-parallel-size {} {spread} {}", question.tensor, question.flags.words);
    Ok(Scenario {
        kind: ScenarioKind::Scenario,
        name: format!("{} on {}", graph.name, question.chip),
        seed: 0,
        model: graph.name,
        engine: EngineChoice { kind: blis_vllm::KIND.to_owned(), version: None, written_for: None },
        cluster: Cluster::Single(SingleGroup {
            hardware: question.chip.to_owned(),
            nodes: question.nodes,
            gpus_per_node: None,
            fabric: question.fabric.map(str::to_owned),
        }),
        pools: vec![Pool {
            name: "serve".to_owned(),
            role: Role::Both,
            on: None,
            replicas: 1,
            command: Some(command),
            args: None,
            env: IndexMap::new(),
            model: None,
            engine: None,
        }],
        workload: Workload::Benchmark(BenchmarkClient::Inferencex(Inferencex {
            isl: 1,
            osl: 1,
            concurrency: 1,
            range_ratio: 1.0,
            seed: 0,
            warmup: 0,
            num_prompts: None,
        })),
        expert_routing: None,
        frame: Frame { start: StartState::Empty, stop: Stop { requests: Some(1), horizon_s: None }, measure: Measure::default() },
        objectives: IndexMap::new(),
        cost: None,
    })
}
