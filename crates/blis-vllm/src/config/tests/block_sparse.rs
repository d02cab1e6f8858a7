//! Models with an indexer: what their layers add to a line's rules.

use blis_contracts::model::{Attention, BlockIndexer, ModelGraph};

use crate::config::tests::{Case, b200, h200, llama, serve, value_of};
use crate::config::{CompilationMode, CudagraphMode, IndexerKvDtype};

/// Llama with an indexer in every layer, under a name whose graphs break at attention.
fn indexed() -> ModelGraph {
    let mut model = llama();
    model.architecture = "MiniMaxM3ForCausalLM".to_owned();
    for block in model.blocks.values_mut() {
        let Attention::GroupedQuery(attention) = &mut block.attention else { panic!("grouped-query attention throughout") };
        attention.indexer =
            Some(BlockIndexer { query_heads: 8, head_dim: 128, block_tokens: 128, top_k: 16, first_blocks: 0, last_blocks: 1 });
    }
    model
}

fn error(arguments: &str, model: &ModelGraph) -> String {
    Case::line(&serve(arguments)).resolve(model, &b200()).unwrap_err().to_string()
}

#[test]
fn graphs_break_at_attention_instead_of_being_compiled() {
    let got = Case::line(&serve("--tensor-parallel-size 4")).resolve(&indexed(), &b200()).unwrap();
    assert_eq!((got.compilation.mode, got.compilation.cudagraph_mode), (CompilationMode::None, CudagraphMode::FullAndPiecewise));
    assert!(got.compilation.splits_at_attention && !got.compilation.cudagraph_capture_sizes.is_empty());
    // A mode the line states gives way.
    let stated = Case::line(&serve("--compilation_config.mode VLLM_COMPILE")).resolve(&indexed(), &b200()).unwrap();
    assert_eq!(stated.compilation.mode, CompilationMode::None);
    let other = Case::line(&serve("")).resolve(&llama(), &b200()).unwrap();
    assert_eq!(other.compilation.mode, CompilationMode::VllmCompile);
}

#[test]
fn pages_are_blocks_that_are_picked() {
    let got = Case::line(&serve("--tensor-parallel-size 4")).resolve(&indexed(), &h200()).unwrap();
    assert_eq!((got.cache.block_size, value_of(&got, "block_size")), (128, "128".to_owned()));
    assert_eq!(
        error("--block-size 64", &indexed()),
        "--block-size 64: layers with an indexer need a multiple of 128; state one, or leave it out"
    );
}

#[test]
fn an_indexer_keeps_16_bits_unless_the_line_says_otherwise() {
    let dtype = |arguments: &str| {
        let got = Case::line(&serve(arguments)).resolve(&indexed(), &b200()).unwrap();
        got.attention.block_sparse.unwrap().indexer_kv_dtype
    };
    assert_eq!(dtype(""), IndexerKvDtype::Bf16);
    assert_eq!(dtype("--attention_config.indexer_kv_dtype fp8"), IndexerKvDtype::Fp8);
    assert!(error("--attention_config.indexer_kv_dtype mxfp4", &indexed()).contains("indexer_kv_dtype"));
    let without = "attention_config.indexer_kv_dtype: this model has no indexer; leave it out";
    assert_eq!(error("--attention_config.indexer_kv_dtype fp8", &llama()), without);
}

#[test]
fn cutlass_decodes_need_blackwell_and_an_fp8_cache() {
    let line = "--tensor-parallel-size 4 --attention_config.minimax_m3_msa_decode_backend cutlass";
    let used = |more: &str, chip| {
        let got = Case::line(&serve(&format!("{line} {more}"))).resolve(&indexed(), &chip).unwrap();
        (got.attention.block_sparse.unwrap().cutlass_decode, got.notes.iter().any(|note| note.contains("cutlass has no effect")))
    };
    assert_eq!(used("--kv-cache-dtype fp8", b200()), (true, false));
    assert_eq!(used("", b200()), (false, true));
    assert_eq!(used("--kv-cache-dtype fp8", h200()), (false, true));
}

#[test]
fn prompts_stay_whole_where_chunking_is_off_and_must_fit_a_step() {
    let line = "--max-model-len 9472 --no-enable-chunked-prefill --max-num-batched-tokens";
    let got = Case::line(&serve(&format!("{line} 16384"))).resolve(&indexed(), &b200()).unwrap();
    assert!(!got.scheduler.enable_chunked_prefill);
    assert!(error(&format!("{line} 8192"), &indexed()).contains("without chunked prefill longer"));
}
