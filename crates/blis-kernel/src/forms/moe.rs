//! The experts of one layer on one rank: `pairs` (token, expert) pairs land on `hit` of the resident experts.
//!
//! Each expert that any token picks is read once; its rows decide how well its tiles are filled. Routing itself (top-k, sorting) is the
//! floor and what each resident expert adds, and one tile's walk along the width of the residual stream comes on top however few rows there
//! are; gathering a row for each pair and summing the answers is time for each element of these rows. Reading and computing add up: tiles of a few rows neither hide the reading of their weights nor fill the matrix units. How many
//! experts are hit is the routing balance's business.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use crate::inputs::Inputs;
use crate::value::Value;

/// Elements that `element_time` and `width_time` are stated for.
const PER_ELEMENTS: f64 = 1e3;

/// Coefficients of a layer of experts.
#[derive(Debug, Clone, PartialEq)]
pub struct Moe {
    floor: Value,
    expert_time: Value,
    element_time: Value,
    width_time: Value,
    memory_efficiency: Value,
    compute_efficiency: Value,
}

impl Moe {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        Self {
            floor: Value::read(entry, "floor", fixed),
            expert_time: Value::read(entry, "expert_time", fixed),
            element_time: Value::read(entry, "element_time", fixed),
            width_time: Value::read(entry, "width_time", fixed),
            memory_efficiency: Value::read(entry, "memory_efficiency", fixed),
            compute_efficiency: Value::read(entry, "compute_efficiency", fixed),
        }
    }

    /// Rows of the mean expert that is hit.
    pub(super) fn rows_per_expert(x: &Inputs) -> f64 {
        (x.get(Input::Pairs) / x.get(Input::Hit)).max(1.0)
    }

    /// Microseconds of one layer.
    pub fn microseconds(&self, x: &Inputs) -> f64 {
        let x = &x.with(Input::RowsPerExpert, Self::rows_per_expert(x));
        let (pairs, hit) = (x.get(Input::Pairs), x.get(Input::Hit));
        let memory = hit * x.get(Input::ExpertBytes) / (x.get(Input::Bandwidth) * self.memory_efficiency.at(x));
        let compute = pairs * x.get(Input::PairOperations) / (x.get(Input::Peak) * self.compute_efficiency.at(x));
        let walk = self.width_time.at(x) * x.get(Input::Width) / PER_ELEMENTS;
        let fixed = self.floor.at(x) + self.expert_time.at(x) * x.get(Input::Experts) + walk;
        let moved = self.element_time.at(x) * pairs * x.get(Input::Width) / PER_ELEMENTS;
        fixed + moved + memory + compute
    }
}
