//! `MiniMax` M3: its kernels, its layers, its caches and its weights.

use blis_contracts::plan::Primitive;

use super::*;
use crate::kv_sizing::groups::group_layers;
use crate::lowering::kv_layers;

const MODEL: &str = "minimax-m3-nvfp4";

fn kernels(line: Line<'_>, primitive: Primitive) -> Vec<String> {
    let plan = line.plan();
    let pieces = plan.layers.iter().filter(|piece| piece.primitive == primitive && piece.layer == 3);
    let named = |piece: &LoweredLayer| {
        let words = written(piece);
        let (kernel, _) = words.split_once(": ").unwrap();
        kernel.trim_start_matches(primitive.as_str()).trim().to_owned()
    };
    pieces.map(named).collect()
}

#[test]
fn decodes_see_picked_blocks_by_triton_and_from_sixteen_padded_requests_by_cutlass_where_asked() {
    let asked = "--tensor-parallel-size 4 --kv-cache-dtype fp8 --attention_config.minimax_m3_msa_decode_backend cutlass";
    let index = "cutedsl/msa-index-decode requests".to_owned();
    // A decode of nine is padded to a captured sixteen.
    let both = [index.clone(), "triton/msa-decode requests to 8".to_owned(), "fmha-sm100/msa-decode requests from 9".to_owned()];
    assert_eq!(kernels(Line(MODEL, "b200", asked), Primitive::AttentionDecode), both);
    let eager = format!("{asked} --enforce-eager");
    let both = [index.clone(), "triton/msa-decode requests to 15".to_owned(), "fmha-sm100/msa-decode requests from 16".to_owned()];
    assert_eq!(kernels(Line(MODEL, "b200", &eager), Primitive::AttentionDecode), both);
    // Without an fp8 cache there is no CUTLASS kernel.
    let wide = asked.replace("--kv-cache-dtype fp8", "");
    assert_eq!(kernels(Line(MODEL, "b200", &wide), Primitive::AttentionDecode), [index, "triton/msa-decode requests".to_owned()]);
    let hopper = ["triton/msa-index-decode requests", "triton/msa-decode requests"];
    assert_eq!(kernels(Line("minimax-m3", "h200", "--tensor-parallel-size 8"), Primitive::AttentionDecode), hopper);
    let hopper = ["triton/msa-index-prefill requests", "triton/msa-prefill requests"];
    assert_eq!(kernels(Line("minimax-m3", "h200", "--tensor-parallel-size 8"), Primitive::AttentionPrefill), hopper);
}

#[test]
fn a_layer_with_an_indexer_on_four_ranks() {
    let line = "--tensor-parallel-size 4 --kv-cache-dtype fp8 --attention_config.indexer_kv_dtype fp8 --language-model-only";
    let plan = Line(MODEL, "b200", line).plan();
    let layer: Vec<String> = plan.layers.iter().filter(|piece| piece.layer == 3).map(written).collect();
    // 16 query heads, a key and a value head, a head of the indexer's queries and its key, of 128 each.
    let expected = [
        "gemm flashinfer/cutedsl-mxfp8 tokens: 6144 x 2560 mxfp8",
        "rope vllm-csrc/minimax-m3-qk-norm-rope-insert tokens: 10240 B a row",
        "attention.prefill fmha-sm100/msa-index-prefill requests: 1/1 heads of 64, group 0, window 0, sinks false, fp8",
        "attention.prefill fmha-sm100/msa-prefill requests: 16/1 heads of 128, group 0, window 2048, sinks false, fp8",
        "attention.decode cutedsl/msa-index-decode requests: 1/1 heads of 64, group 0, window 0, sinks false, fp8",
        "attention.decode triton/msa-decode requests: 16/1 heads of 128, group 0, window 2048, sinks false, fp8",
        "activation flashinfer/mxfp8-quantise tokens: 6208 B a row",
        "gemm flashinfer/cutedsl-mxfp8 tokens: 2048 x 6144 mxfp8",
    ];
    assert_eq!(layer[..expected.len()], expected);
    // The sum over the ranks and the norm behind it are one kernel up to 32 MiB, though nothing is compiled.
    assert!(layer[expected.len()].starts_with("collective.all_reduce flashinfer/fused-all-reduce-norm tokens to 2730: "), "{layer:#?}");
    assert!(layer.iter().any(|piece| piece.starts_with("moe.experts flashinfer/trtllm-gen-moe tokens: 4 of 128")), "{layer:#?}");
    let cut = &plan.graphs;
    assert_eq!((cut.pieces, cut.full.is_empty(), cut.piecewise.is_empty()), (61, false, false), "graphs break at every attention call");
}

/// What upstream's own grouping gives for two ranks: 117 specs (60 of keys and values, 57 of the indexer's keys) in one group, whose
/// page takes 5,799,936 bytes with an fp8 cache and the indexer's keys in 16 bits.
#[test]
fn an_indexers_keys_are_a_cache_of_their_own_in_the_one_group() {
    for (more, bytes) in [("", 5_799_936), ("--attention_config.indexer_kv_dtype fp8", 5_799_936 - 57 * 128 * 128)] {
        let line = format!("--tensor-parallel-size 2 --kv-cache-dtype fp8 {more}");
        let plan = Line(MODEL, "b300", &line).plan();
        let [group] = &plan.kv[..] else { panic!("{:?}", plan.kv) };
        assert_eq!((group.layers, group.tokens_per_block.get(), group.bytes_per_block.get()), (117, 128, bytes));
    }
    let (model, chip) = (model(MODEL), chip("b300"));
    let command = "vllm serve m --tensor-parallel-size 8 --kv-cache-dtype fp8";
    let stated = read(Launch { command: Some(command), args: None, env: &[], written_for: None }).unwrap();
    let resolved = resolve(&stated, Machine { model: &model, chip: &chip, gpus: 8 }).unwrap();
    let layers = kv_layers(&model, &resolved, &chip).unwrap();
    // Eight ranks share four key heads: one on each.
    let pages: Vec<u64> = layers.iter().take(5).map(|layer| layer.page_bytes).collect();
    let (own, keys) = (128 * 2 * 128, 128 * 128 * 2);
    assert_eq!(pages, [own, own, own, keys, own]);
    assert_eq!(group_layers(&layers, false, false).unwrap().len(), 1);
}

#[test]
fn encoders_stay_in_memory_unless_the_line_leaves_them_out() {
    let kept = |more: &str| {
        let plan = Line(MODEL, "b300", &format!("--tensor-parallel-size 2 {more}")).plan();
        plan.weights.iter().map(|tensor| tensor.bytes.get() * u64::from(tensor.count)).sum::<u64>()
    };
    let encoders: u64 = (631_185_920 / 2 + 234_381_312 / 2) * 2;
    assert_eq!(kept("") - kept("--language-model-only"), encoders);
}

#[test]
fn matrices_in_8_bits_with_block_scales_run_on_what_the_chip_has() {
    let qkv = |chip: &str| {
        let plan = Line(MODEL, chip, "--tensor-parallel-size 8").plan();
        let piece = plan.layers.iter().find(|piece| piece.primitive == Primitive::Gemm).unwrap();
        let PrimitiveShape::Gemm { format, .. } = piece.shape else { panic!("{piece:?}") };
        format!("{}/{} {}", piece.kernel.library, piece.kernel.variant, format.label())
    };
    assert_eq!(qkv("b200"), "flashinfer/cutedsl-mxfp8 mxfp8");
    assert_eq!(qkv("h200"), "marlin/linear mxfp8_bf16");
}
