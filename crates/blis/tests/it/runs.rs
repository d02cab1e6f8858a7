//! What a run gives: the table, the document, per-request files, conditions, and the example scenarios.

use std::path::Path;

use blis_contracts::metric::Metric;
use blis_contracts::result::RunResult;

use crate::harness::{Bench, CHAT, show};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn a_result_gives_every_metric_with_the_statistics_of_the_registry() {
    let bench = Bench::new("every_metric", CHAT);
    let edits = ["--set", "objectives={default: {ttft_ms: 1000}}", "--set", "cost={usd_per_gpu_hour: 2}"];
    let result: RunResult = serde_json::from_value(bench.result(&edits)).unwrap();
    let found: Vec<_> = result.figures.iter().map(|figure| (figure.metric.as_str(), figure.statistic)).collect();
    let of = |metric: Metric| metric.statistics().iter().map(move |statistic| (metric.definition().id, *statistic));
    assert_eq!(found, Metric::ALL.into_iter().flat_map(of).collect::<Vec<_>>());
    assert!(result.figures.iter().all(|figure| figure.value.is_some()));
}

#[test]
fn the_table_shows_the_same_run_in_less_than_a_screen() {
    let bench = Bench::new("table", CHAT);
    let output = bench.blis(&["run", "scenario.yaml"]);
    assert!(output.status.success(), "{}", show(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    for needle in ["chat  (vllm ", "ttft  ", "100 completed", "binds  ", "prices from", "time goes to", "released data"] {
        assert!(table.contains(needle), "{needle}: {table}");
    }
    assert!(table.lines().count() < 50 && !table.contains("client time of the first token"), "definitions are a list of their own");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "no bar and no log where stderr is no terminal");
}

#[test]
fn a_run_that_is_offered_more_than_it_serves_warns_with_the_queue_it_saw() {
    let warned = |rate: &str| {
        let bench = Bench::new(&format!("offered_{rate}"), CHAT);
        let edits = [&format!("workload.clients[chat].arrival.rate={rate}"), "frame.stop.requests=400"];
        let result = bench.result(&["--set", edits[0], "--set", edits[1]]);
        let warnings = result["warnings"].as_array().unwrap();
        warnings.iter().any(|warning| warning.as_str().unwrap().starts_with("more was offered than served: each quarter of the requests"))
    };
    assert_eq!([warned("8"), warned("4000")], [false, true]);
}

#[test]
fn the_same_run_prints_the_same_bytes() {
    let bench = Bench::new("same_bytes", CHAT);
    let run = || bench.blis(&["run", "scenario.yaml", "--format", "json", "--stats"]);
    let (one, other) = (run(), run());
    assert_eq!(show(&one), show(&other));
    assert!(String::from_utf8(one.stderr).unwrap().contains("steps priced"));
}

#[test]
fn an_edit_changes_the_run_and_stands_in_the_result() {
    let bench = Bench::new("edit", CHAT);
    let edit = "workload.clients[chat].arrival.rate=80";
    let (plain, edited) = (bench.result(&[]), bench.result(&["--set", edit]));
    assert_eq!(edited["inputs"]["edits"], serde_json::json!([edit]));
    assert_ne!(plain["inputs"]["scenario_sha256"], edited["inputs"]["scenario_sha256"]);
    assert_ne!(plain["figures"], edited["figures"]);
}

#[test]
fn data_from_folders_give_the_same_figures_and_are_named_experimental() {
    let bench = Bench::new("folders", CHAT);
    let (catalog, registry) = (format!("{ROOT}/catalog"), format!("{ROOT}/registry"));
    let (released, folders) = (bench.result(&[]), bench.result(&["--catalog", &catalog, "--registry", &registry]));
    assert_eq!((&released["inputs"]["data"], &folders["inputs"]["data"]), (&"released".into(), &"experimental".into()));
    for same in ["figures", "prices", "fates"] {
        assert_eq!(released[same], folders[same]);
    }
    for hash in ["catalog_sha256", "registry_sha256"] {
        assert_eq!(released["inputs"][hash], folders["inputs"][hash]);
    }
}

#[test]
fn per_request_files_hold_one_line_for_each_request_and_change_nothing() {
    let bench = Bench::new("requests", CHAT);
    let plain = bench.result(&[]);
    assert_eq!(plain, bench.result(&["--requests", "requests.csv"]));
    assert_eq!(plain, bench.result(&["--requests", "requests.jsonl"]));
    assert_eq!(bench.files(), ["requests.csv", "requests.jsonl", "scenario.yaml"]);
    let (csv, jsonl) = (bench.read("requests.csv"), bench.read("requests.jsonl"));
    assert_eq!((csv.lines().count(), jsonl.lines().count()), (101, 100));
    let tokens = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["output_tokens"].as_u64().unwrap();
    assert_eq!(jsonl.lines().map(tokens).sum::<u64>(), plain["tokens"]["output"].as_u64().unwrap());
}

#[test]
fn a_timeline_shows_every_step_and_request_and_changes_nothing() {
    let bench = Bench::new("timeline", CHAT);
    let plain = bench.result(&[]);
    assert_eq!(plain, bench.result(&["--timeline", "all.json"]));
    assert_eq!(plain, bench.result(&["--timeline", "part.json", "--timeline-window", "1s..2s"]));
    let events = |file: &str, ph: &str, category: &str| -> Vec<serde_json::Value> {
        let document: serde_json::Value = serde_json::from_str(&bench.read(file)).unwrap();
        let events = document["traceEvents"].as_array().unwrap();
        events.iter().filter(|event| event["ph"] == ph && event["cat"] == category).cloned().collect()
    };
    let steps = events("all.json", "X", "step");
    assert_eq!(steps.len() as u64, plain["kv"]["serve"]["steps"].as_u64().unwrap());
    let decode = steps.iter().filter(|step| step["name"] == "decode").count() as u64;
    assert_eq!(decode, plain["steps"]["serve"]["decode"]["steps"].as_u64().unwrap());
    let named = |begin: &serde_json::Value| begin["name"].as_str().unwrap().starts_with("chat ");
    assert_eq!(events("all.json", "b", "request").iter().filter(|begin| named(begin)).count(), 100);
    let part = events("part.json", "X", "step");
    assert!(!part.is_empty() && part.iter().all(|step| (980_000..=2_000_000).contains(&step["ts"].as_u64().unwrap())));
    let beyond = bench.blis(&["run", "scenario.yaml", "--timeline", "late.json", "--timeline-window", "1000s..2000s"]);
    assert!(show(&beyond).contains("note: late.json: no step and no request of the run lies in the window\n"), "{}", show(&beyond));
    let refused = bench.blis(&["run", "scenario.yaml", "--timeline-window", "1s..2s"]);
    assert_eq!(refused.status.code(), Some(2), "a window of no timeline: {}", show(&refused));
}

/// The run is long enough not to end by itself, and is interrupted as soon as its file has been begun.
#[cfg(unix)]
#[test]
fn a_run_that_a_signal_ends_leaves_no_file_and_says_which() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let bench = Bench::new("interrupted", &CHAT.replace("requests: 100", "requests: 10000000"));
        let mut child = bench.start(&["run", "scenario.yaml", "--requests", "requests.csv"]);
        while !bench.files().contains(&"requests.csv.partial".to_owned()) {
            assert_eq!(child.try_wait().unwrap(), None, "the run ended before it was interrupted");
            std::thread::yield_now();
        }
        let signalled = std::process::Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(signalled.success());
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert_eq!(bench.files(), ["scenario.yaml"]);
    }
}

#[test]
fn a_condition_decides_the_exit_code() {
    let bench = Bench::new("conditions", CHAT);
    let met = bench.blis(&["run", "scenario.yaml", "--fail-if", "ttft.p99>1000s", "--fail-if", "output_throughput.rate<1"]);
    assert_eq!(met.status.code(), Some(0), "{}", show(&met));
    let missed = bench.blis(&["run", "scenario.yaml", "--fail-if", "ttft.p99>1us", "--fail-if", "ttft.p99>1000s"]);
    assert_eq!(missed.status.code(), Some(3));
    assert!(!missed.stdout.is_empty(), "the Result is printed all the same");
    let told = String::from_utf8(missed.stderr).unwrap();
    assert!(told.starts_with("--fail-if `ttft.p99>1us` holds: ttft.p99 is ") && told.lines().count() == 1, "{told}");
}

#[test]
fn the_example_scenarios_are_valid_and_can_be_explained() {
    let bench = Bench::new("examples", CHAT);
    let mut count = 0;
    for entry in std::fs::read_dir(Path::new(ROOT).join("scenarios")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let path = path.to_str().unwrap();
        let valid = bench.blis(&["validate", path]);
        assert!(valid.status.success(), "{}", show(&valid));
        let explained = bench.blis(&["explain", path, "--step", "decode=16@1000", "--step", "decode=8@500,prefill=512@0"]);
        let text = show(&explained);
        assert!(explained.status.success(), "{text}");
        for title in ["Settings in force", "One forward pass", "Memory of one rank", "KV cache", "A step of decode=8@500,prefill=512@0"] {
            assert!(text.contains(title), "{title}: {text}");
        }
        count += 1;
    }
    assert!(count >= 2);
}

#[test]
fn a_result_becomes_a_page_and_anything_else_is_refused_by_its_line() {
    let bench = Bench::new("report", CHAT);
    let run = bench.blis(&["run", "scenario.yaml", "--format", "json"]);
    bench.write("result.json", &run.stdout);
    let output = bench.blis(&["report", "result.json", "--out", "report.html"]);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", show(&output));
    let page = bench.read("report.html");
    assert!(page.starts_with("<!doctype html>") && page.contains("What requests waited for"));
    let timeline = bench.blis(&["run", "scenario.yaml", "--timeline", "timeline.json"]);
    assert!(timeline.status.success(), "{}", show(&timeline));
    let linked = bench.blis(&["report", "result.json", "--timeline", "timeline.json"]);
    assert!(show(&linked).contains("href=\"timeline.json\""), "{}", show(&linked));
    assert_eq!(bench.blis(&["report", "result.json", "--timeline", "absent.json"]).status.code(), Some(2));
    bench.write("cut.json", &run.stdout[..run.stdout.len() / 2]);
    let refused = bench.blis(&["report", "cut.json", "--out", "cut.html"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(show(&refused).contains("not a Result as this version writes it"), "{}", show(&refused));
    assert!(!bench.files().contains(&"cut.html".to_owned()));
}

#[test]
fn units_become_predictions_and_refusals() {
    let bench = Bench::new("score", CHAT);
    let unit = |label: &str, command: &str| {
        let client = r#"{"isl": 64, "osl": 16, "range_ratio": 0.8, "seed": 0, "num_prompts": "$CONC*10", "max_concurrency": "$CONC", "request_rate": "inf", "ignore_eos": true, "warmups": "none"}"#;
        let server = format!(r#""image": "vllm/vllm-openai:v0.22.0", "server_command": "{command}", "args": {{}}, "env": {{}}"#);
        let launch = format!(r#"{{"script": "a.sh@12345678", {server}, "notes": "", "client": {client}}}"#);
        let layout = r#""precision": "bf16", "parallel": {"tp": 1, "pp": 1, "adp": 1, "mtp": 1, "mep": 1}"#;
        let name = format!(
            r#""scenario": "llama-h200-bf16-vllm-tp1", "label": "{label}", "framework": "vllm", "gpu": "h200", {layout}, "run_date": null"#
        );
        format!("{{{name}, \"concurrency\": [2, 4], \"launch\": {launch}}}\n")
    };
    let served = unit("64/16", "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 4096");
    let refused = unit("lora", "vllm serve meta-llama/Llama-3.1-8B-Instruct --enable-lora");
    bench.write("units.jsonl", (served + &refused).as_bytes());
    let one = bench.blis(&["score", "predict", "--units", "units.jsonl", "--jobs", "1"]);
    assert!(one.status.success(), "{}", show(&one));
    let text = String::from_utf8(one.stdout).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[..2].iter().all(|line| line["mean_ttft_us"].is_number() && line["refused"].is_null()), "{text}");
    assert!(lines[2..].iter().all(|line| line["grade_reasons"][0]["code"] == "field_not_modelled"), "{text}");
    assert!(lines[2..].iter().all(|line| line["refused"].as_str().unwrap().contains("enable-lora")), "{text}");
    let many = bench.blis(&["score", "predict", "--units", "units.jsonl", "--jobs", "3", "--out", "predictions.jsonl"]);
    assert!(many.status.success() && many.stdout.is_empty(), "{}", show(&many));
    assert_eq!(bench.read("predictions.jsonl"), text);
}

/// Two classes of requests, of which one has an objective that no request can meet.
const CLASSES: &str = "\
clients:
    - id: chat
      arrival: {process: poisson, rate: 8.0}
      input: {distribution: uniform, min: 100, max: 900}
      output: {distribution: uniform, min: 10, max: 90}
      slo_class: interactive
    - id: reports
      arrival: {process: poisson, rate: 8.0}
      input: {distribution: uniform, min: 100, max: 900}
      output: {distribution: uniform, min: 10, max: 90}
      slo_class: batch
    - id: unjudged
      arrival: {process: poisson, rate: 8.0}
      input: {distribution: uniform, min: 100, max: 900}
      output: {distribution: uniform, min: 10, max: 90}
frame: {start: empty, stop: {requests: 300}}
objectives:
  interactive: {ttft_ms: 0.001}
  batch: {ttft_ms: 60000, tpot_ms: 1000, e2el_ms: 600000}
cost: {usd_per_gpu_hour: 3.6}
";

fn classes() -> String {
    let start = CHAT.find("clients:").unwrap();
    CHAT[..start].to_owned() + CLASSES
}

#[test]
fn goodput_counts_what_each_class_met_and_dollars_are_spread_over_the_tokens() {
    let result: RunResult = serde_json::from_value(Bench::new("classes", &classes()).result(&[])).unwrap();
    let of = |scope: &str, metric: &str| {
        let found = result.figures.iter().find(|figure| figure.scope == scope && figure.metric == metric);
        found.unwrap_or_else(|| panic!("{metric} of {scope}"))
    };
    assert_eq!(of("class/interactive", "slo_attainment").value, Some(0.0));
    assert_eq!(of("class/batch", "slo_attainment").value, Some(1.0));
    let (interactive, batch) = (of("class/interactive", "slo_attainment").n, of("class/batch", "slo_attainment").n);
    assert_eq!(of("cluster", "slo_attainment").n, interactive + batch, "requests without an objective are not judged");
    assert!(interactive + batch < 300);
    let window = result.frame.window_end_s - result.frame.window_start_s;
    let goodput = of("cluster", "goodput").value.unwrap();
    assert!((goodput - batch as f64 / window).abs() < 1e-9);
    let per_million = 3.6 / 3600.0 / of("cluster", "output_throughput").value.unwrap() * 1e6;
    assert!((of("cluster", "cost_per_million_output_tokens").value.unwrap() - per_million).abs() < 1e-9);
    let (input, total) = (of("cluster", "cost_per_million_input_tokens"), of("cluster", "cost_per_million_tokens"));
    assert!(total.value < input.value, "each divides the whole cost");
}

#[test]
fn a_result_says_which_rule_ended_the_run() {
    let bench = Bench::new("ended_by", CHAT);
    let ended = |stop: &str| bench.result(&["--set", &format!("frame.stop={stop}")])["frame"]["stop"].as_str().unwrap().to_owned();
    assert_eq!(ended("{requests: 20, horizon_s: 1000}"), "20 requests");
    assert_eq!(ended("{requests: 20000, horizon_s: 2}"), "2 s");
    assert_eq!(ended("{horizon_s: 2.5}"), "2.5 s");
    let phases = "workload.clients[chat].arrival={process: phases, phases: [{duration_s: 1, arrival: {process: constant, rate: 5}}]}";
    for stop in ["{}", "{requests: 20}", "{horizon_s: 100}"] {
        let result = bench.result(&["--set", phases, "--set", &format!("frame.stop={stop}")]);
        assert_eq!(result["frame"]["stop"], "the workload's end", "{stop}");
    }
}

#[test]
fn how_unequally_experts_are_picked_is_stated_priced_and_told() {
    let mixture = CHAT.replace("llama-3.1-8b-instruct", "gpt-oss-20b").replace("meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-20b");
    let bench = Bench::new("expert_routing", &mixture);
    let of = |edits: &[&str]| {
        let result: RunResult = serde_json::from_value(bench.result(edits)).unwrap();
        let tpot = result.figures.iter().find(|figure| figure.metric == "tpot").unwrap().value.unwrap();
        (result.frame.expert_routing.unwrap().exponent, tpot)
    };
    let (assumed, alike, steep) = (of(&[]), of(&["--set", "expert_routing={exponent: 0}"]), of(&["--set", "expert_routing={exponent: 2}"]));
    assert_eq!(assumed, of(&["--set", "expert_routing={exponent: 0.75}"]));
    assert_eq!((alike.0, steep.0), (0.0, 2.0));
    assert!(steep.1 < assumed.1 && assumed.1 < alike.1, "fewer experts read: {steep:?} {assumed:?} {alike:?}");
    for (edit, told) in [("{exponent: 2}", "picked in proportion to r^-2\n"), ("{exponent: 0}", "each is picked as often as any other")] {
        for command in ["run", "explain"] {
            let output = bench.blis(&[command, "scenario.yaml", "--set", &format!("expert_routing={edit}")]);
            assert!(show(&output).contains(told), "{}", show(&output));
        }
    }
    let plain = Bench::new("no_experts", CHAT);
    let output = plain.blis(&["run", "scenario.yaml", "--set", "expert_routing={exponent: 2}"]);
    let text = show(&output);
    assert!(text.contains("expert_routing has no effect: the model has no experts") && !text.contains("picked"), "{text}");
}

#[test]
fn a_condition_may_name_a_class_and_is_refused_where_the_scenario_cannot_answer_it() {
    let bench = Bench::new("class_conditions", &classes());
    let run = |condition: &str| bench.blis(&["run", "scenario.yaml", "--fail-if", condition]);
    assert_eq!(run("slo_attainment[batch].mean<99%").status.code(), Some(0));
    assert_eq!(run("slo_attainment[interactive].mean<99%").status.code(), Some(3));
    for (condition, message) in [
        ("slo_attainment[bach].mean<99%", "the scenario has no objective for class `bach`; did you mean `batch`?"),
        ("ttft[batch].p99>1s", "ttft is not given by service class; leave `[batch]` out"),
    ] {
        let output = run(condition);
        assert_eq!(output.status.code(), Some(2));
        assert!(show(&output).contains(message), "{}", show(&output));
    }
    let plain = Bench::new("no_objectives", CHAT);
    let output = plain.blis(&["run", "scenario.yaml", "--fail-if", "cost_per_million_tokens.mean>1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(show(&output).contains("a run gives cost_per_million_tokens only where its scenario states `cost`"), "{}", show(&output));
}

/// The sampler of one chip, at a thousand times its price.
const SLOW_SAMPLER: &str = "\
kind: CoefficientSet
chip: h100
family: sampling
script: fitting/sampling.py
entries:
  - name: sampler
    primitive: sampling
    method: assumed
    form: sampling
    coefficients:
      floor: {value: 20000, unit: us, interval: [10, 40000]}
      bytes_per_logit: {value: 14, unit: bytes, interval: [10, 34]}
      memory_efficiency: {value: 0.7, unit: ratio, interval: [0.5, 0.9]}
    range: {}
    boundary: {clock: device, launch: graph}
    reason: \"an overlay of a test\"
";

#[test]
fn an_overlay_changes_what_it_names_and_stands_in_the_result() {
    let bench = Bench::new("overlays", CHAT);
    bench.write("slow/h100/sampling.yaml", SLOW_SAMPLER.as_bytes());
    let (plain, slow) = (bench.result(&[]), bench.result(&["--registry-overlay", "slow"]));
    assert!(plain["inputs"].get("overlays_sha256").is_none());
    assert_eq!(slow["inputs"]["overlays_sha256"].as_array().unwrap().len(), 1);
    assert_eq!(slow["inputs"]["data"], "experimental");
    assert_ne!(plain["inputs"]["registry_sha256"], slow["inputs"]["registry_sha256"]);
    let sampling = |result: &serde_json::Value| result["prices"]["by_primitive"]["sampling"].as_f64().unwrap();
    assert!(sampling(&slow) > 0.5 && sampling(&plain) < 0.1, "{} {}", sampling(&slow), sampling(&plain));

    bench.write("broken/h100/sampling.yaml", SLOW_SAMPLER.replace("value: 20000", "value: -1").as_bytes());
    let output = bench.blis(&["run", "scenario.yaml", "--registry-overlay", "broken"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(show(&output).contains("broken/h100/sampling.yaml"), "{}", show(&output));

    let model = format!("{ROOT}/catalog/models/qwen3-8b/graph.yaml");
    let renamed = std::fs::read_to_string(model).unwrap().replace("Qwen/Qwen3-8B", "me/Mine").replace("qwen3-8b", "mine");
    bench.write("mine/models/mine/graph.yaml", renamed.as_bytes());
    let run = ["--catalog-overlay", "mine", "--set", "model=mine", "--set", "pools[serve].command=\"vllm serve me/Mine\""];
    assert_eq!(bench.result(&run)["inputs"]["overlays_sha256"].as_array().unwrap().len(), 1);
}
