//! A run as a timeline in the trace-event format that trace viewers open: steps of the accelerator, requests by phase, and what the
//! engine held, each event on one line, written as it happens and in constant memory.
//!
//! Times are microseconds of simulated time. An event is written where it overlaps the window. Each engine core has a track, and one more
//! for each step in flight beside another of its own, since steps on one track must not overlap. Left out: kernels within a step.

use std::io::{self, Write};
use std::ops::RangeInclusive;

use blis_contracts::engine::{EngineSnapshot, StepTicket};
use blis_contracts::record::RequestRecord;
use blis_contracts::series::StepKind;
use blis_contracts::units::SimTime;
use serde_json::{Value, json};

/// The "process" of a trace that stands for the pool.
const POOL: u32 = 1;
/// The "process" that stands for the clients.
const CLIENTS: u32 = 2;

/// Writes a timeline.
#[derive(Debug)]
pub struct TimelineWriter<W> {
    out: W,
    window: RangeInclusive<SimTime>,
    clients: Vec<String>,
    /// When the engine's state was last written; steps of one instant share it.
    last_state: Option<SimTime>,
    tracks: Vec<Track>,
    /// Whether a step or a request lay in the window.
    shows: bool,
}

/// A row of steps that follow each other.
#[derive(Debug)]
struct Track {
    stream: u32,
    /// When its last step ends.
    end: SimTime,
}

impl<W: Write> TimelineWriter<W> {
    /// Starts a timeline of the window; `clients` are the names of the workload's clients in its order.
    pub fn new(mut out: W, pool: &str, clients: Vec<String>, window: RangeInclusive<SimTime>) -> io::Result<Self> {
        write!(out, "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        let names = [(POOL, format!("pool {pool}")), (CLIENTS, "requests".to_owned())];
        for (at, (pid, name)) in names.into_iter().enumerate() {
            let event = json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": name } });
            write!(out, "{}\n{event}", if at == 0 { "" } else { "," })?;
        }
        Ok(Self { out, window, clients, last_state: None, tracks: Vec::new(), shows: false })
    }

    /// A launched step, and the engine's state behind it.
    pub fn step(&mut self, step: &StepTicket, state: &EngineSnapshot) -> io::Result<()> {
        if !self.overlaps(step.start, step.end) {
            return Ok(());
        }
        let ts = step.start.as_micros();
        let track = self.track(step)?;
        self.event(&json!({
            "ph": "X", "name": StepKind::of(step).as_str(), "cat": "step", "pid": POOL, "tid": track,
            "ts": ts, "dur": step.end.since(step.start).as_micros(),
            "args": { "step": step.step, "requests": step.requests, "tokens": step.tokens, "prefill_tokens": step.prefill_tokens },
        }))?;
        if self.last_state.replace(step.start) == Some(step.start) {
            return Ok(());
        }
        let counter = |name: &str, args: Value| json!({ "ph": "C", "name": name, "pid": POOL, "ts": ts, "args": args });
        self.event(&counter("requests", json!({ "running": state.running, "waiting": state.waiting })))?;
        self.event(&counter("KV blocks in use", json!({ "blocks": state.used_blocks.get() })))
    }

    /// The track a step goes on: the first of its engine core that is free by then, or a new one.
    fn track(&mut self, step: &StepTicket) -> io::Result<usize> {
        let free = |track: &Track| track.stream == step.stream && track.end <= step.start;
        if let Some(at) = self.tracks.iter().position(free) {
            self.tracks[at].end = step.end;
            return Ok(at + 1);
        }
        let others = self.tracks.iter().filter(|track| track.stream == step.stream).count();
        let beside = if others == 0 { String::new() } else { format!(", step {} in flight", others + 1) };
        let name = format!("engine core {}{beside}", step.stream);
        self.tracks.push(Track { stream: step.stream, end: step.end });
        let tid = self.tracks.len();
        self.event(&json!({ "ph": "M", "name": "thread_name", "pid": POOL, "tid": tid, "args": { "name": name } }))?;
        Ok(tid)
    }

    /// A request whose fate is known, with its phases.
    pub fn request(&mut self, record: &RequestRecord) -> io::Result<()> {
        let instants = [Some(record.sent), record.received, record.scheduled, record.first_token, record.last_token];
        let end = instants.into_iter().flatten().max().unwrap_or(record.sent);
        if !self.overlaps(record.sent, end) {
            return Ok(());
        }
        let name = format!("{} {}", self.clients[record.client as usize], record.index);
        let args = json!({
            "fate": record.fate.as_str(), "prompt_tokens": record.prompt_tokens, "cached_tokens": record.cached_tokens,
            "output_tokens": record.output_tokens, "preemptions": record.preemptions, "warm_up": record.warm_up,
        });
        self.span(record, &name, record.sent, end, args)?;
        let phases = ["to the engine", "queued", "to the first token", "decoding"];
        for (phase, ends) in phases.into_iter().zip(instants.windows(2)) {
            if let [Some(from), Some(to)] = ends {
                self.span(record, phase, *from, *to, json!({}))?;
            }
        }
        Ok(())
    }

    /// Whether no step and no request lay in the window so far.
    pub fn is_empty(&self) -> bool {
        !self.shows
    }

    /// Ends the timeline and hands back what was written to, flushed.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// A stretch of a request's life, which may overlap with others' and within which its phases lie.
    fn span(&mut self, record: &RequestRecord, name: &str, from: SimTime, to: SimTime, args: Value) -> io::Result<()> {
        let event = |ph: &str, at: SimTime, args: Value| json!({ "ph": ph, "cat": "request", "id": record.id.0, "name": name, "pid": CLIENTS, "tid": 1, "ts": at.as_micros(), "args": args });
        self.event(&event("b", from, args))?;
        self.event(&event("e", to, json!({})))
    }

    fn event(&mut self, event: &Value) -> io::Result<()> {
        write!(self.out, ",\n{event}")
    }

    fn overlaps(&mut self, from: SimTime, to: SimTime) -> bool {
        let overlaps = from <= *self.window.end() && to >= *self.window.start();
        self.shows |= overlaps;
        overlaps
    }
}

#[cfg(test)]
mod tests {
    use blis_contracts::fate::Fate;
    use blis_contracts::request::RequestId;

    use super::*;

    fn at(us: u64) -> SimTime {
        SimTime::from_micros(us)
    }

    fn record(sent: u64) -> RequestRecord {
        RequestRecord {
            id: RequestId(7),
            client: 0,
            index: 7,
            warm_up: false,
            fate: Fate::Completed,
            refusal: None,
            sent: at(sent),
            received: Some(at(sent + 5)),
            scheduled: Some(at(sent + 10)),
            first_token: Some(at(sent + 30)),
            last_token: Some(at(sent + 90)),
            prompt_tokens: 4,
            cached_tokens: 0,
            output_tokens: 3,
            preemptions: 0,
        }
    }

    fn step(start: u64) -> StepTicket {
        StepTicket { step: 1, start: at(start), end: at(start + 20), requests: 1, tokens: 4, prefill_tokens: 4, stream: 0, readers: 1 }
    }

    /// The events of a timeline of two steps and two requests.
    fn events(window: RangeInclusive<SimTime>) -> Vec<Value> {
        let mut writer = TimelineWriter::new(Vec::new(), "serve", vec!["chat \"<\"".to_owned()], window).unwrap();
        for begin in [10, 1_010] {
            writer.step(&step(begin), &EngineSnapshot::default()).unwrap();
            writer.request(&record(begin)).unwrap();
        }
        let text = String::from_utf8(writer.finish().unwrap()).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        document["traceEvents"].as_array().unwrap().clone()
    }

    #[test]
    fn what_overlaps_the_window_is_there_and_nothing_else() {
        let counted = |window, ph: &str| events(window).iter().filter(|event| event["ph"] == ph).count();
        assert_eq!((counted(at(0)..=SimTime::BEYOND, "X"), counted(at(0)..=SimTime::BEYOND, "b")), (2, 10));
        assert_eq!((counted(at(200)..=SimTime::BEYOND, "X"), counted(at(0)..=at(500), "b")), (1, 5));
        assert_eq!((counted(at(30)..=at(30), "X"), counted(at(31)..=at(99), "C")), (1, 0));
    }

    #[test]
    fn steps_that_overlap_stand_on_tracks_of_their_own() {
        let mut writer = TimelineWriter::new(Vec::new(), "serve", vec![], at(0)..=SimTime::BEYOND).unwrap();
        for (start, stream) in [(0, 0), (5, 1), (10, 0), (20, 0), (30, 1)] {
            writer.step(&StepTicket { stream, ..step(start) }, &EngineSnapshot::default()).unwrap();
        }
        let document: Value = serde_json::from_slice(&writer.finish().unwrap()).unwrap();
        let events = document["traceEvents"].as_array().unwrap().iter();
        let tracks: Vec<_> = events.clone().filter(|event| event["ph"] == "X").map(|event| event["tid"].as_u64().unwrap()).collect();
        assert_eq!(tracks, [1, 2, 3, 1, 2]);
        let names: Vec<_> = events.filter(|event| event["name"] == "thread_name").map(|event| event["args"]["name"].clone()).collect();
        assert_eq!(names, ["engine core 0", "engine core 1", "engine core 0, step 2 in flight"]);
    }

    #[test]
    fn every_span_that_begins_ends_and_phases_follow_each_other() {
        let events = events(at(0)..=at(500));
        let of = |ph: &str, name: &str| events.iter().find(|event| event["ph"] == ph && event["name"] == name).unwrap()["ts"].as_u64();
        assert_eq!((of("b", "chat \"<\" 7"), of("e", "chat \"<\" 7")), (Some(10), Some(100)));
        assert_eq!((of("e", "queued"), of("b", "to the first token"), of("e", "to the first token")), (Some(20), Some(20), Some(40)));
    }
}
