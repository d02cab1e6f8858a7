//! Models with layers that see a chunk of the context: what they add to a line's rules.

use blis_contracts::model::{Attention, ModelGraph};

use crate::config::tests::{Case, h100, llama, serve};
use crate::config::{CudagraphMode, GraphSupport};

/// Llama whose layers all see chunks of 8,192 tokens.
fn chunked() -> ModelGraph {
    let mut model = llama();
    for block in model.blocks.values_mut() {
        let Attention::GroupedQuery(attention) = &mut block.attention else { panic!("grouped-query attention throughout") };
        attention.chunk = Some(8192);
    }
    model
}

fn error(line: Case) -> String {
    line.resolve(&chunked(), &h100()).unwrap_err().to_string()
}

#[test]
fn no_graph_holds_a_whole_step() {
    let got = Case::line(&serve("")).resolve(&chunked(), &h100()).unwrap();
    assert_eq!((got.attention.graph_support, got.compilation.cudagraph_mode), (GraphSupport::Never, CudagraphMode::Piecewise));
    let demanded = error(Case::line(&serve("--compilation_config.cudagraph_mode FULL")));
    assert!(demanded.contains("try cudagraph_mode=PIECEWISE"), "{demanded}");
}

#[test]
fn a_chunk_is_read_in_whole_blocks() {
    let message = error(Case::line(&serve("--block-size 48")));
    assert_eq!(message, "attn_chunk_size 8192 is not divisible by block_size 48; state --block-size 16");
    assert!(Case::line(&serve("--block-size 64")).resolve(&chunked(), &h100()).is_ok());
}

#[test]
fn a_variable_takes_their_own_blocks_away() {
    let disabled = |words: &str, model: &ModelGraph| {
        let line = format!("VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE={words}");
        Case::line(&line).resolve(model, &h100()).map(|got| got.cache.disable_hybrid_kv_cache_manager).map_err(|error| error.to_string())
    };
    let plain = serve("");
    assert_eq!(disabled(&format!("1 {plain}"), &chunked()), Ok(false));
    assert_eq!(disabled(&format!("0 {plain}"), &chunked()), Ok(true));
    assert_eq!(disabled(&format!("0 {plain}"), &llama()), Ok(false), "without chunks it says nothing");
    let both = disabled(&format!("0 {}", serve("--no-disable-hybrid-kv-cache-manager")), &chunked()).unwrap_err();
    assert!(both.contains("hybrid KV cache manager was explicitly enabled"), "{both}");
}
