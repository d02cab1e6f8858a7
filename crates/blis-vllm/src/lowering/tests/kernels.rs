//! Which kernels upstream's rules pick, by model, chip and arguments.

use blis_contracts::format::FormatName;
use blis_contracts::plan::Primitive;
use serde_json::{Value, json};

use super::*;
use crate::lowering::KERNELS;

/// The distinct kernels of some primitives, in the order they first run.
fn kernels(plan: &PoolPlan, primitives: &[Primitive]) -> String {
    let mut names: Vec<String> = Vec::new();
    for piece in plan.layers.iter().filter(|piece| primitives.contains(&piece.primitive)) {
        let format = match piece.shape {
            PrimitiveShape::Gemm { format, .. } | PrimitiveShape::BatchedGemm { format, .. } | PrimitiveShape::Moe { format, .. } => {
                format!(" {}", format.label())
            }
            PrimitiveShape::Attention { kv_format: format, .. }
            | PrimitiveShape::Latent { format, .. }
            | PrimitiveShape::Gathered { multiplied: format, .. }
            | PrimitiveShape::Scores { multiplied: format, .. } => format!(" {format}"),
            PrimitiveShape::Traffic { .. }
            | PrimitiveShape::Recurrent { .. }
            | PrimitiveShape::Scan { .. }
            | PrimitiveShape::Collective { .. }
            | PrimitiveShape::Stream { .. }
            | PrimitiveShape::Sampling { .. } => String::new(),
        };
        let name = format!("{}/{}{format}", piece.kernel.library, piece.kernel.variant);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

fn check(primitives: &[Primitive], cases: &[(Line<'_>, &str)]) {
    for (line, expected) in cases {
        assert_eq!(kernels(&line.plan(), primitives), *expected, "{line:?}");
    }
}

#[test]
fn experts_run_on_the_first_backend_that_supports_them_or_on_the_one_asked_for() {
    let mxfp8 = "--quantization-config.moe.activation mxfp8";
    check(
        &[Primitive::MoeExperts],
        &[
            (Line("gpt-oss-120b", "h100", "--tensor-parallel-size 2"), "openai-triton/mxfp4 mxfp4"),
            (Line("gpt-oss-120b", "h200", ""), "openai-triton/mxfp4 mxfp4"),
            (Line("gpt-oss-120b", "h200", "--moe-backend marlin"), "marlin/moe mxfp4"),
            (Line("gpt-oss-120b", "h200", "--moe-backend flashinfer_cutlass"), "flashinfer/cutlass-moe mxfp4"),
            (Line("gpt-oss-120b", "b200", ""), "flashinfer/trtllm-gen-moe mxfp4"),
            (Line("gpt-oss-120b", "b200", mxfp8), "flashinfer/trtllm-gen-moe mxfp4_mxfp8"),
            (Line("gpt-oss-120b", "b200", &format!("{mxfp8} --moe-backend flashinfer_cutlass")), "flashinfer/cutlass-moe mxfp4_mxfp8"),
            (Line("gpt-oss-120b", "b200", "--moe-backend marlin"), "marlin/moe mxfp4"),
            (Line("qwen3-30b-a3b", "h100", ""), "triton/fused-moe bf16"),
            (Line("qwen3-30b-a3b", "b200", ""), "flashinfer/trtllm-gen-moe bf16"),
            (Line("qwen3-30b-a3b-fp8", "h200", ""), "triton/fused-moe fp8_block"),
            (Line("qwen3-30b-a3b-fp8", "b200", ""), "flashinfer/trtllm-gen-moe fp8_block"),
            (Line("qwen3-30b-a3b-fp8", "h200", "--moe-backend deep_gemm"), "deepgemm/moe fp8_block"),
            (Line("qwen3-30b-a3b-fp8", "h200", "VLLM_MOE_USE_DEEP_GEMM=1"), "deepgemm/moe fp8_block"),
            (Line("qwen3-30b-a3b-fp8", "h200", "VLLM_USE_DEEP_GEMM=1 VLLM_MOE_USE_DEEP_GEMM=0"), "triton/fused-moe fp8_block"),
            (Line("qwen3-30b-a3b-fp8", "h200", "VLLM_USE_DEEP_GEMM=1 --moe-backend triton"), "triton/fused-moe fp8_block"),
            (Line("qwen3-30b-a3b", "h200", "VLLM_USE_DEEP_GEMM=1"), "triton/fused-moe bf16"),
            (Line("qwen3-30b-a3b-fp8", "h200", "--moe-backend deep_gemm --tensor-parallel-size 4"), "deepgemm/moe fp8_block"),
            (Line("qwen3-30b-a3b-fp8", "b200", "--tensor-parallel-size 4"), "triton/fused-moe fp8_block"),
            (Line("qwen3-30b-a3b-fp8", "b200", "--tensor-parallel-size 4 --enable-expert-parallel"), "flashinfer/trtllm-gen-moe fp8_block"),
            (Line("minimax-m2.5", "h200", "--tensor-parallel-size 4"), "triton/fused-moe fp8_block"),
            (Line("minimax-m2.5", "h200", "--tensor-parallel-size 8 --enable-expert-parallel"), "flashinfer/cutlass-moe fp8_block"),
            (Line("minimax-m2.5", "h200", "--enable-expert-parallel"), "triton/fused-moe fp8_block"),
            (Line("minimax-m2.5", "b200", "--tensor-parallel-size 2 --enable-expert-parallel"), "flashinfer/trtllm-gen-moe fp8_block"),
            (Line("minimax-m2.5-nvfp4", "b200", "--tensor-parallel-size 4"), "flashinfer/trtllm-gen-moe nvfp4"),
            (Line("minimax-m3", "b200", "--tensor-parallel-size 4"), "flashinfer/cutlass-moe bf16"),
            (Line("minimax-m3", "b200", "--tensor-parallel-size 4 --data-parallel-size 2"), "triton/fused-moe bf16"),
        ],
    );
}

#[test]
fn a_backend_that_cannot_run_the_experts_is_refused_by_its_name() {
    let refused = Line("gpt-oss-120b", "h100", "--moe-backend flashinfer_trtllm").lower().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "--moe-backend flashinfer_trtllm: the backend does not support experts stored as mxfp4 on compute capability 9.0; leave it out"
    );
    let refused = Line("gpt-oss-120b", "h100", "--moe-backend deep_gemm").lower().unwrap_err();
    assert!(matches!(refused, LoweringError::ExpertsBackend { asked, .. } if asked == "--moe-backend deep_gemm"));
    let refused = Line("nemotron-3-super-120b-a12b-fp8", "h200", "VLLM_USE_DEEP_GEMM=1").lower().unwrap_err();
    assert!(
        refused.to_string().starts_with("VLLM_USE_DEEP_GEMM=1, which asks for deep_gemm: the backend does not support experts"),
        "{refused}"
    );
    // A flag makes upstream pad an expert's width to whole blocks; with the variable it scales smaller blocks, which DeepGEMM does not read.
    let refused = Line("qwen3-30b-a3b-fp8", "h200", "VLLM_MOE_USE_DEEP_GEMM=1 --tensor-parallel-size 4").lower().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "VLLM_MOE_USE_DEEP_GEMM=1, which asks for deep_gemm: the backend does not support experts stored as fp8_block in blocks of 64 on \
         compute capability 9.0; leave it out"
    );
}

#[test]
fn dense_matrices_run_on_the_first_kernel_that_supports_them_or_on_the_one_asked_for() {
    check(
        &[Primitive::Gemm],
        &[
            (Line("llama-3.1-8b-instruct", "h100", ""), "cublas/linear bf16"),
            (Line("gpt-oss-120b", "b200", ""), "cublas/linear bf16"),
            (Line("llama-3.1-70b-instruct-fp8", "h100", ""), "cutlass/scaled-mm-fp8 fp8, cublas/linear bf16"),
            (Line("llama-3.1-70b-instruct-fp8", "h200", ""), "cutlass/scaled-mm-fp8 fp8, cublas/linear bf16"),
            (Line("llama-3.1-70b-instruct-fp8", "b200", ""), "flashinfer/scaled-mm-fp8 fp8, cublas/linear bf16"),
            (Line("llama-3.1-70b-instruct-fp8", "b200", "--linear-backend cutlass"), "cutlass/scaled-mm-fp8 fp8, cublas/linear bf16"),
            (Line("llama-3.1-70b-instruct-fp4", "b200", ""), "flashinfer/cutedsl-nvfp4 nvfp4, cublas/linear bf16"),
            (
                Line("llama-3.1-70b-instruct-fp4", "b200", "VLLM_DISABLED_KERNELS=FlashInferCuteDslNvFp4LinearKernel"),
                "flashinfer/cutlass-nvfp4 nvfp4, cublas/linear bf16",
            ),
            (
                Line("llama-3.1-70b-instruct-fp4", "b200", "--linear-backend flashinfer_trtllm"),
                "flashinfer/trtllm-gen-nvfp4 nvfp4, cublas/linear bf16",
            ),
            (Line("llama-3.1-70b-instruct-fp4", "h200", ""), "humming/linear nvfp4_bf16, cublas/linear bf16"),
            (Line("qwen3-32b-fp8", "h200", ""), "flashinfer/swap-ab-fp8-block fp8_block, deepgemm/fp8-block fp8_block, cublas/linear bf16"),
            (Line("qwen3-32b-fp8", "h200", "VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER=0"), "deepgemm/fp8-block fp8_block, cublas/linear bf16"),
            (Line("qwen3-32b-fp8", "h200", "VLLM_USE_DEEP_GEMM=0"), "cutlass/fp8-block fp8_block, cublas/linear bf16"),
            (Line("qwen3-32b-fp8", "b200", ""), "deepgemm/fp8-block fp8_block, cublas/linear bf16"),
        ],
    );
}

#[test]
fn attention_follows_the_resolved_backend() {
    check(
        &[Primitive::AttentionPrefill, Primitive::AttentionDecode],
        &[
            (Line("gpt-oss-120b", "h200", ""), "flash-attn/fa3 bf16"),
            (Line("llama-3.1-70b-instruct-fp8", "h100", "--kv-cache-dtype fp8"), "flash-attn/fa3 fp8"),
            (Line("llama-3.1-8b-instruct", "b200", ""), "flashinfer/trtllm-gen-prefill bf16, flashinfer/trtllm-gen-decode bf16"),
            (Line("gpt-oss-120b", "b200", "--kv-cache-dtype fp8"), "flashinfer/trtllm-gen-prefill fp8, flashinfer/trtllm-gen-decode fp8"),
            (
                Line("llama-3.1-8b-instruct", "b200", "--attention-config.use_trtllm_attention false"),
                "flashinfer/fa2-prefill bf16, flashinfer/fa2-decode bf16",
            ),
            (
                Line("llama-3.1-8b-instruct", "h100", "--attention-backend FLASHINFER"),
                "flashinfer/fa3-prefill bf16, flashinfer/xqa-decode bf16",
            ),
            (Line("llama-3.1-8b-instruct", "h100", "--attention-backend TRITON_ATTN"), "triton/unified-attention bf16"),
        ],
    );
}

#[test]
fn sums_over_ranks_go_to_the_first_communicator_that_takes_their_size() {
    let unfused = "--compilation-config.pass_config.fuse_allreduce_rms false";
    let plain = |more: &str| format!("--tensor-parallel-size 8 {unfused} VLLM_ALLREDUCE_USE_FLASHINFER=0 {more}");
    let others = "flashinfer/fused-all-reduce-norm, vllm-csrc/custom-all-reduce, torch/symmetric-memory, nccl/all-reduce";
    check(
        &[Primitive::AllReduce],
        &[
            (Line("llama-3.1-8b-instruct", "h100", ""), ""),
            (Line("gpt-oss-120b", "h200", "--tensor-parallel-size 4"), others),
            (
                Line("gpt-oss-120b", "h200", &format!("--tensor-parallel-size 4 {unfused}")),
                "flashinfer/all-reduce, vllm-csrc/custom-all-reduce, torch/symmetric-memory, nccl/all-reduce",
            ),
            (Line("llama-3.1-8b-instruct", "h200", &plain("")), "vllm-csrc/custom-all-reduce, torch/symmetric-memory, nccl/all-reduce"),
            (Line("llama-3.1-8b-instruct", "l40s", "-tp 2"), "vllm-csrc/custom-all-reduce, nccl/all-reduce"),
            (Line("llama-3.1-8b-instruct", "l40s", &plain("")), "nccl/all-reduce"),
            (Line("llama-3.1-8b-instruct", "rtx-pro-6000", &plain("")), "nccl/all-reduce"),
            (Line("llama-3.1-8b-instruct", "h200", &plain("--disable-custom-all-reduce")), "torch/symmetric-memory, nccl/all-reduce"),
            (Line("llama-3.1-8b-instruct", "h200", &plain("--disable-custom-all-reduce VLLM_ALLREDUCE_USE_SYMM_MEM=0")), "nccl/all-reduce"),
        ],
    );
}

#[test]
fn the_sums_of_flashinfer_reach_as_far_as_its_kernels_were_tuned() {
    let reach = |chip: &'static str, ranks: u32, more: &str| {
        let line = format!("-tp {ranks} --compilation-config.pass_config.fuse_allreduce_rms false {more}");
        let plan = Line("gpt-oss-120b", chip, &line).plan();
        let alone = plan.layers.iter().find(|piece| piece.kernel.library == "flashinfer" && piece.kernel.variant == "all-reduce").unwrap();
        let buffer = plan.buffers.iter().find(|buffer| buffer.name == "FlashInfer all-reduce").unwrap();
        ((u64::from(alone.runs_for.most) * 5760) >> 20, buffer.bytes.get() >> 20)
    };
    let within = "VLLM_FLASHINFER_ALLREDUCE_BACKEND=trtllm";
    // 2,880 elements of two bytes; three slots of two stages between nodes.
    assert_eq!((reach("b300", 4, ""), reach("b300", 8, "")), ((79, 479), (63, 383)));
    assert_eq!((reach("b300", 4, within), reach("b300", 8, within)), ((63, 192), (3, 12)));
    assert_eq!((reach("b200", 4, ""), reach("b200", 4, within)), ((31, 192), (31, 96)));
}

#[test]
fn norms_of_queries_and_keys_are_fused_with_their_rotation_where_a_pass_finds_both() {
    let turned = |model: &'static str, more: &str| -> Vec<String> {
        let plan = Line(model, "h200", more).plan();
        let near = |piece: &String| ["rope ", "norm "].iter().any(|word| piece.starts_with(word)) && !piece.contains("32768 B");
        plan.layers.iter().filter(|piece| piece.layer == 1).map(written).filter(near).collect()
    };
    let (pass, custom) = ("-cc.pass_config.enable_qk_norm_rope_fusion true", "-cc.custom_ops+ +rotary_embedding");
    // 32 query and 8 key heads of 128 elements, read and written.
    assert_eq!(turned("qwen3-8b", ""), ["rope inductor/fused tokens: 20480 B a row"]);
    assert_eq!(turned("qwen3-8b", pass), ["rope vllm-csrc/fused-qk-norm-rope tokens: 20480 B a row"]);
    let apart = ["norm inductor/fused tokens: 20480 B a row", "rope vllm-csrc/rotary-embedding tokens: 20480 B a row"];
    assert_eq!(turned("qwen3-8b", custom), apart);
    // No norms to find, and heads that are too wide.
    assert_eq!(turned("llama-3.1-8b-instruct", pass), turned("llama-3.1-8b-instruct", custom));
    assert_eq!(turned("gemma-4-31b-it-nvfp4", pass), turned("gemma-4-31b-it-nvfp4", custom));
    let uncompiled = turned("qwen3-8b", &format!("--enforce-eager {pass}"));
    assert_eq!(uncompiled, turned("qwen3-8b", "--enforce-eager"));
}

#[test]
fn queries_are_quantised_with_their_rotation_only_where_the_compiler_writes_it() {
    let quantised = |more: &str| {
        let plan = Line("llama-3.1-8b-instruct", "h200", &format!("--kv-cache-dtype fp8 {more}")).plan();
        plan.layers.iter().any(|piece| piece.layer == 1 && written(piece) == "activation inductor/fused tokens: 12288 B a row")
    };
    assert_eq!((quantised(""), quantised("-cc.custom_ops+ +rotary_embedding")), (false, true));
}

#[test]
fn the_ranges_of_a_sum_meet_without_gap_or_overlap() {
    for (chip_name, ranks) in [("h100", 2), ("h200", 4), ("h200", 8), ("b200", 2), ("b200", 4), ("b200", 8)] {
        for more in ["", "--moe-backend marlin"] {
            let plan = Line("gpt-oss-120b", chip_name, &format!("--tensor-parallel-size {ranks} {more}")).plan();
            for rows in [1, 31, 32, 182, 183, 364, 365, 1456, 1457, 23_301, 23_302, u32::MAX] {
                let sums = plan.layers.iter().filter(|p| p.primitive == Primitive::AllReduce && p.runs_for.contains(rows)).count();
                // One for the embedding and two for each of 36 layers.
                assert_eq!(sums, 73, "{chip_name} {ranks} {more} {rows}");
                let fused = plan.layers.iter().filter(|p| p.kernel.variant == "fused-all-reduce-norm" && p.runs_for.contains(rows)).count();
                let norms = plan.layers.iter().filter(|p| p.primitive == Primitive::Norm && p.runs_for.contains(rows)).count();
                assert_eq!(fused + norms, 73, "{chip_name} {ranks} {more} {rows}");
            }
        }
    }
}

#[test]
fn experts_of_four_bits_run_untuned_beyond_a_few_picks_where_nothing_is_tuned_at_start_up() {
    let experts = |model: &'static str, line: &str| {
        let plan = Line(model, "b200", line).plan();
        plan.layers.iter().filter(|piece| piece.layer == 2 && piece.primitive == Primitive::MoeExperts).map(written).collect::<Vec<_>>()
    };
    let shape = "8 of 384 (384 here), 7168 x 256 gated true nvfp4";
    assert_eq!(experts("kimi-k2.5-nvfp4", "-tp 8"), [format!("moe.experts flashinfer/trtllm-gen-moe tokens: {shape}")]);
    // Eight picks of each of 384 experts are those of 384 tokens.
    assert_eq!(
        experts("kimi-k2.5-nvfp4", "-tp 8 --no-enable-flashinfer-autotune"),
        [
            format!("moe.experts flashinfer/trtllm-gen-moe tokens to 384: {shape}"),
            format!("moe.experts flashinfer/trtllm-gen-moe-untuned tokens from 385: {shape}"),
        ]
    );
    // Nothing is known of what tuning saves where activations have 16 bits.
    assert_eq!(experts("gpt-oss-120b", "-O0").len(), 1);
    assert_eq!(experts("gpt-oss-120b", "-O0 --quantization-config.moe.activation mxfp8").len(), 2);
    assert_eq!(experts("deepseek-v4-pro", "-tp 8 --no-enable-flashinfer-autotune").len(), 2);
    let skipping = |operation: &str| {
        let line = format!("-tp 8 VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS={operation}");
        experts("kimi-k2.5-nvfp4", line.as_str()).len()
    };
    assert_eq!((skipping("fp4_gemm"), skipping("fp4_gemm,flashinfer::trtllm_fp4_block_scale_moe")), (1, 2));
}

#[test]
fn quantising_activations_is_a_kernel_of_its_own_only_where_nothing_absorbs_it() {
    let quantisations = |line: Line<'_>, rows: u32| {
        let plan = line.plan();
        plan.layers.iter().filter(|p| p.kernel.variant == "quantise" && p.runs_for.contains(rows)).count()
    };
    let (fp8, fp4) = ("llama-3.1-70b-instruct-fp8", "llama-3.1-70b-instruct-fp4");
    // Norms and activations write 8-bit floats themselves; attention does so only where its pass is on.
    assert_eq!(quantisations(Line(fp8, "h200", ""), 64), 80);
    let one_graph = "--kv-cache-dtype fp8 --compilation-config.pass_config.fuse_attn_quant true";
    assert_eq!(quantisations(Line(fp8, "b200", one_graph), 64), 0);
    // Uncompiled, each of the four matrices of a layer has its own, and so have the queries for a cache of 8 bits.
    assert_eq!(quantisations(Line(fp8, "h200", "--enforce-eager"), 64), 5 * 80);
    // No compiler writes NVFP4: norms leave it to a kernel, unless the fused all-reduce does it.
    assert_eq!(quantisations(Line(fp4, "b200", ""), 64), 3 * 80);
    assert_eq!(quantisations(Line(fp4, "b200", "--tensor-parallel-size 4"), 64), 80);
    assert_eq!(quantisations(Line(fp4, "b200", "--tensor-parallel-size 4"), 4096), 3 * 80);
}

#[test]
fn the_list_of_kernels_is_in_step_with_the_tables() {
    let listed: Value = serde_json::from_str(include_str!("../../../kernel_impls.json")).unwrap();
    let kernels: Vec<Value> = KERNELS.iter().map(|name| json!({"library": name.library, "variant": name.variant})).collect();
    let expected = json!({ "kernels": kernels });
    assert_eq!(listed, expected, "kernel_impls.json should read:\n{}", serde_json::to_string_pretty(&expected).unwrap());
    let mut names = KERNELS.to_vec();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), KERNELS.len(), "a kernel is listed twice");
}

#[test]
fn weights_that_are_not_quantised_are_loaded_in_the_type_of_the_activations() {
    for piece in Line("qwen3-30b-a3b", "h200", "-tp 2 --dtype float16").lower().unwrap().layers {
        if let PrimitiveShape::Gemm { format, .. } | PrimitiveShape::Moe { format, .. } = piece.shape {
            assert_eq!((format.weights, format.activations), (FormatName::Fp16, FormatName::Fp16), "{:?}", piece.kernel);
        }
    }
}
