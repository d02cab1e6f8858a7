//! Whatever the pool, the settings and the requests: every request ends, every block comes back, nothing contradicts itself.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use crate::sched::features::Features;
use crate::sched::speculation::{Profile, Speculation};

/// Tokens of the longest sequence: a pool holds at least one.
const MAX_MODEL_LEN: u32 = 96;

fn groups() -> impl Strategy<Value = Vec<Attention>> {
    let window = |window| Attention::SlidingWindow { window };
    prop_oneof![
        Just(vec![Attention::Full]),
        Just(vec![window(24)]),
        Just(vec![window(20), Attention::Full]),
        Just(vec![Attention::Full, window(40), window(40), window(17)]),
    ]
}

/// Drafting of every shape, or none.
fn features(groups: usize) -> impl Strategy<Value = Features> {
    // No wider than the smallest budget and the smallest part of a prompt.
    let shape = (1_u8..4, 0_u32..9, 0_u32..2, 0_u32..4, any::<bool>(), 0_u32..1001, any::<bool>());
    prop::option::of(shape).prop_map(move |shape| {
        let speculation = shape.map(|(tokens, lookahead, prefill_lookahead, draft_slots, drops, rate, by_batch)| Speculation {
            tokens,
            lookahead,
            prefill_lookahead,
            draft_slots,
            drops: vec![drops; groups],
            by_batch: by_batch.then(|| (0..8).map(|index| tokens.saturating_sub(index)).collect()),
            profile: Profile { seed: 3, accepted_permille: vec![rate], forbidden_permille: 0 },
        });
        Features { speculation, ..Features::default() }
    })
}

fn configs() -> impl Strategy<Value = (SchedulerConfig, KvConfig)> {
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let retention = prop_oneof![Just(Retention::Dense), Just(Retention::Replay), Just(Retention::Interval(32))];
    let numbers = (1_u32..6, 8_u32..80, 0_u32..3, prop_oneof![Just(0_u32), 4_u32..40]);
    (switches, groups(), retention, numbers, 0_u32..12).prop_map(|(switches, groups, retention, numbers, spare)| {
        let (asynchronous, caching, reserve, priority) = switches;
        let (active, budget, watermark, long_prefill) = numbers;
        let batches = if asynchronous { 2 } else { 1 };
        let one_request: u32 =
            groups.iter().map(|group| group.admission_cap(16, batches * budget, MAX_MODEL_LEN).unwrap_or(MAX_MODEL_LEN.div_ceil(16))).sum();
        let scheduler = SchedulerConfig {
            max_model_len: MAX_MODEL_LEN,
            max_num_batched_tokens: budget,
            max_num_scheduled_tokens: budget,
            max_num_active_seqs: active,
            long_prefill_token_threshold: long_prefill,
            scheduler_reserve_full_isl: reserve,
            policy: if priority { Policy::Priority } else { Policy::Fcfs },
            async_scheduling: asynchronous,
            max_concurrent_batches: batches,
            pipeline_stages: 1,
            ..scheduler_config()
        };
        let kv = KvConfig {
            groups: groups.into_iter().map(|attention| attention.in_blocks(16)).collect(),
            num_blocks: 1 + one_request + spare,
            enable_prefix_caching: caching,
            retention,
            watermark_blocks: watermark,
            max_model_len: MAX_MODEL_LEN,
            max_in_flight_tokens: batches * budget,
            ..kv_config(0)
        };
        (scheduler, kv)
    })
}

fn asks() -> impl Strategy<Value = Vec<(Ask, u8)>> {
    let ask =
        (1_u32..60, 0_u32..34, 1_u32..40, 1_u32..40, 0_i32..3, 0_u8..12).prop_map(|(prompt, shared, output, max_tokens, priority, gap)| {
            (Ask { name: "r", prompt, shared, output, max_tokens, priority }, gap)
        });
    prop::collection::vec(ask, 1..14)
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_and_every_block_comes_back(((scheduler, kv), features) in configs().prop_flat_map(|parts| {
        let features = features(parts.1.groups.len());
        (Just(parts), features)
    }), asks in asks(), aborted in prop::collection::vec((0_u32..14, 0_u32..60), 0..3)) {
        let mut bench = Bench::new(scheduler, kv);
        bench.scheduler.set_features(features);
        let mut arrivals: VecDeque<_> = asks.into_iter().collect();
        let mut step = 0;
        while !arrivals.is_empty() || bench.scheduler.has_requests() {
            while let Some((ask, _)) = arrivals.pop_front_if(|(_, gap)| *gap == 0 || !bench.scheduler.has_requests()) {
                bench.add(ask);
            }
            if let Some((_, gap)) = arrivals.front_mut() {
                *gap = gap.saturating_sub(1);
            }
            for (slot, _) in aborted.iter().filter(|(_, at)| *at == step) {
                bench.scheduler.abort(RequestSlot(*slot));
            }
            bench.step();
            step += 1;
            prop_assert!(step < 20_000, "no end in sight");
        }
        while let Some(batch) = bench.queue.pop_front() {
            bench.scheduler.process(&batch, drop);
        }
        bench.scheduler.check_invariants();
        let pool = bench.scheduler.kv().pool();
        prop_assert_eq!(pool.free_blocks(), pool.usable_blocks());
    }
}
