//! A dense matrix multiplication: rows x depth times depth x columns.
//!
//! The body is the longest (blended) of moving the operands, multiplying them, and one thread block's walk along `depth`. What does
//! not overlap with it is the latency: fill, drain, the reduction of a split depth. Where an entry states tiles, a tile that is partly
//! empty is multiplied as a full one and efficiencies are those of the rows the tiles hold; elsewhere the efficiency curve averages
//! over them. Left out: tiles over columns.

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
    tiles: Tiles,
}

/// How a library's kernels cut the rows: one tile of a size for up to so many rows, three sizes in turn, then tiles of one size.
/// Zero stands for a size that is not there.
#[derive(Debug, Clone, PartialEq)]
struct Tiles {
    single: [Value; 3],
    repeated: Value,
}

impl Tiles {
    fn read(entry: &Entry, fixed: &Inputs) -> Self {
        let size = |name| Value::read(entry, name, fixed);
        Self { single: ["tile_first", "tile_second", "tile_third"].map(size), repeated: size("tile_rows") }
    }

    /// Rows that the tiles of a call have room for.
    fn hold(&self, x: &Inputs) -> f64 {
        let rows = x.get(Input::Rows);
        if let Some(tile) = self.single.iter().map(|size| size.at(x)).find(|&size| rows <= size) {
            return tile;
        }
        let tile = self.repeated.at(x);
        if tile > 0.0 { (rows / tile).ceil() * tile } else { rows }
    }
}

impl Matmul {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        Self {
            latency: Value::read(entry, "latency", fixed),
            depth_time: Value::read(entry, "depth_time", fixed),
            memory_efficiency: Value::read(entry, "memory_efficiency", fixed),
            compute_efficiency: Value::read(entry, "compute_efficiency", fixed),
            sharpness: Value::read(entry, "sharpness", fixed),
            tiles: Tiles::read(entry, fixed),
        }
    }

    /// Microseconds of one call.
    pub fn microseconds(&self, x: &Inputs) -> f64 {
        let (rows, columns, depth) = (x.get(Input::Rows), x.get(Input::Columns), x.get(Input::Depth));
        let held = self.tiles.hold(x);
        // Weights and inputs are read once, outputs are written once in 16 bits.
        let moved = x.get(Input::WeightBytes) + x.get(Input::InputBytes) * rows * depth + 2.0 * rows * columns;
        let x = &x.with(Input::Rows, held);
        let memory = moved / (x.get(Input::Bandwidth) * self.memory_efficiency.at(x));
        let operations = 2.0 * held * columns * depth;
        let compute = operations / (x.get(Input::Peak) * self.compute_efficiency.at(x));
        let walk = self.depth_time.at(x) * depth;
        self.latency.at(x) + blend(self.sharpness.at(x), [memory, compute, walk])
    }
}
