//! Attention to, or scoring of, entries that each row names by a list of its own.
//!
//! Every request and every row has a fixed time; each entry is read, and multiplied over all heads, once for each row that names it.
//! Rows of few scores are selected from by ranking every pair of them, which costs their square; longer ones are sorted by digits, which
//! the time of a row covers. Left out: the second-level cache, although rows of one request name much the same entries.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use super::blend;
use crate::inputs::Inputs;
use crate::value::Value;

/// Comparisons that `comparison_time` is stated for.
const PER_COMPARISONS: f64 = 1e6;

/// Coefficients of work over listed entries.
#[derive(Debug, Clone, PartialEq)]
pub struct Gathered {
    latency: Value,
    request_time: Value,
    query_time: Value,
    comparison_time: Value,
    memory_efficiency: Value,
    compute_efficiency: Value,
    sharpness: Value,
}

impl Gathered {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        Self {
            latency: Value::read(entry, "latency", fixed),
            request_time: Value::read(entry, "request_time", fixed),
            query_time: Value::read(entry, "query_time", fixed),
            comparison_time: Value::read(entry, "comparison_time", fixed),
            memory_efficiency: Value::read(entry, "memory_efficiency", fixed),
            compute_efficiency: Value::read(entry, "compute_efficiency", fixed),
            sharpness: Value::read(entry, "sharpness", fixed),
        }
    }

    /// Microseconds of one call.
    pub fn microseconds(&self, x: &Inputs) -> f64 {
        let entries = x.get(Input::Entries);
        let memory = entries * x.get(Input::EntryBytes) / (x.get(Input::Bandwidth) * self.memory_efficiency.at(x));
        let compute = entries * x.get(Input::EntryOperations) / (x.get(Input::Peak) * self.compute_efficiency.at(x));
        let rows = self.request_time.at(x) * x.get(Input::Requests) + self.query_time.at(x) * x.get(Input::Queries);
        let ranked = self.comparison_time.at(x) * x.get(Input::Comparisons) / PER_COMPARISONS;
        self.latency.at(x) + rows + ranked + blend(self.sharpness.at(x), [memory, compute])
    }
}
