//! Memory that neither plan nor graph states: a base, and what each rank, captured graph and token adds.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use crate::inputs::Inputs;
use crate::value::Value;

/// Coefficients of a piece of memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Bytes {
    base: Value,
    per_rank: Value,
    per_graph: Value,
    per_token: Value,
}

impl Bytes {
    pub(super) fn read(entry: &Entry) -> Self {
        Self {
            base: Value::read(entry, "base"),
            per_rank: Value::read(entry, "per_rank"),
            per_graph: Value::read(entry, "per_graph"),
            per_token: Value::read(entry, "per_token"),
        }
    }

    /// Bytes on one rank.
    pub fn bytes(&self, x: &Inputs) -> f64 {
        self.base.at(x)
            + self.per_rank.at(x) * x.get(Input::Ranks)
            + self.per_graph.at(x) * x.get(Input::Graphs)
            + self.per_token.at(x) * x.get(Input::Tokens)
    }
}
