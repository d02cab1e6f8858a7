//! A kernel that only reads and writes: norms, activations, position embedding, look-up.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use crate::inputs::Inputs;
use crate::value::Value;

/// Coefficients of work bound by memory traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    floor: Value,
    memory_efficiency: Value,
}

impl Stream {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        Self { floor: Value::read(entry, "floor", fixed), memory_efficiency: Value::read(entry, "memory_efficiency", fixed) }
    }

    /// Microseconds of one call.
    pub fn microseconds(&self, x: &Inputs) -> f64 {
        self.floor.at(x) + x.get(Input::Bytes) / (x.get(Input::Bandwidth) * self.memory_efficiency.at(x))
    }
}
