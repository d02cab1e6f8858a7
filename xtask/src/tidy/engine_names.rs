//! The crates that serve every engine know none by name: what differs between engines arrives in the plan.
//!
//! Identifiers and literals are looked at, not comments: a comment may cite an engine as an example. Tests may name one.

use super::tree::Tree;
use super::{Check, Finding};
use crate::layers::ENGINES;

pub(super) const CHECK: Check = Check { name: "engine_names", run: check };

const CRATES: &[&str] = &["blis-contracts", "blis-kernel", "blis-catalog", "blis-registry"];

/// Names of kernel libraries that contain an engine's name. May only shrink.
const LIBRARIES: &[&str] = &["vllm-csrc", "vllmcsrc", "vllm_csrc"];

fn check(tree: &Tree) -> Vec<Finding> {
    let engines: Vec<&str> = ENGINES.iter().map(|name| name.trim_start_matches("blis-")).collect();
    let mut findings = Vec::new();
    for file in CRATES.iter().flat_map(|name| tree.sources_of(name)) {
        let (code, literals) = file.shipped();
        for view in [code, literals] {
            let view = view.to_ascii_lowercase();
            for (at, engine) in engines.iter().flat_map(|engine| view.match_indices(engine)) {
                if !LIBRARIES.iter().any(|library| view[at..].starts_with(library)) {
                    let message = format!("`{engine}` in a crate that must not know which engine it serves");
                    findings.push(Finding::at(file, &view, at, message));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, source: &str) -> usize {
        check(&Tree::of(&[(path, source)])).len()
    }

    #[test]
    fn an_engine_in_an_identifier_or_a_literal_is_found() {
        assert_eq!(count("crates/blis-kernel/src/a.rs", "enum Kind { Vllm }\nlet k = \"sglang\";\n"), 2);
    }

    #[test]
    fn comments_tests_libraries_and_other_crates_pass() {
        let innocent = "// as vLLM does: vllm\nlet l = \"vllm-csrc\";\n#[cfg(test)]\nmod tests { const E: &str = \"vllm\"; }\n";
        assert_eq!(count("crates/blis-kernel/src/a.rs", innocent), 0);
        assert_eq!(count("crates/blis-vllm/src/a.rs", "struct Vllm;"), 0);
    }
}
