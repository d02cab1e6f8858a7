//! One entry made ready for pricing: its form, its fitted range, and how far its value can be trusted.

use blis_contracts::provenance::Method;
use blis_registry::vocabulary::{Input, Subject};
use blis_registry::{ChipCoefficients, Found, NotPriced, Query};

use crate::forms::Form;
use crate::inputs::Inputs;

/// An entry ready for pricing.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// What it prices.
    pub subject: Subject,
    /// The entry's name in its file.
    pub entry: String,
    /// How its coefficients were obtained.
    pub method: Method,
    /// Whether its data leave a coefficient open.
    pub unidentified: bool,
    /// Names of the less trusted or less specific entries it displaced.
    pub displaced: Vec<String>,
    /// The form with its coefficients.
    pub form: Form,
    range: Vec<(Input, f64, f64)>,
}

impl Term {
    /// The term that prices a query.
    pub fn find(coefficients: &ChipCoefficients, query: &Query<'_>) -> Result<Self, NotPriced> {
        let Found { entry, displaced } = coefficients.find(query)?;
        Ok(Self {
            subject: entry.primitive,
            entry: entry.name.clone(),
            method: entry.method,
            unidentified: entry.unidentified(),
            displaced: displaced.into_iter().map(|other| other.name.clone()).collect(),
            form: Form::read(entry),
            range: entry.range.iter().map(|(&input, &(low, high))| (input, low, high)).collect(),
        })
    }

    /// Whether a call lies outside what the coefficients were fitted on.
    pub fn extrapolates(&self, inputs: &Inputs) -> bool {
        let inputs = self.form.complete(inputs);
        self.range.iter().any(|&(input, low, high)| !(low..=high).contains(&inputs.get(input)))
    }

    /// The rank of trust a price by this term has: extrapolation ranks with `transferred`, an open coefficient with `assumed`.
    pub fn effective(&self, extrapolated: bool) -> Method {
        let floor = if self.unidentified {
            Method::Assumed
        } else if extrapolated {
            Method::Transferred
        } else {
            Method::Measured
        };
        self.method.max(floor)
    }
}
