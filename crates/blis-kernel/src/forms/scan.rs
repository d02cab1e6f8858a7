//! A scan over chunks of prompts: kernels that write and read every chunk's states, between which the longest row passes its states
//! from chunk to chunk. The second-level cache gains as it does for streams.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use super::blend;
use crate::inputs::Inputs;
use crate::value::Value;

/// Coefficients of a scan.
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    latency: Value,
    walk_time: Value,
    memory_efficiency: Value,
    cache_gain: Value,
    sharpness: Value,
}

impl Scan {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        let read = |name| Value::read(entry, name, fixed);
        Self {
            latency: read("latency"),
            walk_time: read("walk_time"),
            memory_efficiency: read("memory_efficiency"),
            cache_gain: read("cache_gain"),
            sharpness: read("sharpness"),
        }
    }

    /// Microseconds of one call; the longest row has [`Input::New`] tokens.
    pub fn microseconds(&self, x: &Inputs) -> f64 {
        let walk = self.walk_time.at(x) * x.get(Input::New);
        let rate = x.get(Input::Bandwidth) * self.memory_efficiency.at(x) * (1.0 + self.cache_gain.at(x));
        let moved = x.get(Input::Bytes) / rate;
        self.latency.at(x) + blend(self.sharpness.at(x), [walk, moved])
    }
}
