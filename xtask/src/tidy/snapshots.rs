//! Every committed snapshot belongs to a test that is still there, and none is waiting for review.

use super::tree::Tree;
use super::{Check, Finding};

pub(super) const CHECK: Check = Check { name: "snapshots", run: check };

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        if file.path.ends_with(".snap.new") || file.path.ends_with(".pending-snap") {
            findings.push(Finding::new(&file.path, 0, "a snapshot that nobody has accepted or refused"));
        } else if file.has_extension("snap") {
            let source = file.text.lines().find_map(|line| line.strip_prefix("source: "));
            let Some(source) = source.map(|source| source.trim_matches('"')) else {
                findings.push(Finding::new(&file.path, 1, "names no `source:`; let insta write it"));
                continue;
            };
            if tree.file(source).is_none() {
                findings.push(Finding::new(&file.path, 1, format!("its source `{source}` is gone")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_of_a_source_that_is_there_passes() {
        let tree = Tree::of(&[("a.rs", "//! A.\n"), ("snapshots/a.snap", "---\nsource: a.rs\n---\nx\n")]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn orphans_and_pending_snapshots_are_found() {
        let tree = Tree::of(&[("a.snap", "---\nsource: gone.rs\n---\nx\n"), ("b.snap", "x\n"), ("c.snap.new", "---\nsource: c.rs\n---\n")]);
        assert_eq!(check(&tree).len(), 3);
    }
}
