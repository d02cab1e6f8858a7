//! What an engine allocates: nothing in a steady decode step, and no more memory for a longer run.

use std::sync::Arc;

use blis_contracts::conformance::FixedPrices;
use blis_contracts::engine::{Effects, Engine, Input};
use blis_contracts::environment::PlanId;
use blis_contracts::request::{Request, RequestId, RequestSlot, Segment, TokenSource};
use blis_contracts::step::StepEstimate;
use blis_contracts::units::SimTime;
use blis_vllm::config::CudagraphMode;
use blis_vllm::cudagraph::CudaGraphs;
use blis_vllm::engine::{CoreLayout, EngineParts, VllmEngine};
use blis_vllm::kv::group::{Attention, Retention};
use blis_vllm::kv::manager::KvConfig;
use blis_vllm::sched::queue::Policy;
use blis_vllm::sched::scheduler::SchedulerConfig;

use crate::conformance::plan;

const BLOCK_SIZE: u32 = 16;

fn engine(groups: Vec<Attention>, num_blocks: u32) -> VllmEngine {
    let scheduler = SchedulerConfig {
        max_model_len: 4096,
        max_num_batched_tokens: 8192,
        max_num_scheduled_tokens: 8192,
        max_num_active_seqs: 64,
        enable_chunked_prefill: true,
        long_prefill_token_threshold: 0,
        long_prefill_token_threshold_adaptive: false,
        scheduler_reserve_full_isl: true,
        policy: Policy::Fcfs,
        async_scheduling: true,
        max_concurrent_batches: 2,
        pipeline_stages: 1,
    };
    let kv = KvConfig {
        groups: groups.into_iter().map(|attention| attention.in_blocks(BLOCK_SIZE)).collect(),
        block_size: BLOCK_SIZE,
        num_blocks,
        enable_prefix_caching: true,
        retention: Retention::Replay,
        watermark_blocks: 0,
        max_model_len: 4096,
        max_in_flight_tokens: 16_384,
    };
    let graphs = CudaGraphs::new(CudagraphMode::FullAndPiecewise, &[1, 2, 4, 8, 16, 32, 64], 64);
    VllmEngine::new(EngineParts {
        plan: plan(2, num_blocks),
        plan_id: PlanId(0),
        settings: Vec::new(),
        scheduler,
        kv,
        graphs,
        cores: CoreLayout::SINGLE,
    })
}

/// A closed loop of 64 clients, driven by the engine's own wake-ups.
struct Loop {
    engine: VllmEngine,
    prices: FixedPrices,
    effects: Effects,
    now: SimTime,
    sent: u64,
    ended: u64,
}

impl Loop {
    fn new(engine: VllmEngine) -> Self {
        let step = StepEstimate { before_ns: 100e3, launch_ns: 50e3, device_ns: 1e6, after_ns: 30e3 };
        let prices = FixedPrices { step, per_token_ns: 0.0 };
        Self { engine, prices, effects: Effects::default(), now: SimTime::ZERO, sent: 0, ended: 0 }
    }

    fn send(&mut self, slot: RequestSlot, output_length: u32) {
        let prompt: Arc<[Segment]> = Arc::from([Segment { source: TokenSource::Unique(self.sent), length: 4 * BLOCK_SIZE }]);
        let request = Request::new(RequestId(self.sent), slot, self.now, prompt, output_length);
        self.engine.deliver(self.now, Input::Request(request));
        self.sent += 1;
    }

    fn advance(&mut self) {
        self.effects.clear();
        self.engine.advance(self.now, &mut self.prices, &mut self.effects);
        self.ended += self.effects.finished.len() as u64;
        if let Some(wake) = self.effects.wake_at {
            self.now = wake;
        }
    }
}

#[test]
fn a_steady_decode_step_allocates_nothing() {
    for groups in [vec![Attention::Full], vec![Attention::SlidingWindow { window: 128 }, Attention::Full]] {
        let mut run = Loop::new(engine(groups, 40_000));
        (0..64).for_each(|slot| run.send(RequestSlot(slot), 2000));
        // All requests reach a block edge together; in between lie fifteen steps.
        let mut quiet_windows = 0;
        for _ in 0..100 {
            let mut tokens = 0;
            let counted = allocation_counter::measure(|| {
                for _ in 0..4 {
                    run.advance();
                    tokens += run.effects.tokens.len();
                }
            });
            if tokens == 4 * 64 && counted.count_total == 0 {
                quiet_windows += 1;
            }
        }
        assert!(quiet_windows >= 70, "only {quiet_windows} of 100 windows of four decode steps allocated nothing");
    }
}

#[test]
fn memory_follows_the_pool_and_not_the_length_of_the_run() {
    let mut run = Loop::new(engine(vec![Attention::Full], 2_000));
    (0..64).for_each(|slot| run.send(RequestSlot(slot), 40));
    let mut grown = |requests: u64| {
        let counted = allocation_counter::measure(|| {
            while run.ended < requests {
                run.advance();
                for finished in std::mem::take(&mut run.effects.finished) {
                    run.send(finished.slot, 40);
                }
            }
        });
        counted.bytes_current
    };
    grown(2_000);
    let later = grown(12_000);
    assert!(later < 64 << 10, "ten thousand further requests hold {later} more bytes");
}
