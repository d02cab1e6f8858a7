//! Laws that any price obeys, checked on the shipped registry: rates stay below the chip's, more work never costs less, and every
//! shape has a finite price (SUB-5, SUB-7, SUB-10 of the design).

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::plan::{Dealing, KernelImpl, LoweredLayer, PoolPlan, Primitive, PrimitiveShape, RowSet};
use blis_contracts::step::{Launch, RankStep};
use blis_kernel::CompiledPlan;
use blis_registry::Registry;
use blis_registry::entry::Entry;
use blis_registry::vocabulary::Subject;
use proptest::prelude::*;

use crate::fixture::{CHIPS, chip, layer, mixture, model, step};

/// Rows on which rates are checked: dense where kernels change their tiles.
const ROWS: [u32; 22] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384];

/// A plan of one piece of work.
fn only(chip: &str, work: LoweredLayer) -> PoolPlan {
    PoolPlan { layers: vec![work], ..mixture(chip) }
}

/// One piece of work, compiled.
pub(crate) fn compiled(chip: &str, work: &LoweredLayer) -> CompiledPlan {
    model(chip).compile(&only(chip, work.clone())).expect("every kernel has a price")
}

/// Microseconds of a compiled piece of work over some rows.
pub(crate) fn microseconds(plan: &mut CompiledPlan, rows: u32) -> f64 {
    let rank = RankStep { padded_tokens: rows, sampled: rows, launch: Launch::Full, ..RankStep::default() };
    plan.price(&step(rank)).device_ns / 1e3
}

/// The formats an entry's label may stand for.
pub(crate) fn format_of(entry: &Entry) -> MatmulFormat {
    let label = entry.format.as_deref().unwrap_or("bf16");
    MatmulFormat::all().find(|format| format.label() == label).unwrap_or(MatmulFormat::BF16)
}

/// Every piece of work of a subject that some entry of the shipped registry is scoped to, over shapes from small to large.
pub(crate) fn scoped_work(
    chip: &str,
    subject: Subject,
    primitive: Primitive,
    shapes: &dyn Fn(&Entry) -> Vec<PrimitiveShape>,
) -> Vec<LoweredLayer> {
    let coefficients = model(chip).coefficients();
    let entries = coefficients.entries().iter().filter(|entry| entry.primitive == subject);
    let work = entries.flat_map(|entry| {
        let kernel =
            entry.kernel.as_ref().map_or_else(|| "any/kernel".to_owned(), |kernel| format!("{}/{}", kernel.library, kernel.variant));
        shapes(entry).into_iter().map(move |shape| layer(0, primitive, &kernel, shape, RowSet::Tokens)).collect::<Vec<_>>()
    });
    let work: Vec<LoweredLayer> = work.collect();
    assert!(!work.is_empty(), "no work to check for {subject} on {chip}");
    work
}

pub(crate) fn products(entry: &Entry) -> Vec<PrimitiveShape> {
    let format = format_of(entry);
    let sizes = [(128, 2_880), (1_280, 2_880), (4_096, 4_096), (28_672, 8_192), (8_192, 28_672), (50_272, 2_880)];
    sizes.into_iter().map(|(columns, depth)| PrimitiveShape::Gemm { columns, depth, format }).collect()
}

pub(crate) fn mixtures(entry: &Entry) -> Vec<PrimitiveShape> {
    let format = format_of(entry);
    let sizes = [(128, 4, 2_880, 2_880), (128, 4, 2_880, 360), (32, 4, 2_880, 2_880), (128, 8, 2_048, 768), (128, 8, 2_048, 192)];
    let shape = |(experts, top_k, hidden, intermediate)| PrimitiveShape::Moe {
        experts,
        local_experts: experts,
        top_k,
        hidden,
        intermediate,
        gated: true,
        format,
    };
    sizes.into_iter().map(shape).collect()
}

#[test]
fn no_product_is_faster_than_the_chip() {
    for name in CHIPS {
        let facts = chip(name);
        for work in scoped_work(name, Subject::Gemm, Primitive::Gemm, &products) {
            let PrimitiveShape::Gemm { columns, depth, format } = work.shape else { panic!("{work:?}") };
            let peak = model(name).figures().peak(format.activations).unwrap();
            let weights = format.weights.stored_bytes(columns, depth) as f64;
            let mut plan = compiled(name, &work);
            for rows in ROWS {
                let us = microseconds(&mut plan, rows);
                let operations = 2.0 * f64::from(rows) * columns as f64 * depth as f64;
                assert!(operations / us <= peak, "{name} {work:?} at {rows} rows: {} of peak", operations / us / peak);
                let bandwidth = facts.memory_bandwidth.value.get() / 1e6;
                assert!(weights / us <= bandwidth, "{name} {work:?} at {rows} rows: {} of bandwidth", weights / us / bandwidth);
            }
        }
    }
}

/// By how much a call that fills its tiles may cost more than one that leaves them nearly empty: the rows it moves.
const FILLED: f64 = 0.1;

#[test]
fn a_tile_that_is_nearly_empty_costs_what_a_full_one_costs() {
    let mut checked = 0;
    for name in CHIPS {
        let coefficients = model(name).coefficients();
        for entry in coefficients.entries().iter().filter(|entry| entry.coefficients.contains_key("tile_rows")) {
            let Some(kernel) = &entry.kernel else { continue };
            let kernel = format!("{}/{}", kernel.library, kernel.variant);
            let size = |coefficient: &str| {
                let stated = entry.coefficients[coefficient].value;
                ROWS.into_iter().find(|&rows| f64::from(rows) >= stated).expect("tiles are among the rows that laws are checked on")
            };
            let tiles = [
                (size("tile_first"), size("tile_second")),
                (size("tile_third"), size("tile_rows")),
                (size("tile_rows"), 2 * size("tile_rows")),
            ];
            for shape in products(entry) {
                let mut plan = compiled(name, &layer(0, Primitive::Gemm, &kernel, shape, RowSet::Tokens));
                for (below, full) in tiles {
                    let ratio = microseconds(&mut plan, full) / microseconds(&mut plan, below + 1);
                    assert!((1.0..1.0 + FILLED).contains(&ratio), "{name} {shape:?}: {full} rows cost {ratio} of {}", below + 1);
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 0, "no entry states tiles");
}

/// Up to here every kernel exchanges in one shot whatever the group; beyond it, groups of different size run different algorithms.
const ONE_SHOT_BYTES: u64 = 256 << 10;

/// How far below the narrower group's a price may lie: both are fitted, and exchanges of a few kilobytes differ by less than the
/// measurements scatter.
const FALL_OVER_GROUPS: f64 = 0.05;

/// Whether a chip has an entry of a kernel's own.
fn times(chip: &str, kernel: &str) -> bool {
    let (library, variant) = kernel.split_once('/').expect("a library and a variant");
    let kernel = KernelImpl::named(library, variant);
    Registry::embedded()
        .chip(chip)
        .expect("a chip of the registry")
        .entries()
        .iter()
        .any(|entry| entry.kernel.as_ref().is_some_and(|scope| scope.covers(&kernel)))
}

#[test]
fn a_collective_is_never_faster_over_a_larger_group_by_the_same_algorithm() {
    const BYTES_PER_ROW: u64 = 5_760;
    let mut checked = BTreeSet::new();
    for name in CHIPS {
        // A group of several nodes runs yet another algorithm.
        let node = chip(name).gpus_per_node.value;
        for (primitive, kernel) in [
            (Primitive::AllReduce, "vllm-csrc/custom-all-reduce"),
            (Primitive::AllReduce, "flashinfer/fused-all-reduce-norm"),
            (Primitive::AllGather, "vllm-csrc/lamport-all-gather"),
            (Primitive::ReduceScatter, "vllm-csrc/lamport-reduce-scatter"),
        ] {
            if !times(name, kernel) {
                continue;
            }
            let plan = |group| {
                let shape = PrimitiveShape::Collective { group, bytes_per_row: BYTES_PER_ROW };
                compiled(name, &layer(0, primitive, kernel, shape, RowSet::Tokens))
            };
            let mut plans: Vec<_> = [2, 4, 8].into_iter().filter(|&group| group <= node).map(plan).collect();
            for rows in ROWS.into_iter().filter(|&rows| u64::from(rows) * BYTES_PER_ROW <= ONE_SHOT_BYTES) {
                let prices: Vec<f64> = plans.iter_mut().map(|plan| microseconds(plan, rows)).collect();
                let holds = prices.windows(2).all(|pair| pair[1] >= pair[0] * (1.0 - FALL_OVER_GROUPS));
                assert!(holds, "{name} {kernel} over {rows} rows: {prices:?}");
                if prices.len() > 1 {
                    checked.insert(kernel);
                }
            }
        }
    }
    assert_eq!(checked.len(), 4, "kernels that some chip times over two groups: {checked:?}");
}

#[test]
fn tokens_take_longer_to_their_experts_the_more_there_are_and_few_go_sooner_into_slots() {
    let timed: Vec<&str> = CHIPS.into_iter().filter(|name| times(name, "deepep/dispatch")).collect();
    assert!(!timed.is_empty(), "no chip times DeepEP's kernels");
    for name in timed {
        let price = |kernel: &str, rows| {
            let shape = PrimitiveShape::Collective { group: 8, bytes_per_row: 59_264 };
            microseconds(&mut compiled(name, &layer(0, Primitive::AllToAll, kernel, shape, RowSet::Tokens)), rows)
        };
        for kernel in ["deepep/low-latency-dispatch", "deepep/low-latency-combine", "deepep/dispatch", "deepep/combine"] {
            let prices: Vec<f64> = [1, 8, 64, 512, 4_096].into_iter().map(|rows| price(kernel, rows)).collect();
            assert!(prices.windows(2).all(|pair| pair[1] > pair[0]), "{name} {kernel}: {prices:?}");
        }
        let (slots, ranks) = (price("deepep/low-latency-dispatch", 1), price("deepep/dispatch", 1));
        assert!(slots < ranks / 5.0, "{name}: {slots} us, {ranks} us");
    }
}

fn any_shape() -> impl Strategy<Value = (Primitive, PrimitiveShape)> {
    let format = (0..FormatName::ALL.len()).prop_map(|index| {
        let weights = FormatName::ALL[index];
        MatmulFormat { weights, activations: weights.usual_activations() }
    });
    let gemm = (1_u64..300_000, 1_u64..70_000, format.clone())
        .prop_map(|(columns, depth, format)| (Primitive::Gemm, PrimitiveShape::Gemm { columns, depth, format }));
    let moe = (1_u32..1_000, 1_u32..64, 1_u64..20_000, 1_u64..20_000, any::<bool>(), format).prop_map(
        |(experts, top_k, hidden, intermediate, gated, format)| {
            let top_k = top_k.min(experts);
            let local_experts = experts.div_ceil(2);
            (Primitive::MoeExperts, PrimitiveShape::Moe { experts, local_experts, top_k, hidden, intermediate, gated, format })
        },
    );
    let collective = (1_u32..64, 1_u64..10_000_000)
        .prop_map(|(group, bytes_per_row)| (Primitive::AllReduce, PrimitiveShape::Collective { group, bytes_per_row }));
    let stream = (1_u64..10_000_000).prop_map(|bytes_per_row| (Primitive::Norm, PrimitiveShape::Stream { bytes_per_row }));
    let sampling = (1_u64..1_000_000).prop_map(|vocabulary| (Primitive::Sampling, PrimitiveShape::Sampling { vocabulary, trial_bytes: 2 }));
    prop_oneof![gemm, moe, collective, stream, sampling]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn work_of_any_shape_has_a_finite_positive_price((primitive, shape) in any_shape(), rows in 1_u32..200_000, chip in 0_usize..3) {
        let mut plan = compiled(CHIPS[chip], &layer(0, primitive, "any/kernel", shape, RowSet::Tokens));
        let us = microseconds(&mut plan, rows);
        let talks = !matches!(shape, PrimitiveShape::Collective { group: 0 | 1, .. });
        prop_assert!(us.is_finite() && (us > 0.0) == talks, "{us}");
    }

    #[test]
    fn attention_of_any_shape_has_a_finite_positive_price_that_grows_with_context(
        geometry in (1_u32..128, 1_u32..16, 1_u32..512),
        window in prop_oneof![Just(0_u32), 1_u32..9_000],
        rows in prop::collection::vec((1_u32..9_000, 0_u32..200_000), 0..5),
        contexts in prop::collection::vec(0_u32..1_000_000, 1..70),
    ) {
        let (group, kv_heads, head_dim) = geometry;
        let kv_format = FormatName::Bf16;
        let query_heads = group * kv_heads;
        let shape = PrimitiveShape::Attention { query_heads, kv_heads, head_dim, kv_group: 0, window, chunk: 0, sinks: false, kv_format, dealing: Dealing::Evenly };
        let work = |primitive| layer(0, primitive, "any/kernel", shape, RowSet::Requests);
        let plan = PoolPlan { layers: vec![work(Primitive::AttentionDecode), work(Primitive::AttentionPrefill)], ..mixture("h100") };
        let mut plan = model("h100").compile(&plan).unwrap();
        let prefill = rows.iter().map(|&(query, context)| blis_contracts::step::PrefillRow { query, context }).collect();
        let rank = RankStep { decode: contexts, prefill, sampled: 1, padded_tokens: 1, launch: Launch::Full };
        let before = plan.price(&step(rank.clone())).device_ns;
        prop_assert!(before.is_finite() && before > 0.0);
        let mut later = rank.clone();
        later.decode.iter_mut().for_each(|context| *context += 1_000);
        prop_assert!(plan.price(&step(later)).device_ns >= before * 0.999_999);
        let mut later = rank;
        later.prefill.iter_mut().for_each(|row| row.context += 1_000);
        prop_assert!(plan.price(&step(later)).device_ns >= before);
    }
}

#[test]
fn dealing_in_turn_costs_time_where_contexts_differ_and_no_prompt_fills_what_they_leave() {
    let price = |dealing, window, chunk, contexts: &[u32], prompt: Option<u32>| {
        let (query_heads, kv_heads, head_dim, kv_format) = (16, 2, 128, FormatName::Fp8);
        let shape =
            PrimitiveShape::Attention { query_heads, kv_heads, head_dim, kv_group: 0, window, chunk, sinks: false, kv_format, dealing };
        let work = |primitive| layer(0, primitive, "flash-attn/fa3", shape, RowSet::Requests);
        let plan = PoolPlan { layers: vec![work(Primitive::AttentionDecode), work(Primitive::AttentionPrefill)], ..mixture("h100") };
        let prefill = prompt.map(|query| blis_contracts::step::PrefillRow { query, context: 0 }).into_iter().collect();
        let rank = RankStep { decode: contexts.to_vec(), prefill, sampled: 1, padded_tokens: 1, launch: Launch::Full };
        model("h100").compile(&plan).unwrap().price(&step(rank)).device_ns
    };
    let ratio = |window, chunk, contexts: &[u32], prompt| {
        price(Dealing::InTurn { parts_in_graph: NonZeroU32::new(32).unwrap() }, window, chunk, contexts, prompt)
            / price(Dealing::Evenly, window, chunk, contexts, prompt)
    };
    let unequal: Vec<u32> = (0..64).map(|index| 6_500 + 3_000 * (index * 37 % 64) / 64).collect();
    assert!(ratio(0, 0, &unequal, None) > 1.2, "{}", ratio(0, 0, &unequal, None));
    for same in [
        ratio(0, 0, &[8_000; 64], None),
        ratio(128, 0, &unequal, None),
        ratio(0, 4_096, &unequal, None),
        ratio(0, 0, &unequal, Some(8_000)),
    ] {
        assert!((same - 1.0).abs() < 1e-12, "{same}");
    }
}

#[test]
fn a_plan_of_one_layer_or_of_windows_alone_or_without_attention_is_priced() {
    let whole = mixture("h200");
    let attention = |work: &&LoweredLayer| matches!(work.shape, PrimitiveShape::Attention { .. });
    let windowed = |work: &&LoweredLayer| matches!(work.shape, PrimitiveShape::Attention { window: 128, .. });
    let parts: [Vec<LoweredLayer>; 4] = [
        whole.layers.iter().filter(|work| work.layer == 0).cloned().collect(),
        whole.layers.iter().filter(|work| !attention(work) || windowed(work)).cloned().collect(),
        whole.layers.iter().filter(|work| !attention(work)).cloned().collect(),
        whole.layers.iter().filter(attention).cloned().collect(),
    ];
    for layers in parts {
        let mut plan = model("h200").compile(&PoolPlan { layers, ..mixture("h200") }).unwrap();
        let price = plan.price(&step(crate::fixture::mixed(&[10, 300_000], 500, 4_000)));
        assert!(price.device_ns.is_finite() && price.device_ns > 0.0);
    }
}

#[test]
fn work_over_rows_it_cannot_read_is_refused_by_name() {
    let shape = PrimitiveShape::Stream { bytes_per_row: 8 };
    let refused = |work: LoweredLayer| model("h200").compile(&only("h200", work)).unwrap_err().to_string();
    assert!(refused(layer(0, Primitive::Norm, "any/kernel", shape, RowSet::Requests)).contains("`norm`"));
    assert!(refused(layer(0, Primitive::Gemm, "any/kernel", shape, RowSet::Tokens)).contains("`gemm`"));
    let stray =
        LoweredLayer { stage: 1, kernel: KernelImpl::named("any", "kernel"), ..layer(0, Primitive::Norm, "a/b", shape, RowSet::Tokens) };
    assert!(refused(stray).contains("stage 1"));
}
