//! Reading a trace a user names, of any format: the file, its header where it has one, and its hash.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use blis_contracts::data::sha256_hex;
use blis_contracts::scenario::{TimeUnit, TraceFormat, TraceWorkload};
use blis_contracts::strict::MAX_BYTES;
use blis_workload::trace::{Header, Mooncake, Trace, TraceError, read_azure, read_blis, read_burstgpt, read_mooncake};

use crate::failure::Failure;
use crate::taken;

/// What the command line says of a trace.
#[derive(Debug, clap::Args)]
pub(crate) struct TraceArgs {
    /// What the file is: blis, mooncake, azure or burstgpt; found by its ending where left out, if that tells
    #[arg(long, value_name = "NAME", value_parser = format)]
    trace_format: Option<TraceFormat>,
    /// The unit of a Mooncake file's times: s, ms or us
    #[arg(long, value_name = "UNIT", value_parser = time_unit)]
    time_unit: Option<TimeUnit>,
    /// Tokens of a block that one hash of a Mooncake file stands for
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    block_tokens: Option<u32>,
    /// Spread requests that share an instant evenly until the next, as for a file whose times lie on a grid of seconds
    #[arg(long)]
    spread_times: bool,
}

impl TraceArgs {
    /// The trace at a path, as a scenario would name it.
    pub(crate) fn workload(&self, path: &Path) -> TraceWorkload {
        TraceWorkload {
            trace: path.display().to_string(),
            format: self.trace_format,
            time_unit: self.time_unit,
            block_tokens: self.block_tokens,
            spread_times: self.spread_times,
        }
    }
}

impl TraceArgs {
    /// The same for one of several files, of which only those that need a unit take it.
    pub(crate) fn of_several(&self, path: &Path) -> Result<TraceWorkload, Failure> {
        let workload = self.workload(path);
        let units = format_of(&workload, path)? == TraceFormat::Mooncake;
        Ok(TraceWorkload {
            time_unit: workload.time_unit.filter(|_| units),
            block_tokens: workload.block_tokens.filter(|_| units),
            ..workload
        })
    }
}

/// A trace with the hash of the files it was read from.
#[derive(Debug)]
pub(crate) struct TraceFile {
    /// The trace.
    pub(crate) trace: Trace,
    /// SHA-256 over its files' bytes, in hexadecimal.
    pub(crate) sha256: String,
}

/// Reads a trace. `folder` is what its path is seen from.
pub(crate) fn read(workload: &TraceWorkload, folder: &Path) -> Result<TraceFile, Failure> {
    let path = folder.join(&workload.trace);
    let name = path.display().to_string();
    let format = format_of(workload, &path)?;
    if format != TraceFormat::Mooncake && (workload.time_unit.is_some() || workload.block_tokens.is_some()) {
        return Err(Failure::input(format!("{name}: only a Mooncake file needs a time unit or a size of blocks"), None));
    }
    let mut read = read_as(format, workload, &path)?;
    if workload.spread_times {
        read.trace.spread_times();
    } else if format != TraceFormat::Blis {
        // A BLIS trace has the instants at which requests were sent.
        let crowding = read.trace.crowding();
        read.trace.notes.extend(crowding);
    }
    Ok(read)
}

fn read_as(format: TraceFormat, workload: &TraceWorkload, path: &Path) -> Result<TraceFile, Failure> {
    let name = path.display().to_string();
    match format {
        TraceFormat::Blis => blis(path, &name),
        TraceFormat::Azure => table(path, &name, |input| read_azure(&name, input)),
        TraceFormat::Burstgpt => table(path, &name, |input| read_burstgpt(&name, input)),
        TraceFormat::Mooncake => {
            let Some(time_unit) = workload.time_unit else {
                let hint = "state `time_unit: ms` (`--time-unit ms`) for Mooncake's own files; some files count in seconds".to_owned();
                return Err(Failure::input(format!("{name}: the unit of `timestamp` is not stated"), Some(hint)));
            };
            let block_tokens = workload.block_tokens.unwrap_or(Mooncake::BLOCK_TOKENS);
            table(path, &name, |input| read_mooncake(&name, input, Mooncake { time_unit, block_tokens }))
        }
    }
}

/// The format stated, or the one a name's ending tells.
pub(crate) fn format_of(workload: &TraceWorkload, path: &Path) -> Result<TraceFormat, Failure> {
    let ending = path.extension().and_then(OsStr::to_str);
    match (workload.format, ending) {
        (Some(format), _) => Ok(format),
        (None, Some("yaml" | "yml")) => Ok(TraceFormat::Blis),
        (None, Some("jsonl")) => Ok(TraceFormat::Mooncake),
        (None, _) => {
            let names = TraceFormat::ALL.map(|(_, name)| name).join(", ");
            Err(Failure::input(format!("{}: the name does not tell the format; state one of {names}", path.display()), None))
        }
    }
}

/// A header and the table beside it, whose name ends in .csv instead.
fn blis(path: &Path, name: &str) -> Result<TraceFile, Failure> {
    let mut bytes = Vec::new();
    open(path, name)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    let header = Header::read(name, &bytes)
        .map_err(|error| Failure::Document { errors: error.into(), text: String::from_utf8(bytes.clone()).ok() })?;
    let table_path = path.with_extension("csv");
    let table_name = table_path.display().to_string();
    let read = table(&table_path, &table_name, |input| read_blis(&header, &table_name, input))?;
    Ok(TraceFile { sha256: sha256_hex(format!("{}\n{}\n", sha256_hex(&bytes), read.sha256).as_bytes()), ..read })
}

/// Reads one file, once for its hash and once for what it holds.
fn table(path: &Path, name: &str, read: impl FnOnce(BufReader<File>) -> Result<Trace, TraceError>) -> Result<TraceFile, Failure> {
    let trace = read(BufReader::new(open(path, name)?)).map_err(|error| Failure::input(error.to_string(), None))?;
    let sha256 = hash(open(path, name)?).map_err(|error| unreadable(name, &error))?;
    Ok(TraceFile { trace, sha256 })
}

/// SHA-256 over the hashes of a file's pieces, so that no file has to fit into memory.
fn hash(mut file: File) -> io::Result<String> {
    const PIECE: usize = 8 << 20;
    let mut pieces = String::new();
    let mut piece = Vec::with_capacity(PIECE);
    loop {
        piece.clear();
        file.by_ref().take(PIECE as u64).read_to_end(&mut piece)?;
        if piece.is_empty() {
            return Ok(sha256_hex(pieces.as_bytes()));
        }
        pieces.push_str(&sha256_hex(&piece));
    }
}

fn open(path: &Path, name: &str) -> Result<File, Failure> {
    taken::reading(path)?;
    File::open(path).map_err(|error| unreadable(name, &error))
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::input(format!("{name}: cannot be read: {error}"), None)
}

/// Where the files of a trace that is written lie: NAME.yaml and NAME.csv.
pub(crate) fn places(name: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    if name.extension() == Some(OsStr::new("yaml")) {
        return Ok((name.to_owned(), name.with_extension("csv")));
    }
    let message = format!("{}: a trace is a header and a table beside it; name the header, which ends in .yaml", name.display());
    Err(Failure::input(message, None))
}

pub(crate) fn format(text: &str) -> Result<TraceFormat, String> {
    named(text, &TraceFormat::ALL)
}

fn time_unit(text: &str) -> Result<TimeUnit, String> {
    named(text, &TimeUnit::ALL)
}

fn named<T: Copy>(text: &str, all: &[(T, &str)]) -> Result<T, String> {
    let found = all.iter().find(|(_, name)| *name == text).map(|(value, _)| *value);
    found.ok_or_else(|| format!("it is one of {}", all.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ")))
}
