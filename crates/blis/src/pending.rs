//! A file that is whole or absent: written under a temporary name beside its place and renamed when it is complete.
//!
//! A place that the command reads, or that another of its outputs has, is refused at once.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::{interrupt, taken};

/// A file being written. Dropped before [`PendingFile::complete`], it leaves nothing.
#[derive(Debug)]
pub(crate) struct PendingFile {
    out: Option<BufWriter<File>>,
    partial: PathBuf,
    place: PathBuf,
}

impl PendingFile {
    /// Starts a file that will lie at `place`.
    pub(crate) fn create(place: &Path) -> io::Result<Self> {
        if place.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        taken::writing(place)?;
        let pending = Self::begin(place);
        if pending.is_err() {
            taken::written(place);
        }
        pending
    }

    fn begin(place: &Path) -> io::Result<Self> {
        let mut name = place.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?.to_owned();
        name.push(".partial");
        let partial = place.with_file_name(name);
        let file = File::create(&partial)?;
        interrupt::begun(&partial);
        Ok(Self { out: Some(BufWriter::new(file)), partial, place: place.to_owned() })
    }

    /// Puts the file at its place.
    pub(crate) fn complete(mut self) -> io::Result<()> {
        if let Some(mut out) = self.out.take() {
            out.flush()?;
        }
        fs::rename(&self.partial, &self.place)
    }
}

impl Write for PendingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.as_mut().expect("a file takes no more once it is complete").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.as_mut().expect("a file takes no more once it is complete").flush()
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        drop(self.out.take());
        interrupt::ended(&self.partial);
        taken::written(&self.place);
        // Already renamed, or nothing more can be done about it.
        let _ = fs::remove_file(&self.partial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_no_place_for_a_file_and_that_shows_at_once() {
        let folder = std::env::temp_dir().join(format!("blis-pending-folder-{}", std::process::id()));
        fs::create_dir_all(folder.join("requests.csv")).unwrap();
        assert_eq!(PendingFile::create(&folder.join("requests.csv")).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_is_whole_or_absent() {
        let folder = std::env::temp_dir().join(format!("blis-pending-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let place = folder.join("requests.csv");
        let mut abandoned = PendingFile::create(&place).unwrap();
        abandoned.write_all(b"half").unwrap();
        assert!(!place.exists());
        drop(abandoned);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        let mut whole = PendingFile::create(&place).unwrap();
        whole.write_all(b"whole").unwrap();
        whole.complete().unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"whole");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
