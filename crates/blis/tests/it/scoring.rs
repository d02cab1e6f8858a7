//! Comparing, listing units and building the page, on one made-up deployment.

use crate::harness::{Bench, CHAT, show};

/// A sweep of two points of a model that is in no catalog.
pub(crate) const SWEEP: &str = concat!(
    r#"{"scenario":"toy-1b-h100-bf16-vllm-tp1.yaml","label":"1k1k","framework":"vllm","gpu":"h100","precision":"bf16","#,
    r#""parallel":{"tp":1,"pp":1,"adp":1,"mtp":1,"mep":1},"run_date":"2026-01-02","concurrency":[1,4],"launch":{"script":"a.sh@12345678","#,
    r#""image":"example/vllm:v0.9.0","server_command":"vllm serve toy/Toy-1B","args":{},"env":{},"notes":"","client":{"isl":1024,"osl":1024,"#,
    r#""range_ratio":0.8,"seed":0,"num_prompts":"$CONC*10","max_concurrency":"$CONC","request_rate":"inf","ignore_eos":true,"warmups":"none"}}}"#,
    "\n"
);
/// Its measurements.
pub(crate) const MEASURED: &str = concat!(
    r#"{"scenario":"toy-1b-h100-bf16-vllm-tp1.yaml","label":"1k1k","framework":"vllm","mean_tpot_us":{"1":5000,"4":6000},"#,
    r#""mean_ttft_us":{"1":40000,"4":50000}}"#,
    "\n"
);

/// A folder with units, measurements and the program's own predictions.
fn bench(test: &str) -> Bench {
    let bench = Bench::new(test, CHAT);
    bench.write("units.jsonl", SWEEP.as_bytes());
    bench.write("measured.jsonl", MEASURED.as_bytes());
    let output = bench.blis(&["score", "predict", "--units", "units.jsonl", "--out", "predictions.jsonl"]);
    assert!(output.status.success(), "{}", show(&output));
    bench
}

const COMPARE: [&str; 7] = ["score", "compare", "predictions.jsonl", "--measured", "measured.jsonl", "--units", "units.jsonl"];

#[test]
fn what_is_predicted_can_be_compared_and_shown() {
    let bench = bench("compare_and_show");
    let output = bench.blis(&[&COMPARE[..], &["--out", "summary.json"]].concat());
    assert!(output.status.success(), "{}", show(&output));
    let summary: serde_json::Value = serde_json::from_str(&bench.read("summary.json")).unwrap();
    assert_eq!((&summary["counts"]["points"], &summary["counts"]["refused"]), (&2.into(), &2.into()));
    assert_eq!((&summary["backlog"][0]["kind"], &summary["backlog"][0]["code"]), (&"refused".into(), &"not_in_catalog".into()));
    let output = bench.blis(&["dashboard", "build", "summary.json", "--out", "site"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "site/index.html\n", "{}", show(&output));
    assert!(bench.read("site/index.html").contains("toy-1b"));
    assert_eq!(bench.read("site/summary.json"), bench.read("summary.json"));
}

#[test]
fn predictions_never_overwrite_their_units() {
    let bench = bench("predict_over_units");
    let output = bench.blis(&["score", "predict", "--units", "units.jsonl", "--out", "./units.jsonl"]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.starts_with("error: --out ./units.jsonl: cannot be written: the command reads it; name another file"), "{message}");
    assert_eq!(bench.read("units.jsonl"), SWEEP);
}

#[test]
fn a_file_cut_short_is_refused_by_its_line_and_leaves_nothing() {
    let bench = bench("compare_cut");
    let whole = bench.read("predictions.jsonl");
    bench.write("predictions.jsonl", &whole.as_bytes()[..whole.len() - 30]);
    let before = bench.files();
    let output = bench.blis(&[&COMPARE[..], &["--out", "summary.json"]].concat());
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("predictions.jsonl:2: the last line is cut short"), "{message}");
    assert_eq!(bench.files(), before);
}

#[test]
fn the_ledger_lists_units_and_published_roles_only() {
    let bench = bench("ledger");
    let ingest = ["ledger", "ingest", "units.jsonl", "--source", "made-up", "--report", "report.json", "--out", "list.jsonl", "--revision"];
    let refused = bench.blis(&[&ingest[..], &["latest"]].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", show(&refused));
    let output = bench.blis(&[&ingest[..], &["2026-01-02"]].concat());
    assert!(output.status.success(), "{}", show(&output));
    let lists = |role: &str| {
        let line = format!("{{\"scenario\":\"toy-1b-h100-bf16-vllm-tp1.yaml\",\"label\":\"1k1k\",\"role\":\"{role}\"}}\n");
        bench.write("roles.jsonl", line.as_bytes());
        let output = bench.blis(&["ledger", "lists", "list.jsonl", "--roles", "roles.jsonl"]);
        let lists: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        ["fit", "anchor", "report"].map(|role| lists[role].as_array().unwrap().len())
    };
    assert_eq!(lists("fit"), [2, 0, 0]);
    assert_eq!(lists("held"), [0, 0, 0]);
}
