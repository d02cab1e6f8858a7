//! Which data a command uses: the copies compiled into this program, or folders the user names.

use std::path::{Path, PathBuf};

use blis_catalog::CatalogError;
use blis_registry::RegistryError;
use blis_sim::{Tree, World, WorldError};

use crate::failure::Failure;
use crate::taken;

/// Where the data come from.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct DataArgs {
    /// A catalog folder to use instead of the built-in one; it is validated whole
    #[arg(long, value_name = "DIR")]
    catalog: Option<PathBuf>,
    /// A folder of models and chips laid over the catalog, each replacing the one of its name; may be repeated
    #[arg(long, value_name = "DIR")]
    catalog_overlay: Vec<PathBuf>,
    /// A registry folder to use instead of the built-in one; it is validated whole
    #[arg(long, value_name = "DIR")]
    registry: Option<PathBuf>,
    /// A folder of coefficients laid over the registry, each replacing the entry of its name and scope; may be repeated
    #[arg(long, value_name = "DIR")]
    registry_overlay: Vec<PathBuf>,
}

impl DataArgs {
    /// Catalog and registry.
    pub(crate) fn world(&self) -> Result<World, Failure> {
        let overlays = self.catalog_overlay.iter().chain(&self.registry_overlay);
        for folder in self.catalog.iter().chain(&self.registry).chain(overlays) {
            taken::reading_below(folder)?;
        }
        World::with_paths(&tree(self.catalog.as_deref(), &self.catalog_overlay), &tree(self.registry.as_deref(), &self.registry_overlay))
            .map_err(world_failure)
    }
}

fn tree<'a>(root: Option<&'a Path>, overlays: &'a [PathBuf]) -> Tree<'a> {
    Tree { root, overlays: overlays.iter().map(PathBuf::as_path).collect() }
}

/// What to tell the user about data that do not load.
pub(crate) fn world_failure(error: WorldError) -> Failure {
    match error {
        WorldError::Catalog(error) => catalog_failure(error),
        WorldError::Registry(RegistryError::Document(errors)) => Failure::Document { errors, text: None },
        WorldError::Registry(error) => Failure::input(error.to_string(), None),
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
