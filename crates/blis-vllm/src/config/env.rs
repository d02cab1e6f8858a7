//! Environment variables: vLLM's own, and those of other libraries that are known.
//!
//! A departure from upstream, which only warns: an unknown variable is an error, because a silent one would price another run.

use serde_json::Value;

use super::error::ConfigError;
use super::formerly::{self, Release};
use super::statements::{Statements, Unsettled};
use super::table::{Field, fields, nearest};
use super::value::from_word;

/// States one variable. A variable of an earlier release waits for translation.
pub(super) fn state(statements: &mut Statements, name: &str, word: &str, release: Option<Release>, out: &mut Unsettled) {
    match Field::named(name).filter(|field| field.is_variable()) {
        Some(field) => match from_word(field, word) {
            Ok(value) => statements.state(field, value, format!("{name}={word}")),
            Err(error) => out.refusals.push(error),
        },
        None if formerly::takes(name, release).is_some() => out.former.push((name.to_owned(), Value::from(word))),
        None => out.refusals.push(unknown(name, word)),
    }
}

fn unknown(name: &str, word: &str) -> ConfigError {
    // Variables begin alike, which likeness alone takes for nearness.
    let few_edits = |other: &&str| strsim::damerau_levenshtein(name, other) <= name.chars().count() / 3;
    let variables = fields().iter().filter(|field| field.is_variable()).map(|field| field.key).filter(few_edits);
    let near = nearest(name, variables).map(|other| format!("; the nearest is {other}"));
    let hint = formerly::hint(name, &Value::from(word)).or(near).unwrap_or_default();
    ConfigError::UnknownVariable { name: name.to_owned(), hint }
}
