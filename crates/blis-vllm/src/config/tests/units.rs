//! The shapes of launch lines that measured deployments of gpt-oss-120b and Llama-3.3-70B used, with what each resolves to.

use crate::config::tests::{Case, b200, gpt_oss, h100, h200, llama_fp8, llama_in, serve};
use crate::config::{AttentionBackend, CudagraphMode, KvCacheDtype, MoeBackend};
use blis_contracts::format::FormatName;

const COMMON: &str = "--host 0.0.0.0 --port 8888 --gpu-memory-utilization 0.9 --no-enable-prefix-caching --max-num-batched-tokens 8192";

#[test]
fn gpt_oss_on_hopper() {
    let tail = "--max-cudagraph-capture-size 2048 --max-model-len";
    for (chip, release, length) in [(h100(), "0.21.0", 10240), (h200(), "0.22.0", 2068), (h200(), "0.18.0", 9416)] {
        for (ranks, concurrency) in [(1, 4), (2, 64), (4, 128), (8, 16)] {
            let line = serve(&format!("{COMMON} --tensor-parallel-size {ranks} --max-num-seqs {concurrency} {tail} {length}"));
            let env = [("TORCH_CUDA_ARCH_LIST", "9.0"), ("VLLM_MXFP4_USE_MARLIN", "1")];
            let got = Case { line: &line, env: &env, written_for: Some(release) }.resolve(&gpt_oss(), &chip).unwrap();
            assert_eq!((got.tensor_parallel_size, got.scheduler.max_num_seqs, got.cache.max_model_len), (ranks, concurrency, length));
            assert_eq!((got.kernels.moe_backend, got.attention.backend), (MoeBackend::Marlin, AttentionBackend::FlashAttn));
            assert_eq!(got.compilation.max_cudagraph_capture_size, 2048);
            assert_eq!(got.compilation.cudagraph_mode, CudagraphMode::FullAndPiecewise);
            assert_eq!(got.cache.kv_cache_dtype, KvCacheDtype::Auto);
        }
    }
}

#[test]
fn gpt_oss_on_blackwell() {
    let passes = r#"--kv-cache-dtype fp8 --compilation-config '{"pass_config":{"fuse_allreduce_rms":true,"eliminate_noops":true}}'"#;
    for (release, extra) in [("0.22.0", ""), ("0.15.1", "--disable-log-requests")] {
        for ranks in [1, 2, 4, 8] {
            let line = serve(&format!(
                "{COMMON} {extra} {passes} --tensor-parallel-size {ranks} --max-num-seqs 512 --max-cudagraph-capture-size 2048 --max-model-len 2068"
            ));
            let env = [("TORCH_CUDA_ARCH_LIST", "10.0"), ("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "1")];
            let got = Case { line: &line, env: &env, written_for: Some(release) }.resolve(&gpt_oss(), &b200()).unwrap();
            assert_eq!((got.attention.backend, got.cache.kv_cache_dtype), (AttentionBackend::Flashinfer, KvCacheDtype::Fp8));
            assert_eq!((got.kernels.moe_backend, got.kernels.moe_activation_mxfp8), (MoeBackend::FlashinferTrtllm, true));
            assert!(got.compilation.passes.fuse_allreduce_rms);
        }
    }
}

#[test]
fn llama_on_hopper() {
    for chip in [h100(), h200()] {
        let line = serve(&format!(
            "{COMMON} --tensor-parallel-size 2 --max-num-seqs 64 --disable-log-requests --kv-cache-dtype fp8 --async-scheduling --max-model-len 10240"
        ));
        let case = Case { line: &line, env: &[("TORCH_CUDA_ARCH_LIST", "9.0")], written_for: Some("0.10.2") };
        let got = case.resolve(&llama_fp8(), &chip).unwrap();
        assert_eq!((got.attention.backend, got.attention.flash_attn_version(128)), (AttentionBackend::FlashAttn, Some(3)));
        assert_eq!((got.scheduler.async_scheduling, got.compilation.max_cudagraph_capture_size), (true, 128));
    }
}

#[test]
fn llama_on_blackwell() {
    let compilation = r#"--compilation-config '{"pass_config": {"enable_fi_allreduce_fusion": true, "enable_attn_fusion": true, "enable_noop": true},"custom_ops": ["+quant_fp8", "+rms_norm"],"cudagraph_mode": "FULL_DECODE_ONLY","splitting_ops": []}'"#;
    let mut fp4 = llama_in(FormatName::Nvfp4);
    fp4.quantisation = Some("modelopt".to_owned());
    for model in [llama_fp8(), fp4] {
        for ranks in [1, 2, 4, 8] {
            let line = serve(&format!(
                "{COMMON} {compilation} --tensor-parallel-size {ranks} --max-num-seqs 512 --disable-log-requests --kv-cache-dtype fp8 --async-scheduling --max-model-len 2048"
            ));
            let env = [("VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB", r#"{"2":32,"4":32,"8":8}"#)];
            let got = Case { line: &line, env: &env, written_for: Some("0.10.2") }.resolve(&model, &b200()).unwrap();
            assert_eq!(got.compilation.cudagraph_mode, CudagraphMode::FullDecodeOnly);
            assert_eq!(got.compilation.custom_ops, ["+quant_fp8", "+rms_norm", "none"]);
            assert!(got.compilation.passes.fuse_attn_quant && got.compilation.passes.fuse_norm_quant);
            assert_eq!((got.attention.backend, got.compilation.max_cudagraph_capture_size), (AttentionBackend::Flashinfer, 1024));
        }
    }
}
