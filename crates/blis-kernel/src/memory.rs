//! Memory of one rank before any KV: what the plan states, what its profiling step needs, and what the runtime takes.
//!
//! Weights and buffers are the plan's figures. Activations are the largest tensors alive at once in the profiling step, plus a
//! coefficient for what an allocator and a compiler add. Graphs, communicators and the runtime's context are coefficients. What
//! nothing explains is a term of its own, which is zero here: no coefficient stands for it. Host memory of a plan that keeps
//! nothing there is zero.

use blis_contracts::environment::MemoryBreakdown;
use blis_contracts::plan::{LoweredLayer, PoolPlan, PrimitiveShape, RowSet};
use blis_contracts::step::StepShape;
use blis_contracts::units::{BytesPerNode, BytesPerRank};
use blis_registry::vocabulary::{Input, Subject, Tier};
use blis_registry::{ChipCoefficients, Query};

use crate::compiled::gathered_rows;
use crate::error::CompileError;
use crate::inputs::Inputs;
use crate::term::Term;

/// Bytes of an activation between operations.
const ACTIVATION_BYTES: u64 = 2;

/// The memory of one rank.
pub(crate) fn breakdown(plan: &PoolPlan, coefficients: &ChipCoefficients) -> Result<MemoryBreakdown, CompileError> {
    let graphs = plan.graphs.full.len() + plan.graphs.piecewise.len();
    let nodes = graphs as f64 * f64::from(plan.graphs.eager_launches);
    let group = widest_group(plan);
    let inputs = Inputs::NONE.with(Input::Ranks, f64::from(group.unwrap_or(1))).with(Input::GraphNodes, nodes);
    let coefficient = |subject| -> Result<BytesPerRank, CompileError> {
        let query = Query { subject, kernel: None, format: None, group, tier: Tier::Domain };
        Ok(whole_bytes(Term::find(coefficients, &query, &Inputs::NONE)?.price(&inputs)))
    };
    // The profiling step attends to nothing, and so has no prompts that attend densely.
    let live = plan
        .layers
        .iter()
        .filter(|layer| !layer.part.needs_dense_prompts())
        .map(|layer| live_bytes(layer, &plan.profiling, plan.layout.tensor))
        .max()
        .unwrap_or(0);
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

/// The widest group of ranks that exchange anything; none where no rank does.
fn widest_group(plan: &PoolPlan) -> Option<u32> {
    let exchanged = plan.layers.iter().filter_map(|layer| match layer.shape {
        PrimitiveShape::Collective { group, .. } => Some(group),
        PrimitiveShape::Gemm { .. }
        | PrimitiveShape::BatchedGemm { .. }
        | PrimitiveShape::Latent { .. }
        | PrimitiveShape::Traffic { .. }
        | PrimitiveShape::Attention { .. }
        | PrimitiveShape::Gathered { .. }
        | PrimitiveShape::Scores { .. }
        | PrimitiveShape::Recurrent { .. }
        | PrimitiveShape::Scan { .. }
        | PrimitiveShape::Moe { .. }
        | PrimitiveShape::Stream { .. }
        | PrimitiveShape::Sampling { .. } => None,
    });
    exchanged.chain([plan.layout.tensor]).max().filter(|group| *group > 1 && plan.layout.ranks() > 1)
}

/// Bytes of what one operation reads and writes besides weights and cache, on the first of the ranks of a step.
fn live_bytes(layer: &LoweredLayer, step: &StepShape, sharing: u32) -> u64 {
    let Some(rank) = step.ranks.first() else { return 0 };
    let rows = u64::from(match layer.rows {
        RowSet::Requests => rank.padded_tokens,
        RowSet::Tokens | RowSet::Split | RowSet::Gathered | RowSet::Sampled | RowSet::Decodes | RowSet::Prefills | RowSet::Cached => {
            layer.rows.rows(rank, gathered_rows(step), sharing)
        }
    });
    if !u32::try_from(rows).is_ok_and(|rows| layer.runs_for.contains(rows)) {
        return 0;
    }
    let per_row = match layer.shape {
        PrimitiveShape::Gemm { columns, depth, .. } => ACTIVATION_BYTES * (columns + depth),
        PrimitiveShape::BatchedGemm { batch, columns, depth, .. } => ACTIVATION_BYTES * u64::from(batch) * (columns + depth),
        PrimitiveShape::Latent { query_heads, kv_heads, key_dim, value_dim, .. } => {
            ACTIVATION_BYTES * u64::from(query_heads + kv_heads) * u64::from(key_dim + value_dim)
        }
        // Queries, keys, values and outputs.
        PrimitiveShape::Attention { query_heads, kv_heads, head_dim, .. } => {
            ACTIVATION_BYTES * 2 * u64::from(query_heads + kv_heads) * u64::from(head_dim)
        }
        // Queries and outputs.
        PrimitiveShape::Gathered { query_heads, head_dim, .. } => ACTIVATION_BYTES * 2 * u64::from(query_heads) * u64::from(head_dim),
        // Queries in 8 bits and the list in 32.
        PrimitiveShape::Scores { heads, head_dim, top_k, .. } => u64::from(heads) * u64::from(head_dim) + 4 * u64::from(top_k),
        // What each head reads and writes of a token, whose width is not stated: the side of a square state.
        PrimitiveShape::Recurrent { heads, state_elements } => ACTIVATION_BYTES * 4 * u64::from(heads) * u64::from(state_elements.isqrt()),
        // Input and output, and for each expert of a token its projections and its share of the output.
        PrimitiveShape::Moe { top_k, hidden, intermediate, gated, .. } => {
            let between = intermediate * if gated { 3 } else { 2 };
            ACTIVATION_BYTES * (2 * hidden + u64::from(top_k) * (between + hidden))
        }
        PrimitiveShape::Collective { bytes_per_row, .. } => 2 * bytes_per_row,
        // What it works in is taken when it first runs, of what start-up leaves free: no profile sees it.
        PrimitiveShape::Scan { .. } | PrimitiveShape::Traffic { .. } => 0,
        PrimitiveShape::Stream { bytes_per_row } => bytes_per_row,
        PrimitiveShape::Sampling { vocabulary, trial_bytes } => trial_bytes * vocabulary,
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
