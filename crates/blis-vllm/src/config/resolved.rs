//! The resolved configuration: only the settings that change a decision or a price, each as upstream would have it after
//! start-up's own rules. Lowering, scheduler and KV-cache sizing read this and nothing else of a launch line.
//!
//! Where each value came from is kept beside it, in [`Resolved::explained`]. Left out: settings that are inert or refused.

use std::collections::BTreeMap;
use std::fmt;

use blis_contracts::format::FormatName;

use super::choices::{
    All2AllBackend, AttentionBackend, CompilationMode, CudagraphMode, Dtype, FlashinferAllreduce, GraphSupport, HashAlgo, IndexerKvDtype,
    KvCacheDtype, LinearBackend, MambaCacheMode, MatmulPrecision, MlaPrefillBackend, MoeBackend, SchedulingPolicy,
};
use super::former_rules::ReleaseRules;
use super::setting::Setting;

/// A launch line, resolved against one model and one chip.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The checkpoint as the line names it.
    pub model: String,
    /// Ranks that share each matrix.
    pub tensor_parallel_size: u32,
    /// Engine cores of the endpoint, each with its own requests and cache.
    pub data_parallel: DataParallelSettings,
    /// Where the ranks of all of them lie.
    pub placement: Placement,
    /// Ranks that share the experts of a layer, each expert whole on one of them; 1 where every rank holds a part of every expert.
    pub expert_parallel_size: u32,
    /// Whether the encoders of a model with other inputs than text are left out.
    pub language_model_only: bool,
    /// Processes that serve HTTP, tokenise and detokenise.
    pub api_server_count: u32,
    /// Element type of activations and unquantised tensors.
    pub dtype: Dtype,
    /// The longest request and the KV cache.
    pub cache: CacheSettings,
    /// The scheduler's budgets and rules.
    pub scheduler: SchedulerSettings,
    /// Compilation and CUDA graphs.
    pub compilation: CompilationSettings,
    /// Attention.
    pub attention: AttentionSettings,
    /// Whether upstream's second model runner, its default, runs steps.
    pub model_runner_v2: bool,
    /// Choices among the other kernels and collectives.
    pub kernels: KernelSettings,
    /// What the release that runs does otherwise than the modelled one where no setting says so.
    pub rules: ReleaseRules,
    /// Where every value came from, in a fixed order.
    pub explained: Vec<Explained>,
    /// Spellings of an earlier release that were translated or dropped, and flags that upstream would warn about.
    pub notes: Vec<String>,
}

/// The engine cores of one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataParallelSettings {
    /// How many there are.
    pub size: u32,
    /// Whether they run in lockstep, because they share the experts of a mixture. Else each runs on its own.
    pub lockstep: bool,
    /// How tokens reach their experts where ranks of several cores hold those whole.
    pub exchange: All2AllBackend,
    /// Steps between two agreements on whether any core still has requests.
    pub sync_interval: u64,
    /// Steps between two at which cores in lockstep begin or continue prompts; 1 for every step.
    pub prefill_schedule_interval: u64,
}

/// How ranks lie on nodes: consecutive ones together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Nodes that hold any.
    pub nodes: u32,
    /// Ranks of one node.
    pub ranks_per_node: u32,
}

impl DataParallelSettings {
    /// What carries tokens where so many ranks hold experts whole: the backend that is stated if they are of several cores, else all are
    /// gathered, if any is. upstream: vllm `model_executor/layers/fused_moe/config.py::FusedMoEParallelConfig.use_all2all_kernels`
    pub fn exchange_over(self, expert_ranks: u32) -> All2AllBackend {
        if self.lockstep_size() > 1 && expert_ranks > 1 { self.exchange } else { All2AllBackend::AllgatherReducescatter }
    }

    /// Cores that run in lockstep with each other.
    pub const fn lockstep_size(self) -> u32 {
        if self.lockstep { self.size } else { 1 }
    }
}

/// The longest request, KV-cache storage and prefix caching.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent switch of upstream's cache configuration")]
pub struct CacheSettings {
    /// Longest request in tokens, prompt and output together.
    pub max_model_len: u64,
    /// Whether start-up may lower [`Self::max_model_len`] to what fits (`--max-model-len auto`).
    pub max_model_len_fits_memory: bool,
    /// Tokens of one KV block.
    pub block_size: u32,
    /// Whether the line states the block size (upstream keeps a stated one whatever the backend prefers).
    pub block_size_stated: bool,
    /// How keys and values are stored.
    pub kv_cache_dtype: KvCacheDtype,
    /// Share of the device memory that the engine may use.
    pub gpu_memory_utilization: f64,
    /// Bytes of KV cache per rank; overrides the share where stated.
    pub kv_cache_memory_bytes: Option<u64>,
    /// Blocks of the KV pool; overrides the sizing where stated.
    pub num_gpu_blocks_override: Option<u64>,
    /// Whether the memory of captured graphs is estimated and kept free.
    pub estimate_cudagraph_memory: bool,
    /// Whether blocks are shared between requests with a common prefix.
    pub enable_prefix_caching: bool,
    /// Hash of prefix-cache keys.
    pub prefix_caching_hash_algo: HashAlgo,
    /// Tokens between kept checkpoints of sliding-window groups: 0 keeps semantic ones only, absent keeps all.
    pub prefix_cache_retention_interval: Option<u64>,
    /// Whether layers of different kinds share one kind of block.
    pub disable_hybrid_kv_cache_manager: bool,
    /// Layers that keep a state; absent where there are none.
    pub states: Option<StateSettings>,
}

/// How layers that keep a state instead of keys and values keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateSettings {
    /// Which states are cached.
    pub mode: MambaCacheMode,
    /// Tokens that one block of states stands for.
    pub block_size: u32,
    /// Bytes of one layer's state on one rank.
    pub state_bytes: u64,
    /// The same with the padding that makes its page as large as that of attention.
    pub page_bytes: u64,
    /// How the tokens that the convolution reaches are kept.
    pub conv_format: FormatName,
    /// How the states of the heads are kept.
    pub ssm_format: FormatName,
}

/// The scheduler's budgets and rules.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent switch of upstream's scheduler")]
pub struct SchedulerSettings {
    /// Tokens of one step.
    pub max_num_batched_tokens: u64,
    /// Tokens the scheduler may hand out in one step; the step's tokens where not stated.
    pub max_num_scheduled_tokens: u64,
    /// Requests of one step.
    pub max_num_seqs: u64,
    /// Requests admitted to the running set; the requests of one step where not stated.
    pub max_num_active_seqs: u64,
    /// Requests in flight beyond which the front end answers 503; no limit where absent.
    pub max_num_queued_reqs: Option<u64>,
    /// Prompt tokens waiting beyond which the front end answers 503; no limit where absent.
    pub max_num_queued_tokens: Option<u64>,
    /// Tokens of one chunk of a long prompt; 0 for no cap.
    pub long_prefill_token_threshold: u64,
    /// Whether that cap rises to a fair share of the step.
    pub long_prefill_token_threshold_adaptive: bool,
    /// The order in which requests wait.
    pub policy: SchedulingPolicy,
    /// Whether a prompt may be split over steps.
    pub enable_chunked_prefill: bool,
    /// Whether a request is admitted only when its whole prompt fits the free blocks.
    pub scheduler_reserve_full_isl: bool,
    /// Share of the pool kept free at admission.
    pub watermark: f64,
    /// Whether a step is scheduled before the last one's output is known.
    pub async_scheduling: bool,
    /// Stages that each step passes through, one after the other.
    pub pipeline_stages: u32,
    /// Batches in flight at once.
    pub max_concurrent_batches: u32,
    /// Tokens per chunk of a streamed reply.
    pub stream_interval: u64,
}

impl SchedulerSettings {
    /// Most tokens scheduled but not yet settled. upstream: vllm `config/vllm.py::VllmConfig.max_in_flight_tokens`.
    pub fn max_in_flight_tokens(&self) -> u64 {
        u64::from(self.max_concurrent_batches) * self.max_num_batched_tokens
    }
}

/// Compilation and CUDA graphs.
#[derive(Debug, Clone, PartialEq)]
pub struct CompilationSettings {
    /// Whether steps run compiled.
    pub mode: CompilationMode,
    /// Which batches replay a captured graph, after the attention backend's support was taken into account.
    pub cudagraph_mode: CudagraphMode,
    /// Token counts a graph is captured for, ascending. Upstream keeps them where a late rule turns graphs off after all, so
    /// [`Self::cudagraph_mode`] decides whether they matter.
    pub cudagraph_capture_sizes: Vec<u64>,
    /// The largest of them; 0 where there are none.
    pub max_cudagraph_capture_size: u64,
    /// Custom operations switched on or off, in upstream's notation, the base mode last where the line states none.
    pub custom_ops: Vec<String>,
    /// Whether the compiled graph is split at attention.
    pub splits_at_attention: bool,
    /// Fused kernels.
    pub passes: PassSettings,
}

impl CompilationSettings {
    /// Whether a custom operation replaces compiled code. upstream: vllm `config/compilation.py::CompilationConfig.is_custom_op_enabled`.
    pub fn custom_op_enabled(&self, op: &str) -> bool {
        custom_op_enabled(&self.custom_ops, op)
    }
}

/// As [`CompilationSettings::custom_op_enabled`], over a bare list.
pub(super) fn custom_op_enabled(custom_ops: &[String], op: &str) -> bool {
    let stated = |sign: char| custom_ops.iter().any(|entry| entry.strip_prefix(sign) == Some(op));
    if custom_ops.iter().any(|entry| entry == "all") { !stated('-') } else { stated('+') }
}

/// Which fusions the compiler applies.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent pass of upstream's compiler")]
pub struct PassSettings {
    /// Norm and quantisation.
    pub fuse_norm_quant: bool,
    /// Activation and quantisation.
    pub fuse_act_quant: bool,
    /// Attention and quantisation of its output.
    pub fuse_attn_quant: bool,
    /// All-reduce and the norm that follows it.
    pub fuse_allreduce_rms: bool,
    /// Query and key norms with rotary embedding.
    pub enable_qk_norm_rope_fusion: bool,
    /// Most tokens for which the fused all-reduce is used; absent where the layout has no fused kernel at all.
    pub allreduce_fusion_max_tokens: Option<u64>,
}

/// Attention.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionSettings {
    /// The backend of every attention layer.
    pub backend: AttentionBackend,
    /// The FlashAttention versions that backend would use, by elements of a head; heads that the chip has none for are missing.
    pub flash_attn_versions: BTreeMap<u32, u8>,
    /// What CUDA graphs the backend allows.
    pub graph_support: GraphSupport,
    /// Forces TensorRT-LLM's kernels inside FlashInfer on or off; absent for upstream's own choice.
    pub use_trtllm_attention: Option<bool>,
    /// How the vectors that select entries are stored.
    pub indexer_kv_dtype: IndexerKvDtype,
    /// Whether the backends ask for a KV cache in which the layers of a block lie side by side.
    pub packs_pages: bool,
    /// What prompts of latent attention run; absent where no layer has it.
    pub mla_prefill: Option<MlaPrefillBackend>,
    /// Whether prompts of latent attention run in 8 bits.
    pub mla_prefill_fp8: bool,
    /// Layers whose queries see the blocks an indexer picks; absent where there are none.
    pub block_sparse: Option<BlockSparseSettings>,
    /// Whether queries stay unquantised over an fp8 KV cache.
    pub disable_flashinfer_q_quantization: bool,
}

impl AttentionSettings {
    /// The FlashAttention version for heads of so many elements.
    pub fn flash_attn_version(&self, head_dim: u32) -> Option<u8> {
        self.flash_attn_versions.get(&head_dim).copied()
    }
}

/// Layers whose queries see the blocks an indexer picks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSparseSettings {
    /// How the indexer's keys are stored.
    pub indexer_kv_dtype: IndexerKvDtype,
    /// Whether prompts attend by Blackwell's own kernels, else by Triton's.
    pub msa: bool,
    /// Whether the indexer scores by Blackwell's own kernels, else by Triton's.
    pub msa_indexer: bool,
    /// Whether decodes of many requests run CUTLASS's kernel.
    pub cutlass_decode: bool,
}

/// Choices among the other kernels and collectives. Lowering turns them into kernel names.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent variable or flag of upstream")]
pub struct KernelSettings {
    /// Kernel of the experts.
    pub moe_backend: MoeBackend,
    /// Format activations are quantised to before 4-bit experts: `mxfp8`, or absent for upstream's choice.
    pub moe_activation_mxfp8: bool,
    /// Kernel of dense layers.
    pub linear_backend: LinearBackend,
    /// Whether FlashInfer's kernels are tuned at start-up.
    pub enable_flashinfer_autotune: bool,
    /// FlashInfer operations left untuned.
    pub flashinfer_autotune_skip_ops: Vec<String>,
    /// Whether vLLM's own all-reduce is off.
    pub disable_custom_all_reduce: bool,
    /// Which FlashInfer all-reduce the fused pass calls.
    pub flashinfer_allreduce_backend: FlashinferAllreduce,
    /// Whether symmetric-memory all-reduce may be used.
    pub allreduce_use_symm_mem: bool,
    /// Whether FlashInfer's all-reduce may be used outside the fused pass.
    pub allreduce_use_flashinfer: bool,
    /// Whether NCCL uses symmetric memory.
    pub use_nccl_symm_mem: bool,
    /// Whether `DeepGEMM` may be used.
    pub use_deep_gemm: bool,
    /// Whether `DeepGEMM` may be used for experts.
    pub moe_use_deep_gemm: bool,
    /// What of the line asks for `DeepGEMM`'s experts where they are of 8 bits: a variable that it states although it is on by default.
    pub asks_for_deep_gemm: Option<&'static str>,
    /// Whether FlashInfer may run block-scaled fp8 matrices.
    pub blockscale_fp8_gemm_flashinfer: bool,
    /// Kernel classes switched off by name.
    pub disabled_kernels: Vec<String>,
    /// Precision of 32-bit matrix products.
    pub float32_matmul_precision: MatmulPrecision,
    /// Bytes of FlashInfer's workspace, before the batch's own need.
    pub flashinfer_workspace_bytes: u64,
}

/// One resolved value with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The setting.
    pub setting: Setting,
    /// Its value as upstream writes it.
    pub value: String,
    /// Where the value came from.
    pub source: Source,
    /// The statement, translation or rule behind it.
    pub rule: String,
}

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The launch line or its environment states it.
    Stated,
    /// The line states a spelling of an earlier release that means it.
    FormerlySpelled,
    /// The default of an earlier release, which ran.
    FormerDefault,
    /// Upstream's literal default.
    UpstreamDefault,
    /// An upstream rule computed it from other settings, the model or the chip.
    Derived,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stated => "stated",
            Self::FormerlySpelled => "formerly spelled",
            Self::FormerDefault => "default of the release that ran",
            Self::UpstreamDefault => "upstream default",
            Self::Derived => "derived",
        })
    }
}
