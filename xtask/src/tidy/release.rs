//! The release an engine crate models is written in its `upstream.toml` and nowhere else in its sources.
//!
//! "Nowhere" includes comments: they say "the modelled release", and a move to the next one edits one line.

use super::tree::Tree;
use super::views::line_at;
use super::{Check, Finding};

pub(super) const CHECK: Check = Check { name: "release", run: check };

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for pin in tree.files.iter().filter(|file| file.name() == "upstream.toml") {
        let Some(name) = pin.crate_name() else {
            continue;
        };
        let releases: Vec<&str> = pin.text.lines().filter_map(release).collect();
        if releases.is_empty() {
            findings.push(Finding::new(&pin.path, 0, "pins no release: `release = \"...\"`"));
        }
        let folder = format!("crates/{name}/src/");
        for file in tree.rust().filter(|file| file.path.starts_with(&folder)) {
            for release in &releases {
                for (at, _) in file.text.match_indices(release) {
                    let message = format!("`{release}` stands in {} alone; say \"the modelled release\"", pin.path);
                    findings.push(Finding::new(&file.path, line_at(&file.text, at), message));
                }
            }
        }
    }
    findings
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

    fn count(pin: &str, source: &str) -> usize {
        check(&Tree::of(&[("crates/x/upstream.toml", pin), ("crates/x/src/a.rs", source)])).len()
    }

    #[test]
    fn the_release_in_a_source_is_found_in_comments_too() {
        assert_eq!(count("[engine]\nrelease = \"1.2.3\"\n", "// as of 1.2.3\nlet v = \"1.2.3\";\n"), 2);
        assert_eq!(count("[engine]\nrelease = \"1.2.3\"\n", "// the modelled release, not 1.2.2\n"), 0);
    }

    #[test]
    fn a_pin_without_a_release_is_found() {
        assert_eq!(count("[engine]\n", ""), 1);
    }
}
