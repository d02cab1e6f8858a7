//! Which files of a catalog are data: a chip, a network and a storage device are a file each, a model a directory of files. The build script includes this file.
//!
//! A vendor's own configuration lies beside a model for the deriver; it is no data and no run reads it.

use crate::data::{Patterns, Role};

/// The directory of chips.
pub(crate) const HARDWARE: &str = "hardware";
/// The directory of networks.
pub(crate) const NETWORKS: &str = "networks";
/// The directory of storage devices.
pub(crate) const STORAGE: &str = "storage";
/// The directory of models.
pub(crate) const MODELS: &str = "models";
/// A model's graph, the one file of it that a run reads.
pub(crate) const GRAPH: &str = "graph.yaml";
/// What the catalog states about a model that its vendor's files cannot say.
pub(crate) const ENTRY: &str = "model.yaml";
/// The vendor's configuration of a model.
pub(crate) const CONFIG: &str = "config.json";
/// modelopt's declaration of a quantised checkpoint.
pub(crate) const QUANTISATION_CONFIG: &str = "hf_quant_config.json";

/// The rules of a catalog's tree.
pub(crate) const PATTERNS: Patterns = Patterns {
    classify,
    described: "hardware/NAME.yaml, networks/NAME.yaml, storage/NAME.yaml, models/NAME/graph.yaml, models/NAME/model.yaml",
};

fn classify(path: &str, is_directory: bool) -> Option<Role> {
    let parts: Vec<&str> = path.split('/').collect();
    match (parts.as_slice(), is_directory) {
        ([HARDWARE | NETWORKS | STORAGE | MODELS] | [MODELS, _], true) => Some(Role::Directory),
        // Case counts: `H100.YAML` is not data.
        ([HARDWARE | NETWORKS | STORAGE, name], false) if name.strip_suffix(".yaml").is_some() => Some(Role::Data),
        ([MODELS, _, GRAPH | ENTRY], false) => Some(Role::Data),
        // Whatever lies beside the data directories, and the deriver's sources.
        ([_], _) | ([MODELS, _, CONFIG | QUANTISATION_CONFIG], false) => Some(Role::Ignored),
        _ => None,
    }
}
