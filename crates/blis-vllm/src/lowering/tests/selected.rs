//! Models whose indexer picks the tokens that latent attention sees: backends, layers, caches, weights and buffers.

use blis_contracts::plan::Primitive;

use super::*;
use crate::config::{AttentionBackend, CudagraphMode, Setting};

const EIGHT: &str = "--tensor-parallel-size 8";
const FP8: &str = "--tensor-parallel-size 8 --kv-cache-dtype fp8";

fn resolved(Line(name, chip_name, arguments): Line<'_>) -> Result<crate::config::Resolved, String> {
    let command = format!("vllm serve m {arguments}");
    let stated = read(Launch { command: Some(&command), args: None, env: &[], written_for: None }).unwrap();
    resolve(&stated, Machine { model: &model(name), chip: &chip(chip_name), gpus: 8 }).map_err(|error| error.to_string())
}

#[test]
fn the_first_sparse_backend_that_reads_the_cache_is_taken_and_blocks_have_64_tokens() {
    use AttentionBackend::{FlashAttnMlaSparse, FlashMlaSparse, FlashinferMlaSparse, FlashinferMlaSparseSm90, FlashinferMlaSparseSm120};
    for (line, backend, stored) in [
        (Line("deepseek-v3.2", "h200", EIGHT), FlashAttnMlaSparse, 1152),
        (Line("deepseek-v3.2", "h200", FP8), FlashMlaSparse, 656),
        (Line("deepseek-v3.2", "h200", "--tensor-parallel-size 8 --kv-cache-dtype fp8_ds_mla"), FlashMlaSparse, 656),
        (Line("deepseek-v3.2", "h200", "--tensor-parallel-size 8 --kv-cache-dtype bfloat16"), FlashAttnMlaSparse, 1152),
        (Line("deepseek-v3.2", "b200", EIGHT), FlashinferMlaSparse, 1152),
        (Line("deepseek-v3.2", "b200", "--tensor-parallel-size 4"), FlashMlaSparse, 1152),
        (Line("deepseek-v3.2", "b200", FP8), FlashinferMlaSparse, 576),
        (
            Line("deepseek-v3.2", "b200", "--tensor-parallel-size 8 --kv-cache-dtype fp8 --attention-backend FLASHMLA_SPARSE"),
            FlashMlaSparse,
            656,
        ),
        (Line("deepseek-v3.2-nvfp4", "b200", EIGHT), FlashinferMlaSparse, 576),
        (Line("deepseek-v3.2-nvfp4", "h200", EIGHT), FlashinferMlaSparseSm90, 576),
        (Line("glm-5", "rtx-pro-6000", EIGHT), FlashinferMlaSparseSm120, 656),
    ] {
        let got = resolved(line).unwrap();
        assert_eq!((got.attention.backend, got.cache.block_size), (backend, 64), "{line:?}");
        assert_eq!(got.compilation.cudagraph_mode, CudagraphMode::FullAndPiecewise, "{line:?}");
        let plan = line.plan();
        let (layers, per_token) = (plan.kv[0].layers / 2, plan.kv[0].bytes_per_block.get() / 64);
        assert_eq!((plan.kv.len(), per_token), (1, u64::from(layers) * (stored + 132)), "{line:?}");
    }
}

#[test]
fn a_stated_format_that_the_backend_does_not_keep_is_told() {
    let notes = |name: &str, chip_name: &str, format: &str| {
        let arguments = format!("{EIGHT} --kv-cache-dtype {format}");
        let got = resolved(Line(name, chip_name, &arguments)).unwrap();
        let format = got.explained.iter().find(|line| line.setting == Setting::KvCacheDtype).unwrap();
        (format.value.clone(), got.notes.join("; "))
    };
    let (format, told) = notes("deepseek-v3.2-nvfp4", "rtx-pro-6000", "bfloat16");
    assert_eq!(format, "fp8_ds_mla");
    assert!(told.starts_with("--kv-cache-dtype = bfloat16 becomes fp8_ds_mla: FLASHINFER_MLA_SPARSE_SM120 knows no 16 bits"), "{told}");
    let (format, told) = notes("deepseek-v3.2", "h200", "fp8");
    assert_eq!(
        (format.as_str(), told.as_str()),
        ("fp8_ds_mla", "--kv-cache-dtype = fp8 becomes fp8_ds_mla: how FLASHMLA_SPARSE stores 8 bits")
    );
    assert_eq!(notes("deepseek-v3.2", "h200", "auto"), ("auto".to_owned(), String::new()), "whoever leaves the choice is told nothing");
    assert_eq!(notes("deepseek-v3.2", "h200", "fp8_ds_mla"), ("fp8_ds_mla".to_owned(), String::new()));
}

#[test]
fn only_an_architecture_that_reads_bfloat16_as_auto_is_said_to() {
    let rule = |name, format| {
        let got = resolved(Line(name, "rtx-pro-6000", &format!("{EIGHT} --kv-cache-dtype {format}"))).unwrap();
        got.explained.into_iter().find(|line| line.setting == Setting::KvCacheDtype).unwrap().rule
    };
    let backend = "FLASHINFER_MLA_SPARSE_SM120 knows no 16 bits";
    assert_eq!(rule("glm-5", "auto"), backend);
    assert_eq!(rule("deepseek-v3.2-nvfp4", "bfloat16"), format!("{backend}, and this architecture takes bfloat16 for auto"));
}

#[test]
fn what_no_backend_serves_is_refused_with_its_reasons() {
    for (line, expected) in [
        (Line("deepseek-v3.2", "a100-sxm", EIGHT), "FLASHMLA_SPARSE: compute capability not supported"),
        (
            Line("deepseek-v3.2", "h200", "--tensor-parallel-size 8 --attention-backend FLASHMLA"),
            "FLASHMLA is not valid for this configuration: sparse not supported",
        ),
        (Line("deepseek-v3", "h200", "--tensor-parallel-size 8 --attention-backend FLASHMLA_SPARSE"), "non-sparse not supported"),
        (Line("deepseek-v3", "h200", "--tensor-parallel-size 8 --kv-cache-dtype fp8_ds_mla"), "kv_cache_dtype not supported"),
        (
            Line("deepseek-v3.2", "h200", "--tensor-parallel-size 8 --block-size 96"),
            "leave it out, or state a size such as 64, 128, 256, 512",
        ),
        (Line("deepseek-v3.2", "b200", "--tensor-parallel-size 8 --block-size 32"), "DEEPSEEK_V32_INDEXER"),
        (Line("deepseek-v3.2", "b200", "--tensor-parallel-size 8 --attention-config.indexer_kv_dtype mxfp4"), "stores 8 bits"),
    ] {
        let message = resolved(line).unwrap_err();
        assert!(message.contains(expected), "{line:?}: {message}");
    }
}

fn layer(plan: &PoolPlan, index: u32) -> Vec<String> {
    plan.layers.iter().filter(|piece| piece.layer == index).map(written).collect()
}

#[test]
fn a_layer_of_deepseek_v3_2_on_eight_ranks_of_h200() {
    let plan = Line("deepseek-v3.2", "h200", FP8).plan();
    let expected = [
        "gemm flashinfer/swap-ab-fp8-block tokens to 31: 7168 x 2112 fp8_block",
        "gemm deepgemm/fp8-block tokens from 32: 7168 x 2112 fp8_block",
        "gemm cublas/linear tokens: 7168 x 192 bf16",
        "norm triton/latent-norm-rope-insert tokens: 9492 B a row",
        "gemm flashinfer/swap-ab-fp8-block tokens to 31: 1536 x 3072 fp8_block",
        "gemm deepgemm/fp8-block tokens from 32: 1536 x 3072 fp8_block",
        "gemm.batched cublas/batched tokens readied: 16 of 128 x 512 bf16",
        "gemm flashinfer/swap-ab-fp8-block tokens to 31: 1536 x 8192 fp8_block",
        "gemm deepgemm/fp8-block tokens from 32: 1536 x 8192 fp8_block",
        "rope triton/latent-query-rope-quantise tokens readied: 28672 B a row",
        "rope triton/latent-query-rope-quantise tokens unreadied: 28672 B a row",
        "selection.prefill deepgemm/token-scores requests scored: 64 heads of 128 on entries of 8 B for 1 tokens, 2048 of them, ranked to 2048, fp8",
        "selection.decode deepgemm/paged-token-scores requests scored: 64 heads of 128 on entries of 132 B for 1 tokens, 2048 of them, ranked to 2048, fp8",
        "activation torch/copy tokens mixed: 12288 B a row",
        "activation vllm-csrc/gather-mla-cache cached of dense prompts: 1808 B a row",
        "gemm flashinfer/swap-ab-fp8-block prefills of dense prompts to 31: 512 x 4096 fp8_block",
        "gemm deepgemm/fp8-block prefills of dense prompts from 32: 512 x 4096 fp8_block",
        "activation torch/copy prefills of dense prompts: 10240 B a row",
        "gemm flashinfer/swap-ab-fp8-block cached of dense prompts to 31: 512 x 4096 fp8_block",
        "gemm deepgemm/fp8-block cached of dense prompts from 32: 512 x 4096 fp8_block",
        "activation torch/copy cached of dense prompts: 10240 B a row",
        "latent.prefill flash-attn/fa3 requests of dense prompts: 16/16 heads of 192 and 128, group 0, bf16",
        "activation torch/copy prefills of dense prompts: 8192 B a row",
        "gemm.batched cublas/batched tokens beside dense prompts: 16 of 128 x 512 bf16",
        "attention.sparse_prefill flashmla/sparse-mla-fp8 requests picking: 64 heads of 544 on entries of 656 B, window 0, 2048 for 1 tokens, bf16",
        "attention.sparse_decode flashmla/sparse-mla-fp8 requests picking: 64 heads of 544 on entries of 656 B, window 0, 2048 for 1 tokens, bf16",
        "gemm.batched cublas/batched tokens picking: 16 of 512 x 128 bf16",
        "gemm flashinfer/swap-ab-fp8-block tokens to 31: 2048 x 7168 fp8_block",
        "gemm deepgemm/fp8-block tokens from 32: 2048 x 7168 fp8_block",
        "collective.all_reduce flashinfer/fused-all-reduce-norm tokens to 36: 14336 B a row over 8",
    ];
    assert_eq!(layer(&plan, 5)[..expected.len()], expected);
}

#[test]
fn many_heads_over_packed_entries_gather_and_widen_them_for_prompts_and_blackwell_reads_them_as_they_are() {
    let attention = |line: Line<'_>| {
        let kinds = [Primitive::SparsePrefill, Primitive::SparseDecode];
        let plan = line.plan();
        layer(&plan, 5)
            .into_iter()
            .filter(|piece| !piece.contains("dense prompts"))
            .filter(|piece| kinds.iter().any(|kind| piece.starts_with(kind.as_str())) || piece.contains("gather"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        attention(Line("deepseek-v3.2", "h200", "--tensor-parallel-size 4 --kv-cache-dtype fp8")),
        [
            "activation vllm-csrc/gather-mla-cache prefills picking: 1808 B a row",
            "activation vllm-csrc/gather-mla-cache cached picking: 1808 B a row",
            "attention.sparse_prefill flashmla/sparse-mla requests picking: 64 heads of 544 on entries of 1152 B, window 0, 2048 for 1 tokens, bf16",
            "attention.sparse_decode flashmla/sparse-mla-fp8 requests picking: 64 heads of 544 on entries of 656 B, window 0, 2048 for 1 tokens, bf16",
        ]
    );
    assert_eq!(
        attention(Line("deepseek-v3.2-nvfp4", "b200", EIGHT)),
        [
            "attention.sparse_prefill flashinfer/trtllm-gen-sparse-mla requests picking: 16 heads of 544 on entries of 576 B, window 0, 2048 for 1 tokens, fp8",
            "attention.sparse_decode flashinfer/trtllm-gen-sparse-mla requests picking: 16 heads of 544 on entries of 576 B, window 0, 2048 for 1 tokens, fp8",
        ]
    );
}

#[test]
fn prompts_attend_densely_by_the_limits_of_each_backend_and_on_consumer_blackwell_never() {
    let rule = |line: Line<'_>| line.plan().dense_prompts.map(|rule| (rule.generates_to, rule.ends_within));
    for (line, generates_to) in [
        (Line("deepseek-v3.2", "h200", FP8), 128),
        (Line("deepseek-v3.2", "h200", EIGHT), 128),
        (Line("deepseek-v3.2", "h200", "--tensor-parallel-size 1 --data-parallel-size 8 --enable-expert-parallel"), 256),
        (Line("glm-5", "h200", FP8), 256),
        (Line("deepseek-v3.2-nvfp4", "h200", EIGHT), 128),
        (Line("deepseek-v3.2", "b200", EIGHT), 128),
        (Line("deepseek-v3.2", "b200", "--tensor-parallel-size 4"), 128),
        (Line("deepseek-v3.2-nvfp4", "b200", "--tensor-parallel-size 1 --data-parallel-size 8 --enable-expert-parallel"), 1024),
        (Line("glm-5-nvfp4", "b200", EIGHT), 128),
    ] {
        assert_eq!(rule(line), Some((generates_to, 2048)), "{line:?}");
    }
    assert_eq!(rule(Line("glm-5", "rtx-pro-6000", EIGHT)), None);
    assert_eq!(rule(Line("deepseek-v3", "h200", EIGHT)), None, "all attention of this model is dense");
}

#[test]
fn the_kernel_of_dense_prompts_is_that_of_latent_attention_and_queries_beside_them_are_quantised_apart() {
    let dense = |line: Line<'_>| -> Vec<String> {
        let pieces = layer(&line.plan(), 5).into_iter();
        pieces.filter(|piece| piece.contains("dense prompts") && (piece.starts_with("latent") || piece.contains("quantise"))).collect()
    };
    let kernel = |kernel: &str, dims: &str| format!("latent.prefill {kernel} requests of dense prompts: {dims}, group 0, bf16");
    assert_eq!(dense(Line("glm-5", "h200", FP8)), [kernel("flash-attn/fa3", "8/8 heads of 256 and 256")]);
    assert_eq!(dense(Line("deepseek-v3.2", "b200", EIGHT)), [kernel("flash-attn/fa4", "16/16 heads of 192 and 128")]);
    let quantised = "activation vllm-csrc/quantise tokens beside dense prompts: 13824 B a row".to_owned();
    assert_eq!(
        dense(Line("glm-5-nvfp4", "b200", EIGHT)),
        [kernel("flashinfer/trtllm-gen-mla-prefill", "8/8 heads of 256 and 256"), quantised]
    );
}

#[test]
fn a_layer_that_takes_the_choice_of_another_has_no_indexer_no_keys_and_no_scores() {
    let plan = Line("glm-5.2", "h200", FP8).plan();
    let scores = |index| layer(&plan, index).iter().filter(|piece| piece.starts_with("selection")).count();
    assert_eq!([0, 1, 2, 3, 4, 5, 6].map(scores), [2, 2, 2, 0, 0, 0, 2]);
    // 3 layers and every fourth of the other 75 score.
    let (scoring, caches) = (3 + 18, plan.kv[0].layers);
    assert_eq!((caches, plan.kv[0].bytes_per_block.get()), (78 + scoring, 64 * (78 * 656 + u64::from(scoring) * 132)));
    let indexers = plan.weights.iter().find(|tensor| tensor.name == "indexer").unwrap();
    assert_eq!((indexers.count, indexers.bytes.get()), (scoring, 2 * (2048 * 32 * 128 + 6144 * (128 + 32)) + 2 * 4 * 128));
}

#[test]
fn lists_scores_and_what_prompts_are_gathered_into_are_taken_before_the_cache_is_sized() {
    let buffer = |line: Line<'_>, name: &str| line.plan().buffers.iter().find(|buffer| buffer.name == name).unwrap().bytes.get();
    let line = Line("deepseek-v3.2", "h200", "--tensor-parallel-size 8 --kv-cache-dtype fp8 --max-num-batched-tokens 8192");
    assert_eq!(buffer(line, "picked tokens"), 8192 * 2048 * 4);
    assert_eq!(buffer(line, "scores of prompts"), 512 << 20);
    // 5 x 163,840 tokens widened, and queries and answers of 16 heads and of 64.
    let queries = 8192 * ((16 + 64) * 576 * 2 + (16 + 64) * 512 * 2);
    assert_eq!(buffer(line, "workspace of sparse attention"), 5 * 163_840 * 576 * 2 + queries);
    let keys = 40 * 163_840 * 132;
    assert_eq!(buffer(Line("deepseek-v3.2", "b200", FP8), "workspace of sparse attention"), keys);
}
