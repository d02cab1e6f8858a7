//! One `check` over a launch line, a model and a chip; a new case is a line of a table.

mod block_sparse;
mod chunked;
mod errors;
mod former;
mod fuzz;
mod gemma4;
mod graphs;
mod inert;
mod lines;
mod nodes;
mod oracle;
mod reading;
mod resolution;
mod surface;
mod table;
mod units;

use blis_contracts::chip::{Chip, CitationKind, Cited};
use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::model::{
    Attention, DenseFeedForward, Derivation, FeedForward, GroupedQueryAttention, LayerBlock, MixtureOfExperts, ModelGraph, ParameterCount,
    StackRun,
};
use blis_contracts::units::{BytesPerRank, BytesPerSecond};
use indexmap::IndexMap;

use super::{ConfigError, Launch, Machine, Resolved, UsageContext, read, resolve_for};

/// A launch line to be resolved.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) line: &'a str,
    pub(super) env: &'a [(&'a str, &'a str)],
    pub(super) written_for: Option<&'a str>,
}

impl<'a> Case<'a> {
    pub(super) const fn line(line: &'a str) -> Self {
        Self { line, env: &[], written_for: None }
    }

    pub(super) fn resolve(self, model: &ModelGraph, chip: &Chip) -> Result<Resolved, ConfigError> {
        self.resolve_for(model, chip, UsageContext::OpenaiApiServer)
    }

    pub(super) fn resolve_for(self, model: &ModelGraph, chip: &Chip, usage: UsageContext) -> Result<Resolved, ConfigError> {
        let env: Vec<(String, String)> = self.env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let stated = read(Launch { command: Some(self.line), args: None, env: &env, written_for: self.written_for })?;
        resolve_for(&stated, Machine { model, chip, gpus: 8 }, usage)
    }
}

/// `vllm serve m` with more arguments.
pub(super) fn serve(arguments: &str) -> String {
    format!("vllm serve m {arguments}")
}

/// Resolves `vllm serve m ARGUMENTS` for Llama on an H100.
pub(super) fn resolved(arguments: &str) -> Result<Resolved, ConfigError> {
    Case::line(&serve(arguments)).resolve(&llama(), &h100())
}

/// The value of a setting in a resolution, as written.
pub(super) fn value_of(resolved: &Resolved, key: &str) -> String {
    let line = resolved.explained.iter().find(|line| line.setting.key() == key);
    line.unwrap_or_else(|| panic!("{key} is not explained")).value.clone()
}

const fn plain(format: FormatName) -> MatmulFormat {
    MatmulFormat { weights: format, activations: format.usual_activations() }
}

fn attention(query_heads: u32, head_dim: u32, window: Option<u32>, sinks: bool, format: FormatName) -> Attention {
    Attention::GroupedQuery(GroupedQueryAttention {
        query_heads,
        kv_heads: 8,
        head_dim,
        window,
        sinks,
        qk_norm: false,
        qk_norm_spans_heads: false,
        qk_norm_unweighted: false,
        chunk: None,
        rotary_dim: None,
        qkv_bias: sinks,
        output_bias: sinks,
        output_gate: false,
        values_are_keys: false,
        indexer: None,
        qkv_format: plain(format),
        output_format: plain(format),
    })
}

fn graph(name: &str, architecture: &str, hidden_size: u64, blocks: IndexMap<String, LayerBlock>) -> ModelGraph {
    let cycle = blocks.keys().cloned().collect();
    ModelGraph {
        name: name.to_owned(),
        aliases: Vec::new(),
        architecture: architecture.to_owned(),
        derived_from: Derivation { source: "a test".to_owned(), files: IndexMap::new(), inferred: Vec::new() },
        dtype: FormatName::Bf16,
        hidden_size,
        vocab_size: 128_256,
        max_position_embeddings: 131_072,
        tied_embeddings: false,
        output_projection: plain(FormatName::Bf16),
        kv_format: None,
        quantisation: None,
        residual_lanes: None,
        blocks,
        stack: vec![StackRun { cycle, times: 2 }],
        encoders: Vec::new(),
        parameters: ParameterCount { total: 1, active: 1, active_leaves_out: Vec::new(), published: None },
    }
}

fn dense(format: FormatName) -> FeedForward {
    let (up_format, down_format) = (plain(format), plain(format));
    FeedForward::Dense(DenseFeedForward { intermediate_size: 28_672, gated: true, bias: false, up_format, down_format })
}

/// Llama 3.1 70B, unquantised.
pub(super) fn llama() -> ModelGraph {
    llama_in(FormatName::Bf16)
}

/// Llama 3.1 70B with its matrices in a format.
pub(super) fn llama_in(format: FormatName) -> ModelGraph {
    let block = LayerBlock { attention: attention(64, 128, None, false, format), feed_forward: dense(format), norms: 2 };
    graph("llama", "LlamaForCausalLM", 8192, IndexMap::from([("layer".to_owned(), block)]))
}

/// The fp8 checkpoint of Llama 3.3 70B that vendors publish, with its calibrated KV cache.
pub(super) fn llama_fp8() -> ModelGraph {
    let mut model = llama_in(FormatName::Fp8);
    model.quantisation = Some("modelopt".to_owned());
    model.kv_format = Some(FormatName::Fp8);
    model
}

/// gpt-oss 120B.
pub(super) fn gpt_oss() -> ModelGraph {
    let experts = MixtureOfExperts {
        experts: 128,
        top_k: 4,
        intermediate_size: 2880,
        gated: true,
        bias: true,
        router_bias: true,
        selection_bias: false,
        picks_by_token: false,
        expert_format: plain(FormatName::Mxfp4),
        router_format: plain(FormatName::Bf16),
        groups: None,
        shared: None,
        shared_gate: false,
        router_scales: false,
        latent: None,
    };
    let block = |window| LayerBlock {
        attention: attention(64, 64, window, true, FormatName::Bf16),
        feed_forward: FeedForward::MixtureOfExperts(experts.clone()),
        norms: 2,
    };
    let blocks = IndexMap::from([("sliding".to_owned(), block(Some(128))), ("full".to_owned(), block(None))]);
    let mut model = graph("gpt-oss", "GptOssForCausalLM", 2880, blocks);
    model.quantisation = Some("mxfp4".to_owned());
    model
}

fn cited<T>(value: T) -> Cited<T> {
    Cited { value, kind: CitationKind::Datasheet, source: "a test".to_owned() }
}

fn chip(name: &str, capability: (u32, u32), memory_mib: u64) -> Chip {
    let memory = BytesPerRank::new(memory_mib << 20);
    Chip {
        name: name.to_lowercase(),
        device_name: cited(format!("NVIDIA {name}")),
        compute_capability: cited(capability),
        multiprocessors: cited(132),
        memory: cited(memory),
        reported_memory: cited(memory),
        memory_bandwidth: cited(BytesPerSecond::new(1e12)),
        l2_cache: cited(memory),
        peak: IndexMap::new(),
        gpus_per_node: cited(8),
        gpus_per_domain: cited(8),
        link_bandwidth: cited(BytesPerSecond::new(1e11)),
        host_bandwidth: cited(BytesPerSecond::new(1e10)),
    }
}

/// H100 SXM, with the memory its driver reports.
pub(super) fn h100() -> Chip {
    chip("H100 80GB HBM3", (9, 0), 81_559)
}

/// H200.
pub(super) fn h200() -> Chip {
    chip("H200", (9, 0), 143_771)
}

/// B200.
pub(super) fn b200() -> Chip {
    chip("B200", (10, 0), 183_359)
}

/// A100 with 80 GB.
pub(super) fn a100() -> Chip {
    chip("A100-SXM4-80GB", (8, 0), 81_920)
}

/// RTX 5090.
pub(super) fn rtx5090() -> Chip {
    chip("GeForce RTX 5090", (12, 0), 32_607)
}
