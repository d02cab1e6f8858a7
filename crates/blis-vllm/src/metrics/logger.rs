//! The series, and what moves them.
//!
//! upstream: vllm `v1/metrics/loggers.py::PrometheusStatLogger`, `v1/spec_decode/metrics.py::SpecDecodingProm`

use super::buckets::Family;
use super::front_end::{Iteration, Reason};
use super::text::{Kind, Text, number};
use crate::config::Setting;
use crate::sched::speculation::DraftStats;

/// What a message says of its core's scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct SchedulerStats {
    /// Requests that run.
    pub running: usize,
    /// Requests that wait for room.
    pub waiting: usize,
    /// Requests that wait for something else.
    pub deferred: u32,
    /// Share of the KV cache in use.
    pub kv_cache_usage: f64,
    /// Tokens looked up in the prefix cache since the last message, of requests that had never run.
    pub queries: u64,
    /// Of these, found.
    pub hits: u64,
    /// What the step's drafts came to, where any were verified.
    pub drafts: Option<DraftStats>,
}

/// A histogram of the front end, numbered as in [`HISTOGRAMS`].
#[derive(Debug, Clone, Copy)]
enum Of {
    PromptTokens,
    GenerationTokens,
    IterationTokens,
    MaxNumGenerationTokens,
    ParamsN,
    ParamsMaxTokens,
    TimeToFirstToken,
    InterTokenLatency,
    TimePerOutputToken,
    WholeLatency,
    QueueTime,
    InferenceTime,
    PrefillTime,
    DecodeTime,
    NumPreemptions,
    PrefillKvComputed,
}

/// The histograms in upstream's order.
const HISTOGRAMS: [(Of, &str, Family); 16] = [
    (Of::PromptTokens, "request_prompt_tokens", Family::RequestTokens),
    (Of::GenerationTokens, "request_generation_tokens", Family::RequestTokens),
    (Of::IterationTokens, "iteration_tokens_total", Family::IterationTokens),
    (Of::MaxNumGenerationTokens, "request_max_num_generation_tokens", Family::RequestTokens),
    (Of::ParamsN, "request_params_n", Family::RequestParamsN),
    (Of::ParamsMaxTokens, "request_params_max_tokens", Family::RequestTokens),
    (Of::TimeToFirstToken, "time_to_first_token_seconds", Family::TimeToFirstToken),
    (Of::InterTokenLatency, "inter_token_latency_seconds", Family::InterTokenLatency),
    (Of::TimePerOutputToken, "request_time_per_output_token_seconds", Family::InterTokenLatency),
    (Of::WholeLatency, "e2e_request_latency_seconds", Family::RequestLatency),
    (Of::QueueTime, "request_queue_time_seconds", Family::RequestLatency),
    (Of::InferenceTime, "request_inference_time_seconds", Family::RequestLatency),
    (Of::PrefillTime, "request_prefill_time_seconds", Family::RequestLatency),
    (Of::DecodeTime, "request_decode_time_seconds", Family::RequestLatency),
    (Of::NumPreemptions, "request_num_preemptions", Family::RequestNumPreemptions),
    (Of::PrefillKvComputed, "request_prefill_kv_computed_tokens", Family::RequestTokens),
];

const _: () = {
    let mut index = 0;
    while index < HISTOGRAMS.len() {
        assert!(HISTOGRAMS[index].0 as usize == index, "a histogram is found by its number");
        index += 1;
    }
};

/// A distribution in buckets.
#[derive(Debug, Clone, PartialEq)]
struct Histogram {
    bounds: Vec<f64>,
    /// Observations at most each bound and above the one before; the last counts what is above all.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(bounds: Vec<f64>) -> Self {
        Self { counts: vec![0; bounds.len() + 1], bounds, sum: 0.0 }
    }

    fn observe(&mut self, value: f64) {
        self.sum += value;
        let bucket = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.counts[bucket] += 1;
    }
}

/// What is counted of one core.
#[derive(Debug, Clone)]
struct OfCore {
    /// Its number, as a label.
    label: String,
    running: usize,
    waiting: usize,
    deferred: u32,
    kv_cache_usage: f64,
    queries: u64,
    hits: u64,
    preemptions: u64,
    prompt_computed: u64,
    prompt_cached: u64,
    generated: u64,
    stopped: u64,
    at_length: u64,
    aborted: u64,
    failed: u64,
    /// Requests with drafts, their drafts, and those accepted, in all and by position.
    drafts: (u64, u64, u64, Vec<u64>),
    histograms: Vec<Histogram>,
}

impl OfCore {
    fn observe(&mut self, of: Of, value: f64) {
        self.histograms[of as usize].observe(value);
    }
}

/// The series of an endpoint.
#[derive(Debug)]
pub struct Logger {
    model: String,
    cores: Vec<OfCore>,
    /// Most drafts of a request in a step, where the engine drafts.
    drafts_max: Option<u8>,
    /// Most adapters in a step, where the engine serves any.
    max_loras: Option<u32>,
    /// When each set of adapters was last seen.
    adapters: Vec<(String, f64)>,
}

impl Logger {
    /// Series at zero.
    pub fn new(model: String, cores: u32, max_model_len: u32, drafts_max: Option<u8>, max_loras: Option<u32>) -> Self {
        let histograms: Vec<_> = HISTOGRAMS.iter().map(|(_, _, family)| Histogram::new(family.bounds(max_model_len))).collect();
        let core = |index: u32| OfCore {
            label: index.to_string(),
            running: 0,
            waiting: 0,
            deferred: 0,
            kv_cache_usage: 0.0,
            queries: 0,
            hits: 0,
            preemptions: 0,
            prompt_computed: 0,
            prompt_cached: 0,
            generated: 0,
            stopped: 0,
            at_length: 0,
            aborted: 0,
            failed: 0,
            drafts: (0, 0, 0, vec![0; usize::from(drafts_max.unwrap_or(0))]),
            histograms: histograms.clone(),
        };
        Self { model, cores: (0..cores).map(core).collect(), drafts_max, max_loras, adapters: Vec::new() }
    }

    pub(super) fn counts_adapters(&self) -> bool {
        self.max_loras.is_some()
    }

    pub(super) fn note_scheduler(&mut self, core: u32, stats: &SchedulerStats) {
        let core = &mut self.cores[core as usize];
        core.running = stats.running;
        core.waiting = stats.waiting;
        core.deferred = stats.deferred;
        core.kv_cache_usage = stats.kv_cache_usage;
        core.queries += stats.queries;
        core.hits += stats.hits;
        if let Some(drafts) = &stats.drafts {
            core.drafts.0 += u64::from(drafts.drafts);
            core.drafts.1 += u64::from(drafts.tokens);
            core.drafts.2 += u64::from(drafts.accepted);
            core.drafts.3.iter_mut().zip(&drafts.accepted_at).for_each(|(sum, accepted)| *sum += u64::from(*accepted));
        }
    }

    pub(super) fn note_adapters(&mut self, names: String, now: f64) {
        match self.adapters.iter_mut().find(|(known, _)| *known == names) {
            Some((_, seen)) => *seen = now,
            None => self.adapters.push((names, now)),
        }
    }

    pub(super) fn note_iteration(&mut self, core: u32, iteration: &Iteration) {
        let core = &mut self.cores[core as usize];
        core.preemptions += u64::from(iteration.preempted);
        core.prompt_computed += u64::from(iteration.prompt_computed);
        core.prompt_cached += u64::from(iteration.prompt_cached);
        core.generated += u64::from(iteration.generated);
        core.observe(Of::IterationTokens, f64::from(iteration.prompt_computed + iteration.generated));
        iteration.first_tokens.iter().for_each(|latency| core.observe(Of::TimeToFirstToken, *latency));
        iteration.between_tokens.iter().for_each(|latency| core.observe(Of::InterTokenLatency, *latency));
        for ended in &iteration.finished {
            *match ended.reason {
                Reason::Stop => &mut core.stopped,
                Reason::Length => &mut core.at_length,
                Reason::Abort => &mut core.aborted,
                Reason::Error => &mut core.failed,
            } += 1;
            let observed = [
                (Of::MaxNumGenerationTokens, f64::from(ended.generated)),
                (Of::ParamsN, 1.0),
                (Of::WholeLatency, ended.whole),
                (Of::QueueTime, ended.queued),
                (Of::PrefillTime, ended.prefill),
                (Of::InferenceTime, ended.inference),
                (Of::DecodeTime, ended.decode),
                (Of::NumPreemptions, f64::from(ended.preemptions)),
                (Of::PrefillKvComputed, f64::from(ended.prompt - ended.cached_prompt)),
                (Of::PromptTokens, f64::from(ended.prompt)),
                (Of::GenerationTokens, f64::from(ended.generated)),
                (Of::TimePerOutputToken, ended.per_output_token),
                (Of::ParamsMaxTokens, f64::from(ended.max_tokens)),
            ];
            for (of, value) in observed {
                core.observe(of, value);
            }
        }
    }

    /// What a scrape would read, line by line.
    pub(super) fn scrape(&self) -> Vec<String> {
        let mut text = Text::default();
        if self.drafts_max.is_some() {
            self.write_drafts(&mut text);
        }
        for name in ["estimated_flops_per_gpu", "estimated_read_bytes_per_gpu", "estimated_write_bytes_per_gpu"] {
            self.write(&mut text, name, Kind::Counter, &|_| 0.0);
        }
        self.write_scheduler(&mut text);
        self.write_counters(&mut text);
        self.write_histograms(&mut text);
        self.write_adapters(&mut text);
        text.lines
    }

    fn write_drafts(&self, text: &mut Text) {
        self.write(text, "spec_decode_num_drafts", Kind::Counter, &|core| core.drafts.0 as f64);
        self.write(text, "spec_decode_num_draft_tokens", Kind::Counter, &|core| core.drafts.1 as f64);
        self.write(text, "spec_decode_num_accepted_tokens", Kind::Counter, &|core| core.drafts.2 as f64);
        let name = text.begin("spec_decode_num_accepted_tokens_per_pos", Kind::Counter);
        for core in &self.cores {
            for (position, accepted) in core.drafts.3.iter().enumerate() {
                let labels = [("engine", core.label.as_str()), ("model_name", &self.model), ("position", &position.to_string())];
                text.line(&name, &labels, *accepted as f64);
            }
        }
    }

    fn write_scheduler(&self, text: &mut Text) {
        self.write(text, "num_requests_running", Kind::Gauge, &|core| core.running as f64);
        self.write(text, "num_requests_waiting", Kind::Gauge, &|core| (core.waiting + core.deferred as usize) as f64);
        let by_reason: [ByLabel<'_>; 2] = [("capacity", &|core| core.waiting as f64), ("deferred", &|core| f64::from(core.deferred))];
        self.write_by(text, "num_requests_waiting_by_reason", Kind::Gauge, "reason", &by_reason);
        let by_state: [ByLabel<'_>; 3] = [("awake", &|_| 1.0), ("weights_offloaded", &|_| 0.0), ("discard_all", &|_| 0.0)];
        self.write_by(text, "engine_sleep_state", Kind::Gauge, "sleep_state", &by_state);
        self.write(text, "kv_cache_usage_perc", Kind::Gauge, &|core| core.kv_cache_usage);
    }

    fn write_counters(&self, text: &mut Text) {
        self.write(text, "prefix_cache_queries", Kind::Counter, &|core| core.queries as f64);
        self.write(text, "prefix_cache_hits", Kind::Counter, &|core| core.hits as f64);
        for name in ["external_prefix_cache_queries", "external_prefix_cache_hits", "mm_cache_queries", "mm_cache_hits"] {
            self.write(text, name, Kind::Counter, &|_| 0.0);
        }
        self.write(text, "num_preemptions", Kind::Counter, &|core| core.preemptions as f64);
        self.write(text, "prompt_tokens", Kind::Counter, &|core| (core.prompt_computed + core.prompt_cached) as f64);
        let by_source: [ByLabel<'_>; 3] = [
            ("local_compute", &|core| core.prompt_computed as f64),
            ("local_cache_hit", &|core| core.prompt_cached as f64),
            ("external_kv_transfer", &|_| 0.0),
        ];
        self.write_by(text, "prompt_tokens_by_source", Kind::Counter, "source", &by_source);
        self.write(text, "prompt_tokens_cached", Kind::Counter, &|core| core.prompt_cached as f64);
        let none = |_: &OfCore| 0.0;
        let by_tier: [ByLabel<'_>; 5] =
            [("device", &|core| core.hits as f64), ("host", &none), ("p2p", &none), ("disk", &none), ("external_unspecified", &none)];
        self.write_by(text, "prompt_tokens_cached_by_source", Kind::Counter, "source", &by_tier);
        self.write(text, "generation_tokens", Kind::Counter, &|core| core.generated as f64);
        let by_reason: [ByLabel<'_>; 5] = [
            ("stop", &|core| core.stopped as f64),
            ("length", &|core| core.at_length as f64),
            ("abort", &|core| core.aborted as f64),
            ("error", &|core| core.failed as f64),
            ("repetition", &none),
        ];
        self.write_by(text, "request_success", Kind::Counter, "finished_reason", &by_reason);
        let name = text.begin("admission_rejections", Kind::Counter);
        for limit in [Setting::MaxNumQueuedReqs, Setting::MaxNumQueuedTokens] {
            text.line(&name, &[("model_name", &self.model), ("reason", limit.key())], 0.0);
        }
    }

    fn write_histograms(&self, text: &mut Text) {
        for (index, (_, name, _)) in HISTOGRAMS.iter().enumerate() {
            let name = text.begin_histogram(name);
            for core in &self.cores {
                let histogram = &core.histograms[index];
                let bounds = histogram.bounds.iter().copied().chain([f64::INFINITY]);
                let mut sum = 0;
                for (bound, count) in bounds.zip(&histogram.counts) {
                    sum += count;
                    let labels = [("engine", core.label.as_str()), ("le", &number(bound)), ("model_name", &self.model)];
                    text.line(&format!("{name}_bucket"), &labels, sum as f64);
                }
                let labels = [("engine", core.label.as_str()), ("model_name", self.model.as_str())];
                text.line(&format!("{name}_count"), &labels, sum as f64);
                text.line(&format!("{name}_sum"), &labels, histogram.sum);
            }
        }
    }

    fn write_adapters(&self, text: &mut Text) {
        let Some(most) = self.max_loras else { return };
        let name = text.begin("lora_requests_info", Kind::Gauge);
        for (names, seen) in &self.adapters {
            let most = most.to_string();
            let labels = [("max_lora", most.as_str()), ("running_lora_adapters", names), ("waiting_lora_adapters", names)];
            text.line(&name, &labels, *seen);
        }
    }

    /// A series with a value for each core.
    fn write(&self, text: &mut Text, name: &str, kind: Kind, of: &dyn Fn(&OfCore) -> f64) {
        let name = text.begin(name, kind);
        for core in &self.cores {
            text.line(&name, &[("engine", &core.label), ("model_name", &self.model)], of(core));
        }
    }

    /// A series with a value for each core and value of a further label.
    fn write_by(&self, text: &mut Text, name: &str, kind: Kind, by: &str, values: &[ByLabel<'_>]) {
        let name = text.begin(name, kind);
        for (value, of) in values {
            for core in &self.cores {
                let mut labels = [("engine", core.label.as_str()), ("model_name", &self.model), (by, value)];
                labels.sort_unstable();
                text.line(&name, &labels, of(core));
            }
        }
    }
}

/// A label's value, and what is counted under it.
type ByLabel<'a> = (&'a str, &'a dyn Fn(&OfCore) -> f64);
