//! A trace: the requests of a workload one by one, with what made each of them be sent when it was.
//!
//! It is where formats meet: every reader makes a [`Trace`], every writer and the replay take one. A row is sent at a stated instant, or
//! when an earlier request has ended and a delay has passed, or when a place of a closed loop comes free; so a replay under another
//! configuration sends the same requests at the instants that configuration gives them. Left out: what was measured of a recorded run.
//!
//! Reading order: the types here; `lines` and `csv` (text into fields); `blis` with `header`, `mooncake`, `azure`, `burstgpt` (formats);
//! `spread` (times on a grid); `replay` (a trace as sources); `recorder` (a run as a trace); `compare` (two traces) with `shared` (text that comes again); `pieces`
//! (a prompt as texts); `compose` (several as one).

mod azure;
mod blis;
mod burstgpt;
mod compare;
mod compose;
mod csv;
mod header;
mod lines;
mod mooncake;
mod pieces;
mod recorder;
mod replay;
mod shared;
mod spread;
mod write;

use std::collections::BTreeMap;

use blis_contracts::scenario::distribution::MAX_COUNT;

pub use azure::{read_azure, write_azure};
use blis::MAX_TIME_US;
pub use blis::read_blis;
pub use burstgpt::{read_burstgpt, write_burstgpt};
pub use compare::{Check, compare};
pub use compose::compose;
pub use header::{Header, Mode};
pub use mooncake::{Mooncake, read_mooncake, write_mooncake};
pub use recorder::{Cast, TraceRecorder};
pub use write::{header_text, write_rows};

/// A trace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// What the clients are called, in the order in which they send at one instant.
    pub clients: Vec<String>,
    /// The service classes of the clients, where they are stated; empty for the default one.
    pub classes: Vec<String>,
    /// What the texts that requests share are called, by number.
    pub texts: Vec<String>,
    /// What the sessions are called, by number.
    pub sessions: Vec<String>,
    /// The model the requests were of, as the file calls it; empty where it does not say.
    pub model: String,
    /// The requests, in order of sending.
    pub rows: Vec<Row>,
    /// Requests that the recorded run ended without sending.
    pub not_started: u64,
    /// Whether the recorded workload would have sent for ever.
    pub open_ended: bool,
    /// What the file says that a replay does not act on, and what was left out of it.
    pub notes: Vec<String>,
}

/// A request of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// The line of the file it stands in; 0 where there is none.
    pub line: u64,
    /// Its number, which no other row has.
    pub id: u64,
    /// The client that sends it, by number.
    pub client: u32,
    /// Its session, by number.
    pub session: Option<u32>,
    /// Its place in the session.
    pub round: u32,
    /// Rounds that follow it in its session, whether or not the trace holds them.
    pub rounds_left: u32,
    /// When it was sent, in microseconds.
    pub arrival_us: u64,
    /// Its prompt.
    pub prompt: Prompt,
    /// Tokens it generates, unless a limit ends it sooner.
    pub output_tokens: u32,
    /// The limit on them that the client states.
    pub max_tokens: Option<u32>,
    /// Scheduling priority.
    pub priority: i32,
    /// How long its client waits for it, in microseconds.
    pub timeout_us: Option<u64>,
    /// The request whose end it follows, and by how many microseconds; then `arrival_us` is only what it came to.
    pub after: Option<(u64, u64)>,
    /// The place of a closed loop it took; then it is sent when any of the client's places is free.
    pub lane: Option<u32>,
    /// The phase of its client's arrivals.
    pub phase: Option<u32>,
    /// Whether it belongs to the warm-up.
    pub warm_up: bool,
}

/// A prompt, in order: shared prefix, other stated parts, and text of the request's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prompt {
    /// The shared text it starts with, by number, and how many tokens of it.
    pub prefix: Option<(u32, u32)>,
    /// What stands between the prefix and the request's own text.
    pub parts: Box<[Part]>,
    /// Tokens of its own, at the end.
    pub own: u32,
}

/// A part of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A shared text, by number, from its first token.
    Shared {
        /// The text.
        text: u32,
        /// How many tokens.
        length: u32,
    },
    /// The own text of a request, from its first token.
    Input {
        /// The request.
        request: u64,
        /// How many tokens.
        length: u32,
    },
    /// What a request generated, from its first token.
    Output {
        /// The request.
        request: u64,
        /// How many tokens.
        length: u32,
    },
    /// The whole own text of an earlier request and all it generated, however much that will be.
    Round {
        /// The request.
        request: u64,
    },
}

impl Part {
    /// Tokens, where their number is stated.
    pub fn stated(self) -> u32 {
        match self {
            Self::Shared { length, .. } | Self::Input { length, .. } | Self::Output { length, .. } => length,
            Self::Round { .. } => 0,
        }
    }
}

impl Prompt {
    /// Tokens behind the prefix whose number is stated.
    pub fn stated(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.stated())).sum::<u64>() + u64::from(self.own)
    }

    /// All its tokens, as far as they are stated.
    pub fn tokens(&self) -> u64 {
        self.stated() + self.prefix.map_or(0, |(_, length)| u64::from(length))
    }
}

/// A trace that cannot be read or used, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct TraceError {
    /// The file, as the user named it.
    pub file: String,
    /// The line; 0 for the file as a whole.
    pub line: u64,
    /// The field; empty for the line as a whole.
    pub field: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl std::fmt::Display for TraceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl TraceError {
    /// An error of a field in a line.
    pub(crate) fn at(file: &str, line: u64, field: &str, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, field: field.to_owned(), message: message.into() }
    }

    /// An error of a file as a whole.
    pub(crate) fn whole(file: &str, message: impl Into<String>) -> Self {
        Self::at(file, 0, "", message)
    }
}

impl Trace {
    /// Checks what no single line can show: that there are rows, in order, each with a number of its own, and that what they refer to
    /// stands above them.
    pub(crate) fn checked(self, file: &str) -> Result<Self, TraceError> {
        if self.rows.is_empty() {
            let left_out = self.notes.iter().fold(String::new(), |text, note| text + " (" + note + ")");
            return Err(TraceError::whole(file, format!("has no request{left_out}; a trace needs at least one row")));
        }
        let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
        let mut followed: BTreeMap<u64, u64> = BTreeMap::new();
        for (index, row) in self.rows.iter().enumerate() {
            let wrong = |field: &str, message: String| Err(TraceError::at(file, row.line, field, message));
            if let Some(first) = seen.insert(row.id, index) {
                return wrong("request_id", format!("{} is already the number of the request in line {}", row.id, self.rows[first].line));
            }
            if let Some(before) = index.checked_sub(1).map(|above| &self.rows[above])
                && before.arrival_us > row.arrival_us
            {
                let (mine, theirs) = (row.arrival_us, before.arrival_us);
                return wrong("", format!("is sent at {mine} us, before the row above it ({theirs} us); sort the rows by time"));
            }
            if row.arrival_us > MAX_TIME_US {
                return wrong("", format!("is sent at {} us; the most there is of simulated time are {MAX_TIME_US} us", row.arrival_us));
            }
            let tokens = row.prompt.tokens();
            let rounds = row.prompt.parts.iter().any(|part| matches!(part, Part::Round { .. }));
            let least = u64::from(!rounds);
            if !(least..=u64::from(MAX_COUNT)).contains(&tokens) {
                return wrong("input_tokens", format!("the prompt must have from 1 to {MAX_COUNT} tokens, found {tokens}"));
            }
            if let Some((cause, _)) = row.after {
                let Some(cause_row) = seen.get(&cause).map(|above| &self.rows[*above]) else {
                    return wrong("after", format!("no row above has the number {cause}"));
                };
                if cause_row.client != row.client {
                    let (mine, theirs) = (&self.clients[row.client as usize], &self.clients[cause_row.client as usize]);
                    return wrong(
                        "after",
                        format!("request {cause} is of client `{theirs}` and this one of `{mine}`; a client waits for its own"),
                    );
                }
                if let Some(other) = followed.insert(cause, row.line)
                    && cause_row.lane.is_some()
                {
                    let message = format!("request {cause} holds a place of a closed loop and is already followed by line {other}");
                    return wrong("after", message);
                }
            }
            self.check_rounds(row, &seen).map_err(|message| TraceError::at(file, row.line, "segments", message))?;
        }
        Ok(self)
    }

    /// A prompt may repeat whole rounds only of requests that have ended by then: the one it follows, and those that one repeats.
    fn check_rounds(&self, row: &Row, seen: &BTreeMap<u64, usize>) -> Result<(), String> {
        let cause = row.after.and_then(|(cause, _)| seen.get(&cause)).map(|above| &self.rows[*above]);
        for part in &row.prompt.parts {
            let Part::Round { request } = part else { continue };
            let known = cause.is_some_and(|cause| cause.id == *request || cause.prompt.parts.contains(&Part::Round { request: *request }));
            if !known {
                return Err(format!("repeats request {request}, which need not have ended by then; let `after` follow it"));
            }
        }
        Ok(())
    }
}
