//! A row for every setting that is called modelled: two launch lines that differ in it alone, and what comes of that.

use blis_vllm::config::Setting;

use Then::{Differs, Refused, Traced, Unmodelled};

/// What comes of the second of two lines.
#[derive(Debug, Clone, Copy)]
pub(super) enum Then {
    /// The engine does something else.
    Differs,
    /// It does not start, and neither does upstream; the error holds these words.
    Refused(&'static str),
    /// It would run something that is not modelled; the error holds these words.
    Unmodelled(&'static str),
    /// The tracer's engine, which can be asked for KV events, does something else.
    Traced,
}

/// A model and a chip.
pub(super) type Served = (&'static str, &'static str);

/// A setting, what is served, the words of both lines, those that only the second has, and what comes of it.
pub(super) type Row = (Setting, Served, &'static str, &'static str, Then);

const LLAMA: Served = ("llama-3.1-8b-instruct", "h100");
const LLAMA_B200: Served = ("llama-3.1-8b-instruct", "b200");
const QWEN: Served = ("qwen3-8b", "h100");
const QWEN_FP8: Served = ("qwen3-32b-fp8", "h100");
const MOE: Served = ("qwen3-30b-a3b", "h100");
const DEEPSEEK: Served = ("deepseek-v3", "h200");
const DEEPSEEK_B200: Served = ("deepseek-v3", "b200");
const GPT_OSS: Served = ("gpt-oss-120b", "h100");
const MINIMAX: Served = ("minimax-m2.5-nvfp4", "b200");
const NEMOTRON: Served = ("nemotron-3-nano-30b-a3b", "h100");
const LARGE: Served = ("llama-3.1-70b-instruct", "h200");
const LARGE_FP8: Served = ("llama-3.1-70b-instruct-fp8", "b200");
const LARGE_FP4: Served = ("llama-3.1-70b-instruct-fp4", "b200");

/// The rows, in the order of the settings.
pub(super) const TABLE: &[Row] = &[
    (Setting::Model, LLAMA, "", "--model qwen3-8b", Differs),
    (Setting::Dtype, LLAMA, "", "--dtype float16", Differs),
    (Setting::MaxModelLen, LLAMA, "", "--max-model-len 1024", Differs),
    (Setting::Quantization, DEEPSEEK, "-tp 8", "--quantization awq", Refused("does not match the quantization method")),
    (Setting::EnforceEager, LLAMA, "", "--enforce-eager", Differs),
    (Setting::AttentionBackend, LLAMA, "", "--attention-backend FLASHINFER", Differs),
    (
        Setting::DistributedExecutorBackend,
        LLAMA,
        "-dp 2 --data-parallel-backend ray --distributed-executor-backend mp",
        "--distributed-executor-backend None",
        Unmodelled("--data-parallel-backend"),
    ),
    (Setting::PipelineParallelSize, LLAMA, "", "-pp 2", Differs),
    (Setting::Nnodes, LLAMA, "-tp 8", "--nnodes 2", Differs),
    (Setting::TensorParallelSize, LLAMA, "", "-tp 2", Differs),
    (Setting::DataParallelSize, LLAMA, "", "-dp 2", Differs),
    (Setting::DataParallelSizeLocal, MOE, "-dp 4 --enable-expert-parallel", "--data-parallel-size-local 2", Differs),
    (
        Setting::DataParallelBackend,
        LLAMA,
        "-tp 8 --nnodes 2",
        "--data-parallel-backend ray",
        Refused("`--nnodes 2` requires `--data-parallel-backend mp`"),
    ),
    (Setting::EnableExpertParallel, MOE, "-tp 2", "--enable-expert-parallel", Differs),
    (Setting::All2allBackend, DEEPSEEK, "-dp 8 --enable-expert-parallel", "--all2all-backend deepep_low_latency", Differs),
    (Setting::DpSyncInterval, MOE, "-dp 2", "--dp-sync-interval 64", Differs),
    (Setting::DisableCustomAllReduce, LLAMA, "-tp 2", "--disable-custom-all-reduce", Differs),
    (Setting::BlockSize, LLAMA, "", "--block-size 64", Differs),
    (Setting::GpuMemoryUtilization, LLAMA, "", "--gpu-memory-utilization 0.5", Differs),
    (Setting::KvCacheMemoryBytes, LLAMA, "--max-model-len 2048", "--kv-cache-memory-bytes 3G", Differs),
    (Setting::KvCacheDtype, LLAMA, "", "--kv-cache-dtype fp8", Differs),
    (Setting::NumGpuBlocksOverride, LLAMA, "--max-model-len 2048", "--num-gpu-blocks-override 500", Differs),
    (Setting::EnablePrefixCaching, LLAMA, "", "--no-enable-prefix-caching", Differs),
    (Setting::PrefixCachingHashAlgo, LLAMA, "--prefix-caching-hash-algo sha256", "--prefix-caching-hash-algo sha256_cbor", Traced),
    (Setting::PrefixCacheRetentionInterval, GPT_OSS, "", "--prefix-cache-retention-interval 64", Differs),
    (Setting::MambaCacheDtype, NEMOTRON, "--max-num-seqs 64", "--mamba-cache-dtype float32", Differs),
    (Setting::MambaSsmCacheDtype, NEMOTRON, "--max-num-seqs 64", "--mamba-ssm-cache-dtype bfloat16", Differs),
    (Setting::LanguageModelOnly, ("qwen3.5-397b-a17b", "b200"), "-tp 8 --max-num-seqs 64", "--language-model-only", Differs),
    (Setting::MaxNumBatchedTokens, LLAMA, "", "--max-num-batched-tokens 1024", Differs),
    (Setting::MaxNumScheduledTokens, LLAMA, "", "--max-num-scheduled-tokens 1024", Differs),
    (Setting::MaxNumSeqs, LLAMA, "", "--max-num-seqs 4", Differs),
    (Setting::MaxNumActiveSeqs, LLAMA, "", "--max-num-active-seqs 4", Differs),
    (Setting::MaxNumQueuedReqs, LLAMA, "", "--max-num-queued-reqs 4", Differs),
    (Setting::MaxNumQueuedTokens, LLAMA, "", "--max-num-queued-tokens 1000", Differs),
    (Setting::LongPrefillTokenThreshold, LLAMA, "", "--long-prefill-token-threshold 256", Differs),
    (
        Setting::LongPrefillTokenThresholdAdaptive,
        LLAMA,
        "--long-prefill-token-threshold 256",
        "--long-prefill-token-threshold-adaptive",
        Differs,
    ),
    (Setting::SchedulingPolicy, LLAMA, "--max-num-seqs 4", "--scheduling-policy priority", Differs),
    (Setting::EnableChunkedPrefill, LLAMA, "--max-model-len 2048 --max-num-batched-tokens 2048", "--no-enable-chunked-prefill", Differs),
    (
        Setting::SchedulerReserveFullIsl,
        LLAMA,
        "--max-model-len 2048 --num-gpu-blocks-override 200 --max-num-batched-tokens 512",
        "--no-scheduler-reserve-full-isl",
        Differs,
    ),
    (Setting::Watermark, LLAMA, "--max-model-len 2048 --num-gpu-blocks-override 200", "--watermark 0.2", Differs),
    (Setting::PrefillScheduleInterval, MOE, "-dp 2", "--prefill-schedule-interval 4", Differs),
    (Setting::DisableHybridKvCacheManager, GPT_OSS, "", "--disable-hybrid-kv-cache-manager", Differs),
    (Setting::AsyncScheduling, LLAMA, "", "--no-async-scheduling", Differs),
    (Setting::StreamInterval, LLAMA, "", "--stream-interval 8", Differs),
    (Setting::CudagraphCaptureSizes, LLAMA, "", "--cudagraph-capture-sizes 1 2 4", Differs),
    (Setting::MaxCudagraphCaptureSize, LLAMA, "", "--max-cudagraph-capture-size 16", Differs),
    (Setting::EnableFlashinferAutotune, MINIMAX, "-tp 4", "--no-enable-flashinfer-autotune", Differs),
    (Setting::MoeBackend, GPT_OSS, "", "--moe-backend marlin", Differs),
    (Setting::LinearBackend, QWEN_FP8, "", "--linear-backend triton", Differs),
    (Setting::OptimizationLevel, LLAMA, "", "-O0", Differs),
    (Setting::PerformanceMode, LLAMA, "", "--performance-mode throughput", Differs),
    (Setting::ApiServerCount, LLAMA, "", "--api-server-count 4", Differs),
    (Setting::CompilationConfigMode, LLAMA, "", "-cc.mode NONE", Differs),
    (Setting::CompilationConfigCustomOps, LLAMA, "", "-cc.custom_ops+ +silu_and_mul", Differs),
    (Setting::CompilationConfigSplittingOps, LLAMA, "", "-cc.splitting_ops []", Differs),
    (Setting::CompilationConfigCudagraphMode, LLAMA, "", "-cc.cudagraph_mode PIECEWISE", Differs),
    (Setting::CompilationConfigCudagraphCaptureSizes, LLAMA, "", "-cc.cudagraph_capture_sizes [1,2,4]", Differs),
    (Setting::CompilationConfigMaxCudagraphCaptureSize, LLAMA, "", "-cc.max_cudagraph_capture_size 16", Differs),
    (
        Setting::CompilationConfigPassConfigFuseNormQuant,
        LARGE_FP8,
        "-cc.custom_ops+ +quant_fp8",
        "-cc.pass_config.fuse_norm_quant false",
        Differs,
    ),
    (Setting::CompilationConfigPassConfigFuseActQuant, LARGE_FP4, "", "-cc.pass_config.fuse_act_quant false", Differs),
    (
        Setting::CompilationConfigPassConfigFuseAttnQuant,
        LARGE_FP8,
        "--kv-cache-dtype fp8 -cc.splitting_ops []",
        "-cc.pass_config.fuse_attn_quant true",
        Differs,
    ),
    (Setting::CompilationConfigPassConfigFuseAllreduceRms, LLAMA, "-tp 2", "-cc.pass_config.fuse_allreduce_rms false", Differs),
    (Setting::CompilationConfigPassConfigEnableQkNormRopeFusion, QWEN, "", "-cc.pass_config.enable_qk_norm_rope_fusion true", Differs),
    (
        Setting::CompilationConfigPassConfigFiAllreduceFusionMaxSizeMb,
        LLAMA,
        "-tp 2",
        "-cc.pass_config.fi_allreduce_fusion_max_size_mb 0.1",
        Differs,
    ),
    (Setting::AttentionConfigBackend, LLAMA, "", "-ac.backend TRITON_ATTN", Differs),
    (
        Setting::AttentionConfigMinimaxM3MsaDecodeBackend,
        ("minimax-m3-nvfp4", "b200"),
        "-tp 4 --kv-cache-dtype fp8",
        "-ac.minimax_m3_msa_decode_backend cutlass",
        Differs,
    ),
    (Setting::AttentionConfigFlashAttnVersion, LLAMA, "", "-ac.flash_attn_version 2", Differs),
    (Setting::AttentionConfigUseTrtllmAttention, LLAMA_B200, "", "-ac.use_trtllm_attention false", Differs),
    (
        Setting::AttentionConfigDisableFlashinferQQuantization,
        LLAMA_B200,
        "--kv-cache-dtype fp8",
        "-ac.disable_flashinfer_q_quantization true",
        Differs,
    ),
    (Setting::AttentionConfigMlaPrefillBackend, DEEPSEEK_B200, "-tp 8", "-ac.mla_prefill_backend FLASHINFER", Differs),
    (
        Setting::AttentionConfigUsePrefillQueryQuantization,
        DEEPSEEK_B200,
        "-tp 8 --kv-cache-dtype fp8 -ac.mla_prefill_backend FLASHINFER",
        "-ac.use_prefill_query_quantization true",
        Differs,
    ),
    (
        Setting::AttentionConfigIndexerKvDtype,
        ("deepseek-v4-flash", "b200"),
        "-tp 4 --kv-cache-dtype fp8",
        "-ac.indexer_kv_dtype mxfp4",
        Differs,
    ),
    (Setting::QuantizationConfigMoeActivation, ("gpt-oss-120b", "b200"), "", "--quantization-config.moe.activation mxfp8", Differs),
    (Setting::KernelConfigEnableFlashinferAutotune, MINIMAX, "-tp 4", "--kernel-config.enable_flashinfer_autotune false", Differs),
    (Setting::KernelConfigMoeBackend, GPT_OSS, "", "--kernel-config.moe_backend marlin", Differs),
    (Setting::KernelConfigLinearBackend, QWEN_FP8, "", "--kernel-config.linear_backend triton", Differs),
    (Setting::VllmFloat32MatmulPrecision, ("minimax-m2.5", "h200"), "-tp 4", "VLLM_FLOAT32_MATMUL_PRECISION=high", Differs),
    (
        Setting::VllmAllowLongMaxModelLen,
        LLAMA,
        "--max-model-len 200000 VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN=0",
        Refused("set VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"),
    ),
    (Setting::VllmDisabledKernels, QWEN_FP8, "", "VLLM_DISABLED_KERNELS=FlashInferFp8DeepGEMMDynamicBlockScaledKernel", Differs),
    (Setting::VllmUseDeepGemm, QWEN_FP8, "", "VLLM_USE_DEEP_GEMM=0", Differs),
    (Setting::VllmMoeUseDeepGemm, DEEPSEEK, "-tp 8", "VLLM_MOE_USE_DEEP_GEMM=1", Differs),
    (Setting::VllmBlockscaleFp8GemmFlashinfer, QWEN_FP8, "", "VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER=0", Differs),
    (
        Setting::VllmFlashinferAutotuneSkipOps,
        MINIMAX,
        "-tp 4",
        "VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS=flashinfer::trtllm_fp4_block_scale_moe",
        Differs,
    ),
    (Setting::VllmFlashinferAllreduceBackend, LLAMA_B200, "-tp 2", "VLLM_FLASHINFER_ALLREDUCE_BACKEND=trtllm", Differs),
    (
        Setting::VllmFlashinferWorkspaceBufferSize,
        DEEPSEEK_B200,
        "-tp 8 -ac.mla_prefill_backend FLASHINFER",
        "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE=4000000000",
        Differs,
    ),
    (
        Setting::VllmAllowChunkedLocalAttnWithHybridKvCache,
        ("llama-4-scout", "h200"),
        "-tp 8 --max-model-len 16384",
        "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE=0",
        Differs,
    ),
    (Setting::VllmAllreduceUseSymmMem, LARGE, "-tp 8 -cc.pass_config.fuse_allreduce_rms false", "VLLM_ALLREDUCE_USE_SYMM_MEM=0", Differs),
    (
        Setting::VllmAllreduceUseFlashinfer,
        LARGE,
        "-tp 8 -cc.pass_config.fuse_allreduce_rms false",
        "VLLM_ALLREDUCE_USE_FLASHINFER=0",
        Differs,
    ),
    (Setting::VllmUseNcclSymmMem, LARGE, "-tp 8", "VLLM_USE_NCCL_SYMM_MEM=1", Differs),
    (Setting::VllmUseV2ModelRunner, LLAMA, "", "VLLM_USE_V2_MODEL_RUNNER=0", Differs),
    (Setting::VllmMemoryProfilerEstimateCudagraphs, LLAMA, "", "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0", Differs),
];

/// Settings of which neither the port nor upstream does anything that shows, with the reason; may only shrink.
pub(super) const WITHOUT_EFFECT: &[(Setting, &str)] = &[
    (Setting::MambaCacheMode, "whether prompts are looked up decides the mode, whatever is stated"),
    (
        Setting::MambaBlockSize,
        "states that are cached lie in blocks of attention's size, whatever is stated; for others only the longest request is accepted",
    ),
];

/// The most entries the list above may have.
pub(super) const WITHOUT_EFFECT_AT_MOST: usize = 2;
