//! Models with latent attention: their kernels, their layers, their cache and their weights.

use blis_contracts::plan::Primitive;

use super::*;

/// The kernel of one primitive, which every layer shares.
fn kernel(line: Line<'_>, primitive: Primitive) -> String {
    let plan = line.plan();
    let mut names: Vec<String> = plan.layers.iter().filter(|p| p.primitive == primitive).map(|p| p.kernel.variant.clone()).collect();
    names.dedup();
    names.join(", ")
}

fn layer(plan: &PoolPlan, index: u32) -> Vec<String> {
    plan.layers.iter().filter(|piece| piece.layer == index).map(written).collect()
}

const FP8: &str = "--tensor-parallel-size 8 --kv-cache-dtype fp8";
const AS_MEASURED: &str = "--tensor-parallel-size 8 --kv-cache-dtype fp8 --attention-config.mla_prefill_backend FLASHINFER \
                           --attention-config.use_prefill_query_quantization true";

#[test]
fn decodes_run_on_the_first_backend_that_reads_the_cache() {
    for (line, expected) in [
        (Line("deepseek-v3", "h200", "--tensor-parallel-size 8"), "fa3-mla-decode"),
        (Line("deepseek-v3", "h200", FP8), "mla-decode"),
        (Line("deepseek-v3", "b200", "--tensor-parallel-size 8"), "trtllm-gen-mla-decode"),
        (Line("kimi-k2.5-nvfp4", "b200", FP8), "trtllm-gen-mla-decode"),
        (Line("kimi-k2.5-nvfp4", "b200", "--tensor-parallel-size 8 --attention-backend CUTLASS_MLA"), "mla-decode"),
    ] {
        assert_eq!(kernel(line, Primitive::LatentDecode), expected, "{line:?}");
    }
}

#[test]
fn prompts_run_in_8_bits_only_where_the_line_the_cache_and_the_backend_say_so() {
    let prompts = |line: Line<'_>| {
        let plan = line.plan();
        let piece = plan.layers.iter().find(|p| p.primitive == Primitive::LatentPrefill).unwrap();
        let PrimitiveShape::Latent { format, .. } = piece.shape else { panic!("{piece:?}") };
        format!("{} {format}", piece.kernel.variant)
    };
    assert_eq!(prompts(Line("kimi-k2.5-nvfp4", "b200", AS_MEASURED)), "cutlass-mla-prefill fp8");
    assert_eq!(prompts(Line("kimi-k2.5-nvfp4", "b200", &AS_MEASURED.replace("FLASHINFER", "FLASH_ATTN"))), "fa4 bf16");
    assert_eq!(
        prompts(Line("kimi-k2.5-nvfp4", "b200", &AS_MEASURED.replace("cache-dtype fp8", "cache-dtype bfloat16"))),
        "cutlass-mla-prefill bf16"
    );
    assert_eq!(prompts(Line("kimi-k2.5-nvfp4", "b200", FP8)), "fa4 bf16");
    assert_eq!(prompts(Line("deepseek-v3", "h200", FP8)), "fa3 bf16");
}

#[test]
fn a_layer_of_kimi_k2_5_on_eight_ranks() {
    let plan = Line("kimi-k2.5-nvfp4", "b200", AS_MEASURED).plan();
    let attention = [
        "gemm vllm-csrc/dsv3-fused-a tokens to 16: 7168 x 2112 bf16",
        "gemm cublas/linear tokens from 17: 7168 x 2112 bf16",
        "norm inductor/fused tokens: 8192 B a row",
        "gemm cublas/linear tokens: 1536 x 1536 bf16",
        "rope inductor/fused tokens: 2304 B a row",
        "activation vllm-csrc/gather-mla-cache cached: 1152 B a row",
        "gemm cublas/linear prefills: 512 x 2048 bf16",
        "activation torch/copy prefills: 5120 B a row",
        "gemm cublas/linear cached: 512 x 2048 bf16",
        "activation torch/copy cached: 5120 B a row",
        "latent.prefill flashinfer/cutlass-mla-prefill requests: 8/8 heads of 192 and 128, group 0, fp8",
        "activation torch/copy prefills: 4096 B a row",
        "gemm.batched cublas/batched decodes: 8 of 128 x 512 bf16",
        "latent.decode flashinfer/trtllm-gen-mla-decode requests: 8/1 heads of 576 and 512, group 0, fp8",
        "gemm.batched cublas/batched decodes: 8 of 512 x 128 bf16",
        "gemm cublas/linear tokens: 1024 x 7168 bf16",
    ];
    let layer = layer(&plan, 1);
    assert_eq!(layer[..attention.len()], attention);
    let experts = [
        "gemm cublas/linear tokens: 7168 x 384 bf16",
        "moe.beside vllm/shared-experts-stream tokens to 256: 3096576 B a call",
        "activation vllm-csrc/quantise tokens from 257: 18368 B a row",
        "gemm flashinfer/cutedsl-nvfp4 tokens from 257: 7168 x 512 nvfp4",
        "activation vllm-csrc/silu-and-mul tokens from 257: 1168 B a row",
        "gemm flashinfer/cutedsl-nvfp4 tokens from 257: 256 x 7168 nvfp4",
        "activation torch/add tokens: 43008 B a row",
        "moe.experts flashinfer/trtllm-gen-moe tokens: 8 of 384 (384 here), 7168 x 256 gated true nvfp4",
    ];
    let at = layer.iter().position(|line| line.contains("7168 x 384")).unwrap();
    assert_eq!(layer[at..at + experts.len()], experts);
    // The first layer is dense.
    assert!(plan.layers.iter().all(|p| p.layer > 0 || p.primitive != Primitive::MoeExperts));
}

#[test]
fn more_ranks_do_not_make_the_cache_of_one_smaller() {
    let bytes = |ranks: u32, dtype: &str| {
        let plan = Line("kimi-k2.5-nvfp4", "b200", &format!("--tensor-parallel-size {ranks} --kv-cache-dtype {dtype}")).plan();
        assert_eq!((plan.kv.len(), plan.kv[0].layers, plan.kv[0].tokens_per_block.get()), (1, 61, 32));
        plan.kv[0].bytes_per_block.get()
    };
    assert_eq!([4, 8].map(|ranks| bytes(ranks, "fp8")), [61 * 32 * 576; 2]);
    assert_eq!([4, 8].map(|ranks| bytes(ranks, "bfloat16")), [61 * 32 * 576 * 2; 2]);
}

#[test]
fn a_block_has_the_tokens_the_backend_prefers() {
    for (chip, arguments, expected) in [
        ("h200", "--tensor-parallel-size 8", 16),
        ("h200", "--tensor-parallel-size 8 --kv-cache-dtype fp8", 64),
        ("b200", "--tensor-parallel-size 8", 32),
        ("b200", "--tensor-parallel-size 8 --attention-backend CUTLASS_MLA", 128),
        ("b200", "--tensor-parallel-size 8 --block-size 64", 64),
    ] {
        let plan = Line("deepseek-v3", chip, arguments).plan();
        assert_eq!(plan.kv[0].tokens_per_block.get(), expected, "{chip} {arguments}");
    }
}

#[test]
fn what_no_rank_shares_is_resident_on_each_and_a_quantised_up_projection_twice() {
    let tensor = |model: &str, chip: &str, ranks: u64, name: &str| {
        let plan = Line(model, chip, &format!("--tensor-parallel-size {ranks}")).plan();
        plan.weights.iter().filter(|tensor| tensor.name == name).map(|tensor| tensor.bytes.get() * u64::from(tensor.count)).sum::<u64>()
    };
    for ranks in [4, 8] {
        assert_eq!(tensor("kimi-k2.5-nvfp4", "b200", ranks, "down projections"), 61 * 2 * 2112 * 7168);
        assert_eq!(tensor("kimi-k2.5-nvfp4", "b200", ranks, "encoder projector"), 2 * 54_277_888);
        assert_eq!(tensor("kimi-k2.5-nvfp4", "b200", ranks, "encoder"), 2 * 416_866_032 / ranks);
        let up = 61 * (128 / ranks) * 256 * 512;
        assert_eq!(tensor("kimi-k2.5-nvfp4", "b200", ranks, "key and value projections"), up / 2 * 2);
        assert_eq!(tensor("kimi-k2.5-nvfp4", "b200", ranks, "key and value projections in 16 bits"), 0);
        assert_eq!(tensor("deepseek-v3", "h200", ranks, "key and value projections in 16 bits"), 2 * up);
    }
}

#[test]
fn four_bit_integers_run_on_marlin_where_humming_does_not_outrank_it() {
    assert_eq!(kernel(Line("kimi-k2.5", "b200", "--tensor-parallel-size 8"), Primitive::MoeExperts), "moe");
    let library = |chip| {
        Line("kimi-k2.5", chip, "--tensor-parallel-size 8")
            .plan()
            .layers
            .iter()
            .find(|p| p.primitive == Primitive::MoeExperts)
            .unwrap()
            .kernel
            .library
            .clone()
    };
    assert_eq!((library("b200"), library("h200")), ("marlin".to_owned(), "humming".to_owned()));
}

#[test]
fn the_first_model_runner_samples_by_other_kernels_and_changes_no_other_piece() {
    let pieces = |env: &str| Line("kimi-k2.5-nvfp4", "b200", &format!("{FP8} {env}")).plan().layers;
    let (first, second) = (pieces("VLLM_USE_V2_MODEL_RUNNER=0"), pieces(""));
    let differing: Vec<_> = first.iter().zip(&second).filter(|(a, b)| a != b).map(|(a, _)| a.primitive).collect();
    assert_eq!((first.len(), differing), (second.len(), vec![Primitive::Sampling]));
}
