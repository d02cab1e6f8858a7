//! SHA-256 in hexadecimal, and the content hash of a set of files.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// The SHA-256 of some bytes, in lower-case hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").expect("text can be written");
    }
    text
}

/// The content hash of files given as (path, bytes): the SHA-256 over one line `<sha256> <path>` for each, sorted by path in byte order.
pub(crate) fn content_hash<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> String {
    let mut lines: Vec<(&str, String)> = files.into_iter().map(|(path, bytes)| (path, sha256_hex(bytes))).collect();
    lines.sort();
    let mut text = String::new();
    for (path, hash) in &lines {
        writeln!(text, "{hash} {path}").expect("text can be written");
    }
    sha256_hex(text.as_bytes())
}
