//! Which data a command uses: the copies compiled into this program, or folders the user names.

use std::path::PathBuf;

use blis_catalog::CatalogError;
use blis_registry::RegistryError;
use blis_sim::{World, WorldError};

use crate::failure::Failure;

/// Where the data come from.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct DataArgs {
    /// A catalog folder to use instead of the built-in one; it is validated whole
    #[arg(long, value_name = "DIR")]
    catalog: Option<PathBuf>,
    /// A registry folder to use instead of the built-in one; it is validated whole
    #[arg(long, value_name = "DIR")]
    registry: Option<PathBuf>,
}

impl DataArgs {
    /// Catalog and registry.
    pub(crate) fn world(&self) -> Result<World, Failure> {
        World::with_paths(self.catalog.as_deref(), self.registry.as_deref()).map_err(|error| match error {
            WorldError::Catalog(error) => catalog_failure(error),
            WorldError::Registry(RegistryError::Document(errors)) => Failure::Document { errors, text: None },
            WorldError::Registry(error) => Failure::input(error.to_string(), None),
        })
    }
}

/// What to tell the user about a catalog that could not answer.
pub(crate) fn catalog_failure(error: CatalogError) -> Failure {
    match error {
        CatalogError::Document(errors) => Failure::Document { errors, text: None },
        other @ (CatalogError::File { .. } | CatalogError::Collision { .. } | CatalogError::Unknown { .. }) => {
            Failure::input(other.to_string(), None)
        }
    }
}
