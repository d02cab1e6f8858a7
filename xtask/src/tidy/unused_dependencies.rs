//! A dependency that no code of its crate names is a build that everyone pays for nothing; nor does the workspace declare the
//! version of a library that no crate takes.

use std::collections::BTreeSet;

use super::manifests::entries;
use super::tree::{File, Tree};
use super::views::words;
use super::{Check, Finding};

pub(super) const CHECK: Check = Check { name: "unused_dependencies", run: check };

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut taken = BTreeSet::new();
    for manifest in tree.files.iter().filter(|file| file.name() == "Cargo.toml") {
        let Some(name) = manifest.crate_name() else { continue };
        let sources: Vec<&str> = tree.rust().filter(|file| file.crate_name() == Some(name)).map(|file| file.views.code.as_str()).collect();
        for (line, library) in dependencies(manifest) {
            taken.insert(library);
            let identifier = library.replace('-', "_");
            if !sources.iter().any(|code| words(code, &identifier).next().is_some()) {
                findings.push(Finding::new(&manifest.path, line, format!("`{library}` is named by no code of the crate")));
            }
        }
    }
    for (line, library) in tree.file("Cargo.toml").map(dependencies).unwrap_or_default() {
        if !taken.contains(library) {
            findings.push(Finding::new("Cargo.toml", line, format!("no crate takes `{library}`")));
        }
    }
    findings
}

/// The libraries that a manifest names, with their lines.
fn dependencies(manifest: &File) -> Vec<(usize, &str)> {
    entries(&manifest.text).iter().filter_map(|entry| Some((entry.line, entry.dependency()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(code: &str) -> Vec<String> {
        let manifest = "[dependencies]\nserde.workspace = true\n[dev-dependencies]\ncov-mark.workspace = true\n";
        let tree = Tree::of(&[("crates/blis-x/Cargo.toml", manifest), ("crates/blis-x/src/lib.rs", code)]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_dependency_named_by_no_code_is_found() {
        assert_eq!(messages("use serde::Serialize; // cov_mark"), ["`cov-mark` is named by no code of the crate"]);
    }

    #[test]
    fn dependencies_named_somewhere_pass() {
        assert_eq!(messages("use serde::Serialize;\nfn a() { cov_mark::hit!(a); }"), [""; 0]);
    }

    #[test]
    fn a_version_declared_for_no_crate_is_found() {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace.dependencies]\nserde = \"1\"\nrand = \"1\"\n"),
            ("crates/blis-x/Cargo.toml", "[dependencies]\nserde.workspace = true\n"),
            ("crates/blis-x/src/lib.rs", "use serde::Serialize;"),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| (finding.line, finding.message)).collect();
        assert_eq!(found, [(3, "no crate takes `rand`".to_owned())]);
    }
}
