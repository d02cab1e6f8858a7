//! The host's timeline, computed by hand to the microsecond, and the wake-up contract.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use blis_contracts::chip::Chip;
use blis_contracts::engine::FinishReason;
use blis_contracts::environment::{EnvironmentError, MemoryBreakdown};
use blis_contracts::model::ModelGraph;
use blis_contracts::plan::{FrontEndPlan, GraphPolicy, HostPlan, Layout};
use blis_contracts::request::{Request, RequestId, RequestSlot, Segment, TokenSource};
use blis_contracts::step::StepEstimate;

use super::*;
use crate::config::CudagraphMode;
use crate::kv::group::{Attention, Retention};
use crate::sched::queue::Policy;

/// Microseconds of host and device; a step with a prompt in it takes twice as long, and each later stage a little longer.
#[derive(Clone, Copy)]
struct Costs {
    before: u32,
    launch: u32,
    device: u32,
    after: u32,
}

const DEVICE_BOUND: Costs = Costs { before: 100, launch: 50, device: 1000, after: 30 };
const HOST_BOUND: Costs = Costs { before: 400, launch: 400, device: 100, after: 200 };

impl Environment for Costs {
    fn graph(&self, model: &str) -> Result<&ModelGraph, EnvironmentError> {
        Err(EnvironmentError::UnknownModel { name: model.to_owned(), nearest: Vec::new() })
    }

    fn chip(&self, name: &str) -> Result<&Chip, EnvironmentError> {
        Err(EnvironmentError::UnknownChip { name: name.to_owned(), nearest: Vec::new() })
    }

    fn memory(&self, _: &PoolPlan) -> Result<MemoryBreakdown, EnvironmentError> {
        Ok(MemoryBreakdown::default())
    }

    fn compile(&mut self, _: &PoolPlan) -> Result<PlanId, EnvironmentError> {
        Ok(PlanId(0))
    }

    fn price(&mut self, _: PlanId, step: &StepShape) -> StepEstimate {
        let nanoseconds = |micros: u32| f64::from(micros) * 1e3;
        let device = if step.ranks[0].prefill.is_empty() { self.device } else { 2 * self.device } + 100 * step.stage;
        StepEstimate {
            before_ns: nanoseconds(self.before),
            launch_ns: nanoseconds(self.launch),
            device_ns: nanoseconds(device),
            after_ns: nanoseconds(self.after),
        }
    }
}

fn plan() -> PoolPlan {
    PoolPlan {
        hardware: String::new(),
        fabric: String::new(),
        model: String::new(),
        layout: Layout::SINGLE,
        layers: Vec::new(),
        dense_prompts: None,
        kv: Vec::new(),
        kv_budget: Vec::new(),
        kv_blocks: Blocks::new(64),
        graphs: GraphPolicy::default(),
        host: HostPlan::default(),
        front_end: FrontEndPlan { stream_interval: 1, processes: 1, tokenises: true, detokenises: true },
        weights: Vec::new(),
        buffers: Vec::new(),
        profiling: StepShape::default(),
        in_flight: 2,
    }
}

pub(super) fn engine(max_concurrent_batches: u32) -> VllmEngine {
    engine_of_stages(1, max_concurrent_batches)
}

fn engine_of_stages(stages: u32, max_concurrent_batches: u32) -> VllmEngine {
    let scheduler = SchedulerConfig {
        max_model_len: 512,
        max_num_batched_tokens: 128,
        max_num_scheduled_tokens: 128,
        max_num_active_seqs: 128,
        enable_chunked_prefill: true,
        long_prefill_token_threshold: 0,
        long_prefill_token_threshold_adaptive: false,
        scheduler_reserve_full_isl: true,
        policy: Policy::Fcfs,
        async_scheduling: max_concurrent_batches > 1,
        max_concurrent_batches,
        pipeline_stages: stages,
    };
    let kv = KvConfig {
        groups: vec![Attention::Full.in_blocks(16)],
        block_size: 16,
        num_blocks: 4096,
        enable_prefix_caching: true,
        retention: Retention::Replay,
        watermark_blocks: 0,
        max_model_len: 512,
        max_in_flight_tokens: 256,
    };
    let graphs = CudaGraphs::new(CudagraphMode::FullAndPiecewise, &[1, 2, 4, 8, 16, 32, 64], 128);
    VllmEngine::new(EngineParts {
        plan: PoolPlan { layout: Layout { pipeline: stages, ..Layout::SINGLE }, ..plan() },
        plan_id: PlanId(0),
        settings: Vec::new(),
        scheduler,
        kv,
        graphs,
        cores: CoreLayout::SINGLE,
    })
}

/// A request of 32 prompt tokens: arrival, length of its output, limit.
fn request(slot: u32, arrival: u64, output_length: u32, max_tokens: u32) -> (u64, Input) {
    let prompt: Arc<[Segment]> = Arc::from([Segment { source: TokenSource::Unique(u64::from(slot)), length: 32 }]);
    let time = SimTime::from_micros(arrival);
    let request = Request::new(RequestId(u64::from(slot)), RequestSlot(slot), time, prompt, output_length);
    (arrival, Input::Request(request.with_max_tokens(Some(max_tokens))))
}

fn abort(slot: u32, at: u64) -> (u64, Input) {
    (at, Input::Abort(RequestSlot(slot)))
}

/// Runs the inputs and writes down every launched step, token and end.
fn timeline(mut engine: VllmEngine, costs: Costs, inputs: Vec<(u64, Input)>) -> String {
    timeline_of(&mut engine, costs, inputs)
}

fn timeline_of(engine: &mut VllmEngine, mut costs: Costs, inputs: Vec<(u64, Input)>) -> String {
    let mut text = String::new();
    let mut inputs: VecDeque<_> = inputs.into_iter().map(|(time, input)| (SimTime::from_micros(time), input)).collect();
    let mut effects = Effects::default();
    let mut wake = None;
    while let Some(now) = [inputs.front().map(|(time, _)| *time), wake].into_iter().flatten().min() {
        while inputs.front().is_some_and(|(time, _)| *time == now) {
            engine.deliver(now, inputs.pop_front().unwrap().1);
        }
        effects.clear();
        engine.advance(now, &mut costs, &mut effects);
        engine.check_invariants();
        assert!(effects.wake_at.is_none_or(|wake| wake > now), "an engine that has advanced is done with that instant");
        wake = effects.wake_at;
        let us = now.as_micros();
        for token in &effects.tokens {
            writeln!(text, "{us}: token of {}", token.slot.0).unwrap();
        }
        for end in &effects.finished {
            writeln!(text, "{us}: {:?} of {}", end.reason, end.slot.0).unwrap();
        }
        for step in &effects.started {
            let (start, end) = (step.start.as_micros(), step.end.as_micros());
            writeln!(text, "{us}: step {} of {} tokens, {start}-{end}", step.step, step.tokens).unwrap();
        }
    }
    text
}

fn check(found: &str, expected: &str) {
    let lines: Vec<_> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(found.lines().collect::<Vec<_>>(), lines, "found:\n{found}");
}

#[test]
fn a_lone_request_overlaps_each_step_with_the_scheduling_of_the_next() {
    check(
        &timeline(engine(2), DEVICE_BOUND, vec![request(0, 0, 3, 3)]),
        "0: step 0 of 32 tokens, 150-2150
         150: step 1 of 1 tokens, 2150-3150
         2180: token of 0
         2180: step 2 of 1 tokens, 3150-4150
         3180: token of 0
         4180: token of 0
         4180: Length of 0",
    );
}

#[test]
fn a_slow_host_sets_the_pace_with_all_its_work() {
    check(
        &timeline(engine(2), HOST_BOUND, vec![request(0, 0, 4, 4)]),
        "0: step 0 of 32 tokens, 800-1000
         800: step 1 of 1 tokens, 1600-1700
         1800: token of 0
         1800: step 2 of 1 tokens, 2600-2700
         2800: token of 0
         2800: step 3 of 1 tokens, 3600-3700
         3800: token of 0
         4000: token of 0
         4000: Length of 0",
    );
}

#[test]
fn a_step_whose_chunks_are_found_from_lengths_is_launched_once_the_one_before_is_done() {
    let mut engine = engine(2);
    engine.reads_back = true;
    check(
        &timeline(engine, DEVICE_BOUND, vec![request(0, 0, 3, 3)]),
        "0: step 0 of 32 tokens, 150-2150
         150: step 1 of 1 tokens, 2200-3200
         2230: token of 0
         2230: step 2 of 1 tokens, 3250-4250
         3280: token of 0
         4280: token of 0
         4280: Length of 0",
    );
}

#[test]
fn a_decode_waits_for_the_token_that_the_last_stage_samples_and_a_prompt_does_not() {
    let mut engine = engine_of_stages(2, 3);
    check(
        &timeline_of(&mut engine, DEVICE_BOUND, vec![request(0, 0, 3, 3), request(1, 2500, 1, 1)]),
        "0: step 0 of 32 tokens, 150-4250
         1150: step 1 of 1 tokens, 4250-6350
         4280: token of 0
         4280: step 2 of 32 tokens, 5250-9350
         4430: step 3 of 1 tokens, 7250-10450
         6380: token of 0
         9380: token of 1
         9380: Length of 1
         10480: token of 0
         10480: Length of 0",
    );
    let busy = |until| engine.counters(SimTime::from_micros(until)).busy.as_micros();
    assert_eq!(busy(10_480), 6_200, "half of what both stages work");
    assert_eq!(busy(10_250), 6_100, "the last stage has 200 us to go");
}

#[test]
fn a_busy_device_never_waits_for_the_host() {
    check(
        &timeline(engine(2), DEVICE_BOUND, vec![request(0, 0, 4, 4), request(1, 0, 4, 4)]),
        "0: step 0 of 64 tokens, 150-2150
         150: step 1 of 2 tokens, 2150-3150
         2180: token of 0
         2180: token of 1
         2180: step 2 of 2 tokens, 3150-4150
         3180: token of 0
         3180: token of 1
         3180: step 3 of 2 tokens, 4150-5150
         4180: token of 0
         4180: token of 1
         5180: token of 0
         5180: token of 1
         5180: Length of 0
         5180: Length of 1",
    );
}

#[test]
fn a_request_that_arrives_during_a_step_joins_the_one_after_the_next() {
    check(
        &timeline(engine(2), DEVICE_BOUND, vec![request(0, 0, 5, 5), request(1, 2500, 1, 1)]),
        "0: step 0 of 32 tokens, 150-2150
         150: step 1 of 1 tokens, 2150-3150
         2180: token of 0
         2180: step 2 of 1 tokens, 3150-4150
         3180: token of 0
         3180: step 3 of 33 tokens, 4150-6150
         4180: token of 0
         4180: step 4 of 1 tokens, 6150-7150
         6180: token of 0
         6180: token of 1
         6180: Length of 1
         7180: token of 0
         7180: Length of 0",
    );
}

#[test]
fn in_stages_a_prompt_waits_for_the_first_of_them_and_a_decode_for_the_last() {
    let inputs = || vec![request(0, 0, 2, 2), request(1, 1000, 1, 1)];
    // Three stages: the second prompt starts when the first stage is done with the first one, and the decode when the third is.
    check(
        &timeline(engine_of_stages(3, 4), DEVICE_BOUND, inputs()),
        "0: step 0 of 32 tokens, 150-6450
         1150: step 1 of 32 tokens, 2150-8650
         1300: step 2 of 1 tokens, 6450-9850
         6480: token of 0
         8680: token of 1
         8680: Length of 1
         9880: token of 0
         9880: Length of 0",
    );
    // One accelerator with about as much to do: the second prompt waits for all of the first one and of a decode.
    check(
        &timeline(engine(2), Costs { device: 3000, ..DEVICE_BOUND }, inputs()),
        "0: step 0 of 32 tokens, 150-6150
         150: step 1 of 1 tokens, 6150-9150
         6180: token of 0
         6180: step 2 of 32 tokens, 9150-15150
         9180: token of 0
         9180: Length of 0
         15180: token of 1
         15180: Length of 1",
    );
}

#[test]
fn a_stop_costs_the_step_already_launched_and_holds_up_the_next_request() {
    check(
        &timeline(engine(2), DEVICE_BOUND, vec![request(0, 0, 2, 9), request(1, 3200, 1, 1)]),
        "0: step 0 of 32 tokens, 150-2150
         150: step 1 of 1 tokens, 2150-3150
         2180: token of 0
         2180: step 2 of 1 tokens, 3150-4150
         3180: token of 0
         3180: Stop of 0
         4180: step 3 of 32 tokens, 4330-6330
         6360: token of 1
         6360: Length of 1",
    );
}

#[test]
fn without_asynchronous_scheduling_the_device_waits_for_the_host() {
    check(
        &timeline(engine(1), DEVICE_BOUND, vec![request(0, 0, 3, 3)]),
        "0: step 0 of 32 tokens, 150-2150
         2180: token of 0
         2180: step 1 of 1 tokens, 2330-3330
         3360: token of 0
         3360: step 2 of 1 tokens, 3510-4510
         4540: token of 0
         4540: Length of 0",
    );
}

#[test]
fn a_request_that_arrives_while_the_loop_sleeps_waits_for_it() {
    check(
        &timeline(engine(2), DEVICE_BOUND, vec![request(0, 0, 1, 1), request(1, 2200, 1, 1)]),
        "0: step 0 of 32 tokens, 150-2150
         2180: token of 0
         2180: Length of 0
         3180: step 1 of 32 tokens, 3330-5330
         5360: token of 1
         5360: Length of 1",
    );
}

#[test]
fn an_abort_during_the_wait_takes_effect_before_the_output_is_processed() {
    check(
        &timeline(engine(2), DEVICE_BOUND, vec![request(0, 0, 9, 9), request(1, 0, 9, 9), abort(1, 2100), abort(0, 2160)]),
        "0: step 0 of 64 tokens, 150-2150
         150: step 1 of 2 tokens, 2150-3150
         2180: token of 0
         2180: Abort of 1
         2180: Abort of 0",
    );
}

#[test]
fn a_refused_request_is_answered_and_the_rest_go_on() {
    let mut costs = DEVICE_BOUND;
    let mut engine = engine(2);
    let long = Arc::from([Segment { source: TokenSource::Shared(0), length: 512 }]);
    engine.deliver(SimTime::ZERO, Input::Request(Request::new(RequestId(0), RequestSlot(0), SimTime::ZERO, long, 4)));
    engine.deliver(SimTime::ZERO, request(1, 0, 4, 4).1);
    let mut effects = Effects::default();
    engine.advance(SimTime::ZERO, &mut costs, &mut effects);
    assert_eq!(effects.refused.len(), 1);
    assert!(effects.refused[0].1.contains("maximum model length of 512"), "{}", effects.refused[0].1);
    assert_eq!(effects.admitted, [RequestSlot(1)]);
}

#[test]
fn what_a_request_waits_behind_is_counted_in_full() {
    let mut costs = DEVICE_BOUND;
    let mut engine = engine(2);
    let mut effects = Effects::default();
    let mut finished = Vec::new();
    for slot in 0..9 {
        engine.deliver(SimTime::ZERO, request(slot, 0, 1, 1).1);
    }
    let mut now = SimTime::ZERO;
    let mut in_steps = Vec::new();
    loop {
        effects.clear();
        engine.advance(now, &mut costs, &mut effects);
        in_steps.extend(effects.started.iter().map(|step| step.requests));
        finished.extend(effects.finished.iter().map(|end| (end.slot.0, end.reason)));
        match effects.wake_at {
            Some(wake) => now = wake,
            None => break,
        }
    }
    // Four prompts of 32 tokens fill a step: the rest wait from 0 to 150, and the ninth on to 2180.
    assert_eq!(engine.counters(now).waits.token_budget.as_micros(), 2180);
    assert_eq!((finished.len(), in_steps), (9, vec![4, 4, 1]));
    assert!(finished.iter().all(|(_, reason)| *reason == FinishReason::Length));
}

/// Delivers requests of 32 prompt tokens together and answers which are turned away, then which later ones are.
fn turned_away(limits: QueueLimits, first: u32, then_at: u64) -> (usize, usize) {
    let mut costs = DEVICE_BOUND;
    let mut engine = engine(2).with_queue_limits(limits);
    let mut effects = Effects::default();
    (0..first).for_each(|slot| engine.deliver(SimTime::ZERO, request(slot, 0, 1, 1).1));
    engine.advance(SimTime::ZERO, &mut costs, &mut effects);
    let at_once = effects.refused.len();
    while let Some(wake) = effects.wake_at.filter(|wake| wake.as_micros() <= then_at) {
        effects.clear();
        engine.advance(wake, &mut costs, &mut effects);
    }
    let then = SimTime::from_micros(then_at);
    engine.deliver(then, request(first, then_at, 1, 1).1);
    effects.clear();
    engine.advance(then, &mut costs, &mut effects);
    engine.check_invariants();
    (at_once, effects.refused.len())
}

#[test]
fn requests_beyond_the_limit_on_requests_are_turned_away_until_one_ends() {
    let limits = QueueLimits { requests: Some(2), tokens: None };
    assert_eq!(turned_away(limits, 2, 2_000), (0, 1), "both still run");
    assert_eq!(turned_away(limits, 3, 2_500), (1, 0), "both have ended at 2180");
}

#[test]
fn requests_beyond_the_limit_on_prompt_tokens_are_turned_away_until_a_first_token() {
    let limits = QueueLimits { requests: None, tokens: Some(64) };
    assert_eq!(turned_away(limits, 2, 2_000), (0, 1), "64 prompt tokens lie ahead");
    assert_eq!(turned_away(limits, 3, 2_500), (1, 0), "all prompts are done at 2180");
    assert_eq!(turned_away(QueueLimits { requests: None, tokens: Some(65) }, 3, 2_000), (0, 1), "a limit is met after it is passed");
}
