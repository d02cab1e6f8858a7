//! The port against traces recorded from upstream's own engine core: every field of every step.

mod allocations;
mod conformance;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use blis_vllm::trace::run;
use blis_vllm::trace::scenario::Scenario;
use flate2::read::GzDecoder;

/// The corpus holds at least so many traces; fewer would mean that it was not found.
const TRACES_MIN: usize = 365;

fn oracle() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle")
}

fn recorded(path: &Path) -> Vec<String> {
    let mut text = String::new();
    let file = File::open(path).expect("each scenario has a trace");
    GzDecoder::new(file).read_to_string(&mut text).expect("a trace is compressed text");
    text.lines().map(str::to_owned).collect()
}

/// The first line that differs, told so that the reader sees where.
fn difference(expected: &[String], found: &[String]) -> Option<String> {
    let lines = expected.len().max(found.len());
    let line = (0..lines).find(|line| expected.get(*line) != found.get(*line))?;
    let show = |lines: &[String]| lines.get(line).map_or("(nothing)", String::as_str).to_owned();
    Some(format!("line {}\n  upstream: {}\n  port:     {}", line + 1, show(expected), show(found)))
}

#[test]
fn every_recorded_trace_is_reproduced_field_by_field() {
    let mut paths: Vec<_> = fs::read_dir(oracle().join("scenarios")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut failures = Vec::new();
    for path in &paths {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let scenario = Scenario::parse(name, &fs::read(path).unwrap()).unwrap();
        let expected = recorded(&oracle().join("traces").join(format!("{name}.jsonl.gz")));
        let found = run(&scenario, &mut |engine| engine.check_invariants());
        match found {
            Ok(found) => failures.extend(difference(&expected, &found).map(|text| format!("{name}: {text}"))),
            Err(error) => failures.push(format!("{name}: {error}")),
        }
    }
    assert!(paths.len() >= TRACES_MIN, "only {} traces", paths.len());
    assert!(failures.is_empty(), "{} of {} traces differ\n{}", failures.len(), paths.len(), failures.join("\n"));
}
