//! A recurrence over prompts: every row walks its tokens one after the other, all of its states at once. Where there are more states
//! than the chip works on together, the work of all of them counts.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use super::blend;
use crate::inputs::Inputs;
use crate::value::Value;

/// Coefficients of a recurrence over prompts.
#[derive(Debug, Clone, PartialEq)]
pub struct Recurrence {
    latency: Value,
    walk_time: Value,
    unit_time: Value,
    token_time: Value,
    sharpness: Value,
}

impl Recurrence {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        let read = |name| Value::read(entry, name, fixed);
        Self {
            latency: read("latency"),
            walk_time: read("walk_time"),
            unit_time: read("unit_time"),
            token_time: read("token_time"),
            sharpness: read("sharpness"),
        }
    }

    /// Microseconds of one call; the longest row has [`Input::New`] tokens.
    pub fn microseconds(&self, x: &Inputs) -> f64 {
        let walk = self.walk_time.at(x) * x.get(Input::New);
        let units = self.unit_time.at(x) * x.get(Input::Rows) * x.get(Input::States);
        let work = units + self.token_time.at(x) * x.get(Input::Tokens) * x.get(Input::States);
        self.latency.at(x) + blend(self.sharpness.at(x), [walk, work])
    }
}
