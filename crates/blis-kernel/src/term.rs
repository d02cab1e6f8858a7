//! One entry made ready for pricing: its form, its fitted range, and how far its price can be trusted.

use blis_contracts::provenance::Method;
use blis_registry::vocabulary::{Input, Subject};
use blis_registry::{ChipCoefficients, Entry, Found, NotPriced, Query};

use crate::forms::Form;
use crate::inputs::Inputs;

/// A price whose interval is wider than this share of it is not determined by its data (VAL-10 of the design).
const WIDEST_SHARE: f64 = 0.5;

/// An entry ready for pricing.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    source: Entry,
    displaced: Vec<String>,
    form: Form,
    range: Vec<(Input, f64, f64)>,
}

impl Term {
    /// The term that prices a query, for calls that share their fixed inputs.
    pub fn find(coefficients: &ChipCoefficients, query: &Query<'_>, fixed: &Inputs) -> Result<Self, NotPriced> {
        let Found { entry, displaced } = coefficients.find(query)?;
        Ok(Self {
            source: entry.clone(),
            displaced: displaced.into_iter().map(|other| other.name.clone()).collect(),
            form: Form::read(entry, fixed),
            range: entry.range.iter().map(|(&input, &(low, high))| (input, low, high)).collect(),
        })
    }

    /// What it prices.
    pub const fn subject(&self) -> Subject {
        self.source.primitive
    }

    /// The entry's name in its file.
    pub fn entry(&self) -> &str {
        &self.source.name
    }

    /// How its coefficients were obtained.
    pub const fn method(&self) -> Method {
        self.source.method
    }

    /// Names of the less trusted or less specific entries it displaced.
    pub fn displaced(&self) -> &[String] {
        &self.displaced
    }

    /// The form with its coefficients.
    pub const fn form(&self) -> &Form {
        &self.form
    }

    /// The price of one call: microseconds, or bytes for memory.
    pub fn price(&self, inputs: &Inputs) -> f64 {
        self.form.price(inputs)
    }

    /// Whether a call lies outside what the coefficients were fitted on.
    pub fn extrapolates(&self, inputs: &Inputs) -> bool {
        self.range.iter().any(|&(input, low, high)| !(low..=high).contains(&self.form.input(input, inputs)))
    }

    /// Whether the data leave the price of a call open: its interval is wider than half of it.
    ///
    /// Each coefficient is moved across its own interval and the widths are added in quadrature, so that a coefficient the data do
    /// not determine counts for as much as the price depends on it. Fitted coefficients lean against each other, so this is wider
    /// than the interval the fit would give.
    pub fn unidentified(&self, inputs: &Inputs) -> bool {
        let squares: f64 = self.extremes().map(|(low, high)| high.price(inputs) - low.price(inputs)).map(|width| width * width).sum();
        libm::sqrt(squares) > WIDEST_SHARE * self.price(inputs).abs()
    }

    /// For each coefficient with an interval, the form with that coefficient at its ends.
    fn extremes(&self) -> impl Iterator<Item = (Form, Form)> {
        let constants = self.source.coefficients.iter().filter_map(|(name, coefficient)| {
            let (low, high) = coefficient.interval?;
            let at = |value| {
                let mut moved = self.source.clone();
                moved.coefficients[name].value = value;
                Form::read(&moved, &Inputs::NONE)
            };
            Some((at(low), at(high)))
        });
        let curves = self.source.curves.iter().filter(|(_, curve)| !curve.intervals.is_empty()).map(|(name, curve)| {
            let at = |end: fn(&(f64, f64)) -> f64| {
                let mut moved = self.source.clone();
                let values = curve.intervals.iter().map(end);
                moved.curves[name].points.iter_mut().zip(values).for_each(|(point, value)| point.1 = value);
                Form::read(&moved, &Inputs::NONE)
            };
            (at(|interval| interval.0), at(|interval| interval.1))
        });
        constants.chain(curves)
    }

    /// The rank of trust of a price with these flags: extrapolation ranks with `transferred`, an open price with `assumed` (VAL-3).
    pub fn rank(&self, extrapolated: bool, unidentified: bool) -> Method {
        let floor = match (extrapolated, unidentified) {
            (_, true) => Method::Assumed,
            (true, false) => Method::Transferred,
            (false, false) => Method::Measured,
        };
        self.method().max(floor)
    }
}
