//! Work that grows with what it handles: host work and launches. A base, and what each request, token and operation adds.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use crate::inputs::Inputs;
use crate::value::Value;

/// Coefficients of work that grows with what it handles.
#[derive(Debug, Clone, PartialEq)]
pub struct PerUnit {
    base: Value,
    per_request: Value,
    per_token: Value,
    per_operation: Value,
}

impl PerUnit {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        Self {
            base: Value::read(entry, "base", fixed),
            per_request: Value::read(entry, "per_request", fixed),
            per_token: Value::read(entry, "per_token", fixed),
            per_operation: Value::read(entry, "per_operation", fixed),
        }
    }

    /// Microseconds of one occurrence.
    pub fn microseconds(&self, x: &Inputs) -> f64 {
        self.base.at(x)
            + self.per_request.at(x) * x.get(Input::Requests)
            + self.per_token.at(x) * x.get(Input::Tokens)
            + self.per_operation.at(x) * x.get(Input::Operations)
    }
}
