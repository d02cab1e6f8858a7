//! The files a rule reads: paths relative to the root, with their text.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::views::Views;
use crate::workspace::{Workspace, capture};

/// Fewer files than this means that the listing went wrong.
const FILES_MIN: usize = 20;

/// The text files of the workspace, in the order of their paths.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) files: Vec<File>,
}

/// One text file.
#[derive(Debug)]
pub(super) struct File {
    /// Relative to the root, with forward slashes.
    pub(super) path: String,
    pub(super) text: String,
    /// Code, literals and comments apart; empty unless the file is Rust.
    pub(super) views: Views,
}

impl Tree {
    /// Reads what git tracks, and what it would track; files that are not UTF-8 hold nothing the rules are about.
    pub(super) fn load(workspace: &Workspace) -> Result<Self> {
        let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let listing = capture(&mut workspace.command("git", &arguments)).context("tidy asks git for the files")?;
        let listing = String::from_utf8(listing).context("a path is not UTF-8")?;
        let mut paths: Vec<&str> = listing.split_terminator('\0').collect();
        paths.sort_unstable();
        paths.dedup();
        let mut files = Vec::new();
        for path in paths {
            let full = workspace.root.join(path);
            if !full.is_file() {
                continue;
            }
            let bytes = std::fs::read(&full).with_context(|| format!("cannot read {path}"))?;
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(File::new(path, text));
            }
        }
        if files.len() < FILES_MIN {
            bail!("only {} files found, at least {FILES_MIN} expected", files.len());
        }
        Ok(Self { files })
    }

    /// A tree in memory, for the tests of the rules.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| File::new(path, (*text).to_owned())).collect() }
    }

    /// One file by its path.
    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Every Rust file.
    pub(super) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.has_extension("rs"))
    }

    /// Every file but the rules themselves, which have to name the words they ban.
    pub(super) fn spoken(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| !file.path.starts_with("xtask/src/tidy/"))
    }

    /// The Rust files of a crate's library or program: no integration tests, benches or build script.
    pub(super) fn sources_of(&self, name: &str) -> impl Iterator<Item = &File> {
        let folder = format!("crates/{name}/src/");
        self.rust().filter(move |file| file.path.starts_with(&folder))
    }
}

impl File {
    fn new(path: &str, text: String) -> Self {
        let rust = Path::new(path).extension().is_some_and(|extension| extension == "rs");
        let views = if rust { Views::of(&text) } else { Views::default() };
        Self { path: path.to_owned(), text, views }
    }

    pub(super) fn has_extension(&self, wanted: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == wanted)
    }

    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The folder's name for `crates/NAME/...`, and `xtask` for the gate.
    pub(super) fn crate_name(&self) -> Option<&str> {
        let mut parts = self.path.split('/');
        match parts.next() {
            Some("crates") => parts.next(),
            Some("xtask") => Some("xtask"),
            Some(_) | None => None,
        }
    }

    /// Code and literals that end up in the crate; both empty for a file of tests.
    pub(super) fn shipped(&self) -> (String, String) {
        if self.is_test() { (String::new(), String::new()) } else { self.views.shipped() }
    }

    /// Whether the whole file is test code.
    fn is_test(&self) -> bool {
        self.name() == "tests.rs" || self.path.contains("/tests/")
    }
}
