//! What the benchmarks run: scenarios in text, on the released data.

use blis_contracts::engine::{EngineSnapshot, StepTicket};
use blis_contracts::record::RequestRecord;
use blis_contracts::scenario::Scenario;
use blis_contracts::strict::{Document, LineEndings};
use blis_contracts::units::SimTime;
use blis_sim::{Observer, Origin, Progress, Run, World, run};
use blis_workload::source::Draft;

/// A closed loop of gpt-oss-120b on four H200, the first speed figure of the project, with longer outputs so that the loop is what counts.
pub const CLOSED_LOOP: &str = r#"
kind: Scenario
name: closed-loop
seed: 0
model: gpt-oss-120b
engine: {kind: vllm}
cluster: {hardware: h200, nodes: 1}
pools:
  - {name: serve, role: both, replicas: 1, command: "vllm serve openai/gpt-oss-120b --tensor-parallel-size 4 --max-num-seqs 64 --no-enable-prefix-caching"}
workload: {client: inferencex, isl: 1024, osl: 8192, concurrency: 64, range_ratio: 0.8, seed: 0, warmup: 0}
frame: {start: empty, stop: {requests: 640}}
"#;

/// Poisson arrivals at 20 requests a second, 256 tokens in and 128 out, prefix caching on.
pub const OPEN_LOOP: &str = r#"
kind: Scenario
name: open-loop
seed: 42
model: llama-3.1-8b-instruct
engine: {kind: vllm}
cluster: {hardware: h100, nodes: 1}
pools:
  - {name: serve, role: both, replicas: 1, command: "vllm serve meta-llama/Llama-3.1-8B-Instruct"}
workload:
  clients:
    - id: chat
      arrival: {process: poisson, rate: 20}
      input: {distribution: constant, value: 256}
      output: {distribution: constant, value: 128}
frame: {start: empty, stop: {requests: 10000}}
"#;

/// A loaded scenario. Panics on a text that is none: the texts are constants.
pub fn scenario(text: &str) -> Scenario {
    let document = Document::parse("scenario", text.as_bytes(), LineEndings::LfOrCrLf).expect("a document");
    Scenario::load(&document).expect("a scenario")
}

/// Runs a scenario. Panics where it does not run.
pub fn complete(scenario: &Scenario, world: &World) -> Run {
    let origin = Origin { scenario_sha256: String::new(), edits: Vec::new(), trace_sha256: None };
    run(scenario, &origin, world, &mut Silent).expect("the scenario runs")
}

struct Silent;

impl Observer for Silent {
    fn sent(&mut self, _at: SimTime, _draft: &Draft) {}

    fn record(&mut self, _record: &RequestRecord) {}

    fn stepped(&mut self, _step: &StepTicket, _state: &EngineSnapshot) {}

    fn progress(&mut self, _progress: Progress) {}
}
