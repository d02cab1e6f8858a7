//! The data that guidellm draws itself: lengths of prompts and outputs with optional spreads, and a prefix that prompts share.
//!
//! Its argument is `prompt_tokens=256,output_tokens=128`, an object as JSON, or a list with one of them. Lengths are drawn as it draws them:
//! of a normal distribution within bounds where a deviation is stated, each alike where bounds are stated alone. Every key is read or
//! refused. Left out: conversations of several turns, whose pace no arrival process here has, and prefixes of several lengths.

use std::collections::BTreeMap;

use blis_contracts::scenario::distribution::UniformCount;
use blis_contracts::scenario::{CountDistribution, Prefix};
use serde_json::Value;

use crate::specs::{constant, normal};

/// Standard deviations from the mean at which lengths end where no bound is stated.
const SPREADS: u32 = 5;

/// What may stand beside the lengths: what prompts share, and keys that change what a text says and not how long it is.
const OTHERS: [&str; 7] = ["kind", "prefix_buckets", "prefix_count", "prefix_tokens", "samples", "source", "turns"];

/// Synthetic data.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Synthetic {
    pub(super) input: CountDistribution,
    pub(super) output: CountDistribution,
    pub(super) prefix: Option<Prefix>,
}

impl Synthetic {
    /// Reads the argument.
    pub(super) fn read(data: &Value) -> Result<Self, String> {
        match data {
            Value::Array(several) => match several.as_slice() {
                [one] => Self::read(one),
                _ => Err(format!("has {} data sets; convert one at a time", several.len())),
            },
            Value::Object(fields) => Self::of(&fields.iter().map(|(key, value)| (key.clone(), value.clone())).collect()),
            Value::String(text) if text.trim_start().starts_with('{') => {
                Self::read(&serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?)
            }
            Value::String(text) => {
                let field = |field: &str| {
                    let (key, value) =
                        field.split_once('=').ok_or_else(|| format!("{field:?} is not KEY=VALUE; data must be synthetic"))?;
                    let value = value.trim();
                    Ok((key.trim().to_owned(), value.parse::<u32>().map_or_else(|_| Value::from(value), Value::from)))
                };
                Self::of(&text.split(',').map(field).collect::<Result<_, String>>()?)
            }
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => Err(format!("must be text or an object, found {other}")),
        }
    }

    fn of(fields: &BTreeMap<String, Value>) -> Result<Self, String> {
        let lengths = ["prompt", "output"].map(|which| ["", "_stdev", "_min", "_max"].map(|suffix| format!("{which}_tokens{suffix}")));
        let known = |key: &str| OTHERS.contains(&key) || lengths.iter().flatten().any(|name| name == key);
        if let Some(unknown) = fields.keys().find(|key| !known(key)) {
            return Err(format!(
                "`{unknown}` is not read; what data state here are prompt_tokens and output_tokens with _stdev, _min and _max, prefix_tokens and prefix_count"
            ));
        }
        if let Some(kind) = fields.get("kind").filter(|kind| **kind != "synthetic_text") {
            return Err(format!("kind must be synthetic_text, whose lengths are stated, found {kind}"));
        }
        if let Some(turns) = count(fields, "turns")?.filter(|turns| *turns > 1) {
            return Err(format!("{turns} turns are refused: the tool sends a turn when its schedule has a place for it, not after a time"));
        }
        Ok(Self { input: drawn(fields, "prompt")?, output: drawn(fields, "output")?, prefix: prefix(fields)? })
    }
}

/// The shared text that prompts start with.
fn prefix(fields: &BTreeMap<String, Value>) -> Result<Option<Prefix>, String> {
    let (length, variants) = match fields.get("prefix_buckets").filter(|buckets| !buckets.is_null()) {
        None => (count(fields, "prefix_tokens")?, count(fields, "prefix_count")?),
        Some(buckets) => {
            let [bucket] = buckets.as_array().map(Vec::as_slice).unwrap_or_default() else {
                return Err("prefix_buckets must be a list of one bucket: prefixes of several lengths are refused".to_owned());
            };
            let fields = bucket.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
            (count(&fields, "prefix_tokens")?, count(&fields, "prefix_count")?)
        }
    };
    let length = length.filter(|length| *length > 0);
    Ok(length.map(|length| Prefix { group: "prefix".to_owned(), length, variants }))
}

/// The lengths of one side.
fn drawn(fields: &BTreeMap<String, Value>, which: &str) -> Result<CountDistribution, String> {
    let value = |suffix: &str| count(fields, &format!("{which}_tokens{suffix}"));
    let mean = value("")?.ok_or_else(|| format!("state no {which}_tokens"))?;
    let spread = value("_stdev")?.unwrap_or(0);
    let away = spread.saturating_mul(SPREADS);
    let (min, max) = (value("_min")?.unwrap_or(mean.saturating_sub(away).max(1)), value("_max")?.unwrap_or(mean.saturating_add(away)));
    Ok(match (min == max, spread) {
        (true, _) => constant(min),
        (false, 0) => CountDistribution::Uniform(UniformCount { min, max }),
        (false, spread) => normal(mean.into(), spread.into(), min, max),
    })
}

/// A count of tokens or texts.
fn count(fields: &BTreeMap<String, Value>, key: &str) -> Result<Option<u32>, String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().and_then(|count| u32::try_from(count).ok()) {
            Some(count) => Ok(Some(count)),
            None => Err(format!("{key} must be a whole number, found {value}")),
        },
    }
}
