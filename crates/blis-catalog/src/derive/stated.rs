//! What a configuration states layer by layer: where an indexer picks the blocks that queries see, which networks are mixtures, and
//! the experts that every token passes.
//!
//! Left out: indexers whose values take part in the output, scores other than a block's greatest, experts shared unevenly.

use blis_contracts::format::MatmulFormat;
use blis_contracts::model::{BlockIndexer, DenseFeedForward};

use super::DeriveError;
use super::keys::Keys;
use crate::patterns::CONFIG;
use crate::tree::Tree;

/// The indexer of every layer, from `sparse_attention_config`.
pub(crate) fn indexers(keys: &Keys<'_>, layers: u32, kv_heads: u32, head_dim: u32) -> Result<Vec<Option<BlockIndexer>>, DeriveError> {
    const NAME: &str = "sparse_attention_config";
    let config = keys.required(NAME, keys.any(NAME))?;
    let inner = Keys::of(CONFIG, NAME, config)?;
    let small = |key| inner.required(key, inner.small(key)?);
    if inner.flag("use_sparse_attention")? != Some(true) {
        let found = inner.any("use_sparse_attention").unwrap_or(&Tree::Null);
        return Err(inner.wrong("use_sparse_attention", found, "true"));
    }
    let indexer = BlockIndexer {
        query_heads: small("sparse_num_index_heads")?,
        head_dim: small("sparse_index_dim")?,
        block_tokens: small("sparse_block_size")?,
        top_k: small("sparse_topk_blocks")?,
        first_blocks: blocks(&inner, "sparse_init_block")?,
        last_blocks: blocks(&inner, "sparse_local_block")?,
    };
    // Engines read its projections as one matrix with the attention's own.
    for (key, found, expected) in
        [("sparse_num_index_heads", indexer.query_heads, kv_heads), ("sparse_index_dim", indexer.head_dim, head_dim)]
    {
        if found != expected {
            return Err(inner.wrong(key, &Tree::Natural(found.into()), &format!("{expected}, as the attention's keys have")));
        }
    }
    if inner.text("sparse_score_type")? != Some("max") {
        let found = inner.any("sparse_score_type").unwrap_or(&Tree::Null);
        return Err(inner.wrong("sparse_score_type", found, "\"max\""));
    }
    let used = switches(&inner, "sparse_attention_freq", layers)?;
    if switches(&inner, "sparse_disable_index_value", layers)? != used {
        let found = inner.any("sparse_disable_index_value").unwrap_or(&Tree::Null);
        return Err(inner.wrong("sparse_disable_index_value", found, "sparse_attention_freq, as an indexer's values are not understood"));
    }
    inner.refuse_others(&[])?;
    Ok(used.into_iter().map(|used| used.then(|| indexer.clone())).collect())
}

/// The layers without experts, from `moe_layer_freq`; refuses a `first_k_dense_replace` that says otherwise.
pub(crate) fn dense_layers(keys: &Keys<'_>, layers: u32) -> Result<Vec<u64>, DeriveError> {
    let mixture = switches(keys, "moe_layer_freq", layers)?;
    let dense: Vec<u64> = (0..).zip(&mixture).filter(|(_, mixture)| !**mixture).map(|(index, _)| index).collect();
    if let Some(first) = keys.natural("first_k_dense_replace")?
        && !dense.iter().copied().eq(0..first)
    {
        return Err(keys.wrong(
            "first_k_dense_replace",
            &Tree::Natural(first),
            &format!("as moe_layer_freq says, whose zeros are {dense:?}"),
        ));
    }
    Ok(dense)
}

/// The joint width of the experts that every token passes; refuses a second statement of an expert's width that differs.
pub(crate) fn shared_width(keys: &Keys<'_>, expert_width: u64) -> Result<Option<u64>, DeriveError> {
    if let Some(other) = keys.natural("moe_intermediate_size")?
        && other != expert_width
    {
        return Err(keys.wrong("moe_intermediate_size", &Tree::Natural(other), &format!("{expert_width}, as intermediate_size says")));
    }
    let width = keys.natural("n_shared_experts")?.map(|experts| experts * expert_width);
    match (width, keys.natural("shared_intermediate_size")?) {
        (Some(width), Some(stated)) if width != stated => {
            Err(keys.wrong("shared_intermediate_size", &Tree::Natural(stated), &format!("{width}, as n_shared_experts says")))
        }
        (width, _) => Ok(width),
    }
}

/// The network of the experts that every token passes.
pub(crate) fn shared(
    intermediate_size: u64,
    same: &impl Fn(&[&str]) -> Result<MatmulFormat, DeriveError>,
) -> Result<DenseFeedForward, DeriveError> {
    let module = |name: &str| format!("block_sparse_moe.shared_experts.{name}");
    Ok(DenseFeedForward {
        intermediate_size,
        gated: true,
        bias: false,
        up_format: same(&[&module("gate_proj"), &module("up_proj")])?,
        down_format: same(&[&module("down_proj")])?,
    })
}

/// A count of blocks, which may be none.
fn blocks(keys: &Keys<'_>, key: &'static str) -> Result<u32, DeriveError> {
    match keys.any(key) {
        None | Some(Tree::Natural(0)) => Ok(0),
        Some(_) => keys.required(key, keys.small(key)?),
    }
}

/// A list with 0 or 1 for each layer.
fn switches(keys: &Keys<'_>, key: &'static str, layers: u32) -> Result<Vec<bool>, DeriveError> {
    let found = keys.required(key, keys.any(key))?;
    let switch = |item: &Tree| item.as_natural().filter(|&value| value <= 1).map(|value| value == 1);
    let list: Option<Vec<bool>> = found.as_sequence().and_then(|items| items.iter().map(switch).collect());
    list.filter(|list| list.len() == layers as usize)
        .ok_or_else(|| keys.wrong(key, found, &format!("a list of 0 or 1 for each of the {layers} layers")))
}

#[cfg(test)]
mod tests {
    use blis_contracts::model::{Attention, FeedForward, ModelGraph};

    use super::super::{Inputs, derive};
    use crate::entry::ModelEntry;

    const PLAIN: &str = r#""hidden_size": 256, "intermediate_size": 96, "dense_intermediate_size": 512, "shared_intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "rotary_dim": 32, "num_hidden_layers": 3,
        "vocab_size": 1000, "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "num_local_experts": 8,
        "num_experts_per_tok": 2, "n_shared_experts": 1, "scoring_func": "sigmoid", "use_routing_bias": true, "use_qk_norm": true,
        "qk_norm_type": "per_head", "moe_layer_freq": [0, 1, 1], "sparse_attention_config": {"use_sparse_attention": true,
        "sparse_num_index_heads": 2, "sparse_index_dim": 64, "sparse_block_size": 128, "sparse_topk_blocks": 16,
        "sparse_init_block": 0, "sparse_local_block": 1, "sparse_score_type": "max", "sparse_attention_freq": [0, 1, 1],
        "sparse_disable_index_value": [0, 1, 1]}"#;

    const VISION: &str = r#"{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_channels": 3, "patch_size": 14,
        "projection_dim": 256, "img_token_compression_config": {"spatial_merge_size": 2, "temporal_patch_size": 2}}"#;

    fn derived(text: &str, declared: Option<&str>) -> Result<ModelGraph, String> {
        let quantisation_config = declared.map(|text| text.as_bytes().to_vec());
        let inputs =
            Inputs { entry: ModelEntry::local("small"), config: text.as_bytes().to_vec(), quantisation_config, headers: Vec::new() };
        derive(&inputs).map_err(|error| error.to_string())
    }

    fn changed(from: &str, to: &str) -> Result<ModelGraph, String> {
        assert!(PLAIN.contains(from));
        let text = PLAIN.replacen(from, to, 1);
        derived(&format!(r#"{{"architectures": ["MiniMaxM3ForCausalLM"], "model_type": "minimax_m3", {text}}}"#), None)
    }

    #[test]
    fn layers_differ_in_indexer_and_network_as_their_lists_say() {
        let graph = changed("", "").unwrap();
        assert_eq!(graph.layer_names().collect::<Vec<_>>(), ["full-dense", "indexed-moe", "indexed-moe"]);
        let layers: Vec<_> = graph.layers().collect();
        let FeedForward::Dense(dense) = &layers[0].feed_forward else { panic!("the first layer has no experts") };
        let FeedForward::MixtureOfExperts(moe) = &layers[1].feed_forward else { panic!("the second has") };
        let shared = moe.shared.as_ref().unwrap();
        assert_eq!((dense.intermediate_size, moe.intermediate_size, shared.intermediate_size), (512, 96, 96));
        let Attention::GroupedQuery(attention) = &layers[1].attention else { panic!("grouped-query attention throughout") };
        let indexer = attention.indexer.as_ref().unwrap();
        assert_eq!((indexer.query_heads, indexer.top_k, indexer.visible_tokens()), (2, 16, 2048));
        let dense_layer = 2 * 256 * (256 + 128) + 2 * 256 + 2 * 64 + 3 * 512 * 256;
        let indexed = 2 * 256 * (256 + 128) + 2 * 256 + 2 * 64 + (2 + 1) * 64 * 256 + 2 * 64 + 8 * (256 + 1) + (8 + 1) * 3 * 96 * 256;
        assert_eq!(graph.parameters.total, 2 * 1000 * 256 + 256 + dense_layer + 2 * indexed);
        assert_eq!(graph.parameters.active, graph.parameters.total - 2 * 6 * 3 * 96 * 256);
    }

    #[test]
    fn a_language_model_inside_a_larger_one_keeps_the_formats_listed_for_its_modules() {
        let whole = |more: &str| {
            format!(
                r#"{{"architectures": ["MiniMaxM3SparseForConditionalGeneration"], "model_type": "minimax_m3_vl",
                "text_config": {{"architectures": ["MiniMaxM3SparseForCausalLM"], {PLAIN}}}, "vision_config": {VISION}{more}}}"#
            )
        };
        let mut listed = Vec::new();
        for layer in 0..3 {
            let prefix = format!("language_model.model.layers.{layer}");
            for name in ["q_proj", "k_proj", "v_proj", "o_proj", "index_q_proj", "index_k_proj"] {
                listed.push(format!(r#""{prefix}.self_attn.{name}": {{"quant_algo": "MXFP8"}}"#));
            }
            for name in ["w1", "w2", "w3"] {
                listed.push(format!(r#""{prefix}.block_sparse_moe.experts.5.{name}": {{"quant_algo": "NVFP4", "group_size": 16}}"#));
            }
        }
        let declared = format!(
            r#"{{"quantization": {{"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": null,
            "exclude_modules": ["lm_head", "vision_tower"], "quantized_layers": {{{}}}}}}}"#,
            listed.join(", ")
        );
        let graph = derived(&whole(""), Some(&declared)).unwrap();
        let layer = graph.layers().last().unwrap();
        let Attention::GroupedQuery(attention) = &layer.attention else { panic!("grouped-query attention throughout") };
        let FeedForward::MixtureOfExperts(moe) = &layer.feed_forward else { panic!("the last layer has experts") };
        let label = |format: blis_contracts::format::MatmulFormat| format.label();
        assert_eq!((label(attention.qkv_format), label(attention.output_format)), ("mxfp8".to_owned(), "mxfp8".to_owned()));
        assert_eq!((label(moe.expert_format), label(moe.router_format)), ("nvfp4".to_owned(), "bf16".to_owned()));
        assert_eq!((label(moe.shared.as_ref().unwrap().up_format), label(graph.output_projection)), ("bf16".to_owned(), "bf16".to_owned()));
        let tower = 3 * 2 * 14 * 14 * 32 + 64 + 2 * (33 * (3 * 32 + 32 + 64) + 65 * 32 + 2 * 64);
        let projector = 33 * 256 + 257 * 256 + (4 * 256 + 1) * 256 + 257 * 256;
        assert_eq!(graph.encoders.iter().map(|encoder| encoder.parameters).collect::<Vec<_>>(), [tower, projector]);
        assert!(derived(&whole(r#", "audio_config": {}"#), None).unwrap_err().contains("audio_config: {} is not absent"));
        let uneven = declared.replace("layers.2.self_attn.index_k_proj", "layers.2.self_attn.other");
        assert!(derived(&whole(""), Some(&uneven)).unwrap_err().contains("self_attn.index_k_proj are stored in different formats"));
    }

    #[test]
    fn what_contradicts_itself_or_is_not_understood_is_refused_by_its_key() {
        for (from, to, expected) in [
            ("[0, 1, 1]", "[0, 1]", "moe_layer_freq: [0, 1] is not a list of 0 or 1 for each of the 3 layers"),
            (
                "\"sparse_attention_freq\": [0, 1, 1]",
                "\"sparse_attention_freq\": [1, 1, 1]",
                "sparse_disable_index_value: [0, 1, 1] is not",
            ),
            ("\"max\"", "\"mean\"", "sparse_score_type: \"mean\" is not \"max\""),
            (
                "\"sparse_num_index_heads\": 2",
                "\"sparse_num_index_heads\": 4",
                "sparse_num_index_heads: 4 is not 2, as the attention's keys",
            ),
            ("\"use_sparse_attention\": true", "\"use_sparse_attention\": false", "use_sparse_attention: false is not true"),
            ("\"shared_intermediate_size\": 96", "\"shared_intermediate_size\": 64", "shared_intermediate_size: 64 is not 96"),
            ("\"per_head\"", "\"per_layer\"", "qk_norm_type: \"per_layer\" is not per_head"),
            (
                "\"moe_layer_freq\"",
                "\"first_k_dense_replace\": 2, \"moe_layer_freq\"",
                "first_k_dense_replace: 2 is not as moe_layer_freq says",
            ),
            ("\"head_dim\"", "\"attention_output_gate\": true, \"head_dim\"", "attention_output_gate: true is not false"),
        ] {
            let message = changed(from, to).unwrap_err();
            assert!(message.contains(expected), "{message}\nwanted {expected}");
        }
    }
}
