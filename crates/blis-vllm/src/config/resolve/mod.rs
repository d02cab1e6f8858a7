//! Upstream's start-up rules: from what a line states, the model and the chip to the resolved configuration.
//!
//! upstream: vllm `engine/arg_utils.py::EngineArgs.create_engine_config`, `config/vllm.py::VllmConfig.__post_init__`. Assumed
//! of the machine: NVIDIA's driver, Triton, FlashInfer with its compiled kernels and `FlashAttention` 2 to 4, as vLLM's own images have
//! them. Reading order: `ledger`, then one file per part of the result.

mod attention;
mod batch;
mod block_sparse;
mod cache;
mod chunked;
mod compile;
mod compressed;
mod gemma4;
mod graphs;
mod hybrid;
mod kernels;
mod latent;
mod ledger;
mod model;
mod nodes;
mod parallel;
mod selected;

use blis_contracts::chip::Chip;
use blis_contracts::model::ModelGraph;

use super::choices::All2AllBackend;
use super::devices;
use super::error::ConfigError;
use super::launch::Stated;
use super::resolved::Resolved;
use super::setting::Setting;
pub use batch::UsageContext;
use ledger::Ledger;
pub(super) use parallel::has_experts;

/// What the rules look up: the model and the machine.
#[derive(Debug, Clone, Copy)]
pub struct Machine<'a> {
    /// The model the line names.
    pub model: &'a ModelGraph,
    /// The accelerator.
    pub chip: &'a Chip,
    /// Accelerators of the node the engine runs on.
    pub gpus: u32,
}

impl Machine<'_> {
    /// Whether the chip's compute capability begins with that major number (upstream's "family").
    fn family(&self, major: u32) -> bool {
        self.chip.compute_capability.value.0 == major
    }
}

/// Resolves a launch line as the modelled release would at start-up.
pub fn resolve(stated: &Stated, machine: Machine<'_>) -> Result<Resolved, ConfigError> {
    resolve_as(stated, machine, Start { usage: UsageContext::OpenaiApiServer, unpriced: &Unpriced::NONE })
}

/// The same with what no line may state as long as nothing prices it: `--speculative-config`, and stages that no machine of the line holds.
pub fn resolve_unpriced(stated: &Stated, machine: Machine<'_>, unpriced: &Unpriced) -> Result<Resolved, ConfigError> {
    resolve_as(stated, machine, Start { usage: UsageContext::OpenaiApiServer, unpriced })
}

/// The same for an engine that somebody else than the API server starts.
pub fn resolve_for(stated: &Stated, machine: Machine<'_>, usage: UsageContext) -> Result<Resolved, ConfigError> {
    resolve_as(stated, machine, Start { usage, unpriced: &Unpriced::NONE })
}

/// What a launch line may not state, since nothing prices it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpriced {
    /// Stages of the pipeline.
    pub stages: u32,
    /// How the engine drafts, if it does.
    pub drafting: Option<DraftWidths>,
}

impl Unpriced {
    /// Nothing of it.
    pub const NONE: Self = Self { stages: 1, drafting: None };
}

/// What the start-up rules read of a speculative configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftWidths {
    /// Most drafts of one request.
    pub tokens: u8,
    /// Whether asynchronous scheduling can run it.
    pub asynchronous: bool,
    /// Ranges of requests of a step, each with its drafts, where those decide.
    pub by_batch: Option<Vec<(u32, u32, u8)>>,
}

/// What no launch line states.
#[derive(Debug, Clone, Copy)]
struct Start<'a> {
    usage: UsageContext,
    unpriced: &'a Unpriced,
}

fn resolve_as(stated: &Stated, machine: Machine<'_>, start: Start<'_>) -> Result<Resolved, ConfigError> {
    let mut ledger = Ledger::new(&stated.statements);
    let nnodes = nodes::stated(&mut ledger)?;
    let stages = nodes::stages(&mut ledger)?;
    let tensor_parallel_size = model::tensor_parallel_size(&mut ledger, machine, nnodes, stages)?;
    let (data_parallel, placement) = parallel::data_parallel(&mut ledger, machine, nnodes, tensor_parallel_size * stages)?;
    devices::check_ranks(&stated.statements, machine.gpus, placement.ranks_per_node)?;
    let expert_parallel_size = parallel::expert_parallel_size(&mut ledger, machine, tensor_parallel_size * data_parallel.size)?;
    parallel::note_unused_exchange(&mut ledger, data_parallel, expert_parallel_size);
    let in_slots = data_parallel.exchange_over(expert_parallel_size) == All2AllBackend::DeepepLowLatency;
    let api_server_count = parallel::api_server_count(&mut ledger, data_parallel.size)?;
    let language_model_only = ledger.flag(Setting::LanguageModelOnly);
    let dtype = model::dtype(&mut ledger, machine)?;
    model::quantization(&mut ledger, machine, dtype)?;
    let mut cache = cache::resolve(&mut ledger, machine)?;
    let floor = gemma4::least_tokens(machine, language_model_only);
    let scheduler = batch::resolve(&mut ledger, machine, (start, stages, in_slots), (cache.max_model_len, floor))?;
    let attention = attention::resolve(&mut ledger, machine, tensor_parallel_size, &cache, language_model_only)?;
    cache.block_size = attention::block_size(&mut ledger, machine, &attention, &cache);
    chunked::check_blocks(machine, &cache)?;
    hybrid::resolve(&mut ledger, machine, (tensor_parallel_size, dtype), &attention, &scheduler, &mut cache)?;
    let compilation =
        compile::resolve(&mut ledger, (machine, start, data_parallel), tensor_parallel_size, &scheduler, attention.graph_support)?;
    let kernels = kernels::resolve(&mut ledger)?;
    kernels::check_all_reduce(&kernels, &compilation, tensor_parallel_size > placement.ranks_per_node)?;
    let model_runner_v2 = ledger.flag_or(Setting::VllmUseV2ModelRunner, true, "on for what is modelled");
    parallel::check_stages((stages, machine.model.layer_count()), data_parallel, model_runner_v2)?;
    let (explained, notes) = ledger.finish();
    Ok(Resolved {
        model: stated.model.clone(),
        tensor_parallel_size,
        data_parallel,
        placement,
        expert_parallel_size,
        language_model_only,
        api_server_count,
        dtype,
        cache,
        scheduler,
        compilation,
        attention,
        model_runner_v2,
        kernels,
        rules: stated.statements.rules,
        explained,
        notes,
    })
}
