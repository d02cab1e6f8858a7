//! Roles of units, read from a list given by path, and the lists that may be published.
//!
//! A role belongs to a role key: every unit of one deployment has the same. Only `fit`, `anchor` and `report` are ever printed; which
//! units are kept back for choosing and judging is nobody's to read off a published list.

use std::collections::BTreeMap;

use blis_contracts::strict::nearest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::identity::canonical_json;
use super::ingest::Unit;
use crate::jsonl::{Input, InputError, Numbered};

/// What a unit may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Fitting a coefficient.
    Fit,
    /// Choosing between candidates.
    Select,
    /// Measuring a method's typical error.
    Validate,
    /// Judging a change at its gate.
    Held,
    /// Public accuracy.
    Anchor,
    /// Context, never a number.
    Report,
}

/// One line of a role list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleLine {
    /// The deployment.
    pub scenario: String,
    /// Its lengths.
    pub label: String,
    /// Its role.
    pub role: Role,
}

/// The published lists: identifiers by role. A role without members is an empty list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedLists {
    /// Units to fit on.
    pub fit: Vec<String>,
    /// Units of public accuracy.
    pub anchor: Vec<String>,
    /// Units of context.
    pub report: Vec<String>,
}

/// The published lists of a list of roles. A deployment that no unit belongs to, and one with two roles, are refused by line.
pub fn published_lists(units: &[Unit], roles: &Input) -> Result<PublishedLists, InputError> {
    let mut members: BTreeMap<(String, String), Vec<&Unit>> = BTreeMap::new();
    for unit in units {
        let text = |field: &str| unit.role_key[field].as_str().unwrap_or_default().to_owned();
        members.entry((text("scenario"), text("label"))).or_default().push(unit);
    }
    let mut assigned: BTreeMap<(String, String), (usize, Role)> = BTreeMap::new();
    for Numbered { line, value } in roles.lines::<RoleLine>("a role of a deployment")? {
        let key = (value.scenario, value.label);
        if !members.contains_key(&key) {
            return Err(roles.at(line, unknown(&key, members.keys())));
        }
        if let Some((earlier, role)) = assigned.insert(key.clone(), (line, value.role)) {
            let message = format!("{} {} has the role {role:?} on line {earlier} already; a deployment has one", key.0, key.1);
            return Err(roles.at(line, message));
        }
    }
    let mut lists = PublishedLists { fit: Vec::new(), anchor: Vec::new(), report: Vec::new() };
    for (key, (_, role)) in &assigned {
        let list = match role {
            Role::Fit => &mut lists.fit,
            Role::Anchor => &mut lists.anchor,
            Role::Report => &mut lists.report,
            Role::Select | Role::Validate | Role::Held => continue,
        };
        list.extend(members[key].iter().map(|unit| unit.unit_id.clone()));
    }
    for list in [&mut lists.fit, &mut lists.anchor, &mut lists.report] {
        list.sort_unstable();
    }
    Ok(lists)
}

/// A complaint about a deployment that is not there, with the nearest that is.
pub(crate) fn unknown<'a>(key: &(String, String), known: impl Iterator<Item = &'a (String, String)>) -> String {
    let names: Vec<String> = known.map(|(scenario, label)| format!("{scenario} {label}")).collect();
    let wanted = format!("{} {}", key.0, key.1);
    let hint = nearest(&wanted, names.iter().map(String::as_str)).map(|name| format!("; the nearest is {name}")).unwrap_or_default();
    format!("no unit is called {wanted}{hint}")
}

/// Reads a list of units as [`super::ingest::ingest`] gives them. One whose identifier is not that of its fields is refused.
pub fn read_units(input: &Input) -> Result<Vec<Unit>, InputError> {
    let mut units: Vec<Unit> = Vec::new();
    let mut seen = BTreeMap::new();
    for Numbered { line, value } in input.lines::<Unit>("a unit of the ledger")? {
        let id = super::identity::unit_id(&value.fields);
        if id != value.unit_id {
            return Err(input.at(line, format!("unit_id is {}, but the fields {} give {id}", value.unit_id, canonical_json(&value.fields))));
        }
        if let Some(earlier) = seen.insert(id, line) {
            return Err(input.at(line, format!("the unit stands on line {earlier} too")));
        }
        units.push(value);
    }
    Ok(units)
}
