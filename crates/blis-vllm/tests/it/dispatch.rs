//! The port's choice of graphs and padding against the table that upstream's own dispatch filled (`oracle/dispatch.py`).

use std::fs::File;
use std::io::Read;

use blis_contracts::step::Launch;
use blis_vllm::config::CudagraphMode;
use blis_vllm::cudagraph::{CudaGraphs, Dispatch, RankBatch};
use flate2::read::GzDecoder;
use serde::Deserialize;

use crate::oracle;

/// Everything recorded.
#[derive(Debug, Deserialize)]
struct Recording {
    most_tokens: u32,
    cases: Vec<Case>,
}

/// One configuration.
#[derive(Debug, Deserialize)]
struct Case {
    resolved_mode: String,
    max_num_seqs: u32,
    capture_sizes: Vec<u32>,
    /// By token count from 1: every request decodes.
    decode: Vec<Launched>,
    /// One request with a prompt.
    one_prompt: Vec<Launched>,
    /// As many requests as fit, one of them with a prompt.
    most_requests: Vec<Launched>,
    /// Ranks in lockstep, with how each launches.
    lockstep: Vec<(Vec<Rank>, Vec<Launched>)>,
}

/// Upstream's name of the mode, and the padded tokens.
type Launched = (String, u32);

/// Tokens, requests, and whether they all decode.
type Rank = (u32, u32, bool);

fn recording() -> Recording {
    let mut text = String::new();
    let file = File::open(oracle().join("dispatch.json.gz")).expect("the table is committed");
    GzDecoder::new(file).read_to_string(&mut text).expect("the table is compressed text");
    serde_json::from_str(&text).expect("the table has the shape of the script that writes it")
}

fn written(found: Dispatch) -> Launched {
    let mode = match found.launch {
        Launch::Eager => "NONE",
        Launch::Piecewise => "PIECEWISE",
        Launch::Full => "FULL",
    };
    (mode.to_owned(), found.padded_tokens)
}

impl Case {
    fn graphs(&self) -> CudaGraphs {
        let mode = CudagraphMode::named(&self.resolved_mode).expect("a mode of the port");
        CudaGraphs::new(mode, &self.capture_sizes, self.max_num_seqs)
    }

    fn name(&self) -> String {
        format!("{} with {} sizes and {} requests", self.resolved_mode, self.capture_sizes.len(), self.max_num_seqs)
    }
}

#[test]
fn every_token_count_is_launched_and_padded_as_upstream_does() {
    let recording = recording();
    let mut modes = Vec::new();
    for case in &recording.cases {
        let graphs = case.graphs();
        let same = |recorded: &[Launched], requests: &dyn Fn(u32) -> u32, decode: bool| {
            for (tokens, expected) in (1..).zip(recorded) {
                let found = written(graphs.dispatch(tokens, requests(tokens), decode));
                assert_eq!(found, *expected, "{}: {tokens} tokens of {} requests, decodes {decode}", case.name(), requests(tokens));
            }
        };
        same(&case.decode, &|tokens| tokens, true);
        same(&case.one_prompt, &|_| 1, false);
        same(&case.most_requests, &|tokens| tokens.min(case.max_num_seqs), false);
        modes.extend(case.one_prompt.iter().chain(&case.decode).map(|(mode, _)| mode.clone()));
    }
    let longest = recording.cases.iter().map(|case| case.one_prompt.len()).max();
    assert_eq!(longest, Some(recording.most_tokens as usize), "every count up to the stated one was asked for");
    modes.sort();
    modes.dedup();
    assert_eq!(modes, ["FULL", "NONE", "PIECEWISE"], "the table could tell the modes apart");
}

#[test]
fn ranks_in_lockstep_agree_as_upstream_s_do() {
    let mut padded = 0;
    for case in &recording().cases {
        let graphs = case.graphs();
        for (ranks, expected) in &case.lockstep {
            let batches: Vec<RankBatch> =
                ranks.iter().map(|&(tokens, requests, uniform_decode)| RankBatch { tokens, requests, uniform_decode }).collect();
            let found: Vec<Launched> = graphs.agree(&batches).into_iter().map(written).collect();
            assert_eq!(found, *expected, "{}: {ranks:?}", case.name());
            padded += usize::from(ranks.iter().zip(expected).any(|(rank, launched)| rank.0 < launched.1));
        }
    }
    assert!(padded > 1_000, "only {padded} steps were padded");
}
