//! Units: sweeps as they were run, one JSON object per line.

#[cfg(test)]
mod tests;

use std::path::Path;

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Value;

use crate::jsonl::{Input, InputError, Numbered};

/// One sweep. Fields that identify a measurement without describing how it was run are carried, not read.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Unit {
    /// The sweep's name.
    pub scenario: String,
    /// Its lengths, as a short name.
    pub label: String,
    /// The engine that ran.
    pub framework: String,
    /// The chip, by its short name.
    pub gpu: String,
    /// Concurrencies of its points.
    pub concurrency: Vec<u32>,
    /// The day it ran, as an ISO date; absent where nothing recorded it.
    pub run_date: Option<String>,
    /// How it was launched.
    pub launch: UnitLaunch,
}

/// How a sweep was launched.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct UnitLaunch {
    /// The container image.
    pub image: String,
    /// The launch line, concurrency symbolic.
    pub server_command: String,
    /// Environment variables of the server.
    pub env: IndexMap<String, String>,
    /// The benchmark client.
    pub client: UnitClient,
}

/// The benchmark client of a sweep.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct UnitClient {
    /// Largest prompt length.
    pub isl: u32,
    /// Largest output length.
    pub osl: u32,
    /// Smallest length as a share of the largest.
    pub range_ratio: f64,
    /// Seed of the client's generator.
    pub seed: u32,
    /// Number of requests, in terms of `$CONC`.
    pub num_prompts: Value,
    /// What was sent before the timed requests, in words.
    pub warmups: String,
}

/// Reads every unit of a file.
pub fn read_units(path: &Path) -> Result<Vec<Unit>, InputError> {
    units(&Input::open(path)?)
}

/// Reads every unit of a text. `name` is what messages call the text.
pub fn parse_units(name: &str, text: &str) -> Result<Vec<Unit>, InputError> {
    units(&Input::of(name, text))
}

/// Every line as a unit, refusing sweeps stated twice.
fn units(input: &Input) -> Result<Vec<Unit>, InputError> {
    let mut units: Vec<Unit> = Vec::new();
    for Numbered { line, value: unit } in input.lines::<Unit>("a unit")? {
        if unit.concurrency.is_empty() || unit.concurrency.contains(&0) {
            let Unit { scenario, label, concurrency, .. } = &unit;
            return Err(input.at(line, format!("{scenario} {label}: concurrency must list numbers above 0, found {concurrency:?}")));
        }
        if units.iter().any(|other| (&other.scenario, &other.label) == (&unit.scenario, &unit.label)) {
            return Err(input.at(line, format!("{} {} stands on an earlier line too", unit.scenario, unit.label)));
        }
        units.push(unit);
    }
    Ok(units)
}
