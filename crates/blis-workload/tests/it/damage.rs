//! Every loader over damaged files: whatever the bytes, it loads or refuses, and what it loads can be sent and written.
//!
//! `tests/corpus` holds one good file of each format. Each case damages one of them in a few places.

use blis_contracts::scenario::{TimeUnit, Workload};
use blis_contracts::strict::{Document, LineEndings};
use blis_workload::source::Source;
use blis_workload::sources;
use blis_workload::specs::{Chunk, Converted, ShareGpt, read_blis_v2, read_guidellm, read_inference_perf, read_servegen, read_sharegpt};
use blis_workload::trace::{
    Header, Mode, Mooncake, Trace, TraceError, header_text, read_azure, read_blis, read_burstgpt, read_mooncake, write_azure,
    write_burstgpt, write_mooncake, write_rows,
};
use proptest::prelude::*;

use crate::clients::completed;

/// Requests that a loaded workload sends at most, in a test.
const SENDS: usize = 40;

/// The files of `tests/corpus`.
const CORPUS: &[(&str, &[u8])] = &[
    ("azure.csv", include_bytes!("../corpus/azure.csv")),
    ("blis-v2.yaml", include_bytes!("../corpus/blis-v2.yaml")),
    ("blis.csv", include_bytes!("../corpus/blis.csv")),
    ("blis.yaml", include_bytes!("../corpus/blis.yaml")),
    ("burstgpt.csv", include_bytes!("../corpus/burstgpt.csv")),
    ("guidellm.json", include_bytes!("../corpus/guidellm.json")),
    ("inference-perf.yaml", include_bytes!("../corpus/inference-perf.yaml")),
    ("mooncake.jsonl", include_bytes!("../corpus/mooncake.jsonl")),
    ("servegen-dataset.json", include_bytes!("../corpus/servegen-dataset.json")),
    ("servegen-trace.csv", include_bytes!("../corpus/servegen-trace.csv")),
    ("sharegpt.json", include_bytes!("../corpus/sharegpt.json")),
];

fn corpus(name: &str) -> Vec<u8> {
    let (_, bytes) = CORPUS.iter().find(|(known, _)| *known == name).unwrap();
    bytes.to_vec()
}

/// Sends what sources send, each request completing 900 us later.
fn send(sources: &mut [Box<dyn Source>]) {
    for source in sources {
        let mut in_flight = Vec::new();
        for _ in 0..SENDS {
            let Some(now) = source.next_send() else { break };
            in_flight.push((now, source.send(now)));
            if in_flight.len() > 3 || source.next_send().is_none() {
                for (sent, draft) in in_flight.drain(..) {
                    source.ended(now, &completed(&draft, sent));
                }
            }
        }
    }
}

/// A loaded trace is sent, and written in each format that can say it; what is written as a BLIS trace is what was loaded.
fn use_trace(loaded: Result<Trace, TraceError>) {
    let trace = match loaded {
        Ok(trace) => trace,
        Err(error) => {
            assert!(!error.file.is_empty() && !error.message.is_empty());
            return;
        }
    };
    let mut table = Vec::new();
    write_rows(&mut table, &trace).unwrap();
    let header = Header::read("t.yaml", header_text(&Header::new(Mode::Generated, &trace)).as_bytes()).unwrap();
    let again = read_blis(&header, "t.csv", table.as_slice()).unwrap();
    let bare =
        |trace: &Trace| trace.rows.iter().map(|row| (row.id, row.arrival_us, row.prompt.tokens(), row.output_tokens)).collect::<Vec<_>>();
    assert_eq!(bare(&again), bare(&trace));
    for written in [write_azure(Vec::new(), &trace), write_burstgpt(Vec::new(), &trace), write_mooncake(Vec::new(), &trace, 512)] {
        assert!(written.is_ok() || written.is_err_and(|error| error.kind() == std::io::ErrorKind::InvalidData));
    }
    send(&mut trace.offered().sources);
}

/// A converted workload is printed and sent.
fn use_workload(converted: &Converted) {
    let text = converted.text();
    assert!(Document::parse("w.yaml", text.as_bytes(), LineEndings::Lf).is_ok(), "{text}");
    let Workload::Clients(clients) = &converted.workload else { panic!("{converted:?}") };
    // A population of a million is a valid wish that a test does not grant.
    if clients.clients.iter().map(|client| u64::from(client.members())).sum::<u64>() < 1_000 {
        send(&mut sources(&converted.workload, None, 1).unwrap().sources);
    }
}

/// Damages bytes: each edit cuts some out somewhere and puts others there.
fn damaged(mut bytes: Vec<u8>, edits: &[(prop::sample::Index, usize, Vec<u8>)]) -> Vec<u8> {
    for (at, cut, put) in edits {
        let start = at.index(bytes.len() + 1);
        let end = (start + cut).min(bytes.len());
        bytes.splice(start..end, put.iter().copied());
    }
    bytes
}

fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, usize, Vec<u8>)>> {
    let words: Vec<&str> = vec![
        "",
        "0",
        "-1",
        "1e309",
        "4294967296",
        "18446744073709551615",
        "\"",
        ",",
        "\n",
        "\r",
        "\u{feff}",
        "{",
        "}",
        "/",
        "r/0",
        "null",
        "NaN",
        "0.5",
        " ",
    ];
    let word = prop::sample::select(words).prop_map(|word| word.as_bytes().to_vec());
    let put = prop_oneof![3 => word, 1 => prop::collection::vec(any::<u8>(), 0..4), 1 => prop::collection::vec(prop::sample::select(b"0123456789".to_vec()), 1..22)];
    prop::collection::vec((any::<prop::sample::Index>(), 0usize..6, put), 1..4)
}

#[test]
fn every_file_of_the_corpus_loads_as_it_is() {
    assert!(load_trace(0, &corpus("blis.csv")).is_ok());
    for (kind, name) in [(1, "mooncake.jsonl"), (2, "azure.csv"), (3, "burstgpt.csv")] {
        let loaded = load_trace(kind, &corpus(name));
        assert!(loaded.is_ok(), "{name}: {loaded:?}");
    }
    for (kind, name) in SPECS {
        let loaded = load_spec(kind, &corpus(name));
        assert!(loaded.is_ok(), "{name}: {loaded:?}");
    }
}

const TRACES: [(usize, &str); 4] = [(0, "blis.csv"), (1, "mooncake.jsonl"), (2, "azure.csv"), (3, "burstgpt.csv")];

const SPECS: [(usize, &str); 6] = [
    (0, "inference-perf.yaml"),
    (1, "guidellm.json"),
    (2, "servegen-trace.csv"),
    (3, "servegen-dataset.json"),
    (4, "sharegpt.json"),
    (5, "blis-v2.yaml"),
];

fn load_trace(kind: usize, bytes: &[u8]) -> Result<Trace, TraceError> {
    match kind {
        0 => read_blis(&Header::read("t.yaml", &corpus("blis.yaml")).unwrap(), "t.csv", bytes),
        1 => read_mooncake("m.jsonl", bytes, Mooncake { time_unit: TimeUnit::Ms, block_tokens: 512 }),
        2 => read_azure("a.csv", bytes),
        _ => read_burstgpt("b.csv", bytes),
    }
}

fn load_spec(kind: usize, bytes: &[u8]) -> Result<Converted, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let chunk = |trace: &[u8], dataset: &[u8]| [Chunk { name: "c".to_owned(), trace: text(trace), dataset: text(dataset) }];
    let read = match kind {
        0 => read_inference_perf("c.yaml", bytes, 0),
        1 => read_guidellm("g.json", bytes, 0),
        2 => read_servegen(&chunk(bytes, &corpus("servegen-dataset.json"))),
        3 => read_servegen(&chunk(&corpus("servegen-trace.csv"), bytes)),
        4 => read_sharegpt("s.json", bytes, ShareGpt { characters_per_token: 4.0, rate: 1.0 }),
        _ => read_blis_v2("w.yaml", bytes),
    };
    read.map_err(|errors| errors.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_to_a_trace_makes_its_loader_or_its_replay_panic(file in prop::sample::select(TRACES.to_vec()), edits in edits()) {
        let (kind, name) = file;
        use_trace(load_trace(kind, &damaged(corpus(name), &edits)));
    }

    #[test]
    fn no_damage_to_a_header_makes_it_panic(edits in edits()) {
        if let Ok(header) = Header::read("t.yaml", &damaged(corpus("blis.yaml"), &edits)) {
            use_trace(read_blis(&header, "t.csv", corpus("blis.csv").as_slice()));
        }
    }

    #[test]
    fn no_damage_to_a_tools_file_makes_its_reader_or_its_workload_panic(file in prop::sample::select(SPECS.to_vec()), edits in edits()) {
        let (kind, name) = file;
        match load_spec(kind, &damaged(corpus(name), &edits)) {
            Ok(converted) => use_workload(&converted),
            Err(message) => assert!(!message.is_empty()),
        }
    }
}
