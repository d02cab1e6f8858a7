//! Plans and chips the tests price: a mixture of experts with windows, the shipped catalog and the shipped coefficients.

use std::sync::LazyLock;

use blis_catalog::Catalog;
use blis_contracts::chip::Chip;
use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::part::{DensePrompts, Part};
use blis_contracts::plan::{
    Buffer, Dealing, FrontEndPlan, GraphPolicy, HostPlan, KernelImpl, KvGroup, KvSpan, Layout, LoweredLayer, PoolPlan, Primitive,
    PrimitiveShape, ResidentTensor, RowRange, RowSet, Start,
};
use blis_contracts::step::{Launch, PrefillRow, RankStep, StepShape};
use blis_contracts::units::{Blocks, BytesPerRank, Tokens};
use blis_kernel::{CostModel, RoutingBalance};
use blis_registry::Registry;

/// The chips the shipped registry covers.
pub(crate) const CHIPS: [&str; 9] = ["a100-sxm", "b200", "b300", "gb200-nvl72", "gb300-nvl72", "h100", "h200", "l40s", "rtx-pro-6000"];

/// A chip as the shipped catalog states it.
pub(crate) fn chip(name: &str) -> Chip {
    Catalog::embedded().chip(name).expect("the shipped catalog has the chip")
}

static MODELS: LazyLock<[CostModel; 9]> = LazyLock::new(|| {
    let registry = Registry::embedded();
    CHIPS.map(|name| CostModel::new(&chip(name), registry.chip(name).expect("the shipped registry is valid"), RoutingBalance::Uniform))
});

/// The cost model of a chip by the shipped registry.
pub(crate) fn model(chip_name: &str) -> &'static CostModel {
    let index = CHIPS.iter().position(|name| *name == chip_name).expect("a chip of the tests");
    &MODELS[index]
}

/// A class of layers under construction.
pub(crate) fn layer(index: u32, primitive: Primitive, kernel: &str, shape: PrimitiveShape, rows: RowSet) -> LoweredLayer {
    let (library, variant) = kernel.split_once('/').expect("library and variant");
    LoweredLayer {
        layer: index,
        stage: 0,
        primitive,
        kernel: KernelImpl::named(library, variant),
        shape,
        part: Part::Whole,
        rows,
        runs_for: RowRange::ALL,
        start: Start::Ordered,
    }
}

fn gemm(columns: u64, depth: u64) -> PrimitiveShape {
    PrimitiveShape::Gemm { columns, depth, format: MatmulFormat::BF16 }
}

fn attention(kv_group: u32, window: u32) -> PrimitiveShape {
    let kv_format = FormatName::Bf16;
    PrimitiveShape::Attention {
        query_heads: 16,
        kv_heads: 2,
        head_dim: 64,
        kv_group,
        window,
        chunk: 0,
        sinks: true,
        kv_format,
        dealing: Dealing::Evenly,
    }
}

const GATHERED: PrimitiveShape = PrimitiveShape::Gathered {
    query_heads: 4,
    head_dim: 256,
    entry_bytes: 584,
    window: 128,
    ratio: 4,
    top_k: 100,
    multiplied: FormatName::Bf16,
};

const SCORES: PrimitiveShape =
    PrimitiveShape::Scores { heads: 64, head_dim: 128, entry_bytes: 132, ratio: 4, top_k: 100, ranked: 200, multiplied: FormatName::Bf16 };

fn exchanged(primitive: Primitive, kernel: &str, (group, bytes_per_row): (u32, u64), rows: RowSet) -> LoweredLayer {
    layer(35, primitive, kernel, PrimitiveShape::Collective { group, bytes_per_row }, rows)
}

/// A mixture of experts with alternating windows on four ranks, as an engine would lower it.
pub(crate) fn mixture(hardware: &str) -> PoolPlan {
    let (attention_kernel, experts) = match chip(hardware).compute_capability.value {
        (9, 0) => (("flash-attn/fa3", "flash-attn/fa3"), "openai-triton/mxfp4"),
        (10, _) => (("flashinfer/trtllm-gen-prefill", "flashinfer/trtllm-gen-decode"), "flashinfer/trtllm-gen-moe"),
        _ => (("flash-attn/fa2", "flash-attn/fa2"), "marlin/moe"),
    };
    let mxfp4 = MatmulFormat { weights: FormatName::Mxfp4, activations: FormatName::Bf16 };
    let stream = |bytes_per_row| PrimitiveShape::Stream { bytes_per_row };
    let reduce = PrimitiveShape::Collective { group: 4, bytes_per_row: 2 * 2880 };
    let moe =
        PrimitiveShape::Moe { experts: 128, local_experts: 128, top_k: 4, hidden: 2880, intermediate: 720, gated: true, format: mxfp4 };
    let mut layers = vec![layer(0, Primitive::Embedding, "inductor/fused", stream(2 * 2 * 2880), RowSet::Tokens)];
    for index in 0..36 {
        let (group, window) = if index % 2 == 0 { (0, 128) } else { (1, 0) };
        layers.extend([
            layer(index, Primitive::Norm, "inductor/fused", stream(4 * 2880), RowSet::Tokens),
            layer(index, Primitive::Gemm, "cublas/linear", gemm(1280, 2880), RowSet::Tokens),
            layer(index, Primitive::Rope, "inductor/fused", stream(4 * 1152), RowSet::Tokens),
            layer(index, Primitive::AttentionPrefill, attention_kernel.0, attention(group, window), RowSet::Requests),
            layer(index, Primitive::AttentionDecode, attention_kernel.1, attention(group, window), RowSet::Requests),
            layer(index, Primitive::SelectionPrefill, "any/scores", SCORES, RowSet::Requests),
            layer(index, Primitive::SelectionDecode, "any/scores", SCORES, RowSet::Requests),
            layer(index, Primitive::SparsePrefill, "any/sparse", GATHERED, RowSet::Requests),
            layer(index, Primitive::SparseDecode, "any/sparse", GATHERED, RowSet::Requests),
            layer(index, Primitive::Gemm, "cublas/linear", gemm(2880, 1024), RowSet::Tokens),
            layer(index, Primitive::AllReduce, "vllm-csrc/custom-all-reduce", reduce, RowSet::Tokens),
            layer(index, Primitive::Gemm, "cublas/linear", gemm(128, 2880), RowSet::Tokens),
            layer(index, Primitive::MoeExperts, experts, moe, RowSet::Tokens),
        ]);
    }
    layers.extend([
        layer(35, Primitive::Activation, "inductor/fused", stream(6 * 2880), RowSet::Tokens),
        layer(35, Primitive::Gemm, "cublas/linear", gemm(50_272, 2880), RowSet::Sampled),
        exchanged(Primitive::AllGather, "nccl/all-gather", (4, 2 * 50_272), RowSet::Sampled),
        exchanged(Primitive::Send, "nccl/send", (2, 2 * 2880), RowSet::Tokens),
        exchanged(Primitive::AllToAll, "deepep/low-latency-dispatch", (2, 4 * 3000), RowSet::Tokens),
        layer(35, Primitive::ReduceScatter, "nccl/reduce-scatter", reduce, RowSet::Split),
        layer(35, Primitive::Activation, "inductor/fused", stream(2 * 2880), RowSet::Gathered),
        layer(
            35,
            Primitive::Sampling,
            "vllm-csrc/sampler",
            PrimitiveShape::Sampling { vocabulary: 201_088, trial_bytes: 2 },
            RowSet::Sampled,
        ),
    ]);
    PoolPlan {
        hardware: hardware.to_owned(),
        fabric: String::new(),
        model: "mixture".to_owned(),
        layout: Layout { tensor: 4, ..Layout::SINGLE },
        layers,
        dense_prompts: None,
        kv: [KvSpan::Window(128), KvSpan::All].map(|sees| kv_group(18, sees)).to_vec(),
        kv_budget: Vec::new(),
        kv_blocks: Blocks::ZERO,
        graphs: GraphPolicy { full: vec![1, 2, 4, 8, 16, 32, 64], piecewise: vec![1, 8, 64, 512], pieces: 37, eager_launches: 400 },
        host: HostPlan { overlapped: true, workers: 4 },
        front_end: FrontEndPlan { stream_interval: 1, processes: 1, tokenises: true, detokenises: true },
        weights: vec![ResidentTensor { name: "experts".to_owned(), count: 36, bytes: BytesPerRank::new(420_000_000) }],
        buffers: vec![Buffer { name: "workspace".to_owned(), bytes: BytesPerRank::new(64 << 20) }],
        profiling: StepShape { ranks: vec![prefill(8192, 0, Launch::Eager)], stage: 0 },
        in_flight: 2,
    }
}

/// The same with a layer of latent attention, experts that a second stream runs behind it, and prompts that attend densely where others
/// attend to picked tokens: one of everything that is priced.
pub(crate) fn everything(hardware: &str) -> PoolPlan {
    let format = MatmulFormat::BF16;
    let product = |columns, depth| PrimitiveShape::BatchedGemm { batch: 16, columns, depth, format };
    let latent = |kv_heads, key_dim, value_dim| PrimitiveShape::Latent {
        query_heads: 16,
        kv_heads,
        key_dim,
        value_dim,
        kv_group: 1,
        format: FormatName::Bf16,
    };
    let stream = PrimitiveShape::Stream { bytes_per_row: 2 * 576 };
    let more = [
        layer(36, Primitive::Gemm, "cublas/linear", gemm(16 * 256, 512), RowSet::Prefills),
        layer(36, Primitive::Activation, "torch/copy", stream, RowSet::Cached),
        layer(36, Primitive::LatentPrefill, "flash-attn/fa3", latent(16, 192, 128), RowSet::Requests),
        layer(36, Primitive::BatchedGemm, "cublas/batched", product(512, 128), RowSet::Decodes),
        layer(36, Primitive::LatentDecode, "flash-attn/fa3-mla-decode", latent(1, 576, 512), RowSet::Requests),
        layer(37, Primitive::Convolution, "triton/causal-conv1d-fn", stream, RowSet::Prefills),
        layer(
            37,
            Primitive::RecurrentPrefill,
            "any/rule",
            PrimitiveShape::Recurrent { heads: 64, state_elements: 1 << 14 },
            RowSet::Requests,
        ),
        layer(37, Primitive::RecurrentDecode, "any/rule", stream, RowSet::Decodes),
        layer(
            38,
            Primitive::RecurrentScan,
            "triton/ssd-chunk-scan",
            PrimitiveShape::Scan { bytes_per_token: 100_000, bytes_per_row: 12_000_000 },
            RowSet::Requests,
        ),
        layer(36, Primitive::Beside, "vllm/shared-experts-stream", PrimitiveShape::Traffic { bytes: 3 << 20 }, RowSet::Tokens),
    ];
    let parts = [
        LoweredLayer { part: Part::Readied, ..layer(39, Primitive::BatchedGemm, "cublas/batched", product(512, 128), RowSet::Tokens) },
        LoweredLayer { part: Part::Unreadied, ..layer(39, Primitive::Rope, "torch/copy", stream, RowSet::Tokens) },
        LoweredLayer { part: Part::Scored, ..layer(39, Primitive::Activation, "torch/copy", stream, RowSet::Tokens) },
        LoweredLayer { part: Part::Mixed, ..layer(39, Primitive::Activation, "torch/copy", stream, RowSet::Tokens) },
        LoweredLayer {
            part: Part::DensePrompts,
            ..layer(39, Primitive::LatentPrefill, "flash-attn/fa3", latent(16, 192, 128), RowSet::Requests)
        },
        LoweredLayer { part: Part::BesideDense, ..layer(39, Primitive::BatchedGemm, "cublas/batched", product(512, 128), RowSet::Tokens) },
        LoweredLayer { part: Part::Picking, ..layer(39, Primitive::SparsePrefill, "flashmla/sparse-mla", GATHERED, RowSet::Requests) },
    ];
    let mut plan = mixture(hardware);
    plan.layers[2].start = Start::Dependent;
    plan.layers.extend(more);
    plan.layers.extend(parts);
    plan.dense_prompts = Some(DensePrompts { generates_to: 128, ends_within: 40_000 });
    plan
}

fn kv_group(layers: u32, sees: KvSpan) -> KvGroup {
    let bytes = u64::from(layers) * 16 * 2 * 2 * 64 * 2;
    KvGroup { layers, tokens_per_block: Tokens::new(16), bytes_per_block: BytesPerRank::new(bytes), sees }
}

/// A step of decode requests alone.
pub(crate) fn decode(contexts: &[u32], padded_tokens: u32, launch: Launch) -> RankStep {
    let sampled = u32::try_from(contexts.len()).expect("a small batch");
    RankStep { decode: contexts.to_vec(), prefill: Vec::new(), sampled, padded_tokens, launch }
}

/// A step of one prompt's chunk alone.
pub(crate) fn prefill(query: u32, context: u32, launch: Launch) -> RankStep {
    RankStep { decode: Vec::new(), prefill: vec![PrefillRow { query, context }], sampled: 1, padded_tokens: query, launch }
}

/// A step of decode requests and a chunk.
pub(crate) fn mixed(contexts: &[u32], query: u32, context: u32) -> RankStep {
    let tokens = u32::try_from(contexts.len()).expect("a small batch");
    RankStep {
        decode: contexts.to_vec(),
        prefill: vec![PrefillRow { query, context }],
        sampled: tokens + 1,
        padded_tokens: (tokens + query).next_multiple_of(8),
        launch: Launch::Piecewise,
    }
}

/// A step of one rank.
pub(crate) fn step(rank: RankStep) -> StepShape {
    StepShape { ranks: vec![rank], stage: 0 }
}
