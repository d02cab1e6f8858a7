//! Embeds the catalog: every data file, the names each model answers to, and the content hash.
//!
//! The rules on which files are data are the loader's own (`src/patterns.rs`). The names are read from the lines in which the deriver
//! writes them; a test holds them against the parsed graphs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

// The file of the contracts included below hashes with it.
use sha2 as _;

#[path = "../blis-contracts/src/data.rs"]
#[expect(dead_code, unreachable_pub, reason = "the library of contracts shares this file")]
mod data;
#[path = "src/patterns.rs"]
mod patterns;

fn main() {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let root = manifest.join("../../catalog").canonicalize().expect("the catalog lies beside the crates");
    println!("cargo::rerun-if-changed={}", root.display());
    println!("cargo::rerun-if-changed=../blis-contracts/src/data.rs");
    println!("cargo::rerun-if-changed=src/patterns.rs");
    let found = data::read_tree(&root, patterns::PATTERNS).unwrap_or_else(|refused| panic!("{}: {}", refused.path, refused.reason));
    let code = generate(&root, &found);
    fs::write(Path::new(&variable("OUT_DIR")).join("embedded.rs"), code).expect("the build directory can be written");
}

#[expect(clippy::disallowed_methods, reason = "cargo hands a build script its paths in environment variables")]
fn variable(name: &str) -> String {
    env::var(name).expect("cargo sets its variables for a build script")
}

fn generate(root: &Path, found: &[data::DataFile]) -> String {
    let mut code = String::from("pub(crate) const FILES: &[(&str, &str)] = &[\n");
    for (path, _) in found {
        let absolute = root.join(path).display().to_string();
        writeln!(code, "    ({path:?}, include_str!({absolute:?})),").expect("text can be written");
    }
    code.push_str("];\npub(crate) const NAMES: &[(&str, &str)] = &[\n");
    for (path, text) in found.iter().filter(|(path, _)| path.ends_with(patterns::GRAPH)) {
        for name in names(text) {
            writeln!(code, "    ({name:?}, {path:?}),").expect("text can be written");
        }
    }
    let hash = data::content_hash(found.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    writeln!(code, "];\npub(crate) const CONTENT_HASH: &str = {hash:?};").expect("text can be written");
    code
}

/// The name and the aliases of a graph, from the lines the deriver writes them in: a list on one line or one name a line.
fn names(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut lines = text.lines().skip_while(|line| !line.starts_with("name: "));
    names.extend(lines.next().and_then(|line| line.strip_prefix("name: ")));
    if let Some(list) = lines.next().and_then(|line| line.strip_prefix("aliases:")) {
        let inline = list.trim().trim_start_matches('[').trim_end_matches(']');
        names.extend(inline.split(", ").filter(|name| !name.is_empty()));
        names.extend(lines.map_while(|line| line.strip_prefix("  - ")));
    }
    names
}
