//! The loaded registry: files by path, decoded when a chip's coefficients are asked for.
//!
//! The embedded copy was read strictly when the program was built, and only what a run reads of it is decoded and validated (tests
//! validate it whole); a path or an overlay is validated whole when it is opened. Left out: whether the chips named here are in the
//! catalog, which whoever holds both checks.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use blis_contracts::data::{DataFile, Refused, combined_hash, content_hash, read_tree};
use blis_contracts::strict::{Document, DocumentErrors, LineEndings, Problem, nearest};
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::embedded;
use crate::entry::{CoefficientSet, Entry};
use crate::errors::{self, ErrorTable};
use crate::lookup::{ChipCoefficients, SetError};
use crate::patterns::PATTERNS;
use crate::validate;

/// The source of the copy compiled into this program.
const EMBEDDED: &str = "embedded";

/// Why the registry could not answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RegistryError {
    /// A file that is no registry data, or cannot be read.
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
    /// The files of a chip do not fit together.
    #[error(transparent)]
    Set(#[from] SetError),
    /// No coefficients of this chip.
    #[error("no coefficients of the chip `{name}` in the registry ({registry}); it has {known}")]
    UnknownChip {
        /// What was asked for.
        name: String,
        /// The nearest chip, if any resembles it.
        nearest: Option<String>,
        /// Where the registry came from.
        registry: String,
        /// The chips it has.
        known: String,
    },
}

impl From<Refused> for RegistryError {
    fn from(refused: Refused) -> Self {
        Self::File { path: refused.path, reason: refused.reason }
    }
}

/// A data file as the registry holds it.
#[derive(Debug, Clone)]
enum Text {
    /// The values that the build script read, as JSON.
    Embedded(&'static str),
    /// As it lies in a directory.
    Written(String),
}

/// The coefficients of a run.
#[derive(Debug)]
pub struct Registry {
    source: String,
    base: BTreeMap<Cow<'static, str>, Text>,
    overlays: Vec<Vec<CoefficientSet>>,
    errors: OnceLock<Option<Arc<ErrorTable>>>,
    content_hash: String,
    overlay_hashes: Vec<String>,
    read: Mutex<BTreeSet<String>>,
}

impl Registry {
    /// The copy compiled into this program.
    pub fn embedded() -> Self {
        let base = embedded::FILES.iter().map(|&(path, json)| (Cow::Borrowed(path), Text::Embedded(json))).collect();
        Self {
            source: EMBEDDED.to_owned(),
            base,
            overlays: Vec::new(),
            errors: OnceLock::new(),
            content_hash: embedded::CONTENT_HASH.to_owned(),
            overlay_hashes: Vec::new(),
            read: Mutex::default(),
        }
    }

    /// The embedded copy with overlays. Validated whole.
    pub fn embedded_with(overlays: &[&Path]) -> Result<Self, RegistryError> {
        Self::embedded().overlaid(overlays)
    }

    /// A registry directory, with overlays that replace or add single entries, later ones over earlier ones. Validated whole.
    pub fn open(root: &Path, overlays: &[&Path]) -> Result<Self, RegistryError> {
        let files = read_tree(root, PATTERNS)?;
        let content_hash = hash_of(&files);
        let base = files.into_iter().map(|(path, text)| (Cow::Owned(path), Text::Written(text))).collect();
        Self { source: root.display().to_string(), base, content_hash, ..Self::embedded() }.overlaid(overlays)
    }

    fn overlaid(mut self, overlays: &[&Path]) -> Result<Self, RegistryError> {
        for overlay in overlays {
            let files = read_tree(overlay, PATTERNS)?;
            self.overlay_hashes.push(hash_of(&files));
            let name = overlay.display().to_string();
            let mut sets = Vec::new();
            for (path, text) in files {
                let text = Text::Written(text);
                if path == errors::FILE {
                    self.base.insert(Cow::Owned(path), text);
                } else {
                    sets.push(read_set(&name, &path, &text)?);
                }
            }
            self.overlays.push(sets);
        }
        for chip in self.chips() {
            self.assemble(&chip)?;
        }
        self.read_errors()?;
        Ok(self)
    }

    /// The chips it has coefficients of, ascending.
    pub fn chips(&self) -> Vec<String> {
        let base = self.base.keys().filter_map(|path| path.split_once('/')).map(|(chip, _)| chip.to_owned());
        let overlaid = self.overlays.iter().flatten().map(|set| set.chip.clone());
        base.chain(overlaid).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Every coefficient of one chip.
    pub fn chip(&self, name: &str) -> Result<ChipCoefficients, RegistryError> {
        let chips = self.chips();
        if !chips.iter().any(|chip| chip == name) {
            return Err(RegistryError::UnknownChip {
                name: name.to_owned(),
                nearest: nearest(name, chips.iter().map(String::as_str)).map(str::to_owned),
                registry: self.source.clone(),
                known: chips.join(", "),
            });
        }
        let coefficients = self.assemble(name)?;
        let mut read = self.read.lock().expect("no holder of the lock panics");
        read.extend(self.files_of(name).map(|(path, _)| path.to_owned()));
        Ok(coefficients)
    }

    /// How far measurements lay from simulation; none where the registry does not say.
    pub fn errors(&self) -> Option<Arc<ErrorTable>> {
        let table = || self.read_errors().expect("an embedded table is valid, as tests show, and any other was read when it was opened");
        let table = self.errors.get_or_init(table);
        if table.is_some() {
            self.read.lock().expect("no holder of the lock panics").insert(errors::FILE.to_owned());
        }
        table.clone()
    }

    fn read_errors(&self) -> Result<Option<Arc<ErrorTable>>, RegistryError> {
        let table = self.base.get(errors::FILE).map(|text| read(&self.source, errors::FILE, text, ErrorTable::problems));
        Ok(table.transpose()?.map(Arc::new))
    }

    fn assemble(&self, chip: &str) -> Result<ChipCoefficients, RegistryError> {
        let mut sets = self.files_of(chip).map(|(path, text)| read_set(&self.source, path, text)).collect::<Result<Vec<_>, _>>()?;
        for added in self.overlays.iter().flatten().filter(|set| set.chip == chip) {
            match sets.iter_mut().find(|set| set.family == added.family) {
                Some(set) => added.entries.iter().for_each(|entry| overlay_entry(&mut set.entries, entry)),
                None => sets.push(added.clone()),
            }
        }
        Ok(ChipCoefficients::new(chip, sets)?)
    }

    fn files_of(&self, chip: &str) -> impl Iterator<Item = (&str, &Text)> {
        let below = format!("{chip}/");
        self.base.iter().filter(move |(path, _)| path.starts_with(&below)).map(|(path, text)| (path.as_ref(), text))
    }

    /// Where the registry came from: `embedded` or the directory.
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
        self.base.keys().filter(|path| !read.contains(path.as_ref())).map(ToString::to_string).collect()
    }
}

/// The coefficients of one file.
fn read_set(source: &str, path: &str, text: &Text) -> Result<CoefficientSet, RegistryError> {
    read(source, path, text, |set| {
        let mut problems = validate::check(set);
        let stated = format!("{}/{}.yaml", set.chip, set.family);
        if stated != path {
            problems.push(Problem::new("", format!("the file states chip and family of {stated}")));
        }
        problems
    })
}

/// Decodes one file and looks for what is wrong with it.
fn read<T: DeserializeOwned>(source: &str, path: &str, text: &Text, check: impl Fn(&T) -> Vec<Problem>) -> Result<T, RegistryError> {
    match text {
        Text::Embedded(json) => {
            let value = serde_json::from_str(json).map_err(|error| error.to_string());
            value
                .and_then(|value| {
                    let first = check(&value).into_iter().next();
                    first.map_or(Ok(value), |problem| Err(format!("{}: {}", problem.path, problem.message)))
                })
                .map_err(|reason| RegistryError::File { path: format!("registry/{path}"), reason })
        }
        Text::Written(text) => {
            let root = if source == EMBEDDED { "registry" } else { source };
            let document = Document::parse(format!("{root}/{path}"), text.as_bytes(), LineEndings::Lf).map_err(DocumentErrors::from)?;
            let value = document.decode().map_err(DocumentErrors::from)?;
            let problems = check(&value);
            if problems.is_empty() { Ok(value) } else { Err(document.locate_all(problems).into()) }
        }
    }
}

/// Puts an overlay's entry in place of the one with the same name, scope and method, or adds it.
fn overlay_entry(entries: &mut Vec<Entry>, added: &Entry) {
    let same = |entry: &&mut Entry| entry.name == added.name && entry.scope() == added.scope();
    match entries.iter_mut().find(same) {
        Some(entry) => *entry = added.clone(),
        None => entries.push(added.clone()),
    }
}

fn hash_of(files: &[DataFile]) -> String {
    content_hash(files.iter().map(|(path, text)| (path.as_str(), text.as_str())))
}
