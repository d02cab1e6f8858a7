//! Memory that neither plan nor graph states: a base, and what each rank and kernel of a captured graph adds.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use crate::inputs::Inputs;
use crate::value::Value;

/// Coefficients of a piece of memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    base: Value,
    per_rank: Value,
    per_node: Value,
}

impl Stored {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        Self {
            base: Value::read(entry, "base", fixed),
            per_rank: Value::read(entry, "per_rank", fixed),
            per_node: Value::read(entry, "per_node", fixed),
        }
    }

    /// Bytes on one rank.
    pub fn bytes(&self, x: &Inputs) -> f64 {
        self.base.at(x) + self.per_rank.at(x) * x.get(Input::Ranks) + self.per_node.at(x) * x.get(Input::GraphNodes)
    }
}
