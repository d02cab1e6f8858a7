//! `blis run`: one scenario, one Result.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use blis_contracts::engine::{EngineSnapshot, StepTicket};
use blis_contracts::fate::Fate;
use blis_contracts::record::RequestRecord;
use blis_contracts::scenario::Scenario;
use blis_contracts::units::SimTime;
use blis_report::grid::Grid;
use blis_report::quantity::count;
use blis_report::requests::{Format, RequestWriter};
use blis_report::result;
use blis_report::timeline::TimelineWriter;
use blis_sim::{Observer, Origin, Progress, RunStatistics};
use blis_workload::source::Draft;
use blis_workload::trace::{Cast, Mode, TraceRecorder, header_text};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Outcome, note, print};
use crate::data::DataArgs;
use crate::failure::Failure;
use crate::interrupt;
use crate::pending::PendingFile;
use crate::scenario::{Loaded, ScenarioArgs, Senders};
use crate::slo::Condition;
use crate::trace;
use crate::window::Window;

/// The exit code of a run that a condition fails.
const SLO_NOT_MET: u8 = 3;

/// The arguments of `blis run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    data: DataArgs,
}

/// What a run gives, wherever its requests come from.
#[derive(Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// Print the Result as aligned tables, or as the whole document
    #[arg(long = "format", value_enum, value_name = "FORMAT", default_value = "table")]
    printed: Printed,
    /// Write one line for each request to a .csv, .jsonl or .parquet file
    #[arg(long, value_name = "FILE", value_parser = requests_file)]
    requests: Option<(PathBuf, Format)>,
    /// Write a timeline of steps and requests for trace viewers to a .json file
    #[arg(long, value_name = "FILE", value_parser = json_file)]
    timeline: Option<PathBuf>,
    /// Only what overlaps a stretch of simulated time, such as 10s..12.5s
    #[arg(long, value_name = "FROM..TO", requires = "timeline")]
    timeline_window: Option<Window>,
    /// Write the requests as a trace that `blis replay` takes: a header, NAME.yaml, and a table beside it, NAME.csv
    #[arg(long, value_name = "NAME.yaml")]
    trace_out: Option<PathBuf>,
    /// End with exit code 3 if a condition on a figure holds, as in `ttft.p99>500ms`; may be repeated
    #[arg(long = "fail-if", value_name = "CONDITION")]
    conditions: Vec<Condition>,
    /// Count the run's own work on stderr
    #[arg(long)]
    stats: bool,
    /// Show no progress bar on a terminal
    #[arg(long)]
    no_progress: bool,
}

/// How a Result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Printed {
    Table,
    Json,
}

/// A per-request file's format is that of its extension.
fn requests_file(text: &str) -> Result<(PathBuf, Format), String> {
    let path = PathBuf::from(text);
    let of_path = |(_, extension): &&(Format, &str)| path.extension() == Some(OsStr::new(*extension));
    match Format::ALL.iter().find(of_path) {
        Some((format, _)) => Ok((path, *format)),
        None => Err(format!("the name must end in {}", Format::ALL.map(|(_, extension)| format!(".{extension}")).join(" or "))),
    }
}

/// Trace viewers know a timeline by its extension.
fn json_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.extension() == Some(OsStr::new("json")) { Ok(path) } else { Err("the name must end in .json".to_owned()) }
}

pub(super) fn run(args: &Args) -> Outcome {
    let loaded = args.scenario.load()?;
    let senders = loaded.senders()?;
    go(&loaded, senders, &args.scenario.edits, &args.output, &args.data)
}

/// Runs a scenario with the senders given.
pub(super) fn go(loaded: &Loaded, senders: Senders, edits: &[String], output: &OutputArgs, data: &DataArgs) -> Outcome {
    if let Some(refusal) = output.conditions.iter().find_map(|condition| condition.refusal(&loaded.scenario)) {
        return Err(Failure::input(refusal, None));
    }
    loaded.check_classes(&senders)?;
    let world = data.world()?;
    for text in senders.notes.iter().chain(&senders.other_model(&loaded.scenario, &world)) {
        note(&format!("note: {text}\n"));
    }
    interrupt::watch();
    let Senders { offered, trace_sha256, .. } = senders;
    let mode = if trace_sha256.is_some() { Mode::Replayed } else { Mode::Generated };
    let mut watch = Watch::new(output, &loaded.scenario, Cast::of(&offered))?;
    let origin = Origin { scenario_sha256: loaded.sha256(), edits: edits.to_vec(), trace_sha256 };
    let run =
        blis_sim::run_offered(&loaded.scenario, offered.sources, &origin, &world, &mut watch).map_err(|error| loaded.run_failure(error))?;
    let not_started = run.result.fates.get(&Fate::NotStarted).copied().unwrap_or(0);
    watch.finish(&Ending { mode, seed: loaded.scenario.seed, not_started })?;
    let code = print(&match output.printed {
        Printed::Table => result::table(&run.result),
        Printed::Json => result::json(&run.result),
    })?;
    if output.stats {
        note(&statistics(&run.statistics));
    }
    let failures: Vec<String> = output.conditions.iter().filter_map(|condition| condition.failure(&run.result)).collect();
    for failure in &failures {
        note(&format!("--fail-if {failure}\n"));
    }
    Ok(if failures.is_empty() { code } else { ExitCode::from(SLO_NOT_MET) })
}

fn statistics(statistics: &RunStatistics) -> String {
    let mut grid = Grid::headless(&["", ">"]);
    for (name, value) in [
        ("events", statistics.events.events),
        ("engine wake-ups", statistics.events.engine_wakes),
        ("steps priced", statistics.steps),
        ("prices worked out", statistics.cells as u64),
        ("tokens passed on", statistics.events.tokens),
        ("KV blocks taken", statistics.blocks_allocated),
        ("most requests in flight", statistics.events.peak_in_flight),
    ] {
        grid.row([name, &count(value)]);
    }
    grid.print()
}

/// Watches a run: writes the files of requests and steps, and moves the progress bar.
struct Watch {
    requests: Option<Side<RequestWriter<PendingFile>>>,
    timeline: Option<Side<TimelineWriter<PendingFile>>>,
    trace: Option<TraceOut>,
    bar: ProgressBar,
}

/// A file that is written while the run goes on.
struct Side<W> {
    /// What messages call it.
    what: String,
    /// The writer, or why it could not go on.
    writer: io::Result<W>,
}

impl<W> Side<W> {
    /// Begins the file that a flag names.
    fn begin(flag: &str, path: &Path, writer: impl FnOnce(PendingFile) -> io::Result<W>) -> Result<Self, Failure> {
        let what = path.display().to_string();
        match PendingFile::create(path).and_then(writer) {
            Ok(writer) => Ok(Self { what, writer: Ok(writer) }),
            Err(error) => Err(Failure::input(format!("{flag} {what}: cannot be written: {error}"), None)),
        }
    }

    /// Writes on, unless that has failed before.
    fn write(&mut self, more: impl FnOnce(&mut W) -> io::Result<()>) {
        if let Ok(writer) = &mut self.writer
            && let Err(error) = more(writer)
        {
            self.writer = Err(error);
        }
    }

    /// Puts the file at its place.
    fn finish(self, finish: impl FnOnce(W) -> io::Result<PendingFile>) -> Result<(), Failure> {
        let what = self.what;
        self.writer.and_then(finish).and_then(PendingFile::complete).map_err(|error| Failure::Io { what, error })
    }
}

/// A trace being written: the header, whose contents the run's end decides, and the table.
struct TraceOut {
    header: PendingFile,
    table: Side<TraceRecorder<PendingFile>>,
}

/// What the header of a trace tells of the run.
struct Ending {
    mode: Mode,
    seed: u64,
    not_started: u64,
}

impl TraceOut {
    fn begin(path: &Path, cast: Cast, model: String) -> Result<Self, Failure> {
        let (header_path, table_path) = trace::places(path)?;
        let Side { what, writer } = Side::begin("--trace-out", &header_path, Ok)?;
        let header = writer.map_err(|error| Failure::Io { what, error })?;
        Ok(Self { header, table: Side::begin("--trace-out", &table_path, |file| TraceRecorder::new(file, cast, model))? })
    }

    /// Puts the table at its place, then the header.
    fn finish(self, ending: &Ending) -> Result<(), Failure> {
        let Self { mut header, table } = self;
        table.finish(|recorder| {
            let (table, described) = recorder.finish(ending.mode, ending.seed, ending.not_started)?;
            header.write_all(header_text(&described).as_bytes())?;
            header.complete()?;
            Ok(table)
        })
    }
}

impl Watch {
    fn new(args: &OutputArgs, scenario: &Scenario, cast: Cast) -> Result<Self, Failure> {
        let trace = args.trace_out.as_ref().map(|path| TraceOut::begin(path, cast.clone(), scenario.model.clone())).transpose()?;
        let Cast { clients, classes, .. } = cast;
        let requests = args
            .requests
            .as_ref()
            .map(|(path, format)| Side::begin("--requests", path, |file| RequestWriter::new(file, *format, clients.clone(), classes)));
        let window = args.timeline_window.clone().unwrap_or(Window::ALL).0;
        let timeline = args.timeline.as_ref().map(|path| {
            Side::begin("--timeline", path, |file| TimelineWriter::new(file, &scenario.pools[0].name, clients.clone(), window))
        });
        let bar = if args.no_progress { ProgressBar::hidden() } else { bar(scenario) };
        Ok(Self { requests: requests.transpose()?, timeline: timeline.transpose()?, trace, bar })
    }

    /// Puts the files at their places.
    fn finish(self, ending: &Ending) -> Result<(), Failure> {
        self.bar.finish_and_clear();
        self.requests.map_or(Ok(()), |side| side.finish(RequestWriter::finish))?;
        if let Some(side) = self.timeline {
            if side.writer.as_ref().is_ok_and(TimelineWriter::is_empty) {
                note(&format!("note: {}: no step and no request of the run lies in the window\n", side.what));
            }
            side.finish(TimelineWriter::finish)?;
        }
        self.trace.map_or(Ok(()), |trace| trace.finish(ending))
    }
}

impl Observer for Watch {
    fn sent(&mut self, at: SimTime, draft: &Draft) {
        if let Some(trace) = &mut self.trace {
            trace.table.write(|recorder| recorder.sent(at, draft));
        }
    }

    fn record(&mut self, record: &RequestRecord) {
        if let Some(side) = &mut self.requests {
            side.write(|writer| writer.write(record));
        }
        if let Some(side) = &mut self.timeline {
            side.write(|writer| writer.request(record));
        }
        if let Some(trace) = &mut self.trace {
            trace.table.write(|recorder| recorder.ended(record));
        }
    }

    fn stepped(&mut self, step: &StepTicket, state: &EngineSnapshot) {
        if let Some(side) = &mut self.timeline {
            side.write(|writer| writer.step(step, state));
        }
    }

    fn progress(&mut self, progress: Progress) {
        match self.bar.length() {
            Some(_) => self.bar.set_position(progress.ended),
            None => self.bar.set_message(format!("{}, {} requests ended", progress.now, count(progress.ended))),
        }
    }
}

/// A bar over the requests where their number is stated, a spinner with simulated time otherwise; nothing where stderr is no terminal.
fn bar(scenario: &Scenario) -> ProgressBar {
    match scenario.frame.stop.requests {
        Some(requests) => {
            let style = ProgressStyle::with_template("{bar:40} {human_pos} of {human_len} requests, {eta} left");
            ProgressBar::new(requests).with_style(style.expect("the template names keys that indicatif has"))
        }
        None => ProgressBar::new_spinner(),
    }
}
