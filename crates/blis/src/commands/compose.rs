//! `blis compose`: several traces as one.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use blis_workload::trace::{Header, Mode, Trace, compose, header_text, write_rows};

use super::{Outcome, note, print};
use crate::failure::Failure;
use crate::pending::PendingFile;
use crate::trace::{self, TraceArgs};

/// The arguments of `blis compose`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The traces, each of which keeps its clients under its own name
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// The trace to write: a header, NAME.yaml, and a table beside it, NAME.csv
    #[arg(long, value_name = "NAME.yaml")]
    out: PathBuf,
    #[command(flatten)]
    reading: TraceArgs,
}

pub(super) fn run(args: &Args) -> Outcome {
    let mut traces: Vec<(String, Trace)> = Vec::new();
    for path in &args.traces {
        let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or("trace");
        let twins = traces.iter().filter(|(name, _)| name == stem || name.starts_with(&format!("{stem}-"))).count();
        let name = if twins == 0 { stem.to_owned() } else { format!("{stem}-{}", twins + 1) };
        let file = trace::read(&args.reading.of_several(path)?, Path::new(""))?;
        for text in &file.trace.notes {
            note(&format!("note: {}: {text}\n", path.display()));
        }
        traces.push((name, file.trace));
    }
    let whole = compose(traces).map_err(|error| Failure::input(error.to_string(), None))?;
    write(&args.out, &whole)?;
    print(&format!("{}: {} requests of {} clients\n", args.out.display(), whole.rows.len(), whole.clients.len()))
}

/// Writes a trace's two files.
pub(super) fn write(place: &Path, trace: &Trace) -> Result<(), Failure> {
    let (header_path, table_path) = trace::places(place)?;
    let failed = |what: &Path| {
        let what = what.display().to_string();
        move |error| Failure::Io { what, error }
    };
    let begin = |what: &Path| {
        PendingFile::create(what).map_err(|error| Failure::input(format!("{}: cannot be written: {error}", what.display()), None))
    };
    let (mut header, mut table) = (begin(&header_path)?, begin(&table_path)?);
    header.write_all(header_text(&Header::new(Mode::Generated, trace)).as_bytes()).map_err(failed(&header_path))?;
    write_rows(&mut table, trace).map_err(failed(&table_path))?;
    table.complete().map_err(failed(&table_path))?;
    header.complete().map_err(failed(&header_path))
}
