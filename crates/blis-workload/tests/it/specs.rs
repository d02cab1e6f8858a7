//! Other tools' descriptions of workloads: their sample files, what is refused, and that the clients made of them send the same workload.

use blis_contracts::scenario::{Arrival, Client, CountDistribution, Phases, Workload};
use blis_contracts::strict::{Document, DocumentErrors, LineEndings};
use blis_workload::random::Substream;
use blis_workload::source::Source;
use blis_workload::sources;
use blis_workload::specs::{Chunk, Converted, ShareGpt, read_blis_v2, read_guidellm, read_inference_perf, read_servegen, read_sharegpt};
use blis_workload::trace::{Prompt, Row, Trace, compare};

use crate::clients::drive;

const INFERENCE_PERF: &str = r#"
api: {type: completion, streaming: true}
data: {type: shared_prefix, shared_prefix: {num_groups: 8, num_prompts_per_group: 20, system_prompt_len: 1024, question_len: 200, output_len: 128}}
load: {type: poisson, interval: 5, stages: [{rate: 2, duration: 60}, {rate: 6, duration: 60}]}
server: {type: vllm, model_name: Qwen/Qwen3-14B, base_url: "http://x:8000", ignore_eos: true}
report: {request_lifecycle: {summary: true, per_stage: true, per_request: true}}
"#;

const GUIDELLM: &str = r#"{"benchmarks":[{"config":{"strategy":{"type_":"poisson","rate":2.0}},"metrics":{"time_to_first_token_ms":{"successful":{"mean":81.2,"median":79.0,"count":120,"percentiles":{"p90":110.0,"p99":151.4}}}},
 "requests":{"successful":[{"request_id":"a1","prompt_tokens":256,"output_tokens":64,"request_start_time":1760000000.10,"request_end_time":1760000001.42,"time_to_first_token_ms":80.0,"inter_token_latency_ms":19.6}]}}]}"#;

const BLIS_V2: &str = r#"
version: "2"
aggregate_rate: 10
horizon: 60000000
clients:
  - id: chat
    rate_fraction: 0.8
    arrival: {process: gamma, cv: 2.0}
    input_distribution: {type: gaussian, params: {mean: 512, std_dev: 100, min: 10, max: 2000}}
    output_distribution: {type: exponential, params: {mean: 256, max: 4000}}
    prefix_group: system
    prefix_length: 50
    slo_class: standard
cohorts:
  - id: late
    population: 4
    rate_fraction: 0.2
    arrival: {process: poisson}
    input_distribution: {type: constant, params: {value: 100}}
    output_distribution: {type: lognormal, params: {mu: 3, sigma: 0.5}}
    spike: {start_time_us: 10000000, duration_us: 20000000}
"#;

fn chunk(trace: &str, dataset: &str) -> Chunk {
    Chunk { name: "chunk-0".to_owned(), trace: trace.to_owned(), dataset: dataset.to_owned() }
}

fn servegen() -> Converted {
    let dataset = "{\"0\": {\"input_tokens\": \"{100: 0.5, 240: 0.5}\", \"output_tokens\": \"{64: 1.0}\"}}";
    read_servegen(&[chunk("0,0.35,1.8,Gamma,0.31,9.2\n", dataset)]).unwrap()
}

fn only(converted: &Converted) -> &Client {
    let Workload::Clients(clients) = &converted.workload else { panic!("{converted:?}") };
    assert_eq!(clients.clients.len(), 1);
    &clients.clients[0]
}

fn told<T: std::fmt::Debug>(read: Result<T, DocumentErrors>) -> String {
    read.unwrap_err().to_string()
}

/// What the first source of a workload sends, as a trace.
fn sent(converted: &Converted, most: usize) -> Trace {
    let mut offered = sources(&converted.workload, None, 3).unwrap();
    let source: &mut dyn Source = &mut *offered.sources[0];
    let count = source.unsent().map_or(most, |count| usize::try_from(count).unwrap());
    let rows = drive(source, count, 1).into_iter().map(|(time, draft)| Row {
        arrival_us: time.as_micros(),
        phase: draft.origin.phase,
        prompt: Prompt { own: draft.prompt.iter().map(|segment| segment.length).sum(), ..Prompt::default() },
        output_tokens: draft.output_length,
        ..Row::default()
    });
    Trace { rows: rows.collect(), ..Trace::default() }
}

#[test]
fn inference_perfs_stages_become_phases_with_its_pause_between_them() {
    let converted = read_inference_perf("c.yaml", INFERENCE_PERF.as_bytes(), 0).unwrap();
    let client = only(&converted);
    let Arrival::Phases(Phases { phases }) = &client.arrival else { panic!("{client:?}") };
    let shape: Vec<(f64, Option<f64>)> =
        phases.iter().map(|phase| (phase.duration_s, phase.arrival.as_ref().and_then(Arrival::rate))).collect();
    assert_eq!(shape, [(60.0, Some(2.0)), (5.0, None), (60.0, Some(6.0))]);
    let prefix = client.prefix.as_ref().unwrap();
    assert_eq!((prefix.length, prefix.variants), (1024, Some(8)));
    let offered = sources(&converted.workload, None, 3).unwrap();
    assert_eq!(offered.texts.len(), 8);
    let trace = sent(&converted, 0);
    assert!(trace.rows.iter().all(|row| row.prompt.own == 1224 && row.output_tokens == 128));
    // The same stages drawn here: exponential gaps at each stage's rate.
    let mut rows = Vec::new();
    for (phase, (start_s, rate)) in [(0, (0.0, 2.0)), (2, (65.0, 6.0))] {
        let mut at_s = start_s;
        for entity in 0.. {
            at_s += Substream::new(9, "stage", "gap", entity).exponential(1.0 / rate);
            if at_s > start_s + 60.0 {
                break;
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers of a test")]
            rows.push(Row {
                arrival_us: (at_s * 1e6) as u64,
                phase: Some(phase),
                prompt: Prompt { own: 1224, ..Prompt::default() },
                output_tokens: 128,
                ..Row::default()
            });
        }
    }
    let expected = Trace { rows, ..Trace::default() };
    let failing: Vec<_> =
        compare(&expected, &trace).into_iter().filter(|check| !check.holds && !check.what.starts_with("requests, ")).collect();
    assert_eq!(failing, []);
}

#[test]
fn what_inference_perf_does_not_say_is_refused() {
    let refusal = |from: &str, to: &str| told(read_inference_perf("c.yaml", INFERENCE_PERF.replace(from, to).as_bytes(), 0));
    assert!(
        refusal("rate: 2, duration: 60", "rate: 0.01, duration: 60")
            .contains("load.stages[0]: makes less than one request: 0.01 per second for 60 s")
    );
    assert!(refusal("type: poisson", "type: steady").contains("must be constant, poisson or concurrent"));
    assert!(refusal("output_len: 128", "output_len: 128, enable_multi_turn_chat: true").contains("how many turns"));
    assert!(refusal("data: {type: shared_prefix", "data: {type: shareGPT").contains("`shareGPT` states no lengths"));
    assert!(refusal("interval: 5", "interval: 5, burst: 2").contains("unknown key `burst`"));
    assert!(
        refusal("question_len: 200", "question_len: 0")
            .contains("workload.clients[0].input.value: gives a workload that is refused: must be from 1")
    );
}

#[test]
fn one_of_inference_perfs_numbers_in_flight_is_picked() {
    let stages = "load: {type: concurrent, stages: [{concurrency_level: 4, num_requests: 40}, {concurrency_level: 8, num_requests: 80}]}";
    let text = format!(
        "data: {{type: shared_prefix, shared_prefix: {{num_groups: 1, system_prompt_len: 64, question_len: 20, output_len: 8}}}}\n{stages}\n"
    );
    let picked = |stage| read_inference_perf("c.yaml", text.as_bytes(), stage);
    let second = picked(1).unwrap();
    assert!(matches!(&only(&second).arrival, Arrival::ClosedLoop(closed) if closed.concurrency == 8));
    assert_eq!((second.stop.as_deref(), second.notes.len()), (Some("{requests: 80}"), 1));
    assert!(matches!(&only(&picked(0).unwrap()).arrival, Arrival::ClosedLoop(closed) if closed.concurrency == 4));
    assert!(told(picked(2)).contains("load.stages: has 2 stages, and none at 2"));
}

#[test]
fn the_sample_of_a_guidellm_report_loads() {
    let converted = read_guidellm("b.json", GUIDELLM.as_bytes(), 0).unwrap();
    let client = only(&converted);
    assert_eq!((client.arrival.rate(), client.lengths.as_ref().unwrap().pairs.as_slice()), (Some(2.0), [[256, 64]].as_slice()));
    assert_eq!(converted.stop.as_deref(), Some("{requests: 1}"));
    assert_eq!(told(read_guidellm("b.json", GUIDELLM.as_bytes(), 1)), "b.json: benchmarks: has 1 benchmarks, and none at 1");
    let arguments = r#"{"data": "kind=synthetic_text,prompt_tokens=256,output_tokens=128,output_tokens_stdev=10", "profile": "concurrent", "rate": [4], "max_requests": 50}"#;
    let converted = read_guidellm("a.json", arguments.as_bytes(), 0).unwrap();
    let client = only(&converted);
    assert!(matches!(&client.arrival, Arrival::ClosedLoop(closed) if closed.concurrency == 4));
    assert!(matches!(&client.output, Some(CountDistribution::Normal(spread)) if spread.mean.to_bits() == 128.0f64.to_bits()));
}

#[test]
fn guidellms_arguments_are_kept_or_refused_key_by_key() {
    let read = |data: &str, rest: &str, benchmark| {
        let text = format!(r#"{{"data": {data}, "profile": "poisson", "rate": [2, 5], {rest} "max_requests": 50, "max_seconds": 60}}"#);
        read_guidellm("a.json", text.as_bytes(), benchmark)
    };
    let prefixed = r#""prompt_tokens=256,output_tokens=128,prefix_tokens=100,prefix_count=3""#;
    let converted = read(prefixed, "", 1).unwrap();
    let prefix = only(&converted).prefix.as_ref().unwrap();
    assert_eq!((only(&converted).arrival.rate(), prefix.length, prefix.variants), (Some(5.0), 100, Some(3)));
    assert_eq!(converted.stop.as_deref(), Some("{requests: 50, horizon_s: 60}"));
    assert!(converted.notes[0].contains("have 2 rates"), "{:?}", converted.notes);
    assert!(told(read(prefixed, "", 2)).contains("has 2 of `rate`, and none at 2"));
    // The same data in the other forms that the tool takes, and spreads as it draws them.
    let object = r#"{"prompt_tokens": 256, "output_tokens": 128, "prefix_buckets": [{"prefix_tokens": 100, "prefix_count": 3}]}"#;
    for form in [object.to_owned(), format!("[{object}]"), format!("[{object:?}]")] {
        assert_eq!(read(&form, "", 1).unwrap().workload, converted.workload, "{form}");
    }
    let spread = read(r#""prompt_tokens=100,prompt_tokens_stdev=10,output_tokens=20,output_tokens_min=5""#, "", 0).unwrap();
    let client = only(&spread);
    assert!(matches!(&client.input, Some(CountDistribution::Normal(spread)) if (spread.min, spread.max) == (50, 150)), "{client:?}");
    assert!(matches!(&client.output, Some(CountDistribution::Uniform(range)) if (range.min, range.max) == (5, 20)), "{client:?}");
    for (data, message) in [
        (r#""prompt_tokens=256,output_tokens=128,prompt_token_max=300""#, "a.json: data: `prompt_token_max` is not read"),
        (r#""prompt_tokens=256,output_tokens=128,turns=3""#, "3 turns are refused"),
        (r#""prompt_tokens=256""#, "state no output_tokens"),
        (r#""org/data-set""#, "data must be synthetic"),
        (r#"["prompt_tokens=1,output_tokens=1", "prompt_tokens=2,output_tokens=1"]"#, "has 2 data sets"),
        (r#"{"prompt_tokens": 1, "output_tokens": 1, "prefix_buckets": [{}, {}]}"#, "prefixes of several lengths are refused"),
    ] {
        assert!(told(read(data, "", 0)).contains(message), "{data}: {}", told(read(data, "", 0)));
    }
    let noted = read(r#""prompt_tokens=1,output_tokens=1""#, r#""warmup": 0.1, "rampup": 10, "max_concurrency": 8,"#, 0).unwrap().notes;
    assert!(
        ["frame.measure.discard_first", "ramp at the start", "`max_concurrency` is not kept"]
            .iter()
            .all(|part| noted.concat().contains(part))
    );
}

#[test]
fn a_guidellm_report_that_lacks_a_time_keeps_the_order_of_its_list() {
    let request = |prompt: u32, time: &str| format!(r#"{{"prompt_tokens": {prompt}, "output_tokens": 8{time}}}"#);
    for missing in ["", r#", "request_start_time": null"#] {
        let requests =
            [request(130, r#", "request_start_time": 3.0"#), request(110, missing), request(120, r#", "request_start_time": 2.0"#)];
        let text = format!(
            r#"{{"benchmarks": [{{"config": {{"strategy": {{"type_": "synchronous"}}}}, "requests": {{"successful": [{}]}}}}]}}"#,
            requests.join(",")
        );
        let converted = read_guidellm("b.json", text.as_bytes(), 0).unwrap();
        assert_eq!(only(&converted).lengths.as_ref().unwrap().pairs, [[130, 8], [110, 8], [120, 8]]);
        assert!(converted.notes[0].starts_with("1 requests have no request_start_time"), "{:?}", converted.notes);
    }
}

#[test]
fn a_guidellm_report_keeps_the_order_of_sending_and_what_prompts_share() {
    let request = |at: f64, prompt: u32| format!(r#"{{"prompt_tokens": {prompt}, "output_tokens": 8, "request_start_time": {at}}}"#);
    let report = |strategy: &str, data: &str| {
        let requests = format!("[{},{},{}]", request(3.0, 130), request(1.0, 110), request(2.0, 120));
        let text = format!(
            r#"{{"args": {{"data": {data}}}, "benchmarks": [{{"config": {{"strategy": {strategy}}}, "requests": {{"successful": {requests}, "errored": [{{}}], "incomplete": []}}}}]}}"#
        );
        read_guidellm("b.json", text.as_bytes(), 0)
    };
    let throughput = r#"{"type_": "throughput", "max_concurrency": 4}"#;
    let converted = report(throughput, r#"["prompt_tokens=20,output_tokens=8,prefix_tokens=100"]"#).unwrap();
    let client = only(&converted);
    assert_eq!(client.lengths.as_ref().unwrap().pairs, [[10, 8], [20, 8], [30, 8]]);
    assert_eq!(client.prefix.as_ref().unwrap().length, 100);
    assert!(matches!(&client.arrival, Arrival::ClosedLoop(closed) if closed.concurrency == 4));
    assert_eq!(converted.notes, ["1 requests failed and are left out"]);
    assert_eq!(only(&report(throughput, r#"["texts.jsonl"]"#).unwrap()).lengths.as_ref().unwrap().pairs[0], [110, 8]);
    assert!(told(report(throughput, r#"["prompt_tokens=20,output_tokens=8,turns=2"]"#)).contains("args.data: 2 turns are refused"));
    assert!(
        told(report(throughput, r#"["prompt_tokens=20,output_tokens=8,prefix_tokens=115"]"#))
            .contains("a prefix of 115 tokens, and a prompt has 110")
    );
    let endless = r#"{"type_": "throughput", "max_concurrency": null}"#;
    assert!(told(report(endless, "[]")).contains("sends everything at once"));
}

#[test]
fn the_sample_of_servegen_loads_and_sends_what_it_counted() {
    let converted = servegen();
    let client = only(&converted);
    let Arrival::Phases(Phases { phases }) = &client.arrival else { panic!("{client:?}") };
    assert!(matches!(&phases[0].arrival, Some(Arrival::Gamma(varied)) if (varied.rate, varied.cv) == (0.35, 1.8)));
    assert_eq!((phases[0].duration_s, converted.stop.as_deref()), (600.0, Some("{horizon_s: 600}")));
    let busy = "0,20,1.8,Gamma,0.31,0.16\n600,0.0001,1,,,\n1200,30,0.5,Weibull,2.1,0.04\n";
    let dataset = "{\"0\": {\"input_tokens\": \"{100: 0.5, 240: 0.5}\", \"output_tokens\": \"{64: 1.0}\"}, \"1200\": {\"input_tokens\": \"{7: 1}\", \"output_tokens\": \"{0: 0.2, 9: 1}\"}}";
    let converted = read_servegen(&[chunk(busy, dataset)]).unwrap();
    let Workload::Clients(clients) = &converted.workload else { panic!("{converted:?}") };
    assert_eq!(clients.clients.len(), 2);
    assert_eq!(converted.notes, ["1 windows that make less than one request each, 0.1 together, are left out"]);
    let trace = sent(&converted, 0);
    // The window's own parameters: gamma gaps of shape 0.31, and each length as often as counted.
    let mut at_s = 0.0;
    let mut rows = Vec::new();
    for entity in 0..12_000 {
        at_s += Substream::new(9, "window", "gap", entity).gamma(0.31) * (0.05 / 0.31);
        let own = if Substream::new(9, "window", "length", entity).unit() < 0.5 { 100 } else { 240 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers of a test")]
        rows.push(Row {
            arrival_us: (at_s * 1e6) as u64,
            prompt: Prompt { own, ..Prompt::default() },
            output_tokens: 64,
            ..Row::default()
        });
    }
    let expected = Trace { rows, ..Trace::default() };
    let trace = Trace { rows: trace.rows.into_iter().map(|row| Row { phase: None, ..row }).collect(), ..Trace::default() };
    let failing: Vec<_> = compare(&expected, &trace).into_iter().filter(|check| !check.holds && check.what != "requests").collect();
    assert_eq!(failing, []);
    assert!((11_000..13_000).contains(&trace.rows.len()), "{}", trace.rows.len());
    assert_eq!(
        told(read_servegen(&[chunk("0,20,1.8,Gamma,0,0\n", "{\"0\": {\"input_tokens\": \"{}\", \"output_tokens\": \"{}\"}}")])),
        "chunk-0:1: the window has requests, and the dataset no lengths for it"
    );
    assert_eq!(
        told(read_servegen(&[chunk("0,20,1.8,Pareto,0,0\n", dataset)])),
        "chunk-0:1: the process must be Gamma, Weibull or empty, found \"Pareto\""
    );
}

#[test]
fn the_sample_of_sharegpt_loads() {
    let unsaid = ShareGpt { characters_per_token: 4.0, rate: 2.0 };
    let text = r#"[{"id":"x1","conversations":[{"from":"human","value":"What is TTFT?"},{"from":"gpt","value":"Time to first token."}]}, {"id":"x2","conversation":[{"user":"Hi"},{"assistant":"Hello."}]}, {"id":"x3","conversations":[]}]"#;
    let converted = read_sharegpt("s.json", text.as_bytes(), unsaid).unwrap();
    assert_eq!(only(&converted).lengths.as_ref().unwrap().pairs, [[4, 5]], "13 and 20 characters");
    assert_eq!(converted.notes[0], "1 of 3 conversations are kept; lengths are characters divided by 4");
    let both = r#"[{"conversation": [{"human": "What is TTFT?", "assistant": "Time to first token."}]}, {"conversations": [{"role": "user", "content": "What is TTFT?"}, {"role": "assistant", "content": "Time to first token."}]}]"#;
    assert_eq!(only(&read_sharegpt("s.json", both.as_bytes(), unsaid).unwrap()).lengths.as_ref().unwrap().pairs, [[4, 5], [4, 5]]);
    let silent = r#"[{"conversations": [{"value": "What is TTFT?"}, {"from": "gpt"}]}]"#;
    assert!(told(read_sharegpt("s.json", silent.as_bytes(), unsaid)).contains("conversation 0: turn 1 has no `value`"));
    assert!(told(read_sharegpt("s.json", "[]".as_bytes(), unsaid)).contains("holds 0 conversations"));
    assert!(told(read_sharegpt("s.json", "[{\"id\": 1}]".as_bytes(), unsaid)).contains("is not a list of conversations: missing field"));
}

#[test]
fn an_earlier_workload_document_keeps_its_shares_windows_and_lengths() {
    let converted = read_blis_v2("w.yaml", BLIS_V2.as_bytes()).unwrap();
    let Workload::Clients(clients) = &converted.workload else { panic!("{converted:?}") };
    let [chat, late] = clients.clients.as_slice() else { panic!("{clients:?}") };
    assert!(matches!(&chat.arrival, Arrival::Gamma(varied) if (varied.rate, varied.cv) == (8.0, 2.0)));
    assert_eq!((chat.timeout_s, chat.slo_class.as_deref(), late.population), (None, Some("standard"), Some(4)));
    let Arrival::Phases(Phases { phases }) = &late.arrival else { panic!("{late:?}") };
    assert_eq!(phases.iter().map(|phase| (phase.duration_s, phase.arrival.is_some())).collect::<Vec<_>>(), [(10.0, false), (20.0, true)]);
    assert!(matches!(&late.output, Some(CountDistribution::Lognormal(spread)) if (spread.mean - 22.759_895).abs() < 1e-5));
    assert_eq!(converted.stop.as_deref(), Some("{horizon_s: 60}"));
    let refusal = |from: &str, to: &str| told(read_blis_v2("w.yaml", BLIS_V2.replace(from, to).as_bytes()));
    assert!(refusal("rate_fraction: 0.8", "rate_fraction: 0.5").contains("the rate fractions sum to 0.7"));
    assert!(refusal("    prefix_length: 50\n", "").contains("`prefix_length` is missing; it has no default here"));
    let endless =
        BLIS_V2.replace("horizon: 60000000\n", "").replace("    spike:", "    lifecycle: {windows: [{start_us: 5}]}\n    diurnal:");
    let endless = endless.replace("{start_time_us: 10000000, duration_us: 20000000}", "{peak_hour: 2, peak_to_trough_ratio: 3}");
    assert!(told(read_blis_v2("w.yaml", endless.as_bytes())).contains("has a window without an end, and the document no `horizon`"));
    assert!(refusal("type: constant", "type: pareto_lognormal").contains("`pareto_lognormal` is refused"));
    assert!(refusal("slo_class", "slo_clas").contains("unknown key `slo_clas`"));
}

#[test]
fn what_a_conversion_prints_is_the_workload_it_made() {
    let perf = read_inference_perf("c.yaml", INFERENCE_PERF.as_bytes(), 0).unwrap();
    for converted in
        [perf, servegen(), read_blis_v2("w.yaml", BLIS_V2.as_bytes()).unwrap(), read_guidellm("b.json", GUIDELLM.as_bytes(), 0).unwrap()]
    {
        let text = converted.text();
        let document = Document::parse("t.yaml", text.as_bytes(), LineEndings::Lf).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let read: std::collections::BTreeMap<String, Workload> = document.decode().unwrap();
        assert_eq!(read["workload"], converted.workload, "{text}");
    }
}
