//! Attention to a window and to compressed earlier tokens, a residual stream of several lanes, and the experts that go with them.
//!
//! `compress_ratios` states a ratio per layer (0 for none), and behind them those of the module for multi-token prediction, which is no
//! part of a graph. Ratio 4 overlaps its vectors and selects among them; larger ratios do neither: the architecture fixes that.
//! The declared quantisation converts matrices of attention and of the shared expert; compressors, scores and routers stay as they
//! are, and `expert_dtype` states the experts' own format.
//!
//! Left out: tensor names, so that a checkpoint's headers cannot be held against a graph; vision towers.

use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::model::{
    Attention, CompressedAttention, Compression, DenseFeedForward, FeedForward, LayerBlock, MixtureOfExperts, ResidualLanes, Selection,
};

use super::DeriveError;
use super::keys::Keys;
use super::quantisation::Quantisation;
use crate::patterns::CONFIG;
use crate::tree::Tree;

/// The ratio at which compressed vectors overlap and queries select among them.
const SELECTING_RATIO: u64 = 4;

/// Widths that all layers share; those every architecture has come from its reader.
#[derive(Debug, Clone, Copy)]
pub(super) struct Widths {
    pub(super) layers: u32,
    pub(super) query_heads: u32,
    pub(super) kv_heads: u32,
    pub(super) head_dim: u32,
}

/// The lanes of the residual stream.
pub(super) fn lanes(keys: &Keys<'_>) -> Result<ResidualLanes, DeriveError> {
    Ok(ResidualLanes {
        lanes: keys.required("hc_mult", keys.small("hc_mult")?)?,
        balancing_rounds: keys.required("hc_sinkhorn_iters", keys.small("hc_sinkhorn_iters")?)?,
    })
}

/// Every layer, bottom to top.
pub(super) fn build(keys: &Keys<'_>, widths: Widths, quantisation: &Quantisation) -> Result<Vec<LayerBlock>, DeriveError> {
    if widths.kv_heads != 1 {
        return Err(keys.wrong("num_key_value_heads", &Tree::Natural(widths.kv_heads.into()), "1, as all heads share one key"));
    }
    if keys.flag("attention_bias")?.unwrap_or(false) {
        return Err(keys.wrong("attention_bias", &Tree::Flag(true), "false, as no bias is understood"));
    }
    let ratios = ratios(keys, widths.layers)?;
    let attention = Attentions::read(keys, widths, quantisation)?;
    let experts = Experts::read(keys, quantisation)?;
    let by_token = match keys.any("num_hash_layers") {
        None | Some(Tree::Natural(0)) => 0,
        Some(_) => keys.small("num_hash_layers")?.unwrap_or(0),
    };
    let layer = |(index, ratio): (u32, u64)| {
        Ok(LayerBlock {
            attention: Attention::Compressed(attention.layer(index, ratio)?),
            feed_forward: FeedForward::MixtureOfExperts(experts.layer(index, index < by_token)),
            norms: 2,
        })
    };
    (0..).zip(ratios).map(layer).collect()
}

/// The ratio of each layer of the stack.
fn ratios(keys: &Keys<'_>, layers: u32) -> Result<Vec<u64>, DeriveError> {
    let value = keys.required("compress_ratios", keys.any("compress_ratios"))?;
    let ratios: Option<Vec<u64>> = value.as_sequence().and_then(|items| items.iter().map(Tree::as_natural).collect());
    let ratios = ratios.ok_or_else(|| keys.wrong("compress_ratios", value, "a list of ratios"))?;
    let beyond = match keys.any("num_nextn_predict_layers") {
        None | Some(Tree::Natural(0)) => 0,
        Some(_) => keys.natural("num_nextn_predict_layers")?.unwrap_or(0),
    };
    let known = |ratio: &u64| matches!(ratio, 0 | 1 | 4 | 128);
    if ratios.len() as u64 != u64::from(layers) + beyond || !ratios.iter().all(known) {
        let expected = format!("0, 4 or 128 for each of the {layers} layers and the {beyond} predicting ones");
        return Err(keys.wrong("compress_ratios", value, &expected));
    }
    Ok(ratios.into_iter().take(layers as usize).collect())
}

struct Attentions<'a> {
    widths: Widths,
    rotary_dim: u32,
    window: u32,
    query_rank: u32,
    output_groups: u32,
    output_rank: u32,
    scoring: (u32, u32, u32),
    quantisation: &'a Quantisation,
}

impl<'a> Attentions<'a> {
    fn read(keys: &Keys<'_>, widths: Widths, quantisation: &'a Quantisation) -> Result<Self, DeriveError> {
        let small = |key| keys.required(key, keys.small(key)?);
        let read = Self {
            widths,
            rotary_dim: small("qk_rope_head_dim")?,
            window: small("sliding_window")?,
            query_rank: small("q_lora_rank")?,
            output_groups: small("o_groups")?,
            output_rank: small("o_lora_rank")?,
            scoring: (small("index_n_heads")?, small("index_head_dim")?, small("index_topk")?),
            quantisation,
        };
        if !widths.query_heads.is_multiple_of(read.output_groups) {
            let expected = format!("a divisor of num_attention_heads ({})", widths.query_heads);
            return Err(keys.wrong("o_groups", &Tree::Natural(read.output_groups.into()), &expected));
        }
        if read.rotary_dim >= widths.head_dim {
            let expected = format!("less than head_dim ({})", widths.head_dim);
            return Err(keys.wrong("qk_rope_head_dim", &Tree::Natural(read.rotary_dim.into()), &expected));
        }
        Ok(read)
    }

    fn layer(&self, index: u32, ratio: u64) -> Result<CompressedAttention, DeriveError> {
        let format = |module: &str| self.quantisation.format_of(&format!("layers.{index}.attn.{module}"));
        let down_format = format("wq_a");
        if format("wkv") != down_format {
            return Err(DeriveError::Uneven { layer: index, modules: "attn.wq_a, attn.wkv".to_owned() });
        }
        let (heads, head_dim, top_k) = self.scoring;
        let plain = self.quantisation.plain();
        let selects = ratio == SELECTING_RATIO;
        let selection = Selection { heads, head_dim, top_k, query_format: format("indexer.wq_b"), weights_format: plain };
        let compression = u32::try_from(ratio).ok().filter(|ratio| *ratio > 1).map(|ratio| Compression {
            ratio,
            overlaps: selects,
            format: plain,
            selection: selects.then_some(selection),
        });
        Ok(CompressedAttention {
            query_heads: self.widths.query_heads,
            head_dim: self.widths.head_dim,
            rotary_dim: self.rotary_dim,
            window: self.window,
            sinks: true,
            query_rank: self.query_rank,
            output_groups: self.output_groups,
            output_rank: self.output_rank,
            compression,
            down_format,
            query_format: format("wq_b"),
            group_format: format("wo_a"),
            output_format: format("wo_b"),
        })
    }
}

struct Experts<'a> {
    count: u32,
    top_k: u32,
    width: u64,
    shared: u64,
    format: MatmulFormat,
    quantisation: &'a Quantisation,
}

impl<'a> Experts<'a> {
    fn read(keys: &Keys<'_>, quantisation: &'a Quantisation) -> Result<Self, DeriveError> {
        let experts = keys.required("n_routed_experts", keys.small("n_routed_experts")?)?;
        let top_k = keys.required("num_experts_per_tok", keys.small("num_experts_per_tok")?)?;
        if top_k > experts {
            let expected = format!("at most n_routed_experts ({experts})");
            return Err(keys.wrong("num_experts_per_tok", &Tree::Natural(top_k.into()), &expected));
        }
        for (key, expected) in [("scoring_func", "sqrtsoftplus"), ("topk_method", "noaux_tc")] {
            let found = keys.required(key, keys.text(key)?)?;
            if found != expected {
                return Err(keys.wrong(key, &Tree::Text(found.to_owned()), expected));
            }
        }
        Ok(Self {
            count: experts,
            top_k,
            width: keys.required("moe_intermediate_size", keys.natural("moe_intermediate_size")?)?,
            shared: keys.required("n_shared_experts", keys.natural("n_shared_experts")?)?,
            format: expert_format(keys, quantisation)?,
            quantisation,
        })
    }

    fn layer(&self, index: u32, picks_by_token: bool) -> MixtureOfExperts {
        let shared_format = |module: &str| self.quantisation.format_of(&format!("layers.{index}.ffn.shared_experts.{module}"));
        MixtureOfExperts {
            experts: self.count,
            top_k: self.top_k,
            intermediate_size: self.width,
            gated: true,
            bias: false,
            router_bias: false,
            selection_bias: !picks_by_token,
            picks_by_token,
            expert_format: self.format,
            router_format: self.quantisation.plain(),
            groups: None,
            shared: Some(DenseFeedForward {
                intermediate_size: self.shared * self.width,
                gated: true,
                bias: false,
                up_format: shared_format("w1"),
                down_format: shared_format("w2"),
            }),
            shared_gate: false,
            router_scales: false,
            latent: None,
        }
    }
}

/// The experts' format: stated beside a quantisation, else that of everything.
fn expert_format(keys: &Keys<'_>, quantisation: &Quantisation) -> Result<MatmulFormat, DeriveError> {
    let weights = match keys.text("expert_dtype")? {
        Some("fp4") => FormatName::Mxfp4,
        Some("fp8") => FormatName::Fp8Block,
        Some(other) => return Err(keys.wrong("expert_dtype", &Tree::Text(other.to_owned()), "fp4 or fp8")),
        None if quantisation.method.is_some() => {
            return Err(DeriveError::Missing { file: CONFIG.to_owned(), path: "expert_dtype".to_owned() });
        }
        None => return Ok(quantisation.plain()),
    };
    Ok(MatmulFormat { weights, activations: weights.usual_activations() })
}

#[cfg(test)]
mod tests {
    use blis_contracts::format::FormatName;
    use blis_contracts::model::{Attention, CompressedAttention, FeedForward, ModelGraph};

    use crate::derive::{DeriveError, Inputs, derive};
    use crate::entry::ModelEntry;

    const SMALL: &str = r#"{"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "torch_dtype": "bfloat16",
        "hidden_size": 256, "moe_intermediate_size": 64, "num_hidden_layers": 3, "vocab_size": 1000, "num_attention_heads": 8,
        "num_key_value_heads": 1, "head_dim": 32, "qk_rope_head_dim": 8, "q_lora_rank": 48, "o_groups": 2, "o_lora_rank": 16,
        "sliding_window": 64, "index_n_heads": 4, "index_head_dim": 16, "index_topk": 20, "compress_ratios": [0, 4, 128, 0],
        "max_position_embeddings": 4096, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "num_hash_layers": 1,
        "topk_method": "noaux_tc", "scoring_func": "sqrtsoftplus", "num_nextn_predict_layers": 1, "hc_mult": 4,
        "hc_sinkhorn_iters": 20, "expert_dtype": "fp4", "quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
        "activation_scheme": "dynamic", "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}}"#;

    fn small(from: &str, to: &str) -> Result<ModelGraph, DeriveError> {
        assert!(from.is_empty() || SMALL.contains(from), "{from}");
        let config = SMALL.replacen(from, to, usize::from(!from.is_empty())).into_bytes();
        derive(&Inputs { entry: ModelEntry::local("small"), config, quantisation_config: None, headers: Vec::new() })
    }

    fn attentions(graph: &ModelGraph) -> Vec<&CompressedAttention> {
        graph
            .layers()
            .map(|layer| match &layer.attention {
                Attention::Compressed(attention) => attention,
                Attention::GroupedQuery(_) | Attention::Latent(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => panic!("{layer:?}"),
            })
            .collect()
    }

    #[test]
    fn each_layer_compresses_as_its_ratio_says_and_the_smallest_ratio_overlaps_and_selects() {
        let graph = small("", "").unwrap();
        assert_eq!(graph.layer_names().collect::<Vec<_>>(), ["window-by-token", "compressed-4", "compressed-128"]);
        let layers = attentions(&graph);
        assert!(layers[0].compression.is_none());
        let fine = layers[1].compression.as_ref().unwrap();
        assert_eq!((fine.ratio, fine.overlaps, fine.reach(), fine.columns(32)), (4, true, 8, 64));
        assert_eq!(fine.selection.as_ref().map(|selection| (selection.heads, selection.head_dim, selection.top_k)), Some((4, 16, 20)));
        let coarse = layers[2].compression.as_ref().unwrap();
        assert_eq!((coarse.ratio, coarse.overlaps, coarse.reach(), coarse.selection.is_none()), (128, false, 128, true));
        let lanes = graph.residual_lanes.unwrap();
        assert_eq!((lanes.lanes, lanes.weights()), (4, 24));
    }

    #[test]
    fn quantisation_leaves_compressors_and_routers_and_experts_have_a_format_of_their_own() {
        let graph = small("", "").unwrap();
        let layer = attentions(&graph)[1];
        let compression = layer.compression.as_ref().unwrap();
        let selection = compression.selection.as_ref().unwrap();
        for format in [layer.down_format, layer.query_format, layer.group_format, layer.output_format, selection.query_format] {
            assert_eq!(format.weights, FormatName::Fp8Block);
        }
        assert_eq!((compression.format.weights, selection.weights_format.weights), (FormatName::Bf16, FormatName::Bf16));
        let FeedForward::MixtureOfExperts(moe) = &graph.blocks["window-by-token"].feed_forward else { panic!("{:?}", graph.blocks) };
        assert_eq!((moe.expert_format.weights, moe.router_format.weights), (FormatName::Mxfp4, FormatName::Bf16));
        assert_eq!(moe.shared.as_ref().unwrap().up_format.weights, FormatName::Fp8Block);
        assert!(moe.picks_by_token && !moe.selection_bias);
        let FeedForward::MixtureOfExperts(moe) = &graph.blocks["compressed-4"].feed_forward else { panic!("{:?}", graph.blocks) };
        assert!(!moe.picks_by_token && moe.selection_bias);
    }

    #[test]
    fn parameters_are_those_of_the_matrices_written_out() {
        let plain = 256 * 48 + 256 * 32 + 48 + 32 + 48 * 8 * 32 + 4 * 32 * 2 * 16 + 2 * 16 * 256 + 8;
        let compressor = |head_dim: u64, doubled: u64, ratio: u64| 2 * doubled * head_dim * 256 + ratio * doubled * head_dim + head_dim;
        let scores = 48 * 4 * 16 + 256 * 4 + compressor(16, 2, 4);
        let attention = 3 * plain + compressor(32, 2, 4) + scores + compressor(32, 1, 128);
        let mixing = 2 * (24 * 4 * 256 + 24 + 3);
        let expert = 3 * 256 * 64;
        let experts = 8 * expert + expert + 8 * 256;
        let head = 4 * 4 * 256 + 4 + 1;
        let graph = small("", "").unwrap();
        assert_eq!(graph.parameters.total, 2 * 1000 * 256 + 256 + head + attention + 3 * (2 * 256 + mixing + experts) + 2 * 8);
        assert_eq!(graph.parameters.total - graph.parameters.active, 3 * 6 * expert);
    }

    #[test]
    fn what_is_not_understood_is_refused_by_its_key() {
        for (from, to, expected) in [
            (
                "[0, 4, 128, 0]",
                "[0, 4, 128]",
                "compress_ratios: [0, 4, 128] is not 0, 4 or 128 for each of the 3 layers and the 1 predicting",
            ),
            ("[0, 4, 128, 0]", "[0, 8, 128, 0]", "compress_ratios: [0, 8, 128, 0] is not"),
            ("\"num_key_value_heads\": 1", "\"num_key_value_heads\": 2", "num_key_value_heads: 2 is not 1"),
            ("\"o_groups\": 2", "\"o_groups\": 3", "o_groups: 3 is not a divisor of num_attention_heads (8)"),
            ("\"fp4\"", "\"int4\"", "expert_dtype: \"int4\" is not fp4 or fp8"),
            ("\"sqrtsoftplus\"", "\"sigmoid\"", "scoring_func: \"sigmoid\" is not sqrtsoftplus"),
            ("\"ue8m0\"", "\"e5m3\"", "scale_fmt: \"e5m3\" is not"),
            ("\"hc_mult\": 4,", "", "hc_mult: missing"),
            ("\"hc_mult\": 4,", "\"hc_mult\": 4, \"vision_n_layers\": 2,", "vision_n_layers: unknown key"),
        ] {
            let message = small(from, to).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn headers_are_refused_rather_than_left_unread() {
        let inputs = Inputs {
            entry: ModelEntry::local("small"),
            config: SMALL.as_bytes().to_vec(),
            quantisation_config: None,
            headers: vec![("model.safetensors".to_owned(), b"{}".to_vec())],
        };
        assert!(derive(&inputs).is_ok(), "an empty header names no tensor");
        let named = br#"{"embed.weight": {"dtype": "BF16", "shape": [1000, 256]}}"#.to_vec();
        let error = derive(&Inputs { headers: vec![("model.safetensors".to_owned(), named)], ..inputs }).unwrap_err().to_string();
        assert!(error.contains("the tensor names of this architecture are not known"), "{error}");
    }
}
