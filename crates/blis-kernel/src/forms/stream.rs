//! A kernel that only reads and writes: norms, activations, position embedding, look-up. Operands that the second-level cache holds
//! may move faster than memory, by a gain.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use crate::inputs::Inputs;
use crate::value::Value;

/// Coefficients of work bound by memory traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    floor: Value,
    memory_efficiency: Value,
    cache_gain: Value,
}

impl Stream {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        let read = |name| Value::read(entry, name, fixed);
        Self { floor: read("floor"), memory_efficiency: read("memory_efficiency"), cache_gain: read("cache_gain") }
    }

    /// Microseconds of one call.
    pub fn microseconds(&self, x: &Inputs) -> f64 {
        let rate = x.get(Input::Bandwidth) * self.memory_efficiency.at(x) * (1.0 + self.cache_gain.at(x));
        self.floor.at(x) + x.get(Input::Bytes) / rate
    }
}
