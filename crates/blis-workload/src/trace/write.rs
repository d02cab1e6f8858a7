//! A BLIS trace as text: the header, and the table row by row.

use std::fmt::Write as _;
use std::io::{self, Write};

use blis_contracts::fate::Fate;
use blis_contracts::record::RequestRecord;
use blis_contracts::units::SimTime;

use super::blis::escaped;
use super::csv::quoted;
use super::header::Header;
use super::{Part, Row, Trace};
use crate::text::escaped as escaped_json;

/// The columns that are written, in their order: those of earlier versions, then what made a request be sent and what it repeats.
const WRITTEN: &[&str] = &[
    "request_id",
    "client_id",
    "tenant_id",
    "slo_class",
    "vllm_priority",
    "session_id",
    "round_index",
    "prefix_group",
    "prefix_length",
    "streaming",
    "input_tokens",
    "output_tokens",
    "text_tokens",
    "image_tokens",
    "audio_tokens",
    "video_tokens",
    "reason_ratio",
    "model",
    "deadline_us",
    "server_input_tokens",
    "arrival_time_us",
    "send_time_us",
    "first_chunk_time_us",
    "last_chunk_time_us",
    "num_chunks",
    "status",
    "error_message",
    "finish_reason",
    "after",
    "delay_after_us",
    "lane",
    "phase",
    "rounds_left",
    "max_tokens",
    "segments",
];

/// The header as a YAML document.
pub fn header_text(header: &Header) -> String {
    let value = serde_json::to_value(header).expect("a header is a tree of plain values");
    let fields = value.as_object().expect("a header is a map");
    // Each value is one line of JSON, which is YAML; words stand bare, as people write them.
    let bare = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase());
    fields.iter().fold(String::new(), |mut text, (key, value)| {
        let word = value.as_str().filter(|text| bare(text)).map(str::to_owned);
        let _ = writeln!(text, "{key}: {}", word.unwrap_or_else(|| escaped_json(&value.to_string())));
        text
    })
}

/// Writes a trace's table, without anything measured.
pub fn write_rows(mut out: impl Write, trace: &Trace) -> io::Result<()> {
    begin(&mut out)?;
    let mut line = String::new();
    for row in &trace.rows {
        let session = row.session.map_or("", |session| trace.sessions[session as usize].as_str());
        let text = |number: u32| trace.texts[number as usize].as_str();
        let client = row.client as usize;
        let class = trace.classes.get(client).map_or("", String::as_str);
        let written = Written { row, client: &trace.clients[client], class, session, model: &trace.model, text: &text, seen: None };
        write(&mut out, &mut line, &written)?;
    }
    out.flush()
}

/// A row with the names it refers to.
pub(crate) struct Written<'a> {
    pub(crate) row: &'a Row,
    pub(crate) client: &'a str,
    pub(crate) class: &'a str,
    pub(crate) session: &'a str,
    pub(crate) model: &'a str,
    pub(crate) text: &'a dyn Fn(u32) -> &'a str,
    /// What became of the request.
    pub(crate) seen: Option<&'a RequestRecord>,
}

/// Writes the line that names the columns.
pub(crate) fn begin(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", WRITTEN.join(","))
}

/// Writes one row.
pub(crate) fn write(out: &mut impl Write, line: &mut String, written: &Written<'_>) -> io::Result<()> {
    line.clear();
    let Row { prompt, arrival_us, .. } = written.row;
    let row = written.row;
    let micros = |time: Option<SimTime>| time.map_or(0, SimTime::as_micros).to_string();
    let optional = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    let seen = written.seen;
    let (status, message, reason) = seen.map_or(("ok", "", "stop"), |record| outcome(row, record));
    for column in WRITTEN {
        if !line.is_empty() {
            line.push(',');
        }
        let value = match *column {
            "request_id" => row.id.to_string(),
            "client_id" => quoted(written.client).into_owned(),
            "slo_class" => quoted(written.class).into_owned(),
            "session_id" => quoted(written.session).into_owned(),
            "round_index" => row.round.to_string(),
            "prefix_group" => prompt.prefix.map_or_else(String::new, |(text, _)| quoted((written.text)(text)).into_owned()),
            "prefix_length" => prompt.prefix.map_or(0, |(_, length)| length).to_string(),
            "streaming" => "true".to_owned(),
            "input_tokens" | "text_tokens" => prompt.stated().to_string(),
            "output_tokens" => row.output_tokens.to_string(),
            "image_tokens" | "audio_tokens" | "video_tokens" | "reason_ratio" | "num_chunks" => "0".to_owned(),
            "model" => quoted(written.model).into_owned(),
            "deadline_us" => row.timeout_us.map_or(0, |timeout| arrival_us + timeout).to_string(),
            "server_input_tokens" => seen.map_or(prompt.tokens(), |record| record.prompt_tokens).to_string(),
            "arrival_time_us" | "send_time_us" => arrival_us.to_string(),
            "first_chunk_time_us" => micros(seen.and_then(|record| record.first_token)),
            "last_chunk_time_us" => micros(seen.and_then(|record| record.last_token)),
            "status" => status.to_owned(),
            "error_message" => quoted(message).into_owned(),
            "finish_reason" => reason.to_owned(),
            "vllm_priority" => row.priority.to_string(),
            "after" => optional(row.after.map(|(request, _)| request)),
            "delay_after_us" => optional(row.after.map(|(_, delay)| delay)),
            "lane" => optional(row.lane.map(u64::from)),
            "phase" => optional(row.phase.map(u64::from)),
            "rounds_left" => row.rounds_left.to_string(),
            "max_tokens" => optional(row.max_tokens.map(u64::from)),
            "segments" => quoted(&segments(&prompt.parts, written.text)).into_owned(),
            // What this program has no value of: tenants.
            _ => String::new(),
        };
        line.push_str(&value);
    }
    line.push('\n');
    out.write_all(line.as_bytes())
}

/// Status, message and finish reason of a request.
fn outcome<'a>(row: &Row, record: &'a RequestRecord) -> (&'static str, &'a str, &'static str) {
    match record.fate {
        Fate::Completed if record.output_tokens == u64::from(row.output_tokens) => ("ok", "", "stop"),
        Fate::Completed => ("ok", "", "length"),
        Fate::TimedOut => ("timeout", "", "abort"),
        Fate::Refused => ("error", record.refusal.as_deref().unwrap_or_default(), ""),
        fate @ (Fate::InFlightAtHorizon | Fate::QueuedAtHorizon | Fate::NotStarted) => ("error", fate.as_str(), ""),
    }
}

fn segments<'a>(parts: &[Part], text: &dyn Fn(u32) -> &'a str) -> String {
    let mut words = String::new();
    for part in parts {
        if !words.is_empty() {
            words.push(' ');
        }
        let _ = match part {
            Part::Shared { text: number, length } => write!(words, "s/{}/{length}", escaped(text(*number))),
            Part::Input { request, length } => write!(words, "i/{request}/{length}"),
            Part::Output { request, length } => write!(words, "o/{request}/{length}"),
            Part::Round { request } => write!(words, "r/{request}"),
        };
    }
    words
}
