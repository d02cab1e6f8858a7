//! A collective over a group of ranks: a latency and a rate for each range of sizes that one algorithm serves.
//!
//! Left out: contention with other traffic. [`super::Network`] is for collectives that leave their domain.

use blis_registry::Entry;
use blis_registry::entry::AlgorithmRange;
use blis_registry::vocabulary::Input;

use crate::inputs::Inputs;

/// Algorithm ranges of a collective.
#[derive(Debug, Clone, PartialEq)]
pub struct Collective {
    ranges: Vec<AlgorithmRange>,
}

impl Collective {
    pub(super) fn read(entry: &Entry) -> Self {
        Self { ranges: entry.ranges.clone() }
    }

    /// The sizes in bytes that end a range, ascending.
    pub(crate) fn ends(&self) -> impl Iterator<Item = f64> {
        self.ranges.iter().filter_map(|range| range.up_to).map(|bytes| bytes as f64)
    }

    /// Microseconds of one call.
    pub fn microseconds(&self, x: &Inputs) -> f64 {
        let (latency, transfer) = self.parts(x);
        latency + transfer
    }

    /// Microseconds before the first byte, and of the bytes.
    pub(super) fn parts(&self, x: &Inputs) -> (f64, f64) {
        let bytes = x.get(Input::Bytes);
        let range = self.ranges.iter().find(|range| range.up_to.is_none_or(|up_to| bytes <= up_to as f64));
        let range = range.expect("a validated entry's last range has no upper end");
        (range.latency, bytes / range.bandwidth)
    }
}
