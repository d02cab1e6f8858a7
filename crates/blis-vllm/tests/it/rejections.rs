//! Configurations and requests that upstream's validation refuses are refused here too (`oracle/rejections.py`).
//!
//! The recording names the branch that refused each case, and sorts every branch of upstream's files that no case reaches.

use std::collections::BTreeSet;

use blis_contracts::request::{Request, RequestId, RequestSlot, Segment, TokenSource};
use blis_contracts::units::SimTime;
use blis_vllm::config::{Launch, read};
use blis_vllm::request::Requests;
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
    requests: Vec<Asked>,
    not_reached: Vec<Unreached>,
}

/// One configuration.
#[derive(Debug, Deserialize)]
struct Case {
    args: Map<String, Value>,
    /// Where it is not the recording's.
    model: Option<Value>,
    /// What upstream says, where it refuses.
    said: Option<String>,
    branches: Vec<String>,
}

/// One request, under a longest sequence of 64 tokens.
#[derive(Debug, Deserialize)]
struct Asked {
    prompt: u32,
    max_tokens: Option<u32>,
    /// Through the server, which first cuts the output limit to what the context leaves.
    by_server: bool,
    said: Option<String>,
    branches: Vec<String>,
}

/// A branch that no case reaches.
#[derive(Debug, Deserialize)]
struct Unreached {
    branch: String,
    kind: String,
    setting: Option<String>,
    value: Option<Value>,
    reason: String,
}

const RECORDING: &str = include_str!("../../oracle/rejections.json");
const LONGEST: u32 = 64;

fn recording() -> Recording {
    serde_json::from_str(RECORDING).expect("the recording has the shape of the script that writes it")
}

/// A scenario of one short request with these arguments.
fn scenario(recording: &Recording, case: &Case) -> Scenario {
    let request = json!({"id": "a", "arrival_us": 0, "prompt": [{"unique": 4}], "max_tokens": 1});
    let drafts = case.args.contains_key("speculative_config") || case.args.contains_key("spec_method");
    let mut document = json!({
        "name": "refused", "seed": 0, "engine_args": case.args, "gpu": recording.gpu,
        "model": case.model.clone().unwrap_or_else(|| json!(recording.model)),
        "step_time": {"base_us": 1, "per_token_us": 1}, "requests": [request],
    });
    if drafts {
        document["speculation"] = json!({"accepted_permille": [500]});
    }
    Scenario::parse("refused", document.to_string().as_bytes()).expect("a document of JSON is one of YAML")
}

/// A text without what differs between a field's name, its flag and a sentence about it.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_alphanumeric() { letter.to_ascii_lowercase() } else { '_' }).collect()
}

/// The names of arguments and of the keys inside them.
fn names(args: &Map<String, Value>) -> Vec<String> {
    let inner = |value: &Value| value.as_object().map(names).unwrap_or_default();
    args.iter().flat_map(|(name, value)| std::iter::once(name.clone()).chain(inner(value))).collect()
}

#[test]
fn what_upstream_refuses_is_refused_by_the_name_of_what_is_wrong() {
    let recording = recording();
    let refused: Vec<&Case> = recording.cases.iter().filter(|case| case.said.is_some()).collect();
    assert!(refused.len() >= 145, "only {} cases", refused.len());
    assert!(recording.cases.len() > refused.len(), "some are accepted, so that the recording could tell the two apart");
    let reached: BTreeSet<_> = refused.iter().flat_map(|case| &case.branches).collect();
    assert!(reached.len() >= 80, "{} branches: {reached:?}", reached.len());
    let wrong: Vec<String> = refused
        .iter()
        .filter_map(|case| {
            let shown = Value::Object(case.args.clone());
            let Err(refusal) = run(&scenario(&recording, case), &mut |_| ()) else {
                return Some(format!("{shown} is accepted, and upstream says {:?}", case.said));
            };
            let told = plain(&refusal.to_string());
            let said = plain(case.said.as_deref().unwrap_or_default().trim_start_matches("Value error, "));
            let gist: String = said.chars().take(30).collect();
            let named = names(&case.args).iter().any(|name| told.contains(&plain(name))) || told.contains(&gist);
            (!named).then(|| format!("{shown} is refused without a name of it: {refusal}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {} cases\n{}", wrong.len(), refused.len(), wrong.join("\n"));
}

#[test]
fn a_request_is_refused_where_upstream_refuses_it_and_in_its_words() {
    let recording = recording();
    assert!(recording.requests.iter().any(|asked| asked.said.is_none()) && recording.requests.len() >= 20);
    for (number, asked) in (0..).zip(&recording.requests) {
        let prompt: Vec<Segment> =
            (asked.prompt > 0).then_some(Segment { source: TokenSource::Unique(0), length: asked.prompt }).into_iter().collect();
        let request = Request::new(RequestId(number), RequestSlot(0), SimTime::ZERO, prompt.into(), 1).with_max_tokens(asked.max_tokens);
        let found = Requests::default().add(&request, LONGEST).err().map(|refusal| refusal.to_string());
        assert_eq!(found.is_some(), asked.said.is_some(), "{asked:?}: {found:?}");
        // The server compares lengths before the engine's own check does, in words of its own.
        if let (Some(found), Some(said), false) = (found, &asked.said, asked.by_server) {
            let begin = |text: &str| text.to_lowercase().split(['.', ';']).next().map(str::to_owned);
            assert_eq!(begin(&found), begin(said), "{asked:?}");
            assert_eq!(asked.branches.len(), 1, "{asked:?}");
        }
    }
}

#[test]
fn every_branch_of_upstreams_validation_is_reached_or_sorted() {
    let recording = recording();
    let reached: BTreeSet<_> =
        recording.cases.iter().flat_map(|case| &case.branches).chain(recording.requests.iter().flat_map(|asked| &asked.branches)).collect();
    let mut wrong = Vec::new();
    let mut named = 0;
    for Unreached { branch, kind, setting, value, reason } in &recording.not_reached {
        assert!(!reached.contains(branch), "{branch} is reached");
        assert!(!reason.is_empty(), "{branch}");
        let stated = |name: &str, value: &Value| {
            let env = [(name.to_owned(), value.as_str().unwrap_or_default().to_owned())];
            let mut args = Map::from_iter([("model".to_owned(), json!("m"))]);
            if kind == "environment" {
                read(Launch { args: Some(&args), env: &env, ..Launch::default() })
            } else {
                args.insert(name.to_owned(), value.clone());
                read(Launch { args: Some(&args), ..Launch::default() })
            }
        };
        match (kind.as_str(), setting, value) {
            ("setting" | "environment", Some(setting), Some(value)) => {
                named += 1;
                let refusal = stated(setting, value).err().map(|refusal| refusal.to_string().replace('-', "_"));
                if !refusal.as_ref().is_some_and(|told| told.contains(setting.as_str())) {
                    wrong.push(format!("{setting} at {value}, for {branch}: {refusal:?}"));
                }
            }
            ("request", Some(_), None) | ("internal" | "platform" | "model" | "tested" | "command line", None, None) => {}
            _ => wrong.push(format!("{branch}: {kind} {setting:?} {value:?}")),
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(named >= 50, "{named} branches lie behind a setting");
}
