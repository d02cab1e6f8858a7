//! Reading a scenario: the file, the edits of the command line, and the hash that names both.

use std::path::Path;

use blis_contracts::scenario::Scenario;
use blis_contracts::strict::{Document, DocumentErrors, LineEndings, MAX_BYTES, Problem};
use sha2::{Digest, Sha256};

use crate::failure::Failure;

/// A scenario and the document it was read from.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The scenario.
    pub(crate) scenario: Scenario,
    document: Document,
    text: Option<String>,
}

impl Loaded {
    /// Reads a scenario and applies the edits; everything wrong with it comes back at once.
    pub(crate) fn open(path: &Path, edits: &[String]) -> Result<Self, Failure> {
        let refused = |errors: DocumentErrors| Failure::Document { errors, text: text_of(path) };
        let mut document = Document::open(path, LineEndings::LfOrCrLf).map_err(|error| refused(error.into()))?;
        for edit in edits {
            document.set(edit).map_err(|error| refused(error.into()))?;
        }
        let scenario = Scenario::load(&document).map_err(refused)?;
        Ok(Self { scenario, document, text: text_of(path) })
    }

    /// SHA-256 of the document as read, edits applied.
    pub(crate) fn sha256(&self) -> String {
        Sha256::digest(self.document.to_json()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A failure at a value of the scenario.
    pub(crate) fn refuse(&self, problem: Problem) -> Failure {
        Failure::Document { errors: self.document.locate(problem).into(), text: self.text.clone() }
    }
}

/// The text that errors point into; none where there is no readable one.
fn text_of(path: &Path) -> Option<String> {
    let small = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() <= MAX_BYTES as u64);
    if small { std::fs::read_to_string(path).ok() } else { None }
}
