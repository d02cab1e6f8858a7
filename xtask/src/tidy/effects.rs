//! The crates of layers 0 to 3 take time and inputs and return effects: no files, threads or clocks outside their loaders.

use super::tree::Tree;
use super::views::is_word;
use super::{Check, Finding};
use crate::layers::LAYERS;

pub(super) const CHECK: Check = Check { name: "effects", run: |tree| check(tree, LOADERS) };

/// The highest layer that stays pure.
const LAYER_MAX: u8 = 3;

/// Modules of the standard library that reach outside.
const MODULES: &[&str] = &["fs", "thread", "time"];

/// Files that read what a user names; one that reads nothing any more is a fault.
const LOADERS: &[&str] = &[
    "crates/blis-contracts/src/strict/mod.rs",
    "crates/blis-contracts/src/data.rs",
    "crates/blis-catalog/src/derive/source.rs",
    "crates/blis-vllm/src/bin/vllm-trace.rs",
];

fn check(tree: &Tree, loaders: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = Vec::new();
    for (name, _) in LAYERS.iter().filter(|(_, layer)| *layer <= LAYER_MAX) {
        for file in tree.sources_of(name) {
            let (code, _) = file.shipped();
            let reached = reached(&code);
            if loaders.contains(&file.path.as_str()) {
                used.extend((!reached.is_empty()).then_some(file.path.as_str()));
                continue;
            }
            for (at, module) in reached {
                let message = format!("`std::{module}` in a crate that owns no files, threads or clock");
                findings.push(Finding::at(file, &code, at, message));
            }
        }
    }
    for path in loaders.iter().filter(|path| !used.contains(path)) {
        findings.push(Finding::new(path, 0, "needs to be listed as a loader no longer"));
    }
    findings
}

/// Where the code names one of the modules, by path or in a braced import.
fn reached(code: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (at, prefix) in code.match_indices("std::") {
        let rest = &code[at + prefix.len()..];
        let names = rest.strip_prefix('{').map_or_else(|| vec![first_word(rest)], outermost);
        for module in MODULES.iter().filter(|module| names.contains(module)) {
            found.push((at, *module));
        }
    }
    found
}

fn first_word(text: &str) -> &str {
    let text = text.trim_start();
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

/// The first words of the members of a braced import, from after its opening brace.
fn outermost(members: &str) -> Vec<&str> {
    let mut names = vec![first_word(members)];
    let mut depth = 1;
    for (at, c) in members.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => names.push(first_word(&members[at + 1..])),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/blis-kernel/src/a.rs";

    fn count(path: &str, source: &str) -> usize {
        check(&Tree::of(&[(path, source)]), &[]).len()
    }

    #[test]
    fn files_threads_and_clocks_are_found_however_they_are_imported() {
        for planted in [
            "std::fs::read(p)",
            "use std::thread;",
            "use std::{fmt, time::Duration};",
            "use std::{\n    collections::{BTreeMap, BTreeSet},\n    fs,\n};",
        ] {
            assert_eq!(count(PATH, planted), 1, "{planted}");
        }
    }

    #[test]
    fn other_modules_comments_and_literals_pass() {
        for innocent in ["use std::{fmt, io};", "// std::fs", "\"std::fs\"", "use std::{fmt::{self, time}};"] {
            assert_eq!(count(PATH, innocent), 0, "{innocent}");
        }
    }

    #[test]
    fn tests_and_higher_layers_may_reach_outside() {
        assert_eq!(count("crates/blis-kernel/src/tests.rs", "use std::fs;"), 0);
        assert_eq!(count("crates/blis-kernel/tests/it/main.rs", "use std::fs;"), 0);
        assert_eq!(count(PATH, "#[cfg(test)]\nmod tests { use std::fs; }"), 0);
        assert_eq!(count("crates/blis/src/main.rs", "use std::fs;"), 0);
    }

    #[test]
    fn a_loader_may_read_and_one_that_reads_nothing_is_found() {
        let reads = Tree::of(&[(PATH, "use std::fs;")]);
        assert_eq!(check(&reads, &[PATH]), []);
        let pure = Tree::of(&[(PATH, "use std::fmt;")]);
        assert_eq!(check(&pure, &[PATH]).len(), 1);
    }
}
