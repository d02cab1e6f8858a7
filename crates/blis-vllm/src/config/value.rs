//! One value: from a word of the command line, from JSON, or from an environment variable, checked against its field.
//!
//! upstream: vllm `engine/arg_utils.py::_compute_kwargs`, `utils/argparse_utils.py::human_readable_int`,
//! `envs.py::env_with_choices`. JSON values are taken as pydantic's lax mode takes them. Values are JSON values throughout.

use serde_json::Value;

use super::error::ConfigError;
use super::table::{Field, Kind, nearest};

/// Reads `word`, a value on the command line or of a variable.
pub(super) fn from_word(field: &Field, word: &str) -> Result<Value, ConfigError> {
    if field.optional && (word.is_empty() || word == "None") {
        return Ok(Value::Null);
    }
    let wrong = |wanted: &str| wrong_type(field, &format!("{word:?}"), wanted);
    let value = match field.kind {
        Kind::Int | Kind::IntChoice => integer(word).ok_or_else(|| wrong("an integer"))?,
        Kind::IntHuman => human_integer(word).ok_or_else(|| wrong("an integer, such as 8192, 8k or 8K"))?,
        Kind::IntHumanOrAuto if word.trim().eq_ignore_ascii_case("auto") => Value::from(-1),
        Kind::IntHumanOrAuto => human_integer(word).ok_or_else(|| wrong("an integer, such as 8192, 8k or 8K, or auto"))?,
        Kind::Float => float(word).ok_or_else(|| wrong("a number"))?,
        Kind::Str | Kind::FlagOrStr => Value::from(word),
        Kind::Choice | Kind::ChoiceFolded | Kind::ChoiceNocase | Kind::Enum => return choice(field, word),
        Kind::Ints => Value::Array(vec![integer(word).ok_or_else(|| wrong("an integer"))?]),
        Kind::Strs => Value::Array(vec![Value::from(word)]),
        Kind::List => json(word).filter(Value::is_array).ok_or_else(|| wrong("a JSON list"))?,
        Kind::Json | Kind::Nested => json(word).filter(Value::is_object).ok_or_else(|| wrong("a JSON object"))?,
        Kind::JsonOrStr => json(word).filter(Value::is_object).unwrap_or_else(|| Value::from(word)),
        Kind::Bool | Kind::Flag => boolean_word(word).ok_or_else(|| wrong("true or false"))?,
        Kind::BoolInt => Value::from(integer(word).ok_or_else(|| wrong("0 or 1"))?.as_i64() != Some(0)),
        Kind::BoolWord => Value::from(matches!(word.trim().to_lowercase().as_str(), "1" | "true")),
        Kind::BoolOne => Value::from(word == "1"),
    };
    in_range(field, value)
}

/// Members of an enumeration that stand for a pair of others and so have no number of their own.
/// upstream: vllm `config/compilation.py::CUDAGraphMode`
const PAIRS: [&str; 2] = ["FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"];

/// Reads a JSON value of a key of a JSON flag.
pub(super) fn from_json(field: &Field, value: &Value) -> Result<Value, ConfigError> {
    match (field.kind, value) {
        (_, Value::Null) if field.optional => Ok(Value::Null),
        (Kind::Nested | Kind::Json | Kind::JsonOrStr, Value::Object(_))
        | (Kind::List, Value::Array(_))
        | (Kind::Bool, Value::Bool(_))
        | (Kind::Str | Kind::JsonOrStr, Value::String(_)) => Ok(value.clone()),
        (Kind::Float, Value::Number(_)) => in_range(field, value.clone()),
        (Kind::Int | Kind::IntHuman | Kind::IntChoice, Value::Number(number)) if number.is_i64() => in_range(field, value.clone()),
        (Kind::Bool, Value::Number(number)) if number.as_u64().is_some_and(|n| n <= 1) => Ok(Value::from(number.as_u64() == Some(1))),
        (Kind::Enum, Value::Number(number)) => {
            let member = number.as_u64().and_then(|n| field.choices.get(usize::try_from(n).ok()?)).filter(|member| !PAIRS.contains(member));
            member.map(|name| Value::from(*name)).ok_or_else(|| invalid_choice(field, &number.to_string()))
        }
        (Kind::Strs | Kind::Ints, Value::Array(items)) => list(field, items),
        (Kind::Strs, Value::String(text)) if field.key.contains("ir_op_priority") => {
            Ok(Value::Array(text.replace(' ', "").split(',').map(Value::from).collect()))
        }
        (
            Kind::Bool | Kind::Int | Kind::IntHuman | Kind::IntChoice | Kind::Float | Kind::Enum | Kind::Choice | Kind::ChoiceFolded,
            Value::String(text),
        ) => from_word(field, text),
        _ => Err(wrong_type(field, &value.to_string(), wanted(field.kind))),
    }
}

/// A value as upstream would write it on a command line.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn list(field: &Field, items: &[Value]) -> Result<Value, ConfigError> {
    let fits = |item: &&Value| item.is_i64() || (field.kind == Kind::Strs && item.is_string());
    match items.iter().find(|item| !fits(item)) {
        Some(item) => Err(wrong_type(field, &item.to_string(), wanted(field.kind))),
        None => Ok(Value::Array(items.to_vec())),
    }
}

fn choice(field: &Field, word: &str) -> Result<Value, ConfigError> {
    let folded = if field.kind == Kind::ChoiceFolded {
        word.to_lowercase().replace('-', "_")
    } else if field.kind == Kind::ChoiceNocase {
        word.to_lowercase()
    } else if field.kind == Kind::Enum {
        word.to_uppercase()
    } else {
        word.to_owned()
    };
    if field.kind == Kind::Enum && field.optional && folded == "AUTO" {
        return Ok(Value::Null);
    }
    if field.choices.iter().any(|choice| *choice == folded) { Ok(Value::from(folded)) } else { Err(invalid_choice(field, word)) }
}

/// As Python's `int`: surrounding space and single underscores between digits are allowed.
fn integer(word: &str) -> Option<Value> {
    let word = word.trim();
    let misplaced = word.starts_with('_') || word.ends_with('_') || word.contains("__");
    if misplaced { None } else { word.replace('_', "").parse::<i64>().ok().map(Value::from) }
}

/// `1k` is 1,000, `1K` is 1,024; a fraction goes with decimal suffixes only, and what is left of it is cut off.
fn human_integer(word: &str) -> Option<Value> {
    let word = word.trim();
    let (number, suffix) = word.char_indices().last().map(|(at, c)| (&word[..at], c))?;
    let Some(power) = "kmgt".find(suffix.to_ascii_lowercase()) else { return integer(word) };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || !(whole.to_owned() + fraction).bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    if suffix.is_ascii_uppercase() {
        return number.parse::<i64>().ok()?.checked_mul(1024_i64.pow(u32::try_from(power).ok()? + 1)).map(Value::from);
    }
    let scaled = number.parse::<f64>().ok()? * [1e3, 1e6, 1e9, 1e12][power];
    #[expect(clippy::cast_possible_truncation, reason = "upstream cuts the fraction off, and the range is checked just before")]
    (scaled < 9e18).then(|| Value::from(scaled as i64))
}

fn float(word: &str) -> Option<Value> {
    let number = word.trim().parse::<f64>().ok()?;
    serde_json::Number::from_f64(number).map(Value::Number)
}

fn boolean_word(word: &str) -> Option<Value> {
    match word.to_lowercase().as_str() {
        "1" | "on" | "t" | "true" | "y" | "yes" => Some(Value::from(true)),
        "0" | "off" | "f" | "false" | "n" | "no" => Some(Value::from(false)),
        _ => None,
    }
}

/// A JSON text; bare numbers may carry the suffixes of [`human_integer`].
/// upstream: vllm `engine/arg_utils.py::_expand_json_human_readable_numbers`.
pub(super) fn json(word: &str) -> Option<Value> {
    serde_json::from_str(word).ok().or_else(|| serde_json::from_str(&expand_numbers(word)).ok())
}

fn expand_numbers(word: &str) -> String {
    let (mut out, mut token, mut quoted, mut escaped) = (String::new(), String::new(), false, false);
    for c in word.chars().chain(std::iter::once(' ')) {
        if !quoted && (c.is_ascii_alphanumeric() || c == '.') {
            token.push(c);
            continue;
        }
        out += &human_integer(&token).map_or_else(|| token.clone(), |value| value.to_string());
        token.clear();
        if c == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = quoted && c == '\\' && !escaped;
        out.push(c);
    }
    out
}

fn in_range(field: &Field, value: Value) -> Result<Value, ConfigError> {
    if field.kind == Kind::IntChoice || (field.kind == Kind::Int && !field.choices.is_empty()) {
        let text = value.to_string();
        return if field.choices.iter().any(|choice| *choice == text) { Ok(value) } else { Err(invalid_choice(field, &text)) };
    }
    let Some(number) = value.as_f64() else { return Ok(value) };
    let bounds = [
        (field.gt, "greater than", field.gt.is_none_or(|bound| number > bound)),
        (field.ge, "at least", field.ge.is_none_or(|bound| number >= bound)),
        (field.lt, "less than", field.lt.is_none_or(|bound| number < bound)),
        (field.le, "at most", field.le.is_none_or(|bound| number <= bound)),
    ];
    if bounds.iter().all(|(_, _, holds)| *holds) {
        return Ok(value);
    }
    let wanted: Vec<String> = bounds.iter().filter_map(|(bound, word, _)| bound.map(|b| format!("{word} {b}"))).collect();
    Err(ConfigError::OutOfRange { name: field.name().to_owned(), value: value.to_string(), wanted: wanted.join(" and ") })
}

fn wrong_type(field: &Field, value: &str, wanted: &str) -> ConfigError {
    ConfigError::WrongType { name: field.name().to_owned(), value: value.to_owned(), wanted: wanted.to_owned() }
}

fn invalid_choice(field: &Field, word: &str) -> ConfigError {
    let near = nearest(&word.to_lowercase(), field.choices.iter().copied())
        .or_else(|| nearest(&word.to_uppercase(), field.choices.iter().copied()));
    ConfigError::InvalidChoice {
        name: field.name().to_owned(),
        value: word.to_owned(),
        hint: near.map(|name| format!(" (the nearest is {name})")).unwrap_or_default(),
        choices: field.choices.join(", "),
    }
}

const fn wanted(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool | Kind::Flag | Kind::FlagOrStr | Kind::BoolInt | Kind::BoolWord | Kind::BoolOne => "true or false",
        Kind::Int | Kind::IntHuman | Kind::IntHumanOrAuto | Kind::IntChoice => "an integer",
        Kind::Float => "a number",
        Kind::Str | Kind::Choice | Kind::ChoiceFolded | Kind::ChoiceNocase | Kind::Enum => "a string",
        Kind::Ints => "a list of integers",
        Kind::Strs => "a list of strings",
        Kind::List => "a JSON list",
        Kind::Json | Kind::JsonOrStr | Kind::Nested => "a JSON object",
    }
}
