//! From a source's records to the list of units, with an account of every record.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::identity::{canonical_json, identifying_fields, role_key, unit_id};
use crate::jsonl::{Input, InputError, Numbered};
use crate::sweep::{Sweep, WHAT, checked};

/// Revisions that name no revision.
const UNPINNED: &[&str] = &["", "latest", "main", "master", "head", "unknown"];

/// Where records come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Its name, part of every identity.
    pub name: String,
    /// A commit, hash, run or dated dump; part of no identity.
    pub revision: String,
}

/// One unit of the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// SHA-256 of the canonical JSON of `fields`.
    pub unit_id: String,
    /// The source's identifying fields.
    pub fields: Value,
    /// What it shares with the units that must share its role.
    pub role_key: Value,
}

/// What became of the records of one revision of a source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IngestReport {
    /// Which revision.
    pub source: Source,
    /// The file's name.
    pub file: String,
    /// SHA-256 of the file.
    pub sha256: String,
    /// Lines read.
    pub records_read: usize,
    /// Lines that state again what an earlier line states.
    pub records_merged: Vec<Merged>,
    /// Lines that give no unit.
    pub records_left_out: Vec<LeftOut>,
    /// Units listed.
    pub units: usize,
    /// Distinct role keys among them.
    pub role_keys: usize,
}

/// A record that repeats another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Merged {
    /// Its line.
    pub line: usize,
    /// The line it repeats.
    pub into: usize,
}

/// A record that gives no unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// Its line.
    pub line: usize,
    /// Why.
    pub reason: String,
}

/// A source that cannot be ingested.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The revision pins nothing.
    #[error("source revision `{0}` names no fixed state; give a commit, a hash, a run or a dated dump")]
    Unpinned(String),
    /// The records.
    #[error(transparent)]
    Input(#[from] InputError),
}

/// Lists the units of a source's records.
///
/// A line that is no record is an error, since it may be one that is cut short. A record equal to an earlier one is merged; one that
/// describes the deployment of an earlier record differently is left out, because nothing says which of the two ran.
pub fn ingest(input: &Input, source: &Source) -> Result<(Vec<Unit>, IngestReport), LedgerError> {
    if UNPINNED.contains(&source.revision.trim().to_ascii_lowercase().as_str()) {
        return Err(LedgerError::Unpinned(source.revision.clone()));
    }
    let mut first: BTreeMap<String, (usize, Sweep)> = BTreeMap::new();
    let (mut units, mut merged, mut left_out, mut read) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for Numbered { line, value } in input.lines::<Sweep>(WHAT)? {
        read += 1;
        let sweep = checked(input, line, value)?;
        let key = role_key(&source.name, &sweep);
        match first.get(&canonical_json(&key)) {
            Some((into, same)) if *same == sweep => merged.push(Merged { line, into: *into }),
            Some((earlier, _)) => {
                let reason = format!("describes the deployment of line {earlier} differently");
                left_out.push(LeftOut { line, reason });
            }
            None => {
                units.extend(sweep.concurrency.iter().map(|&concurrency| {
                    let fields = identifying_fields(&source.name, &sweep, concurrency);
                    Unit { unit_id: unit_id(&fields), fields, role_key: key.clone() }
                }));
                first.insert(canonical_json(&key), (line, sweep));
            }
        }
    }
    let report = IngestReport {
        source: source.clone(),
        file: input.name(),
        sha256: input.sha256(),
        records_read: read,
        records_merged: merged,
        records_left_out: left_out,
        units: units.len(),
        role_keys: first.len(),
    };
    Ok((units, report))
}
