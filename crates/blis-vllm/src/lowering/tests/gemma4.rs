//! Gemma 4: heads of two widths, norms on both sides of every part, experts beside the network of every layer.

use super::*;
use blis_contracts::plan::Primitive;

fn layer(plan: &PoolPlan, index: u32) -> Vec<String> {
    plan.layers.iter().filter(|piece| piece.layer == index).map(written).collect()
}

#[test]
fn a_layer_with_experts_norms_its_stream_before_and_behind_every_part() {
    let plan = Line("gemma-4-26b-a4b", "h200", "--max-model-len 32768").plan();
    // One row is 2816 elements in 16 bits.
    let heads = "16/8 heads of 256, group 1, window 1024, sinks false, bf16";
    let expected = [
        "gemm cublas/linear tokens: 2816 x 8192 bf16".to_owned(),
        // Queries, keys and values, read and written.
        "rope inductor/fused tokens: 32768 B a row".to_owned(),
        format!("attention.prefill flash-attn/fa4 requests: {heads}"),
        format!("attention.decode flash-attn/fa4 requests: {heads}"),
        "gemm cublas/linear tokens: 4096 x 2816 bf16".to_owned(),
        // Attention's answer and the stream are read; the stream and the inputs of network, experts and router are written.
        format!("norm inductor/fused tokens: {} B a row", 6 * 5632),
        "gemm cublas/linear tokens: 2816 x 4224 bf16".to_owned(),
        "activation inductor/fused tokens: 12672 B a row".to_owned(),
        "gemm cublas/linear tokens: 2112 x 2816 bf16".to_owned(),
        "gemm cublas/linear tokens: 2816 x 128 bf16".to_owned(),
        "moe.experts triton/fused-moe tokens: 8 of 128 (128 here), 2816 x 704 gated true bf16".to_owned(),
        // Both answers and the stream are read; the stream and the next layer's input are written.
        format!("norm inductor/fused tokens: {} B a row", 5 * 5632),
    ];
    assert_eq!(layer(&plan, 1), expected);
    let full = layer(&plan, 5);
    assert_eq!(full[0], "gemm cublas/linear tokens: 2816 x 10240 bf16", "the keys' matrix is multiplied twice");
    assert_eq!(full[2], "attention.prefill flash-attn/fa4 requests: 16/2 heads of 512, group 5, window 0, sinks false, bf16");
    assert_eq!(plan.layers.iter().filter(|piece| piece.primitive == Primitive::MoeExperts).count(), 30);
}

#[test]
fn each_width_has_the_kernel_that_reads_it() {
    let attends = |model: &'static str, chip: &'static str, arguments: &'static str| {
        let plan = Line(model, chip, arguments).plan();
        let kernel = |index: u32, of: Primitive| {
            let found = plan.layers.iter().find(|piece| piece.layer == index && piece.primitive == of);
            found.map(|piece| piece.kernel.variant.clone()).unwrap_or_default()
        };
        [
            (0, Primitive::AttentionPrefill),
            (0, Primitive::AttentionDecode),
            (5, Primitive::AttentionPrefill),
            (5, Primitive::AttentionDecode),
        ]
        .map(|(index, of)| kernel(index, of))
    };
    assert_eq!(attends("gemma-4-26b-a4b", "h100", ""), ["fa4"; 4]);
    // With keys and values in 8 bits FlashAttention 4 reads the wider heads alone.
    assert_eq!(attends("gemma-4-31b-it-nvfp4", "h200", ""), ["fa3", "fa3", "fa4", "fa4"]);
    let trtllm = ["trtllm-gen-prefill", "trtllm-gen-decode", "trtllm-gen-prefill", "trtllm-gen-decode"];
    assert_eq!(attends("gemma-4-31b-it-nvfp4", "b200", ""), trtllm);
    assert_eq!(attends("gemma-4-26b-a4b", "b300", "--language-model-only"), trtllm);
    assert_eq!(attends("gemma-4-26b-a4b", "a100-sxm", ""), ["unified-attention"; 4]);
    let line = "--language-model-only --attention-backend FLASHINFER --kv-cache-dtype fp8";
    assert_eq!(attends("gemma-4-26b-a4b", "h100", line), ["fa3-prefill", "xqa-decode", "fa3-prefill", "fa2-decode"]);
}

#[test]
fn network_and_experts_sum_apart_and_the_norm_behind_a_sum_is_fused_into_it() {
    let plan = Line("gemma-4-26b-a4b", "h200", "--tensor-parallel-size 2").plan();
    let fused = |index: u32| {
        let found = |piece: &&LoweredLayer| piece.layer == index && piece.kernel.variant == "fused-all-reduce-norm";
        plan.layers.iter().filter(found).count()
    };
    assert_eq!((fused(0), fused(29)), (3, 3), "behind attention, network and experts; none behind the embedding");
    let eager = Line("gemma-4-26b-a4b", "h200", "--tensor-parallel-size 2 --enforce-eager").plan();
    let count = |variant: &str| eager.layers.iter().filter(|piece| piece.layer == 1 && piece.kernel.variant == variant).count();
    // Seven norms of the stream, the router's and one kernel for those of heads.
    assert_eq!((count("rms-norm"), count("fused-all-reduce-norm")), (9, 0));
    // Attention's answer, the experts' and the layer's are added.
    assert_eq!((count("add"), count("gelu-tanh-and-mul")), (3, 1));
}

#[test]
fn a_router_compiled_with_its_layer_keeps_the_kernel_it_was_traced_with() {
    let routers = |arguments: &'static str| {
        let plan = Line("gemma-4-26b-a4b", "h200", arguments).plan();
        layer(&plan, 0).into_iter().filter(|piece| piece.contains("2816 x 128 ")).collect::<Vec<_>>()
    };
    assert_eq!(routers(""), ["gemm cublas/linear tokens: 2816 x 128 bf16"]);
    let eager =
        ["gemm vllm-cutedsl/few-rows-router-gemm tokens to 16: 2816 x 128 bf16", "gemm cublas/linear tokens from 17: 2816 x 128 bf16"];
    assert_eq!(routers("--enforce-eager"), eager);
}

#[test]
fn experts_run_on_kernels_that_have_their_activation() {
    let experts = |model: &'static str, chip: &'static str, arguments: &'static str| {
        let plan = Line(model, chip, arguments).plan();
        layer(&plan, 0).into_iter().find(|piece| piece.starts_with("moe.experts")).unwrap_or_default()
    };
    let cutlass = experts("gemma-4-26b-a4b", "b200", "");
    assert!(cutlass.starts_with("moe.experts flashinfer/cutlass-moe tokens"), "{cutlass}");
    let lockstep = experts("gemma-4-26b-a4b", "b200", "--data-parallel-size 2");
    assert!(lockstep.starts_with("moe.experts triton/fused-moe"), "{lockstep}");
    let narrow = experts("gemma-4-26b-a4b-nvfp4", "b200", "--tensor-parallel-size 2");
    assert_eq!(narrow, "moe.experts flashinfer/trtllm-gen-moe tokens: 8 of 128 (128 here), 2816 x 384 gated true nvfp4");
    let refused = Line("gemma-4-26b-a4b", "b200", "--moe-backend flashinfer_trtllm").lower().unwrap_err().to_string();
    assert!(refused.starts_with("--moe-backend flashinfer_trtllm: the backend does not support experts stored as bf16"), "{refused}");
}

#[test]
fn logits_are_capped_by_kernels_of_their_own_before_they_are_sampled() {
    let plan = Line("gemma-4-31b-it-nvfp4", "b200", "--tensor-parallel-size 2").plan();
    let sampled: Vec<String> = plan.layers.iter().filter(|piece| piece.rows == RowSet::Sampled).map(written).collect();
    let cap = "activation torch/elementwise sampled: 1048576 B a row";
    let expected = [
        "gemm cublas/linear sampled: 5376 x 131072 bf16",
        "collective.all_gather nccl/all-gather sampled: 262144 B a row over 2",
        "activation torch/copy sampled from 2: 1048576 B a row",
        cap,
        cap,
        cap,
        "sampling triton/gumbel-sampler sampled: 262144 logits",
    ];
    assert_eq!(sampled, expected);
    // 4-bit matrices read what a kernel of its own quantised, since no pass knows this activation.
    let dense = layer(&plan, 0);
    assert_eq!(dense.iter().filter(|piece| piece.contains("vllm-csrc/quantise")).count(), 2, "{dense:#?}");
}

#[test]
fn tables_of_both_widths_turn_heads_and_steps_are_as_long_as_a_video() {
    let plan = Line("gemma-4-26b-a4b", "a100-sxm", "").plan();
    let table = plan.buffers.iter().find(|buffer| buffer.name == "rotary table").unwrap();
    assert_eq!(table.bytes.get(), 262_144 * (256 + 512) * 2);
    assert_eq!(plan.profiling.ranks[0].padded_tokens, 2496);
    let text = Line("gemma-4-26b-a4b", "a100-sxm", "--language-model-only").plan();
    assert_eq!(text.profiling.ranks[0].padded_tokens, 2048);
}

#[test]
fn ranks_of_several_cores_keep_every_token_of_theirs_in_front_of_the_experts() {
    let plan = Line("gemma-4-26b-a4b", "h200", "--tensor-parallel-size 4 --data-parallel-size 2 --enable-expert-parallel").plan();
    let pieces = layer(&plan, 1);
    let at = pieces.iter().position(|piece| piece.contains("2816 x 128 ")).expect("a router");
    let network = pieces[..at].iter().rfind(|piece| piece.starts_with("gemm")).expect("a network");
    assert_eq!(network, "gemm cublas/linear tokens: 528 x 2816 bf16", "a rank has a quarter of it");
    let expected = [
        "gemm cublas/linear tokens: 2816 x 128 bf16",
        "collective.all_gather nccl/all-gather tokens: 5696 B a row over 2",
        "moe.experts triton/fused-moe gathered: 8 of 128 (16 here), 2816 x 704 gated true bf16",
        "collective.reduce_scatter nccl/reduce-scatter tokens: 5632 B a row over 2",
    ];
    assert_eq!(pieces[at..at + 4], expected);
    assert!(plan.layers.iter().all(|piece| piece.rows != RowSet::Split));
}
