//! A dense matrix multiplication: rows x depth times depth x columns.
//!
//! The body is the longest (blended) of moving the operands, multiplying them, and one thread block's walk along `depth`. What does
//! not overlap with it is the latency: fill, drain, the reduction of a split depth. Left out: tile quantisation over rows, which the
//! efficiency curve averages.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use super::blend;
use crate::inputs::Inputs;
use crate::value::Value;

/// Coefficients of a matrix multiplication.
#[derive(Debug, Clone, PartialEq)]
pub struct Matmul {
    latency: Value,
    depth_time: Value,
    memory_efficiency: Value,
    compute_efficiency: Value,
    sharpness: Value,
}

impl Matmul {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        Self {
            latency: Value::read(entry, "latency", fixed),
            depth_time: Value::read(entry, "depth_time", fixed),
            memory_efficiency: Value::read(entry, "memory_efficiency", fixed),
            compute_efficiency: Value::read(entry, "compute_efficiency", fixed),
            sharpness: Value::read(entry, "sharpness", fixed),
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
        let walk = self.depth_time.at(x) * depth;
        self.latency.at(x) + blend(self.sharpness.at(x), [memory, compute, walk])
    }
}
