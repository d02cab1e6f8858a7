//! Which kernel sums over the ranks that share a matrix, gathers their parts or leaves each its own, by the size of what travels.
//!
//! upstream: vllm `distributed/device_communicators/cuda_communicator.py::CudaCommunicator.all_reduce`, `distributed/device_communicators/all_reduce_utils.py`
//! upstream: vllm `compilation/passes/fusion/allreduce_rms_fusion.py::AllReduceFusionPass.is_applicable_for_range`
//!
//! Upstream asks its communicators in turn whether they take a tensor of that size; the answers become ranges of rows. FlashInfer's
//! workspace is taken to hold what it was sized for. Over several nodes vLLM's own all-reduce is out, FlashInfer's and symmetric memory
//! need links that join them, and NCCL is left where there are none. Links no faster than the one to the host are taken for that one.
//! Left out: that vLLM's own all-reduce still serves two ranks on two nodes of one domain.

use blis_contracts::plan::RowRange;

use super::former::Former;
use super::names::{
    CUSTOM_ALL_REDUCE, FLASHINFER_ALL_REDUCE, KernelName, LAMPORT_ALL_GATHER, LAMPORT_REDUCE_SCATTER, MULTIMEM_REDUCE_SCATTER,
    NCCL_ALL_GATHER, NCCL_ALL_REDUCE, NCCL_REDUCE_SCATTER, NCCL_SYMMETRIC_ALL_REDUCE, SYMMETRIC_MEMORY,
};
use super::parts;
use super::site::Site;
use crate::config::FlashinferAllreduce;

const MIB: u64 = 1 << 20;

/// Bytes of vLLM's all-reduce buffer. upstream: vllm `distributed/device_communicators/custom_all_reduce.py::CustomAllreduce.__init__`
pub(super) const CUSTOM_BUFFER_BYTES: u64 = 8 * MIB;

/// Sizes up to which a communicator is used, by compute capability and ranks.
struct Limit {
    capability: (u32, u32),
    ranks: u32,
    /// `CUSTOM_ALL_REDUCE_MAX_SIZES`: exclusive, and only where symmetric memory works.
    custom: u64,
    /// `SYMM_MEM_ALL_REDUCE_MAX_SIZES`: inclusive; 0 where it serves no such ranks.
    symmetric: u64,
    /// `FI_ALLREDUCE_FUSION_MAX_SIZE_MB`: inclusive; 0 where FlashInfer has no kernel.
    flashinfer: u64,
}

const LIMITS: &[Limit] = &[
    Limit { capability: (9, 0), ranks: 2, custom: 64 * MIB, symmetric: 64 * MIB, flashinfer: 64 * MIB },
    Limit { capability: (9, 0), ranks: 4, custom: 32 * MIB, symmetric: 32 * MIB, flashinfer: 2 * MIB },
    Limit { capability: (9, 0), ranks: 6, custom: MIB / 2, symmetric: 64 * MIB, flashinfer: 0 },
    Limit { capability: (9, 0), ranks: 8, custom: MIB / 4, symmetric: 64 * MIB, flashinfer: MIB / 2 },
    Limit { capability: (10, 0), ranks: 2, custom: 2 * MIB, symmetric: 8 * MIB, flashinfer: 64 * MIB },
    Limit { capability: (10, 0), ranks: 4, custom: 2 * MIB, symmetric: 32 * MIB, flashinfer: 32 * MIB },
    Limit { capability: (10, 0), ranks: 6, custom: MIB, symmetric: 128 * MIB, flashinfer: 0 },
    Limit { capability: (10, 0), ranks: 8, custom: MIB, symmetric: 128 * MIB, flashinfer: MIB },
    Limit { capability: (10, 0), ranks: 16, custom: 0, symmetric: 0, flashinfer: 64 * MIB },
    Limit { capability: (10, 3), ranks: 2, custom: 4 * MIB, symmetric: 4 * MIB, flashinfer: 64 * MIB },
    Limit { capability: (10, 3), ranks: 4, custom: 4 * MIB, symmetric: 32 * MIB, flashinfer: 64 * MIB },
    Limit { capability: (10, 3), ranks: 6, custom: 8 * MIB, symmetric: 32 * MIB, flashinfer: 0 },
    Limit { capability: (10, 3), ranks: 8, custom: 4 * MIB, symmetric: 64 * MIB, flashinfer: 4 * MIB },
    Limit { capability: (10, 3), ranks: 16, custom: 0, symmetric: 0, flashinfer: 64 * MIB },
];

/// Sizes below which FlashInfer's kernels for links between nodes were tuned, by compute capability, ranks and nodes:
/// `FI_MNNVL_ALLREDUCE_MAX_SIZE_MB`.
const FLASHINFER_BETWEEN_NODES: &[((u32, u32), u32, u32, u64)] =
    &[((10, 3), 4, 1, 80 * MIB), ((10, 3), 8, 1, 64 * MIB), ((10, 3), 8, 2, 64 * MIB), ((10, 3), 16, 4, 8 * MIB)];

/// Ranks vLLM's all-reduce serves.
const CUSTOM_RANKS: [u32; 4] = [2, 4, 6, 8];

/// Sizes between which NCCL's symmetric all-reduce leaves the field to others, by ranks: `NCCL_SYMM_MEM_ALL_REDUCE_CONFIG`.
const NCCL_SYMMETRIC_GAPS: &[(u32, u64, u64)] = &[(4, 16 << 10, 512 << 10), (8, 16 << 10, 128 << 10)];

/// Rows for which all-reduce and norm run as one kernel; none where the pass is off or has no kernel.
pub(super) fn fused_rows(site: &Site<'_>) -> Option<RowRange> {
    let passes = &site.resolved.compilation.passes;
    if !flashinfer_reaches(site) {
        return None;
    }
    if site.fuses_sums_itself() {
        // upstream: vllm `models/common/ops/fused_allreduce_rms_norm.py`, `model_executor/layers/fused_allreduce_gemma_rms_norm.py::_can_use_flashinfer`
        let bytes = limit(site).map(|limit| limit.flashinfer).filter(|&most| most > 0 && site.ranks > 1)?;
        return Some(RowRange { least: 0, most: rows(bytes / (site.model.hidden_size * site.element_bytes())) });
    }
    let most = passes.allreduce_fusion_max_tokens.filter(|_| passes.fuse_allreduce_rms && site.compiled() && site.ranks > 1)?;
    let most = if Former::SumsWithinShare.ran(site) { most / u64::from(site.ranks) } else { most };
    let most = most.min(site.resolved.scheduler.max_num_batched_tokens);
    (most > 0).then(|| RowRange { least: 0, most: rows(most) })
}

/// The kernels that sum rows of some bytes, each with the row counts it is used for, ascending.
pub(super) fn all_reduce(site: &Site<'_>, bytes_per_row: u64) -> Vec<(RowRange, KernelName)> {
    let mut edges: Vec<u64> =
        communicators(site).iter().flat_map(|c| [c.above.map(|bytes| bytes / bytes_per_row), c.most(bytes_per_row)]).flatten().collect();
    edges.push(u64::from(u32::MAX));
    edges.sort_unstable();
    edges.dedup();
    let mut pieces: Vec<(RowRange, KernelName)> = Vec::new();
    let mut least = 0;
    for edge in edges {
        let most = rows(edge);
        if most < least {
            continue;
        }
        let bytes = u64::from(most) * bytes_per_row;
        let kernel = communicators(site).iter().find(|c| c.takes(bytes)).expect("NCCL takes every size").kernel;
        match pieces.last_mut() {
            Some((range, last)) if *last == kernel => range.most = most,
            _ => pieces.push((RowRange { least, most }, kernel)),
        }
        least = most.saturating_add(1);
    }
    pieces
}

/// The kernels that sum one row's few values in 32 bits, which symmetric memory does not take, and vLLM's own kernel not if they are an odd
/// number of 8 bytes. Left out: odd counts above one, which captured graphs do not have.
/// upstream: vllm `distributed/device_communicators/custom_all_reduce.py::CustomAllreduce.should_custom_ar`, `symm_mem.py::SymmMemCommunicator.should_use_symm_mem`
pub(super) fn all_reduce_of_squares(site: &Site<'_>, bytes_per_row: u64) -> Vec<(RowRange, KernelName)> {
    let Some(most) = custom_most(site).map(|bytes| rows(bytes / bytes_per_row)).filter(|&most| most > 1) else {
        return vec![(RowRange::ALL, NCCL_ALL_REDUCE)];
    };
    vec![
        (RowRange { least: 0, most: 1 }, NCCL_ALL_REDUCE),
        (RowRange { least: 2, most }, CUSTOM_ALL_REDUCE),
        (RowRange { least: most + 1, most: u32::MAX }, NCCL_ALL_REDUCE),
    ]
}

/// Bytes of a rank's part up to which vLLM's own kernel gathers: `_DEFAULT_MNNVL_ALL_GATHER_MAX_SIZES`.
const fn gathered_bytes(ranks: u32) -> u64 {
    match ranks {
        2 => 8 * MIB,
        4 => 4 * MIB,
        _ => 2 * MIB,
    }
}

/// Bytes of what is summed up to which vLLM's own kernel scatters: `_DEFAULT_MNNVL_REDUCE_SCATTER_MAX_SIZE`.
const LAMPORT_SCATTER_BYTES: u64 = 16 * MIB;

/// The same for the one that sums within the switch: `_DEFAULT_MNNVL_MULTIMEM_REDUCE_SCATTER_MAX_SIZE`.
const MULTIMEM_SCATTER_BYTES: u64 = 64 * MIB;

/// Ranks and compute capabilities that one serves: `_supports_mnnvl_multimem_reduce_scatter`.
const MULTIMEM_RANKS: [u32; 3] = [2, 4, 8];
const MULTIMEM_CAPABILITIES: [(u32, u32); 2] = [(10, 0), (10, 3)];

/// The kernels that gather parts of some bytes a row, each with the rows of a part it is used for, ascending.
/// upstream: vllm `distributed/device_communicators/custom_all_reduce.py::CustomAllreduce.should_custom_all_gather`
pub(super) fn all_gather(site: &Site<'_>, bytes_per_row: u64) -> Vec<(RowRange, KernelName)> {
    let own = exchanges_parts(site).then_some((gathered_bytes(site.ranks), LAMPORT_ALL_GATHER));
    up_to(own, bytes_per_row, NCCL_ALL_GATHER)
}

/// The kernels that sum and leave each rank its part of some bytes a row, each with the rows of a part it is used for, ascending.
/// upstream: vllm `distributed/device_communicators/custom_all_reduce.py::CustomAllreduce._select_reduce_scatter_backend`
pub(super) fn reduce_scatter(site: &Site<'_>, bytes_per_row: u64) -> Vec<(RowRange, KernelName)> {
    let in_switch = MULTIMEM_CAPABILITIES.contains(&site.capability) && MULTIMEM_RANKS.contains(&site.ranks);
    let own = [(LAMPORT_SCATTER_BYTES, LAMPORT_REDUCE_SCATTER)]
        .into_iter()
        .chain(in_switch.then_some((MULTIMEM_SCATTER_BYTES, MULTIMEM_REDUCE_SCATTER)))
        .filter(|_| exchanges_parts(site));
    up_to(own, u64::from(site.ranks) * bytes_per_row, NCCL_REDUCE_SCATTER)
}

/// Kernels of ascending limits in bytes, and the one that takes over from the last.
fn up_to(limits: impl IntoIterator<Item = (u64, KernelName)>, bytes_per_row: u64, last: KernelName) -> Vec<(RowRange, KernelName)> {
    let mut pieces = Vec::new();
    let mut least = 0;
    for (bytes, kernel) in limits {
        let most = rows(bytes / bytes_per_row);
        pieces.push((RowRange { least, most }, kernel));
        least = most + 1;
    }
    pieces.push((RowRange { least, most: u32::MAX }, last));
    pieces
}

/// Whether a model asks for vLLM's own kernels that exchange parts, and they serve its ranks. They write through a switch that copies what it is sent,
/// which links have from Hopper on, and reach the nodes of a domain from Blackwell on, then sixteen ranks as well.
/// upstream: vllm `distributed/device_communicators/custom_all_reduce.py::CustomAllreduce.__init__`, `_init_mnnvl_buffer`
fn exchanges_parts(site: &Site<'_>) -> bool {
    let first = if site.crosses_nodes() { 10 } else { 9 };
    let serves = CUSTOM_RANKS.contains(&site.ranks) || (site.ranks == 16 && site.crosses_nodes());
    parts::has_own_collectives(site)
        && !site.resolved.kernels.disable_custom_all_reduce
        && site.has_fast_links()
        && site.capability.0 >= first
        && !site.crosses_domains()
        && serves
}

/// Bytes of buffers that communicators keep for their life.
pub(super) fn buffer_bytes(site: &Site<'_>) -> Vec<(&'static str, u64)> {
    if site.ranks < 2 {
        return Vec::new();
    }
    let mut buffers = Vec::new();
    if custom_most(site).is_some() {
        // Results in flight, the buffer eager calls copy through (as large as the largest collective it serves), and the registry.
        buffers.push(("custom all-reduce", CUSTOM_BUFFER_BYTES + 16 * MIB + 8 * MIB));
    }
    if let Some(limit) = limit(site) {
        if uses_symmetric(site) && limit.symmetric > 0 {
            buffers.push(("symmetric-memory all-reduce", limit.symmetric));
        }
        let (fused, alone) = (fused_rows(site).is_some(), flashinfer_most(site));
        if fused || alone.is_some() {
            let step = site.resolved.scheduler.max_num_batched_tokens * site.model.hidden_size * site.element_bytes();
            // The pass's sum is no larger than a step, sizes that were tuned are taken whole.
            let most = limit.flashinfer.min(step).max(alone.filter(|&most| !fused || most > limit.flashinfer).unwrap_or(0));
            // The kernel's slots rotate through three, which hold two stages between nodes.
            let stages = if takes_links_between_nodes(site) { 2 } else { 1 };
            buffers.push(("FlashInfer all-reduce", 3 * stages * most));
        }
    }
    buffers
}

/// A communicator and the sizes it takes, in bytes.
struct Communicator {
    kernel: KernelName,
    /// Sizes up to this are taken.
    up_to: Option<u64>,
    /// Sizes above this are taken too.
    above: Option<u64>,
}

impl Communicator {
    fn takes(&self, bytes: u64) -> bool {
        self.up_to.is_none_or(|most| bytes <= most) || self.above.is_some_and(|least| bytes > least)
    }

    /// The greatest number of rows within `up_to`.
    fn most(&self, bytes_per_row: u64) -> Option<u64> {
        self.up_to.map(|bytes| bytes / bytes_per_row)
    }
}

/// The communicators in the order upstream asks them.
fn communicators(site: &Site<'_>) -> Vec<Communicator> {
    let settings = &site.resolved.kernels;
    let below = |kernel, most| Communicator { kernel, up_to: Some(most), above: None };
    let symmetric = limit(site).map(|limit| limit.symmetric).filter(|&most| most > 0 && uses_symmetric(site));
    let gap = NCCL_SYMMETRIC_GAPS.iter().find(|(ranks, ..)| *ranks == site.ranks && settings.use_nccl_symm_mem && !site.crosses_domains());
    let mut list = Vec::new();
    // FlashInfer is asked before NCCL's symmetric memory.
    list.extend(flashinfer_most(site).map(|most| below(FLASHINFER_ALL_REDUCE, most)));
    list.extend(gap.map(|&(_, lower, upper)| Communicator {
        kernel: NCCL_SYMMETRIC_ALL_REDUCE,
        up_to: Some(lower),
        above: Some(upper - 1),
    }));
    list.extend(custom_most(site).map(|most| below(CUSTOM_ALL_REDUCE, most)));
    list.extend(symmetric.map(|most| below(SYMMETRIC_MEMORY, most)));
    list.push(Communicator { kernel: NCCL_ALL_REDUCE, up_to: None, above: None });
    list
}

fn limit(site: &Site<'_>) -> Option<&'static Limit> {
    LIMITS.iter().find(|limit| limit.capability == site.capability && limit.ranks == site.ranks)
}

/// Bytes up to which FlashInfer's all-reduce serves on its own, where it does.
/// upstream: vllm `distributed/device_communicators/flashinfer_all_reduce.py::FlashInferAllReduce.__init__`
fn flashinfer_most(site: &Site<'_>) -> Option<u64> {
    let usual = limit(site).map(|limit| limit.flashinfer).filter(|&most| uses_flashinfer(site) && most > 0)?;
    let ran = (site.capability, site.ranks, site.nodes());
    let tuned = FLASHINFER_BETWEEN_NODES.iter().find(|&&(capability, ranks, nodes, _)| (capability, ranks, nodes) == ran);
    Some(tuned.filter(|_| takes_links_between_nodes(site)).map_or(usual, |(.., below)| below - 1))
}

/// Whether FlashInfer sums by its kernels for links between nodes, whose buffers every switch on one node serves too.
/// upstream: vllm `distributed/device_communicators/flashinfer_all_reduce.py::_resolve_fi_ar_backend`
fn takes_links_between_nodes(site: &Site<'_>) -> bool {
    site.resolved.kernels.flashinfer_allreduce_backend != FlashinferAllreduce::Trtllm
}

/// Whether FlashInfer's kernels reach every rank: over several nodes only those for links between them, which need Blackwell.
/// upstream: vllm `distributed/device_communicators/flashinfer_all_reduce.py::_resolve_fi_ar_backend`, `_create_workspace`
fn flashinfer_reaches(site: &Site<'_>) -> bool {
    !site.crosses_nodes() || (site.capability.0 >= 10 && !site.crosses_domains())
}

fn uses_flashinfer(site: &Site<'_>) -> bool {
    site.resolved.kernels.allreduce_use_flashinfer && flashinfer_reaches(site)
}

/// Whether memory that all ranks map is there, which a domain of links ends.
/// upstream: vllm `distributed/device_communicators/symm_mem.py::SymmMemCommunicator`
fn uses_symmetric(site: &Site<'_>) -> bool {
    site.resolved.kernels.allreduce_use_symm_mem && !site.crosses_domains()
}

/// Whether vLLM's own communicator serves the ranks. Accelerators that reach each other over `PCIe` alone it serves in pairs.
fn custom_serves(site: &Site<'_>) -> bool {
    let joined = site.ranks == 2 || site.has_fast_links();
    !site.resolved.kernels.disable_custom_all_reduce && !site.crosses_nodes() && CUSTOM_RANKS.contains(&site.ranks) && joined
}

/// The greatest size vLLM's all-reduce takes: below its buffer, and below the table's limit where symmetric memory may take over.
fn custom_most(site: &Site<'_>) -> Option<u64> {
    if !custom_serves(site) {
        return None;
    }
    let limited = limit(site).filter(|_| uses_symmetric(site)).map_or(CUSTOM_BUFFER_BYTES, |limit| limit.custom);
    Some(limited.min(CUSTOM_BUFFER_BYTES) - 1)
}

fn rows(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
