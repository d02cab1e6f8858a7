//! What a scrape reads, against the text of upstream's own Prometheus logger (`oracle/metrics.py`).

use std::collections::BTreeMap;
use std::io::Read;

use blis_vllm::trace::metrics;
use flate2::read::GzDecoder;
use serde::Deserialize;

use crate::{difference, scenario};

/// A scrape: the lines that differ from the one before.
#[derive(Debug, Deserialize)]
struct Snapshot {
    /// After so many calls of the step function; none at the end.
    calls: Option<u64>,
    lines: Vec<String>,
}

const RECORDING: &[u8] = include_bytes!("../../oracle/metrics.json.gz");

fn recording() -> BTreeMap<String, Vec<Snapshot>> {
    let mut text = String::new();
    GzDecoder::new(RECORDING).read_to_string(&mut text).expect("a recording is compressed text");
    serde_json::from_str(&text).expect("the recording has the shape of the script that writes it")
}

#[test]
fn every_series_of_every_scrape_is_upstreams() {
    let recording = recording();
    let mut failures = Vec::new();
    for (name, expected) in &recording {
        let calls: Vec<u64> = expected.iter().filter_map(|snapshot| snapshot.calls).collect();
        let found = metrics(&scenario(name), &calls).expect("a recorded scenario runs");
        assert_eq!(found.len(), expected.len(), "{name} has as many scrapes");
        let mut before: Vec<String> = Vec::new();
        for (expected, found) in expected.iter().zip(found) {
            assert_eq!(found.calls, expected.calls, "{name}");
            let changed: Vec<_> = found.lines.iter().filter(|line| !before.contains(line)).cloned().collect();
            failures.extend(difference(&expected.lines, &changed).map(|text| format!("{name} after {:?}: {text}", found.calls)));
            before = found.lines;
        }
    }
    assert!(failures.is_empty(), "{} of the scrapes of {} scenarios differ\n{}", failures.len(), recording.len(), failures.join("\n"));
}

#[test]
fn every_series_that_can_move_does_in_some_recording() {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in recording().into_values().flatten().flat_map(|snapshot| snapshot.lines).filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("a line has a value");
        let name = series.split('{').next().expect("a line has a name").to_owned();
        let seen = values.entry(name).or_default();
        if !seen.contains(&value.to_owned()) {
            seen.push(value.to_owned());
        }
    }
    let still: Vec<_> = values.iter().filter(|(_, seen)| seen.len() < 2).map(|(name, _)| name.as_str()).collect();
    let refused = [
        "vllm:admission_rejections_total",
        "vllm:engine_sleep_state",
        "vllm:estimated_flops_per_gpu_total",
        "vllm:estimated_read_bytes_per_gpu_total",
        "vllm:estimated_write_bytes_per_gpu_total",
        "vllm:external_prefix_cache_hits_total",
        "vllm:external_prefix_cache_queries_total",
        "vllm:mm_cache_hits_total",
        "vllm:mm_cache_queries_total",
    ];
    assert_eq!(still.iter().filter(|name| !refused.contains(name)).count(), 0, "{still:?}");
    assert!(values.len() >= 70, "{} names of lines", values.len());
}
