//! The data in use: catalog and coefficient registry, each embedded or read from a path.

use std::path::Path;

use blis_catalog::{Catalog, CatalogError};
use blis_contracts::result::DataOrigin;
use blis_registry::{Registry, RegistryError};

/// Catalog and registry.
#[derive(Debug)]
pub struct World {
    /// Published facts.
    pub catalog: Catalog,
    /// Coefficients.
    pub registry: Registry,
    origin: DataOrigin,
}

/// Data that do not load.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The catalog does not.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The registry does not.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl World {
    /// The data the program was released with.
    pub fn released() -> Self {
        Self { catalog: Catalog::embedded(), registry: Registry::embedded(), origin: DataOrigin::Released }
    }

    /// The released data, with either part replaced by a folder.
    pub fn with_paths(catalog: Option<&Path>, registry: Option<&Path>) -> Result<Self, WorldError> {
        let origin = if catalog.is_none() && registry.is_none() { DataOrigin::Released } else { DataOrigin::Experimental };
        Ok(Self {
            catalog: catalog.map_or_else(|| Ok(Catalog::embedded()), |root| Catalog::open(root, &[]))?,
            registry: registry.map_or_else(|| Ok(Registry::embedded()), |root| Registry::open(root, &[]))?,
            origin,
        })
    }

    /// Whether these are the released data.
    pub fn origin(&self) -> DataOrigin {
        self.origin
    }
}
