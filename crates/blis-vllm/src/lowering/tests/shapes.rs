//! The pieces of a layer, and the plan around them.

use blis_contracts::plan::{KvSpan, Layout, Primitive};

use super::*;

fn layer(plan: &PoolPlan, index: u32) -> Vec<String> {
    plan.layers.iter().filter(|piece| piece.layer == index).map(written).collect()
}

#[test]
fn a_layer_of_gpt_oss_120b_on_four_ranks() {
    let plan = Line("gpt-oss-120b", "h200", "--tensor-parallel-size 4").plan();
    let sum = [
        "collective.all_reduce flashinfer/fused-all-reduce-norm tokens to 364: 5760 B a row over 4",
        "collective.all_reduce vllm-csrc/custom-all-reduce tokens 365 to 1456: 5760 B a row over 4",
        "collective.all_reduce torch/symmetric-memory tokens 1457 to 5825: 5760 B a row over 4",
        "collective.all_reduce nccl/all-reduce tokens from 5826: 5760 B a row over 4",
        "norm inductor/fused tokens from 365: 23040 B a row",
    ];
    let attention = [
        "gemm cublas/linear tokens: 2880 x 1280 bf16",
        "rope inductor/fused tokens: 4608 B a row",
        // Windows differ from layer to layer, so that no plan serves the step.
        "activation flash-attn/fa3-share-out tokens: 16 B a row",
        "attention.prefill flash-attn/fa3 requests: 16/2 heads of 64, group 1, window 0, sinks true, bf16",
        "attention.decode flash-attn/fa3 requests: 16/2 heads of 64, group 1, window 0, sinks true, bf16",
        "gemm cublas/linear tokens: 1024 x 2880 bf16",
    ];
    let experts = [
        "gemm cublas/linear tokens: 2880 x 128 bf16",
        "moe.experts openai-triton/mxfp4 tokens: 4 of 128 (128 here), 2880 x 768 gated true mxfp4",
    ];
    assert_eq!(layer(&plan, 1), [&attention[..], &sum, &experts, &sum].concat());
    assert_eq!(plan.layout, Layout { tensor: 4, ..Layout::SINGLE });
    assert_eq!((plan.kv.len(), plan.kv[0].sees, plan.kv[1].sees), (2, KvSpan::Window(128), KvSpan::All));
    // 18 layers of a group, 16 tokens, keys and values of two heads of 64 in 16 bits.
    assert_eq!(plan.kv[0].bytes_per_block.get(), 18 * 16 * 2 * 2 * 64 * 2);
}

#[test]
fn padded_experts_are_padded_in_front_and_summed_whole() {
    let plan = Line("gpt-oss-120b", "h200", "--tensor-parallel-size 4 --moe-backend marlin").plan();
    let layer = layer(&plan, 1);
    let after_router = &layer[layer.iter().position(|line| line.contains("x 128 bf16")).unwrap() + 1..];
    assert_eq!(
        after_router,
        [
            "activation inductor/fused tokens: 11904 B a row",
            "moe.experts marlin/moe tokens: 4 of 128 (128 here), 3072 x 768 gated true mxfp4",
            "collective.all_reduce flashinfer/all-reduce tokens to 341: 6144 B a row over 4",
            "collective.all_reduce vllm-csrc/custom-all-reduce tokens 342 to 1365: 6144 B a row over 4",
            "collective.all_reduce torch/symmetric-memory tokens 1366 to 5461: 6144 B a row over 4",
            "collective.all_reduce nccl/all-reduce tokens from 5462: 6144 B a row over 4",
            "norm inductor/fused tokens: 23040 B a row",
        ]
    );
}

#[test]
fn a_layer_of_llama_70b_in_8_bits_on_one_rank() {
    let plan = Line("llama-3.1-70b-instruct-fp8", "h100", "--tensor-parallel-size 1 --kv-cache-dtype fp8").plan();
    assert_eq!(
        layer(&plan, 40),
        [
            "gemm cutlass/scaled-mm-fp8 tokens: 8192 x 10240 fp8",
            "rope inductor/fused tokens: 36864 B a row",
            "attention.prefill flash-attn/fa3 requests: 64/8 heads of 128, group 0, window 0, sinks false, fp8",
            "attention.decode flash-attn/fa3 requests: 64/8 heads of 128, group 0, window 0, sinks false, fp8",
            "activation vllm-csrc/quantise tokens: 24576 B a row",
            "gemm cutlass/scaled-mm-fp8 tokens: 8192 x 8192 fp8",
            "norm inductor/fused tokens: 57344 B a row",
            "gemm cutlass/scaled-mm-fp8 tokens: 8192 x 57344 fp8",
            "activation inductor/fused tokens: 143360 B a row",
            "gemm cutlass/scaled-mm-fp8 tokens: 28672 x 8192 fp8",
            "norm inductor/fused tokens: 57344 B a row",
        ]
    );
}

#[test]
fn logits_are_computed_over_a_share_of_the_padded_vocabulary_gathered_and_sampled() {
    let plan = Line("gpt-oss-20b", "h100", "--tensor-parallel-size 8").plan();
    let sampled: Vec<String> = plan.layers.iter().filter(|piece| piece.rows == RowSet::Sampled).map(written).collect();
    assert_eq!(
        sampled,
        [
            "gemm cublas/linear sampled: 2880 x 25136 bf16",
            "collective.all_gather nccl/all-gather sampled: 50272 B a row over 8",
            // A single row lies as it should.
            "activation torch/copy sampled from 2: 804352 B a row",
            "sampling triton/gumbel-sampler sampled: 201088 logits",
        ]
    );
}

#[test]
fn key_heads_are_repeated_where_there_are_more_ranks() {
    let heads = |ranks: u32| {
        let plan = Line("qwen3-30b-a3b", "h200", &format!("--tensor-parallel-size {ranks}")).plan();
        let heads = |piece: &LoweredLayer| {
            let PrimitiveShape::Attention { query_heads, kv_heads, .. } = piece.shape else { return None };
            Some((query_heads, kv_heads))
        };
        plan.layers.iter().find_map(heads)
    };
    assert_eq!([1, 4, 8].map(heads), [Some((32, 4)), Some((8, 1)), Some((4, 1))]);
}

#[test]
fn expert_parallel_ranks_hold_whole_experts_and_share_everything_else_as_before() {
    let of = |arguments: &str| {
        let plan = Line("minimax-m2.5", "b200", arguments).plan();
        let experts = |piece: &LoweredLayer| {
            let PrimitiveShape::Moe { experts, local_experts, intermediate, .. } = piece.shape else { return None };
            Some((experts, local_experts, intermediate))
        };
        let weights: u64 = plan.weights.iter().map(|tensor| u64::from(tensor.count) * tensor.bytes.get()).sum();
        let sums = plan.layers.iter().filter(|piece| piece.primitive == Primitive::AllReduce).count();
        (plan.layers.iter().find_map(experts).unwrap(), plan.layout.expert, weights, sums)
    };
    let (shared, whole) = (of("--tensor-parallel-size 4"), of("--tensor-parallel-size 4 --enable-expert-parallel"));
    assert_eq!((shared.0, shared.1), ((256, 256, 384), 1));
    assert_eq!((whole.0, whole.1), ((256, 64, 1536), 4));
    assert_eq!((shared.2, shared.3), (whole.2, whole.3));
    assert_eq!(of("--enable-expert-parallel").1, 1);
}

/// Pieces of one layer from its router to the sum or norm behind its experts.
fn around_experts(line: Line<'_>) -> Vec<String> {
    let plan = line.plan();
    let layer: Vec<&LoweredLayer> = plan.layers.iter().filter(|piece| piece.layer == 1).collect();
    let experts = layer.iter().position(|piece| piece.primitive == Primitive::MoeExperts).unwrap();
    layer[experts - 1..].iter().take(5).map(|piece| written(piece)).collect()
}

#[test]
fn engine_cores_in_lockstep_gather_tokens_for_their_experts_and_scatter_the_sums() {
    // Half a byte an element and a scale for 16 of them, and eight choices of eight bytes.
    let nvfp4 = around_experts(Line("minimax-m2.5-nvfp4", "b200", "--data-parallel-size 2 --enable-expert-parallel"));
    assert_eq!(
        nvfp4[..4],
        [
            "collective.all_gather nccl/all-gather tokens: 1792 B a row over 2",
            "moe.experts flashinfer/trtllm-gen-moe gathered: 8 of 256 (128 here), 3072 x 1536 gated true nvfp4",
            "collective.reduce_scatter nccl/reduce-scatter tokens: 6144 B a row over 2",
            "norm inductor/fused tokens: 24576 B a row",
        ]
    );
    // Without whole experts every rank holds a part of each, and the kernel picks: 256 scores of 32 bits travel.
    let parts = around_experts(Line("minimax-m2.5-nvfp4", "b200", "--data-parallel-size 2"));
    assert_eq!(parts[0], "collective.all_gather nccl/all-gather tokens: 2752 B a row over 2");
    assert_eq!(parts[1], "moe.experts flashinfer/trtllm-gen-moe gathered: 8 of 256 (256 here), 3072 x 768 gated true nvfp4");
}

#[test]
fn tensor_parallel_ranks_of_cores_in_lockstep_take_parts_of_the_tokens_where_the_model_does() {
    let arguments = "--tensor-parallel-size 2 --data-parallel-size 2 --enable-expert-parallel";
    let parts = around_experts(Line("qwen3-30b-a3b", "h200", arguments));
    assert_eq!(
        parts,
        [
            "collective.all_gather nccl/all-gather split: 4160 B a row over 4",
            "moe.experts triton/fused-moe gathered: 8 of 128 (32 here), 2048 x 768 gated true bf16",
            "collective.reduce_scatter nccl/reduce-scatter split: 4096 B a row over 4",
            "collective.all_gather nccl/all-gather split: 4096 B a row over 2",
            "norm inductor/fused tokens: 16384 B a row",
        ]
    );
    // A kernel for 16 bits picks from parts too: 128 scores of a row travel with it.
    let picking = around_experts(Line("qwen3-30b-a3b", "b200", arguments));
    assert_eq!(picking[0], "collective.all_gather nccl/all-gather split: 4352 B a row over 4");
    let whole = around_experts(Line("minimax-m2.5", "b200", arguments));
    assert!(whole[0].starts_with("collective.all_gather nccl/all-gather tokens:") && whole[0].ends_with("over 2"), "{}", whole[0]);
    assert!(whole[3].starts_with("collective.all_reduce"), "{}", whole[3]);
}

#[test]
fn engine_cores_of_a_dense_model_exchange_nothing_and_each_is_what_one_would_be() {
    let one = Line("llama-3.1-8b-instruct", "h100", "").plan();
    let two = Line("llama-3.1-8b-instruct", "h100", "--data-parallel-size 2").plan();
    assert_eq!((one.layers, one.weights, one.profiling), (two.layers, two.weights, two.profiling));
    assert_eq!((two.layout.data, two.layout.ranks()), (2, 2));
}

#[test]
fn norms_over_all_heads_sum_over_the_ranks_and_routers_stay_in_32_bits() {
    let layer = |arguments: &str| {
        let plan = Line("minimax-m2.5", "h200", arguments).plan();
        let pieces = plan.layers.iter().filter(|piece| piece.layer == 1).map(written);
        pieces.filter(|piece| ["minimax", "router", "fp32", "cast", "rope"].iter().any(|word| piece.contains(word))).collect::<Vec<_>>()
    };
    let router = [
        "activation torch/cast tokens from 33: 18432 B a row",
        "gemm vllm-csrc/fp32-router-gemm tokens to 32: 3072 x 256 fp32",
        "gemm cublas/linear tokens from 33: 3072 x 256 fp32",
    ];
    let alone = layer("");
    assert_eq!(alone[0], "rope inductor/fused tokens: 14336 B a row");
    assert_eq!(alone[1..], router);
    let four = layer("--tensor-parallel-size 4 --max-num-batched-tokens 8192");
    assert_eq!(
        four[..4],
        [
            "collective.all_reduce vllm-csrc/minimax-qk-norm-all-reduce tokens to 2048: 8 B a row over 4",
            "norm triton/minimax-qk-norm tokens from 2049: 3592 B a row",
            "norm triton/minimax-qk-norm tokens from 2049: 7176 B a row",
            "rope inductor/fused tokens: 3584 B a row",
        ]
    );
    assert_eq!(four[4..], router);
}

#[test]
fn many_rows_of_a_router_in_32_bits_meet_tensor_cores_only_where_bits_may_drop_or_weights_are_split() {
    let many = |chip, environment| {
        let plan = Line("minimax-m2.5", chip, environment).plan();
        let router = |piece: &&LoweredLayer| piece.layer == 1 && written(piece).contains("from 33: 3072 x 256");
        plan.layers.iter().filter(router).map(written).collect::<Vec<_>>()
    };
    assert_eq!(many("h200", ""), ["gemm cublas/linear tokens from 33: 3072 x 256 fp32"]);
    assert_eq!(many("h200", "VLLM_FLOAT32_MATMUL_PRECISION=high"), ["gemm cublas/linear-tf32 tokens from 33: 3072 x 256 fp32"]);
    assert_eq!(many("b200", ""), ["gemm vllm-cutedsl/bf16x3-router-gemm tokens from 33: 3072 x 256 fp32_bf16"]);
}

#[test]
fn the_profiled_step_is_as_large_as_a_step_may_be() {
    let plan = Line("gpt-oss-120b", "h200", "--max-num-seqs 64 --max-num-batched-tokens 8200").plan();
    let rank = &plan.profiling.ranks[0];
    assert_eq!((rank.tokens(), rank.padded_tokens, rank.sampled, rank.requests()), (8200, 8200, 64, 64));
}

#[test]
fn graphs_and_host_follow_the_configuration() {
    let plan = Line("gpt-oss-120b", "h200", "--tensor-parallel-size 4 --max-cudagraph-capture-size 16 --stream-interval 20").plan();
    assert_eq!(plan.graphs.full, [1, 2, 4, 8, 16]);
    assert_eq!((plan.graphs.piecewise.len(), plan.graphs.pieces), (5, 37));
    assert_eq!((plan.host.workers, plan.host.overlapped, plan.in_flight), (4, true, 2));
    assert_eq!(plan.front_end.stream_interval, 20);
    let eager = Line("gpt-oss-120b", "h200", "--enforce-eager").plan();
    assert!(eager.graphs.full.is_empty() && eager.graphs.piecewise.is_empty());
    assert_eq!(eager.host.workers, 0);
    let decode_only = Line("gpt-oss-120b", "h200", "--compilation-config.cudagraph_mode FULL_DECODE_ONLY").plan();
    assert!(!decode_only.graphs.full.is_empty() && decode_only.graphs.piecewise.is_empty());
}

#[test]
fn a_width_the_ranks_cannot_share_is_refused() {
    let (model, chip) = (model("gpt-oss-120b"), chip("h200"));
    let stated = read(Launch { command: Some("vllm serve m"), args: None, env: &[], written_for: None }).unwrap();
    let mut resolved = resolve(&stated, Machine { model: &model, chip: &chip, gpus: 8 }).unwrap();
    resolved.tensor_parallel_size = 7;
    assert_eq!(
        lower(&model, &resolved, &chip).unwrap_err().to_string(),
        "a padded vocabulary of 201088 cannot be shared by 7 ranks; state a --tensor-parallel-size that divides it"
    );
}

#[test]
fn the_first_model_runner_tries_its_sampler_with_everything_on() {
    let sampled = |release| {
        let plan = Line("gpt-oss-120b", "h200", "").lower_as(Some(release)).unwrap();
        let sampler = plan.layers.iter().find(|layer| layer.primitive == Primitive::Sampling).unwrap();
        let PrimitiveShape::Sampling { trial_bytes, .. } = sampler.shape else { panic!("{:?}", sampler.shape) };
        (sampler.kernel.variant.clone(), trial_bytes)
    };
    assert_eq!(sampled("0.22.0"), ("sampler".to_owned(), 14));
    assert_eq!(sampled(crate::RELEASE), ("gumbel-sampler".to_owned(), 2));
}
