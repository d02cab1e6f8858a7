//! A coefficient as a form reads it: a constant, or a curve over one input.

use blis_registry::entry::{Curve, Entry};
use blis_registry::vocabulary::Input;

use crate::inputs::Inputs;

/// A constant or a curve.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The same for every call.
    Constant(f64),
    /// Varies with an input.
    Varying(LogCurve),
}

/// Linear in the logarithm of its input between points, flat outside them.
#[derive(Debug, Clone, PartialEq)]
pub struct LogCurve {
    over: Input,
    logarithms: Vec<f64>,
    values: Vec<f64>,
}

impl Value {
    /// Reads a coefficient of an entry whose form declares it. A curve over an input that is fixed for all calls is a constant.
    ///
    /// Panics where the entry lacks a coefficient its form requires; the registry's validators refuse such an entry.
    pub fn read(entry: &Entry, name: &str, fixed: &Inputs) -> Self {
        if let Some(curve) = entry.curves.get(name) {
            let (curve, input) = (LogCurve::new(curve), fixed.get(curve.over));
            return if input.is_nan() { Self::Varying(curve) } else { Self::Constant(curve.at(input)) };
        }
        if let Some(coefficient) = entry.coefficients.get(name) {
            return Self::Constant(coefficient.value);
        }
        let spec = entry.form.coefficient(name).expect("a form reads only coefficients it declares");
        let neutral = spec.neutral.expect("a validated entry states every required coefficient");
        Self::Constant(neutral.value())
    }

    /// The value for a call.
    pub fn at(&self, inputs: &Inputs) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Varying(curve) => curve.at(inputs.get(curve.over)),
        }
    }
}

impl LogCurve {
    fn new(curve: &Curve) -> Self {
        Self {
            over: curve.over,
            logarithms: curve.points.iter().map(|&(x, _)| libm::log(x)).collect(),
            values: curve.points.iter().map(|&(_, y)| y).collect(),
        }
    }

    fn at(&self, input: f64) -> f64 {
        // Inputs are at least tiny: the logarithm of zero work is the curve's first point.
        let x = libm::log(input.max(1e-9));
        let above = self.logarithms.partition_point(|&point| point <= x);
        if above == 0 {
            return self.values[0];
        }
        if above == self.values.len() {
            return self.values[above - 1];
        }
        let (x0, x1) = (self.logarithms[above - 1], self.logarithms[above]);
        let (y0, y1) = (self.values[above - 1], self.values[above]);
        y0 + (y1 - y0) / (x1 - x0) * (x - x0)
    }
}
