//! Embeds the registry: every data file as the strict reader understands it, and the content hash of the files as they lie.
//!
//! A file is embedded as one line of JSON with the same values, which a run decodes at a small part of the cost of its YAML. A file that
//! the strict reader refuses fails the build; what its values mean is judged by whoever reads them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

// The files of the contracts included below hash and read with these.
use {indexmap as _, saphyr_parser as _, serde as _, sha2 as _, strsim as _, thiserror as _};

#[path = "../blis-contracts/src/data.rs"]
#[expect(dead_code, unreachable_pub, reason = "the library of contracts shares this file")]
mod data;
#[path = "src/patterns.rs"]
mod patterns;
#[path = "../blis-contracts/src/strict/mod.rs"]
#[expect(dead_code, unreachable_pub, unused_imports, reason = "the library of contracts shares these files")]
mod strict;

fn main() {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("../../registry");
    let root = root.canonicalize().expect("the registry lies beside the crates");
    println!("cargo::rerun-if-changed={}", root.display());
    let found = data::read_tree(&root, patterns::PATTERNS).unwrap_or_else(|refused| panic!("{}: {}", refused.path, refused.reason));
    let mut code = String::from("pub(crate) const FILES: &[(&str, &str)] = &[\n");
    for (path, text) in &found {
        let read = strict::Document::parse(format!("registry/{path}"), text.as_bytes(), strict::LineEndings::Lf);
        let document = read.unwrap_or_else(|error| panic!("{error}"));
        writeln!(code, "    ({path:?}, {:?}),", document.to_json()).expect("text can be written");
    }
    let hash = data::content_hash(found.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    writeln!(code, "];\npub(crate) const CONTENT_HASH: &str = {hash:?};").expect("text can be written");
    fs::write(Path::new(&variable("OUT_DIR")).join("embedded.rs"), code).expect("the build directory can be written");
}

#[expect(clippy::disallowed_methods, reason = "cargo hands a build script its paths in environment variables")]
fn variable(name: &str) -> String {
    env::var(name).expect("cargo sets its variables for a build script")
}
