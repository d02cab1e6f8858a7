//! What measured runs of earlier releases launched otherwise.

use blis_contracts::plan::{Primitive, Start};

use super::*;

/// The pieces of a layer as a release ran a line.
fn layer(line: Line<'_>, release: &str, index: u32) -> Vec<String> {
    let plan = line.lower_as(Some(release)).unwrap_or_else(|error| panic!("{line:?} as {release} ran it: {error}"));
    plan.layers.iter().filter(|piece| piece.layer == index).map(written).collect()
}

/// The pieces that hold one of these words.
fn with(pieces: &[String], words: &[&str]) -> Vec<String> {
    pieces.iter().filter(|piece| words.iter().any(|word| piece.contains(word))).cloned().collect()
}

#[test]
fn earlier_releases_padded_around_experts_and_summed_the_padded_rows() {
    let line = Line("gpt-oss-120b", "b200", "--tensor-parallel-size 4 --quantization-config.moe.activation mxfp8");
    let behind_router = |release| {
        let plan = line.lower_as(Some(release)).unwrap();
        let layer: Vec<String> = plan.layers.iter().filter(|piece| piece.layer == 1).map(written).collect();
        layer[layer.iter().position(|piece| piece.contains("x 128 bf16")).unwrap() + 1..].to_vec()
    };
    let early = behind_router("0.18.0");
    assert_eq!(early[0], "activation inductor/fused tokens: 11904 B a row");
    assert!(early[2].starts_with("collective.all_reduce vllm-csrc/custom-all-reduce tokens to 341: 6144 B a row over 4"), "{early:#?}");
    let later = behind_router("0.22.0");
    assert!(
        later[0].starts_with("moe.experts ") && later[1].starts_with("collective.all_reduce flashinfer/fused-all-reduce-norm"),
        "{later:#?}"
    );
}

#[test]
fn an_early_release_fused_sums_within_a_ranks_share_and_copied_larger_ones_back() {
    let fused = "--compilation-config.pass_config.fuse_allreduce_rms true --compilation-config.pass_config.fi_allreduce_fusion_max_size_mb";
    let line = format!("--tensor-parallel-size 8 {fused} 8");
    let layer = |release| {
        let plan = Line("llama-3.1-70b-instruct-fp4", "b200", &line).lower_as(Some(release)).unwrap();
        let of_sums = |piece: &&LoweredLayer| {
            piece.layer == 1 && (piece.primitive == Primitive::AllReduce || ["rms-norm", "copy"].contains(&piece.kernel.variant.as_str()))
        };
        plan.layers.iter().filter(of_sums).map(written).collect::<Vec<_>>()
    };
    // 8 MiB over 16 KiB a token, and over eight ranks.
    let early = layer("0.10.2");
    assert_eq!(early[0], "collective.all_reduce flashinfer/fused-all-reduce-norm tokens to 64: 16384 B a row over 8");
    assert_eq!(early[1], "collective.all_reduce vllm-csrc/custom-all-reduce tokens 65 to 511: 16384 B a row over 8");
    assert_eq!(early[2], "collective.all_reduce nccl/all-reduce tokens from 512: 16384 B a row over 8");
    // Two sums of a layer.
    let copied = |pieces: &[String]| pieces.iter().filter(|piece| *piece == "activation torch/copy tokens from 65: 32768 B a row").count();
    let later = layer("0.15.1");
    assert_eq!((copied(&early), copied(&later)), (2, 0));
    assert_eq!(later[0], "collective.all_reduce flashinfer/fused-all-reduce-norm tokens to 512: 16384 B a row over 8");
}

#[test]
fn attention_of_an_early_release_was_not_merged_with_what_surrounds_it() {
    let around = |line, release| with(&layer(line, release, 1), &["rope", "attention", "vllm-csrc/quantise", "activation inductor/fused"]);
    let hopper = Line("llama-3.1-70b-instruct-fp8", "h100", "--tensor-parallel-size 4 --kv-cache-dtype fp8");
    let attends = "flash-attn/fa3 requests: 16/2 heads of 128, group 0, window 0, sinks false, fp8, dealt in turn";
    assert_eq!(
        around(hopper, "0.10.2"),
        [
            "rope inductor/fused tokens: 8192 B a row",
            "rope inductor/fused tokens: 1024 B a row",
            // The output of 16 heads, zeroed, and their queries, quantised.
            "activation inductor/fused tokens: 4096 B a row",
            "activation vllm-csrc/quantise tokens: 6144 B a row",
            &format!("attention.prefill {attends}"),
            &format!("attention.decode {attends}"),
            "activation vllm-csrc/quantise tokens: 6144 B a row",
            "activation inductor/fused tokens: 35840 B a row",
        ]
    );
    assert_eq!(
        with(&around(hopper, "0.15.1"), &["rope", "quantise"]).len(),
        2,
        "one rotation, and the quantisation of what attention yields"
    );
}

#[test]
fn norms_over_all_heads_were_reductions_around_a_sum() {
    let norms = |release| {
        let line = Line("minimax-m2.5-nvfp4", "b200", "--tensor-parallel-size 4");
        with(&layer(line, release, 1), &["qk-norm", " 8 B a row", "norm inductor/fused tokens:"])
    };
    assert_eq!(
        norms("0.22.0"),
        [
            "norm inductor/fused tokens: 3592 B a row",
            // Eight bytes are half of what vLLM's own kernel takes at once.
            "collective.all_reduce nccl/all-reduce tokens to 1: 8 B a row over 4",
            "collective.all_reduce vllm-csrc/custom-all-reduce tokens 2 to 262143: 8 B a row over 4",
            "collective.all_reduce nccl/all-reduce tokens from 262144: 8 B a row over 4",
        ]
    );
    let fused = "collective.all_reduce vllm-csrc/minimax-qk-norm-all-reduce tokens to 2048: 8 B a row over 4";
    assert_eq!(norms("0.25.0")[0], fused);
    let asked = |line: &str| {
        let model = model("minimax-m2.5-nvfp4");
        let mut stated = read(Launch { command: Some(line), args: None, env: &[], written_for: Some("0.22.0") }).unwrap();
        stated.take_defaults_of("0.22.0", &model).unwrap();
        let chip = chip("b200");
        let resolved = resolve(&stated, Machine { model: &model, chip: &chip, gpus: 8 }).unwrap();
        lower(&model, &resolved, &chip).unwrap().layers.iter().any(|piece| piece.kernel.variant == "minimax-qk-norm-all-reduce")
    };
    let line = "vllm serve m -tp 4";
    assert!(!asked(line) && asked(&format!("{line} -cc.pass_config.fuse_minimax_qk_norm true")));
}

#[test]
fn norms_over_all_heads_of_one_rank_are_a_kernel_in_front_of_the_rotation() {
    let norms = with(&layer(Line("minimax-m2.5-nvfp4", "b200", ""), "0.28.0", 1), &["norm inductor", "rope"]);
    // Queries and keys of 48 and 8 heads of 128, read; then both again, read and written.
    assert_eq!(norms[..2], ["norm inductor/fused tokens: 14336 B a row", "rope inductor/fused tokens: 14336 B a row"]);
}

#[test]
fn a_custom_norm_was_a_kernel_of_its_own_until_the_compiler_wrote_every_norm() {
    let norms = |release| with(&layer(Line("llama-3.1-8b-instruct", "h200", "-cc.custom_ops+ +rms_norm"), release, 1), &["norm "]);
    assert!(norms("0.18.0").iter().all(|norm| norm.starts_with("norm vllm-csrc/rms-norm")), "{:?}", norms("0.18.0"));
    assert!(norms("0.21.0").iter().all(|norm| norm.starts_with("norm inductor/fused")), "{:?}", norms("0.21.0"));
}

#[test]
fn queries_are_quantised_apart_where_no_compiler_writes_it() {
    let queries = "activation vllm-csrc/quantise tokens: 12288 B a row";
    let quantised = |chosen: Line<'_>| chosen.plan().layers.iter().any(|piece| piece.layer == 1 && written(piece) == queries);
    let cache = "--kv-cache-dtype fp8";
    let custom = format!("{cache} --compilation-config.custom_ops+ +quant_fp8");
    for (chip, more, apart) in [
        ("b200", cache, false),
        ("b200", custom.as_str(), true),
        ("b200", &format!("{custom} --attention-config.disable_flashinfer_q_quantization true"), false),
        ("h200", cache, false),
        ("h200", &format!("{cache} --enforce-eager"), true),
        ("h200", &format!("{custom} --attention-backend TRITON_ATTN"), true),
        ("h200", "--enforce-eager", false),
    ] {
        assert_eq!(quantised(Line("llama-3.1-8b-instruct", chip, more)), apart, "{chip} {more}");
    }
}

#[test]
fn attention_begins_with_a_plain_launch() {
    let plan = Line("llama-3.1-8b-instruct", "b200", "").plan();
    let attention = plan.layers.iter().filter(|piece| matches!(piece.shape, PrimitiveShape::Attention { .. }));
    assert!(attention.into_iter().all(|piece| piece.start == Start::Ordered));
}

#[test]
fn blocks_were_dealt_in_turn_up_to_the_release_before_requests_were_sorted() {
    let dealt = |release| layer(Line("llama-3.1-8b-instruct", "h200", ""), release, 1).iter().any(|piece| piece.ends_with("dealt in turn"));
    assert!(dealt("0.10.2") && dealt("0.16.0") && !dealt("0.17.0"));
}

#[test]
fn routers_in_32_bits_were_left_to_the_library() {
    let router = |ranks: &str, release| {
        let line = format!("{ranks} VLLM_FLOAT32_MATMUL_PRECISION=high");
        with(&layer(Line("minimax-m2.5-nvfp4", "b200", &line), release, 1), &["x 256 fp32", "cast", "activation inductor"])
    };
    // A copy in 32 bits is part of the norm in front, where the compiler wrote that.
    let all = "gemm cublas/linear-tf32 tokens: 3072 x 256 fp32";
    assert_eq!(router("", "0.22.0"), [all]);
    assert_eq!(router("-tp 4", "0.22.0"), ["activation inductor/fused tokens to 5461: 18432 B a row", all]);
    let later = router("-tp 4", "0.28.0");
    assert_eq!(later[0], "activation torch/cast tokens from 33: 18432 B a row");
    assert_eq!(later[1], "gemm vllm-csrc/fp32-router-gemm tokens to 32: 3072 x 256 fp32");
    assert_eq!(later[2], "gemm cublas/linear-tf32 tokens from 33: 3072 x 256 fp32");
    // Where nothing is compiled, a cast of its own.
    assert_eq!(router("--enforce-eager", "0.22.0")[0], "activation torch/cast tokens: 18432 B a row");
    let today = Line("minimax-m2.5-nvfp4", "b200", "").plan();
    assert!(!today.layers.iter().any(|piece| piece.kernel.variant == "linear-tf32"));
}

#[test]
fn a_cast_stood_in_front_of_tensorrt_llms_experts() {
    let casts = |chosen: Line<'_>, release| with(&layer(chosen, release, 1), &["torch/elementwise"]).len();
    let mixture = Line("minimax-m2.5-nvfp4", "b200", "");
    assert_eq!((casts(mixture, "0.22.0"), casts(mixture, "0.25.0"), casts(mixture, "0.10.2")), (1, 0, 0));
    // Experts in blocks took it as it is.
    assert_eq!(casts(Line("minimax-m2.5", "b200", "-tp 4"), "0.22.0"), 0);
    // Nothing corrects the choice of gpt-oss.
    assert_eq!(casts(Line("gpt-oss-120b", "b200", ""), "0.22.0"), 0);
}

#[test]
fn experts_of_minimax_m3_were_scaled_behind_and_picked_in_front() {
    let apart = |release| {
        with(&layer(Line("minimax-m3-nvfp4", "b200", "--tensor-parallel-size 4"), release, 30), &["moe.experts", "torch/elementwise"])
    };
    let scaled = apart("0.25.0");
    assert!(scaled[0].starts_with("moe.experts ") && scaled[1] == "activation torch/elementwise tokens: 24576 B a row", "{scaled:#?}");
    let picked = apart("0.27.0");
    assert!(picked.len() == 3 && picked[2].starts_with("moe.experts "), "{picked:#?}");
}

#[test]
fn lanes_were_mixed_by_one_kernel_up_to_sixteen_rows() {
    let joined = |release| with(&layer(Line("deepseek-v4-pro", "b200", "--tensor-parallel-size 8"), release, 3), &["mhc"]);
    assert!(joined("0.25.0").iter().any(|piece| piece.contains("tokens to 16:")), "{:?}", joined("0.25.0"));
}

#[test]
fn experts_in_blocks_ran_in_cutlass_on_hopper() {
    let experts = |release| with(&layer(Line("minimax-m2.5", "h200", "--tensor-parallel-size 4"), release, 1), &["moe.experts"]);
    assert!(experts("0.16.0")[0].starts_with("moe.experts flashinfer/cutlass-moe"), "{:?}", experts("0.16.0"));
    assert!(experts("0.10.2")[0].starts_with("moe.experts triton/fused-moe"), "{:?}", experts("0.10.2"));
    assert!(experts("0.17.0")[0].starts_with("moe.experts triton/fused-moe"), "{:?}", experts("0.17.0"));
}
