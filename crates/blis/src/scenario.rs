//! Reading a scenario: the file, the edits of the command line, and the hash that names both.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use blis_contracts::data::sha256_hex;
use blis_contracts::scenario::{Scenario, TraceWorkload, Workload};
use blis_contracts::strict::{Document, DocumentErrors, LineEndings, MAX_BYTES, Problem};
use blis_sim::{RunError, World};
use blis_workload::{Offered, sources};

use crate::failure::Failure;
use crate::taken;
use crate::trace::{self, TraceFile};

/// A scenario as the command line names it.
#[derive(Debug, clap::Args)]
pub(crate) struct ScenarioArgs {
    /// The scenario
    #[arg(value_name = "SCENARIO")]
    pub(crate) path: PathBuf,
    /// Change a value of it first, as in `workload.clients[0].arrival.rate=4`; may be repeated
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub(crate) edits: Vec<String>,
    /// Take the workload from another file, whose one key is `workload`
    #[arg(long, value_name = "FILE")]
    pub(crate) workload: Option<PathBuf>,
}

impl ScenarioArgs {
    /// Reads it.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        let workload = self.workload.as_deref().map(workload_of).transpose()?;
        let loaded = Loaded::open(&self.path, workload.as_deref(), &self.edits)?;
        Ok(Loaded { workload_file: self.workload.clone(), ..loaded })
    }

    /// Reads it with a trace in place of its workload.
    pub(crate) fn load_for(&self, trace: &TraceWorkload) -> Result<Loaded, Failure> {
        if self.workload.is_some() {
            return Err(Failure::input("--workload: a replay takes its requests from the trace", None));
        }
        let workload = serde_json::to_string(trace).expect("a trace's name is JSON");
        Loaded::open(&self.path, Some(&workload), &self.edits)
    }
}

/// A scenario and the document it was read from.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The scenario.
    pub(crate) scenario: Scenario,
    document: Document,
    path: PathBuf,
    /// The file its workload was taken from instead.
    workload_file: Option<PathBuf>,
}

impl Loaded {
    /// Reads a scenario and applies the edits; everything wrong with it comes back at once.
    fn open(path: &Path, workload: Option<&str>, edits: &[String]) -> Result<Self, Failure> {
        taken::reading(path)?;
        let refused = |errors: DocumentErrors| Failure::Document { errors, text: text_of(path) };
        let mut document = Document::open(path, LineEndings::LfOrCrLf).map_err(|error| refused(error.into()))?;
        if let Some(workload) = workload {
            document.set(&format!("workload={workload}")).map_err(|error| refused(error.into()))?;
        }
        for edit in edits {
            document.set(edit).map_err(|error| refused(error.into()))?;
        }
        let scenario = Scenario::load(&document).map_err(refused)?;
        Ok(Self { scenario, document, path: path.to_owned(), workload_file: None })
    }

    /// SHA-256 of the document as read, edits applied.
    pub(crate) fn sha256(&self) -> String {
        sha256_hex(self.document.to_json().as_bytes())
    }

    /// Who sends in the scenario: its workload's own sources, or the trace it names.
    pub(crate) fn senders(&self) -> Result<Senders, Failure> {
        let scenario = &self.scenario;
        if let Workload::Trace(workload) = &scenario.workload {
            // A trace's name is seen from the file that names it.
            let folder = self.workload_file.as_ref().unwrap_or(&self.path).parent().unwrap_or(Path::new(""));
            return trace::read(workload, folder).map(Senders::of);
        }
        let offered = sources(&scenario.workload, scenario.frame.stop.requests, scenario.seed)
            .map_err(|error| self.run_failure(RunError::Scenario(Problem::new(error.path, error.message))))?;
        Ok(Senders { offered, trace_sha256: None, model: String::new(), notes: Vec::new() })
    }

    /// Refuses an objective of a class that no sender is of. A document's own clients are checked as it is read; a trace shows its
    /// classes only here.
    pub(crate) fn check_classes(&self, senders: &Senders) -> Result<(), Failure> {
        let used: BTreeSet<&str> = senders.offered.sources.iter().map(|source| source.class()).collect();
        let Some(class) = self.scenario.objectives.keys().find(|class| !used.contains(class.as_str())) else { return Ok(()) };
        let used: Vec<String> = used.into_iter().map(|class| format!("`{class}`")).collect();
        let message = format!("no request is of class `{class}`; the trace's classes are {}", used.join(", "));
        Err(self.run_failure(RunError::Scenario(Problem::new(format!("objectives.{class}"), message))))
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

/// The workload that a file of its own holds, on one line.
fn workload_of(path: &Path) -> Result<String, Failure> {
    taken::reading(path)?;
    let other =
        Document::open(path, LineEndings::LfOrCrLf).map_err(|error| Failure::Document { errors: error.into(), text: text_of(path) })?;
    let text = other.to_json();
    let only = other.root().as_map().filter(|map| map.len() == 1 && map.contains_key("workload"));
    match only.and_then(|_| text.strip_prefix("{\"workload\": ")?.strip_suffix('}')) {
        Some(workload) => Ok(workload.to_owned()),
        None => Err(Failure::input(format!("{}: must have the one key `workload`", path.display()), None)),
    }
}

/// Who sends in a run.
#[derive(Debug)]
pub(crate) struct Senders {
    /// The sources.
    pub(crate) offered: Offered,
    /// The hash of the trace they replay, where they do.
    pub(crate) trace_sha256: Option<String>,
    /// The model that the trace's requests were of, as it calls it; empty where nothing says.
    pub(crate) model: String,
    /// What the trace holds that a run does not act on.
    pub(crate) notes: Vec<String>,
}

impl Senders {
    /// The sources of a trace.
    pub(crate) fn of(file: TraceFile) -> Self {
        let (model, notes) = (file.trace.model.clone(), file.trace.notes.clone());
        Self { offered: file.trace.offered(), trace_sha256: Some(file.sha256), model, notes }
    }

    /// What to tell of a trace whose requests were of another model than the one a scenario serves.
    pub(crate) fn other_model(&self, scenario: &Scenario, world: &World) -> Option<String> {
        let served = scenario.model_of(&scenario.pools[0]);
        let same =
            self.model == served || world.catalog.resolve(&self.model).is_some_and(|name| world.catalog.resolve(served) == Some(name));
        let told = || format!("the trace's requests were of {}; this run serves {served}, and takes their lengths as they are", self.model);
        (!self.model.is_empty() && !same).then(told)
    }
}

/// The text that errors point into; none where there is no readable one.
fn text_of(path: &Path) -> Option<String> {
    let small = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() <= MAX_BYTES as u64);
    if small { std::fs::read_to_string(path).ok() } else { None }
}
