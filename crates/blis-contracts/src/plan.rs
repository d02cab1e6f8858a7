//! The plan: an engine pool's behaviour, resolved, in physical units.
//!
//! An engine lowers a model graph and its own configuration into a [`PoolPlan`]; the cost model compiles it and afterwards prices
//! step shapes against it. A plan holds no engine vocabulary: every default, backend choice and padding rule has been applied.
//! Fields keep a neutral zero value, so the plan can grow.

use std::num::NonZeroU32;

use crate::format::{FormatName, MatmulFormat};
use crate::part::{DensePrompts, Part};
use crate::step::{Launch, PrefillRow, RankStep, StepShape};
use crate::units::{Blocks, BytesPerRank, Tokens};

/// An engine pool, fixed for its life.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolPlan {
    /// Catalog name of the chip.
    pub hardware: String,
    /// Catalog name of the network between its nodes; empty where nothing crosses one.
    pub fabric: String,
    /// Catalog name of the model.
    pub model: String,
    /// Widths of the parallel layout.
    pub layout: Layout,
    /// What one forward pass runs, in order.
    pub layers: Vec<LoweredLayer>,
    /// Which prompts attend to all of their context, where others attend to picked tokens.
    pub dense_prompts: Option<DensePrompts>,
    /// The KV-cache groups; attention shapes refer to them by index.
    pub kv: Vec<KvGroup>,
    /// Bytes each rank may use for KV, one value per pipeline stage; empty until the engine has sized its cache.
    pub kv_budget: Vec<BytesPerRank>,
    /// Blocks of the KV pool; zero until the engine has sized its cache.
    pub kv_blocks: Blocks,
    /// Captured graphs.
    pub graphs: GraphPolicy,
    /// Work of the host around each step.
    pub host: HostPlan,
    /// What clients see of the host: tokenising, detokenising, chunking.
    pub front_end: FrontEndPlan,
    /// Weights resident on each rank, after the engine's post-processing.
    pub weights: Vec<ResidentTensor>,
    /// Buffers and workspaces the engine chooses.
    pub buffers: Vec<Buffer>,
    /// The step the engine profiles its activation memory with.
    pub profiling: StepShape,
    /// Most steps in flight at once; 1 where the host waits for each step.
    pub in_flight: u32,
}

/// Widths of the parallel layout; 1 where a dimension is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Ranks that share each matrix.
    pub tensor: u32,
    /// Pipeline stages.
    pub pipeline: u32,
    /// Data-parallel ranks.
    pub data: u32,
    /// Ranks that share the experts of a layer.
    pub expert: u32,
    /// Consecutive ranks that lie in one domain of links; 0 where one domain holds all. Ranks that share a matrix are consecutive,
    /// then stages, then data-parallel ranks.
    pub domain: u32,
}

impl Layout {
    /// One accelerator.
    pub const SINGLE: Self = Self { tensor: 1, pipeline: 1, data: 1, expert: 1, domain: 0 };

    /// Accelerators of the whole pool member.
    pub const fn ranks(self) -> u32 {
        self.tensor * self.pipeline * self.data
    }

    /// Domains of links that a group of so many consecutive ranks lies in, where it begins a domain if it does not fit into one.
    pub const fn domains_of(self, group: u32) -> u32 {
        if self.domain == 0 { 1 } else { group.div_ceil(self.domain) }
    }

    /// Whether a stage's ranks hand over to ranks of another domain.
    pub const fn hands_over_domains(self, stage: u32) -> bool {
        let before = self.tensor * (stage + 1);
        self.domain > 0 && self.tensor * self.pipeline > self.domain && before.is_multiple_of(self.domain)
    }
}

/// One piece of work of a forward pass on one rank.
#[derive(Debug, Clone, PartialEq)]
pub struct LoweredLayer {
    /// Index in the model graph's stack; layers that stand outside the stack use the nearest end.
    pub layer: u32,
    /// Pipeline stage that runs it.
    pub stage: u32,
    /// What it does.
    pub primitive: Primitive,
    /// What executes it.
    pub kernel: KernelImpl,
    /// How large it is.
    pub shape: PrimitiveShape,
    /// The part of the step that it serves.
    pub part: Part,
    /// Which rows of that part it processes.
    pub rows: RowSet,
    /// For how many rows it runs; other row counts are another piece's, where an engine picks kernels by size.
    pub runs_for: RowRange,
    /// When it may begin.
    pub start: Start,
}

/// When the accelerator may begin a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Start {
    /// When the kernel before it has ended.
    #[default]
    Ordered,
    /// While the kernel before it drains: it is launched as a programmatic dependent, and waits inside for what it reads.
    Dependent,
}

/// Row counts from `least` to `most`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowRange {
    /// The smallest count.
    pub least: u32,
    /// The greatest count.
    pub most: u32,
}

impl RowRange {
    /// Every count.
    pub const ALL: Self = Self { least: 0, most: u32::MAX };

    /// Whether a count lies in the range.
    pub const fn contains(self, rows: u32) -> bool {
        self.least <= rows && rows <= self.most
    }
}

impl Default for RowRange {
    fn default() -> Self {
        Self::ALL
    }
}

/// The fixed list of primitives a plan may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Primitive {
    /// A dense matrix multiplication.
    Gemm,
    /// Attention of requests with several new tokens.
    AttentionPrefill,
    /// Attention of requests with one new token.
    AttentionDecode,
    /// Several equal matrix multiplications in one call, each with weights of its own.
    BatchedGemm,
    /// Latent attention of requests with several new tokens, over keys and values written out for every head.
    LatentPrefill,
    /// Latent attention of requests with one new token, over the latent vectors as they are cached.
    LatentDecode,
    /// Attention of requests with several new tokens to entries that each token names by a list.
    SparsePrefill,
    /// Attention of requests with one new token to entries that each token names by a list.
    SparseDecode,
    /// Scoring entries for requests with several new tokens, and selecting the best.
    SelectionPrefill,
    /// Scoring entries for requests with one new token, and selecting the best.
    SelectionDecode,
    /// A convolution over the last few tokens, by which layers that keep a state begin.
    Convolution,
    /// A recurrence over one state per head, for requests with several new tokens.
    RecurrentPrefill,
    /// The same for requests with one new token.
    RecurrentDecode,
    /// A scan over chunks of prompts, whose states are passed from chunk to chunk.
    RecurrentScan,
    /// The experts of a mixture, routing included, router projection not.
    MoeExperts,
    /// Layers that a second stream runs beside others: their time is hidden, the traffic of their weights is not.
    Beside,
    /// A sum over the ranks of a group, left on each.
    AllReduce,
    /// A concatenation over the ranks of a group, left on each.
    AllGather,
    /// A sum over the ranks of a group, of which each keeps its own rows.
    ReduceScatter,
    /// Tokens that each rank of a group sends to those that hold their experts, or what these yield on its way back.
    AllToAll,
    /// Rows that a rank of one pipeline stage hands to one of the next.
    Send,
    /// A norm over rows.
    Norm,
    /// An elementwise activation.
    Activation,
    /// Rotary position embedding.
    Rope,
    /// Token embedding look-up.
    Embedding,
    /// Turning logits into tokens.
    Sampling,
}

impl Primitive {
    /// Every primitive.
    pub const ALL: [Self; 26] = [
        Self::Gemm,
        Self::AttentionPrefill,
        Self::AttentionDecode,
        Self::BatchedGemm,
        Self::LatentPrefill,
        Self::LatentDecode,
        Self::SparsePrefill,
        Self::SparseDecode,
        Self::SelectionPrefill,
        Self::SelectionDecode,
        Self::Convolution,
        Self::RecurrentPrefill,
        Self::RecurrentDecode,
        Self::RecurrentScan,
        Self::MoeExperts,
        Self::Beside,
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Send,
        Self::Norm,
        Self::Activation,
        Self::Rope,
        Self::Embedding,
        Self::Sampling,
    ];

    /// The name documents and reports use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::AttentionPrefill => "attention.prefill",
            Self::AttentionDecode => "attention.decode",
            Self::BatchedGemm => "gemm.batched",
            Self::LatentPrefill => "latent.prefill",
            Self::LatentDecode => "latent.decode",
            Self::SparsePrefill => "attention.sparse_prefill",
            Self::SparseDecode => "attention.sparse_decode",
            Self::SelectionPrefill => "selection.prefill",
            Self::SelectionDecode => "selection.decode",
            Self::Convolution => "convolution",
            Self::RecurrentPrefill => "recurrent.prefill",
            Self::RecurrentDecode => "recurrent.decode",
            Self::RecurrentScan => "recurrent.scan",
            Self::MoeExperts => "moe.experts",
            Self::Beside => "moe.beside",
            Self::AllReduce => "collective.all_reduce",
            Self::AllGather => "collective.all_gather",
            Self::ReduceScatter => "collective.reduce_scatter",
            Self::AllToAll => "collective.all_to_all",
            Self::Send => "collective.send",
            Self::Norm => "norm",
            Self::Activation => "activation",
            Self::Rope => "rope",
            Self::Embedding => "embedding",
            Self::Sampling => "sampling",
        }
    }
}

/// What executes a primitive: the key coefficients are looked up by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelImpl {
    /// The library the kernel ships in.
    pub library: String,
    /// The library's own name of the kernel.
    pub variant: String,
    /// Hash of the kernel's source or binary; empty where the engine does not state one.
    pub code_hash: String,
    /// The toolkit it was built with; empty where the engine does not state one.
    pub toolkit: String,
}

impl KernelImpl {
    /// A kernel by library and variant, with no code hash stated.
    pub fn named(library: &str, variant: &str) -> Self {
        Self { library: library.to_owned(), variant: variant.to_owned(), code_hash: String::new(), toolkit: String::new() }
    }
}

/// Which rows of a step a piece of work processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowSet {
    /// Every token launched, padding included.
    Tokens,
    /// A part of the tokens launched, padding included: the ranks that share each matrix share them evenly, rounded up.
    Split,
    /// Every token launched by any of the ranks that run in lockstep, padding included.
    Gathered,
    /// The rows whose logits are computed.
    Sampled,
    /// The requests of the kind the attention primitive covers.
    Requests,
    /// One row for each request that computes one new token over a non-empty context; padding included where one graph holds the
    /// whole pass.
    Decodes,
    /// The new tokens of the other requests.
    Prefills,
    /// The tokens those other requests have cached.
    Cached,
}

impl RowSet {
    /// Whether its rows belong to requests of one kind alone: what an attention layer works on by itself.
    pub const fn of_one_kind(self) -> bool {
        match self {
            Self::Tokens | Self::Split | Self::Gathered | Self::Sampled | Self::Requests => false,
            Self::Decodes | Self::Prefills | Self::Cached => true,
        }
    }

    /// How many of its rows one rank's part of a step has, where all ranks together launch `gathered` tokens and `sharing` ranks share
    /// each matrix.
    pub fn rows(self, step: &RankStep, gathered: u32, sharing: u32) -> u32 {
        let sum = |part: fn(&PrefillRow) -> u32| step.prefill.iter().map(|row| u64::from(part(row))).sum::<u64>();
        let count = |rows: u64| u32::try_from(rows).unwrap_or(u32::MAX);
        match self {
            Self::Tokens => step.padded_tokens,
            Self::Split => step.padded_tokens.div_ceil(sharing.max(1)),
            Self::Gathered => gathered,
            Self::Sampled => step.sampled,
            Self::Requests => count(step.requests() as u64),
            Self::Decodes => match step.launch {
                Launch::Full => count(u64::from(step.padded_tokens).saturating_sub(sum(|row| row.query))),
                Launch::Piecewise | Launch::Eager => count(step.decode.len() as u64),
            },
            Self::Prefills => count(sum(|row| row.query)),
            Self::Cached => count(sum(|row| row.context)),
        }
    }
}

/// How a kernel deals the blocks that requests of unequal contexts read to processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dealing {
    /// So that each reads about as much.
    Evenly,
    /// Request after request, in parts of at most a tenth more than each would have of all.
    InTurn {
        /// Most parts of a request within a captured graph, whose buffers are laid out for them.
        parts_in_graph: NonZeroU32,
    },
}

/// The size of a primitive on one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PrimitiveShape {
    /// Rows times a `depth` x `columns` matrix.
    Gemm {
        /// Output columns on this rank.
        columns: u64,
        /// Inner dimension on this rank.
        depth: u64,
        /// Formats of both operands.
        format: MatmulFormat,
    },
    /// Attention over one KV group.
    Attention {
        /// Query heads on this rank.
        query_heads: u32,
        /// Key heads on this rank.
        kv_heads: u32,
        /// Elements of one head.
        head_dim: u32,
        /// Index of the KV group in [`PoolPlan::kv`].
        kv_group: u32,
        /// Tokens a query sees, itself included; 0 for all.
        window: u32,
        /// Tokens of a chunk of the context, of which a query sees its own alone; 0 where chunks play no part.
        chunk: u32,
        /// Whether sink logits take part.
        sinks: bool,
        /// How keys and values are stored.
        kv_format: FormatName,
        /// How what decodes read is dealt to processors.
        dealing: Dealing,
    },
    /// `batch` products of rows by a `depth` x `columns` matrix.
    BatchedGemm {
        /// Matrices on this rank.
        batch: u32,
        /// Output columns of each.
        columns: u64,
        /// Inner dimension of each.
        depth: u64,
        /// Formats of both operands.
        format: MatmulFormat,
    },
    /// Latent attention over one KV group: the latent vectors themselves (one key head, whose value is a part of it), or what was
    /// projected from them (as many key heads as query heads).
    Latent {
        /// Query heads on this rank.
        query_heads: u32,
        /// Key heads on this rank.
        kv_heads: u32,
        /// Elements of a key head.
        key_dim: u32,
        /// Elements of a value head.
        value_dim: u32,
        /// Index of the KV group in [`PoolPlan::kv`].
        kv_group: u32,
        /// How the kernel reads keys and values.
        format: FormatName,
    },
    /// Attention to a window of recent tokens and to vectors that each stand for several, all gathered by a list.
    Gathered {
        /// Query heads on this rank as the kernel runs them.
        query_heads: u32,
        /// Elements of a query head and of the one vector that is key and value of all heads.
        head_dim: u32,
        /// Bytes the kernel reads of one entry.
        entry_bytes: u32,
        /// Recent tokens that are entries themselves.
        window: u32,
        /// Tokens that one further entry stands for; 0 where there are none.
        ratio: u32,
        /// Further entries a token attends to at most; 0 for all.
        top_k: u32,
        /// What the kernel multiplies.
        multiplied: FormatName,
    },
    /// Scores of all entries, and a list of the best.
    Scores {
        /// Scoring heads.
        heads: u32,
        /// Elements of a scoring head and of an entry.
        head_dim: u32,
        /// Bytes of one entry.
        entry_bytes: u32,
        /// Tokens that one entry stands for.
        ratio: u32,
        /// Entries that are kept of each row.
        top_k: u32,
        /// Entries up to which a row of several is selected by ranking every pair.
        ranked: u32,
        /// What the kernel multiplies.
        multiplied: FormatName,
    },
    /// A recurrence over one state per head.
    Recurrent {
        /// Heads on this rank, each with a state of its own.
        heads: u32,
        /// Elements of one state.
        state_elements: u32,
    },
    /// A scan over chunks of prompts, whose states are written and read again.
    Scan {
        /// Bytes read and written for each token.
        bytes_per_token: u64,
        /// Bytes read and written for each row besides.
        bytes_per_row: u64,
    },
    /// The experts of one layer.
    Moe {
        /// Experts of the layer, over all ranks.
        experts: u32,
        /// Experts held by this rank.
        local_experts: u32,
        /// Experts each token passes.
        top_k: u32,
        /// Width of the residual stream.
        hidden: u64,
        /// Width between an expert's projections on this rank.
        intermediate: u64,
        /// Whether a gate projection stands beside the up projection.
        gated: bool,
        /// Formats of both operands.
        format: MatmulFormat,
    },
    /// A collective over a group of ranks.
    Collective {
        /// Ranks of the group.
        group: u32,
        /// Bytes of each row on one rank: before a sum or a concatenation, after a sum of which each rank keeps its rows.
        bytes_per_row: u64,
    },
    /// Weights read once in a call, however many its rows.
    Traffic {
        /// Their bytes.
        bytes: u64,
    },
    /// Work bound by memory traffic: norms, activations, position embedding, look-up.
    Stream {
        /// Bytes read and written for each row.
        bytes_per_row: u64,
    },
    /// Sampling over a vocabulary.
    Sampling {
        /// Logits of each row on this rank.
        vocabulary: u64,
        /// Bytes that the profiling step holds for each of them at once.
        trial_bytes: u64,
    },
}

/// One group of layers that share KV block tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvGroup {
    /// Layers of the group.
    pub layers: u32,
    /// Tokens of one block.
    pub tokens_per_block: Tokens,
    /// Bytes of one block on one rank, over all layers of the group.
    pub bytes_per_block: BytesPerRank,
    /// What its layers see of the tokens before.
    pub sees: KvSpan,
}

/// What the layers of a KV group see of the tokens before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvSpan {
    /// All of them.
    All,
    /// So many, the current one included.
    Window(u32),
    /// Those of their own chunk of the context, which has so many.
    Chunk(u32),
    /// A state that stands for all of them.
    State,
}

/// Captured graphs: which launches replay one, and to what size they are padded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GraphPolicy {
    /// Token counts with a graph of the whole pass, ascending.
    pub full: Vec<u32>,
    /// Token counts with a graph of everything between attention calls, ascending.
    pub piecewise: Vec<u32>,
    /// Pieces that one piecewise pass replays.
    pub pieces: u32,
    /// Kernels that one eager pass launches.
    pub eager_launches: u32,
}

/// Work of the host around each step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostPlan {
    /// Whether the host prepares a step while another runs.
    pub overlapped: bool,
    /// Processes that exchange every step's messages with the scheduler: 0 where the scheduler shares the worker's process.
    pub workers: u32,
}

/// What lies between engine and client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontEndPlan {
    /// Tokens sent in one chunk after the first; 1 sends each as it comes.
    pub stream_interval: u32,
    /// Processes that share the front end's work.
    pub processes: u32,
    /// Whether prompts arrive as text and must be tokenised.
    pub tokenises: bool,
    /// Whether tokens are turned into text.
    pub detokenises: bool,
}

/// A weight tensor resident on each rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResidentTensor {
    /// The tensor's name, layers merged.
    pub name: String,
    /// Copies of it, one per layer that has it.
    pub count: u32,
    /// Bytes of one copy on one rank.
    pub bytes: BytesPerRank,
}

/// A buffer or workspace an engine allocates for its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    /// What it is for.
    pub name: String,
    /// Its size on one rank.
    pub bytes: BytesPerRank,
}
