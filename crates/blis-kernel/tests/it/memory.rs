//! Memory adds up to what the plan and the coefficients state (SUB-14).

use blis_contracts::plan::{GraphPolicy, Layout};
use blis_contracts::step::StepShape;
use blis_contracts::units::BytesPerRank;

use crate::fixture::{mixture, model};

#[test]
fn weights_and_buffers_are_the_plan_s_figures() {
    let memory = model("h200").memory(&mixture("h200")).unwrap();
    assert_eq!(memory.weights, BytesPerRank::new(36 * 420_000_000));
    assert_eq!(memory.buffers, BytesPerRank::new(64 << 20));
    let parts = [memory.weights, memory.buffers, memory.activations, memory.graphs, memory.communicators, memory.runtime];
    assert_eq!(memory.total(), parts.into_iter().sum());
}

#[test]
fn activations_grow_with_the_profiled_tokens_by_their_largest_operation() {
    let (mut plan, model) = (mixture("h200"), model("h200"));
    let full = model.memory(&plan).unwrap().activations;
    for rank in &mut plan.profiling.ranks {
        rank.padded_tokens /= 2;
    }
    let half = model.memory(&plan).unwrap().activations;
    // The experts: tokens in and out, and for each of four experts its two projections, their product and its output.
    let of_experts = 4_096 * 2 * (2 * 2_880 + 4 * (3 * 720 + 2_880));
    assert_eq!(full - half, BytesPerRank::new(of_experts));
    plan.profiling = StepShape::default();
    assert!(model.memory(&plan).unwrap().activations < half);
}

#[test]
fn one_rank_has_no_communicators_and_a_plan_without_graphs_none_of_their_memory() {
    let mut plan = mixture("h200");
    let whole = model("h200").memory(&plan).unwrap();
    assert!(whole.communicators > BytesPerRank::ZERO && whole.graphs > BytesPerRank::ZERO);
    plan.layout = Layout::SINGLE;
    plan.graphs = GraphPolicy::default();
    let least = model("h200").memory(&plan).unwrap();
    assert_eq!((least.communicators, least.graphs), (BytesPerRank::ZERO, BytesPerRank::ZERO));
}

#[test]
fn captured_graphs_cost_what_their_kernels_cost() {
    let (mut plan, model) = (mixture("h200"), model("h200"));
    let before = model.memory(&plan).unwrap().graphs;
    plan.graphs.eager_launches += 100;
    let graphs = (plan.graphs.full.len() + plan.graphs.piecewise.len()) as u64;
    assert_eq!(model.memory(&plan).unwrap().graphs - before, BytesPerRank::new(graphs * 100 * 26_624));
}
