//! Memory of one rank before any KV: what the plan states, what its profiling step needs, and what the runtime takes.
//!
//! Weights and buffers are the plan's figures. Activations are the largest tensors alive at once in the profiling step, plus a
//! coefficient for what an allocator and a compiler add. Graphs, communicators and the runtime's context are coefficients. What
//! nothing explains is a term of its own, which is zero here: no coefficient stands for it. Host memory of a plan that keeps
//! nothing there is zero.

use blis_contracts::environment::MemoryBreakdown;
use blis_contracts::plan::{LoweredLayer, PoolPlan, PrimitiveShape, RowSet};
use blis_contracts::step::RankStep;
use blis_contracts::units::{BytesPerNode, BytesPerRank};
use blis_registry::vocabulary::{Input, Subject};
use blis_registry::{ChipCoefficients, Query};

use crate::error::CompileError;
use crate::inputs::Inputs;
use crate::term::Term;

/// Bytes of an activation between operations.
const ACTIVATION_BYTES: u64 = 2;

/// The memory of one rank.
pub(crate) fn breakdown(plan: &PoolPlan, coefficients: &ChipCoefficients) -> Result<MemoryBreakdown, CompileError> {
    let profiled = plan.profiling.ranks.first();
    let graphs = plan.graphs.full.len() + plan.graphs.piecewise.len();
    let inputs = Inputs::NONE.with(Input::Ranks, f64::from(plan.layout.tensor)).with(Input::Graphs, graphs as f64);
    let group = (plan.layout.ranks() > 1).then_some(plan.layout.tensor);
    let coefficient = |subject| -> Result<BytesPerRank, CompileError> {
        let query = Query { subject, kernel: None, format: None, group };
        Ok(whole_bytes(Term::find(coefficients, &query, &Inputs::NONE)?.price(&inputs)))
    };
    let live = profiled.map_or(0, |rank| plan.layers.iter().map(|layer| live_bytes(layer, rank)).max().unwrap_or(0));
    Ok(MemoryBreakdown {
        weights: plan.weights.iter().map(|tensor| tensor.bytes * u64::from(tensor.count)).sum(),
        buffers: plan.buffers.iter().map(|buffer| buffer.bytes).sum(),
        activations: BytesPerRank::new(live) + coefficient(Subject::MemoryActivationOverhead)?,
        graphs: if graphs == 0 { BytesPerRank::ZERO } else { coefficient(Subject::MemoryGraphs)? },
        communicators: if group.is_none() { BytesPerRank::ZERO } else { coefficient(Subject::MemoryCommunicator)? },
        runtime: coefficient(Subject::MemoryContext)?,
        unexplained: BytesPerRank::ZERO,
        host: BytesPerNode::ZERO,
    })
}

/// Bytes of what one operation reads and writes besides weights and cache.
fn live_bytes(layer: &LoweredLayer, step: &RankStep) -> u64 {
    let rows = u64::from(match layer.rows {
        RowSet::Tokens | RowSet::Requests => step.padded_tokens,
        RowSet::Sampled => step.sampled,
    });
    if !u32::try_from(rows).is_ok_and(|rows| layer.runs_for.contains(rows)) {
        return 0;
    }
    let per_row = match layer.shape {
        PrimitiveShape::Gemm { columns, depth, .. } => ACTIVATION_BYTES * (columns + depth),
        // Queries, keys, values and outputs.
        PrimitiveShape::Attention { query_heads, kv_heads, head_dim, .. } => {
            ACTIVATION_BYTES * 2 * u64::from(query_heads + kv_heads) * u64::from(head_dim)
        }
        // Input and output, and for each expert of a token its projections and its share of the output.
        PrimitiveShape::Moe { top_k, hidden, intermediate, gated, .. } => {
            let between = intermediate * if gated { 3 } else { 2 };
            ACTIVATION_BYTES * (2 * hidden + u64::from(top_k) * (between + hidden))
        }
        PrimitiveShape::Collective { bytes_per_row, .. } => 2 * bytes_per_row,
        PrimitiveShape::Stream { bytes_per_row } => bytes_per_row,
        // Logits in 16 bits and the 32-bit copy that is sampled from.
        PrimitiveShape::Sampling { vocabulary } => (ACTIVATION_BYTES + 4) * vocabulary,
    };
    rows * per_row
}

/// Bytes as a whole number, rounded up.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked just before the cast")]
fn whole_bytes(bytes: f64) -> BytesPerRank {
    let bytes = libm::ceil(bytes);
    assert!((0.0..1e18).contains(&bytes), "a memory term of {bytes} bytes is not a size");
    BytesPerRank::new(bytes as u64)
}
