//! Files that are not what they should be: one complaint each, with its line.

use blis_score::Input;
use blis_score::compare::{Inputs, compare};
use serde_json::{Value, json};

use crate::fixture::{file, measured, peers, predictions, text, units};

/// The complaint about a set of files in which one was changed.
fn complaint(which: &str, change: impl Fn(&mut Vec<Value>)) -> String {
    complaint_text(which, change, |text| text)
}

fn complaint_text(which: &str, change: impl Fn(&mut Vec<Value>), spoil: impl Fn(String) -> String) -> String {
    let input = |name: &str, mut lines: Vec<Value>| {
        if name == which {
            change(&mut lines);
            return Input::of(name, spoil(text(&lines)));
        }
        file(name, &lines)
    };
    let (p, m, u, e) =
        (input("predictions", predictions(|_, _| 1.0)), input("measured", measured()), input("units", units()), input("peers", peers()));
    compare(&Inputs { predictions: &p, measured: &m, units: Some(&u), peers: Some(&e), base: None }).unwrap_err().to_string()
}

fn check(which: &str, change: impl Fn(&mut Vec<Value>), expect: &str) {
    let found = complaint(which, change);
    assert!(found.contains(expect), "{found}\n  does not say\n{expect}");
}

#[test]
fn units_stated_twice_or_with_fields_nobody_knows_are_refused() {
    check("units", |lines| lines.push(lines[1].clone()), "units:13: alpha-7b-h100-fp8-vllm-tp2.yaml 8k1k stands on an earlier line too");
    check("units", |lines| lines[2]["gpus"] = json!(1), "units:3: not a sweep as its source records it: unknown field `gpus`");
    check("units", |lines| lines[2]["launch"]["flags"] = json!(1), "units:3: not a sweep as its source records it: unknown field `flags`");
    check(
        "units",
        |lines| lines[0]["gpu"] = json!("h200"),
        "units:1: alpha-7b-h100-fp8-vllm-tp2.yaml 1k1k: scenario must read MODEL-h200-fp8-vllm-LAYOUT",
    );
    check(
        "units",
        |lines| lines[0]["concurrency"] = json!([2, 2]),
        "units:1: alpha-7b-h100-fp8-vllm-tp2.yaml 1k1k: concurrency lists 2; it must be above 0 and stand once",
    );
    check("units", |lines| lines[0]["parallel"]["tp"] = json!(0), "states a width of 0");
}

#[test]
fn measurements_that_are_none_are_refused() {
    check(
        "measured",
        |lines| lines[3]["mean_tpot_us"]["8"] = json!(0),
        "measured:4: mean_tpot_us at concurrency 8 is 0; a measured time is above 0",
    );
    check("measured", |lines| lines[3]["mean_ttft_us"]["8"] = json!(-1.5), "measured:4: mean_ttft_us at concurrency 8 is -1.5");
    check("measured", |lines| lines[3]["mean_ttft_us"]["8"] = json!(null), "measured:4: not a measured sweep: invalid type: null");
    let spoiled = complaint_text("measured", |_| {}, |text| text.replacen("5200.0", "NaN", 1));
    assert!(spoiled.starts_with("measured:1: `NaN` at column "), "{spoiled}");
    check("measured", |lines| lines.push(lines[0].clone()), "measured:13: alpha-7b-h100-fp8-vllm-tp2.yaml 1k1k stands on line 1 too");
    check(
        "measured",
        |lines| lines[0]["scenario"] = json!("alpha-7b-h100-fp8-vllm-tp4.yaml"),
        "the nearest is alpha-7b-h100-fp8-vllm-tp2.yaml 1k1k",
    );
    check("measured", |lines| lines[0]["mean_tpot_us"]["3"] = json!(1), "has no point at concurrency 3; its points are [2, 8, 32, 128]");
    check("measured", |lines| lines[0]["gpu_kv_tokens"]["all"] = json!(0), "measured:1: gpu_kv_tokens states a cache of 0 tokens");
}

#[test]
fn predictions_of_another_version_or_against_themselves_are_refused() {
    let version = format!("not a prediction as version {} writes it", env!("CARGO_PKG_VERSION"));
    check("predictions", |lines| lines[6]["schema"] = json!(2), &format!("predictions:7: {version}: unknown field `schema`"));
    let drop = |lines: &mut Vec<Value>| drop(lines[6].as_object_mut().unwrap().remove("p90_ttft_us"));
    check("predictions", drop, &format!("predictions:7: {version}: missing field `p90_ttft_us`"));
    check("predictions", |lines| lines[6]["grade"] = json!("G9"), "unknown variant `G9`");
    check("predictions", |lines| lines[6]["grade"] = json!("G5"), "predictions:7: grade G5 contradicts its reasons, which make it G4");
    let scored_none = |lines: &mut Vec<Value>| {
        lines[6]["grade"] = json!("G5");
        lines[6]["grade_reasons"][1]["code"] = json!("run_refused");
    };
    check("predictions", scored_none, "predictions:7: grade G5 contradicts the rest");
    check("predictions", |lines| lines[6]["grade_reasons"][1]["code"] = json!("bad_luck"), "unknown variant `bad_luck`");
    check("predictions", |lines| lines[6]["mean_tpot_us"] = json!(null), "predictions:7: grade G4 contradicts the rest");
    check("predictions", |lines| lines[6]["p50_tpot_us"] = json!(0.0), "predictions:7: a predicted time is 0");
    check(
        "predictions",
        |lines| lines.push(lines[4].clone()),
        "predictions:49: alpha-7b-h100-fp8-vllm-tp2.yaml 8k1k at concurrency 2 stands on line 5 too",
    );
    let cut = complaint_text("predictions", |_| {}, |text| text[..text.len() - 20].to_owned());
    assert_eq!(cut, "predictions:48: the last line is cut short: the file was not written to its end");
}

#[test]
fn estimators_that_answer_twice_or_with_no_time_are_refused() {
    check(
        "peers",
        |lines| lines[0]["points"][1] = lines[0]["points"][0].clone(),
        "peers:1: Peer answers alpha-7b-h100-fp8-vllm-tp2.yaml 1k1k at concurrency 2 twice",
    );
    check(
        "peers",
        |lines| lines[0]["points"][1][2] = json!(0),
        "peers:1: Peer answers concurrency 8 with 0; a time is above 0, and none is null",
    );
    check("peers", |lines| lines[5]["points"][1] = json!([8, "Peer"]), "peers:6: not an estimator's answers to a sweep: invalid length 2");
}
