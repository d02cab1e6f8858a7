//! The engine a scenario asks for, and the header that states what was resolved.

use blis_contracts::environment::PlanId;
use blis_contracts::model::{Attention as Kind, ModelGraph};
use blis_contracts::plan::{FrontEndPlan, GraphPolicy, HostPlan, Layout, PoolPlan};
use blis_contracts::step::StepShape;
use blis_contracts::units::Blocks;
use serde::Serialize;

use super::model;
use super::scenario::Scenario;
use super::speculative::{self, Method};
use crate::config::{ConfigError, HashAlgo, Launch, Machine, Resolved, Setting, Unpriced, read, resolve_unpriced};
use crate::engine::EngineParts;
use crate::engine::settings::{SettingTooLarge, cores, cuda_graphs, scheduler_config, sizing_input};
use crate::kv::events::{GroupKind, Naming};
use crate::kv::group::Attention;
use crate::kv::hash::Encoding;
use crate::kv_sizing::groups::LayerGroup;
use crate::kv_sizing::{KvSizingError, SizedKv, size};
use crate::lowering::{LoweringError, kv_layers};
use crate::sched::features::Features;

/// The first line of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Header {
    /// Version of the format.
    pub(super) format: u32,
    /// Name of the scenario.
    pub(super) scenario: String,
    /// SHA-256 of its file.
    pub(super) scenario_sha256: String,
    /// What the arguments resolved to.
    pub(super) config: HeaderConfig,
}

/// The resolved configuration, under the names of the trace format; `oracle/FORMAT.md` defines them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent switch of upstream's scheduler")]
pub(super) struct HeaderConfig {
    pub(super) max_model_len: u32,
    pub(super) max_num_batched_tokens: u64,
    pub(super) max_num_scheduled_tokens: u64,
    pub(super) max_num_seqs: u64,
    pub(super) block_size: u32,
    pub(super) scheduler_block_size: u32,
    pub(super) hash_block_size: u32,
    pub(super) num_gpu_blocks: u32,
    pub(super) watermark_blocks: u32,
    pub(super) enable_prefix_caching: bool,
    pub(super) enable_chunked_prefill: bool,
    pub(super) long_prefill_token_threshold: u64,
    pub(super) scheduler_reserve_full_isl: bool,
    pub(super) async_scheduling: bool,
    pub(super) batch_queue_size: u32,
    pub(super) policy: &'static str,
    pub(super) cudagraph_mode: &'static str,
    pub(super) cudagraph_capture_sizes: Vec<u64>,
    pub(super) kv_groups: Vec<HeaderGroup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) speculation: Option<HeaderSpeculation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_loras: Option<u32>,
}

/// A KV-cache group, under the names of the trace format.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct HeaderGroup {
    pub(super) layers: Vec<String>,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) block_size: u32,
    pub(super) page_bytes: u64,
    pub(super) window: Option<u32>,
}

/// What a speculative configuration came to, under the names of the trace format.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct HeaderSpeculation {
    pub(super) method: &'static str,
    pub(super) tokens: u8,
    pub(super) lookahead: u32,
    pub(super) prefill_lookahead: u32,
    pub(super) draft_slots: u32,
    pub(super) drop_groups: Vec<usize>,
    pub(super) by_batch: Option<Vec<u8>>,
}

/// The scenario asks for an engine that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The model is not one the tracer knows.
    #[error("model: {0}")]
    Model(String),
    /// The accelerator is not one the tracer knows.
    #[error("gpu: {0}")]
    Gpu(String),
    /// The pipeline has no number of stages that the machine could hold.
    #[error("engine_args.pipeline_parallel_size: {0}; expected 1 to {most}", most = model::GPUS)]
    Pipeline(String),
    /// The speculative configuration is not one the tracer knows, or not together with the rest.
    #[error("engine_args.speculative_config{0}")]
    Speculation(String),
    /// Adapters are configured as the tracer does not know them.
    #[error("engine_args.{0}")]
    Adapters(String),
    /// Requests ask for what the engine is not configured for, or what cannot be together.
    #[error("requests: {0}")]
    Requests(String),
    /// Events would name blocks by a hash that is not modelled.
    #[error("engine_args.prefix_caching_hash_algo: `{0}` with kv_events_config is not modelled; expected sha256 or sha256_cbor")]
    Events(&'static str),
    /// Events would name blocks by further keys.
    #[error(
        "engine_args.kv_events_config: events beside drafts, adapters or blocks of several lengths are not modelled; leave one of them out"
    )]
    EventsBeside,
    /// A scrape would read series that are not modelled.
    #[error("engine_args.{0}: the series that it adds or changes are not modelled; leave it out where metrics are asked for")]
    Series(&'static str),
    /// The arguments do not resolve.
    #[error("engine_args: {0}")]
    Arguments(#[from] ConfigError),
    /// The model cannot be lowered.
    #[error(transparent)]
    Lowering(#[from] LoweringError),
    /// A setting is too large.
    #[error(transparent)]
    Setting(#[from] SettingTooLarge),
    /// The KV cache cannot be set up.
    #[error(transparent)]
    Kv(#[from] KvSizingError),
}

impl SetupError {
    pub(super) fn model(message: String) -> Self {
        Self::Model(message)
    }

    pub(super) fn speculation(message: impl Into<String>) -> Self {
        Self::Speculation(message.into())
    }

    pub(super) fn gpu(message: String) -> Self {
        Self::Gpu(message)
    }
}

/// Bytes that a device could hold: there is none, and a scenario states its pool as it likes.
const NO_DEVICE: u64 = u64::MAX;

/// The argument that only the tracer takes: a simulation has nobody who would listen to events.
const KV_EVENTS: &str = "kv_events_config";

/// What events need to know, where a scenario asks for them.
fn naming(scenario: &Scenario, resolved: &Resolved, header: &HeaderConfig) -> Result<Naming, SetupError> {
    let encoding = match resolved.cache.prefix_caching_hash_algo {
        HashAlgo::Sha256 => Encoding::Pickle,
        HashAlgo::Sha256Cbor => Encoding::Cbor,
        other @ (HashAlgo::Xxhash | HashAlgo::XxhashCbor) => return Err(SetupError::Events(other.as_str())),
    };
    let groups = header.kv_groups.iter().map(|group| GroupKind { kind: group.kind, window: group.window }).collect();
    Ok(Naming { encoding, seed: HASH_SEED, block_size: header.hash_block_size, groups, tokens: scenario.tokens.clone() })
}

/// The seed of Python's hashes under which upstream is recorded.
const HASH_SEED: &str = "0";

/// Stages of a scenario, which need no more accelerators here: a recording's clock gives each stage's time.
fn stages(stated: Option<serde_json::Value>) -> Result<u32, SetupError> {
    let Some(stated) = stated else { return Ok(1) };
    let stages = stated.as_u64().and_then(|stages| u32::try_from(stages).ok()).filter(|stages| (1..=model::GPUS).contains(stages));
    stages.ok_or_else(|| SetupError::Pipeline(stated.to_string()))
}

/// An engine, what only some engines have, and the header that says what the arguments resolved to.
pub(super) struct Setup {
    pub(super) parts: EngineParts,
    /// Without those of the requests.
    pub(super) features: Features,
    pub(super) header: Header,
    /// How KV events name things, where the scenario asks for them.
    pub(super) naming: Option<Naming>,
}

/// The engine a scenario asks for.
pub(super) fn setup(scenario: &Scenario) -> Result<Setup, SetupError> {
    let graph = model::graph(&scenario.model)?;
    let chip = model::chip(&scenario.gpu)?;
    let mut args = scenario.engine_args.clone();
    args.insert("model".to_owned(), "scenario".into());
    let stages = stages(args.remove(Setting::PipelineParallelSize.key()))?;
    let method = speculative::read(args.remove(speculative::ARGUMENT), scenario)?;
    let max_loras = speculative::adapters(&mut args, scenario)?;
    let listened = args.remove(KV_EVENTS).is_some();
    let stated = read(Launch { args: Some(&args), ..Launch::default() })?;
    let unpriced = Unpriced { stages, drafting: method.as_ref().map(Method::widths) };
    let resolved = resolve_unpriced(&stated, Machine { model: &graph, chip: &chip, gpus: model::GPUS }, &unpriced)?;
    speculative::check(method.as_ref(), max_loras, &resolved, scenario)?;
    let mut layers = kv_layers(&graph, &resolved, &chip)?;
    model::name_layers(&graph, &mut layers);
    if method.is_some()
        && (layers.len() != graph.layer_count()
            || layers.iter().any(|layer| matches!(layer.attention, Attention::Mamba(_) | Attention::Chunked { .. })))
    {
        return Err(SetupError::speculation(": drafting over states, chunks, or layers with several caches is not modelled"));
    }
    layers.extend(method.iter().flat_map(|method| method.layers(&layers)).collect::<Vec<_>>());
    let names: Vec<String> = layers.iter().map(|layer| layer.name.clone()).collect();
    let sized = size(&sizing_input(&resolved, layers, scenario.kv_bytes, NO_DEVICE)?)?;
    if method.is_some() && sized.config.hash_block_size() != sized.config.block_size {
        return Err(SetupError::speculation(": drafting over blocks of several lengths is not modelled"));
    }
    let scheduler = scheduler_config(&resolved, sized.config.max_model_len)?;
    let speculation = method.as_ref().map(|method| method.speculation(&resolved, &sized, scenario)).transpose()?;
    let speculated = method.is_some();
    let config = HeaderConfig {
        speculation: method.zip(speculation.as_ref()).map(|(method, speculation)| method.header(speculation)),
        max_loras,
        ..header_config(&graph, &resolved, &sized, (&names, stages))
    };
    if listened && (speculated || max_loras.is_some() || sized.config.hash_block_size() != sized.config.block_size) {
        return Err(SetupError::EventsBeside);
    }
    let naming = listened.then(|| naming(scenario, &resolved, &config)).transpose()?;
    let header = Header { format: 1, scenario: scenario.name.clone(), scenario_sha256: scenario.sha256.clone(), config };
    let plan = plan(&sized, scheduler.max_concurrent_batches);
    let graphs = cuda_graphs(&resolved)?;
    let parts =
        EngineParts { plan, plan_id: PlanId(0), settings: Vec::new(), scheduler, kv: sized.config, graphs, cores: cores(&resolved) };
    Ok(Setup { parts, features: Features { speculation, max_loras, requests: Vec::new() }, header, naming })
}

/// `stages`: of a pipeline, whose first one's layers the header names, as upstream's scheduler does.
fn header_config(graph: &ModelGraph, resolved: &Resolved, sized: &SizedKv, (names, stages): (&[String], u32)) -> HeaderConfig {
    let first_stage = names.len() / stages as usize;
    let latent = graph.layers().any(|block| matches!(block.attention, Kind::Latent(_) | Kind::Compressed(_)));
    let group = |group: &LayerGroup| HeaderGroup {
        layers: group.layers.iter().filter(|layer| **layer < first_stage).map(|layer| names[*layer].clone()).collect(),
        kind: match group.attention {
            Attention::Full if latent => "mla_attention",
            Attention::Full => "full_attention",
            Attention::SlidingWindow { .. } if latent => "sliding_window_mla",
            Attention::SlidingWindow { .. } => "sliding_window",
            Attention::Chunked { .. } => "chunked_local_attention",
            Attention::Mamba(_) => "mamba",
        },
        block_size: group.block_size,
        page_bytes: group.page_bytes,
        window: group.window,
    };
    let (scheduler, compilation, kv) = (&resolved.scheduler, &resolved.compilation, &sized.config);
    HeaderConfig {
        max_model_len: kv.max_model_len,
        max_num_batched_tokens: scheduler.max_num_batched_tokens,
        max_num_scheduled_tokens: scheduler.max_num_scheduled_tokens,
        max_num_seqs: scheduler.max_num_seqs,
        // Upstream's cache configuration holds the finest of the groups' block sizes.
        block_size: kv.groups.iter().map(|group| group.block_size).chain([resolved.cache.block_size]).min().unwrap_or(kv.block_size),
        scheduler_block_size: kv.block_size,
        hash_block_size: kv.hash_block_size(),
        num_gpu_blocks: kv.num_blocks,
        watermark_blocks: kv.watermark_blocks,
        enable_prefix_caching: kv.enable_prefix_caching,
        enable_chunked_prefill: scheduler.enable_chunked_prefill,
        long_prefill_token_threshold: scheduler.long_prefill_token_threshold,
        scheduler_reserve_full_isl: scheduler.scheduler_reserve_full_isl,
        async_scheduling: scheduler.async_scheduling,
        batch_queue_size: scheduler.max_concurrent_batches,
        policy: scheduler.policy.as_str(),
        cudagraph_mode: compilation.cudagraph_mode.as_str(),
        cudagraph_capture_sizes: compilation.cudagraph_capture_sizes.clone(),
        kv_groups: sized.groups.iter().map(group).collect(),
        speculation: None,
        max_loras: None,
    }
}

/// A plan that states what the scheduler core knows; nothing prices it.
fn plan(sized: &SizedKv, in_flight: u32) -> PoolPlan {
    PoolPlan {
        hardware: String::new(),
        fabric: String::new(),
        model: String::new(),
        layout: Layout::SINGLE,
        layers: Vec::new(),
        dense_prompts: None,
        kv: Vec::new(),
        kv_budget: Vec::new(),
        kv_blocks: Blocks::new(u64::from(sized.config.num_blocks)),
        graphs: GraphPolicy::default(),
        host: HostPlan::default(),
        front_end: FrontEndPlan { stream_interval: 1, processes: 1, tokenises: false, detokenises: false },
        weights: Vec::new(),
        buffers: Vec::new(),
        profiling: StepShape::default(),
        in_flight,
    }
}
