//! Why a command ended early, what the user is told, and the exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use annotate_snippets::{Level, Renderer};
use blis_contracts::strict::DocumentErrors;

use crate::snippet;

/// A command that did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A document is wrong. `text` is the file as read, where it could be.
    Document {
        /// What is wrong.
        errors: DocumentErrors,
        /// The file.
        text: Option<String>,
    },
    /// An argument is wrong.
    Input {
        /// What is wrong.
        message: String,
        /// What would be right.
        hint: Option<String>,
    },
    /// The run itself failed.
    Run(String),
    /// Something cannot be read or written.
    Io {
        /// What.
        what: String,
        /// Why.
        error: io::Error,
    },
    /// Several of these, none of which hides another.
    Several(Vec<Failure>),
}

impl Failure {
    /// A wrong argument.
    pub(crate) fn input(message: impl Into<String>, hint: Option<String>) -> Self {
        Self::Input { message: message.into(), hint }
    }

    /// Nothing, where nothing failed.
    pub(crate) fn of_all(failures: Vec<Self>) -> Result<(), Self> {
        if failures.is_empty() { Ok(()) } else { Err(Self::Several(failures)) }
    }

    /// Tells the user, and answers with the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let mut out = anstream::stderr();
        for text in self.messages() {
            // Nobody is left to tell when stderr is closed.
            let _ = writeln!(out, "{text}\n");
        }
        ExitCode::from(self.exit_code())
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Document { .. } | Self::Input { .. } => 2,
            Self::Run(_) | Self::Io { .. } => 1,
            // What is wrong with the input has to be mended first.
            Self::Several(failures) => failures.iter().map(Self::exit_code).max().unwrap_or(0),
        }
    }

    fn messages(&self) -> Vec<String> {
        match self {
            Self::Document { errors, text } => errors.0.iter().map(|error| snippet::render(error, text.as_deref())).collect(),
            Self::Input { message, hint } => vec![plain(message, hint.as_deref())],
            Self::Run(message) => vec![plain(message, None)],
            Self::Several(failures) => failures.iter().flat_map(Self::messages).collect(),
            Self::Io { what, error } => vec![plain(&format!("{what}: {error}"), None)],
        }
    }
}

/// An error without a place in a file.
fn plain(message: &str, hint: Option<&str>) -> String {
    let title = Level::ERROR.primary_title(message);
    Renderer::styled().render(&[title.elements(hint.map(|hint| Level::HELP.message(hint)))])
}
