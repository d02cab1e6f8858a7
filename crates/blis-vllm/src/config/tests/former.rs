//! Lines written for earlier releases.

use blis_contracts::chip::Chip;

use crate::config::tests::{Case, b200, gpt_oss, h100, h200, llama, llama_fp8, serve, value_of};
use crate::config::{Launch, LinearBackend, Machine, MoeBackend, Source, read, resolve};

fn written_for<'a>(release: &'a str, line: &'a str, env: &'a [(&'a str, &'a str)]) -> Case<'a> {
    Case { line, env, written_for: Some(release) }
}

#[test]
fn the_marlin_variable_becomes_the_flag() {
    let case = written_for("0.22.0", "vllm serve m", &[("VLLM_MXFP4_USE_MARLIN", "1")]);
    let got = case.resolve(&gpt_oss(), &h200()).unwrap();
    assert_eq!(got.kernels.moe_backend, MoeBackend::Marlin);
    let line = got.explained.iter().find(|line| line.setting.key() == "moe_backend").unwrap();
    assert_eq!(line.source, Source::FormerlySpelled);
    assert_eq!(
        got.notes,
        ["VLLM_MXFP4_USE_MARLIN = 1 means --moe-backend = marlin (0.22.0 deprecates it in favour of --moe-backend marlin)"]
    );
}

#[test]
fn a_flag_of_today_wins_over_a_translated_one() {
    let case = written_for("0.22.0", "vllm serve m --moe-backend triton", &[("VLLM_MXFP4_USE_MARLIN", "1")]);
    let got = case.resolve(&gpt_oss(), &h200()).unwrap();
    assert_eq!(got.kernels.moe_backend, MoeBackend::Triton);
    assert_eq!(
        got.notes,
        [
            "VLLM_MXFP4_USE_MARLIN = 1 does not set --moe-backend, which is stated as triton (0.22.0 deprecates it in favour of --moe-backend marlin)"
        ]
    );
}

#[test]
fn no_note_claims_a_meaning_that_is_not_in_force() {
    let notes = |line: &str, env: &[(&str, &str)]| {
        let env: Vec<(String, String)> = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let stated = read(Launch { command: Some(line), env: &env, written_for: Some("0.15.1"), ..Launch::default() }).unwrap();
        stated.statements.notes
    };
    let all2all = [("VLLM_ALL2ALL_BACKEND", "deepep_high_throughput")];
    let reason = "(the variable became --all2all-backend)";
    let spelled = "VLLM_ALL2ALL_BACKEND = deepep_high_throughput";
    assert_eq!(
        notes("vllm serve m --all2all-backend deepep_low_latency", &all2all),
        [format!("{spelled} does not set --all2all-backend, which is stated as deepep_low_latency {reason}")]
    );
    let same = notes("vllm serve m --all2all-backend deepep_high_throughput", &all2all);
    assert_eq!(same, [format!("{spelled} means --all2all-backend = deepep_high_throughput, which is stated {reason}")]);
    let partly = notes("vllm serve m --moe-backend triton", &[("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "1")]);
    assert!(
        partly[0].contains("does not set --moe-backend, which is stated as triton, and means quantization_config.moe.activation = mxfp8"),
        "{partly:?}"
    );
    let sizes = [("VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB", r#"{"2":32}"#)];
    let size = notes("vllm serve m -tp 2 -cc.pass_config.fi_allreduce_fusion_max_size_mb 8", &sizes);
    assert!(size[0].contains("does not set ") && size[0].contains("which is stated as 8"), "{size:?}");
}

#[test]
fn the_flashinfer_variable_becomes_a_backend_and_an_activation_format() {
    let case = written_for("0.15.1", "vllm serve m", &[("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "1")]);
    let kernels = case.resolve(&gpt_oss(), &b200()).unwrap().kernels;
    assert_eq!((kernels.moe_backend, kernels.moe_activation_mxfp8), (MoeBackend::FlashinferTrtllm, true));
}

#[test]
fn an_old_value_is_read_as_today_s_flag_reads_it() {
    let case = written_for("0.22.0", "vllm serve m", &[("VLLM_NVFP4_GEMM_BACKEND", "flashinfer-cutlass")]);
    assert_eq!(case.resolve(&gpt_oss(), &b200()).unwrap().kernels.linear_backend, LinearBackend::FlashinferCutlass);
    let unnamed = written_for("0.22.0", "vllm serve m", &[("VLLM_NVFP4_GEMM_BACKEND", "emulation")]);
    assert!(unnamed.resolve(&gpt_oss(), &b200()).unwrap_err().to_string().contains("only flashinfer-cudnn, "));
}

#[test]
fn size_limits_by_ranks_become_the_limit_of_this_layout() {
    let env = [("VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB", r#"{"2":32,"4":32,"8":8}"#)];
    let limit = |ranks: u32| {
        let line = serve(&format!("-tp {ranks}"));
        let got = written_for("0.10.2", &line, &env).resolve(&llama_fp8(), &b200()).unwrap();
        (
            value_of(&got, "compilation_config.pass_config.fi_allreduce_fusion_max_size_mb"),
            got.compilation.passes.allreduce_fusion_max_tokens,
        )
    };
    assert_eq!(limit(1), ("None".to_owned(), None));
    assert_eq!(limit(2), ("32.0".to_owned(), Some(32 * 64)));
    assert_eq!(limit(8), ("8.0".to_owned(), Some(8 * 64)));
}

#[test]
fn old_pass_names_are_renamed() {
    let line = serve(
        r#"--compilation-config '{"pass_config":{"enable_fi_allreduce_fusion":true,"enable_attn_fusion":true,"enable_noop":true}}' -tp 2"#,
    );
    let passes = written_for("0.10.2", &line, &[]).resolve(&llama_fp8(), &b200()).unwrap().compilation.passes;
    assert!(passes.fuse_allreduce_rms && passes.fuse_attn_quant);
}

#[test]
fn a_spelling_counts_only_for_releases_that_had_it() {
    let resolve = |release, arguments: &str| written_for(release, &serve(arguments), &[]).resolve(&llama_fp8(), &h100()).map(|_| ());
    assert!(resolve("0.10.2", "--disable-log-requests").is_ok());
    assert!(resolve("v0.16.0", "--disable-log-requests").is_ok());
    assert!(resolve("0.18.0", "--disable-log-requests").is_err());
    assert!(resolve("0.15.1", "--swap-space 4 --max-num-seqs 4").is_ok());
    let refusal = resolve("0.22", "").unwrap_err().to_string();
    assert_eq!(refusal, "\"0.22\" is not a release such as \"0.22.0\"");
    assert!(resolve(crate::RELEASE, "").is_ok());
    let later = resolve("99.0.0", "").unwrap_err().to_string();
    assert_eq!(later, format!("\"99.0.0\" is later than {}, the modelled release, so that its spellings are not known", crate::RELEASE));
}

#[test]
fn a_spelling_whose_meaning_hangs_on_another_setting_is_translated_beside_it_and_refused_alone() {
    let resolve = |env: &[(&str, &str)]| written_for("0.17.0", &serve(""), env).resolve(&llama_fp8(), &h100());
    let (flashinfer, deep_gemm) = (("VLLM_USE_FLASHINFER_MOE_FP8", "0"), ("VLLM_MOE_USE_DEEP_GEMM", "0"));
    assert_eq!(resolve(&[deep_gemm, flashinfer]).unwrap().kernels.moe_backend, MoeBackend::Triton);
    assert_eq!(resolve(&[deep_gemm]).unwrap().kernels.moe_backend, MoeBackend::Auto);
    assert!(resolve(&[flashinfer, ("VLLM_MOE_USE_DEEP_GEMM", "1")]).is_err());
}

#[test]
fn a_spelling_without_an_equivalent_is_refused_by_its_name() {
    let refusal = |release, arguments: &str, env: &[(&str, &str)]| {
        written_for(release, &serve(arguments), env).resolve(&gpt_oss(), &h100()).unwrap_err().to_string()
    };
    let fp8 = refusal("0.17.0", "", &[("VLLM_USE_FLASHINFER_MOE_FP8", "0")]);
    assert!(
        fp8.starts_with("VLLM_USE_FLASHINFER_MOE_FP8 = 0 has no equivalent in the modelled release: it took FlashInfer's kernels"),
        "{fp8}"
    );
    let pass = refusal("0.22.0", "-cc.pass_config.fuse_minimax_qk_norm false", &[]);
    assert!(pass.contains("only true can be translated"), "{pass}");
    let value = refusal("0.22.0", "--max-num-partial-prefills 2", &[]);
    assert!(value.contains("only 1 can be translated"), "{value}");
}

/// What a line that states no release is told of a variable.
fn variable_hint(name: &str, value: &str) -> String {
    let case = Case { env: &[(name, value)], ..Case::line("vllm serve m") };
    let refusal = case.resolve(&gpt_oss(), &h100()).unwrap_err().to_string();
    refusal.strip_prefix(&format!("unknown environment variable {name}; vLLM had it ")).unwrap_or(&refusal).to_owned()
}

#[test]
fn a_hint_is_of_the_value_that_is_written() {
    let marlin = variable_hint("VLLM_MXFP4_USE_MARLIN", "0");
    assert!(marlin.starts_with("from 0.10.2 until before 0.25.0") && marlin.contains("it excluded one expert kernel"), "{marlin}");
    assert!(!marlin.contains("--moe-backend marlin"), "{marlin}");
    assert!(variable_hint("VLLM_MXFP4_USE_MARLIN", "True").contains(": state --moe-backend marlin, or state"));
    let default = variable_hint("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "0");
    assert!(default.contains(": leave it out, or state engine.written_for"), "{default}");
    let on = variable_hint("VLLM_USE_FLASHINFER_MOE_FP8", "1");
    assert!(on.contains("it took FlashInfer's kernels into or out of") && !on.contains("triton"), "{on}");
    let off = variable_hint("VLLM_USE_FLASHINFER_MOE_FP8", "0");
    assert!(off.contains("beside VLLM_MOE_USE_DEEP_GEMM = 0 state --moe-backend triton, or state"), "{off}");
    assert!(off.contains("; otherwise ") && off.contains("it took FlashInfer's kernels into or out of"), "{off}");
    let v0 = variable_hint("VLLM_USE_V1", "0");
    assert!(v0.contains("the V0 engine no longer exists") && !v0.contains("leave it out"), "{v0}");
    let line = |words: &str| Case::line(&serve(words)).resolve(&gpt_oss(), &h100()).unwrap_err().to_string();
    let key = |value: &str| line(&format!("--attention-config.use_fp4_indexer_cache {value}"));
    assert!(key("false").contains(": leave it out") && key("true").contains("state attention_config.indexer_kv_dtype mxfp4"));
    assert!(line("--max-num-partial-prefills 1").contains("from 0.10.2: leave it out"));
}

#[test]
fn a_value_that_no_row_is_for_is_told_those_that_are() {
    assert_eq!(variable_hint("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "yes"), "from 0.10.2 until before 0.25.0: only 1, 0 can be translated");
    let words = Case::line(&serve("--max-num-partial-prefills=2")).resolve(&gpt_oss(), &h100()).unwrap_err().to_string();
    assert_eq!(words, "unrecognized arguments: --max-num-partial-prefills; vLLM had it from 0.10.2: only 1 can be translated");
    let stated = written_for("0.22.0", "vllm serve m", &[("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "yes")]);
    assert!(stated.resolve(&gpt_oss(), &h100()).unwrap_err().to_string().ends_with(": only 1, 0 can be translated"));
}

#[test]
fn nobody_is_sent_to_a_release_whose_line_is_refused() {
    let refused = [
        "VLLM_USE_FLASHINFER_MOE_FP4",
        "VLLM_USE_FLASHINFER_MOE_FP16",
        "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16",
        "VLLM_FLASHINFER_MOE_BACKEND",
    ];
    for name in refused {
        let hint = variable_hint(name, "1");
        assert!(hint.contains(": it has no equivalent in the modelled release, as ") && hint.contains("name the wanted"), "{hint}");
        assert!(!hint.contains("written_for"), "{hint}");
    }
    for flag in ["--calculate-kv-scales", "--disable-frontend-multiprocessing"] {
        let refusal = Case::line(&serve(flag)).resolve(&gpt_oss(), &h100()).unwrap_err().to_string();
        assert!(refusal.contains(": it has no equivalent in the modelled release, as ") && !refusal.contains("written_for"), "{refusal}");
    }
}

#[test]
fn a_variable_that_is_gone_is_told_what_became_of_it_and_no_distant_name() {
    let cases = [
        (
            "VLLM_MOE_DP_CHUNK_SIZE",
            "512",
            "from 0.10.2 until before 0.22.0: it has no equivalent in the modelled release, as data-parallel ranks",
        ),
        (
            "VLLM_FUSED_MOE_CHUNK_SIZE",
            "8192",
            "from 0.10.2 until before 0.18.0: it has no equivalent in the modelled release, as the experts take",
        ),
        ("VLLM_ENABLE_MOE_DP_CHUNK", "0", "from 0.15.1 until before 0.22.0: leave it out, or state engine.written_for"),
        ("VLLM_SLEEP_WHEN_IDLE", "1", "from 0.10.2 until before 0.18.0: leave it out, or state engine.written_for"),
        ("VLLM_USE_TRTLLM_DECODE_ATTENTION", "1", "before 0.10.2: state --attention-config.use_trtllm_attention"),
    ];
    for (name, value, wanted) in cases {
        let hint = variable_hint(name, value);
        assert!(hint.starts_with(wanted), "{name}: {hint}");
    }
    for name in ["VLLM_MOE_DP_CHUNK_BYTES", "VLLM_USE_TRTLLM_PREFILL_ATTENTION", "VLLM_TORCH_PROFILER_DIR"] {
        assert_eq!(variable_hint(name, "1"), format!("unknown environment variable {name}"));
    }
    let idle = written_for("0.15.1", "vllm serve m", &[("VLLM_SLEEP_WHEN_IDLE", "1"), ("VLLM_ENABLE_MOE_DP_CHUNK", "0")]);
    assert_eq!(idle.resolve(&gpt_oss(), &h100()).unwrap().notes.len(), 2);
    let chunk = written_for("0.18.0", "vllm serve m", &[("VLLM_MOE_DP_CHUNK_SIZE", "512")]);
    assert!(chunk.resolve(&gpt_oss(), &h100()).unwrap_err().to_string().contains("has no equivalent"));
}

#[test]
fn a_level_that_is_missing_or_wrong_is_asked_for_and_only_keys_of_the_compilation_are_said_to_be_gone() {
    let refusal = |words: &str| Case::line(&serve(words)).resolve(&gpt_oss(), &h100()).unwrap_err().to_string();
    for words in ["-O", "-O --max-num-seqs 4", "--max-num-seqs 4 -O"] {
        assert_eq!(refusal(words), "argument -O: expected a level from 0 to 3", "{words}");
    }
    for level in ["4", "-1", "03", "max"] {
        assert_eq!(refusal(&format!("-O {level}")), format!("-O: invalid choice {level:?}; choose from 0, 1, 2, 3"));
    }
    assert!(refusal("-O '{\"level\": 3}'").starts_with("unrecognized arguments: -O; vLLM had it from 0.10.2 until before 0.15.1"));
    assert!(Case::line(&serve("-O 3 --max-num-seqs 4")).resolve(&gpt_oss(), &h100()).is_ok());
}

#[test]
fn large_chips_were_given_no_more_than_others_before() {
    let ran = |release: &str, chip: &Chip| {
        let mut stated = read(Launch { command: Some("vllm serve m"), args: None, env: &[], written_for: None }).unwrap();
        stated.take_defaults_of(release, &llama()).unwrap();
        let got = resolve(&stated, Machine { model: &llama(), chip, gpus: 8 }).unwrap();
        (got.scheduler.max_num_batched_tokens, got.compilation.max_cudagraph_capture_size)
    };
    assert_eq!((ran("0.27.0", &b200()), ran("0.28.0", &b200())), ((8192, 512), (16384, 1024)));
    assert_eq!((ran("0.27.0", &h200()), ran("0.28.0", &h200())), ((8192, 512), (8192, 512)));
}
