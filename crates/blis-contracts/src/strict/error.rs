//! What a refused document says: file, place, path, message and hint, as data.
//!
//! Left out: excerpts of the source and colours, which only the command line adds.

use std::fmt;

use super::Position;

/// One reason why a document is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    /// The file as it was named when loaded, or the edit (`--set pools[0].replicas=x`) that wrote the value.
    pub file: String,
    /// Where the value starts (inclusive) and ends (exclusive); none when the error concerns the file as a whole.
    pub range: Option<(Position, Position)>,
    /// The path of the value, such as `workload.clients[0].arrival.rate`; empty for the document itself.
    pub path: String,
    /// What is wrong, naming the offending value.
    pub message: String,
    /// What would be right, where that is known.
    pub hint: Option<String>,
}

impl DocumentError {
    /// An error about a file as a whole, such as one that cannot be read.
    pub fn whole(file: impl Into<String>, message: impl Into<String>) -> Self {
        Self { file: file.into(), range: None, path: String::new(), message: message.into(), hint: None }
    }

    /// The same error with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some((start, _)) = self.range {
            write!(f, ":{}:{}", start.line, start.column)?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for DocumentError {}

/// Every reason why a document is refused, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentErrors(pub Vec<DocumentError>);

impl fmt::Display for DocumentErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for DocumentErrors {}

impl From<DocumentError> for DocumentErrors {
    fn from(error: DocumentError) -> Self {
        Self(vec![error])
    }
}

/// A problem of a decoded document, by path; [`super::Document::locate`] adds the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path of the value, such as `frame.stop.requests`.
    pub path: String,
    /// What is wrong, naming the offending value.
    pub message: String,
    /// What would be right, where the message does not say it.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem without a hint.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), hint: None }
    }

    /// The same problem with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
