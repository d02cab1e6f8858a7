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

/// What a run of the edited scenario warns of, in the JSON and, wrapped, in the table alike.
fn warnings(test: &str, edits: &[(&str, &str)]) -> Vec<String> {
    let scenario = edits.iter().fold(CHAT.to_owned(), |text, (from, to)| text.replace(from, to));
    let bench = Bench::new(test, &scenario);
    let warnings: Vec<String> = serde_json::from_value(bench.result(&[])["warnings"].clone()).unwrap();
    let table = String::from_utf8(bench.blis(&["run", "scenario.yaml"]).stdout).unwrap();
    let table = table.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(warnings.iter().all(|warning| table.contains(&format!("warning {warning}"))), "{table}");
    warnings
}

#[test]
fn requests_that_get_no_answer_are_warned_of_whoever_gave_them_up() {
    assert_eq!(warnings("nobody_gives_up", &[]), [""; 0]);
    let impatient = warnings("impatient", &[("rate: 8.0}", "rate: 8.0}\n      timeout_s: 0.2")]);
    assert!(
        impatient[0].contains("of the 100 requests sent got no whole answer (") && impatient[0].contains(" timed out);"),
        "{impatient:?}"
    );
    let busy = warnings("turned_away", &[("--max-model-len 4096", "--max-num-queued-reqs 2")]);
    assert!(busy[0].contains("of the 100 requests sent got no whole answer (") && busy[0].contains(" refused);"), "{busy:?}");
}

#[test]
fn answers_that_the_longest_request_cuts_off_are_counted() {
    let cut = |test: &str, limit: &str| {
        let edits = [
            ("--max-model-len 4096", "--max-model-len 1000"),
            ("{distribution: uniform, min: 100, max: 900}", "{distribution: constant, value: 900}"),
            ("{distribution: uniform, min: 10, max: 90}", limit),
        ];
        warnings(test, &edits)
    };
    let longer = cut("outputs_cut", "{distribution: constant, value: 130}");
    assert_eq!(
        longer,
        [
            "100 of the answers ended at max_model_len (1000), 3000 tokens before what their requests asked for in all; raise it, or ask for less"
        ]
    );
    // The client's own limit is what it asked for.
    assert_eq!(cut("outputs_limited", "{distribution: constant, value: 130}\n      max_tokens: 100"), [""; 0]);
    assert_eq!(cut("outputs_fit", "{distribution: constant, value: 100}"), [""; 0]);
}

#[test]
fn a_thousand_engine_cores_with_a_request_each_end() {
    let scenario = CHAT
        .replace("hardware: h100, nodes: 1", "hardware: h100, nodes: 128, fabric: infiniband-ndr-400")
        .replace("--max-model-len 4096", "--max-model-len 4096 --data-parallel-size 1024 --nnodes 128")
        .replace("rate: 8.0", "rate: 4096.0")
        .replace("requests: 100", "requests: 1024");
    let result = Bench::new("thousand_cores", &scenario).result(&[]);
    assert_eq!((&result["fates"]["completed"], &result["kv"]["serve"]["cores"]), (&1024.into(), &1024.into()));
}
