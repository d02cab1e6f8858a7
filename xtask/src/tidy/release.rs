//! The release an engine crate models is written in its `upstream.toml` and nowhere else in its sources.
//!
//! "Nowhere" includes comments: they say "the modelled release", and a move to the next one edits one line. The lock of the
//! engine's oracle has to name a release too, so it is compared with the pin.

use super::tree::Tree;
use super::{Check, Finding};
use crate::layers::ENGINES;

pub(super) const CHECK: Check = Check { name: "release", run: check };

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in ENGINES.iter().filter(|name| tree.sources_of(name).next().is_some()) {
        let pin = format!("crates/{name}/upstream.toml");
        let releases: Vec<&str> = tree.file(&pin).map_or("", |file| &file.text).lines().filter_map(release).collect();
        if releases.is_empty() {
            findings.push(Finding::new(&pin, 0, "pins no release: a table with `release = \"...\"`"));
        }
        findings.extend(lock_fault(tree, name, &releases));
        for file in tree.sources_of(name) {
            for (at, release) in releases.iter().flat_map(|release| file.text.match_indices(release)) {
                let message = format!("`{release}` stands in {pin} alone; say \"the modelled release\"");
                findings.push(Finding::at(file, &file.text, at, message));
            }
        }
    }
    findings
}

/// The oracle records the pinned release.
fn lock_fault(tree: &Tree, name: &str, releases: &[&str]) -> Option<Finding> {
    let lock = tree.file(&format!("crates/{name}/oracle/requirements.txt"))?;
    let package = format!("{}==", name.trim_start_matches("blis-"));
    let locked = lock.text.lines().find_map(|line| line.strip_prefix(&package)?.split_whitespace().next());
    let agrees = locked.is_some_and(|locked| releases.contains(&locked));
    (!agrees).then(|| Finding::new(&lock.path, 0, format!("locks {package}{}, not the pinned release", locked.unwrap_or("?"))))
}

/// The value of a line `release = "..."`.
fn release(line: &str) -> Option<&str> {
    let (key, value) = line.split_once('=')?;
    let value = value.trim().strip_prefix('"')?.split('"').next()?;
    (key.trim() == "release" && !value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(files: &[(&str, &str)]) -> usize {
        check(&Tree::of(files)).len()
    }

    const PIN: (&str, &str) = ("crates/blis-vllm/upstream.toml", "[vllm]\nrelease = \"1.2.3\"\n");
    const PATH: &str = "crates/blis-vllm/src/a.rs";

    #[test]
    fn the_release_in_a_source_is_found_in_comments_too() {
        assert_eq!(count(&[PIN, (PATH, "// as of 1.2.3\nlet v = \"1.2.3\";\n")]), 2);
        assert_eq!(count(&[PIN, (PATH, "// the modelled release, not 1.2.2\n")]), 0);
    }

    #[test]
    fn an_oracle_locked_to_another_release_is_found() {
        let lock = "crates/blis-vllm/oracle/requirements.txt";
        assert_eq!(count(&[PIN, (PATH, ""), (lock, "torch==2\nvllm==1.2.3 \\\n")]), 0);
        assert_eq!(count(&[PIN, (PATH, ""), (lock, "vllm==1.2.4\n")]), 1);
        assert_eq!(count(&[PIN, (PATH, ""), (lock, "torch==2\n")]), 1);
    }

    #[test]
    fn an_engine_without_a_pinned_release_is_found() {
        assert_eq!(count(&[(PATH, "")]), 1);
        assert_eq!(count(&[(PIN.0, "[vllm]\n"), (PATH, "")]), 1);
    }
}
