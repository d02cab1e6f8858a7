//! Reading what a graph is derived from: a checkpoint's directory, or a model's directory in the catalog.
//!
//! Of a safetensors shard only the JSON header is read, never tensor data.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use blis_contracts::model::ModelGraph;
use blis_contracts::strict::{Document, LineEndings};

use super::{DeriveError, Inputs, derive};
use crate::entry::ModelEntry;
use crate::patterns::{CONFIG, ENTRY, QUANTISATION_CONFIG};

/// The largest configuration that is read, in bytes.
const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// The largest header the safetensors format allows, in bytes.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Derives the graph of the checkpoint in a directory. It answers to the name that launch lines call the checkpoint, where that is
/// given; its catalog name is the last part of that name, or else the directory's, lower case.
pub fn derive_directory(directory: &Path, checkpoint: Option<&str>) -> Result<ModelGraph, DeriveError> {
    let config = required(&directory.join(CONFIG))?;
    let whole = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let folder = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = checkpoint.map_or(folder.as_str(), |name| name.trim_end_matches('/').rsplit('/').next().unwrap_or_default()).to_lowercase();
    let aliases = checkpoint.filter(|checkpoint| **checkpoint != name).map(str::to_owned).into_iter().collect();
    let inputs = Inputs {
        entry: ModelEntry { aliases, source: format!("directory `{}`", folder.to_lowercase()), ..ModelEntry::local(&name) },
        config,
        quantisation_config: optional(&directory.join(QUANTISATION_CONFIG))?,
        headers: shards(directory)?,
    };
    derive(&inputs).map_err(|error| error.within(directory))
}

/// Derives the graph of a catalog model from its `model.yaml` and the vendor's files: those beside it, else those of `vendor`, a
/// folder of the files that `model.yaml` names.
pub fn derive_catalog_model(directory: &Path, vendor: Option<&Path>) -> Result<ModelGraph, DeriveError> {
    let entry: ModelEntry = Document::open(&directory.join(ENTRY), LineEndings::Lf)?.decode()?;
    let locate = |beside: &str, named: Option<&String>| {
        let here = directory.join(beside);
        match (vendor, named) {
            (Some(vendor), Some(name)) if !here.exists() => vendor.join(name),
            (None | Some(_), _) => here,
        }
    };
    let config = required(&locate(CONFIG, entry.config.as_ref()))?;
    let declared = locate(QUANTISATION_CONFIG, entry.quantisation_config.as_ref());
    let quantisation_config = if entry.quantisation_config.is_some() { Some(required(&declared)?) } else { optional(&declared)? };
    derive(&Inputs { entry, config, quantisation_config, headers: Vec::new() })
}

fn unreadable(file: &Path, reason: &impl ToString) -> DeriveError {
    DeriveError::Unreadable { file: file.display().to_string(), reason: reason.to_string() }
}

fn required(path: &Path) -> Result<Vec<u8>, DeriveError> {
    optional(path)?.ok_or_else(|| unreadable(path, &"there is no such file"))
}

/// Reads a configuration file whole; nothing where it is not there.
fn optional(path: &Path) -> Result<Option<Vec<u8>>, DeriveError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(path, &error)),
        Ok(found) if found.len() > MAX_CONFIG_BYTES => {
            Err(unreadable(path, &format!("{} bytes, more than {MAX_CONFIG_BYTES}", found.len())))
        }
        Ok(_) => fs::read(path).map(Some).map_err(|error| unreadable(path, &error)),
    }
}

/// The header of every shard in a directory, ascending by name.
fn shards(directory: &Path) -> Result<Vec<(String, Vec<u8>)>, DeriveError> {
    let mut shards = Vec::new();
    for item in fs::read_dir(directory).map_err(|error| unreadable(directory, &error))? {
        let path = item.map_err(|error| unreadable(directory, &error))?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            shards.push(path);
        }
    }
    shards.sort();
    shards
        .into_iter()
        .map(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            header(&path).map(|header| (name, header)).map_err(|reason| unreadable(&path, &reason))
        })
        .collect()
}

fn header(path: &Path) -> Result<Vec<u8>, String> {
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(|_| "shorter than the eight bytes of a header's length".to_owned())?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER_BYTES {
        return Err(format!("a header of {length} bytes, more than {MAX_HEADER_BYTES}"));
    }
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header).map_err(|error| error.to_string())?;
    if header.len() as u64 == length { Ok(header) } else { Err("the header is cut short".to_owned()) }
}
