//! What is refused, and what the message says.

use serde_json::json;

use blis_contracts::format::FormatName;
use blis_contracts::model::ModelGraph;

use crate::config::tests::{Case, gpt_oss, h100, llama, llama_in, resolved, serve, value_of};
use crate::config::{Estimated, Field, Launch, Reading, read, read_estimating};

/// The message a line is refused with.
fn refusal(arguments: &str) -> String {
    resolved(arguments).unwrap_err().to_string()
}

/// Every line is refused with a message that begins so.
fn check(cases: &[(&str, &str)]) {
    for (arguments, expected) in cases {
        let got = refusal(arguments);
        assert!(got.starts_with(expected), "{arguments:?}\n  said:   {got}\n  wanted: {expected}");
    }
}

#[test]
fn a_refusal_says_what_would_be_right() {
    let cases = [
        ("--tensor-parallel-size 3", "total number of attention heads (64) must be divisible by tensor parallel size (3)"),
        ("--tensor-parallel-size 16", "world size (16) is larger than the number of available GPUs (8) in this node"),
        ("--tensor-parallel-size 0", "--tensor-parallel-size: 0 should be at least 1"),
        ("--tensor-paralel-size 2", "unrecognized arguments: --tensor-paralel-size; the nearest is --tensor-parallel-size"),
        (
            "--max-num 3",
            "ambiguous option: --max-num could match --max-num-active-seqs, --max-num-batched-tokens, \
                         --max-num-queued-reqs, --max-num-queued-tokens, --max-num-scheduled-tokens, --max-num-seqs",
        ),
        ("--max-num-seqs", "argument --max-num-seqs: expected one argument"),
        ("--cudagraph-capture-sizes", "argument --cudagraph-capture-sizes: expected at least one argument"),
        ("--model some/other", "unrecognized arguments: "),
        ("--max-num-seqs many", "--max-num-seqs: \"many\" is not an integer"),
        ("--max-num-batched-tokens 1.5K", "--max-num-batched-tokens: \"1.5K\" is not an integer, such as 8192, 8k or 8K"),
        ("--enforce-eager=1", "argument --enforce-eager: takes no value, but has \"1\"; write --enforce-eager or its --no- form"),
        ("--gpu-memory-utilization 1.5", "--gpu-memory-utilization: 1.5 should be greater than 0 and at most 1"),
        ("--gpu-memory-utilization nan", "--gpu-memory-utilization: \"nan\" is not a number"),
        ("--scheduling-policy fifo", "--scheduling-policy: invalid choice \"fifo\"; choose from fcfs, priority"),
        ("--kv-cache-dtype fp8_e4m4", "--kv-cache-dtype: invalid choice \"fp8_e4m4\" (the nearest is fp8_e4m3); choose from auto"),
        ("--kv-cache-dtype nvfp4", "--kv-cache-dtype = nvfp4 is not modelled: how keys and values are stored"),
    ];
    check(&cases);
}

/// A line as far as it can be read, with what stands in for what is not modelled.
fn estimated(arguments: &str) -> Reading {
    read_estimating(Launch { command: Some(&serve(arguments)), ..Launch::default() }).unwrap()
}

#[test]
fn every_setting_of_a_line_that_is_refused_is_told() {
    let reading = estimated("--no-such 3 --max-num-seqs many --enable-lora --attention-config '{\"no\":1}' --max-model-len 4096");
    let told: Vec<String> = reading.refusals.iter().map(ToString::to_string).collect();
    for part in ["--no-such", "--max-num-seqs", "unknown key \"no\"", "--enable-lora = true"] {
        assert!(told.iter().any(|refusal| refusal.contains(part)), "{part} is not among {told:#?}");
    }
    assert_eq!((told.len(), reading.stated.value("max_model_len")), (4, Some(&json!(4096))), "the rest is read");
    assert_eq!(refusal("--no-such 3 --max-num-seqs many"), told[0], "a strict reader tells the first");
}

#[test]
fn an_estimation_rule_takes_the_place_of_a_value_that_is_not_modelled_and_says_so() {
    let reading = estimated("--kv-cache-dtype fp8_e5m2 --distributed-executor-backend ray --enable-eplb");
    let accounts: Vec<String> = reading.estimates.iter().map(Estimated::account).collect();
    assert!(accounts[0].starts_with("--distributed-executor-backend = ray is not modelled; it is left out"), "{accounts:?}");
    assert!(accounts[1].starts_with("--kv-cache-dtype = fp8_e5m2 is not modelled; fp8 stands in for it"), "{accounts:?}");
    assert_eq!((reading.stated.value("kv_cache_dtype"), reading.stated.value("distributed_executor_backend")), (Some(&json!("fp8")), None));
    assert_eq!(reading.refusals.len(), 1, "--enable-eplb has no rule: {:?}", reading.refusals);
    let other = estimated("--kv-cache-dtype nvfp4");
    assert_eq!((other.estimates.len(), other.refusals.len()), (0, 1), "a stand-in is for the values it names");
    let code = estimated("--distributed-executor-backend my.own.Executor");
    assert_eq!((code.estimates.len(), code.refusals.len()), (0, 1), "nothing stands in for code that nobody has seen");
}

#[test]
fn a_field_can_name_code_where_its_value_is_of_another_package() {
    let names = |field: &str, value: &str| Field::called(field).unwrap().names_code(value);
    assert!(names("--scheduler-cls", "my.Scheduler") && !names("--scheduler-cls", "vllm.v1.core.sched.scheduler.Scheduler"));
    assert!(names("distributed_executor_backend", "my.Executor") && !names("distributed_executor_backend", "ray"));
    assert!(names("kv_transfer_config.kv_connector_module_path", "my.c") && !names("kv_transfer_config.kv_connector", "C"));
    assert!(!names("--max-num-seqs", "my.Scheduler"));
}

#[test]
fn an_object_without_what_is_not_modelled_is_taken() {
    for line in [
        "--kv-events-config '{\"enable_kv_cache_events\": false, \"topic\": \"kv\"}'",
        "--structured-outputs-config.backend guidance",
        "--profiler-config '{\"torch_profiler_with_stack\": false}'",
        "--speculative-config None",
        "-ac '{\"hisparse_config\": null}'",
    ] {
        let stated = read(Launch { command: Some(&format!("vllm serve m {line}")), ..Launch::default() });
        assert!(stated.is_ok(), "{line}: {stated:?}");
    }
}

#[test]
fn every_key_that_is_not_modelled_is_told_instead_of_its_object() {
    let reading = estimated("--speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 1, \"revision\": \"main\"}'");
    let told: Vec<String> = reading.refusals.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[0].starts_with("speculative_config.method") && told[1].starts_with("speculative_config.num_speculative_tokens"));
}

#[test]
fn what_is_not_modelled_is_refused_by_its_name() {
    let cases = [
        ("--pipeline-parallel-size 16", "world size (16) is larger than the number of available GPUs (8) in this node"),
        ("--data-parallel-size 2 --data-parallel-rank 1", "--data-parallel-rank = 1 is not modelled"),
        ("--data-parallel-size 2 --data-parallel-hybrid-lb", "--data-parallel-hybrid-lb = true is not modelled"),
        ("--all2all-backend deepep_v2", "--all2all-backend = deepep_v2 is not modelled"),
        ("--expert-placement-strategy round_robin", "--expert-placement-strategy = round_robin is not modelled"),
        ("--enable-eplb", "--enable-eplb = true is not modelled: moving experts between ranks"),
        ("--enable-expert-parallel", "--enable-expert-parallel: the number of experts in the model must be greater than 0"),
        ("--enable-lora", "--enable-lora = true is not modelled: LoRA adapters"),
        (
            "--speculative-config '{\"method\": \"ngram\", \"num-speculative-tokens\": 3}'",
            "speculative_config.method = ngram is not modelled: speculative decoding",
        ),
        ("-sc.num-speculative-tokens 3", "speculative_config.num_speculative_tokens = 3 is not modelled: speculative decoding"),
        ("-sc.synthetic_acceptance_rates [0.5]", "speculative_config.synthetic_acceptance_rates = [0.5] is not modelled"),
        ("-sc.synthetic_acceptance_rates 0.5", "speculative_config.synthetic_acceptance_rates: 0.5 is not a JSON list"),
        ("-sc.methods ngram", "--speculative-config: unknown key \"methods\"; the nearest is \"method\""),
        ("-sc.method guess", "speculative_config.method: invalid choice \"guess\""),
        ("-sc '{\"revision\": \"main\"}'", "--speculative-config = {\"revision\":\"main\"} is not modelled: speculative decoding"),
        (
            "--kv-transfer-config '{\"kv_connector\": \"NixlConnector\", \"kv_role\": \"kv_both\"}'",
            "kv_transfer_config.kv_connector = NixlConnector is not modelled: KV transfer",
        ),
        ("--kv-events-config '{\"enable_kv_cache_events\": true}'", "kv_events_config.enable_kv_cache_events = true is not modelled"),
        ("--generation-config ./mine", "--generation-config = ./mine is not modelled: a file of one's own can cap the output lengths"),
        ("--engram-config.cpu_offload false", "engram_config.cpu_offload = false is not modelled"),
        ("-ac.hisparse_config '{}'", "attention_config.hisparse_config = {} is not modelled"),
        ("--kv-transfer-config '{}'", "--kv-transfer-config = {} is not modelled"),
        ("--config x.yaml", "--config = x.yaml is not modelled: a scenario states the content of such a file under args"),
        (
            "--compilation-config '{\"cudagraph_mod\": 1}'",
            "--compilation-config: unknown key \"cudagraph_mod\"; the nearest is \"cudagraph_mode\"",
        ),
        ("-cc.pass_config.fuse_all true", "compilation_config.pass_config: unknown key \"fuse_all\"; the nearest is"),
        ("-cc.pass_config 3", "compilation_config.pass_config: 3 is not a JSON object"),
        ("-cc 3", "--compilation-config: \"3\" is not a JSON object"),
        ("-cc.cudagraph_mode HALF", "compilation_config.cudagraph_mode: invalid choice \"HALF\""),
        ("-cc.mode 2", "compilation_config.mode = DYNAMO_TRACE_ONCE is not modelled"),
        ("-cc.splitting_ops '[\"a\"]'", "compilation_config.splitting_ops = 1 operations is not modelled"),
        ("-cc.custom_ops '[\"rms_norm\"]'", "invalid syntax 'rms_norm' for custom op"),
        ("-cc.custom_ops '[\"+a\",\"-a\"]'", "custom_ops cannot both enable and disable the same operation: a"),
        (
            "-cc.custom_ops+ -rotary_embedding -cc.pass_config.enable_qk_norm_rope_fusion true",
            "custom_ops cannot both enable and disable the same operation: rotary_embedding",
        ),
        (
            "-ac.flash_attn_max_num_splits_for_cuda_graph 16",
            "attention_config.flash_attn_max_num_splits_for_cuda_graph = 16 is not modelled",
        ),
        (
            "-tp 2 --distributed-executor-backend uni",
            "--distributed-executor-backend uni: one process runs one rank and would wait for the others of 2",
        ),
        ("-ac.flash_attn_version 5", "attention_config.flash_attn_version: invalid choice \"5\"; choose from 2, 3, 4"),
        ("--attention-backend TURBOQUANT", "--attention-backend = TURBOQUANT is not modelled"),
        (
            "--attention-backend FLASHINFER -ac.backend FLASHINFER",
            "--attention-backend and attention_config.backend are mutually exclusive",
        ),
        (
            "--attention-backend FLEX_ATTENTION --kv-cache-dtype fp8",
            "selected backend FLEX_ATTENTION is not valid for this configuration: kv_cache_dtype not supported",
        ),
    ];
    check(&cases);
}

#[test]
fn a_combination_that_cannot_run_is_refused() {
    let cases = [
        (
            "--block-size 8",
            "--block-size 8: block_size not supported by FLASH_ATTN, FLASHINFER, TRITON_ATTN, FLEX_ATTENTION; leave it out, or state a size such as 16, 32, 64, 128",
        ),
        ("--data-parallel-size 5 --tensor-parallel-size 2", "--data-parallel-size 5: 5 engine cores of 2 GPUs are larger than"),
        ("--max-model-len 200000", "user-specified max_model_len (200000) is greater than the derived max_model_len"),
        ("--max-model-len 0", "--max-model-len: 0 should be at least 1, or auto"),
        ("--max-num-batched-tokens 8 --max-num-seqs 16", "max_num_batched_tokens (8) must be greater than or equal to max_num_seqs (16)"),
        (
            "--max-num-batched-tokens 2048 --no-enable-chunked-prefill",
            "max_num_batched_tokens (2048) is smaller than max_model_len (131072)",
        ),
        ("--max-num-seqs 4 --max-num-active-seqs 5", "max_num_active_seqs (5) cannot be greater than max_num_seqs (4)"),
        (
            "--max-model-len 100 --long-prefill-token-threshold 200",
            "long_prefill_token_threshold (200) cannot be greater than the max_model_len (100)",
        ),
        ("--max-cudagraph-capture-size 0", "max_cudagraph_capture_size should be at least 1"),
        ("--max-cudagraph-capture-size 8 --cudagraph-capture-sizes 1 4", "customized max_cudagraph_capture_size (=8) should be consistent"),
        ("--num-gpu-blocks-override -5", "--num-gpu-blocks-override: -5 should be at least 0"),
        ("--quantization awq", "--quantization = awq is not modelled: quantising a checkpoint while it is loaded"),
        ("a-second-model", "unrecognized arguments: a-second-model; the model is already given"),
        ("--api-server-count 0", "--api-server-count 0: a server that answers requests needs at least 1"),
        ("--api-server-count 4294967296", "--api-server-count 4294967296: more processes than any machine has; state at most 4294967295"),
        ("--max-num-seqs $CONC", "command: \"$CONC\" needs a shell; state the value itself"),
        ("| tee log", "command: \"|\" needs a shell"),
        ("'", "command: the quotes do not balance"),
        (
            "--disable-log-requests",
            "unrecognized arguments: --disable-log-requests; vLLM had it from 0.10.2 until before 0.18.0: leave it out",
        ),
        (
            "--rope-scaling x",
            "unrecognized arguments: --rope-scaling; vLLM had it from 0.10.2 until before 0.15.1: state it in --hf-overrides",
        ),
        (
            "--num_speculative_tokens 3",
            "unrecognized arguments: --num-speculative-tokens; vLLM had it before 0.10.2: it is a key of --speculative-config now",
        ),
        (
            "--guided-decoding-backend=auto",
            "unrecognized arguments: --guided-decoding-backend; vLLM had it from 0.10.2 until before 0.15.1: state --structured-outputs-config",
        ),
        (
            "--enable-bf16x3-router-gemm",
            "unrecognized arguments: --enable-bf16x3-router-gemm; vLLM had it from 0.26.0: no setting asks for that kernel",
        ),
        ("-O.level=3", "unrecognized arguments: -O; vLLM had it from 0.10.2 until before 0.15.1: -O takes a level from 0 to 3 now"),
        ("-O.cudagraph_mode FULL", "unrecognized arguments: -O; vLLM had it"),
        ("-O '{\"level\": 3}'", "unrecognized arguments: -O; vLLM had it"),
        ("-O4", "--optimization-level: invalid choice"),
    ];
    check(&cases);
}

#[test]
fn a_variable_is_known_or_an_error() {
    let refusal =
        |name, value| Case { env: &[(name, value)], ..Case::line("vllm serve m") }.resolve(&llama(), &h100()).unwrap_err().to_string();
    assert_eq!(refusal("VLLM_USE_DEEP_GEM", "1"), "unknown environment variable VLLM_USE_DEEP_GEM; the nearest is VLLM_USE_DEEP_GEMM");
    assert!(refusal("SOMETHING", "1").starts_with("unknown environment variable SOMETHING"));
    let prompts = "attention_config.mla_prefill_backend: this model has no latent attention; leave it out";
    let line = "vllm serve m --attention-config.mla_prefill_backend FLASHINFER";
    assert_eq!(Case::line(line).resolve(&llama(), &h100()).unwrap_err().to_string(), prompts);
    assert!(refusal("VLLM_BATCH_INVARIANT", "1").starts_with("VLLM_BATCH_INVARIANT = true is not modelled"));
    assert!(refusal("NCCL_ALGO", "Ring").starts_with("NCCL_ALGO = Ring is not modelled: it changes the algorithms"));
    assert_eq!(refusal("VLLM_USE_DEEP_GEMM", "yes"), "VLLM_USE_DEEP_GEMM: \"yes\" is not 0 or 1");
    assert!(refusal("VLLM_FLOAT32_MATMUL_PRECISION", "highes").contains("(the nearest is highest); choose from highest, high, medium"));
    assert!(
        refusal("VLLM_MXFP4_USE_MARLIN", "1")
            .ends_with(": state --moe-backend marlin, or state engine.written_for for a line of such a release")
    );
}

#[test]
fn a_variable_at_its_default_or_inert_is_taken() {
    let env = [
        ("VLLM_BATCH_INVARIANT", "0"),
        ("VLLM_USE_V2_MODEL_RUNNER", "1"),
        ("TORCH_CUDA_ARCH_LIST", "9.0"),
        ("SAFETENSORS_FAST_GPU", "1"),
        ("VLLM_ENGINE_READY_TIMEOUT_S", "3600"),
        ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1"),
    ];
    let case = Case { env: &env, ..Case::line("vllm serve m --max-model-len 200000") };
    assert_eq!(case.resolve(&llama(), &h100()).unwrap().cache.max_model_len, 200_000);
}

#[test]
fn a_pool_takes_a_command_or_arguments() {
    let map = json!({});
    let both = read(Launch { command: Some("vllm serve m"), args: map.as_object(), ..Launch::default() }).unwrap_err();
    assert_eq!(both.to_string(), "a pool takes either `command` or `args`; both are given");
    assert_eq!(read(Launch::default()).unwrap_err().to_string(), "a pool takes either `command` or `args`; neither is given");
    let twice = Case { env: &[("HF_HOME", "a")], ..Case::line("HF_HOME=b vllm serve m") };
    let refusal = twice.resolve(&llama(), &h100()).unwrap_err().to_string();
    assert_eq!(refusal, "environment variable HF_HOME is set both in `env` and in the command");
    let other = Case::line("python3 -m sglang.launch_server --model-path m").resolve(&llama(), &h100()).unwrap_err().to_string();
    assert!(other.starts_with("command: starts \"python3 -m sglang.launch_server\""), "{other}");
    let tag = Case::line("python3 -m vllm.entrypoints.openai.api_server m").resolve(&llama(), &h100()).unwrap_err().to_string();
    assert_eq!(tag, "unrecognized arguments: m; this entry point takes the model by --model");
}

#[test]
fn a_stated_quantisation_is_the_checkpoint_s_own_or_replaced_by_it() {
    let resolve = |model: &ModelGraph, arguments: &str| Case::line(&serve(arguments)).resolve(model, &h100());
    assert!(resolve(&gpt_oss(), "-q gpt_oss_mxfp4").unwrap().notes.is_empty());
    let replaced = resolve(&gpt_oss(), "--quantization fp8").unwrap();
    assert_eq!(value_of(&replaced, "quantization"), "gpt_oss_mxfp4");
    assert_eq!(replaced.notes, ["--quantization fp8 has no effect: the checkpoint's own method, gpt_oss_mxfp4, replaces it"]);
    let mut blocked = llama_in(FormatName::Fp8Block);
    blocked.quantisation = Some("fp8".to_owned());
    assert!(resolve(&blocked, "-q fp8").is_ok());
    let refusal = resolve(&blocked, "-q awq").unwrap_err().to_string();
    assert!(refusal.starts_with("quantization method specified in the model config (fp8) does not match"), "{refusal}");
    let half = resolve(&gpt_oss(), "--dtype half").unwrap_err().to_string();
    assert_eq!(half, "float16 is not supported for quantization method gpt_oss_mxfp4; supported is bfloat16: state --dtype bfloat16");
}
