//! Tokens that every rank sends to the ranks of their experts, or what these yield on its way back: a time that even one token takes, and
//! what each token and each byte that a rank sends add.
//!
//! Left out: ranks that receive more than others; contention with other traffic.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use super::blend;
use crate::inputs::Inputs;
use crate::value::Value;

/// Coefficients of an exchange of tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    floor: Value,
    token_time: Value,
    megabyte_time: Value,
    sharpness: Value,
}

impl Exchange {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        let read = |name| Value::read(entry, name, fixed);
        Self { floor: read("floor"), token_time: read("token_time"), megabyte_time: read("megabyte_time"), sharpness: read("sharpness") }
    }

    /// Microseconds of one call.
    pub fn microseconds(&self, x: &Inputs) -> f64 {
        let moved = self.token_time.at(x) * x.get(Input::Tokens) / 1e3 + self.megabyte_time.at(x) * x.get(Input::Bytes) / 1e6;
        blend(self.sharpness.at(x), [self.floor.at(x), moved])
    }
}
