//! Strict loading of every BLIS document: YAML (and JSON, its subset) into a tree that knows where each value was written.
//!
//! Reading order: [`Document`] here, the tree in `node`, the reader in `parse` and `scalar`, typed decoding in `decode`,
//! `--set` and overlays in `edit`. What a document may not contain is refused with its place: duplicate or non-text keys,
//! anchors, aliases, merge keys, tags, directives, several documents, empty values, numbers that are not exact or not finite,
//! control characters, a byte order mark, more than [`MAX_BYTES`] bytes, [`MAX_VALUES`] values or [`MAX_DEPTH`] levels.
//! Left out: rendering of errors (the command line's) and streamed files (traces are not documents).
//!
//! ```
//! use blis_contracts::strict::{Document, LineEndings};
//!
//! #[derive(Debug, serde::Deserialize)]
//! struct Client { id: String, rate: f64 }
//!
//! let document = Document::parse("client.yaml", b"id: chat\nrtae: 8.0\n", LineEndings::LfOrCrLf).unwrap();
//! let error = document.decode::<Client>().unwrap_err();
//! assert_eq!(error.to_string(), "client.yaml:2:1: rtae: unknown key `rtae`\n  hint: did you mean `rate`?");
//! ```

mod decode;
mod edit;
mod error;
mod json;
mod nearest;
mod node;
mod parse;
mod problems;
mod scalar;
mod tagged;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;

pub use error::{DocumentError, DocumentErrors, Problem};
pub use nearest::{did_you_mean, nearest};
pub use node::{Entry, Map, Node, Position, SourceId, Span, Value};
pub use problems::Problems;
pub use tagged::tagged_enum;

/// The largest document that is read, in bytes (16 MiB).
pub const MAX_BYTES: usize = 16 << 20;

/// The most values one document may hold, containers included. It bounds the memory a hostile document can claim, to about 100 MB.
pub const MAX_VALUES: usize = 1 << 18;

/// The deepest nesting of sequences and maps that is read.
pub const MAX_DEPTH: usize = 64;

/// Which line endings a kind of document may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEndings {
    /// Line feed alone: catalog and registry files, whose hash must not depend on the platform that wrote them.
    Lf,
    /// Line feed, or carriage return and line feed: files a user writes, such as scenarios.
    LfOrCrLf,
}

/// One loaded document, with the names of everything that contributed to it (its file, `--set` edits, overlays).
#[derive(Clone, Debug)]
pub struct Document {
    sources: Vec<String>,
    root: Node,
}

impl Document {
    /// Reads a document from bytes already in memory; `file` names it in errors.
    pub fn parse(file: impl Into<String>, bytes: &[u8], endings: LineEndings) -> Result<Self, DocumentError> {
        let file = file.into();
        let root = parse::parse(&file, SourceId::FILE, bytes, endings)?;
        Ok(Self { sources: vec![file], root })
    }

    /// Reads a document from disk without ever holding more than [`MAX_BYTES`] of it.
    pub fn open(path: &Path, endings: LineEndings) -> Result<Self, DocumentError> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes))
            .map_err(|error| DocumentError::whole(&name, format!("cannot be read: {error}")))?;
        Self::parse(name, &bytes, endings)
    }

    /// The name the document was loaded under.
    pub fn file(&self) -> &str {
        &self.sources[0]
    }

    /// The tree, as edited so far.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// The value at a path such as `pools[0].env`, if there is one.
    pub fn get(&self, path: &str) -> Option<&Node> {
        let found = node::locate(&self.root, path);
        found.exact.then_some(found.node)
    }

    /// Decodes the tree into a typed document; every key must be one the type declares.
    pub fn decode<'de, T: Deserialize<'de>>(&'de self) -> Result<T, DocumentError> {
        T::deserialize(decode::root(&self.root)).map_err(|error| error.into_document_error(self))
    }

    /// An error about the value at `path`, with its place; where the path names nothing, the place of the nearest enclosing value.
    pub fn error_at(&self, path: &str, message: impl Into<String>) -> DocumentError {
        self.locate(Problem::new(path, message))
    }

    /// Gives a problem found after decoding its place in the document.
    pub fn locate(&self, problem: Problem) -> DocumentError {
        let span = node::locate(&self.root, &problem.path).span;
        self.error(span, problem)
    }

    /// Gives every problem its place, in the order of the problems.
    pub fn locate_all(&self, problems: Vec<Problem>) -> DocumentErrors {
        DocumentErrors(problems.into_iter().map(|problem| self.locate(problem)).collect())
    }

    /// The tree as one line of JSON; loading it again gives the same tree.
    pub fn to_json(&self) -> String {
        json::print(&self.root)
    }

    fn error(&self, span: Span, problem: Problem) -> DocumentError {
        DocumentError {
            file: self.sources[span.source.index()].clone(),
            range: Some((span.start, span.end)),
            path: problem.path,
            message: problem.message,
            hint: problem.hint,
        }
    }
}
