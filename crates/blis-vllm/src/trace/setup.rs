//! The engine a scenario asks for, and the header that states what was resolved.

use blis_contracts::environment::PlanId;
use blis_contracts::plan::{FrontEndPlan, GraphPolicy, HostPlan, Layout, PoolPlan};
use blis_contracts::step::StepShape;
use blis_contracts::units::Blocks;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::model::TraceModel;
use super::scenario::Scenario;
use crate::config::CudagraphMode;
use crate::cudagraph::CudaGraphs;
use crate::engine::EngineParts;
use crate::kv::group::Attention;
use crate::kv_sizing::{KvSizingError, SizedKv, SizingInput, size};
use crate::sched::queue::Policy;
use crate::sched::scheduler::SchedulerConfig;

/// The first line of a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Version of the format.
    pub format: u32,
    /// Name of the scenario.
    pub scenario: String,
    /// SHA-256 of its file.
    pub scenario_sha256: String,
    /// What the arguments resolved to.
    pub config: HeaderConfig,
}

/// The resolved configuration, under the names of the trace format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "each field is the setting of that name; oracle/FORMAT.md defines them")]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent switch of upstream's scheduler")]
pub struct HeaderConfig {
    pub max_model_len: u32,
    pub max_num_batched_tokens: u32,
    pub max_num_scheduled_tokens: u32,
    pub max_num_seqs: u32,
    pub block_size: u32,
    pub scheduler_block_size: u32,
    pub hash_block_size: u32,
    pub num_gpu_blocks: u32,
    pub watermark_blocks: u32,
    pub enable_prefix_caching: bool,
    pub enable_chunked_prefill: bool,
    pub long_prefill_token_threshold: u32,
    pub scheduler_reserve_full_isl: bool,
    pub async_scheduling: bool,
    pub batch_queue_size: u32,
    pub policy: String,
    pub cudagraph_mode: String,
    pub cudagraph_capture_sizes: Vec<u32>,
    pub kv_groups: Vec<HeaderGroup>,
}

/// A KV-cache group, under the names of the trace format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderGroup {
    pub layers: Vec<String>,
    #[serde(rename = "type")]
    pub kind: String,
    pub block_size: u32,
    pub page_bytes: u64,
    pub window: Option<u32>,
}

/// The scenario asks for an engine that cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The model is not one the tracer knows.
    #[error("model: {message}")]
    Model {
        /// What is wrong with it.
        message: String,
    },
    /// An argument has a value the tracer cannot read.
    #[error("engine_args.{name}: expected {expected}, found {found}")]
    Argument {
        /// The argument.
        name: String,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// The KV cache cannot be set up.
    #[error(transparent)]
    Kv(#[from] KvSizingError),
}

impl SetupError {
    pub(super) fn model(message: String) -> Self {
        Self::Model { message }
    }
}

/// The engine, and the header it answers for. `given` holds what the arguments resolve to; sizes and groups are computed.
pub(super) fn engine_parts(scenario: &Scenario, given: &Header) -> Result<(EngineParts, Header), SetupError> {
    let config = &given.config;
    let model = TraceModel::read(&scenario.model)?;
    let sized = size(&sizing_input(scenario, config, &model)?)?;
    let graphs = CudaGraphs::new(graph_mode(&config.cudagraph_mode)?, &config.cudagraph_capture_sizes, config.max_num_seqs);
    let scheduler = SchedulerConfig {
        max_model_len: sized.config.max_model_len,
        max_num_batched_tokens: config.max_num_batched_tokens,
        max_num_scheduled_tokens: config.max_num_scheduled_tokens,
        max_num_active_seqs: count(scenario, "max_num_active_seqs")?.unwrap_or(config.max_num_seqs),
        enable_chunked_prefill: config.enable_chunked_prefill,
        long_prefill_token_threshold: config.long_prefill_token_threshold,
        long_prefill_token_threshold_adaptive: switch(scenario, "long_prefill_token_threshold_adaptive")?,
        scheduler_reserve_full_isl: config.scheduler_reserve_full_isl,
        policy: if config.policy == "priority" { Policy::Priority } else { Policy::Fcfs },
        async_scheduling: config.async_scheduling,
        max_concurrent_batches: config.batch_queue_size,
    };
    let header = header(scenario, config, &model, &sized);
    let plan = plan(&sized, config.batch_queue_size);
    Ok((EngineParts { plan, plan_id: PlanId(0), settings: Vec::new(), scheduler, kv: sized.config, graphs }, header))
}

fn sizing_input(scenario: &Scenario, config: &HeaderConfig, model: &TraceModel) -> Result<SizingInput, SetupError> {
    let retention = match scenario.engine_args.get("prefix_cache_retention_interval") {
        Some(Value::Null) => None,
        Some(_) => count(scenario, "prefix_cache_retention_interval")?,
        None => Some(0),
    };
    Ok(SizingInput {
        layers: model.layers.clone(),
        block_size: config.block_size,
        max_model_len: config.max_model_len,
        max_model_len_fits_memory: false,
        max_in_flight_tokens: config.batch_queue_size * config.max_num_batched_tokens,
        disable_hybrid_kv_cache_manager: switch(scenario, "disable_hybrid_kv_cache_manager")?,
        available_bytes: scenario.kv_bytes,
        num_gpu_blocks_override: count(scenario, "num_gpu_blocks_override")?,
        prefix_cache_retention_interval: retention,
        watermark: scenario.engine_args.get("watermark").and_then(Value::as_f64).unwrap_or(0.0),
        enable_prefix_caching: config.enable_prefix_caching,
    })
}

fn header(scenario: &Scenario, config: &HeaderConfig, model: &TraceModel, sized: &SizedKv) -> Header {
    let group = |group: &crate::kv_sizing::groups::LayerGroup| HeaderGroup {
        layers: group.layers.iter().map(|layer| model.layers[*layer].name.clone()).collect(),
        kind: match group.attention {
            Attention::Full => "full_attention".to_owned(),
            Attention::SlidingWindow { .. } => "sliding_window".to_owned(),
        },
        block_size: sized.config.block_size,
        page_bytes: sized.page_bytes,
        window: group.window,
    };
    let config = HeaderConfig {
        max_model_len: sized.config.max_model_len,
        block_size: sized.config.block_size,
        scheduler_block_size: sized.config.block_size,
        hash_block_size: sized.config.block_size,
        num_gpu_blocks: sized.config.num_blocks,
        watermark_blocks: sized.config.watermark_blocks,
        kv_groups: sized.groups.iter().map(group).collect(),
        ..config.clone()
    };
    Header { format: 1, scenario: scenario.name.clone(), scenario_sha256: scenario.sha256.clone(), config }
}

/// A plan that states what the scheduler core knows; nothing prices it.
fn plan(sized: &SizedKv, in_flight: u32) -> PoolPlan {
    PoolPlan {
        hardware: String::new(),
        model: String::new(),
        layout: Layout::SINGLE,
        layers: Vec::new(),
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

fn graph_mode(name: &str) -> Result<CudagraphMode, SetupError> {
    match name {
        "NONE" => Ok(CudagraphMode::None),
        "PIECEWISE" => Ok(CudagraphMode::Piecewise),
        "FULL" => Ok(CudagraphMode::Full),
        "FULL_DECODE_ONLY" => Ok(CudagraphMode::FullDecodeOnly),
        "FULL_AND_PIECEWISE" => Ok(CudagraphMode::FullAndPiecewise),
        other => Err(SetupError::Argument { name: "cudagraph_mode".to_owned(), expected: "a graph mode", found: other.to_owned() }),
    }
}

fn count(scenario: &Scenario, name: &str) -> Result<Option<u32>, SetupError> {
    let read = |value: &Value| {
        value.as_u64().and_then(|value| u32::try_from(value).ok()).ok_or_else(|| SetupError::Argument {
            name: name.to_owned(),
            expected: "a count",
            found: value.to_string(),
        })
    };
    scenario.engine_args.get(name).map(read).transpose()
}

fn switch(scenario: &Scenario, name: &str) -> Result<bool, SetupError> {
    let read = |value: &Value| {
        value.as_bool().ok_or_else(|| SetupError::Argument { name: name.to_owned(), expected: "true or false", found: value.to_string() })
    };
    scenario.engine_args.get(name).map_or(Ok(false), read)
}
