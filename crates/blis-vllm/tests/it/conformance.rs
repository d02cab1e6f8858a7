//! The engine under the conformance suite: random requests on small pools, synchronous and asynchronous, both policies, one core or
//! several, in lockstep or not.

use std::sync::Arc;

use blis_contracts::conformance::{FixedPrices, drive};
use blis_contracts::environment::PlanId;
use blis_contracts::plan::{FrontEndPlan, GraphPolicy, HostPlan, Layout, PoolPlan};
use blis_contracts::request::{Request, RequestId, RequestSlot, Segment, TokenSource};
use blis_contracts::step::{StepEstimate, StepShape};
use blis_contracts::units::{Blocks, SimTime};
use blis_vllm::config::CudagraphMode;
use blis_vllm::cudagraph::CudaGraphs;
use blis_vllm::engine::{CoreLayout, EngineParts, Lockstep, VllmEngine};
use blis_vllm::kv::group::{Attention, Retention};
use blis_vllm::kv::manager::KvConfig;
use blis_vllm::sched::queue::Policy;
use blis_vllm::sched::scheduler::SchedulerConfig;
use proptest::prelude::*;

const MAX_MODEL_LEN: u32 = 256;
const BLOCK: u32 = 16;
/// Blocks of one request of the greatest length, and the placeholder.
const SMALLEST_POOL: u32 = MAX_MODEL_LEN / BLOCK + 1;

/// What varies of an engine.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent switch of the scheduler")]
struct Setting {
    asynchronous: bool,
    priority: bool,
    hybrid: bool,
    caching: bool,
    chunked: bool,
    spare_blocks: u32,
    seqs: u32,
    budget: u32,
    cores: CoreLayout,
}

/// What varies of a request: gap to the one before in microseconds, shared and own prompt tokens, output, priority.
type Asked = (u64, u32, u32, u32, i32);

fn settings() -> impl Strategy<Value = Setting> {
    (any::<[bool; 5]>(), 0u32..40, 1u32..12, 0u32..120, cores()).prop_map(
        |([asynchronous, priority, hybrid, caching, chunked], spare_blocks, seqs, extra, cores)| {
            // Without chunks a prompt must fit one step.
            let budget = if chunked { 16 + extra } else { MAX_MODEL_LEN + extra };
            Setting { asynchronous, priority, hybrid, caching, chunked, spare_blocks, seqs, budget: budget.max(seqs), cores }
        },
    )
}

fn cores() -> impl Strategy<Value = CoreLayout> {
    (1u32..4, 1u32..4, 1u64..20, 1u64..4, any::<bool>()).prop_map(
        |(count, front_ends, sync_interval, prefill_schedule_interval, lockstep)| {
            let lockstep = (lockstep && count > 1).then_some(Lockstep { sync_interval, prefill_schedule_interval });
            CoreLayout { count, front_ends, lockstep }
        },
    )
}

fn engine(setting: &Setting) -> VllmEngine {
    let depth = if setting.asynchronous { 2 } else { 1 };
    let groups = if setting.hybrid { vec![Attention::Full, Attention::SlidingWindow { window: 48 }] } else { vec![Attention::Full] };
    let num_blocks = SMALLEST_POOL * u32::try_from(groups.len()).expect("two groups at most") + setting.spare_blocks;
    VllmEngine::new(EngineParts {
        plan: plan(depth, num_blocks),
        plan_id: PlanId(0),
        settings: Vec::new(),
        scheduler: SchedulerConfig {
            max_model_len: MAX_MODEL_LEN,
            max_num_batched_tokens: setting.budget,
            max_num_scheduled_tokens: setting.budget,
            max_num_active_seqs: setting.seqs,
            enable_chunked_prefill: setting.chunked,
            long_prefill_token_threshold: 0,
            long_prefill_token_threshold_adaptive: false,
            scheduler_reserve_full_isl: true,
            policy: if setting.priority { Policy::Priority } else { Policy::Fcfs },
            async_scheduling: setting.asynchronous,
            max_concurrent_batches: depth,
            pipeline_stages: 1,
        },
        kv: KvConfig {
            groups: groups.into_iter().map(|attention| attention.in_blocks(BLOCK)).collect(),
            block_size: BLOCK,
            num_blocks,
            enable_prefix_caching: setting.caching,
            retention: Retention::Replay,
            watermark_blocks: 0,
            max_model_len: MAX_MODEL_LEN,
            max_in_flight_tokens: setting.budget * depth,
        },
        graphs: CudaGraphs::new(CudagraphMode::FullAndPiecewise, &[1, 2, 4, 8], setting.seqs),
        cores: setting.cores,
    })
}

pub(crate) fn plan(in_flight: u32, blocks: u32) -> PoolPlan {
    PoolPlan {
        hardware: String::new(),
        fabric: String::new(),
        model: String::new(),
        layout: Layout::SINGLE,
        layers: Vec::new(),
        dense_prompts: None,
        kv: Vec::new(),
        kv_budget: Vec::new(),
        kv_blocks: Blocks::new(u64::from(blocks)),
        graphs: GraphPolicy::default(),
        host: HostPlan::default(),
        front_end: FrontEndPlan { stream_interval: 1, processes: 1, tokenises: true, detokenises: true },
        weights: Vec::new(),
        buffers: Vec::new(),
        profiling: StepShape::default(),
        in_flight,
    }
}

fn requests(asked: &[Asked]) -> Vec<(Request, u32)> {
    let mut arrival = 0;
    let mut requests = Vec::new();
    for (slot, &(gap, shared, own, output, priority)) in (0u32..).zip(asked) {
        arrival += gap;
        let pieces = [(TokenSource::Shared(0), shared), (TokenSource::Unique(u64::from(slot)), own)];
        let prompt: Arc<[Segment]> =
            pieces.into_iter().filter(|(_, length)| *length > 0).map(|(source, length)| Segment { source, length }).collect();
        let id = RequestId(u64::from(slot));
        let request = Request::new(id, RequestSlot(slot), SimTime::from_micros(arrival), prompt, output).with_priority(priority);
        requests.push((request, output));
    }
    requests
}

proptest! {
    #[test]
    fn every_request_ends_and_every_promise_of_the_engine_holds(
        setting in settings(),
        asked in prop::collection::vec((0u64..3_000, 0u32..90, 1u32..120, 1u32..60, 0i32..3), 1..24),
    ) {
        let mut engine = engine(&setting);
        let step = StepEstimate { before_ns: 40e3, launch_ns: 20e3, device_ns: 300e3, after_ns: 30e3 };
        let transcript = drive(&mut engine, &mut FixedPrices { step, per_token_ns: 900.0 }, &requests(&asked));
        engine.check_invariants();
        prop_assert!(transcript.refused.is_empty());
        let tokens: u64 = asked.iter().map(|(_, shared, own, output, _)| u64::from(*output.min(&(MAX_MODEL_LEN - shared - own)))).sum();
        prop_assert_eq!(transcript.tokens.len() as u64, tokens);
    }

    #[test]
    fn a_prompt_that_leaves_no_room_is_refused_and_the_others_go_on(setting in settings(), over in 0u32..200) {
        let mut engine = engine(&setting);
        let step = StepEstimate { before_ns: 1e3, launch_ns: 1e3, device_ns: 100e3, after_ns: 1e3 };
        let asked = [(0, 0, 40, 5, 0), (10, 0, MAX_MODEL_LEN + over, 5, 0), (10, 0, 40, 5, 0)];
        let transcript = drive(&mut engine, &mut FixedPrices { step, per_token_ns: 0.0 }, &requests(&asked));
        prop_assert_eq!(transcript.refused.len(), 1);
        prop_assert_eq!(transcript.tokens.len(), 10);
    }
}
