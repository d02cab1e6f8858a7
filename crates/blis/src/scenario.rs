//! Reading a scenario: the file, the edits of the command line, and the hash that names both.

use std::path::{Path, PathBuf};

use blis_contracts::data::sha256_hex;
use blis_contracts::scenario::Scenario;
use blis_contracts::strict::{Document, DocumentErrors, LineEndings, MAX_BYTES};
use blis_sim::RunError;

use crate::failure::Failure;

/// A scenario as the command line names it.
#[derive(Debug, clap::Args)]
pub(crate) struct ScenarioArgs {
    /// The scenario
    #[arg(value_name = "SCENARIO")]
    pub(crate) path: PathBuf,
    /// Change a value of it first, as in `workload.clients[0].arrival.rate=4`; may be repeated
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub(crate) edits: Vec<String>,
}

impl ScenarioArgs {
    /// Reads it.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        Loaded::open(&self.path, &self.edits)
    }
}

/// A scenario and the document it was read from.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The scenario.
    pub(crate) scenario: Scenario,
    document: Document,
    path: PathBuf,
}

impl Loaded {
    /// Reads a scenario and applies the edits; everything wrong with it comes back at once.
    fn open(path: &Path, edits: &[String]) -> Result<Self, Failure> {
        let refused = |errors: DocumentErrors| Failure::Document { errors, text: text_of(path) };
        let mut document = Document::open(path, LineEndings::LfOrCrLf).map_err(|error| refused(error.into()))?;
        for edit in edits {
            document.set(edit).map_err(|error| refused(error.into()))?;
        }
        let scenario = Scenario::load(&document).map_err(refused)?;
        Ok(Self { scenario, document, path: path.to_owned() })
    }

    /// SHA-256 of the document as read, edits applied.
    pub(crate) fn sha256(&self) -> String {
        sha256_hex(self.document.to_json().as_bytes())
    }

    /// What to tell the user about a run that gave no Result.
    pub(crate) fn run_failure(&self, error: RunError) -> Failure {
        match error {
            RunError::Scenario(problem) | RunError::Start(problem, _) => {
                Failure::Document { errors: self.document.locate(problem).into(), text: text_of(&self.path) }
            }
            RunError::Simulation(error) => Failure::Run(error.to_string()),
        }
    }
}

/// The text that errors point into; none where there is no readable one.
fn text_of(path: &Path) -> Option<String> {
    let small = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() <= MAX_BYTES as u64);
    if small { std::fs::read_to_string(path).ok() } else { None }
}
