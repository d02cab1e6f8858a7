//! The decoder's error: what serde reports, in the words of a document, with the place of the innermost value concerned.

use std::fmt::Display;

use serde::de::{self, Expected, Unexpected};

use crate::strict::{Document, DocumentError, Problem, Span, did_you_mean};

/// A decoding error; its place is filled in by the innermost value it passes through.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub(in crate::strict) struct DecodeError(Box<Fault>);

#[derive(Debug)]
struct Fault {
    message: String,
    hint: Option<String>,
    place: Option<(String, Span)>,
}

impl DecodeError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(Box::new(Fault { message: message.into(), hint: None, place: None }))
    }

    pub(super) fn hint(mut self, hint: Option<String>) -> Self {
        self.0.hint = hint;
        self
    }

    pub(super) fn at(mut self, path: impl FnOnce() -> String, span: Span) -> Self {
        if self.0.place.is_none() {
            self.0.place = Some((path(), span));
        }
        self
    }

    pub(in crate::strict) fn into_document_error(self, document: &Document) -> DocumentError {
        let Fault { message, hint, place } = *self.0;
        let (path, span) = place.unwrap_or_else(|| (String::new(), document.root.head(None)));
        document.error(span, Problem { path, message, hint })
    }
}

impl de::Error for DecodeError {
    fn custom<T: Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}, found {found}"))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}, found {found}"))
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        Self::new(format!("unknown value `{variant}`")).hint(did_you_mean(variant, known))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::new(format!("unknown key `{field}`")).hint(did_you_mean(field, known))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("the key `{field}` is missing"))
    }
}
