//! Which files are catalog data, and reading them from disk: the same rules for a path, an overlay and the copy embedded at build time.
//!
//! A file inside a data directory that matches no pattern, a symbolic link, a carriage return and two paths that differ only in
//! case are refused. Files outside the data directories are ignored. The build script includes this file.

use std::fs;
use std::path::Path;

/// The data directories, and what may lie in them: a chip is a file, a model a directory of files.
pub(crate) const HARDWARE: &str = "hardware";
pub(crate) const MODELS: &str = "models";
/// A model's graph, the one file of it that a run reads.
pub(crate) const GRAPH: &str = "graph.yaml";

/// Data files in a model's directory.
const MODEL_DATA: &[&str] = &[GRAPH, "model.yaml"];
/// Files in a model's directory that are kept for the deriver and are no data.
const MODEL_SOURCES: &[&str] = &["config.json", "hf_quant_config.json"];
/// The largest data file, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// A data file: its path relative to the catalog, with forward slashes, and its text.
pub(crate) type DataFile = (String, String);

/// A file that is refused, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) path: String,
    pub(crate) reason: String,
}

/// Reads every data file of a catalog directory, sorted by path in byte order.
pub(crate) fn read_catalog(root: &Path) -> Result<Vec<DataFile>, Refused> {
    let refuse = |path: &str, reason: &str| Refused { path: path.to_owned(), reason: reason.to_owned() };
    if !root.is_dir() {
        return Err(refuse(&root.display().to_string(), "not a directory"));
    }
    let mut files = Vec::new();
    for directory in [HARDWARE, MODELS] {
        if root.join(directory).exists() {
            walk(root, directory, &mut files)?;
        }
    }
    files.sort();
    let mut folded: Vec<(String, &str)> = files.iter().map(|(path, _)| (path.to_lowercase(), path.as_str())).collect();
    folded.sort();
    match folded.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(refuse(pair[1].1, &format!("differs from {} only in case", pair[0].1))),
        None => Ok(files),
    }
}

fn walk(root: &Path, directory: &str, files: &mut Vec<DataFile>) -> Result<(), Refused> {
    let unreadable = |path: &str, error: &std::io::Error| Refused { path: path.to_owned(), reason: format!("cannot be read: {error}") };
    for item in fs::read_dir(root.join(directory)).map_err(|error| unreadable(directory, &error))? {
        let item = item.map_err(|error| unreadable(directory, &error))?;
        let path = format!("{directory}/{}", item.file_name().to_string_lossy());
        let kind = item.file_type().map_err(|error| unreadable(&path, &error))?;
        if kind.is_symlink() {
            return Err(Refused { path, reason: "a symbolic link; catalog data are plain files".to_owned() });
        }
        match classify(&path, kind.is_dir()) {
            Some(Role::Directory) => walk(root, &path, files)?,
            Some(Role::Source) => {}
            Some(Role::Data) => {
                let text = read_text(&root.join(&path)).map_err(|reason| Refused { path: path.clone(), reason })?;
                files.push((path, text));
            }
            None => {
                let reason = "matches no pattern of catalog data (hardware/NAME.yaml, models/NAME/graph.yaml, models/NAME/model.yaml)";
                return Err(Refused { path, reason: reason.to_owned() });
            }
        }
    }
    Ok(())
}

/// What a path within a data directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Directory,
    Data,
    Source,
}

fn classify(path: &str, is_directory: bool) -> Option<Role> {
    let parts: Vec<&str> = path.split('/').collect();
    match (parts.as_slice(), is_directory) {
        ([MODELS, _], true) => Some(Role::Directory),
        ([HARDWARE, name], false) if name.strip_suffix(".yaml").is_some() => Some(Role::Data),
        ([MODELS, _, name], false) if MODEL_DATA.contains(name) => Some(Role::Data),
        ([MODELS, _, name], false) if MODEL_SOURCES.contains(name) => Some(Role::Source),
        _ => None,
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let size = fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?.len();
    if size > MAX_BYTES {
        return Err(format!("{size} bytes, more than the {MAX_BYTES} a document may have"));
    }
    let bytes = fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    if text.contains('\r') {
        return Err("contains a carriage return; catalog data end their lines with a line feed alone".to_owned());
    }
    Ok(text)
}
