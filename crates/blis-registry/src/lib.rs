//! Coefficient sets with provenance, and the look-up that ranks them by trust.
//!
//! A file holds one family of one chip, written by that family's script. [`ChipCoefficients`] joins the files of a chip and answers
//! which entry prices a call: measured before calibrated before transferred before literature before `vendor_spec` before roofline
//! before assumed. Facts (peaks, bandwidths, sizes) are the catalog's; formulas are the cost model's.
//!
//! Reading order: [`vocabulary`], [`entry`], [`form`], [`lookup`], [`validate`].

pub mod vocabulary;

pub mod entry;
pub mod form;

pub mod lookup;
pub mod validate;

pub use entry::{CoefficientSet, Entry};
pub use lookup::{ChipCoefficients, Found, NotPriced, Query, SetError};
