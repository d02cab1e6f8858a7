//! The arguments of `vllm serve`, as Python's argparse and vLLM's extension of it read them.
//!
//! upstream: vllm `utils/argparse_utils.py::FlexibleArgumentParser` (underscores for dashes, dotted keys, `-O`),
//! `load_config_file` (the map form). Left out: `--config` files and `--help`.

use serde_json::{Map, Value};

use super::error::ConfigError;
use super::formerly::{self, Release};
use super::nested;
use super::statements::{Statements, Unsettled};
use super::table::{Field, Kind, Spelling, flags, nearest, normalised, spelling, spellings_from};
use super::value::{from_word, json};

/// What an argument list says.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    /// The positional model.
    pub(super) model: Option<String>,
    /// Everything else.
    pub(super) statements: Statements,
    /// What is not settled by reading the words alone.
    pub(super) unsettled: Unsettled,
}

/// The map form as a list of words: upstream's rule for `--config` files.
pub(super) fn words_of(map: &Map<String, Value>) -> Vec<String> {
    let mut words = Vec::new();
    for (key, value) in map {
        let flag = format!("--{key}");
        match value {
            Value::Bool(_) if key.contains('.') => words.extend([flag, super::value::shown(value)]),
            Value::Bool(true) => words.push(flag),
            // A flag without a `--no-` form is simply not given.
            Value::Bool(false) if spelling(&normalised(&flag)).is_some_and(|found| found.field.kind == Kind::Flag) => {}
            Value::Bool(false) => words.push(format!("--no-{key}")),
            Value::Array(items) if items.is_empty() => {}
            Value::Array(items) => {
                words.push(flag);
                words.extend(items.iter().map(super::value::shown));
            }
            Value::Object(_) | Value::Null | Value::Number(_) | Value::String(_) => {
                words.push(flag);
                words.push(super::value::shown(value));
            }
        }
    }
    words
}

/// Reads an argument list of a line written for `release`. An argument that is refused is left out, with the words up to the next flag.
pub(super) fn read(words: &[String], release: Option<Release>) -> Result<Arguments, ConfigError> {
    let mut out = Arguments::default();
    let (words, dotted) = take_dotted(words)?;
    let mut at = 0;
    while at < words.len() {
        at = read_one(&words, at, release, &mut out).unwrap_or_else(|error| {
            out.unsettled.refusals.push(error);
            at + 1 + words[at + 1..].iter().take_while(|word| !is_flag(word)).count()
        });
    }
    for (flag, object) in dotted {
        let found = match find(&flag, formerly::hint(&flag, &Value::Null)) {
            Ok(found) => found,
            Err(error) => {
                out.unsettled.refusals.push(error);
                continue;
            }
        };
        if found.field.kind == Kind::Nested && out.statements.has(found.field) {
            out.statements.notes.push(format!("{flag} is given both as JSON and by keys; upstream keeps the keys only"));
        }
        state(&mut out, found.field, Value::Object(object), &flag, release);
    }
    Ok(out)
}

/// Deepest key of a dotted argument; upstream's objects nest three deep.
const MAX_DEPTH: usize = 16;

/// The dotted arguments of one flag, merged.
type Dotted = (String, Map<String, Value>);

/// Takes the dotted arguments (`--flag.key value`) out of a list and merges them by flag; dashes and underscores are made one.
fn take_dotted(words: &[String]) -> Result<(Vec<String>, Vec<Dotted>), ConfigError> {
    let (mut plain, mut dotted) = (Vec::new(), Vec::<Dotted>::new());
    let mut at = 0;
    while at < words.len() {
        let word = normalised(&words[at]);
        at += 1;
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (word.clone(), None),
        };
        if !(name.starts_with('-') && name.contains('.')) || is_number(&name) {
            plain.push(word);
            continue;
        }
        let value = if let Some(value) = inline {
            value
        } else {
            at += 1;
            words.get(at - 1).ok_or_else(|| missing(&name, "one argument"))?.clone()
        };
        let (name, value) = match name.strip_suffix('+') {
            Some(name) => (name.to_owned(), Value::Array(value.split(',').map(Value::from).collect())),
            None => (name, json(&value).unwrap_or(Value::from(value))),
        };
        let mut keys = name.split('.');
        let flag = keys.next().unwrap_or_default().to_owned();
        let slot = match dotted.iter().position(|(other, _)| *other == flag) {
            Some(found) => &mut dotted[found].1,
            None => &mut dotted.push_mut((flag.clone(), Map::new())).1,
        };
        let keys: Vec<&str> = keys.collect();
        if keys.len() > MAX_DEPTH {
            let hint = format!("; no flag has keys more than {MAX_DEPTH} deep");
            return Err(ConfigError::UnknownFlag { flag, hint });
        }
        merge(slot, &keys, value);
    }
    Ok((expand_optimization_level(plain), dotted))
}

fn merge(object: &mut Map<String, Value>, keys: &[&str], value: Value) {
    let [key, rest @ ..] = keys else { return };
    match (rest.is_empty(), object.get_mut(*key), value) {
        (true, Some(Value::Array(old)), Value::Array(new)) => old.extend(new),
        (true, _, value) => {
            object.insert((*key).to_owned(), value);
        }
        (false, Some(Value::Object(inner)), value) => merge(inner, rest, value),
        (false, _, value) => {
            let mut inner = Map::new();
            merge(&mut inner, rest, value);
            object.insert((*key).to_owned(), Value::Object(inner));
        }
    }
}

/// The levels that `-O` takes as a word of its own.
const LEVELS: [&str; 4] = ["0", "1", "2", "3"];

/// `-O3`, `-O=3` and `-O 3` are `--optimization-level 3`; before anything but a level `-O` is no flag.
fn expand_optimization_level(words: Vec<String>) -> Vec<String> {
    let flag = "--optimization-level".to_owned();
    let mut out = Vec::with_capacity(words.len());
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        match word.strip_prefix("-O") {
            Some("") if words.peek().is_some_and(|next| LEVELS.contains(&next.as_str())) => out.push(flag.clone()),
            Some(level) if !level.is_empty() => out.extend([flag.clone(), level.strip_prefix('=').unwrap_or(level).to_owned()]),
            Some(_) | None => out.push(word),
        }
    }
    out
}

/// Reads the argument at `at` and returns where the next one begins.
fn read_one(words: &[String], at: usize, release: Option<Release>, out: &mut Arguments) -> Result<usize, ConfigError> {
    let word = &words[at];
    if !is_flag(word) {
        if out.model.is_some() {
            return Err(ConfigError::UnknownFlag { flag: word.clone(), hint: "; the model is already given".to_owned() });
        }
        out.model = Some(word.clone());
        return Ok(at + 1);
    }
    let (name, inline) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word.as_str(), None),
    };
    if let (None, Some(takes)) = (spelling(name), formerly::takes(name, release)) {
        let value = match (takes, inline) {
            (0, _) => Value::from(true),
            (_, Some(value)) => Value::from(value),
            (_, None) => Value::from(words.get(at + 1).ok_or_else(|| missing(name, "one argument"))?.as_str()),
        };
        out.unsettled.former.push((name.to_owned(), value));
        return Ok(at + 1 + if inline.is_some() { 0 } else { takes });
    }
    let following = words[at + 1..].iter().take_while(|next| !is_flag(next)).count();
    let given = inline.or(words[at + 1..at + 1 + following].first().map(String::as_str));
    match given {
        None if word == "-O" => return Err(missing("-O", "a level from 0 to 3")),
        Some(level) if word == "-O" && !level.starts_with('{') => return Err(no_level(level)),
        Some(_) | None => {}
    }
    let found = find(name, formerly::hint(name, &Value::from(given)))?;
    let (value, used) = value_of(found, name, inline, &words[at + 1..at + 1 + following])?;
    if out.statements.has(found.field) {
        out.statements.notes.push(format!("{name} is given more than once; the last one counts"));
    }
    state(out, found.field, value, &words[at..=at + used].join(" "), release);
    Ok(at + 1 + used)
}

/// The value of a flag, and how many of the words that follow it were used.
fn value_of(found: Spelling, name: &str, inline: Option<&str>, following: &[String]) -> Result<(Value, usize), ConfigError> {
    let field = found.field;
    if matches!(field.kind, Kind::Bool | Kind::Flag) {
        return match inline {
            Some(value) => Err(ConfigError::UnexpectedValue { flag: name.to_owned(), value: value.to_owned() }),
            None => Ok((Value::from(!found.negated), 0)),
        };
    }
    let sequence = matches!(field.kind, Kind::Ints | Kind::Strs);
    let (words, used): (Vec<&str>, usize) = match (inline, sequence) {
        (Some(value), _) => (vec![value], 0),
        (None, true) => (following.iter().map(String::as_str).collect(), following.len()),
        (None, false) => (following.iter().take(1).map(String::as_str).collect(), following.len().min(1)),
    };
    let Some(first) = words.first() else {
        return match (field.kind == Kind::FlagOrStr, sequence) {
            (true, _) => Ok((Value::from(true), 0)),
            (false, true) => Err(missing(name, "at least one argument")),
            (false, false) => Err(missing(name, "one argument")),
        };
    };
    if !sequence {
        return Ok((from_word(field, first)?, used));
    }
    let mut items = Vec::with_capacity(words.len());
    for word in words {
        match from_word(field, word)? {
            Value::Array(item) => items.extend(item),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => return Ok((Value::Null, used)),
        }
    }
    Ok((Value::Array(items), used))
}

fn state(out: &mut Arguments, field: &'static Field, value: Value, words: &str, release: Option<Release>) {
    if let (Kind::Nested, Value::Object(object)) = (field.kind, &value) {
        out.statements.forget_keys_of(field);
        out.unsettled.former.retain(|(old, _)| !old.starts_with(&format!("{}.", field.key)));
        nested::state(&mut out.statements, field, object, release, &mut out.unsettled);
    }
    out.statements.state(field, value, words.to_owned());
}

/// The flag of that name, or the only flag it abbreviates.
fn find(name: &str, former: Option<String>) -> Result<Spelling, ConfigError> {
    if let Some(found) = spelling(name) {
        return Ok(found);
    }
    let abbreviated = if name.starts_with("--") && name.len() > 2 { spellings_from(name) } else { Vec::new() };
    match abbreviated.as_slice() {
        [(_, only)] => Ok(*only),
        [] => {
            let near = nearest(name, flags()).map(|flag| format!("; the nearest is {flag}"));
            Err(ConfigError::UnknownFlag { flag: name.to_owned(), hint: former.or(near).unwrap_or_default() })
        }
        several => {
            let matches = several.iter().map(|(flag, _)| *flag).collect::<Vec<_>>().join(", ");
            Err(ConfigError::AmbiguousFlag { flag: name.to_owned(), matches })
        }
    }
}

/// Whether argparse takes a word for a flag: it is one, or it begins with a dash, is no number, and holds no space.
fn is_flag(word: &str) -> bool {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    spelling(name).is_some() || (word.len() > 1 && word.starts_with('-') && !is_number(word) && !word.contains(' '))
}

fn is_number(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|digits| {
        digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
    })
}

fn missing(flag: &str, wanted: &'static str) -> ConfigError {
    ConfigError::MissingValue { flag: flag.to_owned(), wanted }
}

fn no_level(word: &str) -> ConfigError {
    ConfigError::InvalidChoice { name: "-O".to_owned(), value: word.to_owned(), hint: String::new(), choices: LEVELS.join(", ") }
}
