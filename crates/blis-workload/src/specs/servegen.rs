//! ServeGen's chunks: for each client of a measured service, its rate and burstiness window by window, and its lengths as counted.
//!
//! A chunk becomes one client for each of its length distributions, with a phase for each window. Windows that make less than one request
//! are left out, and a note says how many requests they would have made together.

use std::collections::BTreeMap;

use blis_contracts::scenario::{Arrival, Client, CountDistribution, EmpiricalCount, Phase, Phases, Rate, VariedRate};
use blis_contracts::strict::{DocumentError, DocumentErrors};
use serde::Deserialize;

use super::{Converted, plain};

/// How long the last window of a chunk is, in seconds: they are all alike.
const WINDOW_S: f64 = 600.0;

/// The two files of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// What the chunk's client is called.
    pub name: String,
    /// `chunk-N-trace.csv`.
    pub trace: String,
    /// `chunk-N-dataset.json`.
    pub dataset: String,
}

/// The lengths of a window, as two texts that each hold a Python dictionary.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lengths {
    input_tokens: String,
    output_tokens: String,
}

/// A window of a chunk.
struct Window {
    line: u64,
    start_s: f64,
    rate: f64,
    arrival: Arrival,
}

/// Reads chunks.
pub fn read_servegen(chunks: &[Chunk]) -> Result<Converted, DocumentErrors> {
    let mut clients = Vec::new();
    let mut sparse = (0u64, 0.0);
    let mut end_s = 0.0f64;
    for chunk in chunks {
        let windows = windows(chunk)?;
        let lengths = lengths(chunk)?;
        end_s = end_s.max(windows.last().map_or(0.0, |window| window.start_s + WINDOW_S));
        clients.extend(clients_of(chunk, &windows, &lengths, &mut sparse)?);
    }
    if clients.is_empty() {
        return Err(DocumentError::whole("the chunks", "no window makes a request").into());
    }
    let note = (sparse.0 > 0)
        .then(|| format!("{} windows that make less than one request each, {:.1} together, are left out", sparse.0, sparse.1));
    Converted::of("the chunks", clients, Some(format!("{{horizon_s: {end_s}}}")), note.into_iter().collect())
}

/// A client for each length distribution of a chunk, silent in the windows of the others.
fn clients_of(
    chunk: &Chunk,
    windows: &[Window],
    lengths: &[(f64, Lengths)],
    sparse: &mut (u64, f64),
) -> Result<Vec<Client>, DocumentErrors> {
    let mut phases: BTreeMap<&Lengths, Vec<Phase>> = BTreeMap::new();
    let mut busy: BTreeMap<&Lengths, f64> = BTreeMap::new();
    for (index, window) in windows.iter().enumerate() {
        let end_s = windows.get(index + 1).map_or(window.start_s + WINDOW_S, |next| next.start_s);
        let expected = window.rate * (end_s - window.start_s);
        if expected < 1.0 {
            *sparse = (sparse.0 + u64::from(expected > 0.0), sparse.1 + expected);
            continue;
        }
        let known = lengths.iter().rev().find(|(start_s, _)| *start_s <= window.start_s);
        let Some((_, known)) = known.filter(|(_, lengths)| lengths.input_tokens != "{}" && lengths.output_tokens != "{}") else {
            return Err(wrong(&chunk.name, window.line, "the window has requests, and the dataset no lengths for it".to_owned()));
        };
        let (phases, until_s) = (phases.entry(known).or_default(), busy.entry(known).or_default());
        if *until_s < window.start_s {
            phases.push(Phase { duration_s: window.start_s - *until_s, arrival: None });
        }
        phases.push(Phase { duration_s: end_s - window.start_s, arrival: Some(window.arrival.clone()) });
        *until_s = end_s;
    }
    let several = phases.len() > 1;
    let mut clients = Vec::new();
    for (index, (lengths, phases)) in phases.into_iter().enumerate() {
        let id = if several { format!("{}-lengths-{index}", chunk.name) } else { chunk.name.clone() };
        let counted =
            |text: &str| counted(text).ok_or_else(|| wrong(&chunk.name, 0, format!("{text:?} is no dictionary of lengths and shares")));
        let (input, output) = (counted(&lengths.input_tokens)?, counted(&lengths.output_tokens)?);
        clients.push(plain(&id, Arrival::Phases(Phases { phases }), Some(input), Some(output)));
    }
    Ok(clients)
}

/// The windows of a chunk's trace: start, requests per second, variation, and the process, whose own parameters follow from these.
fn windows(chunk: &Chunk) -> Result<Vec<Window>, DocumentErrors> {
    let mut windows: Vec<Window> = Vec::new();
    for (line, text) in (1..).zip(chunk.trace.lines()) {
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        let [start, rate, cv, process, ..] = fields[..] else {
            return Err(wrong(
                &chunk.name,
                line,
                format!("has {} fields; a window has start, rate, variation, process and parameters", fields.len()),
            ));
        };
        let number = |name: &str, text: &str| {
            let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
            value.ok_or_else(|| wrong(&chunk.name, line, format!("the {name} must be a number that is not negative, found {text:?}")))
        };
        let (start_s, rate) = (number("start", start)?, number("rate", rate)?);
        if windows.last().is_some_and(|before| before.start_s >= start_s) {
            return Err(wrong(&chunk.name, line, format!("starts at {start_s} s, not after the window above it")));
        }
        let varied = |cv| VariedRate { rate, cv };
        let arrival = match process {
            "Gamma" => Arrival::Gamma(varied(number("variation", cv)?)),
            "Weibull" => Arrival::Weibull(varied(number("variation", cv)?)),
            "" => Arrival::Poisson(Rate { rate }),
            other => return Err(wrong(&chunk.name, line, format!("the process must be Gamma, Weibull or empty, found {other:?}"))),
        };
        windows.push(Window { line, start_s, rate, arrival });
    }
    if windows.is_empty() {
        return Err(wrong(&chunk.name, 0, "the trace has no window".to_owned()));
    }
    Ok(windows)
}

/// The lengths of a chunk's dataset, by the start of the first window they hold for.
fn lengths(chunk: &Chunk) -> Result<Vec<(f64, Lengths)>, DocumentErrors> {
    let known: BTreeMap<String, Lengths> = serde_json::from_str(&chunk.dataset)
        .map_err(|error| wrong(&chunk.name, 0, format!("the dataset is no map of windows to input_tokens and output_tokens: {error}")))?;
    let mut lengths = Vec::new();
    for (start, known) in known {
        let start_s = start.parse::<f64>().ok().filter(|start| start.is_finite());
        let start_s = start_s.ok_or_else(|| wrong(&chunk.name, 0, format!("the dataset's window {start:?} is no number of seconds")))?;
        lengths.push((start_s, known));
    }
    lengths.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    Ok(lengths)
}

/// A Python dictionary of lengths and their shares.
fn counted(text: &str) -> Option<CountDistribution> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let (mut values, mut weights) = (Vec::new(), Vec::new());
    for entry in inner.split(',').filter(|entry| !entry.trim().is_empty()) {
        let (length, share) = entry.split_once(':')?;
        let length: f64 = length.trim().parse().ok()?;
        let share: f64 = share.trim().parse().ok().filter(|share: &f64| share.is_finite())?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
        let whole = (libm::floor(length).to_bits() == length.to_bits() && (0.0..=1e9).contains(&length)).then_some(length as u32)?;
        // A request without tokens is none; the service counted it and this program cannot send it.
        if whole > 0 {
            values.push(whole);
            weights.push(share);
        }
    }
    Some(CountDistribution::Empirical(EmpiricalCount { values, weights: Some(weights) }))
}

fn wrong(chunk: &str, line: u64, message: String) -> DocumentErrors {
    let place = if line == 0 { chunk.to_owned() } else { format!("{chunk}:{line}") };
    DocumentError::whole(&place, message).into()
}
