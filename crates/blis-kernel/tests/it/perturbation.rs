//! Changing any field of a plan or a step shape, or any family of coefficients, changes some price or stands on the list of what
//! is not priced yet, which may only shrink (SUB-11 of the design).
//!
//! The rows are complete because the structs are taken apart without `..`: a new field does not compile until it has a row.

use blis_contracts::format::FormatName;
use blis_contracts::part::{DensePrompts, Part};
use blis_contracts::plan::{
    Buffer, FrontEndPlan, GraphPolicy, HostPlan, KernelImpl, KvGroup, KvSpan, Layout, LoweredLayer, PoolPlan, PrimitiveShape,
    ResidentTensor, RowRange, RowSet, Start,
};
use blis_contracts::step::{Launch, PrefillRow, RankStep, StepShape};
use blis_contracts::units::{Blocks, BytesPerRank, Tokens};
use blis_kernel::{CostModel, RoutingBalance};
use blis_registry::entry::CoefficientSetKind;
use blis_registry::vocabulary::{Family, Subject};
use blis_registry::{ChipCoefficients, CoefficientSet, Registry};

use crate::fixture::{chip, decode, everything, mixed, model, prefill};

/// Fields that no price depends on, with the reason; may only shrink.
const NOT_PRICED: &[(&str, &str)] = &[
    ("plan.model", "a label; no price may depend on one"),
    ("plan.kv", "the engine sizes its cache by it; attention reads the shapes of the layers"),
    ("plan.kv.layers", "as plan.kv"),
    ("plan.kv.tokens_per_block", "as plan.kv"),
    ("plan.kv.bytes_per_block", "as plan.kv"),
    ("plan.kv.sees", "as plan.kv"),
    ("plan.kv_budget", "an answer of the memory breakdown, not an input"),
    ("plan.kv_blocks", "as plan.kv_budget"),
    ("plan.in_flight", "the engine overlaps its own steps"),
    ("plan.layout.expert", "experts over ranks are not lowered yet"),
    ("plan.host.overlapped", "the engine overlaps its own steps"),
    ("plan.host.workers", "no coefficient of a message to a worker is fitted yet"),
    ("plan.front_end.stream_interval", "the simulator cuts the chunks"),
    ("plan.front_end.processes", "the simulator shares the work"),
    ("plan.weights.name", "a label"),
    ("plan.buffers.name", "a label"),
    ("layer.layer", "a label"),
    ("layer.kernel.code_hash", "no entry is scoped by a kernel's code yet"),
    ("layer.kernel.toolkit", "no entry is scoped by a toolkit yet"),
    ("attention.kv_group", "a reference into plan.kv"),
    ("attention.sinks", "no measurement tells a call with sinks from one without"),
    ("latent.kv_group", "a reference into plan.kv"),
];

/// The most entries the list above may have.
const NOT_PRICED_AT_MOST: usize = 22;

/// Everything the cost model answers about a plan and some steps.
fn answers(model: &CostModel, plan: &PoolPlan, shapes: &[StepShape]) -> String {
    let prices = model.compile(plan).map(|mut compiled| {
        let priced = shapes.iter().filter(|shape| shape.stage < plan.layout.pipeline.max(1));
        priced.map(|shape| compiled.price(shape)).collect::<Vec<_>>()
    });
    format!("{prices:?} {:?} {:?}", model.memory(plan), model.front_end(plan))
}

fn steps() -> Vec<StepShape> {
    let ranks = [
        decode(&[1_000; 16], 16, Launch::Full),
        mixed(&[1_000; 3], 700, 300),
        prefill(2_000, 0, Launch::Eager),
        decode(&[50], 1, Launch::Eager),
    ];
    ranks.into_iter().map(|rank| StepShape { ranks: vec![rank], stage: 0 }).collect()
}

type Change<T> = (&'static str, fn(&mut T));

/// Changes a field of every layer with a shape of one kind.
macro_rules! in_shapes {
    ($plan:ident, $variant:ident, $field:ident => $change:expr) => {
        for layer in &mut $plan.layers {
            if let PrimitiveShape::$variant { $field, .. } = &mut layer.shape {
                $change;
            }
        }
    };
}

const PLAN: &[Change<PoolPlan>] = &[
    ("plan.hardware", |plan| plan.hardware.push('x')),
    ("plan.fabric", |plan| plan.fabric.push('x')),
    ("plan.model", |plan| plan.model.push('x')),
    ("plan.layout.tensor", |plan| plan.layout.tensor = 8),
    ("plan.layout.pipeline", |plan| plan.layout = Layout { pipeline: 2, ..Layout::SINGLE }),
    ("plan.layout.data", |plan| plan.layout = Layout { data: 2, ..Layout::SINGLE }),
    ("plan.layout.expert", |plan| plan.layout.expert = 4),
    ("plan.layout.domain", |plan| plan.layout.domain = 2),
    ("plan.layers", |plan| plan.layers.truncate(20)),
    ("plan.dense_prompts", |plan| plan.dense_prompts = None),
    ("plan.dense_prompts.generates_to", |plan| plan.dense_prompts = Some(DensePrompts { generates_to: 800, ends_within: 40_000 })),
    ("plan.dense_prompts.ends_within", |plan| plan.dense_prompts = Some(DensePrompts { generates_to: 128, ends_within: 900 })),
    ("plan.kv", |plan| plan.kv.clear()),
    ("plan.kv.layers", |plan| plan.kv[0].layers += 1),
    ("plan.kv.tokens_per_block", |plan| plan.kv[0].tokens_per_block = Tokens::new(32)),
    ("plan.kv.bytes_per_block", |plan| plan.kv[0].bytes_per_block = BytesPerRank::new(1)),
    ("plan.kv.sees", |plan| plan.kv[0].sees = KvSpan::Chunk(8_192)),
    ("plan.kv_budget", |plan| plan.kv_budget = vec![BytesPerRank::new(1 << 33)]),
    ("plan.kv_blocks", |plan| plan.kv_blocks = Blocks::new(1_000)),
    ("plan.graphs.full", |plan| plan.graphs.full.push(128)),
    ("plan.graphs.piecewise", |plan| plan.graphs.piecewise.push(1_024)),
    ("plan.graphs.pieces", |plan| plan.graphs.pieces += 1),
    ("plan.graphs.eager_launches", |plan| plan.graphs.eager_launches += 1),
    ("plan.host.overlapped", |plan| plan.host.overlapped = false),
    ("plan.host.workers", |plan| plan.host.workers += 1),
    ("plan.front_end.stream_interval", |plan| plan.front_end.stream_interval = 20),
    ("plan.front_end.processes", |plan| plan.front_end.processes = 4),
    ("plan.front_end.tokenises", |plan| plan.front_end.tokenises = false),
    ("plan.front_end.detokenises", |plan| plan.front_end.detokenises = false),
    ("plan.weights", |plan| plan.weights.clear()),
    ("plan.weights.name", |plan| plan.weights[0].name.push('x')),
    ("plan.weights.count", |plan| plan.weights[0].count += 1),
    ("plan.weights.bytes", |plan| plan.weights[0].bytes = BytesPerRank::new(1)),
    ("plan.buffers", |plan| plan.buffers.clear()),
    ("plan.buffers.name", |plan| plan.buffers[0].name.push('x')),
    ("plan.buffers.bytes", |plan| plan.buffers[0].bytes = BytesPerRank::new(1)),
    ("plan.profiling", |plan| plan.profiling.ranks[0].padded_tokens = 2_048),
    ("plan.in_flight", |plan| plan.in_flight = 1),
    ("layer.layer", |plan| plan.layers[3].layer += 1),
    ("layer.stage", |plan| plan.layers[3].stage += 1),
    ("layer.primitive", |plan| plan.layers.iter_mut().for_each(|layer| layer.primitive = blis_contracts::plan::Primitive::Gemm)),
    ("layer.kernel.library", |plan| plan.layers.iter_mut().for_each(|layer| layer.kernel.library.push('x'))),
    ("layer.kernel.variant", |plan| plan.layers.iter_mut().for_each(|layer| layer.kernel.variant.push('x'))),
    ("layer.kernel.code_hash", |plan| plan.layers.iter_mut().for_each(|layer| layer.kernel.code_hash.push('x'))),
    ("layer.kernel.toolkit", |plan| plan.layers.iter_mut().for_each(|layer| layer.kernel.toolkit.push('x'))),
    ("layer.start", |plan| plan.layers[1].start = Start::Dependent),
    ("layer.part", |plan| plan.layers[1].part = Part::Mixed),
    ("layer.rows", |plan| plan.layers[1].rows = RowSet::Sampled),
    ("layer.runs_for", |plan| plan.layers[1].runs_for = RowRange { least: 0, most: 1 }),
    ("gemm.columns", |plan| in_shapes!(plan, Gemm, columns => *columns += 64)),
    ("gemm.depth", |plan| in_shapes!(plan, Gemm, depth => *depth += 64)),
    ("gemm.format.weights", |plan| in_shapes!(plan, Gemm, format => format.weights = FormatName::Int4Group128)),
    ("gemm.format.activations", |plan| in_shapes!(plan, Gemm, format => format.activations = FormatName::Fp8)),
    ("attention.query_heads", |plan| in_shapes!(plan, Attention, query_heads => *query_heads *= 2)),
    ("attention.kv_heads", |plan| in_shapes!(plan, Attention, kv_heads => *kv_heads *= 2)),
    ("attention.head_dim", |plan| in_shapes!(plan, Attention, head_dim => *head_dim *= 2)),
    ("attention.kv_group", |plan| in_shapes!(plan, Attention, kv_group => *kv_group = 1 - *kv_group)),
    ("attention.window", |plan| in_shapes!(plan, Attention, window => *window += 256)),
    ("attention.chunk", |plan| in_shapes!(plan, Attention, chunk => *chunk = 64)),
    ("attention.sinks", |plan| in_shapes!(plan, Attention, sinks => *sinks = !*sinks)),
    ("attention.kv_format", |plan| in_shapes!(plan, Attention, kv_format => *kv_format = FormatName::Fp8)),
    ("batched_gemm.batch", |plan| in_shapes!(plan, BatchedGemm, batch => *batch *= 2)),
    ("batched_gemm.columns", |plan| in_shapes!(plan, BatchedGemm, columns => *columns += 64)),
    ("batched_gemm.depth", |plan| in_shapes!(plan, BatchedGemm, depth => *depth += 64)),
    ("batched_gemm.format", |plan| in_shapes!(plan, BatchedGemm, format => format.weights = FormatName::Fp8)),
    ("latent.query_heads", |plan| in_shapes!(plan, Latent, query_heads => *query_heads *= 2)),
    ("latent.kv_heads", |plan| in_shapes!(plan, Latent, kv_heads => *kv_heads *= 2)),
    ("latent.key_dim", |plan| in_shapes!(plan, Latent, key_dim => *key_dim += 64)),
    ("latent.value_dim", |plan| in_shapes!(plan, Latent, value_dim => *value_dim += 64)),
    ("latent.kv_group", |plan| in_shapes!(plan, Latent, kv_group => *kv_group = 1 - *kv_group)),
    ("latent.format", |plan| in_shapes!(plan, Latent, format => *format = FormatName::Fp8)),
    ("traffic.bytes", |plan| in_shapes!(plan, Traffic, bytes => *bytes *= 2)),
    ("gathered.query_heads", |plan| in_shapes!(plan, Gathered, query_heads => *query_heads *= 2)),
    ("gathered.head_dim", |plan| in_shapes!(plan, Gathered, head_dim => *head_dim *= 2)),
    ("gathered.entry_bytes", |plan| in_shapes!(plan, Gathered, entry_bytes => *entry_bytes *= 4)),
    ("gathered.window", |plan| in_shapes!(plan, Gathered, window => *window += 64)),
    ("gathered.ratio", |plan| in_shapes!(plan, Gathered, ratio => *ratio = 128)),
    ("gathered.top_k", |plan| in_shapes!(plan, Gathered, top_k => *top_k = 10)),
    ("gathered.multiplied", |plan| in_shapes!(plan, Gathered, multiplied => *multiplied = FormatName::Fp8)),
    ("scores.heads", |plan| in_shapes!(plan, Scores, heads => *heads *= 2)),
    ("scores.head_dim", |plan| in_shapes!(plan, Scores, head_dim => *head_dim *= 2)),
    ("scores.entry_bytes", |plan| in_shapes!(plan, Scores, entry_bytes => *entry_bytes *= 64)),
    ("scores.ratio", |plan| in_shapes!(plan, Scores, ratio => *ratio = 1)),
    ("scores.top_k", |plan| in_shapes!(plan, Scores, top_k => *top_k = 10)),
    ("scores.ranked", |plan| in_shapes!(plan, Scores, ranked => *ranked *= 2)),
    ("scores.multiplied", |plan| in_shapes!(plan, Scores, multiplied => *multiplied = FormatName::Fp8)),
    ("recurrent.heads", |plan| in_shapes!(plan, Recurrent, heads => *heads *= 2)),
    ("recurrent.state_elements", |plan| in_shapes!(plan, Recurrent, state_elements => *state_elements *= 4)),
    ("scan.bytes_per_token", |plan| in_shapes!(plan, Scan, bytes_per_token => *bytes_per_token *= 2)),
    ("scan.bytes_per_row", |plan| in_shapes!(plan, Scan, bytes_per_row => *bytes_per_row *= 2)),
    ("moe.experts", |plan| in_shapes!(plan, Moe, experts => *experts *= 2)),
    ("moe.local_experts", |plan| in_shapes!(plan, Moe, local_experts => *local_experts /= 2)),
    ("moe.top_k", |plan| in_shapes!(plan, Moe, top_k => *top_k += 1)),
    ("moe.hidden", |plan| in_shapes!(plan, Moe, hidden => *hidden += 64)),
    ("moe.intermediate", |plan| in_shapes!(plan, Moe, intermediate => *intermediate += 64)),
    ("moe.gated", |plan| in_shapes!(plan, Moe, gated => *gated = !*gated)),
    ("moe.format.weights", |plan| in_shapes!(plan, Moe, format => format.weights = FormatName::Bf16)),
    ("moe.format.activations", |plan| in_shapes!(plan, Moe, format => format.activations = FormatName::Mxfp8)),
    ("collective.group", |plan| in_shapes!(plan, Collective, group => *group = 8)),
    ("collective.bytes_per_row", |plan| in_shapes!(plan, Collective, bytes_per_row => *bytes_per_row *= 2)),
    ("stream.bytes_per_row", |plan| in_shapes!(plan, Stream, bytes_per_row => *bytes_per_row *= 2)),
    ("sampling.vocabulary", |plan| in_shapes!(plan, Sampling, vocabulary => *vocabulary *= 2)),
];

/// Takes every struct of a plan apart, so that a new field asks for a row above.
fn take_apart(plan: &PoolPlan) {
    let PoolPlan {
        hardware: _,
        fabric: _,
        model: _,
        layout,
        layers,
        dense_prompts,
        kv,
        kv_budget: _,
        kv_blocks: _,
        graphs,
        host,
        front_end,
        weights,
        buffers,
        profiling: _,
        in_flight: _,
    } = plan;
    let Layout { tensor: _, pipeline: _, data: _, expert: _, domain: _ } = layout;
    let KvGroup { layers: _, tokens_per_block: _, bytes_per_block: _, sees: _ } = &kv[0];
    let GraphPolicy { full: _, piecewise: _, pieces: _, eager_launches: _ } = graphs;
    let HostPlan { overlapped: _, workers: _ } = host;
    let FrontEndPlan { stream_interval: _, processes: _, tokenises: _, detokenises: _ } = front_end;
    let ResidentTensor { name: _, count: _, bytes: _ } = &weights[0];
    let Buffer { name: _, bytes: _ } = &buffers[0];
    let LoweredLayer { layer: _, stage: _, primitive: _, kernel, shape, part: _, rows: _, runs_for: _, start: _ } = &layers[0];
    let Some(DensePrompts { generates_to: _, ends_within: _ }) = dense_prompts else { panic!("the plan has a rule") };
    let KernelImpl { library: _, variant: _, code_hash: _, toolkit: _ } = kernel;
    match shape {
        PrimitiveShape::Gemm { columns: _, depth: _, format: _ }
        | PrimitiveShape::BatchedGemm { batch: _, columns: _, depth: _, format: _ }
        | PrimitiveShape::Latent { query_heads: _, kv_heads: _, key_dim: _, value_dim: _, kv_group: _, format: _ }
        | PrimitiveShape::Traffic { bytes: _ }
        | PrimitiveShape::Moe { experts: _, local_experts: _, top_k: _, hidden: _, intermediate: _, gated: _, format: _ }
        | PrimitiveShape::Attention {
            query_heads: _,
            kv_heads: _,
            head_dim: _,
            kv_group: _,
            window: _,
            chunk: _,
            sinks: _,
            kv_format: _,
            dealing: _,
        }
        | PrimitiveShape::Gathered { query_heads: _, head_dim: _, entry_bytes: _, window: _, ratio: _, top_k: _, multiplied: _ }
        | PrimitiveShape::Recurrent { heads: _, state_elements: _ }
        | PrimitiveShape::Scan { bytes_per_token: _, bytes_per_row: _ }
        | PrimitiveShape::Scores { heads: _, head_dim: _, entry_bytes: _, ratio: _, top_k: _, ranked: _, multiplied: _ }
        | PrimitiveShape::Collective { group: _, bytes_per_row: _ }
        | PrimitiveShape::Stream { bytes_per_row: _ }
        | PrimitiveShape::Sampling { vocabulary: _, trial_bytes: _ } => {}
    }
}

#[test]
fn every_field_of_a_plan_changes_a_price_or_is_listed_as_not_priced() {
    let (model, plan, shapes) = (model("h200"), everything("h200"), steps());
    let before = answers(model, &plan, &shapes);
    let listed = |field: &str| NOT_PRICED.iter().any(|(name, _)| *name == field);
    take_apart(&plan);
    for (field, change) in PLAN {
        let mut changed = plan.clone();
        change(&mut changed);
        assert_ne!(changed, plan, "{field}: the change changes nothing");
        let priced = answers(model, &changed, &shapes) != before;
        assert!(priced || listed(field), "{field} changes no price");
        assert!(!(priced && listed(field)), "{field} is priced now: take it off the list");
    }
}

#[test]
fn the_list_of_what_is_not_priced_only_shrinks_and_names_real_fields() {
    assert!(NOT_PRICED.len() <= NOT_PRICED_AT_MOST);
    for (field, reason) in NOT_PRICED {
        assert!(PLAN.iter().any(|(name, _)| name == field), "{field} is no field");
        assert!(!reason.is_empty());
    }
}

#[test]
fn every_field_of_a_step_changes_its_price() {
    let changes: [Change<StepShape>; 9] = [
        ("stage", |step| step.stage = 1),
        ("ranks", |step| step.ranks.push(prefill(8_000, 0, Launch::Eager))),
        ("decode", |step| step.ranks[0].decode[0] += 5_000),
        ("decode.len", |step| step.ranks[0].decode.push(1)),
        ("prefill.query", |step| step.ranks[0].prefill[0].query += 128),
        ("prefill.context", |step| step.ranks[0].prefill[0].context += 5_000),
        ("sampled", |step| step.ranks[0].sampled += 1),
        ("padded_tokens", |step| step.ranks[0].padded_tokens += 8),
        ("launch", |step| step.ranks[0].launch = Launch::Full),
    ];
    let mut plan = everything("h200");
    plan.layout.pipeline = 2;
    plan.layers.iter_mut().filter(|layer| (10..30).contains(&layer.layer)).for_each(|layer| layer.stage = 1);
    let mut compiled = model("h200").compile(&plan).unwrap();
    let shape = StepShape { ranks: vec![mixed(&[1_000; 3], 700, 300)], stage: 0 };
    let StepShape { ranks, stage: _ } = &shape;
    let RankStep { decode: _, prefill, sampled: _, padded_tokens: _, launch: _ } = &ranks[0];
    let PrefillRow { query: _, context: _ } = prefill[0];
    let before = compiled.price(&shape);
    for (field, change) in changes {
        let mut changed = shape.clone();
        change(&mut changed);
        assert_ne!(compiled.price(&changed), before, "{field} changes no price");
    }
}

/// The coefficients of a chip with every number of one subject's entries scaled.
fn scaled(subject: Subject) -> ChipCoefficients {
    let mut entries = Registry::embedded().chip("h200").expect("the shipped registry is valid").entries().to_vec();
    for entry in entries.iter_mut().filter(|entry| entry.primitive == subject) {
        for coefficient in entry.coefficients.values_mut() {
            coefficient.value = match coefficient.value {
                0.0 => 0.5,
                large if large > 1.0 => 1.5 * large,
                small => 0.9 * small,
            };
        }
        for curve in entry.curves.values_mut() {
            curve.points.iter_mut().for_each(|point| point.1 *= 0.9);
        }
        entry.ranges.iter_mut().for_each(|range| range.latency += 1.0);
    }
    let kind = CoefficientSetKind::CoefficientSet;
    let set = CoefficientSet { kind, chip: "h200".to_owned(), family: Family::Gemm, script: "a test".to_owned(), entries };
    ChipCoefficients::new("h200", [set]).expect("scaling changes no scope")
}

#[test]
fn every_family_of_coefficients_changes_a_price() {
    let (plan, shapes) = (everything("h200"), steps());
    let before = answers(model("h200"), &plan, &shapes);
    for &subject in Subject::ALL {
        let model = CostModel::new(&chip("h200"), scaled(subject), RoutingBalance::Uniform);
        assert_ne!(answers(&model, &plan, &shapes), before, "coefficients of {subject} change no price");
    }
}

#[test]
fn the_balance_of_routing_changes_a_price() {
    let coefficients = model("h200").coefficients().clone();
    let skewed = CostModel::new(&chip("h200"), coefficients, RoutingBalance::PowerLaw { exponent: 1.0 });
    assert_ne!(answers(&skewed, &everything("h200"), &steps()), answers(model("h200"), &everything("h200"), &steps()));
}
