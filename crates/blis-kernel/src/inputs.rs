//! The numbers a form reads besides its coefficients, by name.
//!
//! One flat array, so that filling it for a step allocates nothing. A number no caller set is not a number, and any price made
//! from it is caught by the tests of finite prices.

use blis_registry::vocabulary::Input;

/// Values of inputs; those never set are NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Inputs([f64; Input::COUNT]);

impl Inputs {
    /// No input set.
    pub const NONE: Self = Self([f64::NAN; Input::COUNT]);

    /// The value of one input.
    pub const fn get(&self, input: Input) -> f64 {
        self.0[input as usize]
    }

    /// Sets one input.
    pub const fn set(&mut self, input: Input, value: f64) {
        self.0[input as usize] = value;
    }

    /// The same inputs with one set.
    #[must_use]
    pub const fn with(mut self, input: Input, value: f64) -> Self {
        self.set(input, value);
        self
    }
}
