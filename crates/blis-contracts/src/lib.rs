//! The shared language of BLIS.
//!
//! Everything two crates must agree on lives here: quantities, the model graph and chip an engine is built from, the plan and the
//! step shape it hands to the cost model, the traits at which engine, cost model and simulator meet, the metric registry and the
//! documents. Nothing here knows an engine's name, policy or default, and nothing here holds a price.
//!
//! Reading order: [`units`], [`mod@format`], [`model`], [`chip`], [`network`], [`storage`], [`plan`], [`step`], [`part`], [`engine`], [`environment`], then the documents.

pub mod data;
pub mod scenario;
pub mod strict;
pub mod units;

pub mod chip;
pub mod format;
pub mod model;
pub mod network;
pub mod storage;

pub mod part;
pub mod plan;
pub mod step;
pub mod transfer;

pub mod engine;
pub mod environment;
pub mod request;

pub mod conformance;

pub mod fate;
pub mod metric;
pub mod provenance;
pub mod record;
pub mod result;
pub mod series;
pub mod validity;
