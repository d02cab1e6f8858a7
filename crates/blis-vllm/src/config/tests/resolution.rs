//! Each start-up rule with the value it should give, per device and model.

use crate::config::tests::{Case, a100, b200, gpt_oss, h100, h200, llama, llama_fp8, llama_in, resolved, rtx5090, serve, value_of};
use crate::config::{AttentionBackend, CudagraphMode, Dtype, GraphSupport, KvCacheDtype, MoeBackend, Source};
use blis_contracts::format::FormatName;
use blis_contracts::model::ModelGraph;

#[test]
fn batch_defaults_follow_the_device_memory_and_name() {
    for (chip, tokens, seqs) in
        [(a100(), 2048, 256), (rtx5090(), 2048, 256), (h100(), 8192, 1024), (h200(), 8192, 1024), (b200(), 16384, 1024)]
    {
        let got = Case::line("vllm serve m").resolve(&llama(), &chip).unwrap().scheduler;
        assert_eq!((got.max_num_batched_tokens, got.max_num_seqs), (tokens, seqs), "{}", chip.name);
    }
}

#[test]
fn each_rule_gives_the_value_upstream_gives() {
    let cases = [
        ("", "gpu_memory_utilization", "0.92"),
        ("--device-memory-utilization 0.5", "gpu_memory_utilization", "0.5"),
        ("", "max_model_len", "131072"),
        ("--max-model-len 8k", "max_model_len", "8000"),
        ("--max-model-len 8K", "max_model_len", "8192"),
        ("--max-model-len auto", "max_model_len", "131072"),
        ("", "enable_prefix_caching", "true"),
        ("--no-enable-prefix-caching", "enable_prefix_caching", "false"),
        ("", "prefix_caching_hash_algo", "sha256"),
        ("", "prefix_cache_retention_interval", "0"),
        ("--prefix-cache-retention-interval None", "prefix_cache_retention_interval", "None"),
        ("", "enable_chunked_prefill", "true"),
        ("--data-parallel-size 2", "api_server_count", "2"),
        ("--data-parallel-size 2 --api-server-count 1", "api_server_count", "1"),
        ("", "dp_sync_interval", "16"),
        ("--data-parallel-size 2 --all2all-backend pplx", "all2all_backend", "allgather_reducescatter"),
        ("--no-enable-chunked-prefill", "max_num_batched_tokens", "131072"),
        ("--no-enable-chunked-prefill --max-model-len 4096", "max_num_batched_tokens", "8192"),
        ("--performance-mode throughput", "max_num_batched_tokens", "16384"),
        ("--performance-mode throughput", "max_num_seqs", "2048"),
        ("--performance-mode throughput --max-num-seqs 64", "max_num_seqs", "64"),
        ("--max-num-seqs 2 --max-model-len 1000", "max_num_batched_tokens", "2000"),
        ("--max-num-batched-tokens 512", "max_num_seqs", "512"),
        ("--max-num-batched-tokens 512", "max_num_scheduled_tokens", "512"),
        ("--max-num-seqs 8", "max_num_active_seqs", "8"),
        ("", "scheduling_policy", "fcfs"),
        ("", "scheduler_reserve_full_isl", "true"),
        ("", "watermark", "0.0"),
        ("", "async_scheduling", "true"),
        ("", "stream_interval", "1"),
        ("", "disable_hybrid_kv_cache_manager", "false"),
        ("", "optimization_level", "2"),
        ("-O1", "optimization_level", "1"),
        ("-O 0", "compilation_config.mode", "NONE"),
        ("", "compilation_config.mode", "VLLM_COMPILE"),
        ("", "compilation_config.custom_ops", "none"),
        ("--enforce-eager", "compilation_config.custom_ops", "all"),
        ("-cc.pass_config.enable_qk_norm_rope_fusion true", "compilation_config.custom_ops", "+rotary_embedding,none"),
        ("", "compilation_config.pass_config.fuse_allreduce_rms", "false"),
        ("-tp 2", "compilation_config.pass_config.fuse_allreduce_rms", "true"),
        ("-tp 2 -O1", "compilation_config.pass_config.fuse_allreduce_rms", "false"),
        ("", "compilation_config.pass_config.fuse_norm_quant", "false"),
        ("-cc.custom_ops+ +rms_norm", "compilation_config.pass_config.fuse_norm_quant", "true"),
        ("", "enable_flashinfer_autotune", "true"),
        ("-O0", "enable_flashinfer_autotune", "false"),
        ("--moe-backend FlashInfer-TRTLLM", "moe_backend", "flashinfer_trtllm"),
        ("--kernel-config.moe_backend triton", "kernel_config.moe_backend", "triton"),
        ("", "api_server_count", "1"),
        ("", "dtype", "bfloat16"),
        ("", "VLLM_USE_DEEP_GEMM", "true"),
        ("", "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE", "413138944"),
    ];
    for (arguments, key, expected) in cases {
        assert_eq!(value_of(&resolved(arguments).unwrap(), key), expected, "{arguments:?} {key}");
    }
}

#[test]
fn two_batches_are_in_flight_unless_scheduling_is_synchronous() {
    let overlapped = resolved("").unwrap().scheduler;
    assert_eq!((overlapped.max_concurrent_batches, overlapped.max_in_flight_tokens()), (2, 16384));
    assert_eq!(resolved("--no-async-scheduling").unwrap().scheduler.max_concurrent_batches, 1);
}

#[test]
fn the_attention_backend_is_the_first_that_fits() {
    use AttentionBackend::{FlashAttn, Flashinfer, TritonAttn};
    let cases = [
        (llama(), a100(), "", FlashAttn),
        (llama(), a100(), "--kv-cache-dtype fp8", Flashinfer),
        (llama(), rtx5090(), "--kv-cache-dtype fp8", Flashinfer),
        (llama(), h200(), "--kv-cache-dtype fp8", FlashAttn),
        (llama(), b200(), "", Flashinfer),
        (gpt_oss(), a100(), "", TritonAttn),
        (gpt_oss(), h100(), "", FlashAttn),
        (gpt_oss(), b200(), "", Flashinfer),
        (gpt_oss(), b200(), "-ac.use_trtllm_attention false", FlashAttn),
        (llama(), h100(), "--attention-backend triton_attn", TritonAttn),
        (llama(), h100(), "--attention-backend auto", FlashAttn),
        (llama(), h100(), "--attention-config '{\"backend\": \"FLASHINFER\"}'", Flashinfer),
        (llama(), h100(), "-ac.flash_attn_version 2 --kv-cache-dtype fp8", Flashinfer),
    ];
    for (model, chip, arguments, expected) in cases {
        let got = Case::line(&serve(arguments)).resolve(&model, &chip).unwrap().attention;
        assert_eq!(got.backend, expected, "{} on {} {arguments}", model.name, chip.name);
    }
}

#[test]
fn graph_support_follows_the_backend_and_the_chip() {
    let support = |model, chip, arguments: &str| Case::line(&serve(arguments)).resolve(&model, &chip).unwrap().attention.graph_support;
    assert_eq!(support(llama(), h100(), ""), GraphSupport::Always);
    assert_eq!(support(llama(), a100(), ""), GraphSupport::UniformBatch);
    assert_eq!(support(llama(), b200(), ""), GraphSupport::UniformBatch);
    assert_eq!(support(llama(), h100(), "--attention-backend FLASHINFER"), GraphSupport::UniformBatch);
    assert_eq!(support(llama(), a100(), "--attention-backend FLASHINFER"), GraphSupport::UniformSingleTokenDecode);
    assert_eq!(support(llama(), a100(), "--attention-backend TRITON_ATTN"), GraphSupport::Always);
}

#[test]
fn the_checkpoint_s_own_kv_format_stands_behind_auto() {
    let got = Case::line("vllm serve m").resolve(&llama_fp8(), &h100()).unwrap();
    assert_eq!(got.cache.kv_cache_dtype, KvCacheDtype::Fp8E4m3);
    let stated = Case::line("vllm serve m --kv-cache-dtype bfloat16").resolve(&llama_fp8(), &h100()).unwrap();
    assert_eq!(stated.cache.kv_cache_dtype, KvCacheDtype::Bfloat16);
}

#[test]
fn quantised_models_switch_custom_operations_on() {
    let blocked = Case::line("vllm serve m").resolve(&llama_in(FormatName::Fp8Block), &h100()).unwrap();
    assert_eq!(value_of(&blocked, "compilation_config.custom_ops"), "+quant_fp8,none", "told once, however often upstream appends it");
    let blocked = blocked.compilation;
    assert_eq!(blocked.custom_ops, ["+quant_fp8", "none", "+quant_fp8"]);
    assert!(blocked.passes.fuse_norm_quant && blocked.passes.fuse_act_quant);
    let fp4 = Case::line("vllm serve m").resolve(&llama_in(FormatName::Nvfp4), &b200()).unwrap().compilation;
    assert!(!fp4.passes.fuse_norm_quant && fp4.passes.fuse_act_quant);
}

#[test]
fn the_fused_all_reduce_ends_at_its_size_limit() {
    let limit = |arguments: &str, chip| {
        Case::line(&serve(arguments)).resolve(&llama(), &chip).unwrap().compilation.passes.allreduce_fusion_max_tokens
    };
    assert_eq!(limit("", h100()), None);
    assert_eq!(limit("-tp 2", h100()), Some(64 * 64));
    assert_eq!(limit("-tp 4", h100()), Some(2 * 64));
    assert_eq!(limit("-tp 8", h100()), Some(32));
    assert_eq!(limit("-tp 4", b200()), Some(32 * 64));
    assert_eq!(limit("-tp 8 -cc.pass_config.fi_allreduce_fusion_max_size_mb 8", b200()), Some(8 * 64));
    assert_eq!(limit("-tp 2 -cc.pass_config.fuse_allreduce_rms false", h100()), None);
}

#[test]
fn eager_execution_leaves_nothing_compiled_or_captured() {
    let got = resolved("--enforce-eager").unwrap().compilation;
    assert_eq!((got.cudagraph_mode, got.cudagraph_capture_sizes.len(), got.max_cudagraph_capture_size), (CudagraphMode::None, 0, 0));
    assert!(!got.splits_at_attention);
}

#[test]
fn a_value_says_where_it_came_from() {
    let got = resolved("--max-num-seqs=64").unwrap();
    let line = |key: &str| got.explained.iter().find(|line| line.setting.key() == key).unwrap();
    assert_eq!((line("max_num_seqs").source, line("max_num_seqs").rule.as_str()), (Source::Stated, "--max-num-seqs=64"));
    assert_eq!(line("watermark").source, Source::UpstreamDefault);
    assert_eq!(line("max_num_batched_tokens").source, Source::Derived);
    let mut sorted = got.explained.clone();
    sorted.sort_by_key(|line| line.setting);
    assert_eq!(sorted, got.explained);
}

#[test]
fn half_precision_is_an_alias() {
    assert_eq!(resolved("--dtype half").unwrap().dtype, Dtype::Float16);
    assert_eq!(resolved("").unwrap().kernels.moe_backend, MoeBackend::Auto);
}

#[test]
fn a_way_of_tokens_that_none_go_is_told() {
    let told = |line: &str, model: &ModelGraph| {
        let notes = Case::line(&serve(line)).resolve(model, &h200()).unwrap().notes;
        notes.iter().any(|note| note.starts_with("--all2all-backend deepep_low_latency has no effect: it carries tokens"))
    };
    let stated = "--all2all-backend deepep_low_latency";
    assert!(told(stated, &llama()) && told(&format!("-dp 2 {stated}"), &gpt_oss()));
    assert!(!told(&format!("-dp 2 --enable-expert-parallel {stated}"), &gpt_oss()) && !told("", &llama()));
}
