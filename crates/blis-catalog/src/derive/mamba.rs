//! The Nemotron-H architecture: Mamba-2, attention and networks, each a layer of its own with one norm.
//!
//! A graph's layer is a pair: what looks back, then a network where one follows. `hybrid_override_pattern` writes a letter per layer
//! (`M` Mamba-2, `*` attention, `-` one network, `E` experts), `layers_block_type` a word. No position turns anything.
//!
//! Left out: tensor names, so that a checkpoint's headers cannot be held against a graph; the module for multi-token prediction.

use blis_contracts::format::MatmulFormat;
use blis_contracts::model::{
    Attention, DenseFeedForward, ExpertLatent, FeedForward, GroupedQueryAttention, LayerBlock, Mamba2, MixtureOfExperts,
};

use super::DeriveError;
use super::family::Family;
use super::keys::Keys;
use super::quantisation::Quantisation;
use super::recurrent::{Recurrence, state_format};
use crate::patterns::CONFIG;
use crate::tree::Tree;

/// Widths of attention, which come from the reader that every architecture has.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttentionWidths {
    pub(super) query_heads: u32,
    pub(super) kv_heads: u32,
    pub(super) head_dim: u32,
}

/// One layer as the checkpoint counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mamba,
    Attention,
    Network,
    Experts,
}

/// The width of a head where it stands under this architecture's own key.
pub(super) fn head_dim(keys: &Keys<'_>, family: &Family) -> Result<Option<u32>, DeriveError> {
    if family.recurrence == Some(Recurrence::Mamba2) { keys.small("attention_head_dim") } else { Ok(None) }
}

/// How many layers are listed, where the architecture lists them.
pub(super) fn layer_count(keys: &Keys<'_>, family: &Family) -> Result<Option<u32>, DeriveError> {
    if family.recurrence != Some(Recurrence::Mamba2) {
        return Ok(None);
    }
    let listed = u32::try_from(kinds(keys)?.len()).unwrap_or(u32::MAX);
    match keys.small("num_hidden_layers")? {
        Some(stated) if stated != listed => {
            let expected = format!("{listed}, the layers that are listed");
            Err(keys.wrong("num_hidden_layers", &Tree::Natural(stated.into()), &expected))
        }
        Some(_) | None => Ok(Some(listed)),
    }
}

/// Every pair, bottom to top.
pub(super) fn build(keys: &Keys<'_>, heads: AttentionWidths, quantisation: &Quantisation) -> Result<Vec<LayerBlock>, DeriveError> {
    let kinds = kinds(keys)?;
    let parts = Parts::read(keys, heads, &kinds, quantisation)?;
    let mut layers: Vec<LayerBlock> = Vec::new();
    for (index, kind) in (0..).zip(kinds) {
        let network = match kind {
            Kind::Mamba | Kind::Attention => {
                let attention = if kind == Kind::Mamba { parts.mamba(index)? } else { parts.attention(index)? };
                layers.push(LayerBlock { attention, feed_forward: FeedForward::Absent, norms: 1 });
                continue;
            }
            Kind::Network => parts.network(index)?,
            Kind::Experts => parts.experts(index)?,
        };
        let Some(layer) = layers.last_mut().filter(|layer| layer.feed_forward == FeedForward::Absent) else {
            let found = Tree::Text(format!("a network as layer {index}"));
            return Err(keys.wrong(LETTERS, &found, "a network behind a layer that looks back"));
        };
        *layer = LayerBlock { feed_forward: network, norms: 2, ..layer.clone() };
    }
    Ok(layers)
}

const LETTERS: &str = "hybrid_override_pattern";
const WORDS: &str = "layers_block_type";

/// The layers as they are listed, by letters or by words.
fn kinds(keys: &Keys<'_>) -> Result<Vec<Kind>, DeriveError> {
    let words = keys.texts(WORDS)?;
    if let Some(letters) = keys.text(LETTERS)? {
        let kind = |letter| match letter {
            'M' => Ok(Kind::Mamba),
            '*' => Ok(Kind::Attention),
            '-' => Ok(Kind::Network),
            'E' => Ok(Kind::Experts),
            other => Err(keys.wrong(LETTERS, &Tree::Text(String::from(other)), "letters M, *, - and E")),
        };
        return letters.chars().map(kind).collect();
    }
    if words.is_empty() {
        return keys.required(LETTERS, None);
    }
    let kind = |word: &str| match word {
        "mamba" => Ok(Kind::Mamba),
        "attention" => Ok(Kind::Attention),
        "mlp" => Ok(Kind::Network),
        "moe" => Ok(Kind::Experts),
        other => Err(keys.wrong(WORDS, &Tree::Text(other.to_owned()), "mamba, attention, mlp or moe")),
    };
    words.into_iter().map(kind).collect()
}

/// What layers of each kind share.
struct Parts<'a> {
    heads: AttentionWidths,
    mamba: Mamba2,
    network_width: Option<u64>,
    experts: Option<MixtureOfExperts>,
    quantisation: &'a Quantisation,
}

impl<'a> Parts<'a> {
    fn read(keys: &Keys<'_>, heads: AttentionWidths, kinds: &[Kind], quantisation: &'a Quantisation) -> Result<Self, DeriveError> {
        for key in ["attention_bias", "mamba_proj_bias", "mlp_bias", "use_bias"] {
            if keys.flag(key)?.unwrap_or(false) {
                return Err(keys.wrong(key, &Tree::Flag(true), "false, as no such bias is understood"));
            }
        }
        for (key, known) in [("mamba_hidden_act", "silu"), ("mlp_hidden_act", "relu2")] {
            if let Some(other) = keys.text(key)?.filter(|&found| found != known) {
                return Err(keys.wrong(key, &Tree::Text(other.to_owned()), known));
            }
        }
        if let Some(window) = keys.small("sliding_window")? {
            return Err(keys.wrong("sliding_window", &Tree::Natural(window.into()), "null, as no window is understood"));
        }
        let small = |key| keys.required(key, keys.small(key)?);
        let unset = quantisation.plain();
        let mamba = Mamba2 {
            heads: small("mamba_num_heads")?,
            head_dim: small("mamba_head_dim")?,
            groups: small("n_groups")?,
            state_dim: small("ssm_state_size")?,
            conv_tokens: small("conv_kernel")?,
            conv_bias: keys.flag("use_conv_bias")?.unwrap_or(true),
            chunk_tokens: small("chunk_size")?,
            state_format: state_format(keys, "mamba_ssm_cache_dtype")?,
            input_format: unset,
            output_format: unset,
        };
        if !mamba.heads.is_multiple_of(mamba.groups) {
            let expected = format!("a divisor of mamba_num_heads ({})", mamba.heads);
            return Err(keys.wrong("n_groups", &Tree::Natural(mamba.groups.into()), &expected));
        }
        let experts = if kinds.contains(&Kind::Experts) { Some(experts(keys, unset)?) } else { None };
        Ok(Self { heads, mamba, network_width: keys.natural("intermediate_size")?, experts, quantisation })
    }

    fn format(&self, index: u32, module: &str) -> MatmulFormat {
        self.quantisation.format_of(&format!("backbone.layers.{index}.mixer.{module}"))
    }

    /// The one format of modules that engines read as one matrix.
    fn same(&self, index: u32, modules: &[&str]) -> Result<MatmulFormat, DeriveError> {
        let format = self.format(index, modules[0]);
        if modules.iter().any(|module| self.format(index, module) != format) {
            return Err(DeriveError::Uneven { layer: index, modules: modules.join(", ") });
        }
        Ok(format)
    }

    fn mamba(&self, index: u32) -> Result<Attention, DeriveError> {
        let (input_format, output_format) = (self.same(index, &["in_proj"])?, self.same(index, &["out_proj"])?);
        Ok(Attention::Mamba2(Mamba2 { input_format, output_format, ..self.mamba.clone() }))
    }

    fn attention(&self, index: u32) -> Result<Attention, DeriveError> {
        let AttentionWidths { query_heads, kv_heads, head_dim } = self.heads;
        Ok(Attention::GroupedQuery(GroupedQueryAttention {
            query_heads,
            kv_heads,
            head_dim,
            window: None,
            sinks: false,
            qk_norm: false,
            qk_norm_spans_heads: false,
            qk_norm_unweighted: false,
            chunk: None,
            rotary_dim: Some(0),
            qkv_bias: false,
            output_bias: false,
            output_gate: false,
            values_are_keys: false,
            indexer: None,
            qkv_format: self.same(index, &["q_proj", "k_proj", "v_proj"])?,
            output_format: self.same(index, &["o_proj"])?,
        }))
    }

    fn network(&self, index: u32) -> Result<FeedForward, DeriveError> {
        let missing = || DeriveError::Missing { file: CONFIG.to_owned(), path: "intermediate_size".to_owned() };
        Ok(FeedForward::Dense(ungated(
            self.network_width.ok_or_else(missing)?,
            self.same(index, &["up_proj"])?,
            self.same(index, &["down_proj"])?,
        )))
    }

    fn experts(&self, index: u32) -> Result<FeedForward, DeriveError> {
        let experts = self.experts.as_ref().expect("read where a layer has experts");
        let shared_of = |shared: &DenseFeedForward| -> Result<_, DeriveError> {
            let (up, down) = (self.same(index, &["shared_experts.up_proj"])?, self.same(index, &["shared_experts.down_proj"])?);
            Ok(ungated(shared.intermediate_size, up, down))
        };
        let latent_of = |latent| -> Result<_, DeriveError> {
            Ok(ExpertLatent { format: self.same(index, &["fc1_latent_proj", "fc2_latent_proj"])?, ..latent })
        };
        Ok(FeedForward::MixtureOfExperts(MixtureOfExperts {
            expert_format: self.same(index, &["experts.0.up_proj", "experts.0.down_proj"])?,
            shared: experts.shared.as_ref().map(shared_of).transpose()?,
            latent: experts.latent.map(latent_of).transpose()?,
            ..experts.clone()
        }))
    }
}

fn ungated(intermediate_size: u64, up_format: MatmulFormat, down_format: MatmulFormat) -> DenseFeedForward {
    DenseFeedForward { intermediate_size, gated: false, bias: false, up_format, down_format }
}

/// The experts every such layer has; a router is never converted.
fn experts(keys: &Keys<'_>, plain: MatmulFormat) -> Result<MixtureOfExperts, DeriveError> {
    let small = |key| keys.required(key, keys.small(key)?);
    let (count, top_k) = (small("n_routed_experts")?, small("num_experts_per_tok")?);
    if top_k > count {
        return Err(keys.wrong("num_experts_per_tok", &Tree::Natural(top_k.into()), &format!("at most n_routed_experts ({count})")));
    }
    for key in ["n_group", "topk_group"] {
        if let Some(other) = keys.small(key)?.filter(|&groups| groups != 1) {
            return Err(keys.wrong(key, &Tree::Natural(other.into()), "1, as no groups of experts are understood here"));
        }
    }
    let shared = match (keys.natural("n_shared_experts")?, keys.natural("moe_shared_expert_intermediate_size")?) {
        (Some(shared), width) => Some(shared * keys.required("moe_shared_expert_intermediate_size", width)?),
        (None, _) => None,
    };
    Ok(MixtureOfExperts {
        experts: count,
        top_k,
        intermediate_size: keys.required("moe_intermediate_size", keys.natural("moe_intermediate_size")?)?,
        gated: false,
        bias: false,
        router_bias: false,
        selection_bias: true,
        picks_by_token: false,
        expert_format: plain,
        router_format: plain,
        groups: None,
        shared: shared.map(|width| ungated(width, plain, plain)),
        shared_gate: false,
        router_scales: false,
        latent: keys.natural("moe_latent_size")?.map(|width| ExpertLatent { width, format: plain }),
    })
}

#[cfg(test)]
mod tests {
    use blis_contracts::model::ModelGraph;

    use super::super::{Inputs, derive};
    use crate::entry::ModelEntry;

    const SMALL: &str = r#"{"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "torch_dtype": "bfloat16",
        "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "num_hidden_layers": 7,
        "vocab_size": 1000, "max_position_embeddings": 4096, "hybrid_override_pattern": "MEM*EM-", "intermediate_size": 512,
        "mamba_num_heads": 8, "mamba_head_dim": 32, "n_groups": 2, "ssm_state_size": 16, "conv_kernel": 4, "chunk_size": 128,
        "use_conv_bias": true, "mamba_ssm_cache_dtype": "float32", "mlp_hidden_act": "relu2", "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 96, "n_shared_experts": 1, "moe_shared_expert_intermediate_size": 160,
        "moe_latent_size": 64, "n_group": 1, "topk_group": 1, "time_step_limit": [0.0, Infinity], "sliding_window": null}"#;

    fn small(from: &str, to: &str) -> Result<ModelGraph, String> {
        assert!(SMALL.contains(from), "{from}");
        let config = SMALL.replacen(from, to, usize::from(!from.is_empty())).into_bytes();
        derive(&Inputs { entry: ModelEntry::local("small"), config, quantisation_config: None, headers: Vec::new() })
            .map_err(|error| error.to_string())
    }

    #[test]
    fn each_layer_that_looks_back_takes_the_network_behind_it() {
        let graph = small("", "").unwrap();
        assert_eq!(graph.layer_names().collect::<Vec<_>>(), ["mamba-moe", "mamba-alone", "attention-moe", "mamba-dense"]);
        assert_eq!(graph.blocks.values().map(|block| block.norms).collect::<Vec<_>>(), [2, 1, 2, 2]);
        let words = r#""layers_block_type": ["mamba", "moe", "mamba", "attention", "moe", "mamba", "mlp"]"#;
        let listed = small("\"num_hidden_layers\": 7,", "").unwrap();
        let worded = small("\"hybrid_override_pattern\": \"MEM*EM-\"", words).unwrap();
        assert_eq!((&listed.stack, &worded.stack), (&graph.stack, &graph.stack));
    }

    #[test]
    fn parameters_are_those_of_the_matrices_written_out() {
        let (width, conv) = (8 * 32, 8 * 32 + 2 * 2 * 16);
        let mamba = 256 * (width + conv + 8) + width * 256 + conv * 5 + 3 * 8 + width;
        let attention = 256 * (256 + 2 * 128) + 256 * 256;
        let experts = 8 * 2 * 64 * 96 + 8 * 257 + 2 * 256 * 160 + 2 * 256 * 64;
        let graph = small("", "").unwrap();
        assert_eq!(graph.parameters.total, 2 * 1000 * 256 + 256 + 3 * mamba + attention + 2 * experts + 2 * 512 * 256 + 7 * 256);
        assert_eq!(graph.parameters.total - graph.parameters.active, 2 * 6 * 2 * 64 * 96);
    }

    #[test]
    fn what_is_not_understood_is_refused_by_its_key() {
        for (from, to, expected) in [
            ("MEM*EM-", "MEM*EMX", "hybrid_override_pattern: \"X\" is not letters M, *, - and E"),
            ("MEM*EM-", "MEE*EM-", "hybrid_override_pattern: \"a network as layer 2\" is not a network behind a layer"),
            ("\"num_hidden_layers\": 7", "\"num_hidden_layers\": 8", "num_hidden_layers: 8 is not 7, the layers that are listed"),
            ("relu2", "silu", "mlp_hidden_act: \"silu\" is not relu2"),
            ("\"n_group\": 1", "\"n_group\": 2", "n_group: 2 is not 1"),
            ("\"n_groups\": 2", "\"n_groups\": 3", "n_groups: 3 is not a divisor of mamba_num_heads (8)"),
            ("\"sliding_window\": null", "\"sliding_window\": 128", "sliding_window: 128 is not null"),
            ("\"vocab_size\"", "\"use_bias\": true, \"vocab_size\"", "use_bias: true is not false"),
        ] {
            let message = small(from, to).unwrap_err();
            assert!(message.contains(expected), "{message}\nwanted {expected}");
        }
    }
}
