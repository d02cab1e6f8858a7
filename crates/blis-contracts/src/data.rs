//! Trees of data files: which files count, reading them by one set of rules, and their content hash.
//!
//! Catalog and registry are such trees. A path, an overlay and the copy embedded at build time are read by these functions alone:
//! build scripts include this file. A file that matches no pattern, a symbolic link, a carriage return, a file larger than a
//! document may be and two paths that differ only in case are refused, because each would make the data mean something else
//! somewhere; so is a tree without data, which nobody means. Left out: what the files hold.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

/// The largest data file, in bytes; the same as the largest document.
const MOST_BYTES: u64 = 16 << 20;

/// A data file: its path relative to the root, with forward slashes, and its text.
pub type DataFile = (String, String);

/// What a path within a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A directory that holds data.
    Directory,
    /// A data file.
    Data,
    /// Neither data nor mistaken for it.
    Ignored,
}

/// A file that is refused, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The path as the root leads to it, or the root itself.
    pub path: String,
    /// Why it is refused.
    pub reason: String,
}

impl Refused {
    fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into() }
    }
}

/// The rules of one kind of tree.
#[derive(Debug, Clone, Copy)]
pub struct Patterns {
    /// What a relative path is, given whether it is a directory; `None` where nothing matches and the file is refused.
    pub classify: fn(&str, bool) -> Option<Role>,
    /// The patterns in words, for the refusal.
    pub described: &'static str,
}

/// Reads every data file below a root, sorted by path in byte order.
pub fn read_tree(root: &Path, patterns: Patterns) -> Result<Vec<DataFile>, Refused> {
    if !root.is_dir() {
        return Err(Refused::new(root.display().to_string(), "not a directory"));
    }
    below(root, patterns).map_err(|refused| Refused { path: root.join(&refused.path).display().to_string(), ..refused })
}

fn below(root: &Path, patterns: Patterns) -> Result<Vec<DataFile>, Refused> {
    let mut files = Vec::new();
    walk(root, "", patterns, &mut files)?;
    if files.is_empty() {
        return Err(Refused::new("", format!("has no data ({})", patterns.described)));
    }
    files.sort();
    let mut folded: Vec<(String, &str)> = files.iter().map(|(path, _)| (path.to_lowercase(), path.as_str())).collect();
    folded.sort();
    match folded.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(Refused::new(pair[1].1, format!("differs from {} only in case", pair[0].1))),
        None => Ok(files),
    }
}

fn walk(root: &Path, directory: &str, patterns: Patterns, files: &mut Vec<DataFile>) -> Result<(), Refused> {
    let unreadable = |path: &str, error: &std::io::Error| Refused::new(path, format!("cannot be read: {error}"));
    for item in fs::read_dir(root.join(directory)).map_err(|error| unreadable(directory, &error))? {
        let item = item.map_err(|error| unreadable(directory, &error))?;
        let name = item.file_name().to_string_lossy().into_owned();
        let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
        let kind = item.file_type().map_err(|error| unreadable(&path, &error))?;
        if kind.is_symlink() {
            return Err(Refused::new(path, "a symbolic link; data are plain files"));
        }
        match (patterns.classify)(&path, kind.is_dir()) {
            Some(Role::Directory) => walk(root, &path, patterns, files)?,
            Some(Role::Ignored) => {}
            Some(Role::Data) => {
                let text = read_text(&root.join(&path)).map_err(|reason| Refused::new(path.clone(), reason))?;
                files.push((path, text));
            }
            None => return Err(Refused::new(path, format!("matches no pattern of data ({})", patterns.described))),
        }
    }
    Ok(())
}

fn read_text(path: &Path) -> Result<String, String> {
    let size = fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?.len();
    if size > MOST_BYTES {
        return Err(format!("{size} bytes, more than the {MOST_BYTES} a document may have"));
    }
    let bytes = fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    if text.contains('\r') {
        return Err("contains a carriage return; data end their lines with a line feed alone".to_owned());
    }
    Ok(text)
}

/// The SHA-256 of some bytes, in lower-case hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = |byte: u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    Sha256::digest(bytes).iter().flat_map(|&byte| digits(byte)).map(char::from).collect()
}

/// The content hash of files given as (path, text): the SHA-256 over one line `<sha256> <path>` for each, sorted by path in byte order.
pub fn content_hash<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut lines: Vec<(&str, String)> = files.into_iter().map(|(path, text)| (path, sha256_hex(text.as_bytes()))).collect();
    lines.sort();
    let lines: Vec<String> = lines.iter().map(|(path, hash)| format!("{hash} {path}\n")).collect();
    sha256_hex(lines.concat().as_bytes())
}

/// One hash of a base and the overlays applied to it, in order: the base's own where there are none.
pub fn combined_hash(base: &str, overlays: &[String]) -> String {
    if overlays.is_empty() {
        return base.to_owned();
    }
    let overlays: Vec<String> = overlays.iter().map(|hash| format!("{hash} overlay\n")).collect();
    sha256_hex(format!("{base} base\n{}", overlays.concat()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_hash_depends_on_paths_and_texts_but_not_on_their_order() {
        let hash = content_hash([("a.yaml", "1\n"), ("b.yaml", "2\n")]);
        assert_eq!(hash, content_hash([("b.yaml", "2\n"), ("a.yaml", "1\n")]));
        assert_ne!(hash, content_hash([("a.yaml", "2\n"), ("b.yaml", "1\n")]));
        // printf '%s a.yaml\n%s b.yaml\n' "$(printf '1\n' | sha256sum | cut -c1-64)" "$(printf '2\n' | sha256sum | cut -c1-64)" | sha256sum
        assert_eq!(hash, "0b2238db927169c40298abed34f92ffcd8557d787b02ede882a8a1d18a1f05c4");
    }

    #[test]
    fn a_data_file_may_be_as_large_as_a_document() {
        assert_eq!(MOST_BYTES, crate::strict::MAX_BYTES as u64);
    }

    #[test]
    fn overlays_change_the_combined_hash_in_order() {
        let (a, b) = ("a".to_owned(), "b".to_owned());
        assert_eq!(combined_hash("base", &[]), "base");
        assert_ne!(combined_hash("base", &[a.clone(), b.clone()]), combined_hash("base", &[b, a]));
    }
}
