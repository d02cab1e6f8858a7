//! Coefficient sets with provenance, and the look-up that ranks them by trust.
//!
//! A file holds one family of one chip, written by that family's script. [`ChipCoefficients`] joins the files of a chip and answers
//! which entry prices a call: measured before calibrated before transferred before literature before `vendor_spec` before roofline
//! before assumed. Facts (peaks, bandwidths, sizes) are the catalog's; formulas are the cost model's.
//!
//! Reading order: [`vocabulary`], [`entry`], [`form`], [`errors`], [`lookup`], [`registry`], [`validate`].

pub mod vocabulary;

pub mod entry;
pub mod form;

pub mod errors;

pub mod lookup;
pub mod registry;
pub mod validate;

mod patterns;

use blis_contracts::data;

pub use entry::{CoefficientSet, Entry};
pub use lookup::{ChipCoefficients, Found, NotPriced, Query, SetError};
pub use registry::{Registry, RegistryError};

/// The copy of the registry that the build script made.
mod embedded {
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}
