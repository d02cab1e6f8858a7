//! BurstGPT's CSV: seconds from the start, and tokens of requests and responses.
//!
//! Each model of the file is a client. A response of 0 tokens is a failure and is left out, counted. Newer files name sessions, which say
//! nothing of what a prompt repeats, so no two prompts share text.

use std::io::{self, BufRead, Write};

use blis_contracts::scenario::distribution::MAX_COUNT;

use super::blis::MAX_TIME_US;
use super::csv::{Record, Table, quoted};
use super::{Prompt, Row, Trace, TraceError};
use crate::interner::Interner;

const COLUMNS: &[&str] =
    &["Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type", "Session ID", "Elapsed time"];

/// How many of the columns every file has.
const REQUIRED: usize = 6;

/// Reads a file; `file` names it in errors.
pub fn read_burstgpt(file: &str, input: impl BufRead) -> Result<Trace, TraceError> {
    let mut table = Table::open(file, input, COLUMNS, REQUIRED)?;
    let (mut clients, mut sessions) = (Interner::default(), Interner::default());
    let mut rounds: Vec<u32> = Vec::new();
    let mut rows: Vec<Row> = Vec::new();
    let mut failed = 0u64;
    while let Some(record) = table.next()? {
        let input_tokens = record.count("Request tokens", MAX_COUNT)?;
        let output_tokens = record.count("Response tokens", MAX_COUNT)?;
        let total = record.whole("Total tokens", u64::MAX)?;
        let sum = u64::from(input_tokens) + u64::from(output_tokens);
        if total != sum {
            return Err(record.wrong("Total tokens", format!("is {total}; request and response have {sum}")));
        }
        let arrival_us = arrival(&record)?;
        let model = record.text("Model");
        if model.is_empty() {
            return Err(record.wrong("Model", "is empty"));
        }
        if output_tokens == 0 {
            failed += 1;
            continue;
        }
        if input_tokens == 0 {
            return Err(record.wrong("Request tokens", "must be at least 1"));
        }
        let session = Some(record.text("Session ID")).filter(|name| !name.is_empty()).map(|name| sessions.number(name));
        let round = session.map_or(0, |session| {
            let session = session as usize;
            rounds.resize(rounds.len().max(session + 1), 0);
            rounds[session] += 1;
            rounds[session] - 1
        });
        rows.push(Row {
            line: record.line,
            id: rows.len() as u64,
            client: clients.number(model),
            session,
            round,
            arrival_us,
            prompt: Prompt { own: input_tokens, ..Prompt::default() },
            output_tokens,
            ..Row::default()
        });
    }
    let note = (failed > 0).then(|| format!("{failed} requests with a response of 0 tokens failed and are left out"));
    let (clients, sessions) = (clients.into_names(), sessions.into_names());
    Trace { clients, sessions, rows, notes: note.into_iter().collect(), ..Trace::default() }.checked(file)
}

/// Writes a trace's times, lengths and sessions, all as the log of an API. Refuses what the format has no field for.
pub fn write_burstgpt(mut out: impl Write, trace: &Trace) -> io::Result<()> {
    // Files without sessions have no column for them.
    let columns = if trace.sessions.is_empty() { REQUIRED } else { REQUIRED + 1 };
    writeln!(out, "{}", COLUMNS[..columns].join(","))?;
    for row in &trace.rows {
        require_plain(row, "BurstGPT's format")?;
        let (input, output) = (row.prompt.tokens(), row.output_tokens);
        let (seconds, micros) = (row.arrival_us / 1_000_000, row.arrival_us % 1_000_000);
        let time = if micros == 0 { seconds.to_string() } else { format!("{seconds}.{micros:06}") };
        let client = quoted(&trace.clients[row.client as usize]).into_owned();
        write!(out, "{time},{client},{input},{output},{},API log", input + u64::from(output))?;
        if columns > REQUIRED {
            let name = row.session.map_or("", |session| &trace.sessions[session as usize]);
            write!(out, ",{}", quoted(name))?;
        }
        writeln!(out)?;
    }
    out.flush()
}

/// Refuses a row that is more than a time and two lengths.
pub(crate) fn require_plain(row: &Row, format: &str) -> io::Result<()> {
    let what = if row.after.is_some() || row.lane.is_some() {
        "is sent when another request ends"
    } else if row.prompt.prefix.is_some() || !row.prompt.parts.is_empty() {
        "shares text with others"
    } else if row.max_tokens.is_some() || row.priority != 0 || row.timeout_us.is_some() || row.warm_up {
        "has a limit, a priority, a timeout or a place in the warm-up"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("request {}: {what}, which {format} cannot say", row.id)))
}

/// Seconds with up to six decimals, as microseconds.
fn arrival(record: &Record<'_>) -> Result<u64, TraceError> {
    let text = record.text("Timestamp");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let micros = (digits(whole) && digits(fraction) && fraction.trim_end_matches('0').len() <= 6).then(|| {
        let part: u64 = format!("{fraction:0<6}")[..6].parse().ok()?;
        whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(part)
    });
    micros
        .flatten()
        .filter(|micros| *micros <= MAX_TIME_US)
        .ok_or_else(|| record.wrong("Timestamp", format!("must be seconds from the start, with at most six decimals, found {text:?}")))
}
