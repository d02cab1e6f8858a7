//! Traces on the command line: recording, replaying, converting and composing them, and what of them is refused.

use serde_json::Value;

use crate::harness::{Bench, CHAT, show};

const MOONCAKE: &str = "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 9, \"hash_ids\": [0, 1, 57]}\n\
{\"timestamp\": 30, \"input_length\": 1024, \"output_length\": 5, \"hash_ids\": [0, 1]}\n\
{\"timestamp\": 3000, \"input_length\": 600, \"output_length\": 20, \"hash_ids\": [0, 9]}\n";

fn json(bench: &Bench, arguments: &[&str]) -> Value {
    let output = bench.blis(&[arguments, &["--format", "json"]].concat());
    assert!(output.status.success(), "{}", show(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn without_inputs(mut result: Value) -> Value {
    result.as_object_mut().unwrap().remove("inputs");
    result
}

/// The exit code and what stderr says of a command that is refused.
fn refused(bench: &Bench, arguments: &[&str]) -> String {
    let output = bench.blis(arguments);
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_recorded_run_replays_to_the_same_result_outside_its_inputs() {
    let bench = Bench::new("record_and_replay", CHAT);
    let recorded = json(&bench, &["run", "scenario.yaml", "--trace-out", "t.yaml", "--requests", "one.csv"]);
    let replayed = json(&bench, &["replay", "scenario.yaml", "t.yaml", "--requests", "other.csv"]);
    assert_eq!(bench.files(), ["one.csv", "other.csv", "scenario.yaml", "t.csv", "t.yaml"]);
    assert!(recorded["inputs"].get("trace_sha256").is_none() && replayed["inputs"]["trace_sha256"].is_string());
    assert_eq!(without_inputs(recorded.clone()), without_inputs(replayed));
    assert_eq!(bench.read("one.csv"), bench.read("other.csv"));
    assert_eq!(bench.read("t.csv").lines().count(), 101);
    let named = CHAT.split("workload:").next().unwrap().to_owned() + "workload: {trace: t.yaml}\nframe: {start: empty, stop: {}}\n";
    bench.write("traces/scenario.yaml", named.replace("trace: t.yaml", "trace: ../t.yaml").as_bytes());
    let named = json(&bench, &["run", "traces/scenario.yaml"]);
    assert_eq!(named["fates"], recorded["fates"]);
    assert_eq!(named["figures"], recorded["figures"]);
}

#[test]
fn a_mooncake_trace_replays_and_its_blocks_meet_in_the_prefix_cache() {
    let bench = Bench::new("mooncake", &CHAT.replace("requests: 100", "horizon_s: 60"));
    bench.write("m.jsonl", MOONCAKE.as_bytes());
    let result = json(&bench, &["replay", "scenario.yaml", "m.jsonl", "--time-unit", "ms"]);
    assert_eq!((result["fates"]["completed"].as_u64(), result["tokens"]["prompt"].as_u64()), (Some(3), Some(2724)));
    assert!(result["tokens"]["prefix_hits"].as_u64().unwrap() >= 512, "{}", result["tokens"]);
    let seconds = json(&bench, &["replay", "scenario.yaml", "m.jsonl", "--time-unit", "s", "--set", "frame.stop.horizon_s=9000"]);
    assert_eq!(seconds["frame"]["window_end_s"].as_f64().map(f64::trunc), Some(3000.0));
}

#[test]
fn a_trace_that_does_not_say_what_it_is_is_refused() {
    let bench = Bench::new("untold", CHAT);
    bench.write("m.jsonl", MOONCAKE.as_bytes());
    bench.write("m.txt", MOONCAKE.as_bytes());
    bench.write("bad.jsonl", MOONCAKE.replace("[0, 1]", "[0]").as_bytes());
    bench.write("empty.jsonl", b"");
    bench.write("a.csv", b"\xef\xbb\xbfTIMESTAMP,ContextTokens,GeneratedTokens\n");
    assert!(refused(&bench, &["replay", "scenario.yaml", "m.jsonl"]).contains("the unit of `timestamp` is not stated"));
    assert!(refused(&bench, &["replay", "scenario.yaml", "m.txt"]).contains("state one of blis, mooncake, azure, burstgpt"));
    assert!(
        refused(&bench, &["replay", "scenario.yaml", "a.csv", "--trace-format", "azure"])
            .contains("a.csv:1: starts with a byte order mark")
    );
    let replay = |name| refused(&bench, &["replay", "scenario.yaml", name, "--time-unit", "ms"]);
    assert!(replay("bad.jsonl").contains("bad.jsonl:2: hash_ids: has 1 hashes; a prompt of 1024 tokens in blocks of 512 has 2"));
    assert!(replay("empty.jsonl").contains("has no request"));
    assert!(replay("none.jsonl").contains("cannot be read"));
    assert!(refused(&bench, &["run", "scenario.yaml", "--trace-out", "t.csv"]).contains("name the header, which ends in .yaml"));
    assert_eq!(bench.files(), ["a.csv", "bad.jsonl", "empty.jsonl", "m.jsonl", "m.txt", "scenario.yaml"]);
}

#[test]
fn a_converted_trace_is_checked_against_its_source() {
    let bench = Bench::new("convert", CHAT);
    bench.write("m.jsonl", MOONCAKE.as_bytes());
    let output = bench.blis(&["convert", "m.jsonl", "b.yaml", "--time-unit", "ms"]);
    assert!(output.status.success(), "{}", show(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("b.yaml: 3 requests; the same workload as the source\n") && text.contains("prompt tokens"), "{text}");
    assert!(bench.blis(&["convert", "b.yaml", "again.jsonl"]).status.success());
    let replay = |name, extra: &[&str]| json(&bench, &[&["replay", "scenario.yaml", name, "--set", "frame.stop={}"], extra].concat());
    assert_eq!(replay("m.jsonl", &["--time-unit", "ms"])["figures"], replay("b.yaml", &[])["figures"]);
    assert_eq!(replay("m.jsonl", &["--time-unit", "ms"])["tokens"], replay("again.jsonl", &["--time-unit", "ms"])["tokens"]);
    let wide = bench.blis(&["convert", "b.yaml", "blocks.jsonl", "--to-block-tokens", "16"]);
    assert!(wide.status.success(), "{}", show(&wide));
    let of_sixteen = replay("blocks.jsonl", &["--time-unit", "ms", "--block-tokens", "16"]);
    assert_eq!(of_sixteen["figures"], replay("b.yaml", &[])["figures"]);
    assert!(refused(&bench, &["convert", "b.yaml", "c.yaml", "--to-block-tokens", "16"]).contains("only a Mooncake file has blocks"));
    let told = refused(&bench, &["convert", "b.yaml", "a.csv", "--to-format", "azure"]);
    assert!(told.contains("request 0: shares text with others, which Azure's format cannot say"), "{told}");
    assert!(!bench.files().contains(&"a.csv".to_owned()));
}

#[test]
fn a_trace_of_another_model_is_replayed_with_a_note() {
    let bench = Bench::new("other_model", CHAT);
    json(&bench, &["run", "scenario.yaml", "--trace-out", "t.yaml"]);
    let replay = || show(&bench.blis(&["replay", "scenario.yaml", "t.yaml"]));
    let told = "note: the trace's requests were of qwen3-8b; this run serves llama-3.1-8b-instruct, and takes their lengths as they are\n";
    assert!(!replay().contains("note:"));
    let table = bench.read("t.csv");
    bench.write("t.csv", table.replace(",llama-3.1-8b-instruct,", ",meta-llama/Llama-3.1-8B-Instruct,").as_bytes());
    assert!(!replay().contains("note:"), "a checkpoint of the same model");
    bench.write("t.csv", table.replace(",llama-3.1-8b-instruct,", ",qwen3-8b,").as_bytes());
    assert!(replay().contains(told), "{}", replay());
}

#[test]
fn no_output_replaces_what_the_command_reads_or_another_output() {
    let bench = Bench::new("taken", CHAT);
    bench.write("m.jsonl", MOONCAKE.as_bytes());
    bench.write("report.json", json(&bench, &["run", "scenario.yaml", "--trace-out", "t.yaml"]).to_string().as_bytes());
    for (name, text) in [("mine/hardware/h100.yaml", include_str!("../../../../catalog/hardware/h100.yaml")), ("units.jsonl", "")] {
        bench.write(name, text.as_bytes());
    }
    let files = ["scenario.yaml", "m.jsonl", "t.yaml", "t.csv", "report.json", "mine/hardware/h100.yaml", "units.jsonl"];
    let before = files.map(|name| bench.read(name));
    let replay = ["replay", "scenario.yaml", "m.jsonl", "--time-unit", "ms", "--set", "frame.stop={}"];
    for (arguments, told) in [
        (
            &["run", "scenario.yaml", "--trace-out", "./scenario.yaml"][..],
            "--trace-out ./scenario.yaml: cannot be written: the command reads it",
        ),
        (&[&replay[..], &["--requests", "m.jsonl"]].concat(), "--requests m.jsonl: cannot be written: the command reads it"),
        (&["replay", "scenario.yaml", "t.yaml", "--requests", "t.csv"], "--requests t.csv: cannot be written: the command reads it"),
        (&["run", "scenario.yaml", "--requests", "a.csv", "--trace-out", "a.yaml"], "--requests a.csv: cannot be written: another output"),
        (&["convert", "t.yaml", "t.yaml"], "t.yaml: cannot be written: the command reads it"),
        (&["convert", "t.yaml", "t.csv", "--to-format", "azure"], "t.csv: cannot be written: the command reads it"),
        (&["compose", "t.yaml", "--out", "t.yaml"], "t.yaml: cannot be written: the command reads it"),
        (&["report", "report.json", "--out", "report.json"], "report.json: cannot be written: the command reads it"),
        (
            &["run", "scenario.yaml", "--catalog-overlay", "mine", "--trace-out", "mine/hardware/h100.yaml"],
            "--trace-out mine/hardware/h100.yaml: cannot be written: the command reads the folder above it",
        ),
        (
            &["score", "predict", "--units", "units.jsonl", "--out", "mine/hardware/h100.yaml", "--catalog-overlay", "mine"],
            "mine: cannot be read: an output of the command goes below it",
        ),
        (&["convert", "t.yaml", "none/u.yaml"], "none/u.yaml: cannot be written: No such file"),
    ] {
        let text = refused(&bench, arguments);
        assert!(text.contains(told), "{arguments:?}: {text}");
    }
    assert_eq!(files.map(|name| bench.read(name)), before);
    assert_eq!(bench.files().len(), files.len());
}

#[test]
fn an_objective_of_a_class_that_no_row_of_a_trace_has_is_refused() {
    let bench = Bench::new("trace_classes", &CHAT.replace("id: chat\n", "id: chat\n      slo_class: interactive\n"));
    let objective = |class: &str| format!("objectives={{{class}: {{ttft_ms: 10000}}}}");
    json(&bench, &["run", "scenario.yaml", "--set", &objective("interactive"), "--trace-out", "t.yaml"]);
    let plain = Bench::new("trace_classes_replayed", CHAT);
    for name in ["t.yaml", "t.csv"] {
        plain.write(name, bench.read(name).as_bytes());
    }
    let judged = json(&plain, &["replay", "scenario.yaml", "t.yaml", "--set", &objective("interactive")]);
    let attained = judged["figures"].as_array().unwrap().iter().find(|figure| figure["metric"] == "slo_attainment").unwrap();
    assert_eq!(attained["value"], 1.0);
    let told = "objectives.interactve: no request is of class `interactve`; the trace's classes are `interactive`";
    assert!(refused(&plain, &["replay", "scenario.yaml", "t.yaml", "--set", &objective("interactve")]).contains(told));
    plain.write("w.yaml", b"workload: {trace: t.yaml}\n");
    assert!(refused(&plain, &["validate", "scenario.yaml", "--workload", "w.yaml", "--set", &objective("interactve")]).contains(told));
}

#[test]
fn times_on_a_grid_are_told_of_and_spread_on_demand() {
    let bench = Bench::new("grid", CHAT);
    let line =
        |(id, at): (u32, u32)| format!("{{\"timestamp\": {at}, \"input_length\": 100, \"output_length\": 3, \"hash_ids\": [{id}]}}\n");
    bench.write("m.jsonl", (0..).zip([0, 0, 0, 0, 3000, 3000]).map(line).collect::<String>().as_bytes());
    let replay = ["replay", "scenario.yaml", "m.jsonl", "--time-unit", "ms", "--set", "frame.stop={}", "--requests", "r.csv"];
    let sent = || bench.read("r.csv").lines().skip(1).map(|line| line.split(',').nth(6).unwrap().to_owned()).collect::<Vec<_>>();
    let told = show(&bench.blis(&replay));
    assert!(told.contains("note: 6 of 6 requests are sent at an instant of others"), "{told}");
    assert_eq!(sent(), ["0", "0", "0", "0", "3000000", "3000000"]);
    let spread = show(&bench.blis(&[&replay[..], &["--spread-times"]].concat()));
    assert!(!spread.contains("note:"), "{spread}");
    assert_eq!(sent(), ["0", "750000", "1500000", "2250000", "3000000", "4500000"]);
    bench.write("w.yaml", b"workload: {trace: m.jsonl, time_unit: ms, spread_times: true}\n");
    let named = json(&bench, &["run", "scenario.yaml", "--workload", "w.yaml", "--set", "frame.stop={}"]);
    assert_eq!(named["figures"], json(&bench, &[&replay[..], &["--spread-times"]].concat())["figures"]);
    let converted = bench.blis(&["convert", "m.jsonl", "s.jsonl", "--time-unit", "ms", "--spread-times"]);
    assert!(converted.status.success() && bench.read("s.jsonl").contains("\"timestamp\":750"), "{}", show(&converted));
}

#[test]
fn a_trace_is_seen_from_the_file_that_names_it() {
    let bench = Bench::new("named_elsewhere", CHAT);
    bench.write("loads/m.jsonl", MOONCAKE.as_bytes());
    bench.write("loads/w.yaml", b"workload: {trace: m.jsonl, time_unit: ms}\n");
    let result = json(&bench, &["run", "scenario.yaml", "--workload", "loads/w.yaml", "--set", "frame.stop={}"]);
    assert_eq!(result["fates"]["completed"], 3);
}

#[test]
fn composed_traces_run_side_by_side() {
    let bench = Bench::new("compose", CHAT);
    bench.write("m.jsonl", MOONCAKE.as_bytes());
    json(&bench, &["run", "scenario.yaml", "--trace-out", "t.yaml"]);
    let output = bench.blis(&["compose", "t.yaml", "m.jsonl", "--time-unit", "ms", "--out", "both.yaml"]);
    assert_eq!(show(&output), "exit code: 0\n---- stdout\nboth.yaml: 103 requests of 2 clients\n---- stderr\n");
    let result = json(&bench, &["replay", "scenario.yaml", "both.yaml", "--set", "frame.stop={}"]);
    assert_eq!(result["fates"]["completed"], 103);
}

#[test]
fn a_tools_description_becomes_a_workload_that_runs() {
    let bench = Bench::new("tool", CHAT);
    let config = "data: {type: synthetic, input_distribution: {min: 10, max: 500, mean: 200, std_dev: 50}, output_distribution: {min: 5, max: 50, mean: 20, std_dev: 5}}\n\
        load: {type: constant, interval: 1, stages: [{rate: 2, duration: 5}, {rate: 4, duration: 5}]}\n";
    bench.write("perf.yaml", config.as_bytes());
    let output = bench.blis(&["convert", "perf.yaml", "w.yaml", "--tool", "inference-perf"]);
    assert!(output.status.success(), "{}", show(&output));
    let result = json(&bench, &["run", "scenario.yaml", "--workload", "w.yaml", "--set", "frame.stop={}"]);
    assert_eq!(result["fates"]["completed"], 10 + 20);
    bench.write("w.yaml", b"clients: []\n");
    assert!(refused(&bench, &["run", "scenario.yaml", "--workload", "w.yaml"]).contains("must have the one key `workload`"));
}

/// The engine starts only where its pool holds a sequence of `max_model_len`, so no prompt fits the one and not the other.
#[test]
fn a_prompt_that_the_pool_could_not_hold_is_refused_and_the_others_go_on() {
    let pairs = |longest: u32| format!("lengths: {{pairs: [[100, 5], [{longest}, 1], [50, 5]], order: listed}}");
    let lengths = "input: {distribution: uniform, min: 100, max: 900}\n      output: {distribution: uniform, min: 10, max: 90}";
    let scenario = |flags: &str, longest| {
        let text = CHAT.replace("--max-model-len 4096", flags).replace("requests: 100", "requests: 6");
        assert!(text.contains(lengths));
        text.replace(lengths, &pairs(longest))
    };
    let small = Bench::new("pool_too_small", &scenario("--max-model-len 4096 --num-gpu-blocks-override 40", 2000));
    assert!(refused(&small, &["run", "scenario.yaml"]).contains("the estimated maximum model length is 624"));
    let full = Bench::new("pool_filled", &scenario("--max-model-len 624 --num-gpu-blocks-override 40", 623));
    assert_eq!(json(&full, &["run", "scenario.yaml"])["fates"]["completed"], 6);
    let over = Bench::new("pool_exceeded", &scenario("--max-model-len 624 --num-gpu-blocks-override 40", 2000));
    let result = json(&over, &["run", "scenario.yaml"]);
    assert_eq!((&result["fates"]["completed"], &result["fates"]["refused"]), (&4.into(), &2.into()));
}
