//! A ported file cites its source once, and the repository it names is pinned in an `upstream.toml`.
//!
//! A citation is a comment line `upstream: REPO PATH` or `upstream: REPO PATH::FUNCTION`; REPO is a table of an `upstream.toml`.

use std::collections::BTreeSet;

use super::tree::Tree;
use super::{Check, Finding};

pub(super) const CHECK: Check = Check { name: "citations", run: check };

fn check(tree: &Tree) -> Vec<Finding> {
    let pins = tree.files.iter().filter(|file| file.name() == "upstream.toml");
    let repositories: BTreeSet<&str> = pins.flat_map(|file| tables(&file.text)).collect();
    let mut findings = Vec::new();
    for file in tree.rust() {
        for (index, line) in file.views.comments.lines().enumerate() {
            let words = line.trim().trim_start_matches(['/', '!', '*']).trim_start();
            let Some(citation) = words.strip_prefix("upstream:") else {
                continue;
            };
            let mut fault = |message: String| findings.push(Finding::new(&file.path, index + 1, message));
            let mut words = citation.split_whitespace().map(|word| word.trim_matches(['`', ',']));
            let repository = words.next().unwrap_or_default();
            if !repositories.contains(repository) {
                fault(format!("cites `{repository}`, which no upstream.toml pins"));
            }
            if !words.next().is_some_and(|path| path.contains(['/', '.'])) {
                fault("cites no path: `upstream: REPO PATH::FUNCTION`".to_owned());
            }
        }
    }
    findings
}

/// The tables of a TOML file.
fn tables(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim().strip_prefix('[')?.strip_suffix(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(source: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/x/upstream.toml", "[engine]\nrelease = \"1\"\n"), ("crates/x/src/a.rs", source)]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_citation_of_a_pinned_repository_passes() {
        assert_eq!(messages("//! Ports.\n//! upstream: engine core/pool.py::Pool.free\n"), [""; 0]);
        assert_eq!(messages("// what upstream: says\n"), [""; 0]);
    }

    #[test]
    fn a_repository_not_pinned_is_found() {
        assert_eq!(messages("//! upstream: other core/pool.py\n").len(), 1);
    }

    #[test]
    fn a_citation_without_a_path_is_found() {
        assert_eq!(messages("//! upstream: engine scheduler\n").len(), 1);
    }
}
