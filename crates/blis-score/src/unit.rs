//! Units: sweeps as they were run, one JSON object per line.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Value;

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

/// A unit file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    /// The file itself.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// One of its lines.
    #[error("{}:{line}: {message}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
}

/// Reads every unit of a file.
pub fn read_units(path: &Path) -> Result<Vec<Unit>, UnitError> {
    let text = std::fs::read_to_string(path).map_err(|error| UnitError::File { path: path.to_owned(), error })?;
    parse_units(path, &text)
}

/// Reads every unit of a text, refusing lines that are no unit and sweeps stated twice. `path` is what messages call the text.
pub fn parse_units(path: impl AsRef<Path>, text: &str) -> Result<Vec<Unit>, UnitError> {
    let path = path.as_ref();
    let mut units: Vec<Unit> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let at = |message: String| UnitError::Line { path: path.to_owned(), line: number + 1, message };
        let unit: Unit = serde_json::from_str(line).map_err(|error| at(error.to_string()))?;
        if unit.concurrency.is_empty() || unit.concurrency.contains(&0) {
            return Err(at(format!(
                "{} {}: concurrency must list numbers above 0, found {:?}",
                unit.scenario, unit.label, unit.concurrency
            )));
        }
        if units.iter().any(|other| (&other.scenario, &other.label) == (&unit.scenario, &unit.label)) {
            return Err(at(format!("{} {} stands on an earlier line too", unit.scenario, unit.label)));
        }
        units.push(unit);
    }
    if units.is_empty() {
        return Err(UnitError::Line { path: path.to_owned(), line: 1, message: "the file holds no unit".to_owned() });
    }
    Ok(units)
}
