//! The table of a BLIS trace: reading.
//!
//! The columns are those that users of earlier versions have, then trailing ones for what made a request be sent and what its prompt
//! repeats. `segments` lists the parts of a prompt between its prefix and its own text, separated by blanks: `s/NAME/LENGTH` of a shared
//! text, `i/ID/LENGTH` of a request's own text, `o/ID/LENGTH` of what a request generated, `r/ID` for the whole round of an earlier
//! request. `input_tokens` counts the parts that state a length and the own text, which is what is left of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::BufRead;

use blis_contracts::scenario::MAX_REQUESTS;
use blis_contracts::scenario::distribution::MAX_COUNT;
use blis_contracts::units::SimTime;

use super::csv::{Record, Table};
use super::header::{Growth, Header, Mode};
use super::{Part, Prompt, Row, Trace, TraceError};
use crate::interner::Interner;

/// The columns, the required ones first.
pub(crate) const COLUMNS: &[&str] = &[
    "request_id",
    "client_id",
    "tenant_id",
    "slo_class",
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
    "vllm_priority",
    "slo_target_us",
    "x_request_id",
    "adapter",
    "think_time_us",
    "after",
    "delay_after_us",
    "lane",
    "phase",
    "rounds_left",
    "max_tokens",
    "segments",
];

/// How many of the columns every file has.
const REQUIRED: usize = 27;

/// The latest instant a trace may state: the end of simulated time.
pub(crate) const MAX_TIME_US: u64 = SimTime::BEYOND.as_micros() - 1;

/// Columns whose values change nothing of a run, with the value that says nothing.
const UNUSED: [(&str, &str); 5] =
    [("tenant_id", ""), ("streaming", "true"), ("reason_ratio", "0"), ("slo_target_us", "0"), ("x_request_id", "")];

/// Reads a trace from its header and its table; `file` names the table in errors.
pub fn read_blis(header: &Header, file: &str, table: impl BufRead) -> Result<Trace, TraceError> {
    let mut table = Table::open(file, table, COLUMNS, REQUIRED)?;
    let mut reader = Reader {
        caused: table.has("after"),
        thinks: table.has("think_time_us"),
        growth: header.session_context_growth,
        clients: Interner::with(header.clients.clone().unwrap_or_default()),
        listed: header.clients.as_ref().map(Vec::len),
        classes: BTreeMap::new(),
        texts: Interner::default(),
        sessions: Interner::default(),
        last_rounds: BTreeMap::new(),
        model: None,
        unused: [0; UNUSED.len()],
        failed: 0,
        recorded: header.mode == Mode::Real,
        cut_short: 0,
    };
    let mut trace =
        Trace { not_started: header.requests_not_started.unwrap_or(0), open_ended: header.open_ended.unwrap_or(false), ..Trace::default() };
    while let Some(record) = table.next()? {
        if let Some(mut row) = reader.row(&record)? {
            row.warm_up = (trace.rows.len() as u64) < header.warm_up_requests;
            trace.rows.push(row);
        }
        if trace.rows.len() as u64 > MAX_REQUESTS {
            return Err(TraceError::whole(file, format!("has more than {MAX_REQUESTS} requests")));
        }
    }
    trace.notes = header_note(header).into_iter().chain(reader.notes()).collect();
    trace.model = reader.model.unwrap_or_default();
    trace.clients = reader.clients.into_names();
    trace.classes = (0..trace.clients.len()).map(|client| reader.classes.remove(&client).unwrap_or_default()).collect();
    trace.texts = reader.texts.into_names();
    trace.sessions = reader.sessions.into_names();
    trace.checked(file)
}

/// What reading a table keeps from row to row.
struct Reader {
    caused: bool,
    thinks: bool,
    growth: Option<Growth>,
    clients: Interner,
    /// Clients the header lists, where it does.
    listed: Option<usize>,
    /// The service class of each client.
    classes: BTreeMap<usize, String>,
    texts: Interner,
    sessions: Interner,
    /// The last row of each session, with the tokens of the conversation up to its end.
    last_rounds: BTreeMap<u32, (Row, u64)>,
    model: Option<String>,
    /// Rows that state a value of each unused column.
    unused: [u64; UNUSED.len()],
    failed: u64,
    /// Whether a server was recorded, so that requests which ended early would have gone on.
    recorded: bool,
    cut_short: u64,
}

/// What the header states of the recorded server, which no replay acts on.
fn header_note(header: &Header) -> Option<String> {
    let keys = header.unused();
    let state = if keys.len() == 1 { "states" } else { "state" };
    (!keys.is_empty()).then(|| format!("the header's {} {state} what was recorded and change nothing of a run", keys.join(", ")))
}

impl Reader {
    /// The request of a record; `None` where it is the record of one that failed before it generated anything.
    fn row(&mut self, record: &Record<'_>) -> Result<Option<Row>, TraceError> {
        self.refuse_what_is_not_simulated(record)?;
        for ((column, neutral), count) in UNUSED.iter().zip(&mut self.unused) {
            let text = record.text(column);
            *count += u64::from(!text.is_empty() && text != *neutral);
        }
        let status = record.text("status");
        if !["ok", "error", "timeout"].contains(&status) {
            return Err(record.wrong("status", format!("must be ok, error or timeout, found {status:?}")));
        }
        let output_tokens = record.count("output_tokens", MAX_COUNT)?;
        if output_tokens == 0 && status != "ok" {
            self.failed += 1;
            return Ok(None);
        }
        if output_tokens == 0 {
            return Err(record.wrong("output_tokens", "must be at least 1 for a request that is ok"));
        }
        self.cut_short += u64::from(self.recorded && status != "ok");
        let arrival_us = record.whole("arrival_time_us", MAX_TIME_US)?;
        let deadline_us = record.whole("deadline_us", MAX_TIME_US)?;
        if deadline_us > 0 && deadline_us <= arrival_us {
            return Err(
                record.wrong("deadline_us", format!("must be after the arrival ({arrival_us}), or 0 for none, found {deadline_us}"))
            );
        }
        let priority = match record.text("vllm_priority") {
            "" => 0,
            text => text.parse().map_err(|_| record.wrong("vllm_priority", format!("must be a whole number, found {text:?}")))?,
        };
        let mut row = Row {
            line: record.line,
            id: record.whole("request_id", u64::MAX)?,
            client: self.client(record)?,
            arrival_us,
            prompt: self.prompt(record)?,
            output_tokens,
            max_tokens: positive(record, "max_tokens")?,
            priority,
            timeout_us: (deadline_us > 0).then(|| deadline_us - arrival_us),
            after: cause(record)?,
            lane: optional(record, "lane")?,
            phase: optional(record, "phase")?,
            rounds_left: optional(record, "rounds_left")?.unwrap_or(0),
            ..Row::default()
        };
        self.place_in_session(record, &mut row)?;
        Ok(Some(row))
    }

    fn refuse_what_is_not_simulated(&mut self, record: &Record<'_>) -> Result<(), TraceError> {
        for column in ["image_tokens", "audio_tokens", "video_tokens"] {
            if record.whole(column, u64::MAX)? > 0 {
                return Err(record.wrong(column, "must be 0: only prompts of text are simulated"));
            }
        }
        if !record.text("adapter").is_empty() {
            return Err(record.wrong("adapter", "must be empty: adapters are not simulated"));
        }
        let model = record.text("model");
        match &self.model {
            Some(first) if first != model => Err(record.wrong("model", format!("is {model:?} after {first:?}; one model serves a trace"))),
            Some(_) => Ok(()),
            None => {
                self.model = Some(model.to_owned());
                Ok(())
            }
        }
    }

    fn client(&mut self, record: &Record<'_>) -> Result<u32, TraceError> {
        let name = record.text("client_id");
        if name.is_empty() {
            return Err(record.wrong("client_id", "is empty; every request has a client"));
        }
        let number = self.clients.number(name);
        let class = record.text("slo_class");
        let known = self.classes.entry(number as usize).or_insert_with(|| class.to_owned());
        if known != class {
            return Err(record.wrong("slo_class", format!("is {class:?} after {known:?} of client `{name}`; a client has one class")));
        }
        match self.listed {
            Some(listed) if number as usize >= listed => {
                Err(record.wrong("client_id", format!("`{name}` is not among the header's clients")))
            }
            Some(_) | None => Ok(number),
        }
    }

    fn prompt(&mut self, record: &Record<'_>) -> Result<Prompt, TraceError> {
        let stated = record.count("input_tokens", MAX_COUNT)?;
        let length = record.count("prefix_length", MAX_COUNT)?;
        let prefix = match (record.text("prefix_group"), length) {
            ("", 0) => None,
            ("", _) => return Err(record.wrong("prefix_group", "is empty, and prefix_length is not 0")),
            (group, 0) => return Err(record.wrong("prefix_length", format!("must be at least 1 for the prefix {group:?}"))),
            (group, length) => Some((self.texts.number(group), length)),
        };
        let words = record.text("segments").split(' ').filter(|word| !word.is_empty());
        let parts: Vec<Part> = words.map(|word| self.part(record, word)).collect::<Result<_, _>>()?;
        let listed: u64 = parts.iter().map(|part| u64::from(part.stated())).sum();
        let own = u32::try_from(listed).ok().and_then(|listed| stated.checked_sub(listed));
        let own = own.ok_or_else(|| record.wrong("segments", format!("state {listed} tokens, more than input_tokens ({stated})")))?;
        Ok(Prompt { prefix, parts: parts.into(), own })
    }

    fn part(&mut self, record: &Record<'_>, word: &str) -> Result<Part, TraceError> {
        let wrong = || record.wrong("segments", format!("{word:?} is not s/NAME/LENGTH, i/ID/LENGTH, o/ID/LENGTH or r/ID"));
        let mut fields = word.split('/');
        let (Some(kind), Some(name), length, None) = (fields.next(), fields.next(), fields.next(), fields.next()) else {
            return Err(wrong());
        };
        let length = match length {
            Some(text) => Some(text.parse::<u32>().ok().filter(|length| (1..=MAX_COUNT).contains(length)).ok_or_else(wrong)?),
            None => None,
        };
        let request = || name.parse::<u64>().map_err(|_| wrong());
        match (kind, length) {
            ("s", Some(length)) => Ok(Part::Shared { text: self.texts.number(&unescaped(name).ok_or_else(wrong)?), length }),
            ("i", Some(length)) => Ok(Part::Input { request: request()?, length }),
            ("o", Some(length)) => Ok(Part::Output { request: request()?, length }),
            ("r", None) => Ok(Part::Round { request: request()? }),
            _ => Err(wrong()),
        }
    }

    /// Fills in the session of a row, and what follows from it where the file does not state causes.
    fn place_in_session(&mut self, record: &Record<'_>, row: &mut Row) -> Result<(), TraceError> {
        let name = record.text("session_id");
        let round = record.count("round_index", MAX_COUNT)?;
        let think_us = record.optional("think_time_us", MAX_TIME_US)?.filter(|think| *think > 0);
        if name.is_empty() {
            return if round == 0 { Ok(()) } else { Err(record.wrong("round_index", format!("is {round} without a session"))) };
        }
        let session = self.sessions.number(name);
        (row.session, row.round) = (Some(session), round);
        let before = self.last_rounds.remove(&session);
        let expected = before.as_ref().map_or(0, |(before, _)| before.round + 1);
        if round != expected && !self.caused {
            return Err(record.wrong("round_index", format!("must be {expected}, the next of session `{name}`, found {round}")));
        }
        let mut spoken = row.prompt.stated();
        if let Some((before, context)) = &before {
            if self.thinks && !self.caused {
                row.after = Some((before.id, think_us.unwrap_or(0)));
            }
            if self.growth == Some(Growth::Accumulate) {
                accumulate(record, row, before, *context)?;
            } else {
                spoken += context;
            }
        }
        self.last_rounds.insert(session, (row.clone(), spoken + u64::from(row.output_tokens)));
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for ((column, _), count) in UNUSED.iter().zip(self.unused).filter(|(_, count)| *count > 0) {
            notes.push(format!("{column} is stated by {count} requests and changes nothing of a run"));
        }
        if self.failed > 0 {
            notes.push(format!("{} requests that failed before they generated a token are left out", self.failed));
        }
        if self.cut_short > 0 {
            notes.push(format!("{} requests that ended early generate no more than they had by then", self.cut_short));
        }
        notes
    }
}

/// Takes a round's `input_tokens` as the whole conversation: what the rounds before it said and got, then its own text.
fn accumulate(record: &Record<'_>, row: &mut Row, before: &Row, context: u64) -> Result<(), TraceError> {
    let stated = row.prompt.stated();
    let own = stated.checked_sub(context).filter(|_| row.prompt.parts.is_empty()).and_then(|own| u32::try_from(own).ok());
    let Some(own) = own else {
        let message =
            format!("is {stated}, less than the {context} tokens of the conversation so far; the header says that rounds accumulate");
        return Err(record.wrong("input_tokens", message));
    };
    let said: Vec<Part> = if row.after.is_some() {
        before.prompt.parts.iter().copied().chain([Part::Round { request: before.id }]).collect()
    } else {
        let own_text = Part::Input { request: before.id, length: before.prompt.own };
        let answer = Part::Output { request: before.id, length: before.output_tokens };
        let own_text = (before.prompt.own > 0).then_some(own_text);
        before.prompt.parts.iter().copied().chain(own_text).chain([answer]).collect()
    };
    row.prompt.parts = said.into();
    row.prompt.own = own;
    Ok(())
}

fn cause(record: &Record<'_>) -> Result<Option<(u64, u64)>, TraceError> {
    let after = record.optional("after", u64::MAX)?;
    let delay = record.optional("delay_after_us", MAX_TIME_US)?;
    match (after, delay) {
        (Some(after), delay) => Ok(Some((after, delay.unwrap_or(0)))),
        (None, Some(_)) => Err(record.wrong("delay_after_us", "is stated without the request it counts from, in `after`")),
        (None, None) => Ok(None),
    }
}

fn optional(record: &Record<'_>, column: &str) -> Result<Option<u32>, TraceError> {
    Ok(record.optional(column, MAX_COUNT.into())?.map(|value| u32::try_from(value).expect("at most a 32-bit number")))
}

fn positive(record: &Record<'_>, column: &str) -> Result<Option<u32>, TraceError> {
    match optional(record, column)? {
        Some(0) => Err(record.wrong(column, "must be at least 1, or empty for the engine's own rule")),
        other => Ok(other),
    }
}

/// A name as it stands in `segments`: `%`, `/`, blanks and control characters as two hexadecimal digits after a `%`.
pub(crate) fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '%' | '/' | ' ' | '\0'..='\x1f' => {
                let _ = write!(text, "%{:02X}", u32::from(c));
            }
            other => text.push(other),
        }
    }
    text
}

fn unescaped(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let code = u8::from_str_radix(part.get(..2)?, 16).ok().filter(u8::is_ascii)?;
        name.push(char::from(code));
        name.push_str(&part[2..]);
    }
    (!name.is_empty()).then_some(name)
}
