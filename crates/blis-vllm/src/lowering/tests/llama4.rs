//! Llama 4: chunks beside layers without positions, experts that read what a router has weighed.

use super::*;
use crate::kv::group::Attention;
use crate::lowering::kv_layers;
use blis_contracts::plan::{KvSpan, Primitive};

const EIGHT: &str = "--tensor-parallel-size 8 --max-model-len 131072";

fn layer(plan: &PoolPlan, index: u32) -> Vec<String> {
    plan.layers.iter().filter(|piece| piece.layer == index).map(written).collect()
}

#[test]
fn a_layer_of_chunks_turns_and_norms_and_the_others_scale_queries() {
    let plan = Line("llama-4-scout", "h100", EIGHT).plan();
    let attends = |index: u32| {
        let found = |piece: &String| piece.starts_with("rope") || piece.starts_with("attention");
        layer(&plan, index).into_iter().filter(found).collect::<Vec<_>>()
    };
    let heads = "5/1 heads of 128, group 0, window 0, chunk 8192, sinks false, bf16";
    let expected = [
        // Five query heads and a key head, read and written; the norms are part of the same compiled kernel.
        "rope inductor/fused tokens: 3072 B a row".to_owned(),
        format!("attention.prefill flash-attn/fa3 requests: {heads}"),
        format!("attention.decode flash-attn/fa3 requests: {heads}"),
    ];
    assert_eq!(attends(0), expected);
    let full = attends(3);
    assert_eq!(full[0], "rope inductor/fused tokens: 2560 B a row");
    assert!(full[1].ends_with("5/1 heads of 128, group 3, window 0, sinks false, bf16"), "{full:?}");
}

#[test]
fn a_router_weighs_what_experts_read_in_kernels_of_their_own_where_experts_do_not_do_it() {
    let weighing = |chip: &str| {
        let plan = Line("llama-4-scout", chip, EIGHT).plan();
        layer(&plan, 0)
            .into_iter()
            .filter(|piece| piece.contains("torch/elementwise") || piece.starts_with("moe.experts"))
            .collect::<Vec<_>>()
    };
    let hopper = weighing("h100");
    assert_eq!(hopper.len(), 5 + 1, "{hopper:?}");
    assert_eq!(hopper[4], "activation torch/elementwise tokens: 20480 B a row");
    assert_eq!(hopper[5], "moe.experts triton/fused-moe tokens: 1 of 16 (16 here), 5120 x 1024 gated true bf16");
    // Rows are weighed before they travel to the experts of other engine cores.
    let two = Line("llama-4-scout", "h100", "--tensor-parallel-size 4 --data-parallel-size 2 --max-model-len 131072").plan();
    let two = layer(&two, 0);
    let at = two.iter().position(|piece| piece.starts_with("collective.all_gather")).unwrap();
    assert_eq!(two[at - 1], "activation torch/elementwise tokens: 20480 B a row", "{two:#?}");
    let blackwell = weighing("b200");
    assert_eq!(blackwell, ["moe.experts flashinfer/trtllm-gen-moe tokens: 1 of 16 (16 here), 5120 x 1024 gated true bf16"]);
}

#[test]
fn every_second_layer_of_maverick_has_experts_beside_a_shared_one() {
    let plan = Line("llama-4-maverick", "h200", EIGHT).plan();
    let count = |found: &dyn Fn(&LoweredLayer) -> bool| plan.layers.iter().filter(|piece| found(piece)).count();
    assert_eq!(count(&|piece| piece.primitive == Primitive::MoeExperts), 24);
    assert_eq!(count(&|piece| piece.primitive == Primitive::Beside), 24);
    assert!(!plan.layers.iter().any(|piece| piece.kernel.variant == "qk-norm"));
    let dense = layer(&plan, 0);
    assert!(dense.contains(&"gemm cublas/linear tokens: 5120 x 4096 bf16".to_owned()), "{dense:#?}");
}

#[test]
fn three_groups_of_chunks_stand_beside_one_that_keeps_every_block() {
    let (model, chip) = (model("llama-4-scout"), chip("h100"));
    let line = format!("vllm serve m {EIGHT}");
    let stated = read(Launch { command: Some(&line), args: None, env: &[], written_for: None }).unwrap();
    let resolved = resolve(&stated, Machine { model: &model, chip: &chip, gpus: 8 }).unwrap();
    let layers = kv_layers(&model, &resolved, &chip).unwrap();
    let chunked = layers.iter().filter(|layer| layer.attention == Attention::Chunked { chunk: 8192 }).count();
    assert_eq!((layers.len(), chunked), (48, 36));
    // One key head of 128 and its values in 16 bits.
    assert!(layers.iter().all(|layer| layer.page_bytes == 16 * 2 * 128 * 2));
    let plan = Line("llama-4-scout", "h100", EIGHT).plan();
    let groups: Vec<(u32, KvSpan)> = plan.kv.iter().map(|group| (group.layers, group.sees)).collect();
    let chunk = (12, KvSpan::Chunk(8192));
    assert_eq!(groups, [chunk, chunk, chunk, (12, KvSpan::All)]);
    // No graph holds a whole pass, which is cut at each layer's attention.
    assert!(plan.graphs.full.is_empty() && !plan.graphs.piecewise.is_empty());
    assert_eq!(plan.graphs.pieces, 49);
}
