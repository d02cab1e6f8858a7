//! Start-up sizing: which layers share block tables, and how many blocks the memory holds.
//!
//! upstream: vllm `v1/core/kv_cache_utils.py::get_kv_cache_configs`, `_check_enough_kv_cache_memory`, `get_kv_cache_capacity`
//!
//! Reading order: [`size`] here, the grouping in [`groups`], pages of different sizes in `packed` and `unify`, what would mend a pool that is too small in `remedy`.
//!
//! Left out: several workers whose layers differ in kind, host pools, draft layers.

pub mod groups;
mod packed;
mod remedy;
mod unify;

#[cfg(test)]
mod tests;

use groups::{LayerGroup, group_layers};
pub use remedy::Remedy;
pub(crate) use remedy::StatedPool;

use crate::config::CapacityCount;
use crate::divisors::least_common_multiple;
use crate::kv::group::{Attention, Retention};
use crate::kv::manager::KvConfig;

/// The KV cache of one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerKv {
    /// The layer's name, for messages and traces.
    pub name: String,
    /// How it looks back.
    pub attention: Attention,
    /// Tokens of one block.
    pub block_size: u32,
    /// Bytes of one block on one rank.
    pub page_bytes: u64,
}

/// What sizing starts from.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent switch of upstream's cache configuration")]
pub struct SizingInput {
    /// The layers, in order.
    pub layers: Vec<LayerKv>,
    /// Whether the layers of a block lie side by side in memory, so that pages of different sizes can share one.
    pub packs_pages: bool,
    /// Longest sequence.
    pub max_model_len: u32,
    /// Whether the longest sequence may be lowered to what fits (`--max-model-len auto`).
    pub max_model_len_fits_memory: bool,
    /// Most tokens scheduled but not processed.
    pub max_in_flight_tokens: u32,
    /// Those of them that count towards what a layer with a window keeps of one request.
    pub windows_count: u32,
    /// How the tokens are counted that the cache holds.
    pub capacity: CapacityCount,
    /// Whether layers with a window are given blocks for every token.
    pub disable_hybrid_kv_cache_manager: bool,
    /// Bytes for KV on one rank.
    pub available_bytes: u64,
    /// Whether the line states these bytes; otherwise the profiler found them.
    pub bytes_stated: bool,
    /// Bytes that one rank can allocate for KV at all: what weights and buffers leave free of the device.
    pub allocatable_bytes: u64,
    /// Blocks of the pool, whatever the bytes.
    pub num_gpu_blocks_override: Option<u32>,
    /// Retention interval of sliding-window groups; absent keeps every block.
    pub prefix_cache_retention_interval: Option<u32>,
    /// Share of the blocks kept free at admission.
    pub watermark: f64,
    /// Whether prompts are looked up in, and remembered by, the cache.
    pub enable_prefix_caching: bool,
}

/// A sized KV cache.
#[derive(Debug, Clone, PartialEq)]
pub struct SizedKv {
    /// The groups, in upstream's order.
    pub groups: Vec<LayerGroup>,
    /// Bytes of one block of the pool on one rank.
    pub bytes_per_block: u64,
    /// Blocks one request of the greatest length takes.
    pub blocks_per_request: u32,
    /// Tokens upstream reports as the cache's size.
    pub capacity_tokens: u64,
    /// Requests of the greatest length that fit at once.
    pub max_concurrency: f64,
    /// The KV manager's settings.
    pub config: KvConfig,
}

/// The KV cache cannot be set up. Messages are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KvSizingError {
    /// Nothing is left for KV.
    #[error(
        "No available memory for the cache blocks. {}",
        .0.or("Try increasing `gpu_memory_utilization` when initializing the engine (this flag also controls CPU memory reservation on the CPU backend, despite its name). See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details.")
    )]
    NoMemory(Remedy),
    /// Not even one request of the greatest length fits.
    #[error(
        "To serve at least one request with the model's max seq len ({max_model_len}), ({} GiB KV cache is needed, which is larger than the available KV cache memory ({} GiB). {}{}",
        gib(*needed), gib(*available), estimate(*estimated_max_model_len),
        remedy.or("Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or decreasing `max_model_len` when initializing the engine. See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details.")
    )]
    RequestDoesNotFit {
        /// The greatest length.
        max_model_len: u32,
        /// Bytes it needs.
        needed: u64,
        /// Bytes there are, the placeholder block taken off.
        available: u64,
        /// The greatest length that would fit; 0 for none.
        estimated_max_model_len: u32,
        /// What would make it fit.
        remedy: Remedy,
    },
    /// The pool was stated, in blocks or in bytes, and the device cannot hold it.
    #[error(
        "CUDA out of memory: the KV cache of one rank takes {} GiB as stated, and weights and buffers leave {} GiB of the device; {}",
        gib(*needed), gib(*allocatable), fewer(*most_blocks, *allocatable)
    )]
    PoolDoesNotFit {
        /// Bytes of the pool.
        needed: u64,
        /// Bytes there are.
        allocatable: u64,
        /// Blocks that these hold, where the pool was stated in blocks.
        most_blocks: Option<u64>,
    },
    /// The length was to be fitted, and not even one token fits.
    #[error(
        "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token. {}",
        .0.or("Try increasing `gpu_memory_utilization`.")
    )]
    NothingFits(Remedy),
    /// With the hybrid manager disabled, windows of different widths cannot share a block table.
    #[error("Failed to promote local KV cache specs to one unified type.")]
    CannotPromote,
    /// A group of layers has one window.
    #[error("All attention layers in the same KV cache group must have the same window size.")]
    MixedWindows,
    /// Retention has nothing to act on.
    #[error(
        "prefix_cache_retention_interval is set but this model has no sliding-window or Mamba KV cache group, so retention has no effect. Set it to 0 (it only applies to sliding-window and Mamba attention)."
    )]
    RetentionWithoutWindow,
    /// Retention does not fall on block edges.
    #[error("prefix_cache_retention_interval ({interval}) must be non-negative and a multiple of scheduler_block_size ({block_size}).")]
    RetentionOffBlocks {
        /// The interval.
        interval: u32,
        /// Tokens of one block.
        block_size: u32,
    },
    /// Pages of different sizes share blocks by rules that are not modelled.
    #[error(
        "layers `{first}` and `{second}` have pages of {first_bytes} and {second_bytes} bytes or blocks of different lengths; layers that differ in this share blocks by rules that are not modelled for this model and configuration"
    )]
    MixedPages {
        /// A layer.
        first: String,
        /// Bytes of its page.
        first_bytes: u64,
        /// The first layer that differs.
        second: String,
        /// Bytes of its page.
        second_bytes: u64,
    },
    /// Looking prefixes up in groups whose blocks differ in length.
    #[error(
        "this model's KV-cache groups have blocks of {sizes:?} tokens; prefix caching over blocks of different lengths is not modelled: pass --no-enable-prefix-caching"
    )]
    CachedMixedBlocks {
        /// Tokens of one block, by group.
        sizes: Vec<u32>,
    },
    /// The model has no layer with a KV cache.
    #[error("the model has no attention layer; models without a KV cache are not modelled")]
    NoLayers,
}

/// Sizes the KV cache, or says why the engine would not start.
pub fn size(input: &SizingInput) -> Result<SizedKv, KvSizingError> {
    let groups = group_layers(&input.layers, input.disable_hybrid_kv_cache_manager, input.packs_pages)?;
    let block_size = scheduler_block_size(input, &groups)?;
    let retention = retention(input, &groups, block_size)?;
    let bytes_per_block = groups.iter().map(|group| group.bytes_per_block).max().ok_or(KvSizingError::NoLayers)?;
    let available = input.num_gpu_blocks_override.map_or(input.available_bytes, |blocks| u64::from(blocks) * bytes_per_block);
    if available > input.allocatable_bytes {
        let allocatable = input.allocatable_bytes;
        let most_blocks = input.num_gpu_blocks_override.map(|_| allocatable / bytes_per_block);
        return Err(KvSizingError::PoolDoesNotFit { needed: available, allocatable, most_blocks });
    }
    // The placeholder block is never handed out.
    let usable = available.checked_sub(bytes_per_block).filter(|bytes| *bytes > 0);
    let blocks_of = |length| blocks_per_request(input, &groups, length);
    let stated =
        StatedPool { blocks: input.num_gpu_blocks_override.map(u64::from), bytes: input.bytes_stated.then_some(input.available_bytes) };
    let remedy = |length| stated.remedy(u64::from(blocks_of(length)) + 1, bytes_per_block);
    let fitting = |bytes| longest_fitting(input.max_model_len, |length| bytes_per_block * u64::from(blocks_of(length)) <= bytes);
    let mut max_model_len = input.max_model_len;
    if input.max_model_len_fits_memory {
        max_model_len = match fitting(usable.unwrap_or(0)) {
            0 => return Err(KvSizingError::NothingFits(remedy(1))),
            length => length,
        };
    }
    let usable = usable.ok_or_else(|| KvSizingError::NoMemory(remedy(max_model_len)))?;
    let needed = bytes_per_block * u64::from(blocks_of(max_model_len));
    if needed > usable {
        let estimated_max_model_len = fitting(usable);
        let remedy = remedy(max_model_len);
        return Err(KvSizingError::RequestDoesNotFit { max_model_len, needed, available: usable, estimated_max_model_len, remedy });
    }
    let num_blocks = u32::try_from(available / bytes_per_block).expect("a device holds fewer than 2^32 blocks");
    let blocks_per_request = blocks_of(max_model_len);
    let max_concurrency = f64::from(num_blocks) / f64::from(blocks_per_request);
    let config = KvConfig {
        groups: groups.iter().map(LayerGroup::config).collect(),
        block_size,
        num_blocks,
        enable_prefix_caching: input.enable_prefix_caching,
        retention,
        watermark_blocks: u32::try_from(floor(input.watermark * f64::from(num_blocks))).expect("a watermark is a share of the blocks"),
        max_model_len,
        max_in_flight_tokens: input.max_in_flight_tokens,
    };
    let capacity_tokens = match input.capacity {
        CapacityCount::LongestRequests => floor(max_concurrency * f64::from(max_model_len)),
        CapacityCount::BlocksOverGroups => blocks_over_groups(num_blocks, &groups),
    };
    Ok(SizedKv { groups, bytes_per_block, blocks_per_request, capacity_tokens, max_concurrency, config })
}

/// Tokens of one group's share of the blocks, by the smallest block.
fn blocks_over_groups(blocks: u32, groups: &[LayerGroup]) -> u64 {
    let smallest = groups.iter().map(|group| group.block_size).min().unwrap_or(0);
    (u64::from(blocks) / groups.len().max(1) as u64) * u64::from(smallest)
}

/// Blocks that one request of `max_model_len` tokens takes at most, over all groups.
fn blocks_per_request(input: &SizingInput, groups: &[LayerGroup], max_model_len: u32) -> u32 {
    let blocks = |group: &LayerGroup| group.attention.blocks_per_request(group.block_size, input.windows_count, max_model_len);
    groups.iter().map(blocks).sum()
}

/// The greatest length up to `limit` that fits; 0 for none. Longer never fits where shorter does not.
fn longest_fitting(limit: u32, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut fitting, mut failing) = (0, limit + 1);
    while failing - fitting > 1 {
        let middle = fitting + (failing - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            failing = middle;
        }
    }
    fitting
}

/// The tokens that every group's blocks divide.
///
/// upstream: vllm `v1/core/kv_cache_utils.py::resolve_kv_cache_block_sizes`
fn scheduler_block_size(input: &SizingInput, groups: &[LayerGroup]) -> Result<u32, KvSizingError> {
    let size = groups.iter().map(|group| group.block_size).fold(1, least_common_multiple);
    let mixed = groups.iter().any(|group| group.block_size != size);
    let plain = |group: &LayerGroup| matches!(group.attention, Attention::Full | Attention::SlidingWindow { .. });
    if input.enable_prefix_caching && mixed && !groups.iter().all(plain) {
        return Err(KvSizingError::CachedMixedBlocks { sizes: groups.iter().map(|group| group.block_size).collect() });
    }
    Ok(size)
}

fn retention(input: &SizingInput, groups: &[LayerGroup], block_size: u32) -> Result<Retention, KvSizingError> {
    let has_window = groups.iter().any(|group| matches!(group.attention, Attention::SlidingWindow { .. } | Attention::Mamba(_)));
    match input.prefix_cache_retention_interval {
        None => Ok(Retention::Dense),
        Some(0) => Ok(Retention::Replay),
        Some(_) if !has_window => Err(KvSizingError::RetentionWithoutWindow),
        Some(interval) if !interval.is_multiple_of(block_size) => Err(KvSizingError::RetentionOffBlocks { interval, block_size }),
        Some(interval) => Ok(Retention::Interval(interval)),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of blocks and of their tokens are neither negative nor near 2^63"
)]
fn floor(value: f64) -> u64 {
    libm::floor(value) as u64
}

/// Bytes in GiB, rounded to two digits and printed without needless zeros, as upstream prints them.
fn gib(bytes: u64) -> String {
    let rounded = format!("{:.2}", bytes as f64 / f64::from(1_u32 << 30));
    let trimmed = rounded.trim_end_matches('0');
    if trimmed.ends_with('.') { format!("{trimmed}0") } else { trimmed.to_owned() }
}

/// What leaves more of the device to the KV cache, however it is stated.
pub(crate) const LESS_RESIDENT: &str = "raise `--tensor-parallel-size` or serve a smaller checkpoint";

/// The setting to lower where a stated pool is too large, or what to change where nothing is left for any.
fn fewer(most_blocks: Option<u64>, allocatable: u64) -> String {
    match most_blocks {
        Some(0) => LESS_RESIDENT.to_owned(),
        None if allocatable == 0 => LESS_RESIDENT.to_owned(),
        Some(blocks) => format!("lower `num_gpu_blocks_override` to at most {blocks}, or leave it out"),
        None => format!("lower `kv_cache_memory_bytes` to at most {allocatable}, or leave it out"),
    }
}

fn estimate(max_model_len: u32) -> String {
    if max_model_len == 0 {
        return String::new();
    }
    format!("Based on the available memory, the estimated maximum model length is {max_model_len}. ")
}
