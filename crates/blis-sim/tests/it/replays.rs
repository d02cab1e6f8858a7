//! Run, export, replay: the same Result outside `inputs`, whatever the workload does and whenever the run stops.

use blis_contracts::engine::{EngineSnapshot, StepTicket};
use blis_contracts::fate::Fate;
use blis_contracts::record::RequestRecord;
use blis_contracts::result::RunResult;
use blis_contracts::scenario::Scenario;
use blis_contracts::strict::{Document, LineEndings};
use blis_contracts::units::SimTime;
use blis_sim::{Observer, Origin, Progress, RunError, World, run_offered};
use blis_workload::source::Draft;
use blis_workload::trace::{Cast, Header, Mode, Trace, TraceRecorder, header_text, read_blis};
use blis_workload::{Offered, sources};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Records the trace of a run.
struct Recording {
    table: TraceRecorder<Vec<u8>>,
    records: Vec<RequestRecord>,
}

impl Observer for Recording {
    fn sent(&mut self, at: SimTime, draft: &Draft) {
        self.table.sent(at, draft).unwrap();
    }

    fn record(&mut self, record: &RequestRecord) {
        self.table.ended(record).unwrap();
        self.records.push(record.clone());
    }

    fn stepped(&mut self, _step: &StepTicket, _state: &EngineSnapshot) {}

    fn progress(&mut self, _progress: Progress) {}
}

/// What a run leaves: its Result, its trace as text, and what became of each request.
struct Left {
    result: RunResult,
    header: String,
    table: String,
    records: Vec<RequestRecord>,
}

fn run(scenario: &Scenario, offered: Offered, mode: Mode) -> Result<Left, RunError> {
    let table = TraceRecorder::new(Vec::new(), Cast::of(&offered), scenario.model.clone()).unwrap();
    let mut recording = Recording { table, records: Vec::new() };
    let origin = Origin { scenario_sha256: String::new(), edits: Vec::new(), trace_sha256: None };
    let result = run_offered(scenario, offered.sources, &origin, &World::released(), &mut recording)?.result;
    let (table, header) = recording.table.finish(mode, scenario.seed, result.fates[&Fate::NotStarted]).unwrap();
    let (header, table) = (header_text(&header), String::from_utf8(table).unwrap());
    Ok(Left { result, header, table, records: recording.records })
}

fn read(left: &Left) -> Trace {
    let header = Header::read("t.yaml", left.header.as_bytes()).expect("a header reads back");
    read_blis(&header, "t.csv", left.table.as_bytes()).expect("a table reads back")
}

/// Runs a scenario, then its trace, then the trace of that; all three must agree.
fn check(scenario: &Value) {
    let document = Document::parse("s", scenario.to_string().as_bytes(), LineEndings::LfOrCrLf).expect("a document");
    let scenario = Scenario::load(&document).unwrap_or_else(|errors| panic!("{errors}\n{scenario}"));
    let offered = sources(&scenario.workload, scenario.frame.stop.requests, scenario.seed).unwrap();
    let first = match run(&scenario, offered, Mode::Generated) {
        Ok(first) => first,
        // A horizon before the first request: nothing was run, so there is nothing to replay.
        Err(RunError::Scenario(problem)) if problem.path.starts_with("frame") => return,
        Err(error) => panic!("{error}"),
    };
    let second =
        run(&scenario, read(&first).offered(), Mode::Replayed).unwrap_or_else(|error| panic!("{error}\n{}\n{}", first.header, first.table));
    let third = run(&scenario, read(&second).offered(), Mode::Replayed).unwrap();
    for again in [&second, &third] {
        assert_eq!(again.result.fates, first.result.fates, "{}\n{}", first.header, first.table);
        assert_eq!(again.result, first.result, "{}\n{}", first.header, first.table);
        let seen = |left: &Left| {
            left.records.iter().map(|record| RequestRecord { id: first.records[0].id, index: 0, ..record.clone() }).collect::<Vec<_>>()
        };
        assert_eq!(seen(again), seen(&first));
    }
}

fn scenario(workload: &Value, frame: &Value, flags: &str) -> Value {
    json!({
        "kind": "Scenario", "name": "trip", "seed": 11, "model": "qwen3-8b", "engine": {"kind": "vllm"},
        "cluster": {"hardware": "h100", "nodes": 1},
        "pools": [{"name": "serve", "role": "both", "replicas": 1, "command": format!("vllm serve Qwen/Qwen3-8B --max-model-len 4096 {flags}")}],
        "workload": workload, "frame": frame,
        "objectives": {"default": {"ttft_ms": 60, "tpot_ms": 9}},
    })
}

fn arrival() -> impl Strategy<Value = Value> {
    let open = prop_oneof![
        (1u32..60).prop_map(|rate| json!({"process": "poisson", "rate": rate})),
        (1u32..60).prop_map(|rate| json!({"process": "constant", "rate": rate})),
        (1u32..60).prop_map(|rate| json!({"process": "gamma", "rate": rate, "cv": 2.5})),
        (1u32..60).prop_map(|rate| json!({"process": "weibull", "rate": rate, "cv": 0.5})),
    ];
    let phases = (open.clone(), open.clone()).prop_map(|(first, second)| {
        json!({"process": "phases", "phases": [{"duration_s": 1, "arrival": first}, {"duration_s": 0.5}, {"duration_s": 1.5, "arrival": second}]})
    });
    prop_oneof![3 => open, 1 => phases, 2 => (1u32..4).prop_map(|places| json!({"process": "closed_loop", "concurrency": 2 * places}))]
}

fn sessions() -> impl Strategy<Value = Value> {
    (1u32..5, prop::bool::ANY, 0u32..300).prop_map(|(rounds, grows, think_ms)| {
        json!({
            "rounds": {"distribution": "uniform", "min": 1, "max": rounds},
            "think_time": {"distribution": "uniform", "min_s": 0, "max_s": f64::from(think_ms) / 1000.0},
            "context": if grows { "grows" } else { "fresh" },
        })
    })
}

fn client() -> impl Strategy<Value = Value> {
    let lengths = prop_oneof![
        Just(json!({"input": {"distribution": "lognormal", "mean": 300, "std": 300, "min": 8, "max": 3000},
                    "output": {"distribution": "uniform", "min": 1, "max": 60}})),
        Just(json!({"input": {"distribution": "empirical", "values": [40, 900], "weights": [3, 1]},
                    "output": {"distribution": "normal", "mean": 30, "std": 20, "min": 1, "max": 90}})),
        Just(json!({"lengths": {"pairs": [[100, 5], [700, 50], [2500, 2]], "order": "drawn"}})),
    ];
    let extras = (
        prop::option::of(sessions()),
        prop::option::of((1u32..3, 1u32..300).prop_map(|(group, length)| json!({"group": format!("g {group}"), "length": length}))),
        -1i32..2,
        prop::option::of(5u32..40),
        prop::option::of((1u32..20).prop_map(|tenths| f64::from(tenths) / 10.0)),
        prop::option::weighted(0.2, Just(2u32)),
    );
    (arrival(), lengths, extras).prop_map(|(arrival, lengths, (sessions, prefix, priority, limit, timeout, population))| {
        let mut client = json!({"id": "", "arrival": arrival, "priority": priority});
        let fields = client.as_object_mut().unwrap();
        fields.extend(lengths.as_object().unwrap().clone());
        let stated = [
            ("sessions", sessions),
            ("prefix", prefix),
            ("max_tokens", limit.map(Value::from)),
            ("timeout_s", timeout.map(Value::from)),
            ("population", population.map(Value::from)),
        ];
        fields.extend(stated.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        client
    })
}

fn frame() -> impl Strategy<Value = Value> {
    let stop = prop_oneof![
        (5u32..60).prop_map(|requests| json!({"requests": requests})),
        (1u32..30).prop_map(|tenths| json!({"horizon_s": f64::from(tenths) / 10.0})),
        (5u32..60, 1u32..30).prop_map(|(requests, tenths)| json!({"requests": requests, "horizon_s": f64::from(tenths) / 10.0})),
    ];
    (stop, 0u32..5).prop_map(|(stop, discarded)| json!({"start": "empty", "stop": stop, "measure": {"discard_first": discarded}}))
}

fn flags() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just(""),
        Just("--max-num-seqs 3 --scheduling-policy priority"),
        Just("--no-enable-prefix-caching --max-num-batched-tokens 512"),
        Just("--num-gpu-blocks-override 300 --no-async-scheduling"),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_replayed_trace_gives_the_result_of_the_run_it_was_recorded_from(
        clients in prop::collection::vec(client(), 1..4), frame in frame(), flags in flags(),
    ) {
        let named = clients.into_iter().enumerate().map(|(index, mut client)| {
            client["id"] = json!(format!("client, {index}"));
            client
        });
        check(&scenario(&json!({"clients": named.collect::<Vec<_>>()}), &frame, flags));
    }

    #[test]
    fn a_benchmark_clients_trace_keeps_its_warm_up_and_its_loop(
        concurrency in 1u32..9, warmup in 0u32..20, requests in 1u32..30, horizon_ms in prop::option::of(1u32..4_000), flags in flags(),
    ) {
        let mut stop = json!({"requests": requests});
        if let Some(milliseconds) = horizon_ms {
            stop["horizon_s"] = json!(f64::from(milliseconds) / 1000.0);
        }
        let client = json!({"client": "inferencex", "isl": 300, "osl": 40, "concurrency": concurrency, "range_ratio": 0.5, "seed": 3, "warmup": warmup});
        check(&scenario(&client, &json!({"start": "empty", "stop": stop}), flags));
    }
}

#[test]
fn a_workload_that_ends_by_itself_needs_no_other_end() {
    let phases = json!({"process": "phases", "phases": [{"duration_s": 2, "arrival": {"process": "poisson", "rate": 20}}]});
    let length = json!({"distribution": "constant", "value": 40});
    let client = json!({"id": "a", "arrival": phases, "input": length, "output": length});
    check(&scenario(&json!({"clients": [client]}), &json!({"start": "empty", "stop": {}}), ""));
}
