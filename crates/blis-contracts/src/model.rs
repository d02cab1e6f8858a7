//! The model graph: what a checkpoint is made of, in architecture vocabulary only.
//!
//! A graph is derived from a vendor's `config.json` (and, where given, the checkpoint's safetensors headers), never edited. It
//! states tensors as the checkpoint has them; how an engine shards, fuses, pads or repacks them is that engine's lowering.

mod compressed;
mod recurrent;
mod selection;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format::{FormatName, MatmulFormat};
pub use compressed::{CompressedAttention, Compression, ResidualLanes, Selection};
pub use recurrent::{GatedDelta, Mamba2};
pub use selection::{TokenIndexer, TokenSelection};

/// A model checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelGraph {
    /// The catalog name: lower case, unique.
    pub name: String,
    /// Checkpoint names (as given to an engine) that resolve to this graph.
    pub aliases: Vec<String>,
    /// The architecture class the checkpoint names.
    pub architecture: String,
    /// What the graph was derived from.
    pub derived_from: Derivation,
    /// The element type the checkpoint declares for unquantised tensors.
    pub dtype: FormatName,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Entries of the vocabulary, as the checkpoint declares it.
    pub vocab_size: u64,
    /// Longest context in tokens the checkpoint declares, after any declared position scaling.
    pub max_position_embeddings: u64,
    /// Whether the output projection shares the embedding's weights.
    pub tied_embeddings: bool,
    /// How the output projection is stored and multiplied; absent embeddings or tied ones state the embedding's format.
    pub output_projection: MatmulFormat,
    /// The format keys and values are stored in where the checkpoint declares one (a calibrated fp8 KV cache); absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_format: Option<FormatName>,
    /// The quantisation method the checkpoint declares, in its own words (`mxfp4`, `modelopt`, `fp8`); absent when unquantised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantisation: Option<String>,
    /// The lanes of the residual stream where it has several; absent for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residual_lanes: Option<ResidualLanes>,
    /// The distinct layers, by name.
    pub blocks: IndexMap<String, LayerBlock>,
    /// The stack, bottom to top, as runs of repeated block cycles.
    pub stack: Vec<StackRun>,
    /// Networks beside the stack that turn other inputs than text into embeddings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub encoders: Vec<Encoder>,
    /// Parameter counts, for checks and for reading.
    pub parameters: ParameterCount,
}

/// What a graph was derived from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Derivation {
    /// Where the configuration was read: a package and path, or a repository and revision.
    pub source: String,
    /// SHA-256 of every file read, by name, in hexadecimal.
    pub files: IndexMap<String, String>,
    /// Facts the configuration does not state and no header was read for; each names its rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inferred: Vec<String>,
}

/// A run of the stack: `cycle` repeated `times` times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StackRun {
    /// Names of blocks, in order.
    pub cycle: Vec<String>,
    /// How often the cycle occurs.
    pub times: u32,
}

/// A part of a network beside the stack, by what it takes to keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Encoder {
    /// Which part it is.
    pub part: EncoderPart,
    /// Its parameters.
    pub parameters: u64,
    /// How they are stored.
    pub format: FormatName,
}

/// The parts of an encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EncoderPart {
    /// The layers that encode.
    Tower,
    /// What brings their output to the width of the residual stream.
    Projector,
}

/// One kind of layer: attention or a recurrence, then a feed-forward network, each with its norm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerBlock {
    /// The attention part.
    pub attention: Attention,
    /// The feed-forward part.
    pub feed_forward: FeedForward,
    /// Norms over the residual stream in one layer (two in a pre-norm transformer).
    pub norms: u32,
}

/// An attention part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Attention {
    /// Multi-head, grouped-query or multi-query attention.
    GroupedQuery(GroupedQueryAttention),
    /// Multi-head latent attention: all heads share one compressed key and value for each token.
    Latent(LatentAttention),
    /// Attention to a window and to compressed earlier tokens.
    Compressed(CompressedAttention),
    /// No attention: a gated delta rule over one state per head.
    GatedDelta(GatedDelta),
    /// No attention: a Mamba-2 state space.
    Mamba2(Mamba2),
}

/// Grouped-query attention; multi-head where `kv_heads == query_heads`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each states an independent fact of the checkpoint")]
#[serde(deny_unknown_fields)]
pub struct GroupedQueryAttention {
    /// Query heads of the whole layer.
    pub query_heads: u32,
    /// Key (and value) heads of the whole layer.
    pub kv_heads: u32,
    /// Elements of one head.
    pub head_dim: u32,
    /// Tokens a query sees, itself included; absent for full attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Tokens of a chunk of the context, of which a query sees its own chunk alone; absent where chunks play no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<u32>,
    /// One learned sink logit per query head.
    pub sinks: bool,
    /// A norm over each query and key head.
    pub qk_norm: bool,
    /// Whether that norm has no weights.
    #[serde(default, skip_serializing_if = "is_false")]
    pub qk_norm_unweighted: bool,
    /// Whether that norm runs over all query heads together, and over all key heads together, instead of over each.
    #[serde(default, skip_serializing_if = "is_false")]
    pub qk_norm_spans_heads: bool,
    /// Elements of a head that positions rotate; absent where they rotate all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary_dim: Option<u32>,
    /// Biases on the query, key and value projections.
    pub qkv_bias: bool,
    /// A bias on the output projection.
    pub output_bias: bool,
    /// A gate over attention's output, as wide as the queries and projected with them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub output_gate: bool,
    /// Whether values are what the keys' projection writes, so that the checkpoint has none for values.
    #[serde(default, skip_serializing_if = "is_false")]
    pub values_are_keys: bool,
    /// What picks the blocks of the context that a query sees; absent where it sees all of the context, or a window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indexer: Option<BlockIndexer>,
    /// How the query, key and value projections are stored and multiplied; an indexer's are stored alike.
    pub qkv_format: MatmulFormat,
    /// How the output projection is stored and multiplied.
    pub output_format: MatmulFormat,
}

/// Multi-head latent attention.
///
/// Keys and values of all heads are projections of one latent vector for each token, beside which stands one key part that
/// positions rotate and that all heads share; only these two need to be remembered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatentAttention {
    /// Query heads of the whole layer.
    pub query_heads: u32,
    /// Elements of the latent vector that queries are projected from; absent where they are projected from the residual stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_rank: Option<u32>,
    /// Elements of the latent vector that keys and values are projected from.
    pub kv_rank: u32,
    /// Elements of a query or key head that positions leave alone.
    pub plain_dim: u32,
    /// Elements of a query or key head that positions rotate.
    pub rotary_dim: u32,
    /// Elements of a value head.
    pub value_dim: u32,
    /// Which tokens a query sees; absent where it sees all of the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<TokenSelection>,
    /// How the projections into the latent vectors and the shared rotated key are stored and multiplied.
    pub down_format: MatmulFormat,
    /// How the projection into query heads is stored and multiplied.
    pub query_format: MatmulFormat,
    /// How the projection from the latent vector into key and value heads is stored and multiplied.
    pub kv_format: MatmulFormat,
    /// How the output projection is stored and multiplied.
    pub output_format: MatmulFormat,
}

/// An indexer: a small attention of its own that scores the blocks of the context, of which each key head's queries see the best.
///
/// Its queries have several heads, its keys one. Each of its heads is normed and turned as the attention's own are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockIndexer {
    /// Query heads of the whole layer.
    pub query_heads: u32,
    /// Elements of one head.
    pub head_dim: u32,
    /// Tokens of a block of the context.
    pub block_tokens: u32,
    /// Blocks a query sees, those it always sees included.
    pub top_k: u32,
    /// Blocks at the beginning of the context that a query always sees.
    pub first_blocks: u32,
    /// Blocks at the end of the context, its own included, that a query always sees.
    pub last_blocks: u32,
}

/// A feed-forward part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FeedForward {
    /// One network that every token passes.
    Dense(DenseFeedForward),
    /// Experts, of which a router picks some for each token.
    MixtureOfExperts(MixtureOfExperts),
    /// There is none: the next layer follows at once.
    Absent,
}

/// A dense feed-forward network: gate and up projections (or up alone), an activation, a down projection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DenseFeedForward {
    /// Width between the projections.
    pub intermediate_size: u64,
    /// Whether a gate projection stands beside the up projection.
    pub gated: bool,
    /// Whether the projections carry biases.
    pub bias: bool,
    /// How the gate and up projections are stored and multiplied.
    pub up_format: MatmulFormat,
    /// How the down projection is stored and multiplied.
    pub down_format: MatmulFormat,
}

/// A mixture of experts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each states an independent fact of the checkpoint")]
#[serde(deny_unknown_fields)]
pub struct MixtureOfExperts {
    /// Experts of the layer.
    pub experts: u32,
    /// Experts each token passes.
    pub top_k: u32,
    /// Width between an expert's projections.
    pub intermediate_size: u64,
    /// Whether a gate projection stands beside the up projection.
    pub gated: bool,
    /// Whether the experts' projections carry biases.
    pub bias: bool,
    /// Whether the router carries a bias.
    pub router_bias: bool,
    /// Whether a scale for each element of what the router reads, and one for each expert, stand beside it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub router_scales: bool,
    /// Whether a 32-bit value per expert is added to the scores by which experts are picked, and to nothing else.
    #[serde(default, skip_serializing_if = "is_false")]
    pub selection_bias: bool,
    /// Whether a table names the experts of each vocabulary entry, so that scores only weigh them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub picks_by_token: bool,
    /// How the experts are stored and multiplied.
    pub expert_format: MatmulFormat,
    /// How the router is stored and multiplied.
    pub router_format: MatmulFormat,
    /// Groups of experts of which some are picked first; absent where experts are picked from all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<ExpertGroups>,
    /// The experts that every token passes beside those picked, as one network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<DenseFeedForward>,
    /// Whether one more projection, to a single value, weighs what those experts write.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shared_gate: bool,
    /// The narrower stream the picked experts read and write; absent where it is the residual stream itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latent: Option<ExpertLatent>,
}

/// A stream that tokens are projected to before the picked experts and back from behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpertLatent {
    /// Its width.
    pub width: u64,
    /// How both projections are stored and multiplied.
    pub format: MatmulFormat,
}

/// How experts are grouped before they are picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpertGroups {
    /// Groups of the layer, equally large.
    pub count: u32,
    /// Groups that each token's experts are picked from.
    pub picked: u32,
}

/// Parameters of a model: elements of its tensors, scales not counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParameterCount {
    /// All of them.
    pub total: u64,
    /// Those one token passes, less the parts the publisher leaves out of its own count.
    pub active: u64,
    /// Parts that `active` leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active_leaves_out: Vec<UncountedPart>,
    /// What the publisher states, with where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<PublishedCount>,
}

/// A part of a model that a publisher may leave out of a parameter count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UncountedPart {
    /// The token embedding, of which a token reads one row.
    Embedding,
    /// The routers of all layers.
    Router,
    /// What stands beside a text model to turn other inputs into embeddings.
    Encoder,
}

/// A published parameter count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedCount {
    /// The figure as printed: an exact count (`8030261248`) or a rounded one (`116.83B`).
    pub total: String,
    /// Parts that the total leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub total_leaves_out: Vec<UncountedPart>,
    /// The active count as printed, where one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<String>,
    /// Where it is printed.
    pub source: String,
}

/// Leaves a fact out of a written graph where it does not hold.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl GroupedQueryAttention {
    /// Elements of a head that positions rotate.
    pub fn rotated(&self) -> u32 {
        self.rotary_dim.unwrap_or(self.head_dim)
    }

    /// Parameters of the norms over queries and over keys, in this order.
    pub fn qk_norm_widths(&self) -> (u64, u64) {
        let head_dim = u64::from(self.head_dim);
        let heads = |count: u32| if self.qk_norm_spans_heads { u64::from(count) } else { 1 };
        if self.qk_norm && !self.qk_norm_unweighted {
            (heads(self.query_heads) * head_dim, heads(self.kv_heads) * head_dim)
        } else {
            (0, 0)
        }
    }
}

impl LatentAttention {
    /// Elements of a query head, and of a key head before it is compressed.
    pub fn query_dim(&self) -> u32 {
        self.plain_dim + self.rotary_dim
    }

    /// Elements that have to be remembered for each token: the latent vector and the shared rotated key.
    pub fn cached(&self) -> u32 {
        self.kv_rank + self.rotary_dim
    }

    /// What scores tokens in this layer, where it does.
    pub fn indexer(&self) -> Option<&TokenIndexer> {
        self.selection.as_ref()?.indexer.as_ref()
    }
}

impl BlockIndexer {
    /// Tokens a query sees at most.
    pub const fn visible_tokens(&self) -> u32 {
        self.top_k * self.block_tokens
    }
}

impl ModelGraph {
    /// The layers bottom to top, as names of [`Self::blocks`].
    pub fn layer_names(&self) -> impl Iterator<Item = &str> {
        self.stack.iter().flat_map(|run| (0..run.times).flat_map(|_| run.cycle.iter().map(String::as_str)))
    }

    /// The layers bottom to top. Panics where the stack names a block that is not there; validators refuse such a graph.
    pub fn layers(&self) -> impl Iterator<Item = &LayerBlock> {
        self.layer_names().map(|name| &self.blocks[name])
    }

    /// Layers in the stack.
    pub fn layer_count(&self) -> usize {
        self.stack.iter().map(|run| run.cycle.len() * run.times as usize).sum()
    }
}
