//! Scenarios that read well and ask for what cannot be: each is one clear error with its place, and exit code 2.

use crate::harness::{Bench, CHAT, check};

const LINE: &str = "--max-model-len 4096";

#[test]
fn an_unknown_model_gets_the_nearest() {
    check("unknown_model", &[("model: llama-3.1-8b-instruct", "model: llama-3.1-8b-instrct")], &[]);
    check("unlike_any_model", &[("model: llama-3.1-8b-instruct", "model: my-own")], &[]);
}

#[test]
fn an_unknown_chip_gets_the_nearest() {
    check("unknown_chip", &[("hardware: h100", "hardware: h101")], &[]);
}

#[test]
fn an_unknown_engine_or_release_is_named() {
    check("unknown_engine", &[("kind: vllm", "kind: vlm")], &[]);
    check("other_release", &[("{kind: vllm}", "{kind: vllm, version: \"0.9.0\"}")], &[]);
}

#[test]
fn an_unknown_flag_gets_the_nearest_and_its_own_marker() {
    check("unknown_flag", &[(LINE, "--max-model-len 4096 --max-num-sqes 64")], &[]);
}

#[test]
fn an_unknown_flag_value_gets_the_nearest() {
    check("unknown_flag_value", &[(LINE, "--dtype flaot16")], &[]);
    check("text_for_flag_number", &[(LINE, "--max-num-seqs many")], &[]);
}

#[test]
fn a_setting_that_is_not_modelled_is_refused_by_its_name() {
    check("not_modelled", &[(LINE, "--enable-lora")], &[]);
}

#[test]
fn heads_do_not_divide_by_three() {
    check("three_ranks", &[(LINE, "--tensor-parallel-size 3")], &[]);
}

#[test]
fn the_launch_line_serves_the_model_of_the_scenario() {
    check("two_models", &[("model: llama-3.1-8b-instruct", "model: qwen3-8b")], &[]);
}

#[test]
fn a_model_that_does_not_fit_is_refused_with_the_arithmetic() {
    check(
        "does_not_fit",
        &[("model: llama-3.1-8b-instruct", "model: llama-3.1-70b-instruct"), ("Llama-3.1-8B-Instruct", "Llama-3.1-70B-Instruct")],
        &[],
    );
}

#[test]
fn a_kv_cache_for_less_than_one_request_is_refused_with_the_arithmetic() {
    check("kv_below_one_request", &[(LINE, "--max-model-len 4096 --num-gpu-blocks-override 100")], &[]);
    check("kv_nothing_left", &[(LINE, "--max-model-len 4096 --gpu-memory-utilization 0.2")], &[]);
}

#[test]
fn fewer_blocks_for_states_than_requests_is_refused_before_graphs_are_captured() {
    check(
        "too_few_states",
        &[
            ("model: llama-3.1-8b-instruct", "model: qwen3.5-35b-a3b"),
            (
                "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 4096",
                "vllm serve Qwen/Qwen3.5-35B-A3B --tensor-parallel-size 2 --num-gpu-blocks-override 600",
            ),
        ],
        &[],
    );
}

#[test]
fn a_horizon_before_the_first_arrival_is_refused() {
    check("horizon_before_arrival", &[("requests: 100", "horizon_s: 0.001")], &[]);
}

#[test]
fn wrong_arguments_are_refused_before_anything_runs() {
    check("condition_unknown_metric", &[], &["--fail-if", "tftt.p99>500ms"]);
    check("condition_without_unit", &[], &["--fail-if", "ttft.p99>500"]);
    check("requests_unknown_format", &[], &["--requests", "requests.txt"]);
    check("requests_no_folder", &[], &["--requests", "no/such/folder/requests.csv"]);
    check("unknown_argument", &[], &["--formt", "json"]);
    check("catalog_no_folder", &[], &["--catalog", "no/such/folder"]);
}

#[test]
fn validate_tells_everything_at_once_and_a_run_the_first_of_it() {
    let edits = [
        "cluster.hardware=h101",
        "model=llama-3.1-8b-instrct",
        "pools[serve].command=\"vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-sqes 64\"",
        "workload={trace: nowhere.yaml}",
    ];
    let bench = Bench::new("everything_at_once", CHAT);
    let edits: Vec<&str> = edits.iter().flat_map(|edit| ["--set", edit]).collect();
    let output = bench.blis(&[&["validate", "scenario.yaml"], edits.as_slice()].concat());
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    let parts = ["no chip `h101`", "no model `llama-3.1-8b-instrct`", "--max-num-sqes", "nowhere.yaml"];
    let places: Vec<_> = parts.iter().map(|part| told.find(part)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{told}");
    let one = bench.blis(&[&["run", "scenario.yaml"], &edits[..6]].concat());
    assert_eq!(String::from_utf8(one.stderr).unwrap().matches("error").count(), 1);
}
