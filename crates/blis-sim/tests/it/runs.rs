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
    let run = run(
        &scenario,
        &Origin { scenario_sha256: String::new(), edits: Vec::new(), trace_sha256: None },
        &World::released(),
        &mut collector,
    )?;
    Ok((run, collector.0))
}

fn succeed(flags: &str) -> (Run, Vec<RequestRecord>) {
    attempt(flags, &[]).expect("the scenario runs")
}

fn refusal(flags: &str, edits: &[(&str, &str)]) -> (String, String) {
    match attempt(flags, edits) {
        Err(RunError::Scenario(problem) | RunError::Start(problem, _)) => (problem.path, problem.message),
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
fn prompts_of_deepseek_v4_that_share_a_prefix_find_its_blocks_of_256_tokens() {
    let edits = [
        ("model: qwen3-8b", "model: deepseek-v4-flash"),
        ("hardware: h100", "hardware: b200"),
        ("Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V4-Flash --max-model-len 4096"),
        ("length: 128", "length: 600"),
        ("requests: 60", "requests: 20"),
    ];
    let hits = |flags: &str| {
        let (run, records) = attempt(flags, &edits).expect("the scenario runs");
        assert!(records.iter().all(|record| record.cached_tokens.is_multiple_of(256)), "hits end where all groups' blocks do");
        run.result.tokens.prefix_hits
    };
    // Of the shared 600 tokens 512 are whole blocks; windows and states keep that end once two prompts have shown it.
    assert!(hits("--tensor-parallel-size 4") >= 16 * 512, "most requests resume from the shared blocks");
    assert_eq!(hits("--tensor-parallel-size 4 --no-enable-prefix-caching"), 0);
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
    // As the engine logs them: 125 blocks over the 119 of the longest request, in tokens. The placeholder is one of them.
    let kv = &run.result.kv["serve"];
    assert_eq!((kv.blocks, kv.tokens), (125, 1_995));
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
        (
            "",
            [("model: qwen3-8b", "model: qwen3-32b")],
            "pools[0].command",
            "serves `Qwen/Qwen3-8B`, which is not `qwen3-32b`, the model of the scenario; launch lines call that `Qwen/Qwen3-32B`",
        ),
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

#[test]
fn a_run_longer_than_the_clock_is_refused_at_its_end_rule() {
    let sessions = "sessions: {rounds: {distribution: constant, value: 40}, context: fresh, think_time: {distribution: exponential, mean_s: 1000000000}}";
    let thinking = [("poisson, rate: 20", "closed_loop, concurrency: 1"), ("prefix: {group: system, length: 128}", sessions)];
    for edits in [&[("poisson, rate: 20", "poisson, rate: 1e-9")][..], &[("poisson, rate: 20", "constant, rate: 1e-9")], &thinking] {
        let (path, message) = refusal("", edits);
        assert_eq!(path, "frame.stop", "{message}");
        assert!(message.starts_with("the run passes 9000000000.000000 s of simulated time"), "{message}");
    }
}

#[test]
fn a_frame_that_measures_no_request_is_refused() {
    let all_discarded = "frame: {start: empty, stop: {horizon_s: 1}, measure: {discard_first: 1000}}";
    let (path, message) = refusal("", &[("frame: {start: empty, stop: {requests: 60}}", all_discarded)]);
    assert_eq!(path, "frame");
    assert!(message.starts_with("no request is measured: the run ends at 1.000000 s, when "), "{message}");
    assert!(message.ends_with("0 of them to warm up, and `discard_first` is 1000"), "{message}");
}

#[test]
fn a_stated_pool_beyond_the_device_is_refused() {
    for flags in ["--num-gpu-blocks-override 100000", "--num-gpu-blocks-override 4294967294", "--kv-cache-memory-bytes 9000000000000000000"]
    {
        let (path, message) = refusal(flags, &[]);
        assert_eq!(path, "pools[0].command", "{message}");
        assert!(message.starts_with("CUDA out of memory: the KV cache of one rank takes "), "{message}");
    }
}

#[test]
fn a_count_beyond_32_bits_is_refused_by_the_setting_s_name() {
    for setting in ["max_num_batched_tokens", "stream_interval", "max_num_scheduled_tokens", "num_gpu_blocks_override"] {
        for value in [u64::from(u32::MAX), 1 << 32, i64::MAX as u64] {
            let (path, message) = refusal(&format!("--{} {value}", setting.replace('_', "-")), &[]);
            assert_eq!(path, "pools[0].command", "{message}");
            assert_eq!(message, format!("{setting}: {value} is too large; expected at most 4294967294"));
        }
    }
}

#[test]
fn what_the_engine_refuses_outside_the_launch_line_is_named_at_its_own_place() {
    let line = "vllm serve Qwen/Qwen3-8B \"}";
    for (to, path) in [
        ("vllm serve Qwen/Qwen3-8B \", env: {VLLM_FOO: \"1\"}}", "pools[0].env.VLLM_FOO"),
        ("vllm serve Qwen/Qwen3-8B \", env: {VLLM_ENABLE_V1_MULTIPROCESSING: \"abc\"}}", "pools[0].env.VLLM_ENABLE_V1_MULTIPROCESSING"),
        ("FOO=1 vllm serve Qwen/Qwen3-8B \"}", "pools[0].command"),
    ] {
        assert_eq!(refusal("", &[(line, to)]).0, path);
    }
    for release in ["abc", "0.22", "0.99.0"] {
        let engine = format!("{{kind: vllm, written_for: \"{release}\"}}");
        let (path, message) = refusal("", &[("{kind: vllm}", &engine)]);
        assert_eq!(path, "engine.written_for");
        assert!(message.contains(release), "{message}");
    }
}

#[test]
fn a_priority_that_the_policy_does_not_read_is_warned_of() {
    let warnings = |flags: &str, priority: &str| {
        let prefix = "prefix: {group: system, length: 128}";
        let (run, _) = attempt(flags, &[(prefix, &format!("{prefix}\n      priority: {priority}"))]).expect("the scenario runs");
        run.result.warnings
    };
    assert_eq!(warnings("", "5"), ["the priority of chat has no effect, because scheduling_policy is fcfs"]);
    assert!(warnings("", "0").is_empty());
    assert!(warnings("--scheduling-policy priority", "5").is_empty());
}

#[test]
fn shares_of_accelerator_time_add_up_to_what_the_engine_counts() {
    let prompts = ("mean: 300, std: 200, min: 8, max: 1500", "mean: 3000, std: 200, min: 2500, max: 3500");
    let horizon = |at: &str| format!("stop: {{horizon_s: {at}}}");
    for (flags, edits) in [
        ("", vec![]),
        ("", vec![prompts, ("stop: {requests: 60}", &*horizon("0.2"))]),
        ("--pipeline-parallel-size 4", vec![]),
        ("--pipeline-parallel-size 4", vec![prompts, ("rate: 20", "rate: 200")]),
        ("--pipeline-parallel-size 4", vec![("rate: 20", "rate: 200"), ("stop: {requests: 60}", &*horizon("2"))]),
        ("--data-parallel-size 2", vec![("requests: 60", "requests: 1")]),
        ("--data-parallel-size 2 --pipeline-parallel-size 2", vec![]),
    ] {
        let (run, _) = attempt(flags, &edits).expect("the scenario runs");
        let (series, kv, steps) = (&run.result.series["serve"], &run.result.kv["serve"], &run.result.steps["serve"]);
        let bins: Vec<f64> = (0..series.running.len()).map(|bin| series.device.values().map(|kind| kind[bin]).sum()).collect();
        assert!(bins.iter().all(|share| *share <= 1.0002), "{flags} {edits:?}: {bins:?}");
        // The last bin is cut at the end of the run, which lies somewhere within it.
        let whole = bins[..bins.len() - 1].iter().sum::<f64>() * series.bin_s;
        let device_s = steps.values().map(|mix| mix.device_s).sum::<f64>() / f64::from(kv.cores);
        let last = device_s - whole;
        assert!(last > -1e-3 && last <= series.bin_s + 1e-3, "{flags} {edits:?}: {whole} s of {device_s} s before the last bin");
        // A last step may end after the last answer, and one in a pipeline is taken to work where it waits.
        let counted_s = kv.device_busy * run.result.frame.window_end_s;
        assert!((device_s - counted_s).abs() < 0.02, "{flags} {edits:?}: {device_s} s of {counted_s} s");
    }
}

#[test]
fn answers_cut_at_the_longest_request_of_the_model_are_not_told_to_raise_it() {
    let advice = |flags: &str| {
        let edits = [
            ("lognormal, mean: 300, std: 200, min: 8, max: 1500", "constant, value: 1000"),
            ("uniform, min: 2, max: 60", "constant, value: 41000"),
            ("requests: 60", "requests: 2"),
        ];
        let (run, _) = attempt(flags, &edits).expect("the scenario runs");
        run.result.warnings.into_iter().find(|warning| warning.contains("max_model_len")).expect("answers are cut")
    };
    assert!(advice("--max-model-len 2000").ends_with("raise it, or ask for less"));
    assert!(advice("").ends_with("the model has no more positions, so ask for less"));
}
