//! Tests of the scenario document: the two complete examples, what they default to, and what validation refuses.

use super::*;
use crate::chip::Chip;
use crate::strict::LineEndings;

const CHAT: &str = r#"
kind: Scenario
name: chat-llama-8b-h100
seed: 42
model: llama-3.1-8b-instruct
engine: {kind: vllm}
cluster: {hardware: h100, nodes: 1}
pools:
  - {name: serve, role: both, replicas: 1, command: "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 16384"}
workload:
  clients:
    - id: chat
      arrival: {process: poisson, rate: 8.0}
      input: {distribution: lognormal, mean: 512, std: 256, min: 16, max: 4096}
      output: {distribution: lognormal, mean: 256, std: 128, min: 1, max: 2048}
      prefix: {group: system-prompt, length: 1024}
      sessions: {rounds: {distribution: uniform, min: 1, max: 5}, think_time: {distribution: exponential, mean_s: 10}, context: grows}
frame: {start: empty, stop: {requests: 2000}, measure: {discard_first: 0}}
"#;

const BENCHMARK: &str = r#"
kind: Scenario
name: gpt-oss-120b-h200-tp4-1k1k-c64
seed: 0
model: gpt-oss-120b
engine: {kind: vllm, written_for: "0.22.0"}
cluster: {hardware: h200, nodes: 1}
pools:
  - name: serve
    role: both
    replicas: 1
    command: "vllm serve openai/gpt-oss-120b --tensor-parallel-size 4 --no-enable-prefix-caching"
    env: {VLLM_MXFP4_USE_MARLIN: "1"}
workload: {client: inferencex, isl: 1024, osl: 1024, concurrency: 64, range_ratio: 0.8, seed: 0, warmup: 128}
frame: {start: empty, stop: {requests: 640}}
"#;

fn document(text: &str, edits: &[&str]) -> Document {
    let mut document = Document::parse("s.yaml", text.as_bytes(), LineEndings::LfOrCrLf).unwrap();
    for edit in edits {
        document.set(edit).unwrap();
    }
    document
}

fn load(text: &str, edits: &[&str]) -> Result<Scenario, String> {
    Scenario::load(&document(text, edits)).map_err(|errors| errors.to_string())
}

/// The problem an edit to the chat example causes, without its place.
fn refusal(edit: &str) -> String {
    refusals(CHAT, &[edit])
}

fn refusals(text: &str, edits: &[&str]) -> String {
    let errors = Scenario::load(&document(text, edits)).unwrap_err();
    let lines = errors.0.iter().map(|error| format!("{}: {}", error.path, error.message));
    lines.collect::<Vec<_>>().join("\n")
}

fn accepted(text: &str, edits: &[&str]) -> Scenario {
    load(text, edits).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn the_chat_example_loads() {
    let scenario = accepted(CHAT, &[]);
    assert_eq!((scenario.seed, scenario.frame.stop.requests), (42, Some(2000)));
    let Workload::Clients(Clients { clients }) = &scenario.workload else { panic!("{:?}", scenario.workload) };
    assert_eq!(clients[0].arrival.rate(), Some(8.0));
    let spread = distribution::SpreadCount { mean: 512.0, std: 256.0, min: 16, max: 4096 };
    assert_eq!(clients[0].input, Some(CountDistribution::Lognormal(spread)));
    assert_eq!((clients[0].priority, clients[0].max_tokens), (0, None));
    let pool = &scenario.pools[0];
    assert_eq!(scenario.group_of(pool).unwrap().hardware, "h100");
    assert_eq!((scenario.model_of(pool), scenario.engine_of(pool).kind.as_str()), ("llama-3.1-8b-instruct", "vllm"));
}

#[test]
fn the_benchmark_example_loads() {
    let scenario = accepted(BENCHMARK, &[]);
    let Workload::Benchmark(BenchmarkClient::Inferencex(client)) = &scenario.workload else { panic!("{:?}", scenario.workload) };
    assert_eq!((client.isl, client.concurrency, client.warmup, client.num_prompts), (1024, 64, 128, None));
    assert_eq!(scenario.pools[0].env["VLLM_MXFP4_USE_MARLIN"], "1");
    assert_eq!(scenario.frame.measure.discard_first, 0);
}

#[test]
fn a_scenario_prints_as_a_document_that_loads_to_itself() {
    let groups = "cluster={groups: [{name: a, hardware: h100, nodes: 2, gpus_per_node: 8}, {name: b, hardware: h200, nodes: 1}]}";
    let closed = "workload.clients[chat].arrival={process: closed_loop, concurrency: 4}";
    for (text, edits) in [(CHAT, &[][..]), (BENCHMARK, &[]), (CHAT, &[groups, "pools[0].on=b", closed])] {
        let scenario = accepted(text, edits);
        let printed = serde_json::to_string(&scenario).unwrap();
        assert_eq!(accepted(&printed, &[]), scenario, "{printed}");
    }
}

#[test]
fn rates_are_positive_and_within_what_simulated_time_resolves() {
    let rate = "workload.clients[0].arrival.rate";
    assert_eq!(refusal(&format!("{rate}=0")), format!("{rate}: must be above 0 requests per second, found 0.0"));
    assert_eq!(refusal(&format!("{rate}=-8")), format!("{rate}: must be above 0 requests per second, found -8.0"));
    assert_eq!(refusal(&format!("{rate}=1e308")), format!("{rate}: must be from 1e-9 to 1e6 requests per second, found 1e308"));
    accepted(CHAT, &[&format!("{rate}=1e6")]);
}

#[test]
fn lengths_are_from_one_to_a_billion() {
    let value = "workload.clients[0].input";
    let with = |count: &str| format!("{value}={{distribution: constant, value: {count}}}");
    assert_eq!(refusal(&with("0")), format!("{value}.value: must be from 1 to 1000000000, found 0"));
    assert_eq!(refusal(&with("1000000001")), format!("{value}.value: must be from 1 to 1000000000, found 1000000001"));
    assert!(refusal(&with("-1")).contains("expected an integer from 0 to 4294967295, found the integer -1"));
    accepted(CHAT, &[&with("1")]);
    accepted(CHAT, &[&with("1000000000")]);
}

#[test]
fn bounds_are_in_order_and_hold_the_mean() {
    let input = "workload.clients[0].input";
    assert_eq!(
        refusals(CHAT, &[&format!("{input}.min=5000")]),
        format!("{input}.max: must be at least min (5000), found 4096\n{input}.mean: must be from min (5000) to max (4096), found 512.0")
    );
    assert_eq!(refusal(&format!("{input}.mean=4097")), format!("{input}.mean: must be from min (16) to max (4096), found 4097.0"));
    assert_eq!(refusal(&format!("{input}.std=0")), format!("{input}.std: must be above 0 and at most 1000000000, found 0.0"));
    accepted(CHAT, &[&format!("{input}.mean=4096")]);
}

#[test]
fn times_are_not_negative() {
    let think = "workload.clients[0].sessions.think_time";
    assert_eq!(refusal(&format!("{think}.mean_s=0")), format!("{think}.mean_s: must be above 0 and at most 1000000000 seconds, found 0.0"));
    assert_eq!(
        refusal(&format!("{think}={{distribution: constant, value_s: -1}}")),
        format!("{think}.value_s: must be from 0 to 1000000000 seconds, found -1.0")
    );
    accepted(CHAT, &[&format!("{think}={{distribution: constant, value_s: 0}}")]);
}

#[test]
fn what_needs_a_router_or_a_second_role_is_refused_by_name() {
    assert_eq!(refusal("pools[0].replicas=2"), "pools[0].replicas: 2 replicas need a router, which is not simulated yet; write 1");
    assert_eq!(
        refusal("pools[0].role=decode"),
        "pools[0].role: `decode` is not simulated yet: prompts and outputs run in one pool; write `both`"
    );
    assert_eq!(
        refusal("router={}"),
        "router: `router` is refused: routing is not simulated yet: one pool of one replica receives every request"
    );
    let second = "pools=[{name: a, role: both, replicas: 1, command: x}, {name: a, role: both, replicas: 1, args: {}}]";
    assert_eq!(
        refusal(second),
        "pools: 2 pools need a router, which is not simulated yet; keep one pool\npools[1].name: `a` is already the name of pools[0]"
    );
}

#[test]
fn a_pool_has_a_launch_line_or_settings() {
    let pool = |rest: &str| format!("pools=[{{name: a, role: both, replicas: 1{rest}}}]");
    assert_eq!(refusal(&pool("")), "pools[0]: has neither `command` nor `args`; state the engine's launch line or its settings");
    assert_eq!(refusal(&pool(", command: x, args: {}")), "pools[0].args: excludes `command`; keep one of them");
    assert_eq!(refusal(&pool(", command: \" \"")), "pools[0].command: must be the engine's launch line, found \" \"");
    let scenario = accepted(CHAT, &[&pool(", args: {b: {x: [1]}, a: 0.5, c: null}")]);
    let args = scenario.pools[0].args.as_ref().unwrap();
    assert_eq!(args.keys().collect::<Vec<_>>(), ["b", "a", "c"]);
}

#[test]
fn a_pool_names_a_group_the_cluster_has() {
    let groups = "cluster={groups: [{name: left, hardware: h100, nodes: 1}, {name: right, hardware: h200, nodes: 1}]}";
    assert_eq!(refusals(CHAT, &[groups]), "pools[0]: `on` is missing; the groups are left, right");
    assert_eq!(refusals(CHAT, &[groups, "pools[0].on=rihgt"]), "pools[0].on: the cluster has no group `rihgt`; did you mean `right`?");
    let scenario = accepted(CHAT, &[groups, "pools[0].on=right"]);
    assert_eq!(scenario.group_of(&scenario.pools[0]).unwrap().hardware, "h200");
    assert_eq!(scenario.cluster.path_of("right"), "cluster.groups[1]");
}

#[test]
fn a_run_has_an_end() {
    assert_eq!(refusal("frame.stop={}"), "frame.stop: has neither `requests` nor `horizon_s`; a run needs an end");
    assert_eq!(refusal("frame.stop.requests=0"), "frame.stop.requests: must be from 1 to 1000000000, found 0");
    assert_eq!(refusal("frame.stop={horizon_s: -1}"), "frame.stop.horizon_s: must be above 0 and at most 1000000000 seconds, found -1.0");
    assert_eq!(
        refusal("frame.measure.discard_first=2000"),
        "frame.measure.discard_first: must be below frame.stop.requests (2000), found 2000"
    );
    assert_eq!(
        refusal("frame.stop={horizon_s: 1e9}"),
        "frame.stop.horizon_s: 1000000000 s let the clients send about 8.0e9 requests; a run has at most 1000000000"
    );
    accepted(CHAT, &["frame.stop={horizon_s: 0.001}"]);
    let phases = "workload.clients[0].arrival={process: phases, phases: [{duration_s: 9, arrival: {process: constant, rate: 1}}]}";
    accepted(CHAT, &["frame.stop={}", "frame.measure.discard_first=0", phases]);
    let drain = "workload.clients[0].profile={shape: drain, start_s: 9, duration_s: 9}";
    accepted(CHAT, &["frame.stop={}", drain]);
    let spike = "workload.clients[0].profile={shape: spike, start_s: 9, duration_s: 9, factor: 3}";
    assert_eq!(refusals(CHAT, &["frame.stop={}", spike]), "frame.stop: has neither `requests` nor `horizon_s`; a run needs an end");
    accepted(CHAT, &["frame.stop={}", "workload={trace: a.yaml}"]);
    accepted(CHAT, &["frame.measure.discard_first=1999"]);
}

#[test]
fn the_benchmark_client_draws_for_the_requests_the_run_sends() {
    let missing = "frame.stop.requests: is missing; the client draws its lengths for a stated number of requests";
    assert_eq!(refusals(BENCHMARK, &["frame.stop={horizon_s: 10}"]), missing);
    assert_eq!(
        refusals(BENCHMARK, &["workload.num_prompts=639"]),
        "frame.stop.requests: must be at most workload.num_prompts (639), found 640"
    );
    assert_eq!(refusals(BENCHMARK, &["workload.warmup=1000000001"]), "workload.warmup: must be at most 1000000000, found 1000000001");
    assert_eq!(refusals(BENCHMARK, &["workload.range_ratio=1.5"]), "workload.range_ratio: must be above 0 and at most 1, found 1.5");
    assert_eq!(
        refusals(BENCHMARK, &["workload.range_ratio=0.0009"]),
        "workload.range_ratio: lets isl (1024) become 0, found 0.0009\nworkload.range_ratio: lets osl (1024) become 0, found 0.0009"
    );
    accepted(BENCHMARK, &["workload.num_prompts=640"]);
    accepted(BENCHMARK, &["frame.stop={horizon_s: 10}", "workload.num_prompts=640"]);
}

/// For each rule: an edit that breaks it, what the user is told, and the nearest edit that does not break it.
const RULES: &[(&str, &str, &str)] = &[
    ("name=\"\"", "name: must be text on one line, found \"\"", "name=x"),
    ("model=\" \"", "model: must be text on one line, found \" \"", "model=m"),
    ("engine.kind=\"\"", "engine.kind: must be text on one line, found \"\"", "engine.kind=e"),
    ("engine.version=\"a\\nb\"", "engine.version: must be text on one line, found \"a\\nb\"", "engine.version=a"),
    ("cluster.hardware=\"\"", "cluster.hardware: must be text on one line, found \"\"", "cluster.hardware=h"),
    ("cluster.nodes=0", "cluster.nodes: must be from 1 to 1000000, found 0", "cluster.nodes=1"),
    ("cluster.nodes=1000001", "cluster.nodes: must be from 1 to 1000000, found 1000001", "cluster.nodes=1000000"),
    ("cluster.gpus_per_node=0", "cluster.gpus_per_node: must be at least 1, found 0", "cluster.gpus_per_node=1"),
    ("cluster={groups: []}", "cluster.groups: must have at least one group", "cluster={groups: [{name: a, hardware: h, nodes: 1}]}"),
    ("pools=[]", "pools: must have one pool", "pools=[{name: a, role: both, replicas: 1, command: x}]"),
    ("pools[0].replicas=0", "pools[0].replicas: must be 1, found 0", "pools[0].replicas=1"),
    (
        "pools[0].role=prefill",
        "pools[0].role: `prefill` is not simulated yet: prompts and outputs run in one pool; write `both`",
        "pools[0].role=both",
    ),
    (
        "pools[0].env={\"A B\": x}",
        "pools[0].env.A B: must be named by a word without spaces or `=`, found \"A B\"",
        "pools[0].env={A_B: x}",
    ),
    (
        "expert_routing={exponent: -0.1}",
        "expert_routing.exponent: must be from 0 (all experts alike) to 10, found -0.1",
        "expert_routing={exponent: 0}",
    ),
    (
        "cost={usd_per_gpu_hour: 0}",
        "cost.usd_per_gpu_hour: must be above 0 and at most 1000000 dollars, found 0.0",
        "cost={usd_per_gpu_hour: 2.5}",
    ),
    (
        "objectives={default: {ttft_ms: 0}}",
        "objectives.default.ttft_ms: must be above 0 and at most 86400000 ms, found 0.0",
        "objectives={default: {ttft_ms: 0.5}}",
    ),
    (
        "objectives={default: {}}",
        "objectives.default: limits nothing; state at least one of `ttft_ms`, `tpot_ms` and `e2el_ms`",
        "objectives={default: {e2el_ms: 5000}}",
    ),
    (
        "objectives={chat: {tpot_ms: 50}}",
        "objectives.chat: no request is of class `chat`; the workload's classes are `default`",
        "objectives={default: {tpot_ms: 50}}",
    ),
    (
        "workload.clients[0].slo_class=chat",
        "workload.clients[0].slo_class: `chat` has no objective; add `objectives: {chat: {ttft_ms: ...}}`",
        "seed=1",
    ),
    ("workload.clients=[]", "workload.clients: must be from 1 to 16777216 clients, found 0", "seed=1"),
    (
        "workload.clients[0].arrival={process: closed_loop, concurrency: 0}",
        "workload.clients[0].arrival.concurrency: must be from 1 to 1000000, found 0",
        "workload.clients[0].arrival={process: closed_loop, concurrency: 1}",
    ),
    (
        "workload.clients[0].prefix.length=0",
        "workload.clients[0].prefix.length: must be from 1 to 1000000000, found 0",
        "workload.clients[0].prefix.length=1",
    ),
    (
        "workload.clients[0].max_tokens=0",
        "workload.clients[0].max_tokens: must be from 1 to 1000000000, found 0",
        "workload.clients[0].max_tokens=1",
    ),
    (
        "workload.clients[0].sessions.rounds.min=0",
        "workload.clients[0].sessions.rounds.min: must be from 1 to 1000000000, found 0",
        "workload.clients[0].sessions.rounds.min=1",
    ),
    (
        "workload.clients[0].sessions.rounds.max=1001",
        "workload.clients[0].sessions.rounds: must be at most 1000, found 1001",
        "workload.clients[0].sessions.rounds.max=1000",
    ),
    (
        "workload.clients[0].sessions.think_time={distribution: uniform, min_s: 2, max_s: 1}",
        "workload.clients[0].sessions.think_time.max_s: must be at least min_s (2), found 1.0",
        "workload.clients[0].sessions.think_time={distribution: uniform, min_s: 1, max_s: 1}",
    ),
    (
        "workload.clients[0].sessions.think_time={distribution: lognormal, mean_s: 2, std_s: 0}",
        "workload.clients[0].sessions.think_time.std_s: must be above 0 and at most 1000000000 seconds, found 0.0",
        "workload.clients[0].sessions.think_time={distribution: lognormal, mean_s: 2, std_s: 0.1}",
    ),
    (
        "frame.stop={horizon_s: 1.1e9}",
        "frame.stop.horizon_s: must be above 0 and at most 1000000000 seconds, found 1100000000.0",
        "frame.stop={requests: 1, horizon_s: 1e9}",
    ),
    (
        "frame.stop.requests=1000000001",
        "frame.stop.requests: must be from 1 to 1000000000, found 1000000001",
        "frame.stop.requests=1000000000",
    ),
    (
        "workload.clients[0].arrival={process: gamma, rate: 1, cv: 0}",
        "workload.clients[0].arrival.cv: must be from 0.01 to 100, found 0.0",
        "workload.clients[0].arrival={process: weibull, rate: 1, cv: 0.5}",
    ),
    (
        "workload.clients[0].arrival={process: phases, phases: [{duration_s: 0.4, arrival: {process: poisson, rate: 2}}]}",
        "workload.clients[0].arrival.phases[0].arrival: makes less than one request: 2 per second for 0.4 s; make the phase longer",
        "workload.clients[0].arrival={process: phases, phases: [{duration_s: 0.5, arrival: {process: poisson, rate: 2}}]}",
    ),
    (
        "workload.clients[0].arrival={process: phases, phases: [{duration_s: 9, arrival: {process: closed_loop, concurrency: 1}}]}",
        "workload.clients[0].arrival.phases[0].arrival: must be poisson, constant, gamma or weibull within a phase",
        "workload.clients[0].arrival={process: phases, phases: [{duration_s: 9}, {duration_s: 9, arrival: {process: constant, rate: 1}}]}",
    ),
    (
        "workload.clients[0].arrival={process: phases, phases: [{duration_s: 9}]}",
        "workload.clients[0].arrival.phases: send nothing; state `arrival` in one of them",
        "seed=2",
    ),
    (
        "workload.clients[0].profile={shape: diurnal, period_s: 60, peak_s: 0, peak_to_trough: 0.5}",
        "workload.clients[0].profile.peak_to_trough: must be from 1 to 1000000, found 0.5",
        "workload.clients[0].profile={shape: diurnal, period_s: 60, peak_s: 0, peak_to_trough: 1}",
    ),
    (
        "workload.clients[0].profile={shape: spike, start_s: 0, duration_s: 1, factor: 0}",
        "workload.clients[0].profile.factor: must be above 0 and at most 1000000, found 0.0",
        "workload.clients[0].profile={shape: spike, start_s: 0, duration_s: 1, factor: 0.1}",
    ),
    (
        "workload.clients[0].population=0",
        "workload.clients[0].population: must be from 1 to 1000000, found 0",
        "workload.clients[0].population=3",
    ),
    (
        "workload.clients[0].input={distribution: empirical, values: [1, 2], weights: [1]}",
        "workload.clients[0].input.weights: must be one for each of the 2 values, found 1",
        "workload.clients[0].input={distribution: empirical, values: [1, 2], weights: [1, 0]}",
    ),
    (
        "workload.clients[0].lengths={pairs: [[1, 2]], order: drawn}",
        "workload.clients[0].input: excludes `lengths`; keep one of them",
        "seed=3",
    ),
    (
        "workload.clients[0].timeout_s=0",
        "workload.clients[0].timeout_s: must be above 0 and at most 1000000000 seconds, found 0.0",
        "workload.clients[0].timeout_s=0.5",
    ),
    ("workload={trace: \"\"}", "workload.trace: must be text on one line, found \"\"", "workload={trace: a.jsonl, format: mooncake}"),
];

#[test]
fn each_rule_refuses_what_breaks_it_and_accepts_its_nearest_neighbour() {
    for (breaking, told, keeping) in RULES {
        assert!(refusal(breaking).starts_with(told), "{breaking}: {}", refusal(breaking));
        accepted(CHAT, &[keeping]);
    }
}

#[test]
fn clients_have_names_of_their_own() {
    let client = |id: &str| {
        format!(
            "{{id: {id}, arrival: {{process: constant, rate: 1}}, input: {{distribution: constant, value: 1}}, output: {{distribution: constant, value: 1}}}}"
        )
    };
    let two = |first: &str, second: &str| format!("workload.clients=[{}, {}]", client(first), client(second));
    assert_eq!(refusal(&two("a", "a")), "workload.clients[1].id: `a` is already the id of clients[0]");
    accepted(CHAT, &[&two("a", "b")]);
}

#[test]
fn every_problem_is_told_at_once_at_its_place() {
    let edits = ["workload.clients[0].arrival.rate=-1", "frame.stop.requests=0", "name=\" \""];
    let expected = [
        "--set name=\" \":1:12: name: must be text on one line, found \" \"",
        "--set workload.clients[0].arrival.rate=-1:1:40: workload.clients[0].arrival.rate: must be above 0 requests per second, found -1.0",
        "--set frame.stop.requests=0:1:27: frame.stop.requests: must be from 1 to 1000000000, found 0",
    ];
    assert_eq!(load(CHAT, &edits).unwrap_err(), expected.join("\n"));
}

#[test]
fn the_chips_catalog_entry_fixes_the_packaging() {
    let cited = |value: &str| format!("{{value: {value}, kind: datasheet, source: test}}");
    let zero = [
        "multiprocessors",
        "memory",
        "reported_memory",
        "memory_bandwidth",
        "l2_cache",
        "gpus_per_domain",
        "link_bandwidth",
        "host_bandwidth",
    ];
    let zeros: Vec<String> = zero.iter().map(|key| format!("{key}: {}", cited("0"))).collect();
    let named = format!("name: h100\ndevice_name: {}\ncompute_capability: {}\n", cited("x"), cited("[9, 0]"));
    let text = format!("{named}{}\npeak: {{}}\ngpus_per_node: {}\n", zeros.join("\n"), cited("8"));
    let chip: Chip = document(&text, &[]).decode().unwrap();
    let group = |stated| Group { name: "a".into(), hardware: "h100".into(), nodes: 2, gpus_per_node: stated };
    assert_eq!(group(None).packaging(&chip, "cluster").map(Packaging::gpus), Ok(16));
    assert_eq!(group(Some(8)).packaging(&chip, "cluster").map(Packaging::gpus), Ok(16));
    let problem = group(Some(4)).packaging(&chip, "cluster").unwrap_err();
    assert_eq!(problem, Problem::new("cluster.gpus_per_node", "must be 8, which the catalog fixes for h100, found 4"));
}

#[test]
fn the_schema_knows_both_workloads_and_no_reserved_key() {
    let schema = serde_json::to_string(&schemars::schema_for!(Scenario)).unwrap();
    for key in ["\"clients\"", "\"inferencex\"", "\"closed_loop\"", "\"discard_first\""] {
        assert!(schema.contains(key), "{key}");
    }
    assert!(!schema.contains("\"router\""));
}
