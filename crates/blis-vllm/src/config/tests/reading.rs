//! How a line is split into words and words into statements.

use serde_json::json;

use crate::config::tests::{Case, h100, llama, resolved, value_of};
use crate::config::{Launch, Machine, read, resolve};

#[test]
fn every_way_to_start_the_server_is_read() {
    for line in [
        "vllm serve m --max-num-seqs 7",
        "vllm serve --max-num-seqs 7 m",
        "vllm serve --max-num-seqs=7 m",
        "vllm serve m --max_num_seqs 7",
        "vllm serve m --max-num-se 7",
        "/opt/venv/bin/vllm serve m --max-num-seqs 7",
        "exec vllm serve m --max-num-seqs 7",
        "env VLLM_USE_DEEP_GEMM=1 vllm serve m --max-num-seqs 7",
        "VLLM_USE_DEEP_GEMM=1 HF_HOME='/a b' vllm serve m --max-num-seqs 7",
        "vllm serve m \\\n  --max-num-seqs 7",
        "vllm serve --model m --max-num-seqs 7",
        "python3 -m vllm.entrypoints.openai.api_server --model m --max-num-seqs 7",
        "python3.12 -m vllm.entrypoints.openai.api_server --model=m --max-num-seqs 7",
        "python -m vllm.entrypoints.cli.main serve m --max-num-seqs 7",
    ] {
        let got = Case::line(line).resolve(&llama(), &h100()).unwrap();
        assert_eq!((got.model.as_str(), got.scheduler.max_num_seqs), ("m", 7), "{line}");
    }
}

#[test]
fn the_map_form_means_what_the_flags_mean() {
    let map = json!({
        "model": "m", "tensor-parallel-size": 2, "max_num_seqs": 7, "enable_prefix_caching": false, "enforce_eager": true,
        "cudagraph_capture_sizes": [1, 2], "compilation_config": {"pass_config": {"fuse_allreduce_rms": false}},
        "disable_log_stats": false, "attention_config.use_trtllm_attention": false, "kv_cache_dtype": "fp8",
    });
    let stated = read(Launch { args: map.as_object(), ..Launch::default() }).unwrap();
    let got = resolve(&stated, Machine { model: &llama(), chip: &h100(), gpus: 8 }).unwrap();
    let line = "vllm serve m -tp 2 --max-num-seqs 7 --no-enable-prefix-caching --enforce-eager --cudagraph-capture-sizes 1 2 \
                -cc '{\"pass_config\": {\"fuse_allreduce_rms\": false}}' -ac.use_trtllm_attention false --kv-cache-dtype fp8";
    let expected = Case::line(line).resolve(&llama(), &h100()).unwrap();
    assert_eq!(
        (got.cache, got.scheduler, got.compilation, got.attention),
        (expected.cache, expected.scheduler, expected.compilation, expected.attention)
    );
}

#[test]
fn values_are_written_as_argparse_takes_them() {
    let cases = [
        ("--max-num-batched-tokens 25.6k", "max_num_batched_tokens", "25600"),
        ("--max-num-batched-tokens 16K", "max_num_batched_tokens", "16384"),
        ("--max-num-batched-tokens 8_192", "max_num_batched_tokens", "8192"),
        ("--kv-cache-memory-bytes 1.001k", "kv_cache_memory_bytes", "1000"),
        ("--kv-cache-memory-bytes 80g", "kv_cache_memory_bytes", "80000000000"),
        ("--kv-cache-memory-bytes ''", "kv_cache_memory_bytes", "None"),
        ("--max-num-seqs 1 --max-num-seqs 2", "max_num_seqs", "2"),
        ("--enable-prefix-caching --no-enable-prefix-caching", "enable_prefix_caching", "false"),
        ("-cc.max_cudagraph_capture_size 0.5k", "max_cudagraph_capture_size", "496"),
        ("-cc.pass_config.fuse_attn_quant False", "compilation_config.pass_config.fuse_attn_quant", "false"),
        ("--compilation_config.pass_config.fuse_attn_quant=0", "compilation_config.pass_config.fuse_attn_quant", "false"),
        ("-cc '{\"mode\": 3}'", "compilation_config.mode", "VLLM_COMPILE"),
        ("-cc.mode none", "compilation_config.mode", "NONE"),
        ("-cc.custom_ops+ +a,+b -cc.custom_ops+=-c", "compilation_config.custom_ops", "+a,+b,-c,none"),
        ("--optimization-level 1", "optimization_level", "1"),
        ("-O=0", "optimization_level", "0"),
        ("--served-model-name a b --max-num-seqs 9", "max_num_seqs", "9"),
        ("--hf-token --max-num-seqs 9", "max_num_seqs", "9"),
        ("--limit-mm-per-prompt '{}' --max-num-seqs 9", "max_num_seqs", "9"),
    ];
    for (arguments, key, expected) in cases {
        assert_eq!(value_of(&resolved(arguments).unwrap(), key), expected, "{arguments}");
    }
}

#[test]
fn json_given_twice_keeps_the_last_object_only() {
    let got = resolved("-cc '{\"cudagraph_mode\": \"FULL\"}' -cc.pass_config.fuse_attn_quant false").unwrap();
    assert_eq!(value_of(&got, "compilation_config.cudagraph_mode"), "FULL_AND_PIECEWISE");
    assert_eq!(got.notes, ["-cc is given both as JSON and by keys; upstream keeps the keys only"]);
}

#[test]
fn inert_settings_change_nothing() {
    let plain = resolved("").unwrap();
    let noisy =
        resolved("--host 0.0.0.0 --port 8888 --trust-remote-code --tool-call-parser hermes --enable-auto-tool-choice --seed 7").unwrap();
    assert_eq!(plain, noisy);
}
