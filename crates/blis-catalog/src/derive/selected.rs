//! Latent attention to tokens that an indexer picks: which layers score for themselves, and how their scores are projected.
//!
//! A layer that does not score sees what the nearest layer below it that does chose. A configuration may say which layers score by a
//! frequency, by a pattern of letters, and once more by a list of names. The projection to the weights of scoring heads is converted
//! by no method. Left out: the layers behind the stack, for multi-token prediction, whatever a list or a pattern says of them.

use blis_contracts::format::MatmulFormat;
use blis_contracts::model::{TokenIndexer, TokenSelection};

use super::DeriveError;
use super::keys::Keys;
use crate::tree::Tree;

/// How the tokens that queries see are chosen, layer by layer.
#[derive(Debug, Clone)]
pub(super) struct Selections {
    heads: u32,
    head_dim: u32,
    top_k: u32,
    /// How modules that no method converts are stored and multiplied.
    plain: MatmulFormat,
    /// Of each layer, whether it scores.
    scores: Vec<bool>,
}

impl Selections {
    pub(super) fn read(keys: &Keys<'_>, layers: u32, plain: MatmulFormat) -> Result<Self, DeriveError> {
        let small = |key| keys.required(key, keys.small(key)?);
        let scores = scores(keys, layers)?;
        check_names(keys, &scores)?;
        if keys.any("q_lora_rank").is_none() {
            keys.required("q_lora_rank", None::<u32>)?;
        }
        Ok(Self { heads: small("index_n_heads")?, head_dim: small("index_head_dim")?, top_k: small("index_topk")?, plain, scores })
    }

    pub(super) fn layer(
        &self,
        index: u32,
        same: &impl Fn(&[&str]) -> Result<MatmulFormat, DeriveError>,
    ) -> Result<TokenSelection, DeriveError> {
        if !self.scores[index as usize] {
            return Ok(TokenSelection { top_k: self.top_k, indexer: None });
        }
        let indexer = TokenIndexer {
            heads: self.heads,
            head_dim: self.head_dim,
            query_format: same(&["self_attn.indexer.wq_b"])?,
            key_format: same(&["self_attn.indexer.wk"])?,
            weights_format: self.plain,
        };
        Ok(TokenSelection { top_k: self.top_k, indexer: Some(indexer) })
    }
}

/// Which layers score.
///
/// upstream: vllm `models/deepseek_v32/attention.py::DeepseekV32Attention.__init__`
fn scores(keys: &Keys<'_>, layers: u32) -> Result<Vec<bool>, DeriveError> {
    let frequency = keys.natural("index_topk_freq")?.unwrap_or(1);
    let offset = match keys.any("index_skip_topk_offset") {
        None => 2,
        Some(Tree::Natural(0)) => 0,
        Some(_) => keys.required("index_skip_topk_offset", keys.natural("index_skip_topk_offset")?)?,
    };
    let scores = if let Some(pattern) = keys.text("index_topk_pattern")? {
        let letters = pattern.as_bytes();
        (0..layers as usize).map(|layer| letters.get(layer) != Some(&b'S')).collect::<Vec<_>>()
    } else {
        (0..u64::from(layers)).map(|layer| (layer + 1).saturating_sub(offset).is_multiple_of(frequency)).collect()
    };
    if scores.first() != Some(&true) {
        let found = keys.any("index_topk_pattern").unwrap_or(&Tree::Null);
        return Err(keys.wrong("index_topk_pattern", found, "a pattern whose first layer scores, as there is no choice below it"));
    }
    Ok(scores)
}

/// Refuses a list of names that says otherwise.
fn check_names(keys: &Keys<'_>, scores: &[bool]) -> Result<(), DeriveError> {
    let Some(found) = keys.any("indexer_types") else { return Ok(()) };
    let stated = keys.texts("indexer_types")?;
    let derived = scores.iter().map(|&scores| if scores { "full" } else { "shared" });
    if stated.iter().copied().eq(derived) {
        return Ok(());
    }
    Err(keys.wrong("indexer_types", found, "full and shared as index_topk_freq and index_skip_topk_offset say"))
}

#[cfg(test)]
mod tests {
    use blis_contracts::model::{Attention, ModelGraph};

    use crate::derive::{DeriveError, Inputs, derive};
    use crate::entry::ModelEntry;

    const SMALL: &str = r#"{"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "dtype": "bfloat16",
        "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 64, "num_hidden_layers": 7, "vocab_size": 1000,
        "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 4096, "first_k_dense_replace": 1,
        "q_lora_rank": 96, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24, "qk_head_dim": 24,
        "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
        "topk_method": "noaux_tc", "scoring_func": "sigmoid", "index_head_dim": 128, "index_n_heads": 2, "index_topk": 2048}"#;

    fn small(from: &str, to: &str) -> Result<ModelGraph, DeriveError> {
        assert!(SMALL.contains(from), "{from}");
        let config = SMALL.replacen(from, to, 1).into_bytes();
        derive(&Inputs { entry: ModelEntry::local("small"), config, quantisation_config: None, headers: Vec::new() })
    }

    fn scoring(graph: &ModelGraph) -> Vec<bool> {
        let scores = |block: &blis_contracts::model::LayerBlock| match &block.attention {
            Attention::Latent(attention) => attention.indexer().is_some(),
            Attention::GroupedQuery(_) | Attention::Compressed(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => panic!("{block:?}"),
        };
        graph.layers().map(scores).collect()
    }

    #[test]
    fn every_layer_scores_unless_a_frequency_or_a_pattern_says_otherwise() {
        assert_eq!(scoring(&small("", "").unwrap()), [true; 7]);
        let every_fourth = "\"index_topk_freq\": 4, \"index_skip_topk_offset\": 3, \"index_topk\"";
        assert_eq!(scoring(&small("\"index_topk\"", every_fourth).unwrap()), [true, true, true, false, false, false, true]);
        let pattern = "\"index_topk_pattern\": \"FSSF\", \"index_topk\"";
        assert_eq!(scoring(&small("\"index_topk\"", pattern).unwrap()), [true, false, false, true, true, true, true]);
        let repeated = "\"layer_types\": [\"deepseek_sparse_attention\"], \"mlp_bias\": false, \"num_experts\": 8, \"index_topk\"";
        assert_eq!(scoring(&small("\"index_topk\"", repeated).unwrap()), [true; 7]);
    }

    #[test]
    fn an_indexer_adds_its_matrices_and_its_norm() {
        let whole = small("", "").unwrap();
        let sparse = small("\"index_topk\"", "\"index_topk_pattern\": \"FSSSSSS\", \"index_topk\"").unwrap();
        let indexer = 96 * 2 * 128 + 256 * (128 + 2) + 2 * 128;
        assert_eq!(whole.parameters.total - sparse.parameters.total, 6 * indexer);
        assert_eq!(sparse.layer_names().collect::<Vec<_>>()[..2], ["indexed-dense", "reusing-moe"]);
    }

    #[test]
    fn what_contradicts_itself_is_refused_by_its_key() {
        for (from, to, expected) in [
            ("\"index_topk\"", "\"indexer_types\": [\"full\"], \"index_topk\"", "indexer_types: [\"full\"] is not full and shared as"),
            ("\"index_topk\": 2048", "\"index_topk_freq\": 1", "index_topk: missing"),
            ("\"index_topk\"", "\"index_topk_pattern\": \"SF\", \"index_topk\"", "index_topk_pattern: \"SF\" is not a pattern whose first"),
            ("\"q_lora_rank\": 96,", "", "q_lora_rank: missing"),
            ("\"qk_head_dim\": 24", "\"qk_head_dim\": 32", "qk_head_dim: 32 is not 24"),
            ("\"vocab_size\"", "\"mlp_layer_types\": [\"sparse\"], \"vocab_size\"", "mlp_layer_types: [\"sparse\"] is not"),
        ] {
            let message = small(from, to).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}\nwanted {expected}");
        }
    }
}
