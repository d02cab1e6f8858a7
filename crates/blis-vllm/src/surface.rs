//! The surface list: everything the modelled release registers under a name, and what this port does with each item.
//!
//! Generated from the wheel by `tools/surface.py` into `data/surface.json`, embedded, and read once on first use. The settings
//! themselves stand in the field table; here stand what a setting may name, what a model may need and what a run may show:
//! connectors, cache types, speculative methods, policies, backends, metrics, events.

use std::sync::LazyLock;

use serde::Deserialize;

/// One registered name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// What it is one of.
    pub category: &'static str,
    /// Upstream's name.
    pub name: &'static str,
    /// The class upstream's registration maps the name to, where it maps names to classes.
    #[serde(default)]
    pub maps_to: Option<&'static str>,
    /// The setting that names it, where one does.
    #[serde(default)]
    pub setting: Option<&'static str>,
    /// What this port does with it.
    pub status: Coverage,
    /// Which of the allowed reasons puts it out of scope.
    #[serde(default)]
    pub scope: Option<&'static str>,
    /// The file of upstream that shows it.
    #[serde(default)]
    pub upstream: Option<&'static str>,
    /// Why it has its status.
    pub reason: &'static str,
    /// Recorded scenarios and tests that cover it.
    #[serde(default)]
    pub evidence: Vec<&'static str>,
    /// Recorded scenarios that the tracer follows, although a launch line that asks for it is refused: nothing prices it.
    #[serde(default)]
    pub traced: Vec<&'static str>,
}

/// What this port does with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coverage {
    /// It runs as upstream's.
    Modelled,
    /// Refused by name.
    Refused,
    /// Never modelled.
    OutOfScope,
}

/// The whole list, by category, in the order in which upstream registers.
pub fn surface() -> &'static [Item] {
    static ITEMS: LazyLock<Vec<Item>> = LazyLock::new(|| {
        serde_json::from_str(include_str!("../data/surface.json")).expect("the list is generated together with this reader")
    });
    &ITEMS
}
