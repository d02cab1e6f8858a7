//! Latent attention of requests with one new token each: one latent vector for each cached token, read once for all heads.
//!
//! Every head multiplies the whole vector, so that with many heads arithmetic binds as well as memory. Left out: that heads come in
//! tiles, and the second-level cache, because a step walks every layer's cache in between.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use super::attention_decode::mean_context;
use super::{Parts, blend};
use crate::inputs::Inputs;
use crate::value::Value;

/// Coefficients of latent decode attention.
#[derive(Debug, Clone, PartialEq)]
pub struct LatentDecode {
    latency: Value,
    unit_time: Value,
    memory_efficiency: Value,
    compute_efficiency: Value,
    sharpness: Value,
}

impl LatentDecode {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        Self {
            latency: Value::read(entry, "latency", fixed),
            unit_time: Value::read(entry, "unit_time", fixed),
            memory_efficiency: Value::read(entry, "memory_efficiency", fixed),
            compute_efficiency: Value::read(entry, "compute_efficiency", fixed),
            sharpness: Value::read(entry, "sharpness", fixed),
        }
    }

    /// One call, in its parts.
    pub fn parts(&self, x: &Inputs) -> Parts {
        let x = &x.with(Input::MeanContext, mean_context(x));
        let (context, key_dim) = (x.get(Input::Context), x.get(Input::HeadDim));
        let memory = context * key_dim * x.get(Input::ElementBytes) / (x.get(Input::Bandwidth) * self.memory_efficiency.at(x));
        let operations = 2.0 * context * x.get(Input::QueryHeads) * (key_dim + x.get(Input::ValueDim));
        let compute = operations / (x.get(Input::Peak) * self.compute_efficiency.at(x));
        let body = self.unit_time.at(x) * x.get(Input::Requests) + blend(self.sharpness.at(x), [memory, compute]);
        Parts { latency: self.latency.at(x), body }
    }
}
