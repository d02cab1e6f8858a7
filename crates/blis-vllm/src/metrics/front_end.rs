//! What the front end knows of its requests, and what one message of an engine core adds up to.
//!
//! upstream: vllm `v1/engine/output_processor.py::OutputProcessor.process_outputs`, `v1/metrics/stats.py::IterationStats`, `LoRARequestStates`
//!
//! A request that its client gave up is forgotten at once: what a core still says of it is not counted. One that ends without ever having
//! run counts as scheduled at the clock's zero, which is what upstream does.
//!
//! Left out: several samples of one prompt, stop strings, streaming input, prompts computed elsewhere.

use blis_contracts::request::RequestSlot;
use blis_contracts::units::SimTime;

use super::logger::{Logger, SchedulerStats};

/// A request as it arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: SimTime,
    /// Tokens of its prompt.
    pub prompt: u32,
    /// The most tokens it may generate.
    pub max_tokens: u32,
    /// The adapter it runs with.
    pub adapter: Option<String>,
}

/// What happened to a request in an engine core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It went into the waiting queue.
    Queued(SimTime),
    /// It was admitted.
    Scheduled(SimTime),
    /// It lost its blocks.
    Preempted,
}

/// Why a request is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It ended by itself.
    Stop,
    /// It met a limit.
    Length,
    /// It was given up.
    Abort,
    /// It failed.
    Error,
}

/// What a message says of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The request.
    pub slot: RequestSlot,
    /// New tokens.
    pub tokens: u32,
    /// Whether it is over, and why.
    pub finished: Option<Reason>,
    /// Since its last output.
    pub events: Vec<Event>,
    /// With its first token: how much of its prompt was cached.
    pub cached_prompt: Option<u32>,
}

/// What a message adds up to. Durations are seconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Iteration {
    pub(super) generated: u32,
    pub(super) prompt_computed: u32,
    pub(super) prompt_cached: u32,
    pub(super) preempted: u32,
    pub(super) first_tokens: Vec<f64>,
    pub(super) between_tokens: Vec<f64>,
    pub(super) finished: Vec<Ended>,
}

/// A request that is over. Durations are seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ended {
    pub(super) reason: Reason,
    pub(super) whole: f64,
    pub(super) queued: f64,
    pub(super) prefill: f64,
    pub(super) inference: f64,
    pub(super) decode: f64,
    pub(super) per_output_token: f64,
    pub(super) prompt: u32,
    pub(super) generated: u32,
    pub(super) preemptions: u32,
    pub(super) max_tokens: u32,
    pub(super) cached_prompt: u32,
}

/// A live request. Instants are seconds; 0 where something has not happened.
#[derive(Debug, Clone)]
struct Known {
    arrival: Arrival,
    is_prefilling: bool,
    cached_prompt: u32,
    generated: u32,
    preemptions: u32,
    queued: f64,
    scheduled: f64,
    first_token: f64,
    last_token: f64,
}

/// The front end.
#[derive(Debug)]
pub struct FrontEnd {
    known: Vec<Option<Known>>,
    adapters: Adapters,
    logger: Logger,
}

impl FrontEnd {
    /// One that no request has reached.
    pub fn new(logger: Logger) -> Self {
        Self { known: Vec::new(), adapters: Adapters::default(), logger }
    }

    /// A request arrives.
    pub fn add(&mut self, slot: RequestSlot, arrival: Arrival) {
        let index = slot.0 as usize;
        if index >= self.known.len() {
            self.known.resize(index + 1, None);
        }
        self.known[index] = Some(Known {
            arrival,
            is_prefilling: true,
            cached_prompt: 0,
            generated: 0,
            preemptions: 0,
            queued: 0.0,
            scheduled: 0.0,
            first_token: 0.0,
            last_token: 0.0,
        });
    }

    /// Its client gives it up.
    pub fn abort(&mut self, slot: RequestSlot) {
        if let Some(known) = self.known.get_mut(slot.0 as usize).and_then(Option::take) {
            self.adapters.put(slot, known.arrival.adapter.as_deref(), None);
        }
    }

    /// A core says what a step came to.
    pub fn receive(&mut self, core: u32, now: SimTime, stats: &SchedulerStats, outputs: &[Output]) {
        let mut iteration = Iteration::default();
        for output in outputs {
            self.take_in(seconds(now), output, &mut iteration);
        }
        self.logger.note_scheduler(core, stats);
        if self.logger.counts_adapters() {
            self.logger.note_adapters(self.adapters.names(), seconds(now));
        }
        if !outputs.is_empty() {
            self.logger.note_iteration(core, &iteration);
        }
    }

    /// What a scrape would read.
    pub fn scrape(&self) -> Vec<String> {
        self.logger.scrape()
    }

    fn take_in(&mut self, now: f64, output: &Output, iteration: &mut Iteration) {
        let index = output.slot.0 as usize;
        let Some(known) = self.known.get_mut(index).and_then(Option::as_mut) else { return };
        iteration.generated += output.tokens;
        known.generated += output.tokens;
        if known.is_prefilling {
            if let Some(cached) = output.cached_prompt {
                iteration.prompt_cached += cached;
                iteration.prompt_computed += known.arrival.prompt - cached;
                known.cached_prompt = cached;
            }
            iteration.first_tokens.push(now - seconds(known.arrival.at));
        }
        let adapter = known.arrival.adapter.as_deref();
        for event in &output.events {
            match event {
                Event::Queued(at) => {
                    known.queued = seconds(*at);
                    self.adapters.put(output.slot, adapter, Some(Place::Waiting));
                }
                Event::Scheduled(at) => {
                    known.scheduled = if known.scheduled > 0.0 { known.scheduled } else { seconds(*at) };
                    self.adapters.put(output.slot, adapter, Some(Place::Running));
                }
                Event::Preempted => {
                    iteration.preempted += 1;
                    known.preemptions += 1;
                    self.adapters.put(output.slot, adapter, Some(Place::Waiting));
                }
            }
        }
        if known.is_prefilling {
            known.first_token = now;
        } else {
            iteration.between_tokens.push(now - known.last_token);
        }
        known.last_token = now;
        known.is_prefilling = false;
        if let Some(reason) = output.finished {
            iteration.finished.push(ended(known, reason, now));
            self.adapters.put(output.slot, adapter, None);
            self.known[index] = None;
        }
    }
}

fn ended(known: &Known, reason: Reason, now: f64) -> Ended {
    let decode = known.last_token - known.first_token;
    let later_tokens = known.generated.saturating_sub(1);
    Ended {
        reason,
        whole: now - seconds(known.arrival.at),
        queued: known.scheduled - known.queued,
        prefill: known.first_token - known.scheduled,
        inference: known.last_token - known.scheduled,
        decode,
        per_output_token: if later_tokens > 0 { decode / f64::from(later_tokens) } else { 0.0 },
        prompt: known.arrival.prompt,
        generated: known.generated,
        preemptions: known.preemptions,
        max_tokens: known.arrival.max_tokens,
        cached_prompt: known.cached_prompt,
    }
}

fn seconds(time: SimTime) -> f64 {
    time.as_micros() as f64 / 1e6
}

/// Where a request with an adapter is, as far as its outputs have told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Waiting,
    Running,
}

/// The adapters that requests run with or wait for, in the order in which each was last new.
#[derive(Debug, Default)]
struct Adapters {
    requests: Vec<(String, Vec<(RequestSlot, Place)>)>,
}

impl Adapters {
    fn put(&mut self, slot: RequestSlot, adapter: Option<&str>, place: Option<Place>) {
        let Some(adapter) = adapter else { return };
        let known = self.requests.iter().position(|(name, _)| name == adapter).unwrap_or_else(|| {
            self.requests.push((adapter.to_owned(), Vec::new()));
            self.requests.len() - 1
        });
        let requests = &mut self.requests[known].1;
        requests.retain(|(known, _)| *known != slot);
        requests.extend(place.map(|place| (slot, place)));
        if requests.is_empty() {
            self.requests.remove(known);
        }
    }

    fn names(&self) -> String {
        self.requests.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(",")
    }
}
