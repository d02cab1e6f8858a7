//! `blis convert`: a trace in another format, checked against what it was made from, or another tool's description as a workload.

use std::fs::{self, File};
use std::io::{self, BufReader, Write as _};
use std::path::{Path, PathBuf};

use blis_contracts::scenario::{TimeUnit, TraceFormat, TraceWorkload};
use blis_report::grid::Grid;
use blis_workload::specs::{Chunk, ShareGpt, read_blis_v2, read_guidellm, read_inference_perf, read_servegen, read_sharegpt};
use blis_workload::trace::{Check, Mooncake, Trace, compare, write_azure, write_burstgpt, write_mooncake};

use super::compose::write;
use super::{Outcome, note, print};
use crate::failure::Failure;
use crate::pending::PendingFile;
use crate::taken;
use crate::trace::{self, TraceArgs};

/// The arguments of `blis convert`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The trace to read, or the other tool's file (for ServeGen, the folder of its chunks)
    #[arg(value_name = "FROM")]
    from: PathBuf,
    /// The trace to write, whose ending says in which format, as FROM's does; or the workload, for `blis run --workload`
    #[arg(value_name = "TO")]
    to: PathBuf,
    #[command(flatten)]
    reading: TraceArgs,
    /// What to write, where the ending does not tell: blis, mooncake, azure or burstgpt
    #[arg(long, value_name = "FORMAT", value_parser = trace::format)]
    to_format: Option<TraceFormat>,
    /// Tokens of a block that one hash of a written Mooncake file stands for, 512 where left out
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "tool")]
    to_block_tokens: Option<u32>,
    /// The tool whose description of a workload FROM is
    #[arg(long, value_enum, value_name = "TOOL")]
    tool: Option<Tool>,
    /// Which benchmark of a guidellm report, rate of its arguments, or number in flight of inference-perf, counted from 0
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    benchmark: usize,
    /// Characters of a token, for ShareGPT's texts
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    characters_per_token: Option<f64>,
    /// Requests per second, for ShareGPT's texts
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    rate: Option<f64>,
}

/// A tool whose descriptions of workloads are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Tool {
    /// Workload documents of earlier versions of BLIS
    BlisV2,
    /// Reports and arguments of guidellm, as JSON
    Guidellm,
    /// Configurations of inference-perf
    InferencePerf,
    /// Chunks of ServeGen: a folder with chunk-N-trace.csv and chunk-N-dataset.json
    Servegen,
    /// Conversations of ShareGPT, for their lengths
    Sharegpt,
}

fn positive(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|value: &f64| *value > 0.0 && value.is_finite()).ok_or_else(|| "must be a number above 0".to_owned())
}

pub(super) fn run(args: &Args) -> Outcome {
    if let Some(tool) = args.tool {
        return workload(args, tool);
    }
    let read = trace::read(&args.reading.workload(&args.from), Path::new(""))?.trace;
    for text in &read.notes {
        note(&format!("note: {text}\n"));
    }
    let target = target(args)?;
    let format = trace::format_of(&target, &args.to)?;
    match format {
        TraceFormat::Blis => write(&args.to, &read)?,
        TraceFormat::Azure => table(&args.to, |out| write_azure(out, &read))?,
        TraceFormat::Burstgpt => table(&args.to, |out| write_burstgpt(out, &read))?,
        TraceFormat::Mooncake => table(&args.to, |out| write_mooncake(out, &read, target.block_tokens.unwrap_or(Mooncake::BLOCK_TOKENS)))?,
    }
    let written = trace::read(&target, Path::new(""))?.trace;
    answer(&args.to, &read, &compare(&read, &written))
}

/// Writes the workload that another tool describes.
fn workload(args: &Args, tool: Tool) -> Outcome {
    taken::reading(&args.from)?;
    let name = args.from.display().to_string();
    let bytes = || fs::read(&args.from).map_err(|error| Failure::input(format!("{name}: cannot be read: {error}"), None));
    let read = match tool {
        Tool::BlisV2 => read_blis_v2(&name, &bytes()?),
        Tool::InferencePerf => read_inference_perf(&name, &bytes()?, args.benchmark),
        Tool::Guidellm => read_guidellm(&name, &bytes()?, args.benchmark),
        Tool::Servegen => read_servegen(&chunks(&args.from)?),
        Tool::Sharegpt => {
            let (Some(characters_per_token), Some(rate)) = (args.characters_per_token, args.rate) else {
                let hint = "about 4 for English text; the tokenizer of the model knows".to_owned();
                return Err(Failure::input(
                    format!("{name}: state --characters-per-token and --rate, which the file does not say"),
                    Some(hint),
                ));
            };
            let file = File::open(&args.from).map_err(|error| Failure::input(format!("{name}: cannot be read: {error}"), None))?;
            read_sharegpt(&name, BufReader::new(file), ShareGpt { characters_per_token, rate })
        }
    };
    let converted = read.map_err(|errors| Failure::Document { errors, text: fs::read_to_string(&args.from).ok() })?;
    for text in &converted.notes {
        note(&format!("note: {text}\n"));
    }
    table(&args.to, |out| out.write_all(converted.text().as_bytes()))?;
    let stop = converted.stop.map_or_else(String::new, |stop| format!("; its run ends with `frame: {{stop: {stop}}}`"));
    print(&format!("{}: a workload for `blis run --workload`{stop}\n", args.to.display()))
}

/// The chunks of a folder, in the order of their numbers.
fn chunks(folder: &Path) -> Result<Vec<Chunk>, Failure> {
    let name = folder.display().to_string();
    let unreadable = |what: &str, error: io::Error| Failure::input(format!("{what}: cannot be read: {error}"), None);
    let mut numbers: Vec<u64> = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| unreadable(&name, error))? {
        let file = entry.map_err(|error| unreadable(&name, error))?.file_name();
        let number = file.to_str().and_then(|file| file.strip_prefix("chunk-")?.strip_suffix("-trace.csv")?.parse::<u64>().ok());
        numbers.extend(number);
    }
    if numbers.is_empty() {
        return Err(Failure::input(format!("{name}: has no chunk-N-trace.csv"), None));
    }
    numbers.sort_unstable();
    let read = |file: String| {
        taken::reading(&folder.join(&file))?;
        fs::read_to_string(folder.join(&file)).map_err(|error| unreadable(&format!("{name}/{file}"), error))
    };
    let chunk = |number: u64| {
        Ok(Chunk {
            name: format!("chunk-{number}"),
            trace: read(format!("chunk-{number}-trace.csv"))?,
            dataset: read(format!("chunk-{number}-dataset.json"))?,
        })
    };
    numbers.into_iter().map(chunk).collect()
}

/// The trace that is written, as it is read again.
fn target(args: &Args) -> Result<TraceWorkload, Failure> {
    let plain = TraceWorkload {
        trace: args.to.display().to_string(),
        format: args.to_format,
        time_unit: None,
        block_tokens: None,
        spread_times: false,
    };
    let mooncake = trace::format_of(&plain, &args.to)? == TraceFormat::Mooncake;
    if let Some(tokens) = args.to_block_tokens.filter(|_| !mooncake) {
        return Err(Failure::input(format!("--to-block-tokens {tokens}: only a Mooncake file has blocks"), None));
    }
    Ok(TraceWorkload { time_unit: mooncake.then_some(TimeUnit::Ms), block_tokens: args.to_block_tokens, ..plain })
}

fn table(place: &Path, fill: impl FnOnce(&mut PendingFile) -> io::Result<()>) -> Result<(), Failure> {
    let what = place.display().to_string();
    let mut out = PendingFile::create(place).map_err(|error| Failure::input(format!("{what}: cannot be written: {error}"), None))?;
    fill(&mut out).and_then(|()| out.complete()).map_err(|error| {
        if error.kind() == io::ErrorKind::InvalidData { Failure::input(error.to_string(), None) } else { Failure::Io { what, error } }
    })
}

/// What was written, and every check with both its sides; a check that fails is a failure of the conversion.
fn answer(place: &Path, trace: &Trace, checks: &[Check]) -> Outcome {
    let mut grid = Grid::headless(&["", ">", ">", ""]);
    for check in checks {
        grid.row([check.what.as_str(), &shown(check.first), &shown(check.second), if check.holds { "holds" } else { "FAILS" }]);
    }
    let failed = checks.iter().filter(|check| !check.holds).count();
    if failed > 0 {
        let message = format!("{}: {failed} of {} checks against the source fail\n{}", place.display(), checks.len(), grid.print());
        return Err(Failure::Run(message));
    }
    print(&format!("{}: {} requests; the same workload as the source\n{}", place.display(), trace.rows.len(), grid.print()))
}

fn shown(value: f64) -> String {
    format!("{value:.4}")
}
