//! The defaults that upstream's own start-up recorded, field by field.

use std::collections::BTreeSet;

use blis_contracts::chip::Chip;
use blis_contracts::format::FormatName;
use blis_contracts::model::ModelGraph;
use blis_contracts::units::BytesPerRank;
use serde_json::{Value, json};

use crate::config::tests::gemma4;
use crate::config::tests::{Case, a100, b200, cited, gpt_oss, h100, h200, llama, llama_in, value_of};
use crate::config::{Resolved, UsageContext};

const RECORDING: &str = include_str!("../../../oracle/resolution.json");

/// The facts of a model that the start-up rules read.
fn model(name: &str) -> ModelGraph {
    let mut model = match name {
        "google/gemma-4-26B-A4B" => return gemma4::experts(),
        "nvidia/Gemma-4-31B-IT-NVFP4" => return gemma4::dense(),
        _ if name.starts_with("openai/gpt-oss") => gpt_oss(),
        _ if name.ends_with("-FP8") => llama_in(FormatName::Fp8Block),
        _ => llama(),
    };
    if name.starts_with("Qwen/Qwen3-") {
        model.max_position_embeddings = 40_960;
    }
    if name.starts_with("mistralai/Mixtral-8x7B") {
        model.max_position_embeddings = 32_768;
    }
    if name.ends_with("-FP8") {
        model.quantisation = Some("fp8".to_owned());
    }
    model
}

/// An accelerator with the answers that the recording's stand-in gave.
pub(super) fn chip_of(properties: &Value) -> Chip {
    let number = |value: &Value| u32::try_from(value.as_u64().unwrap_or_default()).expect("a small number");
    let memory = BytesPerRank::new(properties["memory_bytes"].as_u64().expect("bytes"));
    let mut chip = h100();
    chip.device_name = cited(properties["name"].as_str().expect("a name").to_owned());
    chip.compute_capability = cited((number(&properties["capability"][0]), number(&properties["capability"][1])));
    chip.multiprocessors = cited(number(&properties["sms"]));
    (chip.memory, chip.reported_memory) = (cited(memory), cited(memory));
    chip
}

pub(super) fn chip(name: &str) -> Chip {
    match name {
        "a100" => a100(),
        "h100" => h100(),
        "h200" => h200(),
        "b200" => b200(),
        other => panic!("the recording names an unknown GPU, {other}"),
    }
}

/// The port's answer in the recording's own shape.
fn ours(got: &Resolved) -> Value {
    let (scheduler, cache, compilation) = (&got.scheduler, &got.cache, &got.compilation);
    json!({
        "max_concurrent_batches": scheduler.max_concurrent_batches,
        "max_in_flight_tokens": scheduler.max_in_flight_tokens(),
        "cudagraph_mode": compilation.cudagraph_mode.as_str(),
        "cudagraph_capture_sizes": compilation.cudagraph_capture_sizes,
        "max_cudagraph_capture_size": compilation.max_cudagraph_capture_size,
        "compilation_mode": compilation.mode.as_str(),
        "max_model_len": cache.max_model_len,
        "dtype": got.dtype.as_str(),
        "quantization": Some(value_of(got, "quantization")).filter(|method| method != "None"),
        "optimization_level": 2,
        "scheduler": {
            "async_scheduling": scheduler.async_scheduling,
            "disable_hybrid_kv_cache_manager": cache.disable_hybrid_kv_cache_manager,
            "enable_chunked_prefill": scheduler.enable_chunked_prefill,
            "long_prefill_token_threshold": scheduler.long_prefill_token_threshold,
            "long_prefill_token_threshold_adaptive": scheduler.long_prefill_token_threshold_adaptive,
            "max_num_batched_tokens": scheduler.max_num_batched_tokens,
            "max_num_queued_reqs": scheduler.max_num_queued_reqs,
            "max_num_queued_tokens": scheduler.max_num_queued_tokens,
            "max_num_seqs": scheduler.max_num_seqs,
            "policy": scheduler.policy.as_str(),
            "scheduler_reserve_full_isl": scheduler.scheduler_reserve_full_isl,
            "stream_interval": scheduler.stream_interval,
            "watermark": scheduler.watermark,
        },
        "cache": {
            "block_size": cache.block_size,
            "cache_dtype": cache.kv_cache_dtype.as_str(),
            "enable_prefix_caching": cache.enable_prefix_caching,
            "gpu_memory_utilization": cache.gpu_memory_utilization,
            "kv_cache_memory_bytes": cache.kv_cache_memory_bytes,
            "num_gpu_blocks_override": cache.num_gpu_blocks_override,
            "prefix_cache_retention_interval": cache.prefix_cache_retention_interval,
            "prefix_caching_hash_algo": cache.prefix_caching_hash_algo.as_str(),
        },
    })
}

/// Every field of `ours` must be in the recording with the same value.
pub(super) fn compare(ours: &Value, recorded: &Value, path: &str, differences: &mut Vec<String>) {
    if let Value::Object(fields) = ours {
        for (name, value) in fields {
            compare(value, &recorded[name], &format!("{path}.{name}"), differences);
        }
    } else if ours != recorded {
        differences.push(format!("{path}: port {ours}, upstream {recorded}"));
    }
}

#[test]
fn defaults_are_those_upstream_recorded() {
    let recording: Value = serde_json::from_str(RECORDING).unwrap();
    let rows = recording["rows"].as_array().unwrap();
    let distinct = |key: &str| rows.iter().map(|row| row[key].as_str().unwrap_or_default()).collect::<BTreeSet<_>>().len();
    assert_eq!(["model", "gpu", "context"].map(distinct), [14, 8, 2], "the recording crosses models, GPUs and usage contexts");
    assert_eq!(rows.len(), 14 * 8 * 2);
    let (mut differences, mut refused) = (Vec::new(), Vec::new());
    for row in rows {
        let name = |key: &str| row[key].as_str().unwrap_or_default();
        let usage = match name("context") {
            "OPENAI_API_SERVER" => UsageContext::OpenaiApiServer,
            "LLM_CLASS" => UsageContext::LlmClass,
            other => panic!("the recording names an unknown usage context, {other}"),
        };
        let path = format!("{} on {} for {}", name("model"), name("gpu"), name("context"));
        let chip = chip_of(&recording["gpus"][name("gpu")]);
        let got = match Case::line("vllm serve m").resolve_for(&model(name("model")), &chip, usage) {
            Ok(got) => got,
            // Upstream says so when it builds the layers, which the recording leaves out.
            Err(error) if error.to_string().starts_with("FP8 KV cache is not supported by the Triton attention backend") => {
                refused.push((name("model"), name("gpu")));
                continue;
            }
            Err(error) => panic!("{path}: {error}"),
        };
        compare(&ours(&got), row, &path, &mut differences);
        compare(&json!([got.attention.backend.as_str()]), &row["attention_backends"], &format!("{path}.attention"), &mut differences);
    }
    assert_eq!(refused, [("nvidia/Gemma-4-31B-IT-NVFP4", "a100"); 2]);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
