//! Whole scenarios on the released data.

use blis_contracts::fate::Fate;
use blis_contracts::record::RequestRecord;
use blis_contracts::result::{DataOrigin, Limit};
use blis_contracts::scenario::Scenario;
use blis_contracts::strict::{Document, LineEndings};
use blis_sim::{Origin, Run, RunError, World, run};

use crate::fixture::Collector;

const SCENARIO: &str = r#"
kind: Scenario
name: small
seed: 7
model: qwen3-8b
engine: {kind: vllm}
cluster: {hardware: h100, nodes: 1}
pools:
  - {name: serve, role: both, replicas: 1, command: "vllm serve Qwen/Qwen3-8B FLAGS"}
workload:
  clients:
    - id: chat
      arrival: {process: poisson, rate: 20}
      input: {distribution: lognormal, mean: 300, std: 200, min: 8, max: 1500}
      output: {distribution: uniform, min: 2, max: 60}
      prefix: {group: system, length: 128}
frame: {start: empty, stop: {requests: 60}}
"#;

/// Runs the scenario with texts replaced and flags added to its launch line.
fn attempt(flags: &str, edits: &[(&str, &str)]) -> Result<(Run, Vec<RequestRecord>), RunError> {
    let text = edits.iter().fold(SCENARIO.replace("FLAGS", flags), |text, (from, to)| text.replace(from, to));
    let document = Document::parse("scenario.yaml", text.as_bytes(), LineEndings::LfOrCrLf).expect("a document");
    let scenario = Scenario::load(&document).expect("a valid scenario");
    let mut collector = Collector::default();
    let run = run(&scenario, &Origin { scenario_sha256: String::new(), edits: Vec::new() }, &World::released(), &mut collector)?;
    Ok((run, collector.0))
}

fn succeed(flags: &str) -> (Run, Vec<RequestRecord>) {
    attempt(flags, &[]).expect("the scenario runs")
}

fn refusal(flags: &str, edits: &[(&str, &str)]) -> (String, String) {
    match attempt(flags, edits) {
        Err(RunError::Scenario(problem)) => (problem.path, problem.message),
        other => panic!("expected a refusal, found {other:?}"),
    }
}

fn figure(run: &Run, metric: &str) -> f64 {
    run.result.figures.iter().find(|figure| figure.metric == metric).and_then(|figure| figure.value).expect("a figure")
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let bytes = |(run, _): (Run, _)| serde_json::to_string(&run.result).expect("a Result is JSON");
    assert_eq!(bytes(succeed("")), bytes(succeed("")));
}

#[test]
fn a_result_adds_up() {
    let (run, records) = succeed("");
    let result = &run.result;
    assert_eq!((result.fates[&Fate::Completed], result.fates.values().sum::<u64>()), (60, 60));
    assert_eq!(result.tokens.output, records.iter().map(|record| record.output_tokens).sum::<u64>());
    assert_eq!(result.tokens.prompt, records.iter().map(|record| record.prompt_tokens).sum::<u64>());
    assert_eq!(result.tokens.prefix_hits, records.iter().map(|record| record.cached_tokens).sum::<u64>());
    assert!(result.tokens.prefix_hits >= 59 * 128 - 128, "the shared prefix is found: {:?}", result.tokens);
    assert_eq!(result.inputs.data, DataOrigin::Released);
    for shares in [result.prices.by_method.values().sum::<f64>(), result.prices.by_primitive.values().sum()] {
        assert!((shares - 1.0).abs() < 1e-9, "shares of a price add up to {shares}");
    }
    assert!(result.settings["serve"].iter().any(|setting| setting.name == "max_num_batched_tokens"));
}

#[test]
fn a_server_setting_changes_no_request() {
    let asked = |flags: &str| -> Vec<(u64, u64, u64)> {
        let mut asked: Vec<_> = succeed(flags).1.iter().map(|record| (record.index, record.prompt_tokens, record.output_tokens)).collect();
        asked.sort_unstable();
        asked
    };
    assert_eq!(asked(""), asked("--max-num-seqs 2 --max-num-batched-tokens 256 --no-enable-prefix-caching"));
}

#[test]
fn a_tighter_engine_makes_requests_wait_and_says_for_what() {
    let (free, tight) = (succeed("").0, succeed("--max-num-seqs 1").0);
    assert!(figure(&tight, "queue_delay") > 10.0 * figure(&free, "queue_delay"));
    assert_eq!(tight.result.binds.limit, Limit::RunningCap);
}

#[test]
fn a_pool_of_few_blocks_under_heavy_load_preempts_and_ends() {
    let (run, _) = attempt(
        "--num-gpu-blocks-override 125 --max-model-len 1900",
        &[("rate: 20", "rate: 200"), ("max: 1500", "max: 1700"), ("max: 60", "max: 90")],
    )
    .expect("the scenario runs");
    assert_eq!(run.result.fates[&Fate::Completed], 60);
    assert_eq!(run.result.kv["serve"].blocks, 124, "one block is the placeholder");
    assert_eq!(run.result.binds.limit, Limit::KvBlocks);
    assert!(run.result.kv["serve"].peak_utilisation > 0.9);
}

#[test]
fn a_prompt_beyond_the_longest_request_is_refused_with_the_reason_and_the_rest_go_on() {
    let (run, records) = succeed("--max-model-len 700");
    let refused = run.result.fates[&Fate::Refused];
    assert!(refused > 0 && refused + run.result.fates[&Fate::Completed] == 60, "{:?}", run.result.fates);
    assert_eq!(run.result.refusals.values().sum::<u64>(), refused);
    assert!(run.result.refusals.keys().all(|reason| reason.contains("700")), "{:?}", run.result.refusals);
    assert!(records.iter().filter(|record| record.fate == Fate::Refused).all(|record| record.ttft_us().is_none()));
}

#[test]
fn what_cannot_be_deployed_is_refused_at_the_field_that_asks_for_it() {
    let checks = [
        ("", [("vllm}", "vlm}")], "engine.kind", "no engine `vlm`"),
        ("", [("vllm}", "vllm, version: \"0.9.0\"}")], "engine.version", "vllm 0.9.0 is not modelled"),
        ("", [("hardware: h100", "hardware: h10")], "cluster.hardware", "no chip `h10`"),
        ("", [("model: qwen3-8b", "model: qwen3-9b")], "model", "no model `qwen3-9b`"),
        ("", [("model: qwen3-8b", "model: qwen3-32b")], "pools[0].command", "serves `Qwen/Qwen3-8B`, which is not `qwen3-32b`"),
        ("--tensor-parallel-size 3", [("", "")], "pools[0].command", "divisible by tensor parallel size (3)"),
        ("--tensor-parallel-size 16", [("", "")], "pools[0].command", "16"),
        ("--max-model-len 40960 --gpu-memory-utilization 0.25", [("", "")], "pools[0].command", "To serve at least one request"),
        ("--gpu-memory-utilization 0.1", [("", "")], "pools[0].command", "No available memory for the cache blocks"),
    ];
    for (flags, edits, path, message) in checks {
        let edits: Vec<_> = edits.into_iter().filter(|(from, _)| !from.is_empty()).collect();
        let (found_path, found) = refusal(flags, &edits);
        assert_eq!(found_path, path, "{found}");
        assert!(found.contains(message), "{found}");
    }
}

#[test]
fn weights_larger_than_the_device_are_named_with_their_size() {
    let (_, message) =
        refusal("", &[("model: qwen3-8b", "model: llama-3.1-70b-instruct"), ("Qwen/Qwen3-8B", "meta-llama/Llama-3.1-70B-Instruct")]);
    assert!(message.starts_with("CUDA out of memory: the weights and buffers of one rank take 13"), "{message}");
}
