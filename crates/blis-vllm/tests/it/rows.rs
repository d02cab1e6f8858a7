//! The products of a lowered pass against those that upstream's own forward functions call (`oracle/rows.py`).
//!
//! Compared by shape: rows, outputs, inputs, and how often; where ranks divide tokens, also what they gather and scatter. What upstream does inside one opaque call is counted by the rule the recording
//! states for it; the up-projection within latent attention is left out on both sides.

use std::collections::BTreeMap;

use blis_contracts::plan::{LoweredLayer, PoolPlan, Primitive, PrimitiveShape, RowSet};
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
    /// Engine cores; where there are several, their ranks share experts whole.
    cores: u32,
    /// Of one engine core; the others have as many.
    tokens: u32,
    /// Layer, rows, outputs, inputs, and how many layers call alike. A collective over rows has no inputs.
    rows: Vec<(String, u64, u64, u64, u64)>,
}

impl Case {
    fn line(&self) -> String {
        let (ranks, cores) = (self.ranks, self.cores);
        let whole = if cores > 1 { "--enable-expert-parallel" } else { "" };
        format!("--tensor-parallel-size {ranks} --data-parallel-size {cores} {whole}")
    }

    /// The rows of what a rank runs over tokens; none over requests of one kind.
    fn rows(&self, over: RowSet, sampled: u32) -> Option<u32> {
        match over {
            RowSet::Tokens => Some(self.tokens),
            RowSet::Split => Some(self.tokens.div_ceil(self.ranks)),
            RowSet::Gathered => Some(self.tokens * self.cores),
            RowSet::Sampled => Some(sampled),
            RowSet::Requests | RowSet::Decodes | RowSet::Prefills | RowSet::Cached => None,
        }
    }
}

/// Rows, outputs and inputs of a product, with the number of its calls; a gathering and a scattering of so many rows and elements.
type Products = BTreeMap<(&'static str, u64, u64, u64), u64>;

const PRODUCT: &str = "product";
const GATHERING: &str = "gathering";
const SCATTERING: &str = "scattering";

/// Bytes of an element of activations.
const ELEMENT_BYTES: u64 = 2;

const RECORDING: &str = include_str!("../../oracle/rows.json");

fn products(plan: &PoolPlan, case: &Case, sampled: u32) -> Products {
    let mut products = Products::new();
    for piece in &plan.layers {
        let Some(rows) = case.rows(piece.rows, sampled).filter(|&rows| piece.runs_for.contains(rows)).map(u64::from) else { continue };
        let mut add = |rows, outputs, inputs| *products.entry((PRODUCT, rows, outputs, inputs)).or_default() += 1;
        match piece.shape {
            PrimitiveShape::Collective { group, bytes_per_row } if piece.rows == RowSet::Split && group == case.ranks => {
                let what = if piece.primitive == Primitive::AllGather { GATHERING } else { SCATTERING };
                *products.entry((what, rows, bytes_per_row / ELEMENT_BYTES, 0)).or_default() += 1;
            }
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
    let divided = recording.cases.iter().filter(|case| case.cores > 1).count();
    assert!(divided >= 10, "only {divided} passes over parts of the tokens");
    assert!(recording.cases.len() >= 16, "only {} passes", recording.cases.len());
    let mut differences = Vec::new();
    for case in &recording.cases {
        let plan = lowered(&case.model, &case.gpu, &case.line()).unwrap();
        let own = if case.cores > 1 { case.tokens.div_ceil(case.ranks) } else { case.tokens };
        let mut theirs = Products::new();
        for (layer, rows, outputs, inputs, calls) in &case.rows {
            if own <= BESIDE_MOST_TOKENS && layer.contains("shared_expert") {
                let beside = plan.layers.iter().filter(|piece| piece.runs_for.contains(own)).filter(|piece| is_beside(piece));
                assert_eq!(beside.count() as u64, *calls, "{}: shared experts run beside the others", case.model);
                continue;
            }
            let what = match layer.as_str() {
                "tp.all_gather" => GATHERING,
                "tp.reduce_scatter" => SCATTERING,
                _ => PRODUCT,
            };
            *theirs.entry((what, *rows, *outputs, *inputs)).or_default() += calls;
        }
        let ours = products(&plan, case, recording.sampled);
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
