//! Runs at the edge: they end, and say what became of every request.

use serde_json::Value;

use crate::harness::{Bench, CHAT};

fn figure<'a>(result: &'a Value, metric: &str, statistic: &str) -> &'a Value {
    let figures = result["figures"].as_array().unwrap();
    figures.iter().find(|figure| figure["metric"] == metric && figure["statistic"] == statistic).unwrap()
}

#[test]
fn a_prompt_beyond_the_longest_request_is_refused_and_the_rest_go_on() {
    let bench = Bench::new("long_prompts", &CHAT.replace("--max-model-len 4096", "--max-model-len 512"));
    let result = bench.result(&[]);
    let fates = &result["fates"];
    let (completed, refused) = (fates["completed"].as_u64().unwrap(), fates["refused"].as_u64().unwrap());
    assert!(completed > 10 && refused > 10, "{fates}");
    assert_eq!(completed + refused, 100);
    assert!(result["refusals"].as_object().unwrap().keys().all(|reason| reason.contains("max_model_len")), "{}", result["refusals"]);
    assert_eq!(figure(&result, "ttft", "p50")["n"], completed);
}

#[test]
fn figures_without_a_sample_are_null_and_not_zero() {
    let scenario = CHAT.replace("{distribution: uniform, min: 100, max: 900}", "{distribution: constant, value: 5000}");
    let bench = Bench::new("nothing_but_refusals", &scenario);
    let result = bench.result(&[]);
    assert_eq!(result["fates"]["refused"], 100);
    for (metric, statistic) in [("ttft", "mean"), ("tpot", "p99"), ("itl", "max"), ("e2el", "p50"), ("output_throughput", "rate")] {
        assert_eq!(figure(&result, metric, statistic)["value"], Value::Null, "{metric}");
    }
    let condition = bench.blis(&["run", "scenario.yaml", "--fail-if", "ttft.p99>500ms"]);
    assert_eq!(condition.status.code(), Some(3));
    let told = String::from_utf8(condition.stderr).unwrap();
    assert_eq!(told, "--fail-if `ttft.p99>500ms` cannot be judged: ttft.p99 has no value, because no request has a sample\n");
}

#[test]
fn a_pool_of_125_blocks_under_ten_times_its_load_ends() {
    let scenario = CHAT
        .replace("--max-model-len 4096", "--max-model-len 1900 --num-gpu-blocks-override 125")
        .replace("rate: 8.0", "rate: 400.0")
        .replace("max: 90}", "max: 900}");
    let bench = Bench::new("tiny_pool", &scenario);
    let result = bench.result(&[]);
    assert_eq!(result["fates"]["completed"], 100, "{}", result["fates"]);
    assert!(result["kv"]["serve"]["preemptions"].as_u64().unwrap() > 0);
    assert_eq!(result["binds"]["limit"], "kv_blocks");
}

#[test]
fn unfinished_requests_take_the_percentiles_they_could_move() {
    let bench = Bench::new("horizon", &CHAT.replace("requests: 100", "horizon_s: 5").replace("max: 90}", "max: 900}"));
    let result = bench.result(&[]);
    let fates = result["fates"].as_object().unwrap();
    assert!(fates["in_flight_at_horizon"].as_u64().unwrap() > 0, "{fates:?}");
    assert_eq!(figure(&result, "e2el", "max")["value"], Value::Null);
    assert!(figure(&result, "e2el", "max")["unfinished"].as_u64().unwrap() > 0);
}
