//! Which files of a registry are data: one directory for each chip, one file for each family, and the table of errors. The build script
//! includes this file.

use crate::data::{Patterns, Role};

/// The rules of a registry's tree.
pub(crate) const PATTERNS: Patterns = Patterns { classify, described: "CHIP/FAMILY.yaml" };

fn classify(path: &str, is_directory: bool) -> Option<Role> {
    // Case counts: `GEMM.YAML` is not data.
    let extension = path.rsplit_once('.').map(|(_, extension)| extension);
    if path == "errors.yaml" && !is_directory {
        return Some(Role::Data);
    }
    match (path.split('/').count(), is_directory, extension) {
        (1, true, _) => Some(Role::Directory),
        (2, false, Some("yaml")) => Some(Role::Data),
        // Notes beside the chips; a data file there would silently price nothing.
        (1, false, extension) if !matches!(extension, Some("yaml" | "yml" | "json")) => Some(Role::Ignored),
        _ => None,
    }
}
