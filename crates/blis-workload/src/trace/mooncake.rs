//! Mooncake's JSON lines: one request a line, with the hashes of its prompt's blocks.
//!
//! A hash names a block's text among all rows, so equal hashes are text that the prefix cache can share. There is one for each block of
//! the prompt, the last of which may be shorter. The unit of `timestamp` differs between files and must be stated. A row with a
//! `session_id` and no timestamp follows the row before it in its session, `delay` later.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use blis_contracts::scenario::TimeUnit;
use blis_contracts::scenario::distribution::MAX_COUNT;
use serde::Deserialize;

use super::blis::MAX_TIME_US;
use super::lines::Lines;
use super::pieces::{Source, pieces};
use super::{Part, Prompt, Row, Trace, TraceError};
use crate::interner::Interner;

/// What a file does not say of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mooncake {
    /// The unit of its times.
    pub time_unit: TimeUnit,
    /// Tokens of a block.
    pub block_tokens: u32,
}

impl Mooncake {
    /// Tokens of a block in Mooncake's own files.
    pub const BLOCK_TOKENS: u32 = 512;
}

/// A line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    timestamp: Option<serde_json::Number>,
    input_length: u32,
    output_length: u32,
    #[serde(default)]
    hash_ids: Option<Vec<u64>>,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    delay: Option<serde_json::Number>,
}

/// Reads a file; `file` names it in errors.
pub fn read_mooncake(file: &str, input: impl BufRead, format: Mooncake) -> Result<Trace, TraceError> {
    let mut lines = Lines::new(file, input);
    let mut reader = Reader {
        file: file.to_owned(),
        format,
        texts: Interner::default(),
        sessions: Interner::default(),
        ends: BTreeMap::new(),
        twins: 0,
    };
    let mut rows: Vec<Row> = Vec::new();
    while let Some((number, text)) = lines.next()? {
        let row = reader.row(number, text, rows.len() as u64, rows.last())?;
        rows.push(row);
    }
    let mut notes = Vec::new();
    if reader.twins > 0 {
        notes.push(format!("{} requests repeat the request above them in every field", reader.twins));
    }
    let (texts, sessions) = (reader.texts.into_names(), reader.sessions.into_names());
    Trace { clients: vec!["mooncake".to_owned()], texts, sessions, rows, notes, ..Trace::default() }.checked(file)
}

struct Reader {
    file: String,
    format: Mooncake,
    texts: Interner,
    sessions: Interner,
    /// The last request of each session, with its round.
    ends: BTreeMap<u32, (u64, u32)>,
    twins: u64,
}

impl Reader {
    fn row(&mut self, number: u64, text: &str, id: u64, above: Option<&Row>) -> Result<Row, TraceError> {
        let line: Line = serde_json::from_str(text).map_err(|error| self.wrong(number, "", json_message(&error)))?;
        for (field, length) in [("input_length", line.input_length), ("output_length", line.output_length)] {
            if !(1..=MAX_COUNT).contains(&length) {
                return Err(self.wrong(number, field, format!("must be from 1 to {MAX_COUNT}, found {length}")));
            }
        }
        let mut row = Row { line: number, id, output_tokens: line.output_length, prompt: self.prompt(number, &line)?, ..Row::default() };
        self.place(number, &line, &mut row)?;
        let arrival = match &line.timestamp {
            Some(time) => self.micros(number, "timestamp", time)?,
            None if row.after.is_some() => above.map_or(0, |above| above.arrival_us),
            None => return Err(self.wrong(number, "timestamp", "is missing, and no row above is of its session".to_owned())),
        };
        row.arrival_us = arrival;
        let blank = |row: &Row| Row { line: 0, id: 0, ..row.clone() };
        self.twins += u64::from(row.session.is_none() && above.is_some_and(|above| blank(above) == blank(&row)));
        Ok(row)
    }

    fn prompt(&mut self, number: u64, line: &Line) -> Result<Prompt, TraceError> {
        let block = self.format.block_tokens;
        let Some(hashes) = &line.hash_ids else { return Ok(Prompt { own: line.input_length, ..Prompt::default() }) };
        let needed = line.input_length.div_ceil(block) as usize;
        if hashes.len() != needed {
            let (found, input) = (hashes.len(), line.input_length);
            let message = format!("has {found} hashes; a prompt of {input} tokens in blocks of {block} has {needed}");
            return Err(self.wrong(number, "hash_ids", message));
        }
        let mut left = line.input_length;
        let parts = hashes.iter().map(|hash| {
            let length = left.min(block);
            left -= length;
            Part::Shared { text: self.texts.number(&hash.to_string()), length }
        });
        Ok(Prompt { parts: parts.collect(), ..Prompt::default() })
    }

    /// Fills in the session, and the cause of a row that has no time of its own.
    fn place(&mut self, number: u64, line: &Line, row: &mut Row) -> Result<(), TraceError> {
        let Some(name) = &line.session_id else {
            return match &line.delay {
                Some(_) => Err(self.wrong(number, "delay", "counts from the row before it in its session; state session_id".to_owned())),
                None => Ok(()),
            };
        };
        let session = self.sessions.number(name);
        let before = self.ends.get(&session).copied();
        row.session = Some(session);
        row.round = before.map_or(0, |(_, round)| round + 1);
        self.ends.insert(session, (row.id, row.round));
        match (&line.delay, before) {
            (Some(delay), Some((before, _))) => row.after = Some((before, self.micros(number, "delay", delay)?)),
            (None, Some((before, _))) if line.timestamp.is_none() => row.after = Some((before, 0)),
            (Some(_) | None, _) => {}
        }
        Ok(())
    }

    fn micros(&self, number: u64, field: &str, time: &serde_json::Number) -> Result<u64, TraceError> {
        let scale: u64 = match self.format.time_unit {
            TimeUnit::S => 1_000_000,
            TimeUnit::Ms => 1_000,
            TimeUnit::Us => 1,
        };
        let whole = time.as_u64().map(|value| value.saturating_mul(scale));
        let micros = whole.or_else(|| time.as_f64().filter(|value| *value >= 0.0).map(|value| rounded(value * scale as f64)));
        micros.filter(|micros| *micros <= MAX_TIME_US).ok_or_else(|| {
            let most = MAX_TIME_US / scale;
            self.wrong(number, field, format!("must be a time from 0 to {most} in the stated unit, found {time}"))
        })
    }

    fn wrong(&self, line: u64, field: &str, message: String) -> TraceError {
        TraceError::at(&self.file, line, field, message)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a number that is not negative saturates")]
fn rounded(value: f64) -> u64 {
    libm::round(value) as u64
}

/// What a JSON reader says, without the line it counts for itself.
fn json_message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let known = "must be a request with timestamp, input_length, output_length and hash_ids";
    match text.rfind(" at line ") {
        Some(end) => format!("{known}: {} (column {})", &text[..end], error.column()),
        None => format!("{known}: {text}"),
    }
}

/// Writes a trace, times in milliseconds with a fraction where they need one, with a hash for each different block of `block_tokens`
/// tokens in its place.
///
/// Refuses, with the request's number, what the format has no field for.
pub fn write_mooncake(mut out: impl Write, trace: &Trace, block_tokens: u32) -> io::Result<()> {
    let refuse = |row: &Row, what: &str| {
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("request {}: {what}, which Mooncake's format cannot say", row.id)))
    };
    let mut hashes: BTreeMap<(u64, Block), u64> = BTreeMap::new();
    for row in &trace.rows {
        if row.after.is_some() || row.lane.is_some() {
            return refuse(row, "is sent when another request ends");
        }
        if row.max_tokens.is_some() || row.priority != 0 || row.timeout_us.is_some() || row.warm_up {
            return refuse(row, "has a limit, a priority, a timeout or a place in the warm-up");
        }
        let Some(blocks) = blocks(row, block_tokens) else {
            return refuse(row, &format!("shares text that ends within a block of {block_tokens} tokens"));
        };
        let mut chain = 0;
        let ids: Vec<u64> = blocks
            .into_iter()
            .map(|block| {
                let fresh = hashes.len() as u64 + 1;
                chain = *hashes.entry((chain, block)).or_insert(fresh);
                chain - 1
            })
            .collect();
        let whole = row.arrival_us.is_multiple_of(1_000);
        let timestamp = if whole { (row.arrival_us / 1_000).into() } else { serde_json::json!(row.arrival_us as f64 / 1e3) };
        let mut line = serde_json::json!({
            "timestamp": timestamp, "input_length": row.prompt.tokens(), "output_length": row.output_tokens, "hash_ids": ids,
        });
        if let Some(session) = row.session {
            line["session_id"] = trace.sessions[session as usize].clone().into();
        }
        writeln!(out, "{line}")?;
    }
    out.flush()
}

/// What a block holds: the text it is of, and from which token of it on. Two blocks alike in these may differ in length, where a prompt
/// ends within one: the shorter is the beginning of the longer, as readers take one hash for one text.
type Block = (Source, u32);

/// A prompt in blocks; `None` where a text ends within one and another follows, so that the format would lose what is shared.
fn blocks(row: &Row, block_tokens: u32) -> Option<Vec<Block>> {
    let pieces = pieces(row, |_| None)?;
    let whole = pieces.iter().rev().skip(1).all(|(_, length)| length.is_multiple_of(block_tokens));
    let block_of = |(source, length): (Source, u32)| (0..length.div_ceil(block_tokens)).map(move |block| (source, block * block_tokens));
    whole.then(|| pieces.into_iter().flat_map(block_of).collect())
}
