//! Rules on the text of the workspace that the compiler and clippy cannot see.
//!
//! Each rule is a file of this folder: a constant `CHECK` and, beside it, tests that plant its fault. A rule reads a
//! [`tree::Tree`], never the disk, so its tests are small trees in memory. `views` splits a Rust file into code, literals
//! and comments without parsing it. The rules name what they ban, so the files of this folder are exempt from rules on words
//! ([`tree::Tree::spoken`]). An exception stands in a constant of its rule, and an exception no longer needed is a fault:
//! the lists may only shrink.

mod citations;
mod crate_map;
mod documents;
mod effects;
mod engine_names;
mod field_names;
mod float_order;
mod headers;
mod history;
mod invariants;
mod length;
mod machine;
mod manifests;
mod release;
mod sampled_length;
mod snapshots;
mod test_names;
mod tree;
mod unfinished;
mod unused_dependencies;
mod views;

use anyhow::{Result, bail};

use crate::workspace::{Outcome, Workspace};
use tree::{File, Tree};

/// One rule.
#[derive(Debug)]
struct Check {
    name: &'static str,
    run: fn(&Tree) -> Vec<Finding>,
}

/// One place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// Counted from 1; 0 where the whole file is meant.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }

    /// At a position of a view of a file, or of its text.
    fn at(file: &File, view: &str, position: usize, message: impl Into<String>) -> Self {
        Self::new(&file.path, views::line_at(view, position), message)
    }
}

/// Every rule.
const CHECKS: &[Check] = &[
    headers::CHECK,
    length::CHECK,
    unfinished::CHECK,
    history::CHECK,
    test_names::CHECK,
    snapshots::CHECK,
    manifests::CHECK,
    unused_dependencies::CHECK,
    crate_map::CHECK,
    invariants::CHECK,
    citations::CHECK,
    effects::CHECK,
    float_order::CHECK,
    machine::CHECK,
    release::CHECK,
    engine_names::CHECK,
    sampled_length::CHECK,
    field_names::CHECK,
    documents::CHECK,
];

/// Applies every rule to every file that git tracks or would track.
pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    let tree = Tree::load(workspace)?;
    let mut lines = Vec::new();
    for check in CHECKS {
        for Finding { path, line, message } in (check.run)(&tree) {
            lines.push(format!("{path}:{line}: {message} [{}]", check.name));
        }
    }
    if !lines.is_empty() {
        bail!("{} places\n{}", lines.len(), lines.join("\n"));
    }
    let long = length::above_aim(&tree);
    let note = if long.is_empty() { String::new() } else { format!("\nlonger than one would like: {}", long.join(", ")) };
    Ok(Outcome::Passed(format!("{} rules over {} files{note}", CHECKS.len(), tree.files.len())))
}
