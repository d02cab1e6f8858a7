//! The closed choices of the resolved configuration, under the names upstream uses. Choices that are not modelled are missing here
//! and refused by the field table.

use std::fmt;

/// Declares a closed choice with the names upstream uses for it.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vmeta])* $variant),+
        }

        impl $name {
            /// Every choice.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name upstream uses.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }

            /// The choice of that name.
            pub fn named(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|choice| choice.as_str() == text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

choice! {
    /// How tokens reach the ranks that hold their experts whole.
    All2AllBackend {
        /// Every rank gathers all of them, and sums are scattered.
        AllgatherReducescatter = "allgather_reducescatter",
        /// `DeepEP`'s kernels for prompts, on whose counts the host waits.
        DeepepHighThroughput = "deepep_high_throughput",
        /// `DeepEP`'s kernels for decodes, whose slots are laid out beforehand.
        DeepepLowLatency = "deepep_low_latency",
    }
}

choice! {
    /// Element type of activations.
    Dtype {
        /// bfloat16.
        Bfloat16 = "bfloat16",
        /// IEEE half precision.
        Float16 = "float16",
    }
}

choice! {
    /// Which states of layers that keep one are cached.
    MambaCacheMode {
        /// Those at block ends, which prompts resume from.
        Align = "align",
        /// None beside the running one.
        None = "none",
    }
}

choice! {
    /// How such layers keep what they keep.
    MambaDtype {
        /// As activations are, or as something else says.
        Auto = "auto",
        /// 32-bit float.
        Float32 = "float32",
        /// IEEE half precision.
        Float16 = "float16",
        /// bfloat16.
        Bfloat16 = "bfloat16",
    }
}

choice! {
    /// How keys and values are stored.
    KvCacheDtype {
        /// As activations are.
        Auto = "auto",
        /// bfloat16.
        Bfloat16 = "bfloat16",
        /// 8-bit float, 4 exponent bits, one scale per tensor.
        Fp8 = "fp8",
        /// The same under its long name.
        Fp8E4m3 = "fp8_e4m3",
        /// A latent vector in 8 bits with its scales, and its rotated part in 16.
        Fp8DsMla = "fp8_ds_mla",
    }
}

impl KvCacheDtype {
    /// Whether values are quantised.
    pub const fn is_quantized(self) -> bool {
        match self {
            Self::Auto | Self::Bfloat16 => false,
            Self::Fp8 | Self::Fp8E4m3 | Self::Fp8DsMla => true,
        }
    }
}

choice! {
    /// What decodes run over the blocks an indexer picked.
    MsaDecodeBackend {
        /// vLLM's Triton kernel.
        Triton = "triton",
        /// CUTLASS's, for batches from 16.
        Cutlass = "cutlass",
    }
}

choice! {
    /// Hash of prefix-cache keys.
    HashAlgo {
        /// SHA-256 over a pickle.
        Sha256 = "sha256",
        /// SHA-256 over canonical CBOR.
        Sha256Cbor = "sha256_cbor",
        /// xxHash over a pickle.
        Xxhash = "xxhash",
        /// xxHash over canonical CBOR.
        XxhashCbor = "xxhash_cbor",
    }
}

choice! {
    /// The order in which requests wait.
    SchedulingPolicy {
        /// By arrival.
        Fcfs = "fcfs",
        /// By priority, then arrival.
        Priority = "priority",
    }
}

choice! {
    /// Whether steps run compiled.
    CompilationMode {
        /// As written.
        None = "NONE",
        /// Through vLLM's own compiler.
        VllmCompile = "VLLM_COMPILE",
    }
}

choice! {
    /// Which batches replay a captured graph.
    CudagraphMode {
        /// None.
        None = "NONE",
        /// All, but attention runs outside the graphs.
        Piecewise = "PIECEWISE",
        /// All, whole steps.
        Full = "FULL",
        /// Pure decode batches only, whole steps.
        FullDecodeOnly = "FULL_DECODE_ONLY",
        /// Pure decode batches as whole steps, others piecewise.
        FullAndPiecewise = "FULL_AND_PIECEWISE",
    }
}

impl CudagraphMode {
    /// The mode of pure decode batches: none, piecewise or full.
    #[must_use]
    pub const fn decode(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Piecewise => Self::Piecewise,
            Self::Full | Self::FullDecodeOnly | Self::FullAndPiecewise => Self::Full,
        }
    }

    /// The mode of batches with a prompt: none, piecewise or full.
    #[must_use]
    pub const fn mixed(self) -> Self {
        match self {
            Self::None | Self::FullDecodeOnly => Self::None,
            Self::Piecewise | Self::FullAndPiecewise => Self::Piecewise,
            Self::Full => Self::Full,
        }
    }

    /// The mode that is left when steps cannot be captured piece by piece.
    #[must_use]
    pub const fn without_piecewise(self) -> Self {
        match self {
            Self::Piecewise => Self::None,
            Self::FullAndPiecewise => Self::FullDecodeOnly,
            Self::None | Self::Full | Self::FullDecodeOnly => self,
        }
    }
}

choice! {
    /// An attention backend.
    AttentionBackend {
        /// vLLM's build of FlashAttention.
        FlashAttn = "FLASH_ATTN",
        /// FlashInfer.
        Flashinfer = "FLASHINFER",
        /// vLLM's own Triton kernels.
        TritonAttn = "TRITON_ATTN",
        /// PyTorch's flex attention.
        FlexAttention = "FLEX_ATTENTION",
        /// vLLM's Triton kernels for steps with an image, its build of FlashAttention for the others.
        TritonFlashAttn = "TRITON_FLASH_ATTN",
        /// vLLM's Triton kernels for steps with an image, FlashInfer for the others.
        TritonFlashinfer = "TRITON_FLASHINFER",
        /// FlashInfer's latent attention.
        FlashinferMla = "FLASHINFER_MLA",
        /// `TokenSpeed`'s latent attention.
        TokenspeedMla = "TOKENSPEED_MLA",
        /// vLLM's CUTLASS latent attention.
        CutlassMla = "CUTLASS_MLA",
        /// FlashAttention's latent attention.
        FlashAttnMla = "FLASH_ATTN_MLA",
        /// FlashMLA.
        FlashMla = "FLASHMLA",
        /// vLLM's Triton latent attention.
        TritonMla = "TRITON_MLA",
        /// FlashMLA's attention to listed entries, in its variant for `DeepSeek` V4.
        FlashMlaSparseDsv4 = "FLASHMLA_SPARSE_DSV4",
        /// FlashMLA's latent attention to listed tokens.
        FlashMlaSparse = "FLASHMLA_SPARSE",
        /// FlashInfer's latent attention to listed tokens.
        FlashinferMlaSparse = "FLASHINFER_MLA_SPARSE",
        /// The same on consumer Blackwell.
        FlashinferMlaSparseSm120 = "FLASHINFER_MLA_SPARSE_SM120",
        /// The same on Hopper.
        FlashinferMlaSparseSm90 = "FLASHINFER_MLA_SPARSE_SM90",
        /// FlashAttention's latent attention to listed tokens.
        FlashAttnMlaSparse = "FLASH_ATTN_MLA_SPARSE",
    }
}

/// A backend of attention to the tokens that an indexer picks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SparseBackend {
    /// FlashMLA's.
    FlashMla,
    /// FlashInfer's.
    Flashinfer,
    /// FlashInfer's on consumer Blackwell.
    FlashinferSm120,
    /// FlashInfer's on Hopper.
    FlashinferSm90,
    /// FlashAttention's.
    FlashAttn,
}

impl AttentionBackend {
    /// Which of the backends of attention to picked tokens it is; none of the others.
    pub const fn sparse(self) -> Option<SparseBackend> {
        match self {
            Self::FlashMlaSparse => Some(SparseBackend::FlashMla),
            Self::FlashinferMlaSparse => Some(SparseBackend::Flashinfer),
            Self::FlashinferMlaSparseSm120 => Some(SparseBackend::FlashinferSm120),
            Self::FlashinferMlaSparseSm90 => Some(SparseBackend::FlashinferSm90),
            Self::FlashAttnMlaSparse => Some(SparseBackend::FlashAttn),
            Self::FlashAttn
            | Self::Flashinfer
            | Self::TritonAttn
            | Self::FlexAttention
            | Self::TritonFlashAttn
            | Self::TritonFlashinfer
            | Self::FlashinferMla
            | Self::TokenspeedMla
            | Self::CutlassMla
            | Self::FlashAttnMla
            | Self::FlashMla
            | Self::TritonMla
            | Self::FlashMlaSparseDsv4 => None,
        }
    }

    /// Whether it stores an entry as 8-bit floats with scales and a part in 16 bits, whatever the line calls that.
    pub const fn packs_entries(self, kv_cache_dtype: KvCacheDtype) -> bool {
        match self.sparse() {
            Some(SparseBackend::FlashMla) => kv_cache_dtype.is_quantized(),
            Some(SparseBackend::FlashinferSm120) => true,
            Some(SparseBackend::Flashinfer | SparseBackend::FlashinferSm90 | SparseBackend::FlashAttn) | None => false,
        }
    }
}

choice! {
    /// What prompts of latent attention run.
    MlaPrefillBackend {
        /// FlashAttention.
        FlashAttn = "FLASH_ATTN",
        /// FlashInfer's CUTLASS kernel.
        Flashinfer = "FLASHINFER",
        /// TensorRT-LLM's kernel in FlashInfer.
        TrtllmRagged = "TRTLLM_RAGGED",
        /// `TokenSpeed`'s.
        TokenspeedMla = "TOKENSPEED_MLA",
    }
}

choice! {
    /// How the vectors that select entries are stored.
    IndexerKvDtype {
        /// As the model's code prefers.
        Auto = "auto",
        /// 16 bits.
        Bf16 = "bf16",
        /// 8 bits with a 32-bit scale for 128 elements.
        Fp8 = "fp8",
        /// 4 bits with an 8-bit scale for 32 elements.
        Mxfp4 = "mxfp4",
    }
}

choice! {
    /// What CUDA graphs an attention backend allows, weakest first.
    GraphSupport {
        /// No whole-step graphs.
        Never = "NEVER",
        /// Decode batches of one token per request.
        UniformSingleTokenDecode = "UNIFORM_SINGLE_TOKEN_DECODE",
        /// Batches of one length per request.
        UniformBatch = "UNIFORM_BATCH",
        /// Any batch.
        Always = "ALWAYS",
    }
}

choice! {
    /// Kernel of the experts.
    MoeBackend {
        /// Upstream's choice.
        Auto = "auto",
        /// Fused Triton.
        Triton = "triton",
        /// Unfused Triton.
        TritonUnfused = "triton_unfused",
        /// `DeepGEMM`.
        DeepGemm = "deep_gemm",
        /// vLLM's CUTLASS kernels.
        Cutlass = "cutlass",
        /// FlashInfer with TensorRT-LLM kernels.
        FlashinferTrtllm = "flashinfer_trtllm",
        /// FlashInfer with CUTLASS kernels.
        FlashinferCutlass = "flashinfer_cutlass",
        /// FlashInfer with CuTe DSL kernels.
        FlashinferCutedsl = "flashinfer_cutedsl",
        /// Marlin.
        Marlin = "marlin",
    }
}

choice! {
    /// Kernel of dense layers.
    LinearBackend {
        /// Upstream's choice.
        Auto = "auto",
        /// vLLM's CUTLASS kernels.
        Cutlass = "cutlass",
        /// FlashInfer with CUTLASS kernels.
        FlashinferCutlass = "flashinfer_cutlass",
        /// FlashInfer with CuTe DSL kernels.
        FlashinferCutedsl = "flashinfer_cutedsl",
        /// FlashInfer with TensorRT-LLM kernels.
        FlashinferTrtllm = "flashinfer_trtllm",
        /// FlashInfer with cuDNN kernels.
        FlashinferCudnn = "flashinfer_cudnn",
        /// Marlin.
        Marlin = "marlin",
        /// Triton.
        Triton = "triton",
        /// `DeepGEMM`.
        DeepGemm = "deep_gemm",
        /// PyTorch.
        Torch = "torch",
    }
}

choice! {
    /// Which FlashInfer all-reduce the fused pass calls.
    FlashinferAllreduce {
        /// Upstream's choice.
        Auto = "auto",
        /// TensorRT-LLM's.
        Trtllm = "trtllm",
        /// Multi-node NVLink's.
        Mnnvl = "mnnvl",
    }
}

choice! {
    /// Precision of 32-bit matrix products.
    MatmulPrecision {
        /// Full.
        Highest = "highest",
        /// Reduced.
        High = "high",
        /// More reduced.
        Medium = "medium",
    }
}
