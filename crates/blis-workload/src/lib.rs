//! Arrival processes, length models and benchmark clients' exact generators.
//!
//! Reading order: [`source`] is what the simulator sees.

pub mod source;
