//! Predictions of small sweeps, refusals, and the order of the answer.

use super::*;
use crate::prediction::Grade;
use crate::unit::parse_units;

/// A sweep of gpt-oss-20b small enough for a test, with `$CONC` in its launch line.
const SWEEP: &str = r#"{"scenario":"small","label":"64i32o","framework":"vllm","gpu":"h100","precision":"fp4","parallel":{"tp":1},"run_date":"2026-05-30","concurrency":[1,4,2],"launch":{"script":"x","image":"vllm/vllm-openai:v0.22.0","server_command":"vllm serve openai/gpt-oss-20b --max-num-seqs $CONC --max-num-batched-tokens 8192 FLAGS","args":{},"env":{},"client":{"num_prompts":"$CONC*10","isl":64,"osl":32,"range_ratio":0.8,"seed":0,"warmups":"2*$CONC requests before timing"},"notes":""}}"#;

fn sweep(edits: &[(&str, &str)]) -> Vec<Unit> {
    let text = edits.iter().fold(SWEEP.to_owned(), |text, (from, to)| text.replace(from, to)).replace("FLAGS", "");
    parse_units("units", &text).unwrap()
}

fn predicted(units: &[Unit]) -> Vec<Prediction> {
    predict(units, 2, &|_| {})
}

#[test]
fn each_point_is_answered_in_the_order_of_the_units_whatever_the_jobs() {
    let units = sweep(&[]);
    let answers = predicted(&units);
    assert_eq!(answers.iter().map(|answer| answer.concurrency).collect::<Vec<_>>(), [1, 4, 2]);
    assert_eq!(answers, predict(&units, 1, &|_| {}));
    for answer in &answers {
        assert_eq!((answer.refused.as_ref(), answer.grade), (None, Grade::G4), "{answer:?}");
        let (ttft, tpot) = (answer.mean_ttft_us.unwrap(), answer.mean_tpot_us.unwrap());
        assert!(tpot > 100.0 && ttft > tpot, "{answer:?}");
    }
    let tpot = |concurrency| answers.iter().find(|answer| answer.concurrency == concurrency).and_then(|answer| answer.mean_tpot_us);
    assert!(tpot(1) < tpot(4));
}

#[test]
fn a_point_that_cannot_run_is_a_line_with_its_reason_and_no_figure() {
    for (edits, reason) in [
        (&[("\"vllm\"", "\"sglang\"")][..], "engine `sglang` is not modelled"),
        (&[("v0.22.0", "nightly-93d8f834")], "names no release"),
        (&[("openai/gpt-oss-20b", "nobody/nothing")], "model `nobody/nothing` is not in the catalog"),
        (&[("FLAGS", "--pipeline-parallel-size 2")], "pipeline"),
        (&[("\"h100\"", "\"h1000\"")], "no chip `h1000`"),
    ] {
        let [answer, ..] = &predicted(&sweep(edits))[..] else { panic!("three points") };
        let refused = answer.refused.as_deref().unwrap_or("nothing");
        assert!(refused.contains(reason), "{refused}");
        assert_eq!((answer.grade, answer.mean_ttft_us, answer.kv_tokens), (Grade::G5, None, None));
    }
}

#[test]
fn a_warm_up_changes_a_run_only_where_prefixes_are_cached() {
    let run = |flags: &str, warmups: &str| predicted(&sweep(&[("FLAGS", flags), ("2*$CONC requests before timing", warmups)]));
    let without = "--no-enable-prefix-caching";
    assert_eq!(run(without, "2*$CONC requests before timing"), run(without, "none"));
    let cached = run("", "2*$CONC requests before timing");
    assert_ne!(cached, run("", "none"), "the first request's prompt is cached by its copies");
}
