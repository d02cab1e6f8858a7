//! Turning logits into tokens: passes over rows of logits, counted as bytes moved for each logit.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use crate::inputs::Inputs;
use crate::value::Value;

/// Coefficients of sampling.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    floor: Value,
    bytes_per_logit: Value,
    memory_efficiency: Value,
}

impl Sampling {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        Self {
            floor: Value::read(entry, "floor", fixed),
            bytes_per_logit: Value::read(entry, "bytes_per_logit", fixed),
            memory_efficiency: Value::read(entry, "memory_efficiency", fixed),
        }
    }

    /// Microseconds of one step.
    pub fn microseconds(&self, x: &Inputs) -> f64 {
        let moved = x.get(Input::Rows) * x.get(Input::Vocabulary) * self.bytes_per_logit.at(x);
        self.floor.at(x) + moved / (x.get(Input::Bandwidth) * self.memory_efficiency.at(x))
    }
}
