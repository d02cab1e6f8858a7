//! Every manifest inherits the workspace's lints, a crate is called like its folder, and some libraries have few users.

use super::tree::{File, Tree};
use super::{Check, Finding};

pub(super) const CHECK: Check = Check { name: "manifests", run: check };

/// Libraries that only the crates named may depend on, with the reason.
const RESERVED: &[(&str, &[&str], &str)] = &[
    ("anyhow", &["xtask"], "a library's errors are an enum that a caller can match"),
    ("miette", &[], "it brings sixty crates; annotate-snippets draws the same"),
    ("annotate-snippets", &["blis"], "crates return spans as data; only the command line draws them"),
    ("clap", &["blis"], "arguments are parsed at the edge"),
    ("tokio", &["blis-serve"], "the simulator owns its time; nothing below the live server may wait"),
    ("parquet", &["blis-report"], "it doubles the build of whoever takes it"),
    ("rand_distr", &[], "its draws change between releases; the samplers are ours"),
];

fn check(tree: &Tree) -> Vec<Finding> {
    let members = tree.files.iter().filter(|file| file.name() == "Cargo.toml" && file.crate_name().is_some());
    members.flat_map(check_member).collect()
}

fn check_member(file: &File) -> Vec<Finding> {
    let folder = file.crate_name().unwrap_or_default();
    let entries = entries(&file.text);
    let value_of =
        |section: &str, key: &str| entries.iter().find(|entry| entry.section == section && entry.key == key).map(|entry| entry.value);
    let mut findings = Vec::new();
    if value_of("lints", "workspace") != Some("true") {
        findings.push(Finding::new(&file.path, 0, "does not inherit the lints: `[lints]` with `workspace = true`"));
    }
    let name = value_of("package", "name").unwrap_or_default().trim_matches('"');
    if name != folder {
        findings.push(Finding::new(&file.path, 0, format!("the crate `{name}` lies in the folder `{folder}`")));
    }
    for entry in &entries {
        let Some(library) = entry.dependency() else {
            continue;
        };
        let reserved = RESERVED.iter().find(|(reserved, ..)| *reserved == library);
        if let Some((_, users, why)) = reserved.filter(|(_, users, _)| !users.contains(&folder)) {
            let allowed = if users.is_empty() { "no crate".to_owned() } else { users.join(", ") };
            let message = format!("`{library}` is for {allowed}: {why}");
            findings.push(Finding::new(&file.path, entry.line, message));
        }
    }
    findings
}

/// One line `key = value` of a manifest under its section.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) line: usize,
    section: &'a str,
    key: &'a str,
    value: &'a str,
}

impl<'a> Entry<'a> {
    /// The library that the line, or its section, makes the crate depend on.
    pub(super) fn dependency(&self) -> Option<&'a str> {
        let (table, named) = match self.section.rsplit_once("dependencies") {
            Some((_, "")) => (true, self.key.split('.').next()),
            Some((_, rest)) => (true, rest.strip_prefix('.')),
            None => (false, None),
        };
        named.filter(|_| table).map(|name| name.trim_matches('"'))
    }
}

/// The lines of a manifest that assign something; enough of TOML for manifests as this workspace writes them.
pub(super) fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut section = "";
    let mut entries = Vec::new();
    for (index, line) in text.lines().map(str::trim).enumerate() {
        if let Some(header) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = header;
        } else if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            entries.push(Entry { line: index + 1, section, key: key.trim(), value: value.trim() });
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"blis-x\"\n[lints]\nworkspace = true\n[dependencies]\nserde.workspace = true\n";

    fn messages(manifest: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/blis-x/Cargo.toml", manifest)]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_manifest_as_it_should_be_passes() {
        assert_eq!(messages(GOOD), [""; 0]);
    }

    #[test]
    fn lints_not_inherited_are_found() {
        assert!(messages(&GOOD.replace("[lints]", "[lints.rust]"))[0].contains("does not inherit"));
    }

    #[test]
    fn a_crate_in_a_folder_of_another_name_is_found() {
        assert!(messages(&GOOD.replace("blis-x", "blis-y"))[0].contains("`blis-y` lies in the folder `blis-x`"));
    }

    #[test]
    fn a_reserved_library_is_found_however_it_is_written() {
        for planted in [
            "anyhow = \"1\"",
            "anyhow.workspace = true",
            "[dev-dependencies]\nanyhow = { workspace = true }",
            "[dependencies.anyhow]\nversion = \"1\"",
            "[target.'cfg(unix)'.dependencies]\nanyhow = \"1\"",
        ] {
            let found = messages(&format!("{GOOD}{planted}\n"));
            assert_eq!(found.len(), 1, "{planted}: {found:?}");
        }
    }
}
