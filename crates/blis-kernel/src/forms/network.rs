//! A collective over several domains of links: what happens within one of them, hops over the network, and the bytes of one port.
//!
//! The library moves a message in pieces, so that what crosses the network overlaps with what a domain moves: latencies add up, and
//! the slower stream of bytes decides. Left out: contention with other traffic.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use super::Collective;
use crate::inputs::Inputs;
use crate::value::Value;

/// A collective that leaves its domain.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    within: Collective,
    hop_time: Value,
    efficiency: Value,
}

impl Network {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        let value = |name| Value::read(entry, name, fixed);
        Self { within: Collective::read(entry), hop_time: value("hop_time"), efficiency: value("efficiency") }
    }

    /// What happens within a domain, by ranges of sizes.
    pub(super) const fn within(&self) -> &Collective {
        &self.within
    }

    /// Microseconds of one call.
    pub fn microseconds(&self, x: &Inputs) -> f64 {
        let (latency, transfer) = self.within.parts(x);
        let crossing = x.get(Input::PortBytes) / (x.get(Input::NetworkBandwidth) * self.efficiency.at(x));
        latency + self.hop_time.at(x) * x.get(Input::Hops) + transfer.max(crossing)
    }
}
