//! An engine's settings are spelt once, in the generated table; other code names a setting by its variant.
//!
//! A name of one word may be an ordinary word elsewhere, so only names of several words are looked for.

use std::collections::BTreeSet;

use super::tree::Tree;
use super::{Check, Finding};

pub(super) const CHECK: Check = Check { name: "field_names", run: check };

/// The generated table of the vLLM port and the crate it serves.
const TABLE: &str = "crates/blis-vllm/src/config/setting.rs";
const CRATE: &str = "blis-vllm";

fn check(tree: &Tree) -> Vec<Finding> {
    let Some(table) = tree.file(TABLE) else {
        let orphan = tree.sources_of(CRATE).next();
        return orphan.map(|_| Finding::new(TABLE, 0, "the table of settings is gone")).into_iter().collect();
    };
    let names: BTreeSet<&str> = strings(&table.views.literals).map(|(_, name)| name).filter(|name| name.contains(['_', '.'])).collect();
    let mut findings = Vec::new();
    for file in tree.sources_of(CRATE).filter(|file| file.path != TABLE) {
        let (_, literals) = file.shipped();
        for (at, name) in strings(&literals).filter(|(_, name)| names.contains(name)) {
            let message = format!("`{name}` is spelt in {TABLE}; name it by its variant");
            findings.push(Finding::at(file, &literals, at, message));
        }
    }
    findings
}

/// The plain strings of a view of literals, with their positions.
fn strings(literals: &str) -> impl Iterator<Item = (usize, &str)> {
    literals.match_indices('"').step_by(2).filter_map(|(at, _)| {
        let inner = &literals[at + 1..];
        Some((at, &inner[..inner.find('"')?]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(source: &str) -> usize {
        let table = "const KEYS: &[&str] = &[\"seed\", \"max_num_seqs\", \"kernel_config.moe_backend\"];";
        check(&Tree::of(&[(TABLE, table), ("crates/blis-vllm/src/a.rs", source)])).len()
    }

    #[test]
    fn a_setting_spelt_outside_the_table_is_found() {
        assert_eq!(count("let a = \"max_num_seqs\"; let b = \"kernel_config.moe_backend\";"), 2);
    }

    #[test]
    fn ordinary_words_sentences_and_tests_pass() {
        assert_eq!(count("let a = \"seed\"; let b = \"set max_num_seqs\"; // \"max_num_seqs\""), 0);
        assert_eq!(count("#[cfg(test)]\nmod tests { const A: &str = \"max_num_seqs\"; }"), 0);
    }

    #[test]
    fn a_table_that_moved_is_found() {
        assert_eq!(check(&Tree::of(&[("crates/blis-vllm/src/a.rs", "")])).len(), 1);
    }
}
