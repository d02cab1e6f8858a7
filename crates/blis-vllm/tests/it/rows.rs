//! The products of a lowered pass against those that upstream's own forward functions call (`oracle/rows.py`).
//!
//! Compared by shape: rows, outputs, inputs, and how often. What upstream does inside one opaque call is counted by the rule the recording
//! states for it; the up-projection within latent attention is left out on both sides.

use std::collections::BTreeMap;

use blis_contracts::plan::{LoweredLayer, PoolPlan, PrimitiveShape, RowSet};
use serde::Deserialize;

use crate::catalog::lowered;

/// Everything recorded.
#[derive(Debug, Deserialize)]
struct Recording {
    sampled: u32,
    opaque: BTreeMap<String, String>,
    cases: Vec<Case>,
}

/// One model's pass.
#[derive(Debug, Deserialize)]
struct Case {
    model: String,
    gpu: String,
    ranks: u32,
    tokens: u32,
    /// Layer, rows, outputs, inputs, and how many layers call alike.
    rows: Vec<(String, u64, u64, u64, u64)>,
}

/// Rows, outputs and inputs of a product, with the number of its calls.
type Products = BTreeMap<(u64, u64, u64), u64>;

const RECORDING: &str = include_str!("../../oracle/rows.json");

fn products(plan: &PoolPlan, tokens: u32, sampled: u32) -> Products {
    let mut products = Products::new();
    for piece in plan.layers.iter().filter(|piece| piece.runs_for.contains(tokens)) {
        let rows = match piece.rows {
            RowSet::Tokens => u64::from(tokens),
            RowSet::Sampled => u64::from(sampled),
            RowSet::Split | RowSet::Gathered | RowSet::Requests | RowSet::Decodes | RowSet::Prefills | RowSet::Cached => continue,
        };
        let mut add = |rows, outputs, inputs| *products.entry((rows, outputs, inputs)).or_default() += 1;
        match piece.shape {
            PrimitiveShape::Gemm { columns, depth, .. } => add(rows, columns, depth),
            PrimitiveShape::Moe { top_k, hidden, intermediate, gated, .. } => {
                add(rows * u64::from(top_k), intermediate * if gated { 2 } else { 1 }, hidden);
                add(rows * u64::from(top_k), hidden, intermediate);
            }
            PrimitiveShape::BatchedGemm { .. }
            | PrimitiveShape::Attention { .. }
            | PrimitiveShape::Latent { .. }
            | PrimitiveShape::Gathered { .. }
            | PrimitiveShape::Recurrent { .. }
            | PrimitiveShape::Scan { .. }
            | PrimitiveShape::Scores { .. }
            | PrimitiveShape::Collective { .. }
            | PrimitiveShape::Stream { .. }
            | PrimitiveShape::Traffic { .. }
            | PrimitiveShape::Sampling { .. } => {}
        }
    }
    products
}

/// Tokens up to which shared experts run on a stream of their own, where the port counts what their weights cost the rest.
const BESIDE_MOST_TOKENS: u32 = 256;

fn is_beside(piece: &LoweredLayer) -> bool {
    matches!(piece.shape, PrimitiveShape::Traffic { .. })
}

#[test]
fn a_pass_multiplies_what_upstream_s_forward_functions_call() {
    let recording: Recording = serde_json::from_str(RECORDING).expect("the recording has the shape of the script that writes it");
    assert_eq!(recording.opaque.len(), 5, "each opaque call has its rule");
    assert!(recording.cases.len() >= 16, "only {} passes", recording.cases.len());
    let mut differences = Vec::new();
    for case in &recording.cases {
        let plan = lowered(&case.model, &case.gpu, &format!("--tensor-parallel-size {}", case.ranks)).unwrap();
        let mut theirs = Products::new();
        for (layer, rows, outputs, inputs, calls) in &case.rows {
            if case.tokens <= BESIDE_MOST_TOKENS && layer.contains("shared_expert") {
                let beside = plan.layers.iter().filter(|piece| piece.runs_for.contains(case.tokens)).filter(|piece| is_beside(piece));
                assert_eq!(beside.count() as u64, *calls, "{}: shared experts run beside the others", case.model);
                continue;
            }
            *theirs.entry((*rows, *outputs, *inputs)).or_default() += calls;
        }
        let ours = products(&plan, case.tokens, recording.sampled);
        for product in ours.keys().chain(theirs.keys()) {
            if ours.get(product) != theirs.get(product) {
                let (found, expected) = (ours.get(product), theirs.get(product));
                differences
                    .push(format!("{} over {} tokens: {product:?}: port {found:?} times, upstream {expected:?}", case.model, case.tokens));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
