//! Start-up: from a launch line to an engine whose KV cache is sized.
//!
//! upstream: vllm `v1/engine/core.py::EngineCore._initialize_kv_caches`, `v1/worker/gpu_worker.py::Worker.init_device`, `determine_available_memory`, `v1/worker/utils.py::request_memory`
//!
//! The line is resolved, the model lowered to a plan, the plan's memory asked of the environment; what the budget leaves becomes KV
//! blocks. Upstream takes its first look at free memory after the runtime and the communicators are up, so these two never count
//! against the budget; they only have to fit beside it.
//!
//! Left out: sleep and wake-up, elastic scaling, memory kept for multimodal inputs, weights held by another process.

pub(crate) mod blocks;

use std::ops::Range;

use blis_contracts::chip::Chip;
use blis_contracts::environment::{Environment, EnvironmentError, MemoryBreakdown};
use blis_contracts::plan::{PoolPlan, ResidentTensor};
use blis_contracts::provenance::{ResolvedSetting, SettingSource};
use blis_contracts::units::{Blocks, BytesPerRank};

use crate::config::{ConfigError, CudagraphMode, Explained, Machine, Resolved, Source, Stated, resolve};
use crate::engine::settings::{SettingTooLarge, check_counts, cores, cuda_graphs, queue_limits, scheduler_config, sizing_input};
use crate::engine::{EngineParts, VllmEngine};
use crate::kv_sizing::{KvSizingError, LESS_RESIDENT, LayerKv, Remedy, SizedKv, SizingInput, StatedPool, size};
use crate::lowering::{LoweringError, kv_layers, lower, stages};

/// Where an engine is started.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// Catalog name of the model it serves.
    pub model: &'a str,
    /// Catalog name of the chip.
    pub hardware: &'a str,
    /// Accelerators of a node.
    pub gpus: u32,
    /// Nodes there are.
    pub nodes: u32,
    /// Catalog name of the network between them, where there is one.
    pub fabric: Option<&'a str>,
}

/// A started engine.
#[derive(Debug)]
pub struct Started {
    /// The engine.
    pub engine: VllmEngine,
    /// Nodes that its ranks lie on.
    pub nodes: u32,
    /// Memory of one rank before any KV.
    pub memory: MemoryBreakdown,
    /// The KV pool.
    pub kv: KvPool,
    /// Spellings of another release that were translated, and what else upstream would warn about.
    pub notes: Vec<String>,
}

/// The KV pool of a started engine.
#[derive(Debug, Clone, PartialEq)]
pub struct KvPool {
    /// Memory the budget rule starts from: what the driver reports.
    pub device_memory: BytesPerRank,
    /// Memory the engine may use of it; absent where the line states the pool's bytes itself.
    pub requested: Option<BytesPerRank>,
    /// What the budget leaves for KV.
    pub available: BytesPerRank,
    /// Bytes the blocks take.
    pub bytes_per_rank: BytesPerRank,
    /// Bytes of one block over all layers of a group.
    pub bytes_per_block: BytesPerRank,
    /// Blocks, the placeholder included.
    pub blocks: u64,
    /// Tokens upstream reports as the cache's size.
    pub capacity_tokens: u64,
    /// Requests of the greatest length that fit at once.
    pub max_concurrency: f64,
    /// Longest request, after any fitting to memory.
    pub max_model_len: u32,
    /// Whether prompts are looked up in, and remembered by, the cache.
    pub prefix_caching: bool,
}

/// The engine would not start. Messages are upstream's where upstream has one.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StartError {
    /// The launch line.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The model on this chip.
    #[error(transparent)]
    Lowering(#[from] LoweringError),
    /// The environment.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The line spreads the ranks over more nodes than there are.
    #[error("the launch line spreads the ranks over {needed} nodes, and the cluster has {there}; it should have {needed}")]
    TooFewNodes {
        /// Nodes of the line.
        needed: u32,
        /// Nodes of the cluster.
        there: u32,
    },
    /// Ranks that exchange data lie in several domains of links, and nothing joins these.
    #[error("groups of ranks reach beyond the {domain} that one domain of links holds, and the cluster names no network between nodes")]
    NoNetwork {
        /// Consecutive ranks of one domain.
        domain: u32,
    },
    /// Weights and buffers do not fit the device.
    #[error(
        "CUDA out of memory: the weights and buffers of one rank take {} GiB, and {} GiB of the {} GiB that {device} reports are free when they are loaded; {LESS_RESIDENT}",
        gib(*needed), gib(*free), gib(*total)
    )]
    WeightsDoNotFit {
        /// The device, as the driver names it.
        device: String,
        /// Bytes of weights and buffers.
        needed: u64,
        /// Bytes free before they are loaded.
        free: u64,
        /// Bytes the driver reports.
        total: u64,
    },
    /// The budget is larger than what is free.
    #[error(
        "Free memory on device {device} ({}/{} GiB) on startup is less than desired GPU memory utilization ({utilization}, {} GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        gib(*free), gib(*total), gib(*requested)
    )]
    BudgetExceedsFree {
        /// The device, as the driver names it.
        device: String,
        /// Bytes free at start-up.
        free: u64,
        /// Bytes the driver reports.
        total: u64,
        /// The share asked for.
        utilization: f64,
        /// Bytes that is.
        requested: u64,
    },
    /// More requests may run than there are blocks for their states.
    #[error(
        "max_num_seqs ({max_num_seqs}) exceeds available Mamba cache blocks ({blocks}). Each decode sequence requires one Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most {blocks}{}.",
        if *remedy == Remedy::Memory { " or increase gpu_memory_utilization".to_owned() } else { format!(". {remedy}") }
    )]
    TooFewStates {
        /// Requests that may run.
        max_num_seqs: u64,
        /// Blocks there are.
        blocks: u32,
        /// What would make more of them.
        remedy: Remedy,
    },
    /// A setting is beyond what the engine counts with.
    #[error(transparent)]
    Setting(#[from] SettingTooLarge),
    /// The KV cache.
    #[error(transparent)]
    Kv(#[from] KvSizingError),
}

impl StartError {
    /// Whether the line itself is wrong, so that no model and no machine makes it right.
    pub const fn is_of_the_line(&self) -> bool {
        match self {
            Self::Config(error) => error.is_of_the_line(),
            Self::Setting(_) => true,
            Self::Lowering(_)
            | Self::Environment(_)
            | Self::TooFewNodes { .. }
            | Self::NoNetwork { .. }
            | Self::WeightsDoNotFit { .. }
            | Self::BudgetExceedsFree { .. }
            | Self::TooFewStates { .. }
            | Self::Kv(_) => false,
        }
    }
}

/// Starts an engine.
pub fn start(stated: &Stated, site: Site<'_>, environment: &mut dyn Environment) -> Result<Started, StartError> {
    let graph = environment.graph(site.model)?.clone();
    let chip = environment.chip(site.hardware)?.clone();
    let machine = Machine { model: &graph, chip: &chip, gpus: site.gpus };
    let resolved = resolve(stated, machine)?;
    let with_blocks = |tokens| resolve(&stated.with_block_size(tokens), machine).ok();
    check_counts(&resolved)?;
    let mut plan = lower(&graph, &resolved, &chip)?;
    join_nodes(&mut plan, &resolved, site)?;
    let stages = stages(&plan, &graph, &resolved, &chip)?;
    let held: Vec<Held> =
        stages.iter().map(|stage| hold(stage, machine, &resolved, &with_blocks, environment)).collect::<Result<_, _>>()?;
    plan.kv_budget = held.iter().map(|held| held.kv.bytes_per_rank).collect();
    // Every stage has as many blocks as the one with the fewest.
    let Held { memory, sized, kv, weights } = held.into_iter().min_by_key(|held| held.kv.blocks).expect("a pipeline has a stage");
    check_states(&resolved, (sized.config.num_blocks, sized.bytes_per_block))?;
    plan.weights = weights;
    plan.kv_blocks = Blocks::new(kv.blocks);
    let plan_id = environment.compile(&plan)?;
    let engine = VllmEngine::new(EngineParts {
        plan,
        plan_id,
        settings: resolved.explained.iter().map(setting).collect(),
        scheduler: scheduler_config(&resolved, sized.config.max_model_len)?,
        kv: sized.config,
        graphs: cuda_graphs(&resolved)?,
        cores: cores(&resolved),
    })
    .with_queue_limits(queue_limits(&resolved));
    Ok(Started { engine, nodes: resolved.placement.nodes, memory, kv, notes: resolved.notes })
}

/// What a rank of one stage holds.
struct Held {
    memory: MemoryBreakdown,
    sized: SizedKv,
    kv: KvPool,
    weights: Vec<ResidentTensor>,
}

/// Sizes the KV cache of one stage's ranks, which hold its layers alone.
/// upstream: vllm `v1/core/kv_cache_utils.py::get_kv_cache_configs`
fn hold(
    stage: &(PoolPlan, Range<usize>),
    machine: Machine<'_>,
    resolved: &Resolved,
    with_blocks: &dyn Fn(Option<u32>) -> Option<Resolved>,
    environment: &dyn Environment,
) -> Result<Held, StartError> {
    let memory = environment.memory(&stage.0)?;
    let budget = budget(resolved, machine.chip, &memory)?;
    let input = |resolved: &Resolved| -> Result<SizingInput, StartError> {
        Ok(sizing_input(resolved, caches(stage, machine, resolved)?, budget.available, budget.allocatable)?)
    };
    let fits = |other: &Resolved| input(other).is_ok_and(|input| size(&input).is_ok());
    let sized = size(&input(resolved)?).map_err(|error| error.or_shorter_blocks(|| blocks::shorter(resolved, with_blocks, fits)))?;
    let kv = kv_pool(resolved, machine.chip, &budget, &sized);
    Ok(Held { memory, sized, kv, weights: stage.0.weights.clone() })
}

/// The KV caches of one stage's layers.
fn caches((partial, layers): &(PoolPlan, Range<usize>), machine: Machine<'_>, resolved: &Resolved) -> Result<Vec<LayerKv>, LoweringError> {
    let mut caches = kv_layers(machine.model, resolved, machine.chip)?;
    // Where there are stages, each layer has one cache.
    if partial.layout.pipeline > 1 {
        caches = caches.drain(layers.clone()).collect();
    }
    Ok(caches)
}

/// Names the network of a plan whose ranks need one, where the cluster has the nodes and the network.
fn join_nodes(plan: &mut PoolPlan, resolved: &Resolved, site: Site<'_>) -> Result<(), StartError> {
    let needed = resolved.placement.nodes;
    if needed > site.nodes {
        return Err(StartError::TooFewNodes { needed, there: site.nodes });
    }
    let domain = plan.layout.domain;
    if domain > 0 {
        site.fabric.ok_or(StartError::NoNetwork { domain })?.clone_into(&mut plan.fabric);
    }
    Ok(())
}

/// Whether every request of a captured decode has a block for its state.
///
/// upstream: vllm `config/compilation.py::CompilationConfig.resolve_cudagraph_mode_and_sizes`
pub(crate) fn check_states(resolved: &Resolved, (blocks, bytes_per_block): (u32, u64)) -> Result<(), StartError> {
    let max_num_seqs = resolved.scheduler.max_num_seqs;
    let captured = resolved.compilation.cudagraph_mode.decode() == CudagraphMode::Full;
    if captured && resolved.cache.states.is_some() && max_num_seqs > u64::from(blocks) {
        let stated = StatedPool { blocks: resolved.cache.num_gpu_blocks_override, bytes: resolved.cache.kv_cache_memory_bytes };
        let remedy = stated.remedy(max_num_seqs, bytes_per_block);
        return Err(StartError::TooFewStates { max_num_seqs, blocks, remedy });
    }
    Ok(())
}

/// Bytes for KV, and what they were worked out from.
struct Budget {
    requested: Option<u64>,
    available: u64,
    /// What the device has free once weights and buffers are loaded.
    allocatable: u64,
}

fn budget(resolved: &Resolved, chip: &Chip, memory: &MemoryBreakdown) -> Result<Budget, StartError> {
    let device = || chip.device_name.value.clone();
    let total = chip.reported_memory.value.get();
    let free = total.saturating_sub(memory.runtime.get() + memory.communicators.get());
    let resident = memory.weights.get() + memory.buffers.get();
    let cache = &resolved.cache;
    if let Some(available) = cache.kv_cache_memory_bytes {
        let allocatable =
            free.checked_sub(resident).ok_or_else(|| StartError::WeightsDoNotFit { device: device(), needed: resident, free, total })?;
        return Ok(Budget { requested: None, available, allocatable });
    }
    let requested = ceil_share(total, cache.gpu_memory_utilization);
    if free < requested {
        return Err(StartError::BudgetExceedsFree { device: device(), free, total, utilization: cache.gpu_memory_utilization, requested });
    }
    if resident > free {
        return Err(StartError::WeightsDoNotFit { device: device(), needed: resident, free, total });
    }
    let graphs = if cache.estimate_cudagraph_memory { memory.graphs.get() } else { 0 };
    let consumed = resident + memory.unexplained.get() + memory.activations.get() + graphs;
    Ok(Budget { requested: Some(requested), available: requested.saturating_sub(consumed), allocatable: free - resident })
}

fn kv_pool(resolved: &Resolved, chip: &Chip, budget: &Budget, sized: &SizedKv) -> KvPool {
    let blocks = u64::from(sized.config.num_blocks);
    KvPool {
        device_memory: chip.reported_memory.value,
        requested: budget.requested.map(BytesPerRank::new),
        available: BytesPerRank::new(budget.available),
        bytes_per_rank: BytesPerRank::new(sized.bytes_per_block * blocks),
        bytes_per_block: BytesPerRank::new(sized.bytes_per_block),
        blocks,
        capacity_tokens: sized.capacity_tokens,
        max_concurrency: sized.max_concurrency,
        max_model_len: sized.config.max_model_len,
        prefix_caching: resolved.cache.enable_prefix_caching,
    }
}

fn setting(explained: &Explained) -> ResolvedSetting {
    let source = match explained.source {
        Source::Stated => SettingSource::Stated,
        Source::FormerlySpelled => SettingSource::Translated,
        Source::FormerDefault | Source::UpstreamDefault | Source::Derived => SettingSource::UpstreamDefault,
    };
    let rule = (explained.source != Source::Stated).then(|| explained.rule.clone());
    ResolvedSetting { name: explained.setting.key().to_owned(), value: explained.value.clone(), source, rule }
}

/// `ceil(total * share)` in the arithmetic upstream does it in.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of at most 1 of a device's bytes")]
fn ceil_share(total: u64, share: f64) -> u64 {
    libm::ceil(total as f64 * share) as u64
}

/// Bytes as upstream prints them: gibibytes with two decimals.
fn gib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1 << 30))
}
