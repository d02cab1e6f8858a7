//! Configurations that upstream's validation refuses are refused here too (`oracle/rejections.py`).
//!
//! The recording names the branch that refused each case, and the branches of upstream's configuration files that no case reaches.

use blis_vllm::trace::run;
use blis_vllm::trace::scenario::Scenario;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Everything recorded.
#[derive(Debug, Deserialize)]
struct Recording {
    model: String,
    gpu: String,
    cases: Vec<Case>,
    not_reached: Vec<String>,
}

/// One configuration.
#[derive(Debug, Deserialize)]
struct Case {
    args: Map<String, Value>,
    /// What upstream says, where it refuses.
    said: Option<String>,
    branches: Vec<String>,
}

const RECORDING: &str = include_str!("../../oracle/rejections.json");

/// A scenario of one short request with these arguments.
fn scenario(recording: &Recording, args: &Map<String, Value>) -> Scenario {
    let request = json!({"id": "a", "arrival_us": 0, "prompt": [{"unique": 4}], "max_tokens": 1});
    let document = json!({
        "name": "refused", "seed": 0, "engine_args": args, "gpu": recording.gpu, "model": recording.model,
        "step_time": {"base_us": 1, "per_token_us": 1}, "requests": [request],
    });
    Scenario::parse("refused", document.to_string().as_bytes()).expect("a document of JSON is one of YAML")
}

#[test]
fn what_upstream_refuses_is_refused() {
    let recording: Recording = serde_json::from_str(RECORDING).expect("the recording has the shape of the script that writes it");
    let refused: Vec<&Case> = recording.cases.iter().filter(|case| case.said.is_some()).collect();
    assert!(refused.len() >= 50, "only {} cases", refused.len());
    assert!(recording.cases.len() > refused.len(), "some are accepted, so that the recording could tell the two apart");
    let reached: std::collections::BTreeSet<_> = refused.iter().flat_map(|case| &case.branches).collect();
    assert!(reached.len() >= 12 && reached.iter().all(|branch| !recording.not_reached.contains(branch)), "{reached:?}");
    let accepted: Vec<String> = refused
        .iter()
        .filter(|case| run(&scenario(&recording, &case.args), &mut |_| ()).is_ok())
        .map(|case| format!("{}: upstream says {:?}", Value::Object(case.args.clone()), case.said))
        .collect();
    assert!(accepted.is_empty(), "{} are accepted\n{}", accepted.len(), accepted.join("\n"));
}
