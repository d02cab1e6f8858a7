//! The memo, the merging of layers and the integer sums change no price by a single bit.

use blis_contracts::plan::RowSet;
use blis_contracts::step::{Launch, RankStep, StepShape};
use proptest::prelude::*;

use crate::fixture::{decode, everything, mixed, mixture, model, prefill, step};

fn any_rank() -> impl Strategy<Value = RankStep> {
    let contexts = prop::collection::vec(0_u32..200_000, 0..64);
    let rows = prop::collection::vec((1_u32..4_000, 0_u32..60_000), 0..4);
    (contexts, rows, 0_u32..9_000, 0_usize..3).prop_map(|(contexts, rows, padding, launch)| {
        let mut rank = decode(&contexts, 0, Launch::ALL[launch]);
        rank.prefill = rows.into_iter().map(|(query, context)| blis_contracts::step::PrefillRow { query, context }).collect();
        rank.sampled = u32::try_from(rank.requests()).expect("a small batch");
        rank.padded_tokens = u32::try_from(rank.tokens()).expect("a small batch") + padding;
        rank
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_memo_equals_direct_evaluation_bit_for_bit(ranks in prop::collection::vec(any_rank(), 1..12)) {
        let mut plan = model("h200").compile(&everything("h200")).unwrap();
        for _ in 0..2 {
            for rank in &ranks {
                let shape = step(rank.clone());
                let direct = plan.price_directly(&shape);
                prop_assert_eq!(plan.price(&shape), direct);
            }
        }
    }

    #[test]
    fn a_price_does_not_depend_on_the_order_of_decode_requests(contexts in prop::collection::vec(0_u32..300_000, 1..80)) {
        let mut plan = model("h200").compile(&mixture("h200")).unwrap();
        let mut reversed = contexts.clone();
        reversed.reverse();
        let forward = plan.price(&step(decode(&contexts, 80, Launch::Full)));
        prop_assert_eq!(plan.price(&step(decode(&reversed, 80, Launch::Full))), forward);
    }
}

#[test]
fn a_steady_decode_fills_one_cell_for_each_kind_of_rows() {
    let mut plan = model("h200").compile(&mixture("h200")).unwrap();
    for context in 1_000..1_100 {
        plan.price(&step(decode(&[context; 64], 64, Launch::Full)));
    }
    // Tokens, a rank's part of them, those of all ranks, sampled rows.
    assert_eq!(plan.cells_filled(), 4);
    assert_eq!(plan.steps(), 100);
}

#[test]
fn lockstep_ranks_wait_for_the_slowest() {
    let mut apart = mixture("h200");
    apart.layers.retain(|layer| layer.rows != RowSet::Gathered);
    let mut plan = model("h200").compile(&apart).unwrap();
    let (small, large) = (decode(&[100; 4], 4, Launch::Full), mixed(&[4_000; 40], 2_000, 6_000));
    let together = plan.price(&StepShape { ranks: vec![small.clone(), large.clone()], stage: 0 });
    let alone = plan.price(&step(large));
    assert!(together.device_ns.total_cmp(&alone.device_ns).is_eq());
    assert!(together.launch_ns >= plan.price(&step(small)).launch_ns);
}

#[test]
fn gathered_work_is_over_the_tokens_of_every_rank() {
    let mut plan = model("h200").compile(&mixture("h200")).unwrap();
    let rank = |padded| decode(&[100; 4], padded, Launch::Full);
    let together = |plan: &mut blis_kernel::CompiledPlan, other| plan.price(&StepShape { ranks: vec![rank(4), rank(other)], stage: 0 });
    let (few, many) = (together(&mut plan, 0), together(&mut plan, 4));
    assert!(few.device_ns < many.device_ns, "{few:?} {many:?}");
}

#[test]
fn a_rank_with_nothing_to_do_costs_the_accelerator_nothing() {
    let mut plan = model("h200").compile(&mixture("h200")).unwrap();
    let idle = plan.price(&step(RankStep { launch: Launch::Full, ..RankStep::default() }));
    assert!(idle.device_ns.total_cmp(&0.0).is_eq());
}

#[test]
fn one_kernel_for_both_kinds_of_attention_pays_its_launch_once() {
    let mut plan = model("h200").compile(&mixture("h200")).unwrap();
    let device = |plan: &mut blis_kernel::CompiledPlan, mut rank: RankStep| {
        // The same rows everywhere: only attention differs.
        (rank.padded_tokens, rank.sampled, rank.launch) = (1_024, 8, Launch::Full);
        plan.price(&step(rank)).device_ns
    };
    let neither = device(&mut plan, RankStep::default());
    let both = device(&mut plan, mixed(&[2_000; 8], 1_000, 0)) - neither;
    let apart =
        device(&mut plan, decode(&[2_000; 8], 8, Launch::Full)) + device(&mut plan, prefill(1_000, 0, Launch::Full)) - 2.0 * neither;
    let saved = (apart - both) / 36.0;
    assert!((8_000.0..25_000.0).contains(&saved), "{saved} ns saved in each layer");
}
