//! Environment variables: vLLM's own, and those of other libraries that are known.
//!
//! A departure from upstream, which only warns: an unknown variable is an error, because a silent one would price another run.

use serde_json::Value;

use super::error::ConfigError;
use super::formerly::{self, Release};
use super::statements::Statements;
use super::table::{Field, fields, nearest};
use super::value::from_word;

/// States one variable. A variable of an earlier release waits in `former` for translation.
pub(super) fn state(
    statements: &mut Statements,
    name: &str,
    word: &str,
    release: Option<Release>,
    former: &mut Vec<(String, Value)>,
) -> Result<(), ConfigError> {
    match Field::named(name).filter(|field| field.is_variable()) {
        Some(field) => {
            let value = from_word(field, word)?;
            statements.state(field, value, format!("{name}={word}"));
        }
        None if formerly::takes(name, release).is_some() => former.push((name.to_owned(), Value::from(word))),
        None => return Err(unknown(name)),
    }
    Ok(())
}

fn unknown(name: &str) -> ConfigError {
    let variables = fields().iter().filter(|field| field.is_variable()).map(|field| field.key);
    let near = nearest(name, variables).map(|other| format!("; the nearest is {other}"));
    let hint = formerly::hint(name).or(near).unwrap_or_default();
    ConfigError::UnknownVariable { name: name.to_owned(), hint }
}
