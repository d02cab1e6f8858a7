//! Ranks of one engine core that divide its tokens: where they gather and scatter them, and what they hold whole.

use blis_contracts::plan::Primitive;

use super::*;

const LINE: &str = "--tensor-parallel-size 4 --data-parallel-size 2 --enable-expert-parallel";

/// The pieces of a layer that run for 2,048 tokens of a core.
fn pieces(plan: &PoolPlan, index: u32) -> Vec<String> {
    let rows = |piece: &LoweredLayer| if piece.rows == RowSet::Split { 512 } else { 2048 };
    plan.layers.iter().filter(|piece| piece.layer == index && piece.runs_for.contains(rows(piece))).map(written).collect()
}

/// Those of the pieces behind the one that `first` is part of.
fn behind<'a>(pieces: &'a [String], first: &str) -> &'a [String] {
    let at = pieces.iter().position(|piece| piece.contains(first)).unwrap_or_else(|| panic!("{first} in {pieces:#?}"));
    &pieces[at + 1..]
}

#[test]
fn a_layer_with_experts_scatters_what_attention_yields_and_gathers_what_the_next_reads() {
    let plan = Line("deepseek-v3", "h200", LINE).plan();
    let last = behind(&pieces(&plan, 59), "4096 x 7168 fp8_block").to_vec();
    let scattered = [
        "activation inductor/fused tokens: 28672 B a row",
        "collective.reduce_scatter nccl/reduce-scatter split: 14336 B a row over 4",
        "norm inductor/fused split: 57344 B a row",
        "gemm cublas/linear split: 7168 x 256 bf16",
        "gemm deepgemm/fp8-block split from 257: 7168 x 4096 fp8_block",
        "activation inductor/fused split from 257: 12288 B a row",
        "gemm deepgemm/fp8-block split from 257: 2048 x 7168 fp8_block",
        "activation torch/add split: 43008 B a row",
        "collective.all_gather nccl/all-gather split: 14400 B a row over 8",
        "moe.experts flashinfer/cutlass-moe gathered: 8 of 256 (32 here), 7168 x 2048 gated true fp8_block",
        "collective.reduce_scatter nccl/reduce-scatter split: 14336 B a row over 8",
    ];
    let gathered = ["norm inductor/fused split: 57344 B a row", "collective.all_gather nccl/all-gather split: 14336 B a row over 4"];
    assert_eq!(last, [&scattered[..], &gathered].concat());
    // Behind the last layer the residual stream is gathered beside it, and normed whole.
    let end = pieces(&plan, 60);
    assert_eq!(
        behind(&end, "reduce-scatter split: 14336 B a row over 8")[..3],
        [
            "activation inductor/fused split: 57344 B a row",
            "collective.all_gather nccl/all-gather split: 28672 B a row over 4",
            "norm inductor/fused tokens: 57344 B a row",
        ]
    );
}

#[test]
fn dense_layers_in_front_are_shared_as_on_one_core_where_only_experts_divide_tokens() {
    let parts = |line: &str| Line("deepseek-v3", "h200", line).plan();
    let (one, two) = (parts("--tensor-parallel-size 4"), parts(LINE));
    assert_eq!(pieces(&one, 0), pieces(&two, 0));
    let shared = |plan: &PoolPlan, name: &str| {
        let found = plan.weights.iter().find(|tensor| tensor.name == name);
        found.unwrap_or_else(|| panic!("{name} stays resident")).bytes.get()
    };
    assert_eq!(shared(&one, "down projection"), shared(&two, "down projection"));
    assert_eq!(4 * shared(&one, "shared down projection"), shared(&two, "shared down projection"));
}

#[test]
fn a_model_that_keeps_parts_throughout_has_dense_layers_whole_and_gathers_behind_its_last_norm() {
    let (one, two) = (Line("deepseek-v3.2", "b200", "--tensor-parallel-size 4").plan(), Line("deepseek-v3.2", "b200", LINE).plan());
    let first = pieces(&two, 0);
    let into =
        ["norm vllm-csrc/rms-norm split: 28672 B a row", "collective.all_gather nccl/all-gather split from 293: 14336 B a row over 4"];
    assert!(first[1].starts_with("collective.all_reduce") && first[2..4] == into, "{first:#?}");
    assert_eq!(
        behind(&first, "4096 x 7168 fp8_block"),
        [
            "collective.reduce_scatter vllm-csrc/multimem-reduce-scatter split 293 to 1170: 14336 B a row over 4",
            "norm vllm-csrc/rms-norm split: 57344 B a row",
            "gemm deepgemm/fp8-block split: 7168 x 36864 fp8_block",
            "activation vllm-csrc/silu-and-mul split: 110592 B a row",
            "gemm deepgemm/fp8-block split: 18432 x 7168 fp8_block",
            "norm vllm-csrc/rms-norm split: 57344 B a row",
            "collective.all_gather nccl/all-gather split from 293: 14336 B a row over 4",
        ]
    );
    let end = pieces(&two, 60);
    assert!(behind(&end, "reduce-scatter split: 14336 B a row over 8")[0].starts_with("norm vllm-csrc/rms-norm split"), "{end:#?}");
    let bytes = |plan: &PoolPlan, name: &str| plan.weights.iter().find(|tensor| tensor.name == name).map(|tensor| tensor.bytes.get());
    assert_eq!(bytes(&one, "down projection").map(|bytes| 4 * bytes), bytes(&two, "down projection"));
}

#[test]
fn few_rows_meet_vllms_own_kernels_where_the_model_asks_for_them_and_its_communicator_is_on() {
    let on = |chip, model, line: &str, ranks| {
        let plan = Line(model, chip, line).plan();
        let of_ranks = |piece: &&LoweredLayer| {
            matches!(piece.primitive, Primitive::AllGather | Primitive::ReduceScatter)
                && matches!(piece.shape, PrimitiveShape::Collective { group, .. } if group == ranks)
        };
        plan.layers.iter().filter(|piece| piece.layer == 5).filter(of_ranks).map(written).collect::<Vec<_>>()
    };
    let kernels = |model, line: &str| on("b200", model, line, 4);
    let few = [
        "collective.reduce_scatter vllm-csrc/lamport-reduce-scatter split to 292: 14336 B a row over 4",
        "collective.reduce_scatter vllm-csrc/multimem-reduce-scatter split 293 to 1170: 14336 B a row over 4",
        "collective.reduce_scatter nccl/reduce-scatter split from 1171: 14336 B a row over 4",
        "collective.all_gather vllm-csrc/lamport-all-gather split to 292: 14336 B a row over 4",
        "collective.all_gather nccl/all-gather split from 293: 14336 B a row over 4",
    ];
    assert_eq!(kernels("deepseek-v3.2", LINE), few);
    let nccl = [
        "collective.reduce_scatter nccl/reduce-scatter split: 14336 B a row over 4",
        "collective.all_gather nccl/all-gather split: 14336 B a row over 4",
    ];
    assert_eq!(kernels("deepseek-v3.2", &format!("{LINE} --disable-custom-all-reduce")), nccl);
    assert_eq!(kernels("deepseek-v3", LINE), nccl);
    let hopper = [
        "lamport-reduce-scatter split to 292",
        "nccl/reduce-scatter split from 293",
        "lamport-all-gather split to 292",
        "nccl/all-gather split from 293",
    ];
    let pieces = on("h200", "deepseek-v3.2", LINE, 4);
    assert_eq!(pieces.len(), hopper.len(), "{pieces:#?}");
    for (piece, rows) in pieces.iter().zip(hopper) {
        assert!(piece.contains(rows), "{piece}");
    }
    let pair = on("h200", "deepseek-v3.2", "--tensor-parallel-size 2 --data-parallel-size 4 --enable-expert-parallel", 2);
    assert_eq!(pair[2], "collective.all_gather vllm-csrc/lamport-all-gather split to 585: 14336 B a row over 2");
}

#[test]
fn shared_experts_of_models_that_divide_tokens_around_experts_alone_are_whole_too() {
    for (model, piece) in [
        ("llama-4-scout", "gemm cublas/linear split from 257: 5120 x 16384 bf16"),
        ("nemotron-3-super-120b-a12b", "gemm cublas/linear split from 257: 4096 x 5376 bf16"),
        ("qwen3.5-397b-a17b", "gemm cublas/linear split from 257: 4096 x 2048 bf16"),
    ] {
        let plan = Line(model, "h200", LINE).plan();
        assert!(plan.layers.iter().any(|layer| written(layer) == piece), "{model} lacks {piece}");
    }
}

#[test]
fn lanes_are_mixed_in_parts_and_gathered_in_front_of_attention_and_of_the_last_mixing() {
    let plan = Line("deepseek-v4-pro", "b200", &format!("{LINE} --max-model-len 2304")).plan();
    let layer = pieces(&plan, 2);
    assert_eq!(
        layer[..3],
        [
            "norm tilelang/mhc-out split from 33: 129024 B a row",
            "norm tilelang/mhc-in split from 33: 129024 B a row",
            "collective.all_gather nccl/all-gather split from 293: 14336 B a row over 4",
        ]
    );
    assert_eq!(
        behind(&layer, "4096 x 7168 fp8_block"),
        [
            "collective.reduce_scatter vllm-csrc/multimem-reduce-scatter split 293 to 1170: 14336 B a row over 4",
            "norm tilelang/mhc-out split from 33: 129024 B a row",
            "norm tilelang/mhc-in split from 33: 129024 B a row",
            "gemm cublas/linear split: 7168 x 384 bf16",
            "gemm deepgemm/fp8-block split from 257: 7168 x 6144 fp8_block",
            "activation vllm-csrc/silu-and-mul split from 257: 18432 B a row",
            "gemm deepgemm/fp8-block split from 257: 3072 x 7168 fp8_block",
            "collective.all_gather nccl/all-gather split: 7440 B a row over 8",
            "moe.experts flashinfer/trtllm-gen-moe gathered: 6 of 384 (48 here), 7168 x 3072 gated true mxfp4_mxfp8",
            "collective.reduce_scatter nccl/reduce-scatter split: 14336 B a row over 8",
            "activation torch/add split: 43008 B a row",
        ]
    );
    let end = pieces(&plan, 60);
    assert_eq!(
        behind(&end, "torch/add")[..3],
        [
            "norm tilelang/mhc-out split: 129024 B a row",
            "collective.all_gather nccl/all-gather split from 74: 57344 B a row over 4",
            "norm tilelang/mhc-in tokens: 129024 B a row",
        ]
    );
}

#[test]
fn whole_experts_of_one_core_are_summed_over_its_ranks_and_those_of_single_ranks_exchange_every_token() {
    let experts = |line: &str| {
        let plan = Line("deepseek-v4-pro", "b200", &format!("{line} --enable-expert-parallel --max-model-len 2304")).plan();
        let layer = pieces(&plan, 2);
        let at = layer.iter().position(|piece| piece.starts_with("moe.experts")).unwrap();
        layer[at - 1..].to_vec()
    };
    let one_core = experts("--tensor-parallel-size 8");
    assert_eq!(
        one_core[1..3],
        [
            "moe.experts flashinfer/trtllm-gen-moe tokens: 6 of 384 (48 here), 7168 x 3072 gated true mxfp4_mxfp8",
            "activation torch/add tokens: 43008 B a row",
        ]
    );
    assert!(one_core[3].starts_with("collective.all_reduce"), "{one_core:#?}");
    assert_eq!(
        experts("--data-parallel-size 8"),
        [
            "collective.all_gather nccl/all-gather tokens: 7440 B a row over 8",
            "moe.experts flashinfer/trtllm-gen-moe gathered: 6 of 384 (48 here), 7168 x 3072 gated true mxfp4_mxfp8",
            "collective.reduce_scatter nccl/reduce-scatter tokens: 14336 B a row over 8",
            "activation torch/add tokens: 43008 B a row",
        ]
    );
}
