//! Published facts: chips, networks, storage devices, model graphs and the deriver that writes them.
//!
//! The catalog holds declared facts only, each with its citation: no fitted value, no behaviour of any engine. Models are graphs
//! derived from their vendor's configuration ([`mod@derive`]), never edited. The data lie in `catalog/` and are compiled in; a run may
//! name a directory instead, or lay its own entries over either ([`Catalog`]).
//!
//! Reading order: [`Catalog`], then [`mod@derive`] and its rules, then `validate`, `devices` and `counts`.

use blis_contracts::data;

mod catalog;
mod counts;
pub mod derive;
mod devices;
mod entry;
mod patterns;
mod tree;
mod validate;
mod write;

/// The embedded copy, written by the build script.
mod embedded {
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

pub use catalog::{Catalog, CatalogError};
pub use derive::{DeriveError, derive_catalog_model, derive_directory};
pub use entry::{ModelEntry, StatedQuantisation};
pub use write::write_graph;
