//! Attention of requests with one new token each: the KV cache is streamed once.
//!
//! Besides the stream, each (request, key head) pair costs its own set-up and reduction; a window adds to both. Arithmetic never
//! binds at one query token per request. Left out: the second-level cache, because a step walks every layer's cache in between.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use super::Parts;
use crate::inputs::Inputs;
use crate::value::Value;

/// Coefficients of decode attention.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionDecode {
    latency: Value,
    unit_time: Value,
    memory_efficiency: Value,
    window_latency: Value,
    window_unit_time: Value,
}

impl AttentionDecode {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        Self {
            latency: Value::read(entry, "latency", fixed),
            unit_time: Value::read(entry, "unit_time", fixed),
            memory_efficiency: Value::read(entry, "memory_efficiency", fixed),
            window_latency: Value::read(entry, "window_latency", fixed),
            window_unit_time: Value::read(entry, "window_unit_time", fixed),
        }
    }

    /// One call, in its parts.
    pub fn parts(&self, x: &Inputs) -> Parts {
        let x = &x.with(Input::MeanContext, mean_context(x));
        let windowed = x.get(Input::Windowed);
        let units = x.get(Input::Requests) * x.get(Input::KvHeads);
        let unit_time = self.unit_time.at(x) + windowed * self.window_unit_time.at(x);
        // Keys and values.
        let read = 2.0 * x.get(Input::Context) * x.get(Input::KvHeads) * x.get(Input::HeadDim) * x.get(Input::ElementBytes);
        let memory = read / (x.get(Input::Bandwidth) * self.memory_efficiency.at(x));
        Parts { latency: self.latency.at(x) + windowed * self.window_latency.at(x), body: unit_time * units + memory }
    }
}

/// Tokens the mean request attends to.
pub(super) fn mean_context(x: &Inputs) -> f64 {
    (x.get(Input::Context) / x.get(Input::Requests)).max(1.0)
}
