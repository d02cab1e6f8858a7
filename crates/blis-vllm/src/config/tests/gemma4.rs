//! Gemma 4: how heads of two widths attend, and what the ability to take images changes for text.

use blis_contracts::chip::Chip;
use blis_contracts::model::ModelGraph;
use blis_contracts::strict::{Document, LineEndings};

use crate::config::tests::{Case, a100, b200, h100, h200, rtx5090, serve};
use crate::config::{AttentionBackend, GraphSupport, Resolved};

fn decoded(name: &str, text: &str) -> ModelGraph {
    Document::parse(name, text.as_bytes(), LineEndings::Lf).unwrap().decode().unwrap()
}

/// 26B-A4B as the catalog has it.
pub(super) fn experts() -> ModelGraph {
    decoded("gemma-4-26b-a4b", include_str!("../../../../../catalog/models/gemma-4-26b-a4b/graph.yaml"))
}

/// 31B, whose recipe stores keys and values in 8 bits.
pub(super) fn dense() -> ModelGraph {
    decoded("gemma-4-31b-it-nvfp4", include_str!("../../../../../catalog/models/gemma-4-31b-it-nvfp4/graph.yaml"))
}

fn resolved(model: &ModelGraph, chip: &Chip, arguments: &str) -> Result<Resolved, String> {
    Case::line(&serve(arguments)).resolve(model, chip).map_err(|error| error.to_string())
}

#[test]
fn heads_of_two_widths_attend_as_upstream_resolves_them() {
    use AttentionBackend::{FlashAttn, Flashinfer, TritonAttn, TritonFlashAttn, TritonFlashinfer};
    use GraphSupport::{Always, UniformBatch, UniformSingleTokenDecode};
    // Versions are those of FlashAttention, where it is the backend's.
    let (four, each) = (Some([4, 4]), Some([3, 4]));
    let cases = [
        (experts(), h200(), "", TritonFlashAttn, four, 16, UniformSingleTokenDecode),
        (dense(), h200(), "", TritonFlashAttn, each, 64, UniformSingleTokenDecode),
        (experts(), h200(), "--language-model-only", FlashAttn, four, 16, Always),
        (dense(), h200(), "--language-model-only", FlashAttn, each, 64, Always),
        (experts(), h200(), "--attention-backend FLASH_ATTN", FlashAttn, four, 16, Always),
        // Blocks that the composite cannot read leave Triton alone.
        (experts(), h200(), "--kv-cache-dtype fp8 --block-size 16", TritonAttn, None, 16, Always),
        (experts(), b200(), "--block-size 16", TritonAttn, None, 16, Always),
        (experts(), b200(), "", TritonFlashinfer, None, 64, UniformSingleTokenDecode),
        (dense(), b200(), "", TritonFlashinfer, None, 64, UniformSingleTokenDecode),
        (dense(), b200(), "--language-model-only", Flashinfer, None, 16, UniformBatch),
        (experts(), a100(), "", TritonAttn, None, 16, Always),
        (dense(), rtx5090(), "", TritonAttn, None, 16, Always),
        (
            experts(),
            h100(),
            "--language-model-only --attention-backend FLASHINFER --kv-cache-dtype fp8",
            Flashinfer,
            None,
            16,
            UniformSingleTokenDecode,
        ),
    ];
    for (model, chip, arguments, backend, versions, block_size, support) in cases {
        let got = resolved(&model, &chip, arguments).unwrap();
        let attention = &got.attention;
        let found = (attention.backend, got.cache.block_size, attention.graph_support);
        assert_eq!(found, (backend, block_size, support), "{} on {} {arguments}", model.name, chip.name);
        if let Some(versions) = versions {
            assert_eq!([256, 512].map(|width| attention.flash_attn_version(width)), versions.map(Some), "{} {arguments}", model.name);
        }
    }
}

#[test]
fn a_backend_that_cannot_mask_images_or_read_the_cache_is_refused_with_upstream_s_reason() {
    for (model, chip, arguments, expected) in [
        (experts(), h200(), "--attention-backend FLASHINFER", "partial multimodal token full attention not supported"),
        (experts(), h200(), "--attention-backend FLASH_ATTN --kv-cache-dtype fp8", "SM90 FP8 KV with mm_prefix requires Triton"),
        (
            experts(),
            b200(),
            "--attention-backend FLASH_ATTN",
            "mm_prefix requires FlashAttention v4, which does not resolve for this head_size",
        ),
        (experts(), a100(), "--attention-backend FLASH_ATTN", "partial multimodal token full attention not supported"),
        (dense(), a100(), "", "FP8 KV cache is not supported by the Triton attention backend on compute capability 8.0"),
    ] {
        let message = resolved(&model, &chip, arguments).unwrap_err();
        assert!(message.contains(expected), "{arguments}: {message}");
    }
}

#[test]
fn a_step_holds_the_longest_input_that_is_not_split_unless_the_line_says_otherwise() {
    let tokens = |chip: Chip, arguments: &str| resolved(&experts(), &chip, arguments).unwrap().scheduler.max_num_batched_tokens;
    assert_eq!([tokens(a100(), ""), tokens(h200(), "")], [2496, 8192]);
    assert_eq!([tokens(a100(), "--language-model-only"), tokens(a100(), "--max-num-batched-tokens 512")], [2048, 512]);
}
