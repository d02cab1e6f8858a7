//! The cost model, held to the shipped registry and catalog, to the fitting scripts' own answers, and to the laws any price obeys.

mod crossing;
mod fixture;
mod growth;

mod memo;
mod memory;
mod perturbation;
mod properties;
mod registry;
mod report;
mod vectors;
