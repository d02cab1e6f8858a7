//! An invariant in ARCHITECTURE.md is one that a test of this repository keeps.
//!
//! An entry is one line: "- **INV-n** statement. Asserted in `path`. Tested by `name`, `name`."

use std::collections::BTreeSet;

use super::tree::Tree;
use super::{Check, Finding, test_names};

pub(super) const CHECK: Check = Check { name: "invariants", run: check };

const MAP: &str = "ARCHITECTURE.md";

fn check(tree: &Tree) -> Vec<Finding> {
    let tests: BTreeSet<String> = tree.rust().flat_map(test_names::tests_of).map(|(_, name)| name).collect();
    let map = tree.file(MAP).map_or("", |file| &file.text);
    let mut findings = Vec::new();
    let mut expected = 1;
    for (index, line) in map.lines().enumerate() {
        let Some(entry) = line.strip_prefix("- **INV-") else {
            continue;
        };
        let mut fault = |message: String| findings.push(Finding::new(MAP, index + 1, message));
        if !entry.starts_with(&format!("{expected}**")) {
            fault(format!("the next invariant is INV-{expected}"));
        }
        expected += 1;
        let Some((before, tested)) = entry.split_once("Tested by ") else {
            fault("names no test: end with \"Tested by `name`.\"".to_owned());
            continue;
        };
        for path in quoted(before.split_once("Asserted in ").map_or("", |(_, after)| after)) {
            if tree.file(path).is_none() {
                fault(format!("is asserted in `{path}`, which is no file"));
            }
        }
        let names = quoted(tested);
        if names.is_empty() {
            fault("names no test between backticks".to_owned());
        }
        for name in names.into_iter().filter(|name| !tests.contains(*name)) {
            fault(format!("no test is called `{name}`"));
        }
    }
    findings
}

/// What stands between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(map: &str) -> Vec<String> {
        let tree = Tree::of(&[("ARCHITECTURE.md", map), ("a.rs", "#[test]\nfn time_never_runs_back() {}\nfn helper() {}\n")]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn an_invariant_with_its_test_passes() {
        let map = "- **INV-1** Time moves on. Asserted in `a.rs`. Tested by `time_never_runs_back`.";
        assert_eq!(messages(map), [""; 0]);
    }

    #[test]
    fn an_invariant_without_a_test_is_found() {
        assert_eq!(messages("- **INV-1** Time moves on.").len(), 1);
        assert_eq!(messages("- **INV-1** Time moves on. Tested by care.").len(), 1);
    }

    #[test]
    fn a_test_that_does_not_exist_or_is_no_test_is_found() {
        assert_eq!(messages("- **INV-1** x. Tested by `gone`, `helper`.").len(), 2);
    }

    #[test]
    fn a_file_that_does_not_exist_is_found() {
        assert_eq!(messages("- **INV-1** x. Asserted in `b.rs`. Tested by `time_never_runs_back`.").len(), 1);
    }

    #[test]
    fn a_number_out_of_turn_is_found() {
        assert_eq!(messages("- **INV-2** x. Tested by `time_never_runs_back`."), ["the next invariant is INV-1"]);
    }
}
