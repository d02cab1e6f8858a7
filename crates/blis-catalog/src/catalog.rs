//! The loaded catalog: files by path, names by model, and typed documents parsed when they are asked for.
//!
//! The embedded copy parses and validates only what a run reads (tests validate it whole); a path or an overlay is validated whole
//! when it is opened. Left out: prices, which are the registry's.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;

use blis_contracts::chip::Chip;
use blis_contracts::model::ModelGraph;
use blis_contracts::network::Network;
use blis_contracts::storage::StorageDevice;
use blis_contracts::strict::{Document, DocumentError, DocumentErrors, LineEndings, Problem, nearest};
use serde::de::DeserializeOwned;

use crate::data::{DataFile, Refused, combined_hash, content_hash, read_tree};
use crate::entry::ModelEntry;
use crate::patterns::{GRAPH, HARDWARE, MODELS, NETWORKS, PATTERNS, STORAGE};
use crate::write::write_graph;
use crate::{devices, embedded, validate};

#[cfg(test)]
pub(crate) mod tests;

/// Why the catalog could not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// A file that is no catalog data, or cannot be read.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A document is malformed or breaks a rule.
    #[error(transparent)]
    Document(#[from] DocumentErrors),
    /// Two models answer to one name.
    #[error("models `{first}` and `{second}` both answer to `{name}`")]
    Collision {
        /// The name.
        name: String,
        /// The directory of one model.
        first: String,
        /// The directory of the other.
        second: String,
    },
    /// Nothing of this name.
    #[error("no {kind} `{name}` in the catalog ({catalog}); an entry would be {path}{}", nearest_hint(nearest))]
    Unknown {
        /// `model`, `chip`, `network` or `storage device`.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// Names that resemble it.
        nearest: Vec<String>,
        /// Where the catalog came from.
        catalog: String,
        /// The path an entry of this name would have.
        path: String,
    },
}

fn nearest_hint(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("\n  hint: did you mean `{}`?", nearest.join("`, `")) }
}

impl From<DocumentError> for CatalogError {
    fn from(error: DocumentError) -> Self {
        Self::Document(error.into())
    }
}

impl From<Refused> for CatalogError {
    fn from(refused: Refused) -> Self {
        Self::File { path: refused.path, reason: refused.reason }
    }
}

/// The published facts of a run.
#[derive(Debug)]
pub struct Catalog {
    source: String,
    files: BTreeMap<Cow<'static, str>, Cow<'static, str>>,
    /// The directories that files lie in which are not of the embedded copy.
    roots: BTreeMap<String, String>,
    /// Every name a model answers to, with the path of its graph.
    names: BTreeMap<String, String>,
    content_hash: String,
    overlay_hashes: Vec<String>,
    read: Mutex<BTreeSet<String>>,
}

impl Catalog {
    /// The copy compiled into this program.
    pub fn embedded() -> Self {
        let borrowed = |(path, text): &(&'static str, &'static str)| (Cow::Borrowed(*path), Cow::Borrowed(*text));
        Self {
            source: "embedded".to_owned(),
            files: embedded::FILES.iter().map(borrowed).collect(),
            roots: BTreeMap::new(),
            names: embedded::NAMES.iter().map(|(name, path)| ((*name).to_owned(), (*path).to_owned())).collect(),
            content_hash: embedded::CONTENT_HASH.to_owned(),
            overlay_hashes: Vec::new(),
            read: Mutex::default(),
        }
    }

    /// A catalog directory, with overlays that replace or add whole entries, later ones over earlier ones. Validated whole.
    pub fn open(root: &Path, overlays: &[&Path]) -> Result<Self, CatalogError> {
        let base = read_tree(root, PATTERNS)?;
        let content_hash = hash_of(&base);
        let source = root.display().to_string();
        let roots = base.iter().map(|(path, _)| (path.clone(), source.clone())).collect();
        Self::assemble(Self { source, files: owned(base).collect(), roots, content_hash, ..Self::embedded() }, overlays)
    }

    /// The embedded copy with overlays. Validated whole.
    pub fn embedded_with(overlays: &[&Path]) -> Result<Self, CatalogError> {
        Self::assemble(Self::embedded(), overlays)
    }

    fn assemble(mut self, overlays: &[&Path]) -> Result<Self, CatalogError> {
        for overlay in overlays {
            let added = read_tree(overlay, PATTERNS)?;
            self.overlay_hashes.push(hash_of(&added));
            let replaced: BTreeSet<String> = added.iter().map(|(path, _)| identity(path).to_owned()).collect();
            self.files.retain(|path, _| !replaced.contains(identity(path)));
            let root = overlay.display().to_string();
            self.roots.extend(added.iter().map(|(path, _)| (path.clone(), root.clone())));
            self.files.extend(owned(added));
        }
        self.names = self.check_whole()?;
        Ok(self)
    }

    /// Where a file lies, for errors.
    fn place(&self, path: &str) -> String {
        format!("{}/{path}", self.roots.get(path).map_or("catalog", |root| root.trim_end_matches('/')))
    }

    /// The same catalog with one more model, which replaces the model of its name; an overlay that was never written down.
    pub fn with_model(mut self, graph: &ModelGraph) -> Result<Self, CatalogError> {
        let added = vec![(format!("{MODELS}/{}/{GRAPH}", graph.name), write_graph(graph))];
        self.overlay_hashes.push(hash_of(&added));
        self.files.retain(|path, _| identity(path) != identity(&added[0].0));
        self.roots.remove(&added[0].0);
        self.files.extend(owned(added));
        self.names = self.check_whole()?;
        Ok(self)
    }

    /// Parses and validates every file; the names of all models.
    fn check_whole(&self) -> Result<BTreeMap<String, String>, CatalogError> {
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        for (path, text) in &self.files {
            let place = &self.place(path);
            if path.starts_with(HARDWARE) {
                parse_chip(place, text)?;
            } else if path.starts_with(NETWORKS) {
                parse_network(place, text)?;
            } else if path.starts_with(STORAGE) {
                parse_device(place, text)?;
            } else if path.ends_with(GRAPH) {
                let graph = parse_graph(place, text)?;
                for name in std::iter::once(&graph.name).chain(&graph.aliases) {
                    if let Some(first) = names.insert(name.clone(), path.to_string()) {
                        let (first, second) = (identity(&first).to_owned(), identity(path).to_owned());
                        return Err(CatalogError::Collision { name: name.clone(), first, second });
                    }
                }
            } else {
                decode::<ModelEntry>(place, text, |_| Vec::new())?;
                let graph = format!("{}/{GRAPH}", identity(path));
                if !self.files.contains_key(graph.as_str()) {
                    let missing = place.replace(path.as_ref(), &graph);
                    return Err(CatalogError::File { path: missing, reason: "missing; the deriver writes it".to_owned() });
                }
            }
        }
        Ok(names)
    }

    /// The graph of a model: by catalog name, by the name of a checkpoint, or by a local path that ends in either's last part.
    pub fn model(&self, name: &str) -> Result<ModelGraph, CatalogError> {
        let path = self.path_of(name).ok_or_else(|| self.unknown("model", name, &self.model_names()))?;
        self.note(path);
        parse_graph(&self.place(path), &self.files[path])
    }

    /// The catalog name that a model's name resolves to.
    pub fn resolve(&self, name: &str) -> Option<&str> {
        self.path_of(name).and_then(|path| identity(path).strip_prefix("models/"))
    }

    /// The facts of a chip.
    pub fn chip(&self, name: &str) -> Result<Chip, CatalogError> {
        self.entry("chip", HARDWARE, name, parse_chip)
    }

    /// The facts of a network.
    pub fn network(&self, name: &str) -> Result<Network, CatalogError> {
        self.entry("network", NETWORKS, name, parse_network)
    }

    /// The facts of a storage device.
    pub fn storage_device(&self, name: &str) -> Result<StorageDevice, CatalogError> {
        self.entry("storage device", STORAGE, name, parse_device)
    }

    /// An entry that is one file.
    fn entry<T>(
        &self,
        kind: &'static str,
        folder: &str,
        name: &str,
        parse: impl Fn(&str, &str) -> Result<T, CatalogError>,
    ) -> Result<T, CatalogError> {
        let path = format!("{folder}/{name}.yaml");
        let text = self.files.get(path.as_str()).ok_or_else(|| self.unknown(kind, name, &self.stems(folder).collect::<Vec<_>>()))?;
        self.note(&path);
        parse(&self.place(&path), text)
    }

    /// The catalog names of all models, ascending.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.files.keys().filter_map(|path| path.strip_prefix("models/")?.strip_suffix("/graph.yaml"))
    }

    /// The names of all chips, ascending.
    pub fn chips(&self) -> impl Iterator<Item = &str> {
        self.stems(HARDWARE)
    }

    /// The names of all networks, ascending.
    pub fn networks(&self) -> impl Iterator<Item = &str> {
        self.stems(NETWORKS)
    }

    /// The names of all storage devices, ascending.
    pub fn storage_devices(&self) -> impl Iterator<Item = &str> {
        self.stems(STORAGE)
    }

    /// The names of the entries of a folder whose entries are one file each.
    fn stems(&self, folder: &str) -> impl Iterator<Item = &str> {
        self.files.keys().filter_map(move |path| path.strip_prefix(folder)?.strip_prefix('/')?.strip_suffix(".yaml"))
    }

    /// Where the catalog came from: `embedded` or the directory.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The content hash of the base, overlays not counted.
    pub fn content_hash(&self) -> &str {
        &self.content_hash
    }

    /// The content hashes of the overlays, in the order applied.
    pub fn overlay_hashes(&self) -> &[String] {
        &self.overlay_hashes
    }

    /// One hash of base and overlays: the base's own where there are none.
    pub fn combined_hash(&self) -> String {
        combined_hash(&self.content_hash, &self.overlay_hashes)
    }

    /// The data files read so far, ascending.
    pub fn files_read(&self) -> Vec<String> {
        self.read.lock().expect("no holder of the lock panics").iter().cloned().collect()
    }

    /// The data files not read so far, ascending.
    pub fn files_not_read(&self) -> Vec<String> {
        let read = self.read.lock().expect("no holder of the lock panics");
        self.files.keys().filter(|path| !read.contains(path.as_ref())).map(ToString::to_string).collect()
    }

    fn note(&self, path: &str) {
        self.read.lock().expect("no holder of the lock panics").insert(path.to_owned());
    }

    fn path_of(&self, name: &str) -> Option<&str> {
        if let Some(path) = self.names.get(name) {
            return Some(path);
        }
        let local = ["/", "./", "../", "~"].iter().any(|start| name.starts_with(start));
        let base = name.trim_end_matches('/').rsplit('/').next().filter(|_| local)?.to_lowercase();
        let last = |full: &str| full.rsplit('/').next().unwrap_or_default().to_lowercase();
        let mut paths: Vec<&String> = self.names.iter().filter(|(full, _)| last(full) == base).map(|(_, path)| path).collect();
        paths.dedup();
        if let [one] = paths[..] { Some(one) } else { None }
    }

    fn model_names(&self) -> Vec<&str> {
        self.names.keys().map(String::as_str).collect()
    }

    fn unknown(&self, kind: &'static str, name: &str, known: &[&str]) -> CatalogError {
        let path = match kind {
            "chip" => format!("{HARDWARE}/{name}.yaml"),
            "network" => format!("{NETWORKS}/{name}.yaml"),
            "storage device" => format!("{STORAGE}/{name}.yaml"),
            _ => format!("{MODELS}/{}/{GRAPH}", name.rsplit('/').next().unwrap_or_default().to_lowercase()),
        };
        let nearest = nearest(name, known.iter().copied()).map(str::to_owned).into_iter().collect();
        CatalogError::Unknown { kind, name: name.to_owned(), nearest, catalog: self.source.clone(), path }
    }
}

fn owned(files: Vec<DataFile>) -> impl Iterator<Item = (Cow<'static, str>, Cow<'static, str>)> {
    files.into_iter().map(|(path, text)| (Cow::Owned(path), Cow::Owned(text)))
}

fn hash_of(files: &[DataFile]) -> String {
    content_hash(files.iter().map(|(path, text)| (path.as_str(), text.as_str())))
}

/// What an overlay replaces as a whole: a model's directory, or the file of any other entry.
fn identity(path: &str) -> &str {
    if path.starts_with(MODELS) { path.rsplit_once('/').map_or(path, |(directory, _)| directory) } else { path }
}

fn parse_chip(place: &str, text: &str) -> Result<Chip, CatalogError> {
    decode(place, text, |chip| validate::chip(chip, stem(place)))
}

fn parse_network(place: &str, text: &str) -> Result<Network, CatalogError> {
    decode(place, text, |network| devices::network(network, stem(place)))
}

fn parse_device(place: &str, text: &str) -> Result<StorageDevice, CatalogError> {
    decode(place, text, |device| devices::storage(device, stem(place)))
}

fn stem(place: &str) -> &str {
    place.rsplit('/').next().and_then(|name| name.strip_suffix(".yaml")).unwrap_or_default()
}

fn parse_graph(place: &str, text: &str) -> Result<ModelGraph, CatalogError> {
    let directory = place.rsplit('/').nth(1).unwrap_or_default();
    decode(place, text, |graph| validate::graph(graph, directory))
}

fn decode<T: DeserializeOwned>(place: &str, text: &str, problems: impl Fn(&T) -> Vec<Problem>) -> Result<T, CatalogError> {
    let document = Document::parse(place, text.as_bytes(), LineEndings::Lf)?;
    let value = document.decode::<T>()?;
    let problems = problems(&value);
    if problems.is_empty() { Ok(value) } else { Err(document.locate_all(problems).into()) }
}
