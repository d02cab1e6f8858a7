//! Clients described by distributions.

use blis_contracts::fate::Fate;
use blis_contracts::record::RequestRecord;
use blis_contracts::request::TokenSource;
use blis_contracts::scenario::Workload;
use blis_contracts::strict::{Document, LineEndings};
use blis_contracts::units::SimTime;
use blis_workload::source::{Draft, INDEX_BITS, Source, client_of};
use blis_workload::{WorkloadError, sources};
use serde_json::{Value, json};

fn load(workload: &Value) -> Workload {
    let document = Document::parse("workload", workload.to_string().as_bytes(), LineEndings::LfOrCrLf).expect("a document");
    document.decode().expect("a workload")
}

pub(crate) fn build(workload: &Value) -> Vec<Box<dyn Source>> {
    sources(&load(workload), Some(10), 42).expect("a workload with sources").sources
}

pub(crate) fn client(id: &str, arrival: &Value, extra: &Value) -> Value {
    let mut client = json!({
        "id": id,
        "arrival": arrival,
        "input": {"distribution": "uniform", "min": 10, "max": 90},
        "output": {"distribution": "lognormal", "mean": 50, "std": 25, "min": 1, "max": 400},
    });
    let fields = client.as_object_mut().expect("an object");
    fields.extend(extra.as_object().expect("an object").clone());
    client
}

fn poisson(rate: f64) -> Value {
    json!({"process": "poisson", "rate": rate})
}

/// A completed request that took a millisecond and generated what was asked.
pub(crate) fn completed(draft: &Draft, sent: SimTime) -> RequestRecord {
    let done = SimTime::from_micros(sent.as_micros() + 1000);
    RequestRecord {
        id: draft.id,
        client: client_of(draft.id),
        index: draft.id.0 & ((1 << INDEX_BITS) - 1),
        warm_up: draft.warm_up,
        fate: Fate::Completed,
        refusal: None,
        sent,
        received: Some(sent),
        scheduled: Some(sent),
        first_token: Some(done),
        last_token: Some(done),
        prompt_tokens: 0,
        cached_tokens: 0,
        output_tokens: u64::from(draft.output_length),
        preemptions: 0,
    }
}

/// Sends `count` requests, each of which ends `service_us` after it was sent.
pub(crate) fn drive(source: &mut dyn Source, count: usize, service_us: u64) -> Vec<(SimTime, Draft)> {
    let mut sent: Vec<(SimTime, Draft)> = Vec::new();
    let mut in_flight: Vec<(SimTime, usize)> = Vec::new();
    while sent.len() < count {
        let end = in_flight.iter().min().copied();
        let next = source.next_send();
        match (next, end) {
            (Some(now), end) if end.is_none_or(|(ends, _)| now < ends) => {
                in_flight.push((SimTime::from_micros(now.as_micros() + service_us), sent.len()));
                sent.push((now, source.send(now)));
            }
            (_, Some((now, index))) => {
                in_flight.retain(|entry| *entry != (now, index));
                source.ended(now, &completed(&sent[index].1, sent[index].0));
            }
            (_, None) => panic!("a source that is not done has a next send"),
        }
    }
    sent
}

#[test]
fn poisson_arrivals_have_the_stated_rate_and_the_spread_of_a_poisson_process() {
    let mut all = build(&json!({"clients": [client("a", &poisson(8.0), &json!({}))]}));
    let times: Vec<f64> = drive(&mut *all[0], 20_000, 10).iter().map(|(time, _)| time.as_seconds()).collect();
    let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / gaps.len() as f64;
    assert!((mean * 8.0 - 1.0).abs() < 0.03, "mean gap {mean}");
    assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "coefficient of variation {}", variance.sqrt() / mean);
}

#[test]
fn constant_arrivals_are_equally_spaced() {
    let mut all = build(&json!({"clients": [client("a", &json!({"process": "constant", "rate": 4}), &json!({}))]}));
    let times: Vec<u64> = drive(&mut *all[0], 4, 10).iter().map(|(time, _)| time.as_micros()).collect();
    assert_eq!(times, [250_000, 500_000, 750_000, 1_000_000]);
}

#[test]
fn a_request_asks_for_the_same_whatever_happened_before_it() {
    let extra = json!({"sessions": {
        "rounds": {"distribution": "uniform", "min": 1, "max": 4},
        "think_time": {"distribution": "exponential", "mean_s": 0.5},
        "context": "fresh",
    }});
    let requests = |service_us| {
        let mut all = build(&json!({"clients": [client("a", &json!({"process": "closed_loop", "concurrency": 4}), &extra)]}));
        let mut drafts: Vec<Draft> = drive(&mut *all[0], 400, service_us).into_iter().map(|(_, draft)| draft).collect();
        drafts.sort_by_key(|draft| draft.id);
        // Which place of the loop comes free depends on the service, and no request can tell.
        for draft in &mut drafts {
            draft.origin.lane = None;
        }
        drafts
    };
    let (fast, slow) = (requests(100), requests(3_000_000));
    let mut compared = 0;
    for draft in &fast {
        if let Some(twin) = slow.iter().find(|other| other.id == draft.id) {
            assert_eq!(draft, twin);
            compared += 1;
        }
    }
    assert!(compared > 300, "only {compared} requests occur in both");
}

#[test]
fn another_client_changes_nothing_for_the_first() {
    let first = client("a", &poisson(5.0), &json!({}));
    let alone = drive(&mut *build(&json!({"clients": [first]}))[0], 50, 10);
    let beside = drive(&mut *build(&json!({"clients": [first, client("b", &poisson(9.0), &json!({}))]}))[0], 50, 10);
    assert_eq!(alone, beside);
}

#[test]
fn a_growing_session_repeats_its_rounds_and_their_outputs_behind_the_shared_prefix() {
    let extra = json!({
        "prefix": {"group": "system", "length": 64},
        "sessions": {
            "rounds": {"distribution": "constant", "value": 3},
            "think_time": {"distribution": "constant", "value_s": 2},
            "context": "grows",
        },
    });
    let mut all = build(&json!({"clients": [client("a", &json!({"process": "closed_loop", "concurrency": 1}), &extra)]}));
    let sent = drive(&mut *all[0], 4, 1_000);
    let times: Vec<u64> = sent.iter().map(|(time, _)| time.as_micros()).collect();
    assert_eq!(times, [0, 2_001_000, 4_002_000, 4_003_000]);
    let last = &sent[2].1;
    let sources: Vec<TokenSource> = last.prompt.iter().map(|segment| segment.source).collect();
    let (unique, output) = (TokenSource::Unique, TokenSource::Output);
    assert_eq!(sources, [TokenSource::Shared(0), unique(0), output(0), unique(1), output(1), unique(2)]);
    assert_eq!(last.prompt[2].length, sent[0].1.output_length);
    assert_eq!(last.prompt[1], sent[0].1.prompt[1], "the first round's input comes back as it was");
    assert_eq!(sent[3].1.prompt.len(), 2, "the next session starts afresh");
}

#[test]
fn clients_that_name_one_group_share_its_text() {
    let with = |group: &str| json!({"prefix": {"group": group, "length": 32}});
    let mut all = build(&json!({"clients": [
        client("a", &poisson(1.0), &with("x")), client("b", &poisson(1.0), &with("y")), client("c", &poisson(1.0), &with("x")),
    ]}));
    let firsts: Vec<TokenSource> = all.iter_mut().map(|source| drive(&mut **source, 1, 1)[0].1.prompt[0].source).collect();
    assert_eq!(firsts, [TokenSource::Shared(0), TokenSource::Shared(1), TokenSource::Shared(0)]);
}

#[test]
fn a_benchmark_client_without_a_count_is_refused_by_its_field() {
    let workload = json!({"client": "inferencex", "isl": 1024, "osl": 1024, "concurrency": 4, "range_ratio": 0.8, "seed": 0, "warmup": 0});
    let workload = load(&workload);
    let WorkloadError { path, .. } = sources(&workload, None, 0).unwrap_err();
    assert_eq!(path, "workload.num_prompts");
    assert_eq!(sources(&workload, Some(7), 0).unwrap().sources[0].unsent(), Some(7));
}
