//! Which files the command at hand reads and writes, so that nothing it writes replaces what it reads, and no two outputs are one file.
//!
//! Readers of what a user names call [`reading`]; every file is written as a [`crate::pending::PendingFile`], which claims its place.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The files in use.
static TAKEN: Mutex<BTreeMap<PathBuf, Use>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Written,
}

/// Notes that the command reads a file.
pub(crate) fn reading(path: &Path) {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(identity(path), Use::Read);
}

/// Claims a place for a file that will be written, unless the command has another use of it.
pub(crate) fn writing(path: &Path) -> io::Result<()> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let place = identity(path);
    let use_of = match taken.get(&place) {
        Some(Use::Read) => "the command reads it",
        Some(Use::Written) => "another output of the command goes there",
        None => {
            taken.insert(place, Use::Written);
            return Ok(());
        }
    };
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{use_of}; name another file")))
}

/// Gives a claimed place back.
pub(crate) fn written(path: &Path) {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&identity(path));
}

/// One path for each file, however it is named: links and folders resolved as far as they exist.
fn identity(path: &Path) -> PathBuf {
    if let Ok(whole) = path.canonicalize() {
        return whole;
    }
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        (Err(_), _) | (_, None) => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_use_however_it_is_named() {
        let folder = std::env::temp_dir().join(format!("blis-taken-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("inner")).unwrap();
        let told = |path: &Path| writing(path).map_err(|error| error.to_string());
        reading(&folder.join("scenario.yaml"));
        assert_eq!(told(&folder.join("inner/../scenario.yaml")), Err("the command reads it; name another file".to_owned()));
        assert_eq!(told(&folder.join("a.csv")), Ok(()));
        assert_eq!(told(&folder.join("inner/../a.csv")), Err("another output of the command goes there; name another file".to_owned()));
        written(&folder.join("a.csv"));
        assert_eq!(told(&folder.join("a.csv")), Ok(()));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
