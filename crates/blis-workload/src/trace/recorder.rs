//! A run as a trace: each request in order of sending, written as soon as it and all before it have ended.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};

use blis_contracts::record::RequestRecord;
use blis_contracts::request::{RequestId, TokenSource};
use blis_contracts::scenario::DEFAULT_CLASS;
use blis_contracts::units::SimTime;

use super::header::{Header, Mode};
use super::write::{Written, begin, write};
use super::{Part, Prompt, Row, Trace};
use crate::Offered;
use crate::source::{Draft, Source, client_of};

/// Writes the table of a trace while a run goes on.
#[derive(Debug)]
pub struct TraceRecorder<W> {
    out: W,
    line: String,
    cast: Cast,
    model: String,
    /// Requests sent and not written yet, with their record once they have ended.
    pending: VecDeque<(Row, Option<RequestRecord>)>,
    /// Requests written.
    written: u64,
    /// Where each request that has not ended stands among all sent.
    places: BTreeMap<RequestId, u64>,
    /// Requests sent.
    sent: u64,
    /// Of these, requests of the warm-up.
    warm_up: u64,
}

/// Who sends in a run, and what the numbers of its requests are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cast {
    /// The names of the sources.
    pub clients: Vec<String>,
    /// The service classes of the sources.
    pub classes: Vec<String>,
    /// The names of shared texts.
    pub texts: Vec<String>,
    /// Whether some source would send for ever.
    pub open_ended: bool,
}

impl Cast {
    /// Of a run that has not begun.
    pub fn of(offered: &Offered) -> Self {
        let named = |name: fn(&dyn Source) -> &str| offered.sources.iter().map(|source| name(&**source).to_owned()).collect();
        Self {
            clients: named(|source| source.name()),
            classes: named(|source| source.class()),
            texts: offered.texts.clone(),
            open_ended: offered.sources.iter().any(|source| source.unsent().is_none()),
        }
    }
}

impl<W: Write> TraceRecorder<W> {
    /// Starts a table; `model` is what serves the requests.
    pub fn new(mut out: W, cast: Cast, model: String) -> io::Result<Self> {
        begin(&mut out)?;
        let (line, pending, places) = (String::new(), VecDeque::new(), BTreeMap::new());
        Ok(Self { out, line, cast, model, pending, written: 0, places, sent: 0, warm_up: 0 })
    }

    /// A client sent a request.
    pub fn sent(&mut self, at: SimTime, draft: &Draft) -> io::Result<()> {
        if draft.warm_up && self.sent > self.warm_up {
            let message = "a trace counts its warm-up requests from its start, and this run sends one after others";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        self.sent += 1;
        self.warm_up += u64::from(draft.warm_up);
        self.places.insert(draft.id, self.written + self.pending.len() as u64);
        self.pending.push_back((row_of(at, draft), None));
        Ok(())
    }

    /// A request ended, or the run did.
    pub fn ended(&mut self, record: &RequestRecord) -> io::Result<()> {
        let Some(place) = self.places.remove(&record.id) else { return Ok(()) };
        let index = usize::try_from(place - self.written).expect("a place in memory");
        self.pending[index].1 = Some(record.clone());
        while let Some((row, Some(record))) = self.pending.front() {
            let (client, class) = (&self.cast.clients[row.client as usize], &self.cast.classes[row.client as usize]);
            let class = if class == DEFAULT_CLASS { "" } else { class };
            let session = row.session.map_or_else(String::new, |session| format!("{client}/{session}"));
            let text = |number: u32| self.cast.texts[number as usize].as_str();
            let written = Written { row, client, class, session: &session, model: &self.model, text: &text, seen: Some(record) };
            write(&mut self.out, &mut self.line, &written)?;
            self.pending.pop_front();
            self.written += 1;
        }
        Ok(())
    }

    /// Hands back what was written to, flushed, and the header that goes with it. `not_started` are requests the run did not send.
    pub fn finish(mut self, mode: Mode, seed: u64, not_started: u64) -> io::Result<(W, Header)> {
        self.out.flush()?;
        let described = Trace { clients: self.cast.clients, not_started, open_ended: self.cast.open_ended, ..Trace::default() };
        let header = Header { warm_up_requests: self.warm_up, workload_seed: Some(seed), ..Header::new(mode, &described) };
        Ok((self.out, header))
    }
}

/// The row of a request as it was sent.
fn row_of(at: SimTime, draft: &Draft) -> Row {
    let origin = &draft.origin;
    Row {
        line: 0,
        id: draft.id.0,
        client: client_of(draft.id),
        session: origin.session.map(|round| u32::try_from(round.session).expect("a run has fewer sessions than that")),
        round: origin.session.map_or(0, |round| round.round),
        rounds_left: origin.session.map_or(0, |round| round.left),
        arrival_us: at.as_micros(),
        prompt: prompt_of(draft),
        output_tokens: draft.output_length,
        max_tokens: draft.max_tokens,
        priority: draft.priority,
        timeout_us: draft.timeout.map(blis_contracts::units::SimDuration::as_micros),
        after: origin.after.map(|(request, delay)| (request.0, delay.as_micros())),
        lane: origin.lane,
        phase: origin.phase,
        warm_up: draft.warm_up,
    }
}

/// A prompt as a trace states it. The text and the answer of a request, one behind the other in a prompt that follows a request, are a
/// round: their lengths are those it comes to.
fn prompt_of(draft: &Draft) -> Prompt {
    let mut segments = draft.prompt.iter().copied().peekable();
    let shared = draft.prompt.iter().filter(|segment| matches!(segment.source, TokenSource::Shared(_))).count();
    let mut prompt = Prompt::default();
    let mut parts = Vec::new();
    while let Some(segment) = segments.next() {
        let length = segment.length;
        match segment.source {
            TokenSource::Shared(text) if shared == 1 && parts.is_empty() => prompt.prefix = Some((text, length)),
            TokenSource::Shared(text) => parts.push(Part::Shared { text, length }),
            TokenSource::Unique(request) if request == draft.id.0 && segments.peek().is_none() => prompt.own = length,
            TokenSource::Unique(request) => {
                let answered = segments.next_if(|next| draft.origin.after.is_some() && next.source == TokenSource::Output(request));
                parts.push(if answered.is_some() { Part::Round { request } } else { Part::Input { request, length } });
            }
            TokenSource::Output(request) => parts.push(Part::Output { request, length }),
        }
    }
    prompt.parts = parts.into();
    prompt
}
