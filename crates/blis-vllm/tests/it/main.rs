//! The port against traces recorded from upstream's own engine core: every field of every step.

mod allocations;
mod catalog;
mod conformance;
mod dispatch;
mod metrics;
mod rejections;
mod rows;
mod settings;
mod weights;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use blis_vllm::engine::VllmEngine;
use blis_vllm::trace::run;
use blis_vllm::trace::scenario::Scenario;
use flate2::read::GzDecoder;

/// The corpus holds at least so many traces; fewer would mean that it was not found.
const TRACES_MIN: usize = 712;

/// The most lines of a trace that the quick replay takes, and how many such traces there must be.
const SHORT_LINES_MAX: usize = 200;
const SHORT_TRACES_MIN: usize = 150;

fn oracle() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle")
}

fn recorded(path: &Path) -> Vec<String> {
    let mut text = String::new();
    let file = File::open(path).expect("each scenario has a trace");
    GzDecoder::new(file).read_to_string(&mut text).expect("a trace is compressed text");
    text.lines().map(str::to_owned).collect()
}

/// A recorded scenario.
fn scenario(name: &str) -> Scenario {
    let path = oracle().join("scenarios").join(format!("{name}.yaml"));
    Scenario::parse(name, &fs::read(path).expect("a listed file can be read")).expect("a recorded scenario is valid")
}

/// The first line that differs, told so that the reader sees where.
fn difference(expected: &[String], found: &[String]) -> Option<String> {
    let lines = expected.len().max(found.len());
    let line = (0..lines).find(|line| expected.get(*line) != found.get(*line))?;
    let show = |lines: &[String]| lines.get(line).map_or("(nothing)", String::as_str).to_owned();
    Some(format!("line {}\n  upstream: {}\n  port:     {}", line + 1, show(expected), show(found)))
}

/// Which scenarios are replayed.
struct Corpus<'a> {
    /// Chosen by name.
    wants: &'a dyn Fn(&str) -> bool,
    /// The most lines that a trace may have.
    most_lines: usize,
    /// The first difference ends the replay.
    one_difference_suffices: bool,
}

/// Replays the scenarios of a corpus; answers how many there were.
fn replay(corpus: &Corpus<'_>, each_step: &mut dyn FnMut(&VllmEngine)) -> usize {
    let listed = fs::read_dir(oracle().join("scenarios")).expect("there is a folder of scenarios");
    let mut paths: Vec<_> = listed.map(|entry| entry.expect("a folder can be listed").path()).collect();
    paths.sort();
    let mut replayed = 0;
    let mut failures = Vec::new();
    for path in &paths {
        let name = path.file_stem().and_then(OsStr::to_str).expect("scenarios have plain names");
        if !(corpus.wants)(name) {
            continue;
        }
        let expected = recorded(&oracle().join("traces").join(format!("{name}.jsonl.gz")));
        if expected.len() > corpus.most_lines {
            continue;
        }
        replayed += 1;
        match run(&scenario(name), each_step) {
            Ok(found) => failures.extend(difference(&expected, &found).map(|text| format!("{name}: {text}"))),
            Err(error) => failures.push(format!("{name}: {error}")),
        }
        if corpus.one_difference_suffices && !failures.is_empty() {
            break;
        }
    }
    assert!(failures.is_empty(), "{} of {replayed} traces differ\n{}", failures.len(), failures.join("\n"));
    replayed
}

#[test]
fn every_recorded_trace_is_reproduced_field_by_field() {
    let corpus = Corpus { wants: &|_| true, most_lines: usize::MAX, one_difference_suffices: false };
    let replayed = replay(&corpus, &mut |engine| engine.check_invariants());
    assert!(replayed >= TRACES_MIN, "only {replayed} traces");
}

/// The written scenarios whose traces are short: the quick judge of a mutant, which needs no more than a second or two.
#[test]
fn every_short_written_trace_is_reproduced() {
    let corpus = Corpus { wants: &|name| !name.starts_with("random-"), most_lines: SHORT_LINES_MAX, one_difference_suffices: true };
    let replayed = replay(&corpus, &mut |_| ());
    assert!(replayed >= SHORT_TRACES_MIN, "only {replayed} traces");
}
