//! A batch engine that takes a fixed time for every step, sources with listed arrivals, and a collector of records.

use std::sync::Arc;

use blis_contracts::conformance::FixedPrices;
use blis_contracts::engine::{Effects, Engine, EngineCounters, EngineSnapshot, FinishReason, Finished, Input, StepTicket, TokensOut};
use blis_contracts::environment::Environment;
use blis_contracts::plan::{FrontEndPlan, GraphPolicy, HostPlan, Layout, PoolPlan};
use blis_contracts::provenance::ResolvedSetting;
use blis_contracts::record::RequestRecord;
use blis_contracts::request::{Request, RequestSlot, Segment, TokenSource};
use blis_contracts::result::RunResult;
use blis_contracts::scenario::{DEFAULT_CLASS, Scenario};
use blis_contracts::step::{StepEstimate, StepShape};
use blis_contracts::strict::{Document, LineEndings};
use blis_contracts::units::{Blocks, SimDuration, SimTime};
use blis_sim::{Frame, FrontEndCosts, Observer, Outcome, Prepared, Progress, Resources, Simulation, SimulationError, World};
use blis_workload::source::{Draft, Origin, Source, request_id};

/// Runs every waiting request at once; each step gives each one token.
#[derive(Debug)]
pub(crate) struct BatchEngine {
    plan: PoolPlan,
    step_time: SimDuration,
    waiting: Vec<Request>,
    running: Vec<(Request, u32)>,
    /// Requests to give up when a step ends.
    aborts: Vec<RequestSlot>,
    step_end: Option<SimTime>,
    counters: EngineCounters,
    /// Prompts longer than this are refused.
    longest_prompt: u64,
    /// Never gives a token: what the watchdog is for.
    pub(crate) stuck: bool,
}

impl BatchEngine {
    pub(crate) fn new(step_us: u64, stream_interval: u32) -> Self {
        Self {
            plan: plan(stream_interval),
            step_time: SimDuration::from_micros(step_us),
            waiting: Vec::new(),
            running: Vec::new(),
            aborts: Vec::new(),
            step_end: None,
            counters: EngineCounters::default(),
            longest_prompt: 1000,
            stuck: false,
        }
    }

    fn finish_step(&mut self, effects: &mut Effects) {
        self.step_end = None;
        if self.stuck {
            return;
        }
        for (request, done) in &mut self.running {
            *done += 1;
            effects.tokens.push(TokensOut { slot: request.slot, count: 1 });
            if *done == request.output_length_for_stop_check() {
                effects.finished.push(Finished { slot: request.slot, reason: FinishReason::Stop, cached_prompt_tokens: 0 });
            }
        }
        self.running.retain(|(request, done)| *done < request.output_length_for_stop_check());
    }

    fn start_step(&mut self, now: SimTime, effects: &mut Effects) {
        for request in self.waiting.drain(..) {
            if request.prompt_tokens() > self.longest_prompt {
                effects.refused.push((request.slot, "too long".to_owned()));
                continue;
            }
            effects.admitted.push(request.slot);
            self.running.push((request, 0));
        }
        if self.running.is_empty() {
            return;
        }
        let end = now + self.step_time;
        let requests = u32::try_from(self.running.len()).expect("a handful of requests");
        effects.started.push(StepTicket {
            step: self.counters.steps,
            start: now,
            end,
            requests,
            tokens: requests,
            prefill_tokens: 0,
            stream: 0,
            readers: 1,
        });
        self.counters.steps += 1;
        self.step_end = Some(end);
    }
}

impl Engine for BatchEngine {
    fn plan(&self) -> &PoolPlan {
        &self.plan
    }

    fn settings(&self) -> &[ResolvedSetting] {
        &[]
    }

    fn deliver(&mut self, _now: SimTime, input: Input) {
        match input {
            Input::Request(request) => self.waiting.push(request),
            Input::Abort(slot) => self.aborts.push(slot),
        }
    }

    fn advance(&mut self, now: SimTime, _environment: &mut dyn Environment, effects: &mut Effects) {
        if self.step_end == Some(now) {
            self.finish_step(effects);
        }
        if self.step_end.is_none() {
            for slot in self.aborts.drain(..) {
                let live = self.running.len() + self.waiting.len();
                self.running.retain(|(request, _)| request.slot != slot);
                self.waiting.retain(|request| request.slot != slot);
                if self.running.len() + self.waiting.len() < live {
                    effects.finished.push(Finished { slot, reason: FinishReason::Abort, cached_prompt_tokens: 0 });
                }
            }
            self.start_step(now, effects);
        }
        effects.wake_at = self.step_end;
    }

    fn snapshot(&self) -> EngineSnapshot {
        EngineSnapshot { used_blocks: Blocks::new(self.running.len() as u64), usable_blocks: Blocks::new(100), ..EngineSnapshot::default() }
    }

    fn counters(&self, _until: SimTime) -> EngineCounters {
        self.counters
    }
}

/// A world that asks nothing for a step: the engine here states its own times.
const FREE: FixedPrices =
    FixedPrices { step: StepEstimate { before_ns: 0.0, launch_ns: 0.0, device_ns: 0.0, after_ns: 0.0 }, per_token_ns: 0.0 };

/// Sends each listed (time, prompt, output) in turn; a closed one keeps a number of requests in flight and ignores the times.
#[derive(Debug)]
pub(crate) struct ListedSource {
    client: u32,
    requests: Vec<(u64, u32, u32)>,
    sent: usize,
    free: Option<usize>,
    now: SimTime,
    timeout: Option<SimDuration>,
}

impl ListedSource {
    pub(crate) fn open(client: u32, requests: &[(u64, u32, u32)]) -> Box<dyn Source> {
        Box::new(Self { client, requests: requests.to_vec(), sent: 0, free: None, now: SimTime::ZERO, timeout: None })
    }

    /// An open one whose client waits no longer than it says.
    pub(crate) fn impatient(timeout_us: u64, requests: &[(u64, u32, u32)]) -> Box<dyn Source> {
        let timeout = Some(SimDuration::from_micros(timeout_us));
        Box::new(Self { client: 0, requests: requests.to_vec(), sent: 0, free: None, now: SimTime::ZERO, timeout })
    }

    pub(crate) fn closed(client: u32, width: usize, requests: &[(u32, u32)]) -> Box<dyn Source> {
        let requests = requests.iter().map(|(prompt, output)| (0, *prompt, *output)).collect();
        Box::new(Self { client, requests, sent: 0, free: Some(width), now: SimTime::ZERO, timeout: None })
    }
}

impl Source for ListedSource {
    fn name(&self) -> &'static str {
        "listed"
    }

    fn class(&self) -> &str {
        DEFAULT_CLASS
    }

    fn next_send(&self) -> Option<SimTime> {
        let (time, ..) = self.requests.get(self.sent)?;
        match self.free {
            None => Some(SimTime::from_micros(*time)),
            Some(0) => None,
            Some(_) => Some(self.now),
        }
    }

    fn send(&mut self, _now: SimTime) -> Draft {
        let (_, prompt, output_length) = self.requests[self.sent];
        let id = request_id(self.client, self.sent as u64);
        self.sent += 1;
        self.free = self.free.map(|free| free - 1);
        let prompt: Arc<[Segment]> = Arc::new([Segment { source: TokenSource::Unique(id.0), length: prompt }]);
        Draft { id, prompt, output_length, max_tokens: None, priority: 0, warm_up: false, timeout: self.timeout, origin: Origin::default() }
    }

    fn ended(&mut self, now: SimTime, _record: &RequestRecord) {
        self.now = now;
        self.free = self.free.map(|free| free + 1);
    }

    fn sent(&self) -> u64 {
        self.sent as u64
    }

    fn unsent(&self) -> Option<u64> {
        Some((self.requests.len() - self.sent) as u64)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Collector(pub(crate) Vec<RequestRecord>);

impl Observer for Collector {
    fn sent(&mut self, _at: SimTime, _draft: &Draft) {}

    fn record(&mut self, record: &RequestRecord) {
        self.0.push(record.clone());
    }

    fn stepped(&mut self, _step: &StepTicket, _state: &EngineSnapshot) {}

    fn progress(&mut self, _progress: Progress) {}
}

/// One accelerator without a price.
pub(crate) const ONE_GPU: Resources = Resources { accelerators: 1, usable_blocks: 100, usd_per_gpu_hour: None };

pub(crate) const WHOLE: Frame = Frame { requests: None, horizon: None, discard_first: 0 };

pub(crate) fn run(
    sources: Vec<Box<dyn Source>>,
    engine: BatchEngine,
    costs: FrontEndCosts,
    frame: Frame,
) -> Result<(Outcome, Vec<RequestRecord>), SimulationError> {
    let mut collector = Collector::default();
    let outcome = Simulation::new(sources, Box::new(engine), costs, frame, &mut FREE.clone(), &mut collector).run()?;
    Ok((outcome, collector.0))
}

fn plan(stream_interval: u32) -> PoolPlan {
    PoolPlan {
        hardware: "none".to_owned(),
        fabric: String::new(),
        model: "none".to_owned(),
        layout: Layout::SINGLE,
        layers: Vec::new(),
        dense_prompts: None,
        kv: Vec::new(),
        kv_budget: Vec::new(),
        kv_blocks: Blocks::ZERO,
        graphs: GraphPolicy::default(),
        host: HostPlan::default(),
        front_end: FrontEndPlan { stream_interval, processes: 1, tokenises: true, detokenises: true },
        weights: Vec::new(),
        buffers: Vec::new(),
        profiling: StepShape::default(),
        in_flight: 1,
    }
}

/// The Result of a scenario by its text, on the released data.
pub(crate) fn run_text(text: &str) -> RunResult {
    let document = Document::parse("scenario.yaml", text.as_bytes(), LineEndings::LfOrCrLf).expect("a document");
    let scenario = Scenario::load(&document).expect("a valid scenario");
    let origin = blis_sim::Origin { scenario_sha256: String::new(), edits: Vec::new(), trace_sha256: None };
    blis_sim::run(&scenario, &origin, &World::released(), &mut Collector::default()).expect("the scenario runs").result
}

/// A scenario by its text, ready to start on the released data.
pub(crate) fn prepare_text(text: &str) -> Prepared {
    let document = Document::parse("scenario.yaml", text.as_bytes(), LineEndings::LfOrCrLf).expect("a document");
    blis_sim::prepare(&Scenario::load(&document).expect("a valid scenario"), &World::released()).expect("the engine starts")
}
