//! Which files the command at hand reads and writes, so that nothing it writes replaces what it reads, and no two outputs are one file.
//!
//! Readers of what a user names call [`reading`], or [`reading_below`] for a folder whose files are data; every file is written as a
//! [`crate::pending::PendingFile`], which claims its place. Which comes first does not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::failure::Failure;

/// The files in use.
static TAKEN: Mutex<Taken> = Mutex::new(Taken { files: BTreeMap::new(), folders: BTreeSet::new() });

#[derive(Debug)]
struct Taken {
    files: BTreeMap<PathBuf, Use>,
    /// Folders of which anything may be read.
    folders: BTreeSet<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Written,
}

/// Notes that the command reads a file, unless one of its outputs goes there.
pub(crate) fn reading(path: &Path) -> Result<(), Failure> {
    let mut taken = taken();
    let place = identity(path);
    if taken.files.get(&place) == Some(&Use::Written) {
        return Err(unreadable(path, "an output of the command goes there"));
    }
    taken.files.insert(place, Use::Read);
    Ok(())
}

/// Notes that the command reads what lies below a folder, unless one of its outputs goes there.
pub(crate) fn reading_below(folder: &Path) -> Result<(), Failure> {
    let mut taken = taken();
    let root = identity(folder);
    if taken.files.iter().any(|(place, used)| *used == Use::Written && place.starts_with(&root)) {
        return Err(unreadable(folder, "an output of the command goes below it"));
    }
    taken.folders.insert(root);
    Ok(())
}

fn unreadable(path: &Path, used: &str) -> Failure {
    Failure::input(format!("{}: cannot be read: {used}; name another place for the output", path.display()), None)
}

fn taken() -> MutexGuard<'static, Taken> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Claims a place for a file that will be written, unless the command has another use of it.
pub(crate) fn writing(path: &Path) -> io::Result<()> {
    let mut taken = taken();
    let place = identity(path);
    let use_of = match taken.files.get(&place) {
        Some(Use::Read) => "the command reads it",
        Some(Use::Written) => "another output of the command goes there",
        None if taken.folders.iter().any(|folder| place.starts_with(folder) || entry(path).starts_with(folder)) => {
            "the command reads the folder above it"
        }
        None => {
            taken.files.insert(place, Use::Written);
            return Ok(());
        }
    };
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{use_of}; name another file")))
}

/// Gives a claimed place back.
pub(crate) fn written(path: &Path) {
    taken().files.remove(&identity(path));
}

/// One path for each file, however it is named: links and folders resolved as far as they exist.
fn identity(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| entry(path))
}

/// The path of what a folder lists, be it a link to elsewhere; an output replaces the link.
fn entry(path: &Path) -> PathBuf {
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
        assert!(reading(&folder.join("scenario.yaml")).is_ok());
        assert_eq!(told(&folder.join("inner/../scenario.yaml")), Err("the command reads it; name another file".to_owned()));
        assert_eq!(told(&folder.join("a.csv")), Ok(()));
        assert_eq!(told(&folder.join("inner/../a.csv")), Err("another output of the command goes there; name another file".to_owned()));
        written(&folder.join("a.csv"));
        assert_eq!(told(&folder.join("a.csv")), Ok(()));
        assert!(reading(&folder.join("inner/../a.csv")).is_err() && reading_below(&folder).is_err());
        assert!(reading_below(&folder.join("inner")).is_ok());
        assert_eq!(told(&folder.join("inner/b.csv")), Err("the command reads the folder above it; name another file".to_owned()));
        assert_eq!(told(&folder.join("inner.csv")), Ok(()));
        #[cfg(unix)]
        {
            std::fs::write(folder.join("outer.yaml"), "").unwrap();
            std::os::unix::fs::symlink("../outer.yaml", folder.join("inner/link.yaml")).unwrap();
            assert!(told(&folder.join("inner/link.yaml")).is_err(), "the link would be replaced");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
