//! The headers of safetensors shards: the names, element types and shapes of a checkpoint's tensors, held against the derived graph.
//!
//! Every tensor the graph implies must be there as stored, and every
//! tensor there must be implied or be one of a quantised checkpoint's scales.

use blis_contracts::format::FormatName;
use blis_contracts::model::{Attention, DenseFeedForward, FeedForward, GroupedQueryAttention, LatentAttention, LayerBlock, ModelGraph};
use indexmap::IndexMap;

use super::DeriveError;
use super::family::{Family, FeedForwardKind};
use crate::tree::Tree;

/// Names that end in one of these are scales or tables of a quantised or older checkpoint, not parameters.
const NOT_PARAMETERS: &[&str] =
    &[".weight_scale", ".weight_scale_2", ".weight_scale_inv", ".input_scale", ".k_scale", ".v_scale", "_scales", ".rotary_emb.inv_freq"];

/// The tensors of a checkpoint, by name.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    tensors: IndexMap<String, Stored>,
}

#[derive(Debug)]
struct Stored {
    file: String,
    dtype: String,
    shape: Vec<u64>,
}

impl Headers {
    pub(crate) fn parse(shards: &[(String, Vec<u8>)]) -> Result<Self, DeriveError> {
        let mut tensors = IndexMap::new();
        for (file, bytes) in shards {
            let malformed = |reason: &str| DeriveError::Malformed { file: file.clone(), reason: reason.to_owned() };
            let Tree::Map(entries) = super::parse(file, bytes)? else { return Err(malformed("a header is an object")) };
            for (name, tensor) in entries {
                if name == "__metadata__" {
                    continue;
                }
                let stored = stored(file, &tensor).ok_or_else(|| malformed(&format!("`{name}` states no dtype and shape")))?;
                if tensors.insert(name.clone(), stored).is_some() {
                    return Err(malformed(&format!("`{name}` occurs in two shards")));
                }
            }
        }
        Ok(Self { tensors })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The element type of the embedding, where there are headers.
    pub(crate) fn embedding_format(&self) -> Result<Option<FormatName>, DeriveError> {
        let Some((_, stored)) = self.tensors.iter().find(|(name, _)| name.ends_with("model.embed_tokens.weight")) else { return Ok(None) };
        match stored.dtype.as_str() {
            "BF16" => Ok(Some(FormatName::Bf16)),
            "F16" => Ok(Some(FormatName::Fp16)),
            "F32" => Ok(Some(FormatName::Fp32)),
            other => Err(stored.refuse("model.embed_tokens.weight", format!("dtype {other} is not that of an embedding"))),
        }
    }

    /// Holds the headers against a graph; nothing to hold where there are none.
    pub(crate) fn check(&self, graph: &ModelGraph, family: &Family) -> Result<(), DeriveError> {
        if self.is_empty() {
            return Ok(());
        }
        if let Some((name, stored)) =
            self.tensors.first().filter(|_| family.compressed || family.chunked || family.two_heads || family.recurrence.is_some())
        {
            return Err(stored.refuse(name, "the tensor names of this architecture are not known; leave the shards out".to_owned()));
        }
        let expected = expected(graph, family);
        for (name, (dtype, shape)) in &expected {
            let Some(stored) = self.tensors.get(name) else {
                return Err(DeriveError::Tensor {
                    file: "headers".to_owned(),
                    tensor: name.clone(),
                    reason: "in no shard, though the configuration implies it".to_owned(),
                });
            };
            if stored.dtype != *dtype || stored.shape != *shape {
                let reason = format!("{} {:?}, where the configuration implies {dtype} {shape:?}", stored.dtype, stored.shape);
                return Err(stored.refuse(name, reason));
            }
        }
        // What stands beside a text model is counted, not named.
        let beside = |name: &String| family.nested.is_some_and(|nested| !name.starts_with(nested.modules));
        let unexpected =
            |name: &String| !expected.contains_key(name) && !beside(name) && !NOT_PARAMETERS.iter().any(|suffix| name.ends_with(suffix));
        match self.tensors.iter().find(|(name, _)| unexpected(name)) {
            None => Ok(()),
            Some((name, stored)) => Err(stored.refuse(name, "the configuration implies no such tensor".to_owned())),
        }
    }
}

impl Stored {
    fn refuse(&self, tensor: &str, reason: String) -> DeriveError {
        DeriveError::Tensor { file: self.file.clone(), tensor: tensor.to_owned(), reason }
    }
}

fn stored(file: &str, tensor: &Tree) -> Option<Stored> {
    let (Some(Tree::Text(dtype)), Some(Tree::Sequence(shape))) = (tensor.get("dtype"), tensor.get("shape")) else { return None };
    let shape: Option<Vec<u64>> = shape.iter().map(|size| if let Tree::Natural(size) = size { Some(*size) } else { None }).collect();
    Some(Stored { file: file.to_owned(), dtype: dtype.clone(), shape: shape? })
}

/// Every tensor a graph implies: name to element type and shape as stored.
fn expected(graph: &ModelGraph, family: &Family) -> IndexMap<String, (String, Vec<u64>)> {
    let mut list = Expected { plain: graph.dtype, modules: family.nested.map_or("", |nested| nested.modules), tensors: IndexMap::new() };
    list.matrix("model.embed_tokens", graph.vocab_size, graph.hidden_size, graph.dtype);
    if !graph.tied_embeddings {
        list.matrix("lm_head", graph.vocab_size, graph.hidden_size, graph.output_projection.weights);
    }
    list.vector("model.norm.weight", graph.hidden_size);
    for (index, block) in graph.layers().enumerate() {
        list.layer(&format!("model.layers.{index}"), block, graph.hidden_size, family);
    }
    list.tensors
}

struct Expected {
    plain: FormatName,
    /// What the names of all modules start with.
    modules: &'static str,
    tensors: IndexMap<String, (String, Vec<u64>)>,
}

impl Expected {
    fn insert(&mut self, name: &str, stored: (String, Vec<u64>)) {
        self.tensors.insert(format!("{}{name}", self.modules), stored);
    }

    fn vector(&mut self, name: &str, size: u64) {
        self.insert(name, (element(self.plain), vec![size]));
    }

    /// A weight of `rows` outputs and `columns` inputs; two 4-bit elements share a byte.
    fn matrix(&mut self, module: &str, rows: u64, columns: u64, format: FormatName) {
        let columns = if format == FormatName::Nvfp4 { columns / 2 } else { columns };
        self.insert(&format!("{module}.weight"), (element(format), vec![rows, columns]));
    }

    fn linear(&mut self, module: &str, rows: u64, columns: u64, format: FormatName, bias: bool) {
        self.matrix(module, rows, columns, format);
        if bias {
            self.vector(&format!("{module}.bias"), rows);
        }
    }

    fn layer(&mut self, prefix: &str, block: &LayerBlock, hidden: u64, family: &Family) {
        match &block.attention {
            Attention::GroupedQuery(attention) => self.grouped_query(&format!("{prefix}.self_attn"), attention, hidden),
            Attention::Latent(attention) => self.latent(&format!("{prefix}.self_attn"), attention, hidden),
            Attention::Compressed(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => {
                unreachable!("headers of such a family are refused")
            }
        }
        let around = ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"];
        for norm in &around[..(block.norms as usize).min(around.len())] {
            self.vector(&format!("{prefix}.{norm}.weight"), hidden);
        }
        self.feed_forward(&format!("{prefix}.{}", family.feed_forward_module()), &block.feed_forward, hidden, family);
    }

    fn grouped_query(&mut self, module: &str, attention: &GroupedQueryAttention, hidden: u64) {
        let head_dim = u64::from(attention.head_dim);
        let (query, kv) = (u64::from(attention.query_heads) * head_dim, u64::from(attention.kv_heads) * head_dim);
        for (name, rows) in [("q_proj", query), ("k_proj", kv), ("v_proj", kv)] {
            self.linear(&format!("{module}.{name}"), rows, hidden, attention.qkv_format.weights, attention.qkv_bias);
        }
        self.linear(&format!("{module}.o_proj"), hidden, query, attention.output_format.weights, attention.output_bias);
        if attention.sinks {
            self.vector(&format!("{module}.sinks"), attention.query_heads.into());
        }
        if attention.qk_norm {
            let (query, key) = attention.qk_norm_widths();
            self.vector(&format!("{module}.q_norm.weight"), query);
            self.vector(&format!("{module}.k_norm.weight"), key);
        }
        if let Some(indexer) = &attention.indexer {
            let (head_dim, queries) = (u64::from(indexer.head_dim), u64::from(indexer.query_heads));
            for (name, heads) in [("q", queries), ("k", 1)] {
                self.matrix(&format!("{module}.index_{name}_proj"), heads * head_dim, hidden, attention.qkv_format.weights);
                self.vector(&format!("{module}.index_{name}_norm.weight"), head_dim);
            }
        }
    }

    fn latent(&mut self, module: &str, attention: &LatentAttention, hidden: u64) {
        let (heads, kv_rank) = (u64::from(attention.query_heads), u64::from(attention.kv_rank));
        let query = heads * u64::from(attention.query_dim());
        match attention.query_rank.map(u64::from) {
            Some(rank) => {
                self.matrix(&format!("{module}.q_a_proj"), rank, hidden, attention.down_format.weights);
                self.vector(&format!("{module}.q_a_layernorm.weight"), rank);
                self.matrix(&format!("{module}.q_b_proj"), query, rank, attention.query_format.weights);
            }
            None => self.matrix(&format!("{module}.q_proj"), query, hidden, attention.query_format.weights),
        }
        self.matrix(&format!("{module}.kv_a_proj_with_mqa"), attention.cached().into(), hidden, attention.down_format.weights);
        self.vector(&format!("{module}.kv_a_layernorm.weight"), kv_rank);
        let (plain, value) = (u64::from(attention.plain_dim), u64::from(attention.value_dim));
        self.matrix(&format!("{module}.kv_b_proj"), heads * (plain + value), kv_rank, attention.kv_format.weights);
        self.matrix(&format!("{module}.o_proj"), hidden, heads * value, attention.output_format.weights);
        if let Some(indexer) = attention.indexer() {
            let (heads, head_dim) = (u64::from(indexer.heads), u64::from(indexer.head_dim));
            let depth = attention.query_rank.map_or(hidden, u64::from);
            self.matrix(&format!("{module}.indexer.wq_b"), heads * head_dim, depth, indexer.query_format.weights);
            self.matrix(&format!("{module}.indexer.wk"), head_dim, hidden, indexer.key_format.weights);
            self.matrix(&format!("{module}.indexer.weights_proj"), heads, hidden, indexer.weights_format.weights);
            for name in ["weight", "bias"] {
                self.vector(&format!("{module}.indexer.k_norm.{name}"), head_dim);
            }
        }
    }

    fn feed_forward(&mut self, module: &str, network: &FeedForward, hidden: u64, family: &Family) {
        match network {
            FeedForward::Absent => {}
            FeedForward::Dense(dense) => self.dense(module, dense, hidden),
            FeedForward::MixtureOfExperts(moe) => {
                let experts = u64::from(moe.experts);
                let (width, format) = (moe.intermediate_size, moe.expert_format.weights);
                self.linear(&format!("{module}.{}", family.router_module()), experts, hidden, moe.router_format.weights, moe.router_bias);
                if let Some(shared) = &moe.shared {
                    let module = format!("{module}.shared_experts");
                    self.dense(&module, shared, hidden);
                }
                if moe.selection_bias {
                    let module = if family.latent { format!("{module}.{}", family.router_module()) } else { module.to_owned() };
                    self.insert(&format!("{module}.e_score_correction_bias"), (element(FormatName::Fp32), vec![experts]));
                }
                match family.feed_forward {
                    FeedForwardKind::StackedExperts => {
                        self.stacked(&format!("{module}.experts.gate_up_proj"), experts, 2 * width, hidden, format);
                        self.stacked(&format!("{module}.experts.down_proj"), experts, hidden, width, format);
                    }
                    FeedForwardKind::Experts { projections: [gate, up, down], .. } => {
                        for expert in 0..moe.experts {
                            let of = |name: &str| format!("{module}.experts.{expert}.{name}");
                            self.matrix(&of(gate), width, hidden, format);
                            self.matrix(&of(up), width, hidden, format);
                            self.matrix(&of(down), hidden, width, format);
                        }
                    }
                    FeedForwardKind::Dense => unreachable!("a dense family has no experts"),
                }
            }
        }
    }

    fn dense(&mut self, module: &str, dense: &DenseFeedForward, hidden: u64) {
        for name in ["gate_proj", "up_proj"] {
            self.linear(&format!("{module}.{name}"), dense.intermediate_size, hidden, dense.up_format.weights, dense.bias);
        }
        self.linear(&format!("{module}.down_proj"), hidden, dense.intermediate_size, dense.down_format.weights, dense.bias);
    }

    /// Stacked experts: mxfp4 as blocks of 32 elements in 16 bytes, plain weights with inputs before outputs.
    fn stacked(&mut self, name: &str, experts: u64, rows: u64, columns: u64, format: FormatName) {
        if format == FormatName::Mxfp4 {
            self.insert(&format!("{name}_blocks"), ("U8".to_owned(), vec![experts, rows, columns / 32, 16]));
        } else {
            self.insert(name, (element(format), vec![experts, columns, rows]));
        }
        self.insert(&format!("{name}_bias"), (element(self.plain), vec![experts, rows]));
    }
}

/// The element type a safetensors header states for a format.
fn element(format: FormatName) -> String {
    let name = match format {
        FormatName::Fp32 => "F32",
        FormatName::Bf16 => "BF16",
        FormatName::Fp16 => "F16",
        FormatName::Fp8 | FormatName::Fp8Block | FormatName::Mxfp8 => "F8_E4M3",
        FormatName::Nvfp4 | FormatName::Mxfp4 => "U8",
        FormatName::Int4Group32 | FormatName::Int4Group128 => "I32",
        FormatName::Int8 => "I8",
    };
    name.to_owned()
}
