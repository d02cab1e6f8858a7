//! The keys of JSON flags such as `--compilation-config`: each is a field of its own.
//!
//! upstream: vllm `config/utils.py::config` (unknown keys are errors), `engine/arg_utils.py::EngineArgs.create_speculative_config`
//! (dashes for underscores).

use serde_json::{Map, Value};

use super::error::ConfigError;
use super::formerly::{self, Release};
use super::statements::{Statements, Unsettled};
use super::table::{Field, Kind, fields, nearest};
use super::value::{from_json, shown};

/// The flag whose keys may be spelled with dashes.
const DASHED: &str = "speculative_config";

/// States every key of `object`, the value of the JSON flag `flag`. Keys of earlier releases wait for translation.
pub(super) fn state(
    statements: &mut Statements,
    flag: &'static Field,
    object: &Map<String, Value>,
    release: Option<Release>,
    out: &mut Unsettled,
) {
    for (key, value) in object {
        let key = if flag.key == DASHED { &key.replace('-', "_") } else { key };
        let path = format!("{}.{key}", flag.key);
        match Field::named(&path) {
            Some(field) => match from_json(field, value) {
                Ok(value) => {
                    if let (Kind::Nested, Value::Object(inner)) = (field.kind, &value) {
                        state(statements, field, inner, release, out);
                    }
                    statements.state(field, value.clone(), format!("{path} = {}", shown(&value)));
                }
                Err(error) => out.refusals.push(error),
            },
            None if formerly::takes(&path, release).is_some() => out.former.push((path, value.clone())),
            None => out.refusals.push(unknown_key(flag, key, &path, value)),
        }
    }
}

fn unknown_key(flag: &Field, key: &str, path: &str, value: &Value) -> ConfigError {
    let prefix = format!("{}.", flag.key);
    let keys = fields().iter().filter_map(|field| field.key.strip_prefix(prefix.as_str()));
    let near = nearest(key, keys).map(|name| format!("; the nearest is {name:?}"));
    let hint = formerly::hint(path, value).or(near).unwrap_or_default();
    ConfigError::UnknownKey { object: flag.name().to_owned(), key: key.to_owned(), hint }
}
