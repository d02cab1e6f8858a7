//! Where a model is lowered: the model, the configuration, the chip, and the widths that follow from them.

use blis_contracts::chip::Chip;
use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::model::{Attention, FeedForward, GroupedQueryAttention, MixtureOfExperts, ModelGraph};
use blis_contracts::plan::{Layout, RowSet};

use super::parts::TokenParts;
use super::{LoweringError, compressed, exchange, gemma4, selected};
use crate::config::{CompilationMode, Dtype, KvCacheDtype, Resolved};

/// The architecture whose experts have a clamped, interleaved activation and a class of their own upstream.
const GPT_OSS: &str = "GptOssForCausalLM";

/// The architecture whose router upstream keeps in 32 bits. upstream: vllm `model_executor/models/minimax_m2.py::MiniMaxM2MoE`
const MINIMAX_M2: &str = "MiniMaxM2ForCausalLM";

/// The architecture whose router multiplies in 16 bits and writes 32.
const GLM_DSA: &str = "GlmMoeDsaForCausalLM";

/// The architecture whose router writes 32 bits, and is kept in them where no kernel multiplies 16.
const NEMOTRON_H: &str = "NemotronHForCausalLM";

/// The architectures with norms of queries and keys in front of the rotation, which one kernel may do together.
/// upstream: vllm `model_executor/models/qwen3.py::Qwen3Attention`, `model_executor/models/qwen3_moe.py::Qwen3MoeAttention`
const QWEN3: [&str; 2] = ["Qwen3ForCausalLM", "Qwen3MoeForCausalLM"];

/// The architectures whose routers no quantisation reaches, and whose ranks share an encoder's projector.
/// upstream: vllm `model_executor/models/qwen3_next.py::Qwen3NextSparseMoeBlock`, `model_executor/models/qwen3_vl.py::Qwen3_VisionPatchMerger`
const QWEN3_5: [&str; 2] = ["Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"];

/// The model whose layers may have an indexer, as configurations name it. upstream: vllm `models/minimax_m3/nvidia/model.py`
const MINIMAX_M3: [&str; 2] = ["MiniMaxM3ForCausalLM", "MiniMaxM3SparseForConditionalGeneration"];

/// The model whose routers weigh what experts read, and whose queries without positions are scaled.
/// upstream: vllm `model_executor/models/llama4.py::Llama4MoE`, `Llama4Attention`
const LLAMA4: [&str; 2] = ["Llama4ForCausalLM", "Llama4ForConditionalGeneration"];

/// The model with a norm behind every part too, and experts beside the network of every layer.
/// upstream: vllm `model_executor/models/gemma4.py::Gemma4DecoderLayer`
const GEMMA4: &str = "Gemma4ForConditionalGeneration";

/// Vocabulary rows are padded to a multiple of this. upstream: vllm `model_executor/layers/vocab_parallel_embedding.py::pad_vocab_size`
const VOCABULARY_MULTIPLE: u64 = 64;

/// What every table looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) model: &'a ModelGraph,
    pub(super) resolved: &'a Resolved,
    pub(super) chip: &'a Chip,
    /// Compute capability, major and minor.
    pub(super) capability: (u32, u32),
    /// Tensor-parallel ranks.
    pub(super) ranks: u32,
    /// Ranks that share the experts, each whole on one of them; 1 where every rank holds a part of every expert.
    pub(super) expert_ranks: u32,
    /// Engine cores in lockstep, whose tokens meet at the experts; 1 where there are none.
    pub(super) cores: u32,
    /// Consecutive ranks that lie in one domain of links.
    pub(super) domain: u32,
    /// Stages of the pipeline.
    pub(super) stages: u32,
}

impl<'a> Site<'a> {
    /// Checks that the ranks can share every width.
    pub(super) fn new(model: &'a ModelGraph, resolved: &'a Resolved, chip: &'a Chip) -> Result<Self, LoweringError> {
        let ranks = resolved.tensor_parallel_size;
        let site = Self {
            model,
            resolved,
            chip,
            capability: chip.compute_capability.value,
            ranks,
            expert_ranks: resolved.expert_parallel_size,
            cores: resolved.data_parallel.lockstep_size(),
            stages: resolved.scheduler.pipeline_stages,
            domain: resolved.placement.ranks_per_node * (chip.gpus_per_domain.value / chip.gpus_per_node.value).max(1),
        };
        site.check_width("a padded vocabulary", site.padded_vocabulary())?;
        for block in model.blocks.values() {
            let parts = if matches!(block.feed_forward, FeedForward::Absent) { 1 } else { 2 };
            let norms = if site.is_gemma4() { gemma4::norms(block) } else { parts };
            if block.norms != norms {
                let reason = format!("has {} norms in a layer of {parts} parts", block.norms);
                return Err(LoweringError::NotModelled { model: model.name.clone(), reason, instead: "" });
            }
            match &block.attention {
                Attention::GroupedQuery(attention) => {
                    site.check_width("a number of query heads", attention.query_heads.into())?;
                    if attention.qk_norm_spans_heads && site.crosses_nodes() {
                        let reason = "has norms over all heads, whose ranks exchange sums within one node".to_owned();
                        let instead = "lower --tensor-parallel-size to the chips of one node";
                        return Err(LoweringError::NotModelled { model: model.name.clone(), reason, instead });
                    }
                    if !attention.kv_heads.is_multiple_of(ranks) && !ranks.is_multiple_of(attention.kv_heads) {
                        let size = attention.kv_heads.into();
                        return Err(LoweringError::Indivisible { what: "a number of key heads", size, ranks, cores: 1 });
                    }
                }
                Attention::Latent(attention) => site.check_width("a number of query heads", attention.query_heads.into())?,
                // `compressed` checks the first, the configuration has checked the others.
                Attention::Compressed(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => {}
            }
            match &block.feed_forward {
                FeedForward::Dense(_) if TokenParts::of(&site).rows(block) == RowSet::Split => {}
                FeedForward::Dense(dense) => site.check_width("an intermediate size", dense.intermediate_size)?,
                FeedForward::MixtureOfExperts(_) if site.expert_ranks > 1 => {}
                FeedForward::MixtureOfExperts(moe) if !moe.intermediate_size.is_multiple_of(site.expert_sharing()) => {
                    let (size, cores) = (moe.intermediate_size, site.cores);
                    return Err(LoweringError::Indivisible { what: "an expert's intermediate size", size, ranks, cores });
                }
                FeedForward::MixtureOfExperts(_) | FeedForward::Absent => {}
            }
        }
        if compressed::applies(&site) {
            compressed::check(&site)?;
        }
        if site.is_gemma4() {
            gemma4::check(&site)?;
        }
        exchange::check(&site)?;
        Ok(site)
    }

    /// The nodes that the ranks which share a matrix lie on.
    pub(super) const fn nodes(&self) -> u32 {
        self.ranks.div_ceil(self.resolved.placement.ranks_per_node)
    }

    /// Whether the ranks that share a matrix lie on several nodes.
    pub(super) const fn crosses_nodes(&self) -> bool {
        self.nodes() > 1
    }

    /// Whether the ranks that share a matrix lie in several domains of links.
    pub(super) const fn crosses_domains(&self) -> bool {
        self.ranks > self.domain
    }

    /// The plan's layout. A domain is stated only where some group does not fit into one.
    pub(super) fn layout(&self) -> Layout {
        let widest = self.ranks * self.cores.max(self.stages);
        Layout {
            tensor: self.ranks,
            pipeline: self.stages,
            data: self.resolved.data_parallel.size,
            expert: self.expert_ranks,
            domain: if widest > self.domain { self.domain } else { 0 },
        }
    }

    /// Whether accelerators reach each other by links of their own, faster than the one to the host.
    pub(super) fn has_fast_links(&self) -> bool {
        self.chip.link_bandwidth.value > self.chip.host_bandwidth.value
    }

    pub(super) fn check_width(&self, what: &'static str, size: u64) -> Result<(), LoweringError> {
        let ranks = self.ranks;
        if size.is_multiple_of(ranks.into()) { Ok(()) } else { Err(LoweringError::Indivisible { what, size, ranks, cores: 1 }) }
    }

    /// Whether the chip belongs to a family of compute capabilities (upstream's `is_device_capability_family`).
    pub(super) const fn family(&self, major: u32) -> bool {
        self.capability.0 == major
    }

    pub(super) fn is_gpt_oss(&self) -> bool {
        self.model.architecture == GPT_OSS
    }

    /// Whether the model is `MiniMax` M3, whose code fuses norms of its own accord.
    pub(super) fn is_minimax_m3(&self) -> bool {
        MINIMAX_M3.contains(&self.model.architecture.as_str())
    }

    pub(super) fn is_gemma4(&self) -> bool {
        self.model.architecture == GEMMA4
    }

    pub(super) fn is_llama4(&self) -> bool {
        LLAMA4.contains(&self.model.architecture.as_str())
    }

    /// Whether the model's own code runs a sum and the norm behind it as one kernel, since no compiler does.
    pub(super) fn fuses_sums_itself(&self) -> bool {
        self.is_minimax_m3() || selected::applies(self)
    }

    /// How a router is kept and multiplied, whatever the checkpoint stores it as.
    pub(super) fn router_format(&self, moe: &MixtureOfExperts) -> MatmulFormat {
        let wide = MatmulFormat { weights: FormatName::Fp32, activations: FormatName::Fp32 };
        // upstream: vllm `model_executor/layers/fused_moe/router/gate_linear.py::GateLinear.__init__`
        let kept_wide = self.model.architecture == NEMOTRON_H && !self.multiplies_few_rows();
        if self.model.architecture == MINIMAX_M2 || self.is_minimax_m3() || kept_wide {
            wide
        } else if self.is_qwen3_5() {
            MatmulFormat { weights: self.dtype(), activations: self.dtype() }
        } else {
            moe.router_format
        }
    }

    pub(super) fn is_qwen3(&self) -> bool {
        QWEN3.contains(&self.model.architecture.as_str())
    }

    fn is_qwen3_5(&self) -> bool {
        QWEN3_5.contains(&self.model.architecture.as_str())
    }

    /// Whether ranks share the layers of an encoder's projector.
    pub(super) fn shares_projector(&self) -> bool {
        self.is_minimax_m3() || self.is_qwen3_5() || self.is_llama4()
    }

    /// What a router writes.
    /// upstream: vllm `model_executor/models/minimax_m2.py::MiniMaxM2MoE`, `model_executor/models/deepseek_v2.py::_get_moe_router_dtype`
    pub(super) fn router_output(&self) -> FormatName {
        let wide = [MINIMAX_M2, GLM_DSA, NEMOTRON_H, GEMMA4].contains(&self.model.architecture.as_str());
        if wide || self.is_minimax_m3() { FormatName::Fp32 } else { self.dtype() }
    }

    /// Whether upstream has kernels of its own for few rows of a router.
    pub(super) fn multiplies_few_rows(&self) -> bool {
        self.capability == (9, 0) || self.family(10)
    }

    /// Experts of a layer on the rank that holds the most.
    /// upstream: vllm `model_executor/layers/fused_moe/expert_map_manager.py::determine_expert_map`
    pub(super) fn local_experts(&self, moe: &MixtureOfExperts) -> u32 {
        moe.experts.div_ceil(self.expert_ranks)
    }

    /// Width of an expert on one rank: experts are whole where ranks share them.
    pub(super) fn expert_width(&self, moe: &MixtureOfExperts) -> u64 {
        if self.expert_ranks > 1 { moe.intermediate_size } else { moe.intermediate_size / self.expert_sharing() }
    }

    /// Ranks that share each expert where none is whole: those of every core in lockstep.
    fn expert_sharing(&self) -> u64 {
        u64::from(self.ranks) * u64::from(self.cores)
    }

    /// Whether steps run through the compiler, which then writes the kernels that only move data.
    pub(super) fn compiled(&self) -> bool {
        self.resolved.compilation.mode == CompilationMode::VllmCompile
    }

    /// Whether a custom operation runs instead of the compiler's own code.
    pub(super) fn custom_op(&self, name: &str) -> bool {
        !self.compiled() || self.resolved.compilation.custom_op_enabled(name)
    }

    /// The element type of activations.
    pub(super) fn dtype(&self) -> FormatName {
        match self.resolved.dtype {
            Dtype::Bfloat16 => FormatName::Bf16,
            Dtype::Float16 => FormatName::Fp16,
        }
    }

    /// Bytes of one element of an activation.
    pub(super) fn element_bytes(&self) -> u64 {
        self.dtype().stored_bytes(1, 1)
    }

    /// How keys and values are stored.
    pub(super) fn kv_format(&self) -> FormatName {
        match self.resolved.cache.kv_cache_dtype {
            KvCacheDtype::Auto => self.dtype(),
            KvCacheDtype::Bfloat16 => FormatName::Bf16,
            KvCacheDtype::Fp8 | KvCacheDtype::Fp8E4m3 | KvCacheDtype::Fp8DsMla => FormatName::Fp8,
        }
    }

    /// A width shared evenly by the ranks.
    pub(super) fn share(&self, width: u64) -> u64 {
        width / u64::from(self.ranks)
    }

    /// The width on one rank of what `rows` meet: all of it where they are a part of the tokens.
    pub(super) fn width_over(&self, rows: RowSet, width: u64) -> u64 {
        if rows == RowSet::Split { width } else { self.share(width) }
    }

    pub(super) fn padded_vocabulary(&self) -> u64 {
        self.model.vocab_size.next_multiple_of(VOCABULARY_MULTIPLE)
    }

    /// Query heads of one rank.
    pub(super) fn query_heads(&self, attention: &GroupedQueryAttention) -> u32 {
        attention.query_heads / self.ranks
    }

    /// Key heads of one rank: at least one, so that they are repeated where there are more ranks.
    /// upstream: vllm `model_executor/layers/linear.py::QKVParallelLinear`
    pub(super) fn kv_heads(&self, attention: &GroupedQueryAttention) -> u32 {
        (attention.kv_heads / self.ranks).max(1)
    }

    /// Elements of one token's queries and keys on one rank.
    pub(super) fn query_and_key_width(&self, attention: &GroupedQueryAttention) -> u64 {
        u64::from(self.query_heads(attention) + self.kv_heads(attention)) * u64::from(attention.head_dim)
    }

    /// Columns of the fused query, key and value projection on one rank. An indexer's queries are shared and repeated as key heads
    /// are, and its one key is on every rank. upstream: vllm `model_executor/layers/linear.py::MinimaxM3QKVParallelLinearWithIndexer`
    pub(super) fn qkv_columns(&self, attention: &GroupedQueryAttention) -> u64 {
        let kv_heads = self.kv_heads(attention);
        let index = attention.indexer.as_ref().map_or(0, |indexer| u64::from(kv_heads + 1) * u64::from(indexer.head_dim));
        // A gate over the output is projected with the queries.
        let queries = self.query_heads(attention) * if attention.output_gate { 2 } else { 1 };
        u64::from(queries + 2 * kv_heads) * u64::from(attention.head_dim) + index
    }

    /// Inner dimension of the output projection on one rank.
    pub(super) fn output_depth(&self, attention: &GroupedQueryAttention) -> u64 {
        u64::from(self.query_heads(attention)) * u64::from(attention.head_dim)
    }
}
