//! A dense matrix multiplication: rows x depth times depth x columns.
//!
//! Memory traffic and arithmetic overlap (blended); the walk of one thread block along `depth`, its fill, its drain and, past some
//! depth, the reduction of a split do not. Left out: tile quantisation over rows, which the efficiency curve averages.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use super::blend;
use crate::inputs::Inputs;
use crate::value::Value;

/// Coefficients of a matrix multiplication.
#[derive(Debug, Clone, PartialEq)]
pub struct Matmul {
    latency: Value,
    memory_efficiency: Value,
    compute_efficiency: Value,
    sharpness: Value,
}

impl Matmul {
    pub(super) fn read(entry: &Entry) -> Self {
        Self {
            latency: Value::read(entry, "latency"),
            memory_efficiency: Value::read(entry, "memory_efficiency"),
            compute_efficiency: Value::read(entry, "compute_efficiency"),
            sharpness: Value::read(entry, "sharpness"),
        }
    }

    /// Microseconds of one call.
    pub fn microseconds(&self, x: &Inputs) -> f64 {
        let (rows, columns, depth) = (x.get(Input::Rows), x.get(Input::Columns), x.get(Input::Depth));
        // Weights and inputs are read once, outputs are written once in 16 bits.
        let moved = x.get(Input::WeightBytes) + x.get(Input::InputBytes) * rows * depth + 2.0 * rows * columns;
        let memory = moved / (x.get(Input::Bandwidth) * self.memory_efficiency.at(x));
        let operations = 2.0 * rows * columns * depth;
        let compute = operations / (x.get(Input::Peak) * self.compute_efficiency.at(x));
        self.latency.at(x) + blend(memory, compute, self.sharpness.at(x))
    }
}
