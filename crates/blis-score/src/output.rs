//! Files that appear complete or not at all: written under another name beside their place, then renamed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub struct OutputError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub error: io::Error,
}

/// Writes a file whole. A reader sees what was there before or all of the new text.
pub fn write_whole(path: &Path, text: &str) -> Result<(), OutputError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = path.with_file_name(name);
    let written = write_synced(&partial, text).and_then(|()| fs::rename(&partial, path));
    written.map_err(|error| {
        // What is left of a failed attempt is worth nothing, and the first error is the one to tell.
        drop(fs::remove_file(&partial));
        OutputError { path: path.to_owned(), error }
    })
}

fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
