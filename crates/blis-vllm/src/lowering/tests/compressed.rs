//! Models that attend to compressed tokens: the pieces of a layer, the caches and their groups, what stays resident, what is refused.

use blis_contracts::plan::Primitive;

use super::*;
use crate::config::{AttentionBackend, ConfigError, CudagraphMode, IndexerKvDtype};
use crate::kv_sizing::groups::group_layers;
use crate::lowering::kv_layers;

const LINE: &str = "--kv-cache-dtype fp8 --block-size 256 --no-enable-prefix-caching --max-cudagraph-capture-size 2048 --max-model-len 2304 \
                    --max-num-batched-tokens 2048 --attention-config.indexer_kv_dtype mxfp4";

fn plan(chip: &str, ranks: u32) -> PoolPlan {
    Line("deepseek-v4-pro", chip, &format!("{LINE} --tensor-parallel-size {ranks}")).plan()
}

/// The pieces of a layer that run for some rows, in words, without what sums over ranks.
fn pieces(plan: &PoolPlan, index: u32, rows: u32) -> Vec<String> {
    let of_layer = plan.layers.iter().filter(|piece| piece.layer == index && piece.runs_for.contains(rows));
    of_layer.filter(|piece| piece.primitive != Primitive::AllReduce).map(written).collect()
}

#[test]
fn a_selecting_layer_on_eight_ranks() {
    let plan = plan("b200", 8);
    let attention = [
        "norm tilelang/mhc-out-in tokens to 32: 258048 B a row",
        "gemm deepgemm/fp8-block tokens: 7168 x 2048 fp8_block",
        "moe.beside vllm/projection-streams tokens to 1024: 37617664 B a call",
        "norm triton/qk-latent-norm tokens: 8192 B a row",
        "gemm deepgemm/fp8-block tokens: 1536 x 16384 fp8_block",
        "rope vllm-csrc/qnorm-rope-kv-insert tokens: 138240 B a row",
        "selection.prefill deepgemm/scores requests: 64 heads of 128 on entries of 8 B for 4 tokens, 1024 of them, ranked to 2048, fp8",
        "selection.decode deepgemm/paged-scores requests: 64 heads of 128 on entries of 68 B for 4 tokens, 1024 of them, ranked to 2048, fp8",
        "attention.sparse_prefill flashmla/sparse-prefill requests: 64 heads of 512 on entries of 1024 B, window 128, 1024 for 4 tokens, bf16",
        "attention.sparse_decode flashmla/sparse-decode requests: 64 heads of 512 on entries of 584 B, window 128, 1024 for 4 tokens, bf16",
        "rope triton/inverse-rope-quantise tokens: 24576 B a row",
        "gemm deepgemm/fp8-block tokens: 4096 x 2048 fp8_block",
        "gemm deepgemm/fp8-block tokens: 2048 x 7168 fp8_block",
    ];
    let experts = [
        "norm tilelang/mhc-out-in tokens to 32: 258048 B a row",
        "gemm cublas/linear tokens: 7168 x 384 bf16",
        "moe.beside vllm/shared-experts-stream tokens to 256: 8259552 B a call",
        "moe.experts flashinfer/trtllm-gen-moe tokens: 6 of 384 (384 here), 7168 x 384 gated true mxfp4_mxfp8",
        "activation torch/add tokens: 43008 B a row",
    ];
    assert_eq!(pieces(&plan, 2, 8), [&attention[..], &experts].concat());
    let sums = |rows| {
        plan.layers
            .iter()
            .filter(|piece| piece.layer == 2 && piece.primitive == Primitive::AllReduce && piece.runs_for.contains(rows))
            .count()
    };
    assert_eq!((sums(8), sums(2048)), (2, 2), "attention and experts are each summed once");
}

#[test]
fn many_rows_project_one_after_the_other_and_mix_in_two_steps() {
    let plan = plan("b200", 8);
    let many = pieces(&plan, 2, 2048);
    for piece in ["7168 x 2048 bf16", "7168 x 64 bf16", "7168 x 512 bf16"] {
        assert!(many.contains(&format!("gemm cublas/linear tokens from 1025: {piece}")), "{many:#?}");
    }
    for piece in
        ["gemm deepgemm/fp8-block tokens from 257: 7168 x 768 fp8_block", "gemm deepgemm/fp8-block tokens from 257: 384 x 7168 fp8_block"]
    {
        assert!(many.iter().any(|many| many == piece), "{many:#?}");
    }
    let mixing = many.iter().filter(|piece| piece.contains("mhc")).map(String::as_str).collect::<Vec<_>>();
    let (out, into) = ("norm tilelang/mhc-out tokens from 33: 129024 B a row", "norm tilelang/mhc-in tokens from 33: 129024 B a row");
    assert_eq!(mixing, [out, into, out, into]);
}

#[test]
fn coarse_layers_attend_to_all_entries_and_select_none() {
    let plan = plan("b200", 8);
    let of_layer = pieces(&plan, 1, 8);
    assert!(!of_layer.iter().any(|piece| piece.starts_with("selection")), "{of_layer:#?}");
    assert!(of_layer.iter().any(|piece| piece.ends_with("entries of 584 B, window 128, 0 for 128 tokens, bf16")), "{of_layer:#?}");
}

#[test]
fn graphs_break_at_every_attention_without_a_compiler() {
    let plan = plan("b200", 8);
    assert_eq!((plan.graphs.pieces, plan.graphs.full.last(), plan.graphs.piecewise.last()), (62, Some(&1024), Some(&2048)));
}

#[test]
fn caches_form_the_groups_that_upstream_packs() {
    let plan = plan("b300", 4);
    let groups: Vec<_> = plan.kv.iter().map(|group| (group.layers, group.tokens_per_block.get(), group.bytes_per_block.get())).collect();
    let full = 31 * 1_728 + 30 * (37_440 + 4_608);
    let expected = [(31, 64, 31 * 37_440), (30, 64, 30 * 37_440), (91, 256, full), (31, 8, 31 * 32_832), (60, 4, 30 * (32_832 + 8_640))];
    assert_eq!(groups, expected);
}

#[test]
fn scores_in_eight_bits_take_more_of_a_block() {
    let line = LINE.replace(" --attention-config.indexer_kv_dtype mxfp4", "");
    let plan = Line("deepseek-v4-pro", "h200", &format!("{line} --tensor-parallel-size 8")).plan();
    assert_eq!(plan.kv[2].bytes_per_block.get(), 31 * 1_728 + 30 * (37_440 + 8_640));
}

#[test]
fn layers_without_compression_keep_a_window_alone() {
    let (model, chip) = (model("deepseek-v4-flash"), chip("h200"));
    let command = format!("vllm serve m {}", LINE.replace(" --attention-config.indexer_kv_dtype mxfp4", ""));
    let stated = read(Launch { command: Some(&command), args: None, env: &[], written_for: None }).unwrap();
    let resolved = resolve(&stated, Machine { model: &model, chip: &chip, gpus: 8 }).unwrap();
    let layers = kv_layers(&model, &resolved, &chip).unwrap();
    // Two layers of a window, 21 that select and have five caches, 20 coarse ones with three.
    assert_eq!(layers.len(), 2 + 21 * 5 + 20 * 3);
    let sizes: Vec<usize> = group_layers(&layers, false, true).unwrap().iter().map(|group| group.layers.len()).collect();
    assert_eq!(sizes, [22, 21, 62, 42, 20]);
}

#[test]
fn weights_of_a_rank_are_those_of_the_checkpoint_shared_or_whole() {
    let resident = |ranks: u64| -> u64 {
        plan("b300", u32::try_from(ranks).unwrap()).weights.iter().map(|tensor| tensor.bytes.get() * u64::from(tensor.count)).sum()
    };
    let (hidden, layers) = (7168_u64, 61_u64);
    // Scales of 8 bits for each row and 128 inputs, four to a word.
    let block = |rows: u64, columns: u64| rows * columns + 4 * rows * columns.div_ceil(512);
    for ranks in [4, 8] {
        let embeddings = 2 * 2 * 129_280 / ranks * hidden;
        let attention = block(2048, hidden) + block(65_536 / ranks, 1536) + block(16_384 / ranks, 4096) + block(hidden, 16_384 / ranks);
        let norms = 2 * (2 * hidden + 2048) + 4 * 64;
        let mixing = 2 * 4 * (24 * 4 * hidden + 27);
        let compressor = |columns: u64, ratio: u64, width: u64| 2 * 2 * columns * hidden + 4 * ratio * columns + 2 * width;
        let fine = compressor(1024, 4, 512) + block(8192, 1536) + 2 * 64 * hidden + compressor(256, 4, 128);
        let coarse = compressor(512, 128, 512);
        let width = 3072 / ranks;
        let experts = 384 * 3 * hidden * width / 32 * 17;
        let shared = block(2 * width, hidden) + block(hidden, width);
        let router = 2 * 384 * hidden;
        let by_token = 3 * 129_280 * 6 * 4;
        let selection = 58 * 384 * 4;
        let last = 2 * hidden + 4 * (4 * (4 * hidden + 1) + 1);
        let expected = embeddings
            + layers * (attention + norms + mixing + experts + shared + router)
            + 30 * fine
            + 31 * coarse
            + by_token
            + selection
            + last;
        assert_eq!(resident(ranks), expected, "{ranks} ranks");
    }
}

/// The line of measured deployments, written for an older release, with what it resolves to.
#[test]
fn the_line_of_measured_deployments() {
    let (model, chip) = (model("deepseek-v4-pro"), chip("b300"));
    let command = r#"vllm serve deepseek-ai/DeepSeek-V4-Pro --host 0.0.0.0 --port 8888 --tensor-parallel-size 4 --data-parallel-size 1
        --pipeline-parallel-size 1 --kv-cache-dtype fp8 --trust-remote-code --block-size 256 --no-enable-prefix-caching --compilation-config
        '{"cudagraph_mode":"FULL_AND_PIECEWISE","custom_ops":["all"]}' --attention_config.use_fp4_indexer_cache True
        --tokenizer-mode deepseek_v4 --tool-call-parser deepseek_v4 --enable-auto-tool-choice --reasoning-parser deepseek_v4
        --max-cudagraph-capture-size 2048 --max-model-len 2304 --max-num-batched-tokens 2048"#;
    let stated = read(Launch { command: Some(command), args: None, env: &[], written_for: Some("0.25.0") }).unwrap();
    let resolved = resolve(&stated, Machine { model: &model, chip: &chip, gpus: 8 }).unwrap();
    assert_eq!(
        (resolved.attention.backend, resolved.attention.indexer_kv_dtype),
        (AttentionBackend::FlashMlaSparseDsv4, IndexerKvDtype::Mxfp4)
    );
    assert_eq!((resolved.cache.block_size, resolved.attention.packs_pages), (256, true));
    let compilation = &resolved.compilation;
    assert_eq!((compilation.cudagraph_mode, compilation.max_cudagraph_capture_size), (CudagraphMode::FullAndPiecewise, 2048));
    assert_eq!(compilation.custom_ops[0], "all");
}

#[test]
fn what_upstream_or_this_port_cannot_run_is_refused_by_name() {
    let refusal = |chip_name: &str, line: &str| -> ConfigError {
        let (model, chip) = (model("deepseek-v4-pro"), chip(chip_name));
        let command = format!("vllm serve m {line}");
        let stated = read(Launch { command: Some(&command), args: None, env: &[], written_for: None }).unwrap();
        resolve(&stated, Machine { model: &model, chip: &chip, gpus: 8 }).unwrap_err()
    };
    for (chip_name, line, expected) in [
        ("b200", "--kv-cache-dtype bfloat16", "fp8_ds_mla layout only supports fp8 kv-cache, got bfloat16"),
        ("b200", "--block-size 64", "FLASHMLA_SPARSE_DSV4 reads blocks of 256 tokens"),
        ("h200", "--attention-config.indexer_kv_dtype mxfp4", "requires Blackwell datacenter GPUs"),
        ("b200", "--attention-backend FLASHINFER", "selected backend FLASHINFER has no kernel for attention to compressed tokens"),
        ("b200", "--tensor-parallel-size 3", "attention heads (128) must be divisible by tensor parallel size (3)"),
    ] {
        let message = refusal(chip_name, line).to_string();
        assert!(message.contains(expected), "{message}");
    }
}
