//! Embeds the registry: every data file, and the content hash.

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
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("../../registry");
    let root = root.canonicalize().expect("the registry lies beside the crates");
    println!("cargo::rerun-if-changed={}", root.display());
    println!("cargo::rerun-if-changed=../blis-contracts/src/data.rs");
    println!("cargo::rerun-if-changed=src/patterns.rs");
    let found =
        data::read_tree(&root, patterns::PATTERNS).unwrap_or_else(|refused| panic!("registry/{}: {}", refused.path, refused.reason));
    let mut code = String::from("pub(crate) const FILES: &[(&str, &str)] = &[\n");
    for (path, _) in &found {
        let absolute = root.join(path).display().to_string();
        writeln!(code, "    ({path:?}, include_str!({absolute:?})),").expect("text can be written");
    }
    let hash = data::content_hash(found.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    writeln!(code, "];\npub(crate) const CONTENT_HASH: &str = {hash:?};").expect("text can be written");
    fs::write(Path::new(&variable("OUT_DIR")).join("embedded.rs"), code).expect("the build directory can be written");
}

#[expect(clippy::disallowed_methods, reason = "cargo hands a build script its paths in environment variables")]
fn variable(name: &str) -> String {
    env::var(name).expect("cargo sets its variables for a build script")
}
