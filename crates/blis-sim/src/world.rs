//! The data in use: catalog and coefficient registry, each embedded or read from a path.

use std::path::Path;

use blis_catalog::{Catalog, CatalogError};
use blis_contracts::model::ModelGraph;
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

/// Where one kind of data comes from: the embedded copy unless a root is stated, with overlays.
#[derive(Debug, Clone, Default)]
pub struct Tree<'a> {
    /// A folder to use instead of the embedded copy.
    pub root: Option<&'a Path>,
    /// Folders laid over it, later ones over earlier ones.
    pub overlays: Vec<&'a Path>,
}

impl Tree<'_> {
    fn is_released(&self) -> bool {
        self.root.is_none() && self.overlays.is_empty()
    }
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

    /// The released data, with either part replaced by a folder, and folders laid over each, later ones over earlier ones.
    pub fn with_paths(catalog: &Tree<'_>, registry: &Tree<'_>) -> Result<Self, WorldError> {
        let origin = if catalog.is_released() && registry.is_released() { DataOrigin::Released } else { DataOrigin::Experimental };
        Ok(Self {
            catalog: match (catalog.root, &catalog.overlays[..]) {
                (None, []) => Catalog::embedded(),
                (None, overlays) => Catalog::embedded_with(overlays)?,
                (Some(root), overlays) => Catalog::open(root, overlays)?,
            },
            registry: match (registry.root, &registry.overlays[..]) {
                (None, []) => Registry::embedded(),
                (None, overlays) => Registry::embedded_with(overlays)?,
                (Some(root), overlays) => Registry::open(root, overlays)?,
            },
            origin,
        })
    }

    /// The same data with one more model, by name and aliases; it replaces a model of its name.
    pub fn with_model(self, graph: &ModelGraph) -> Result<Self, WorldError> {
        Ok(Self { catalog: self.catalog.with_model(graph)?, registry: self.registry, origin: DataOrigin::Experimental })
    }

    /// Whether these are the released data.
    pub fn origin(&self) -> DataOrigin {
        self.origin
    }
}
