//! Every kernel the tables can name, by the library it ships in and that library's word for it.
//!
//! Coefficients are scoped by these names. A name added here appears in `kernel_impls.json`, which a test keeps in step.

use blis_contracts::plan::KernelImpl;

/// A kernel's library and variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelName {
    /// The library it ships in.
    pub library: &'static str,
    /// The library's own name of it.
    pub variant: &'static str,
}

impl KernelName {
    /// The key coefficients are looked up by. No release states a hash of a kernel's code, so none is given.
    pub fn to_impl(self) -> KernelImpl {
        KernelImpl::named(self.library, self.variant)
    }
}

macro_rules! kernels {
    ($($(#[$doc:meta])+ $name:ident = $library:literal / $variant:literal;)+) => {
        $($(#[$doc])+ pub(super) const $name: KernelName = KernelName { library: $library, variant: $variant };)+

        /// Every kernel the tables can name.
        pub const KERNELS: &[KernelName] = &[$($name),+];
    };
}

kernels! {
    /// PyTorch's linear, which calls cuBLAS.
    CUBLAS_LINEAR = "cublas" / "linear";
    /// vLLM's CUTLASS product of 8-bit floats.
    CUTLASS_FP8 = "cutlass" / "scaled-mm-fp8";
    /// vLLM's CUTLASS product of block-scaled 8-bit floats.
    CUTLASS_FP8_BLOCK = "cutlass" / "fp8-block";
    /// vLLM's CUTLASS product of NVFP4.
    CUTLASS_NVFP4 = "cutlass" / "nvfp4";
    /// PyTorch's scaled product of 8-bit floats.
    TORCH_FP8 = "torch" / "scaled-mm-fp8";
    /// FlashInfer's product of 8-bit floats.
    FLASHINFER_FP8 = "flashinfer" / "scaled-mm-fp8";
    /// FlashInfer's product for few rows of block-scaled 8-bit floats.
    FLASHINFER_SWAP_AB = "flashinfer" / "swap-ab-fp8-block";
    /// FlashInfer's CuTe DSL product of bfloat16.
    FLASHINFER_CUTEDSL_BF16 = "flashinfer" / "cutedsl-bf16";
    /// FlashInfer's CuTe DSL product of NVFP4.
    FLASHINFER_CUTEDSL_NVFP4 = "flashinfer" / "cutedsl-nvfp4";
    /// FlashInfer's CUTLASS product of NVFP4.
    FLASHINFER_CUTLASS_NVFP4 = "flashinfer" / "cutlass-nvfp4";
    /// FlashInfer's TensorRT-LLM product of NVFP4.
    FLASHINFER_TRTLLM_NVFP4 = "flashinfer" / "trtllm-gen-nvfp4";
    /// FlashInfer's cuDNN product of NVFP4.
    FLASHINFER_CUDNN_NVFP4 = "flashinfer" / "cudnn-nvfp4";
    /// FlashInfer's CuTe DSL product of 8-bit floats with block scales.
    FLASHINFER_CUTEDSL_MXFP8 = "flashinfer" / "cutedsl-mxfp8";
    /// FlashInfer's CUTLASS product of 8-bit floats with block scales.
    FLASHINFER_CUTLASS_MXFP8 = "flashinfer" / "cutlass-mxfp8";
    /// FlashInfer's TensorRT-LLM product of 8-bit floats with block scales.
    FLASHINFER_TRTLLM_MXFP8 = "flashinfer" / "trtllm-gen-mxfp8";
    /// `DeepGEMM`'s product of block-scaled 8-bit floats.
    DEEPGEMM_FP8_BLOCK = "deepgemm" / "fp8-block";
    /// vLLM's Triton product of block-scaled 8-bit floats.
    TRITON_FP8_BLOCK = "triton" / "fp8-block";
    /// vLLM's product of few rows with a router in 32 bits.
    CSRC_ROUTER = "vllm-csrc" / "fp32-router-gemm";
    /// vLLM's CuTe DSL product with a router in 32 bits, as three products of bfloat16.
    CUTEDSL_ROUTER = "vllm-cutedsl" / "bf16x3-router-gemm";
    /// cuBLAS on operands of 32 bits of which tensor cores read 19.
    CUBLAS_LINEAR_TF32 = "cublas" / "linear-tf32";
    /// Marlin's product of narrow weights with 16-bit activations.
    MARLIN_LINEAR = "marlin" / "linear";
    /// Humming's product of narrow weights with 16-bit activations.
    HUMMING_LINEAR = "humming" / "linear";
    /// FlashAttention 2 in vLLM's build.
    FLASH_ATTN_2 = "flash-attn" / "fa2";
    /// FlashAttention 3 in vLLM's build.
    FLASH_ATTN_3 = "flash-attn" / "fa3";
    /// What shares out the blocks of its requests.
    FLASH_ATTN_SHARE_OUT = "flash-attn" / "fa3-share-out";
    /// FlashAttention 4.
    FLASH_ATTN_4 = "flash-attn" / "fa4";
    /// TensorRT-LLM's prompt attention in FlashInfer.
    TRTLLM_PREFILL = "flashinfer" / "trtllm-gen-prefill";
    /// TensorRT-LLM's decode attention in FlashInfer.
    TRTLLM_DECODE = "flashinfer" / "trtllm-gen-decode";
    /// XQA's decode attention in FlashInfer.
    XQA_DECODE = "flashinfer" / "xqa-decode";
    /// FlashInfer's own prompt attention.
    FLASHINFER_PREFILL = "flashinfer" / "fa2-prefill";
    /// FlashInfer's own prompt attention on Hopper.
    FLASHINFER_PREFILL_HOPPER = "flashinfer" / "fa3-prefill";
    /// FlashInfer's own decode attention.
    FLASHINFER_DECODE = "flashinfer" / "fa2-decode";
    /// TensorRT-LLM's latent decode attention in FlashInfer.
    TRTLLM_MLA_DECODE = "flashinfer" / "trtllm-gen-mla-decode";
    /// TensorRT-LLM's attention of latent prompts in FlashInfer.
    TRTLLM_MLA_PREFILL = "flashinfer" / "trtllm-gen-mla-prefill";
    /// FlashInfer's CUTLASS attention of latent prompts.
    CUTLASS_MLA_PREFILL = "flashinfer" / "cutlass-mla-prefill";
    /// vLLM's CUTLASS latent decode attention.
    CUTLASS_MLA_DECODE = "cutlass" / "mla-decode";
    /// FlashAttention 3's latent decode attention.
    FLASH_ATTN_MLA_DECODE = "flash-attn" / "fa3-mla-decode";
    /// FlashMLA's latent decode attention.
    FLASHMLA_DECODE = "flashmla" / "mla-decode";
    /// vLLM's Triton latent decode attention.
    TRITON_MLA_DECODE = "triton" / "mla-decode";
    /// `TokenSpeed`'s latent decode attention.
    TOKENSPEED_MLA_DECODE = "tokenspeed" / "mla-decode";
    /// `TokenSpeed`'s attention of latent prompts.
    TOKENSPEED_MLA_PREFILL = "tokenspeed" / "mla-prefill";
    /// PyTorch's batched product, which calls cuBLAS.
    CUBLAS_BATCHED = "cublas" / "batched";
    /// vLLM's product of few rows by the down projections of latent attention.
    CSRC_FUSED_A = "vllm-csrc" / "dsv3-fused-a";
    /// vLLM's gathering of cached latent vectors.
    CSRC_MLA_GATHER = "vllm-csrc" / "gather-mla-cache";
    /// PyTorch's sum of two tensors.
    TORCH_ADD = "torch" / "add";
    /// Whatever kernels shared experts run on a stream of their own.
    SHARED_STREAM = "vllm" / "shared-experts-stream";
    /// Projections of one input on several streams.
    PROJECTION_STREAMS = "vllm" / "projection-streams";
    /// PyTorch's kernels of one arithmetic operation each.
    TORCH_ELEMENTWISE = "torch" / "elementwise";
    /// PyTorch's copies of tensors and parts of them.
    TORCH_COPY = "torch" / "copy";
    /// vLLM's Triton decode attention to the blocks an indexer picked.
    TRITON_MSA_DECODE = "triton" / "msa-decode";
    /// vLLM's Triton prompt attention to such blocks.
    TRITON_MSA_PREFILL = "triton" / "msa-prefill";
    /// vLLM's Triton scores of blocks for decodes, and their choice.
    TRITON_MSA_INDEX_DECODE = "triton" / "msa-index-decode";
    /// vLLM's Triton scores of blocks for prompts, and their choice.
    TRITON_MSA_INDEX_PREFILL = "triton" / "msa-index-prefill";
    /// `MiniMax`'s CUTLASS decode attention to such blocks.
    FMHA_MSA_DECODE = "fmha-sm100" / "msa-decode";
    /// `MiniMax`'s CUTLASS prompt attention to such blocks.
    FMHA_MSA_PREFILL = "fmha-sm100" / "msa-prefill";
    /// vLLM's CuTe DSL scores of blocks for decodes, and their choice.
    CUTEDSL_MSA_INDEX_DECODE = "cutedsl" / "msa-index-decode";
    /// `MiniMax`'s CUTLASS scores of blocks for prompts, and their choice.
    FMHA_MSA_INDEX_PREFILL = "fmha-sm100" / "msa-index-prefill";
    /// vLLM's Triton attention.
    TRITON_ATTENTION = "triton" / "unified-attention";
    /// PyTorch's flex attention.
    FLEX_ATTENTION = "torch" / "flex-attention";
    /// FlashMLA's decode attention to listed entries as they are cached.
    FLASHMLA_SPARSE_DECODE = "flashmla" / "sparse-decode";
    /// FlashMLA's attention of prompts to listed entries, gathered and widened first.
    FLASHMLA_SPARSE_PREFILL = "flashmla" / "sparse-prefill";
    /// FlashMLA's latent attention to listed tokens in 16 bits.
    FLASHMLA_SPARSE_MLA = "flashmla" / "sparse-mla";
    /// FlashMLA's latent attention to listed tokens as they are cached in 8 bits.
    FLASHMLA_SPARSE_MLA_FP8 = "flashmla" / "sparse-mla-fp8";
    /// TensorRT-LLM's latent attention to listed tokens in FlashInfer.
    TRTLLM_SPARSE_MLA = "flashinfer" / "trtllm-gen-sparse-mla";
    /// FlashInfer's latent attention to listed tokens on consumer Blackwell.
    FLASHINFER_SPARSE_MLA_SM120 = "flashinfer" / "sparse-mla-sm120";
    /// FlashInfer's latent attention to listed tokens on Hopper.
    FLASHINFER_SPARSE_MLA_SM90 = "flashinfer" / "fa3-sparse-mla";
    /// FlashAttention 3's latent attention to listed tokens.
    FLASH_ATTN_SPARSE_MLA = "flash-attn" / "fa3-sparse-mla";
    /// `DeepGEMM`'s scores of cached entries, with vLLM's selection of the best.
    DEEPGEMM_PAGED_SCORES = "deepgemm" / "paged-scores";
    /// `DeepGEMM`'s scores of gathered entries, with vLLM's selection of the best.
    DEEPGEMM_SCORES = "deepgemm" / "scores";
    /// `DeepGEMM`'s scores of the cached keys of tokens, with vLLM's selection of the best.
    DEEPGEMM_PAGED_TOKEN_SCORES = "deepgemm" / "paged-token-scores";
    /// `DeepGEMM`'s scores of the gathered keys of tokens, with vLLM's selection of the best.
    DEEPGEMM_TOKEN_SCORES = "deepgemm" / "token-scores";
    /// vLLM's Triton convolution of prompts.
    TRITON_CAUSAL_CONV = "triton" / "causal-conv1d-fn";
    /// vLLM's Triton convolution of decodes.
    TRITON_CAUSAL_CONV_UPDATE = "triton" / "causal-conv1d-update";
    /// vLLM's Triton norms of queries and keys and the gates, behind the convolution of prompts.
    TRITON_POST_CONV = "triton" / "gdn-post-conv";
    /// vLLM's Triton gated delta rule of decodes.
    TRITON_PACKED_DELTA = "triton" / "packed-recurrent-delta-rule";
    /// vLLM's Triton gated delta rule over chunks of prompts.
    TRITON_CHUNK_DELTA = "triton" / "chunk-gated-delta-rule";
    /// FlashInfer's gated delta rule over chunks of prompts.
    FLASHINFER_GDN_PREFILL = "flashinfer" / "gdn-prefill";
    /// vLLM's Triton kernels of a Mamba-2 scan over chunks of prompts.
    TRITON_SSD_SCAN = "triton" / "ssd-chunk-scan";
    /// vLLM's Triton update of Mamba-2 states by decodes.
    TRITON_SELECTIVE_UPDATE = "triton" / "selective-state-update";
    /// PyTorch's operations of a norm of groups with a gate.
    TORCH_GATED_NORM = "torch" / "gated-group-norm";
    /// vLLM's squared activation.
    CSRC_RELU_SQUARED = "vllm-csrc" / "relu-squared";
    /// vLLM's Triton squared activation with its quantisation.
    TRITON_RELU_SQUARED_QUANTISE = "triton" / "relu-squared-quantise";
    /// vLLM's CuTe DSL product of few rows with a router in 16 bits, written in 32.
    CUTEDSL_FEW_ROWS_ROUTER = "vllm-cutedsl" / "few-rows-router-gemm";
    /// vLLM's Triton norm of heads with a gate.
    TRITON_GATED_NORM = "triton" / "rms-norm-gated";
    /// vLLM's Triton experts.
    TRITON_EXPERTS = "triton" / "fused-moe";
    /// `OpenAI`'s Triton experts for mxfp4.
    OPENAI_TRITON_MXFP4 = "openai-triton" / "mxfp4";
    /// The same with routing and activation as kernels of their own.
    OPENAI_TRITON_MXFP4_UNFUSED = "openai-triton" / "mxfp4-unfused";
    /// TensorRT-LLM's experts in FlashInfer.
    TRTLLM_EXPERTS = "flashinfer" / "trtllm-gen-moe";
    /// The same at the tiles that its launcher takes where nothing was tuned at start-up, of which they are not the fastest for 4-bit weights.
    TRTLLM_UNTUNED_EXPERTS = "flashinfer" / "trtllm-gen-moe-untuned";
    /// CUTLASS experts in FlashInfer.
    FLASHINFER_CUTLASS_EXPERTS = "flashinfer" / "cutlass-moe";
    /// CuTe DSL experts in FlashInfer.
    FLASHINFER_CUTEDSL_EXPERTS = "flashinfer" / "cutedsl-moe";
    /// `DeepGEMM` experts.
    DEEPGEMM_EXPERTS = "deepgemm" / "moe";
    /// `DeepGEMM` experts that read tokens from slots.
    DEEPGEMM_SLOT_EXPERTS = "deepgemm" / "masked-moe";
    /// vLLM's Triton experts that read tokens from slots.
    TRITON_SLOT_EXPERTS = "triton" / "batched-moe";
    /// vLLM's CUTLASS experts.
    CUTLASS_EXPERTS = "cutlass" / "moe";
    /// Marlin experts.
    MARLIN_EXPERTS = "marlin" / "moe";
    /// Humming experts.
    HUMMING_EXPERTS = "humming" / "moe";
    /// vLLM's own all-reduce over peer memory.
    CUSTOM_ALL_REDUCE = "vllm-csrc" / "custom-all-reduce";
    /// NCCL's all-reduce.
    NCCL_ALL_REDUCE = "nccl" / "all-reduce";
    /// NCCL's all-reduce over symmetric memory.
    NCCL_SYMMETRIC_ALL_REDUCE = "nccl" / "symmetric-all-reduce";
    /// PyTorch's all-reduce over symmetric memory.
    SYMMETRIC_MEMORY = "torch" / "symmetric-memory";
    /// FlashInfer's all-reduce alone.
    FLASHINFER_ALL_REDUCE = "flashinfer" / "all-reduce";
    /// FlashInfer's all-reduce with the norm that follows it.
    FUSED_ALL_REDUCE_NORM = "flashinfer" / "fused-all-reduce-norm";
    /// vLLM's norm of all query heads and all key heads with its sum over the ranks.
    CSRC_QK_NORM_ALL_REDUCE = "vllm-csrc" / "minimax-qk-norm-all-reduce";
    /// NCCL's all-gather.
    NCCL_ALL_GATHER = "nccl" / "all-gather";
    /// vLLM's own gathering of parts, whose numbers say themselves that they have come.
    LAMPORT_ALL_GATHER = "vllm-csrc" / "lamport-all-gather";
    /// vLLM's own sum of which each rank keeps a part, by the same exchange.
    LAMPORT_REDUCE_SCATTER = "vllm-csrc" / "lamport-reduce-scatter";
    /// vLLM's own sum of many bytes within the switch, of which each rank keeps a part.
    MULTIMEM_REDUCE_SCATTER = "vllm-csrc" / "multimem-reduce-scatter";
    /// NCCL's reduce-scatter.
    NCCL_REDUCE_SCATTER = "nccl" / "reduce-scatter";
    /// `DeepEP`'s kernel that sends tokens to slots of their experts, in eight bits.
    DEEPEP_LOW_LATENCY_DISPATCH = "deepep" / "low-latency-dispatch";
    /// `DeepEP`'s kernel that brings back what experts left in slots, and sums it.
    DEEPEP_LOW_LATENCY_COMBINE = "deepep" / "low-latency-combine";
    /// `DeepEP`'s kernels that send tokens to ranks of their experts.
    DEEPEP_DISPATCH = "deepep" / "dispatch";
    /// `DeepEP`'s kernel that brings back and sums what ranks yield.
    DEEPEP_COMBINE = "deepep" / "combine";
    /// NCCL's send and the receive that meets it.
    NCCL_SEND = "nccl" / "send";
    /// A kernel the compiler generated.
    INDUCTOR_FUSED = "inductor" / "fused";
    /// vLLM's norm.
    CSRC_RMS_NORM = "vllm-csrc" / "rms-norm";
    /// vLLM's Triton halves of a norm of all query heads and all key heads, before and after the sum over the ranks.
    TRITON_QK_NORM = "triton" / "minimax-qk-norm";
    /// vLLM's `TileLang` kernels that mix residual lanes into a sublayer's input, its norm included.
    MHC_IN = "tilelang" / "mhc-in";
    /// vLLM's `TileLang` kernel that mixes a sublayer's output into the residual lanes.
    MHC_OUT = "tilelang" / "mhc-out";
    /// vLLM's `TileLang` kernels that mix out of one sublayer and into the next.
    MHC_OUT_IN = "tilelang" / "mhc-out-in";
    /// vLLM's Triton norms of the query latent and of the key.
    TRITON_QK_LATENT_NORM = "triton" / "qk-latent-norm";
    /// vLLM's norm and rotation of queries with the quantisation and caching of keys.
    FUSED_KEY_INSERT = "vllm-csrc" / "qnorm-rope-kv-insert";
    /// vLLM's Triton kernel that turns attention's output back and quantises it.
    FUSED_INVERSE_ROTATION = "triton" / "inverse-rope-quantise";
    /// vLLM's Triton norms of latent vectors and of an indexer's key, their rotation and the writing of both caches.
    TRITON_LATENT_NORM_ROPE = "triton" / "latent-norm-rope-insert";
    /// vLLM's Triton rotation of queries and of scoring heads, with their quantisation.
    TRITON_LATENT_QUERY = "triton" / "latent-query-rope-quantise";
    /// FlashInfer's norm.
    FLASHINFER_NORM = "flashinfer" / "gemma-rms-norm";
    /// vLLM's norms of heads with rotary embedding and the writing of caches, for attention and indexer at once.
    CSRC_QK_NORM_ROPE_INSERT = "vllm-csrc" / "minimax-m3-qk-norm-rope-insert";
    /// vLLM's norms of queries and keys with their rotary embedding.
    CSRC_QK_NORM_ROPE = "vllm-csrc" / "fused-qk-norm-rope";
    /// vLLM's gated activation with a Gaussian error linear unit by tanh.
    CSRC_GELU_AND_MUL = "vllm-csrc" / "gelu-tanh-and-mul";
    /// vLLM's gated activation.
    CSRC_SILU_AND_MUL = "vllm-csrc" / "silu-and-mul";
    /// vLLM's rotary embedding.
    CSRC_ROTARY = "vllm-csrc" / "rotary-embedding";
    /// vLLM's quantisation of activations.
    CSRC_QUANTISE = "vllm-csrc" / "quantise";
    /// FlashInfer's quantisation of activations to 8 bits with block scales.
    FLASHINFER_MXFP8_QUANTISE = "flashinfer" / "mxfp8-quantise";
    /// PyTorch's conversion of a tensor to another element type.
    TORCH_CAST = "torch" / "cast";
    /// PyTorch's padding of a tensor.
    TORCH_PAD = "torch" / "pad";
    /// PyTorch's look-up of embeddings.
    TORCH_EMBEDDING = "torch" / "embedding";
    /// The sampler of vLLM's first model runner, in PyTorch and FlashInfer.
    TORCH_SAMPLER = "torch" / "sampler";
    /// vLLM's Triton sampler, which draws by adding Gumbel noise.
    TRITON_SAMPLER = "triton" / "gumbel-sampler";
}
