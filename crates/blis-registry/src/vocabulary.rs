//! The closed lists a coefficient file is written in: what is priced, by which form, from which inputs, in which unit.
//!
//! Adding a name here is one row; the form that reads it lives in the cost model. Left out: kernel libraries and variants, which
//! are free text because the engines that name them are not known here.

use std::fmt;

use blis_contracts::plan::Primitive;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Defines an enum whose variants have one name each, used in documents, messages and reports alike.
macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum $name {
            $($(#[$item_doc])* #[serde(rename = $text)] $item,)+
        }

        impl $name {
            /// Every value, in the order documents list them.
            pub const ALL: &'static [Self] = &[$(Self::$item),+];

            /// The name documents and reports use.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$item => $text,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

vocabulary!(
    /// What a coefficient prices: a primitive of a plan, a way to launch, work of the host, or a piece of memory.
    Subject {
        /// A dense matrix multiplication.
        Gemm = "gemm",
        /// Attention of requests with several new tokens.
        AttentionPrefill = "attention.prefill",
        /// Attention of requests with one new token.
        AttentionDecode = "attention.decode",
        /// Several equal matrix multiplications in one call.
        BatchedGemm = "gemm.batched",
        /// Latent attention of requests with several new tokens.
        LatentPrefill = "latent.prefill",
        /// Latent attention of requests with one new token.
        LatentDecode = "latent.decode",
        /// Attention of requests with several new tokens to listed entries.
        SparsePrefill = "attention.sparse_prefill",
        /// Attention of requests with one new token to listed entries.
        SparseDecode = "attention.sparse_decode",
        /// Scoring and selecting entries for requests with several new tokens.
        SelectionPrefill = "selection.prefill",
        /// Scoring and selecting entries for requests with one new token.
        SelectionDecode = "selection.decode",
        /// A convolution over the last few tokens.
        Convolution = "convolution",
        /// A recurrence over one state per head, for requests with several new tokens.
        RecurrentPrefill = "recurrent.prefill",
        /// The same for requests with one new token.
        RecurrentDecode = "recurrent.decode",
        /// A scan over chunks of prompts, whose states are passed from chunk to chunk.
        RecurrentScan = "recurrent.scan",
        /// The experts of a mixture.
        MoeExperts = "moe.experts",
        /// Weights that a second stream reads beside the experts.
        Beside = "moe.beside",
        /// A sum left on every rank of a group.
        AllReduce = "collective.all_reduce",
        /// A concatenation left on every rank of a group.
        AllGather = "collective.all_gather",
        /// A sum of which every rank of a group keeps its own rows.
        ReduceScatter = "collective.reduce_scatter",
        /// Tokens sent to the ranks of a group that hold their experts, or what these yield sent back.
        AllToAll = "collective.all_to_all",
        /// Rows handed from one rank to another.
        Send = "collective.send",
        /// A norm over rows.
        Norm = "norm",
        /// An elementwise activation.
        Activation = "activation",
        /// Rotary position embedding.
        Rope = "rope",
        /// Token embedding look-up.
        Embedding = "embedding",
        /// Turning logits into tokens.
        Sampling = "sampling",
        /// Launching one graph of a whole pass.
        GraphFull = "graph.full",
        /// Replaying the pieces between attention calls.
        GraphPiecewise = "graph.piecewise",
        /// Launching kernel by kernel.
        GraphEager = "graph.eager",
        /// From the end of one kernel of a pass to the start of the next, beyond what timing a kernel alone shows.
        GraphNode = "graph.node",
        /// The same to a kernel that may begin while the one before it drains.
        GraphDependent = "graph.dependent",
        /// Forming a batch.
        HostSchedule = "host.schedule",
        /// Preparing a batch's inputs on the worker.
        HostPrepare = "host.prepare",
        /// Reading tokens back and updating requests.
        HostUpdate = "host.update",
        /// Taking a request in: parsing, validation, hand-over.
        HostAccept = "host.accept",
        /// Turning a prompt's text into tokens, beside the front end's other work.
        HostTokenise = "host.tokenise",
        /// Turning an engine's output into what clients read.
        HostFrontend = "host.frontend",
        /// Memory of the runtime's context.
        MemoryContext = "memory.context",
        /// Memory of a group's communicators.
        MemoryCommunicator = "memory.communicator",
        /// Memory of captured graphs.
        MemoryGraphs = "memory.graphs",
        /// Memory of activations beyond the largest live tensors.
        MemoryActivationOverhead = "memory.activation_overhead",
    }
);

vocabulary!(
    /// The families a chip's coefficients are filed under: one file each.
    Family {
        /// Dense matrix multiplications.
        Gemm = "gemm",
        /// Attention over several new tokens.
        AttentionPrefill = "attention_prefill",
        /// Attention over one new token.
        AttentionDecode = "attention_decode",
        /// Latent attention and the batched products around it.
        Latent = "latent",
        /// Attention to listed entries, and selecting them.
        Gathered = "gathered",
        /// Layers that keep a state.
        Recurrent = "recurrent",
        /// Experts.
        Moe = "moe",
        /// Collectives.
        Collective = "collective",
        /// Norms, activations, position embedding, look-up.
        Elementwise = "elementwise",
        /// Sampling.
        Sampling = "sampling",
        /// Launching.
        Launch = "launch",
        /// Host work.
        Host = "host",
        /// Memory.
        Memory = "memory",
    }
);

vocabulary!(
    /// A pricing form. What each computes is written where it is computed, in the cost model.
    FormName {
        /// A matrix multiplication.
        Matmul = "matmul",
        /// Attention with one new token per request.
        AttentionDecode = "attention_decode",
        /// Attention with several new tokens per request.
        AttentionPrefill = "attention_prefill",
        /// Latent attention with one new token per request.
        LatentDecode = "latent_decode",
        /// Attention to, or scoring of, entries gathered by a list.
        Gathered = "gathered",
        /// A recurrence over prompts.
        Recurrence = "recurrence",
        /// A scan over chunks of prompts.
        Scan = "scan",
        /// The experts of one layer.
        Moe = "moe",
        /// A collective by algorithm range.
        Collective = "collective",
        /// A collective that leaves its domain of links.
        Network = "network",
        /// Tokens exchanged by the ranks of a group.
        Exchange = "exchange",
        /// A kernel that only reads and writes.
        Stream = "stream",
        /// Passes over logits.
        Sampling = "sampling",
        /// A base and what each unit adds.
        PerUnit = "per_unit",
        /// Memory: a base and what each unit adds.
        Stored = "stored",
    }
);

vocabulary!(
    /// A number a form reads besides its coefficients. Ranges and curves are stated over these.
    Input {
        /// Rows of a matrix multiplication.
        Rows = "rows",
        /// Output columns on one rank.
        Columns = "columns",
        /// Inner dimension on one rank.
        Depth = "depth",
        /// Stored bytes of the weights.
        WeightBytes = "weight_bytes",
        /// Bytes moved for each activation element read.
        InputBytes = "input_bytes",
        /// Requests, or sampled rows.
        Requests = "requests",
        /// Tokens all requests of a decode call attend to.
        Context = "context",
        /// `context` for each request.
        MeanContext = "mean_context",
        /// Key heads on one rank.
        KvHeads = "kv_heads",
        /// Query heads on one rank.
        QueryHeads = "query_heads",
        /// Elements of one head.
        HeadDim = "head_dim",
        /// Elements of a value head that differ in number from those of a key head.
        ValueDim = "value_dim",
        /// Stored bytes of one key or value element.
        ElementBytes = "element_bytes",
        /// 1 where a window cuts what any request sees, else 0.
        Windowed = "windowed",
        /// New tokens of one prefill row.
        New = "new",
        /// Cached tokens of one prefill row.
        Cached = "cached",
        /// Tokens a query sees; 0 for all.
        Window = "window",
        /// Tokens that attend or score.
        Queries = "queries",
        /// Entries they attend to, or score, in all.
        Entries = "entries",
        /// Bytes read of one entry.
        EntryBytes = "entry_bytes",
        /// Operations on one entry, over all heads.
        EntryOperations = "entry_operations",
        /// Pairs of scores of rows that rank every pair.
        Comparisons = "comparisons",
        /// States of a row on one rank, counted in states of 128 x 128 elements.
        States = "states",
        /// Tokens.
        Tokens = "tokens",
        /// (token, expert) pairs on one rank.
        Pairs = "pairs",
        /// Distinct experts that any token picks, on one rank.
        Hit = "hit",
        /// Experts resident on one rank.
        Experts = "experts",
        /// `pairs` for each of `hit`.
        RowsPerExpert = "rows_per_expert",
        /// Stored bytes of one expert on one rank.
        ExpertBytes = "expert_bytes",
        /// Operations of one (token, expert) pair on one rank.
        PairOperations = "pair_operations",
        /// Elements of the row an expert reads and writes for a token.
        Width = "width",
        /// Bytes of a collective on one rank (those it sends, of an exchange of tokens), or of a kernel that only reads and writes, or of a scan.
        Bytes = "bytes",
        /// Crossings of the network, one after the other, of a collective.
        Hops = "hops",
        /// Bytes of a collective that one port of the network carries.
        PortBytes = "port_bytes",
        /// The rate at which a port of the network moves payload, in bytes per microsecond.
        NetworkBandwidth = "network_bandwidth",
        /// Logits of one row on one rank.
        Vocabulary = "vocabulary",
        /// Operations: kernels, graph pieces, messages or requests taken in, by subject.
        Operations = "operations",
        /// Kernels in captured graphs, over all of them.
        GraphNodes = "graph_nodes",
        /// Ranks of a group.
        Ranks = "ranks",
        /// The chip's memory bandwidth, in bytes per microsecond.
        Bandwidth = "bandwidth",
        /// The chip's peak rate for the call's formats, in operations per microsecond.
        Peak = "peak",
    }
);

vocabulary!(
    /// How far apart the ranks of a group lie.
    Tier {
        /// In one domain of links.
        Domain = "domain",
        /// In several, with a network between them.
        Network = "network",
    }
);

vocabulary!(
    /// The unit of a coefficient.
    Unit {
        /// Microseconds.
        Microseconds = "us",
        /// Dimensionless.
        Ratio = "ratio",
        /// Bytes.
        Bytes = "bytes",
        /// Rows of a matrix.
        Rows = "rows",
    }
);

vocabulary!(
    /// Whose clock a measurement was read from.
    Clock {
        /// The accelerator's work alone.
        Device = "device",
        /// The accelerator's work and the host's issue of it.
        DeviceAndHost = "device_and_host",
        /// The host's work alone.
        Host = "host",
        /// No clock: the coefficient is a size.
        None = "none",
    }
);

vocabulary!(
    /// How the measured work was launched.
    MeasuredLaunch {
        /// From a captured graph.
        Graph = "graph",
        /// Kernel by kernel.
        Eager = "eager",
    }
);

impl Tier {
    /// Whether it is the nearest, which entries need not state.
    pub const fn is_nearest(&self) -> bool {
        matches!(self, Self::Domain)
    }

    /// The nearest.
    pub const fn nearest() -> Self {
        Self::Domain
    }
}

impl Input {
    /// How many inputs there are.
    pub const COUNT: usize = Self::ALL.len();
}

impl Subject {
    /// The forms that may price it.
    pub const fn forms(self) -> &'static [FormName] {
        match self {
            Self::Gemm | Self::BatchedGemm => &[FormName::Matmul],
            Self::AttentionPrefill | Self::LatentPrefill => &[FormName::AttentionPrefill],
            Self::AttentionDecode => &[FormName::AttentionDecode],
            Self::LatentDecode => &[FormName::LatentDecode],
            Self::SparsePrefill | Self::SparseDecode | Self::SelectionPrefill | Self::SelectionDecode => &[FormName::Gathered],
            Self::RecurrentPrefill => &[FormName::Recurrence],
            Self::RecurrentScan => &[FormName::Scan],
            Self::MoeExperts => &[FormName::Moe],
            Self::AllReduce | Self::AllGather | Self::ReduceScatter | Self::Send => &[FormName::Collective, FormName::Network],
            Self::AllToAll => &[FormName::Exchange],
            Self::Beside | Self::Convolution | Self::RecurrentDecode | Self::Norm | Self::Activation | Self::Rope | Self::Embedding => {
                &[FormName::Stream]
            }
            Self::Sampling => &[FormName::Sampling],
            Self::GraphFull
            | Self::GraphPiecewise
            | Self::GraphEager
            | Self::GraphNode
            | Self::GraphDependent
            | Self::HostSchedule
            | Self::HostPrepare
            | Self::HostUpdate
            | Self::HostAccept
            | Self::HostTokenise
            | Self::HostFrontend => &[FormName::PerUnit],
            Self::MemoryContext | Self::MemoryCommunicator | Self::MemoryGraphs | Self::MemoryActivationOverhead => &[FormName::Stored],
        }
    }

    /// The family it is filed under.
    pub const fn family(self) -> Family {
        match self {
            Self::Gemm => Family::Gemm,
            Self::AttentionPrefill => Family::AttentionPrefill,
            Self::AttentionDecode => Family::AttentionDecode,
            Self::BatchedGemm | Self::LatentPrefill | Self::LatentDecode | Self::Beside => Family::Latent,
            Self::SparsePrefill | Self::SparseDecode | Self::SelectionPrefill | Self::SelectionDecode => Family::Gathered,
            Self::Convolution | Self::RecurrentPrefill | Self::RecurrentDecode | Self::RecurrentScan => Family::Recurrent,
            Self::MoeExperts => Family::Moe,
            Self::AllReduce | Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::Send => Family::Collective,
            Self::Norm | Self::Activation | Self::Rope | Self::Embedding => Family::Elementwise,
            Self::Sampling => Family::Sampling,
            Self::GraphFull | Self::GraphPiecewise | Self::GraphEager | Self::GraphNode | Self::GraphDependent => Family::Launch,
            Self::HostSchedule | Self::HostPrepare | Self::HostUpdate | Self::HostAccept | Self::HostTokenise | Self::HostFrontend => {
                Family::Host
            }
            Self::MemoryContext | Self::MemoryCommunicator | Self::MemoryGraphs | Self::MemoryActivationOverhead => Family::Memory,
        }
    }
}

impl From<Primitive> for Subject {
    fn from(primitive: Primitive) -> Self {
        match primitive {
            Primitive::Gemm => Self::Gemm,
            Primitive::AttentionPrefill => Self::AttentionPrefill,
            Primitive::AttentionDecode => Self::AttentionDecode,
            Primitive::BatchedGemm => Self::BatchedGemm,
            Primitive::LatentPrefill => Self::LatentPrefill,
            Primitive::LatentDecode => Self::LatentDecode,
            Primitive::SparsePrefill => Self::SparsePrefill,
            Primitive::SparseDecode => Self::SparseDecode,
            Primitive::SelectionPrefill => Self::SelectionPrefill,
            Primitive::SelectionDecode => Self::SelectionDecode,
            Primitive::Convolution => Self::Convolution,
            Primitive::RecurrentPrefill => Self::RecurrentPrefill,
            Primitive::RecurrentDecode => Self::RecurrentDecode,
            Primitive::RecurrentScan => Self::RecurrentScan,
            Primitive::MoeExperts => Self::MoeExperts,
            Primitive::Beside => Self::Beside,
            Primitive::AllReduce => Self::AllReduce,
            Primitive::AllGather => Self::AllGather,
            Primitive::ReduceScatter => Self::ReduceScatter,
            Primitive::AllToAll => Self::AllToAll,
            Primitive::Send => Self::Send,
            Primitive::Norm => Self::Norm,
            Primitive::Activation => Self::Activation,
            Primitive::Rope => Self::Rope,
            Primitive::Embedding => Self::Embedding,
            Primitive::Sampling => Self::Sampling,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primitive_keeps_its_name_as_a_subject() {
        for primitive in Primitive::ALL {
            assert_eq!(Subject::from(primitive).as_str(), primitive.as_str());
        }
    }

    #[test]
    fn every_name_round_trips_through_its_document_form() {
        for &subject in Subject::ALL {
            assert_eq!(serde_json::to_value(subject).unwrap(), subject.as_str());
        }
        for (index, &input) in Input::ALL.iter().enumerate() {
            assert_eq!(serde_json::to_value(input).unwrap(), input.as_str());
            assert_eq!(input as usize, index);
        }
    }
}
