//! Mamba-2 hybrids: their layers, experts, weights, caches and graphs.

use super::*;
use crate::config::{MambaCacheMode, StateSettings};
use crate::kv::group::{Attention, MambaMode};
use crate::lowering::kv_layers;
use blis_contracts::format::FormatName;

const NANO: &str = "nemotron-3-nano-30b-a3b";
const SUPER: &str = "nemotron-3-super-120b-a12b";
const EIGHT: &str = "--tensor-parallel-size 8";

fn layer(plan: &PoolPlan, index: u32) -> Vec<String> {
    plan.layers.iter().filter(|piece| piece.layer == index).map(written).collect()
}

#[test]
fn a_state_space_runs_apart_for_decodes_and_for_prompts() {
    let pieces = layer(&Line(NANO, "h200", "").plan(), 1);
    let expected = [
        // 4,096 of the gate, 4,096 and twice 8 groups of 128 convolved, 64 steps.
        "gemm cublas/linear tokens: 2688 x 10304 bf16",
        // 6,144 columns of 2 bytes and of the three tokens before, read and written; then 64 states of 64 by 128 in 32 bits.
        "convolution triton/causal-conv1d-update decodes: 98304 B a row",
        "recurrent.decode triton/selective-state-update decodes: 4214912 B a row",
        "convolution triton/causal-conv1d-fn prefills: 24576 B a row",
        // Of a token: 24,576 B of heads, 8,192 of groups, 8,192 of products, 1,664 of steps, and a 128th of 8 MiB of a chunk's states.
        "recurrent.scan triton/ssd-chunk-scan requests: 108160 B a token, 12582912 B a row",
        "norm inductor/fused tokens: 24576 B a row",
        "gemm cublas/linear tokens: 4096 x 2688 bf16",
    ];
    assert_eq!(pieces[..expected.len()], expected, "{pieces:#?}");
}

#[test]
fn eight_ranks_share_heads_and_groups() {
    let pieces = layer(&Line(NANO, "h200", EIGHT).plan(), 1);
    let shared = [
        "gemm cublas/linear tokens: 2688 x 1288 bf16",
        "convolution triton/causal-conv1d-update decodes: 12288 B a row",
        "recurrent.decode triton/selective-state-update decodes: 526864 B a row",
        "recurrent.scan triton/ssd-chunk-scan requests: 13520 B a token, 1572864 B a row",
    ];
    for expected in shared {
        assert!(pieces.contains(&expected.to_owned()), "{expected}: {pieces:#?}");
    }
    let narrow = layer(&Line(NANO, "h200", "--mamba-ssm-cache-dtype bfloat16").plan(), 1);
    assert!(narrow.contains(&"recurrent.decode triton/selective-state-update decodes: 2117760 B a row".to_owned()), "{narrow:#?}");
}

#[test]
fn attention_turns_nothing_and_a_layer_may_have_no_network() {
    let plan = Line(NANO, "h200", "").plan();
    assert!(plan.layers.iter().all(|piece| piece.primitive.as_str() != "rope"));
    // The third layer is a state space alone: its sum and norm lead into the attention of the fourth.
    let alone = layer(&plan, 2);
    assert_eq!(alone.last().unwrap(), "norm inductor/fused tokens: 21504 B a row", "{alone:#?}");
    assert!(!alone.iter().any(|piece| piece.starts_with("moe")), "{alone:#?}");
    let dense = layer(&Line("nemotron-h-56b-base-8k", "h200", EIGHT).plan(), 0);
    assert!(dense.contains(&"gemm cublas/linear tokens: 8192 x 4096 bf16".to_owned()), "{dense:#?}");
    assert!(dense.contains(&"activation inductor/fused tokens: 16384 B a row".to_owned()), "{dense:#?}");
}

#[test]
fn experts_without_a_gate_run_on_the_kernels_that_have_their_activation() {
    for (chip, expected) in [
        ("h200", "moe.experts triton/fused-moe tokens: 6 of 128 (128 here), 2688 x 1856 gated false bf16"),
        // Widths are padded to multiples of 128.
        ("b200", "moe.experts flashinfer/trtllm-gen-moe tokens: 6 of 128 (128 here), 2688 x 1920 gated false bf16"),
        ("a100-sxm", "moe.experts triton/fused-moe tokens: 6 of 128 (128 here), 2688 x 1856 gated false bf16"),
    ] {
        let pieces = layer(&Line(NANO, chip, "").plan(), 0);
        assert!(pieces.contains(&expected.to_owned()), "{chip}: {pieces:#?}");
    }
}

#[test]
fn a_router_writes_32_bits_and_is_kept_in_them_where_no_kernel_multiplies_16() {
    let routers =
        |chip| layer(&Line(NANO, chip, "").plan(), 0).into_iter().filter(|piece| piece.contains("2688 x 128 ")).collect::<Vec<_>>();
    let special =
        ["gemm vllm-cutedsl/few-rows-router-gemm tokens to 16: 2688 x 128 bf16", "gemm cublas/linear tokens from 17: 2688 x 128 bf16"];
    assert_eq!(routers("h200"), special);
    assert_eq!(routers("b200"), special);
    assert_eq!(routers("a100-sxm"), ["gemm cublas/linear tokens: 2688 x 128 fp32"]);
    assert_eq!(routers("rtx-pro-6000"), ["gemm cublas/linear tokens: 2688 x 128 fp32"]);
}

#[test]
fn experts_of_a_narrower_stream_are_projected_to_and_back_on_every_rank() {
    let pieces = layer(&Line(SUPER, "h200", EIGHT).plan(), 0);
    let at = |piece: &str| pieces.iter().rposition(|other| other == piece).unwrap_or_else(|| panic!("{piece}: {pieces:#?}"));
    let into = at("gemm cublas/linear tokens: 4096 x 1024 bf16");
    let experts = at("moe.experts triton/fused-moe tokens: 22 of 512 (512 here), 1024 x 336 gated false bf16");
    let scaled = at("activation inductor/fused tokens: 4096 B a row");
    let back = at("gemm cublas/linear tokens: 1024 x 4096 bf16");
    assert!(into < experts && experts < scaled && scaled < back, "{pieces:#?}");
    // One sum of the whole stream behind them, since a projection in 16 bits commutes with it.
    let sums = pieces[into..].iter().filter(|piece| piece.starts_with("collective.all_reduce"));
    assert!(sums.into_iter().all(|piece| piece.contains("8192 B a row")), "{pieces:#?}");
}

#[test]
fn four_bit_experts_are_padded_and_what_the_recipe_leaves_out_stays_in_16_bits() {
    let plan = Line("nemotron-3-nano-30b-a3b-nvfp4", "b200", "").plan();
    let pieces = layer(&plan, 0);
    let expected = [
        "gemm flashinfer/cutedsl-nvfp4 tokens: 2688 x 10304 nvfp4",
        "moe.experts flashinfer/trtllm-gen-moe tokens: 6 of 128 (128 here), 2816 x 1920 gated false nvfp4",
        "gemm vllm-cutedsl/few-rows-router-gemm tokens to 16: 2688 x 128 bf16",
    ];
    for piece in expected {
        assert!(pieces.contains(&piece.to_owned()), "{piece}: {pieces:#?}");
    }
    // The state space in front of attention, and attention itself, are left out; keys and values have 8 bits.
    assert_eq!(layer(&plan, 2)[0], "gemm cublas/linear tokens: 2688 x 10304 bf16");
    let attention = layer(&plan, 3);
    assert_eq!(attention[0], "gemm cublas/linear tokens: 2688 x 4608 bf16");
    assert!(attention.iter().any(|piece| piece.starts_with("attention.decode") && piece.ends_with("fp8")), "{attention:#?}");
}

#[test]
fn quantised_checkpoints_narrow_the_stream_in_16_bits_and_multiply_experts_and_state_spaces_in_fewer() {
    for (line, layers, expected) in [
        (
            Line("nemotron-3-super-120b-a12b-fp8", "h200", EIGHT),
            [0, 3, 4],
            [
                "gemm cutlass/scaled-mm-fp8 tokens: 4096 x 2320 fp8",
                "gemm cublas/linear tokens: 4096 x 1024 bf16",
                "moe.experts flashinfer/cutlass-moe tokens: 22 of 512 (512 here), 1024 x 336 gated false fp8",
            ],
        ),
        (
            Line("nemotron-3-super-120b-a12b-nvfp4", "b200", EIGHT),
            [0, 3, 4],
            [
                "gemm flashinfer/cutedsl-nvfp4 tokens: 4096 x 2320 nvfp4",
                "gemm cublas/linear tokens: 4096 x 1024 bf16",
                "moe.experts flashinfer/trtllm-gen-moe tokens: 22 of 512 (512 here), 1024 x 384 gated false nvfp4",
            ],
        ),
        (
            Line("nemotron-3-ultra-550b-a55b-nvfp4", "b200", EIGHT),
            [0, 3, 4],
            [
                "gemm flashinfer/cutedsl-nvfp4 tokens: 8192 x 4384 nvfp4",
                "gemm cublas/linear tokens: 8192 x 2048 bf16",
                "moe.experts flashinfer/trtllm-gen-moe tokens: 22 of 512 (512 here), 2048 x 640 gated false nvfp4",
            ],
        ),
    ] {
        let plan = line.plan();
        let pieces = layer(&plan, 0);
        for piece in expected {
            assert!(pieces.contains(&piece.to_owned()), "{line:?}: {piece}: {pieces:#?}");
        }
        // The state space in front of attention, and attention, are left out; keys and values have 8 bits.
        for index in layers.into_iter().skip(1) {
            assert!(layer(&plan, index)[0].ends_with(" bf16"), "{line:?}, layer {index}");
        }
        let attention = layer(&plan, layers[2]);
        assert!(attention.iter().any(|piece| piece.starts_with("attention.decode") && piece.ends_with("fp8")), "{attention:#?}");
    }
}

#[test]
fn states_are_kept_in_32_bits_and_a_block_of_attention_holds_one() {
    let command = |arguments: &str| format!("vllm serve m {arguments}");
    let cache = |name, arguments: &str| {
        let command = command(arguments);
        let stated = read(Launch { command: Some(&command), args: None, env: &[], written_for: None }).unwrap();
        resolve(&stated, Machine { model: &model(name), chip: &chip("h200"), gpus: 8 }).unwrap()
    };
    // 64 states of 64 by 128 in 32 bits and 3 tokens of 6,144 columns in 16 are 2,134,016 bytes, and a token of attention has 1,024.
    let resolved = cache(NANO, "");
    let StateSettings { mode, block_size, state_bytes, ssm_format, .. } = resolved.cache.states.unwrap();
    assert_eq!((mode, block_size, state_bytes, ssm_format), (MambaCacheMode::Align, 2096, 2_134_016, FormatName::Fp32));
    let layers = kv_layers(&model(NANO), &resolved, &chip("h200")).unwrap();
    let kept = layers.iter().filter(|layer| layer.attention == Attention::Mamba(MambaMode::Align { checkpoints: true })).count();
    assert_eq!((layers.len(), kept), (29, 23));
    // A checkpoint that says nothing of its states gets 32 bits too.
    assert_eq!(cache("nemotron-h-56b-base-8k", EIGHT).cache.states.unwrap().ssm_format, FormatName::Fp32);
}

#[test]
fn a_pass_is_cut_at_every_state_space_and_every_attention() {
    let graphs = Line(NANO, "h200", "").plan().graphs;
    // Whole passes for decodes, pieces between 29 calls for prompts.
    assert_eq!((graphs.pieces, graphs.full.is_empty(), graphs.piecewise.is_empty()), (30, false, false));
}

#[test]
fn one_rank_holds_the_checkpoint() {
    for (name, chip) in [(NANO, "h200"), (SUPER, "h200"), ("nemotron-h-56b-base-8k", "h200")] {
        let (graph, plan) = (model(name), Line(name, chip, "").plan());
        let resident: u64 = plan.weights.iter().map(|tensor| tensor.bytes.get() * u64::from(tensor.count)).sum();
        // Two bytes each, and two more for the decay of each head and for the bias that each expert is picked by.
        let more: u64 = graph
            .layers()
            .map(|block| {
                let heads = if let blis_contracts::model::Attention::Mamba2(space) = &block.attention { u64::from(space.heads) } else { 0 };
                let experts = if let blis_contracts::model::FeedForward::MixtureOfExperts(moe) = &block.feed_forward {
                    moe.experts.into()
                } else {
                    0
                };
                2 * (heads + experts)
            })
            .sum();
        assert_eq!(resident, 2 * graph.parameters.total + more, "{name}");
    }
}
