//! Nobody looks into the future: how long a request's output will be is read at one place of each engine, its stop check.
//!
//! A scheduler or router that could read it would decide by what no real one knows.

use super::tree::Tree;
use super::{Check, Finding};
use crate::layers::ENGINES;

pub(super) const CHECK: Check = Check { name: "sampled_length", run: check };

/// The call of the accessor in `blis-contracts`.
const CALL: &str = ".output_length_for_stop_check(";

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut calls = Vec::new();
    for file in tree.spoken().filter(|file| file.path.starts_with("crates/")) {
        let Some(name) = file.crate_name() else { continue };
        let (code, _) = file.shipped();
        for (at, _) in code.match_indices(CALL) {
            let fault = if !ENGINES.contains(&name) {
                "is for an engine's stop check alone"
            } else if calls.contains(&name) {
                "is read a second time in this engine"
            } else {
                calls.push(name);
                continue;
            };
            findings.push(Finding::at(file, &code, at, format!("`{CALL})` {fault}")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(files: &[(&str, &str)]) -> usize {
        check(&Tree::of(files)).len()
    }

    const READ: &str = "let n = r.output_length_for_stop_check();\n";

    #[test]
    fn one_place_of_each_engine_may_read_it() {
        assert_eq!(count(&[("crates/blis-vllm/src/stop.rs", READ), ("crates/blis-sglang/src/stop.rs", READ)]), 0);
        assert_eq!(count(&[("crates/blis-vllm/src/queue.rs", READ), ("crates/blis-vllm/src/stop.rs", READ)]), 1);
    }

    #[test]
    fn no_other_crate_may_and_tests_may() {
        assert_eq!(count(&[("crates/blis-sim/src/a.rs", READ)]), 1);
        assert_eq!(count(&[("crates/blis-sim/src/a/tests.rs", READ)]), 0);
    }
}
