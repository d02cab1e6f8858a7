//! Launch lines that upstream's own parser and start-up answered, each compared field by field.

use serde_json::{Value, json};

use crate::config::tests::oracle::{chip, compare};
use crate::config::tests::{Case, gpt_oss, llama, llama_fp8, serve, value_of};
use crate::config::{ConfigError, Resolved};

/// Written by `tools/lines.py`: the answers to the lines of `data/lines.txt`, each as its difference from the empty line's.
const RECORDING: &str = include_str!("../../../data/lines.json");

/// The port's answer in the recording's own shape.
fn ours(got: &Resolved) -> Value {
    let (scheduler, cache, compilation, passes) = (&got.scheduler, &got.cache, &got.compilation, &got.compilation.passes);
    let mut answer = json!({
        "max_model_len": cache.max_model_len,
        "dtype": got.dtype.as_str(),
        "quantization": Some(value_of(got, "quantization")).filter(|method| method != "None"),
        "tensor_parallel_size": got.tensor_parallel_size,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_num_scheduled_tokens": scheduler.max_num_scheduled_tokens,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_active_seqs": scheduler.max_num_active_seqs,
        "long_prefill_token_threshold": scheduler.long_prefill_token_threshold,
        "policy": scheduler.policy.as_str(),
        "enable_chunked_prefill": scheduler.enable_chunked_prefill,
        "scheduler_reserve_full_isl": scheduler.scheduler_reserve_full_isl,
        "watermark": scheduler.watermark,
        "async_scheduling": scheduler.async_scheduling,
        "max_concurrent_batches": scheduler.max_concurrent_batches,
        "stream_interval": scheduler.stream_interval,
        "disable_hybrid_kv_cache_manager": cache.disable_hybrid_kv_cache_manager,
        "gpu_memory_utilization": cache.gpu_memory_utilization,
        "cache_dtype": cache.kv_cache_dtype.as_str(),
        "kv_cache_memory_bytes": cache.kv_cache_memory_bytes,
        "num_gpu_blocks_override": cache.num_gpu_blocks_override,
        "enable_prefix_caching": cache.enable_prefix_caching,
        "prefix_caching_hash_algo": cache.prefix_caching_hash_algo.as_str(),
        "prefix_cache_retention_interval": cache.prefix_cache_retention_interval,
        "block_size": cache.block_size,
        "attention_backend": got.attention.backend.as_str(),
    });
    let compiled = json!({
        "mode": compilation.mode.as_str(),
        "cudagraph_capture_sizes": compilation.cudagraph_capture_sizes,
        "max_cudagraph_capture_size": compilation.max_cudagraph_capture_size,
        "custom_ops": compilation.custom_ops,
        "splits_at_attention": compilation.splits_at_attention,
        "fuse_norm_quant": passes.fuse_norm_quant,
        "fuse_act_quant": passes.fuse_act_quant,
        "fuse_attn_quant": passes.fuse_attn_quant,
        "fuse_allreduce_rms": passes.fuse_allreduce_rms,
        "enable_qk_norm_rope_fusion": passes.enable_qk_norm_rope_fusion,
        "allreduce_fusion_max_tokens": passes.allreduce_fusion_max_tokens,
        "moe_backend": got.kernels.moe_backend.as_str(),
        "linear_backend": got.kernels.linear_backend.as_str(),
        "enable_flashinfer_autotune": got.kernels.enable_flashinfer_autotune,
    });
    let answers = answer.as_object_mut().expect("both are objects");
    answers.extend(compiled.as_object().expect("both are objects").clone());
    answer
}

#[test]
fn lines_resolve_as_upstream_answered() {
    let recording: Value = serde_json::from_str(RECORDING).unwrap();
    let rows = recording["rows"].as_array().unwrap();
    assert!(rows.len() >= 700, "the recording holds {} answers", rows.len());
    let (mut base, mut differences, mut compared) = (json!({}), Vec::new(), 0);
    for row in rows {
        let text = |key: &str| row[key].as_str().unwrap();
        let (name, line) = (text("model"), text("args"));
        let model = match name {
            "llama" => llama(),
            "llama_fp8" => llama_fp8(),
            "gpt_oss" => gpt_oss(),
            other => panic!("the recording names an unknown model, {other}"),
        };
        if line.is_empty() {
            base = row["gives"].clone();
        }
        let path = format!("{line:?} {name} {}", text("chip"));
        let got = Case::line(&serve(line)).resolve(&model, &chip(text("chip")));
        match (row["gives"].as_object(), got) {
            // The port may refuse, by name, what upstream takes; it may not answer otherwise.
            (_, Err(ConfigError::NotModelled { .. })) | (None, Err(_)) => {}
            (None, Ok(_)) => differences.push(format!("{path}: upstream refuses it ({})", row["refuses"])),
            (Some(_), Err(error)) => differences.push(format!("{path}: the port refuses it: {error}")),
            (Some(changed), Ok(got)) => {
                let mut expected = base.clone();
                expected.as_object_mut().unwrap().extend(changed.clone());
                compare(&ours(&got), &expected, &path, &mut differences);
                compared += 1;
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(compared >= 500, "{compared} lines were compared");
}
