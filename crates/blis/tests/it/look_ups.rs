//! Commands that show what there is.

use std::collections::BTreeSet;

use crate::harness::{Bench, CHAT, show};

fn stdout(test: &str, arguments: &[&str]) -> String {
    let output = Bench::new(test, CHAT).blis(arguments);
    assert!(output.status.success(), "{}", show(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn refusal(test: &str, arguments: &[&str]) -> String {
    let output = Bench::new(test, CHAT).blis(arguments);
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_catalog_lists_models_and_chips() {
    let text = stdout("catalog_list", &["catalog", "list"]);
    for name in ["llama-3.1-8b-instruct", "gpt-oss-120b", "openai/gpt-oss-120b", "h100", "h200", "b200"] {
        assert!(text.contains(name), "{name}: {text}");
    }
}

#[test]
fn a_model_is_shown_by_either_name_and_as_its_deriver_wrote_it() {
    let by_name = stdout("show_model", &["catalog", "show", "gpt-oss-20b"]);
    assert_eq!(by_name, stdout("show_checkpoint", &["catalog", "show", "openai/gpt-oss-20b"]));
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../catalog/models/gpt-oss-20b");
    assert_eq!(by_name, std::fs::read_to_string(format!("{committed}/graph.yaml")).unwrap());
    assert_eq!(by_name, stdout("derive_model", &["catalog", "derive", committed]));
}

#[test]
fn a_chip_is_shown_with_its_citations() {
    let text = stdout("show_chip", &["catalog", "show", "h100"]);
    assert!(text.contains("memory_bandwidth") && text.contains("datasheet") && text.contains("peak.bf16"), "{text}");
}

#[test]
fn networks_and_storage_devices_are_listed_and_shown_with_their_citations() {
    let list = stdout("list_networks", &["catalog", "list"]);
    for line in ["infiniband-ndr-400  infiniband  400 Gb/s  49.7 GB/s", "roce-200            roce_v2     200 Gb/s  24.5 GB/s", "local-nvme"]
    {
        assert!(list.contains(line), "{line}: {list}");
    }
    let network = stdout("show_network", &["catalog", "show", "roce-400"]);
    assert!(network.contains("packet_overhead") && network.contains("IEEE 802.3bs-2017"), "{network}");
    let device = stdout("show_device", &["catalog", "show", "local-nvme"]);
    assert!(device.contains("read_latency_us") && device.contains("datasheet"), "{device}");
}

#[test]
fn an_unknown_entry_gets_the_nearest() {
    assert!(refusal("show_unknown", &["catalog", "show", "gpt-oss-12b"]).contains("did you mean `gpt-oss-120b`?"));
}

#[test]
fn a_setting_is_found_by_flag_key_and_former_spelling() {
    for name in ["--max-num-seqs", "--max_num_seqs", "max-num-seqs", "max_num_seqs"] {
        let text = stdout("field", &["fields", "vllm", name]);
        assert!(text.contains("--max-num-seqs") && text.contains("modelled"), "{text}");
    }
    for name in ["--no-enable-prefix-caching", "no-enable-prefix-caching"] {
        assert!(stdout("field_negated", &["fields", "vllm", name]).contains("enable_prefix_caching"));
    }
    for name in ["-cc.cudagraph_mode", "--compilation-config.cudagraph_mode", "compilation_config.cudagraph_mode"] {
        let text = stdout("field_inner", &["fields", "vllm", name]);
        assert_eq!(text.matches("name       compilation_config.cudagraph_mode").count(), 1, "{text}");
    }
    assert!(refusal("field_not_negated", &["fields", "vllm", "--no-max-num-seqs"]).contains("no setting `--no-max-num-seqs`"));
    assert!(stdout("field_gone", &["fields", "vllm", "--rope-scaling"]).contains("--hf-overrides"));
    assert!(stdout("field_former", &["fields", "vllm", "VLLM_MXFP4_USE_MARLIN"]).contains("moe_backend marlin"));
    assert!(refusal("field_unknown", &["fields", "vllm", "max-num-seq"]).contains("did you mean `max_num_seqs`?"));
    assert!(stdout("fields_class", &["fields", "vllm", "SpeculativeConfig"]).contains("speculative_config.method"));
    let all = stdout("fields", &["fields", "vllm"]);
    assert!(all.lines().count() > 500 && all.contains("kv_transfer_config.kv_connector") && all.contains("CacheConfig"));
}

#[test]
fn what_an_engine_registers_is_listed_with_its_status() {
    let all = stdout("coverage", &["coverage", "vllm"]);
    assert!(all.contains("NixlConnector") && all.contains("SlidingWindowSpec") && all.contains("vllm:num_requests_running"), "{all}");
    let modelled = stdout("coverage_modelled", &["coverage", "vllm", "--status", "modelled"]);
    assert!(modelled.contains("SlidingWindowSpec") && !modelled.contains("NixlConnector"), "{modelled}");
}

#[test]
fn every_kind_of_document_has_a_schema_that_is_committed() {
    let kinds = stdout("schema_kinds", &["schema"]);
    assert!(kinds.lines().count() >= 2, "{kinds}");
    for kind in kinds.lines() {
        let committed = format!("{}/../../docs/schema/{kind}.json", env!("CARGO_MANIFEST_DIR"));
        assert_eq!(stdout("schema", &["schema", kind]), std::fs::read_to_string(committed).unwrap(), "{kind}");
    }
    assert!(refusal("schema_unknown", &["schema", "scenari"]).contains("a similar value exists: 'scenario'"));
}

#[test]
fn the_version_names_release_data_and_generator() {
    assert_eq!(stdout("version_flag", &["--version"]), format!("blis {}\n", env!("CARGO_PKG_VERSION")));
    let document: serde_json::Value = serde_json::from_str(&stdout("version_json", &["version", "--json"])).unwrap();
    for key in ["blis", "catalog_sha256", "registry_sha256", "generator"] {
        assert!(document[key].is_string(), "{document}");
    }
    assert!(document["engines"]["vllm"].is_string());
}

#[test]
fn metrics_are_defined() {
    assert!(stdout("metrics", &["metrics"]).contains("queue_delay"));
}

#[test]
fn a_step_that_the_engine_never_forms_is_priced_and_said_to_be_one() {
    let said = |step: &str| stdout("step_beyond", &["explain", "scenario.yaml", "--step", step]);
    let never = "This engine never forms the step: it has ";
    assert!(!said("decode=1024@4095").contains(never));
    assert!(said("decode=1025@1000").contains(&format!("{never}1,025 requests, and max_num_active_seqs is 1,024.")));
    assert!(said("prefill=8193@0").contains(&format!("{never}8,193 tokens, and max_num_scheduled_tokens is 8,192.")));
    assert!(said("decode=1@4096").contains(&format!("{never}4,097 tokens in one request, and max_model_len is 4,096.")));
}

#[test]
fn short_prompts_of_deepseek_v3_2_attend_as_its_scenario_says() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/deepseek-v3.2-h200-tp8.yaml");
    let text = std::fs::read_to_string(scenario).unwrap();
    for (step, picks) in [("prefill=128@0", true), ("prefill=129@0", false), ("prefill=2048@0", false), ("prefill=2049@0", true)] {
        let told = stdout("short_prompts", &["explain", scenario, "--step", step]);
        let (_, price) = told.split_once(&format!("A step of {step}")).unwrap();
        assert_eq!((price.contains("attention.sparse_prefill"), price.contains("selection.prefill")), (picks, picks), "{step}: {price}");
        assert!(step == "prefill=129@0" || text.contains(&format!("--step {step}")), "{step}: {text}");
    }
    assert!(text.contains("up to 128 new tokens") && text.contains("the 2,048 tokens that a query sees"), "{text}");
}

#[test]
fn support_says_where_a_model_starts_and_by_which_kernels() {
    let matrix = stdout("support_row", &["support", "qwen3-8b", "--tp", "1"]);
    let row = matrix.lines().find(|line| line.starts_with("qwen3-8b ")).unwrap();
    assert_eq!(row.matches("tp1 ").count(), 9, "one cell for each chip: {matrix}");
    let one = stdout("support_one", &["support", "openai/gpt-oss-120b", "h100"]);
    for needle in ["gpt-oss-120b on h100", "tp8", "moe.experts", "attention.prefill", "Sixteen requests"] {
        assert!(one.contains(needle), "{needle}: {one}");
    }
    let flags = stdout("support_flags", &["support", "gpt-oss-120b", "h100", "--tp", "2", "--flags", "--moe-backend marlin"]);
    assert!(flags.contains("marlin/moe") && !one.contains("marlin/moe"), "{flags}");
    let never = stdout("support_never", &["support", "llama-3.1-405b-instruct", "l40s", "--tp", "8"]);
    assert!(never.contains("CUDA out of memory"), "{never}");
    // Not modelled, which is no fault of the flags.
    let lora = stdout("support_lora", &["support", "qwen3-8b", "h100", "--tp", "1", "--flags", "--enable-lora"]);
    assert!(lora.contains("--enable-lora = true is not modelled") && !lora.contains("pools[0]"), "{lora}");
    assert!(refusal("support_unknown", &["support", "gpt-oss-12b"]).contains("did you mean `gpt-oss-120b`?"));
    assert!(refusal("support_chip", &["support", "qwen3-8b", "h10"]).contains("did you mean `h100`?"));
}

#[test]
fn support_looks_at_several_nodes_where_one_does_not_hold_a_model() {
    let alone = stdout("support_one_node", &["support", "deepseek-v3", "h100", "--tp", "16"]);
    assert!(alone.contains("the cluster has 1; it should have 2"), "{alone}");
    let two = ["support", "deepseek-v3", "h100", "--nodes", "2", "--fabric"];
    let shown = stdout("support_two_nodes", &[&two[..], &["infiniband-ndr-400"]].concat());
    let starts = shown.lines().find(|line| line.starts_with("tp16 ")).unwrap();
    assert!(!starts.contains(" - "), "{shown}");
    assert!(shown.contains("any-all-reduce-network") || shown.contains("nccl-all-reduce-8-network"), "{shown}");
    let named = stdout("support_named", &[&two[..], &["infiniband-ndr-400", "--flags", "--served-model-name a-nnodes"]].concat());
    assert_eq!(named.lines().find(|line| line.starts_with("tp16 ")), Some(starts), "a name is no number of nodes: {named}");
    assert!(refusal("support_no_network", &[&two[..], &["infiniband"]].concat()).contains("no network `infiniband` in the catalog"));
    let joined = stdout("support_domain", &["support", "deepseek-v3", "gb200-nvl72", "--nodes", "2", "--tp", "8"]);
    assert!(joined.lines().any(|line| line.starts_with("tp8 ") && !line.contains(" - ")), "{joined}");
}

#[test]
fn flags_that_no_model_and_no_chip_makes_right_are_an_error_and_no_cell_of_the_answer() {
    let bench = Bench::new("support_flags_refused", CHAT);
    let vendor = concat!(env!("CARGO_MANIFEST_DIR"), "/../../catalog/models/qwen3-8b/config.json");
    bench.write("mine/config.json", &std::fs::read(vendor).unwrap());
    let cases = [
        ("--max-num-sqes 4", "--flags: unrecognized arguments: --max-num-sqes; the nearest is --max-num-seqs"),
        ("--max-num-seqs many", "is not an integer"),
        ("--dtype flaot16", "invalid choice \"flaot16\""),
        ("--gpu-memory-utilization 2", "should be greater than 0 and at most 1"),
        ("--max-model-len", "expected one argument"),
        ("--model other", "the model is already given by --model"),
        ("'--dtype", "the quotes do not balance"),
        ("-tp 2", "states --tensor-parallel-size 2; leave it out there"),
        ("--tensor-par=2", "states --tensor-parallel-size 2; leave it out there"),
        // These are found only when the line is resolved.
        ("--max-model-len 0", "--max-model-len: 0 should be at least 1, or auto"),
        ("--stream-interval 5000000000", "5000000000 is too large"),
        ("--compilation-config.custom_ops+ all,none", "custom_ops can contain only one base mode"),
        ("--api-server-count 0", "a server that answers requests needs at least 1"),
    ];
    for (flags, message) in cases {
        for command in [["support", "qwen3-8b", "h100"].as_slice(), &["support", "qwen3-8b"], &["onboard", "mine", "h100"]] {
            let output = bench.blis(&[command, &["--flags", flags]].concat());
            let text = show(&output).replace('\n', " ");
            assert_eq!(output.status.code(), Some(2), "{flags}: {text}");
            assert!(text.contains(message) && output.stdout.is_empty(), "{flags}: {text}");
        }
    }
    let two = show(&bench.blis(&["support", "qwen3-8b", "h100", "--flags", "--max-num-sqes 4 --dtype flaot16"]));
    assert!(two.contains("--max-num-sqes") && two.contains("flaot16"), "each is told: {two}");
}

#[test]
fn support_says_which_prices_lie_outside_what_was_measured() {
    let matrix = stdout("support_two_widths", &["support", "gemma-4-26b-a4b"]);
    let row = matrix.lines().find(|line| line.starts_with("gemma-4-26b-a4b ")).unwrap();
    assert_eq!(row.matches("tp1 ").count() + row.matches("tp2 ").count(), 9, "one cell for each chip: {matrix}");
    // Heads of 256 and 512 elements, where those of 64 and 128 were measured.
    let wide = stdout("support_wide", &["support", "gemma-4-31b-it-nvfp4", "b200", "--tp", "1"]);
    let attends: Vec<&str> = wide.lines().filter(|line| line.starts_with("attention.")).collect();
    assert_eq!(attends.len(), 12, "{wide}");
    assert!(attends.iter().all(|line| line.contains("transferred (extrapolated)")), "{wide}");
    assert!(!wide.contains("99.8%"), "what is extrapolated is not trusted: {wide}");
    let plain = stdout("support_plain", &["support", "llama-3.1-8b-instruct", "h100", "--tp", "1"]);
    let (tables, named) = plain.split_once("entry used outside its range").unwrap_or_else(|| panic!("{plain}"));
    let flagged = tables.lines().filter(|line| line.contains("(extrapolated)") || line.contains("interval too wide"));
    let entries: BTreeSet<&str> = flagged.filter_map(|line| line.split_whitespace().last()).collect();
    assert!(!entries.is_empty() && entries.iter().all(|entry| named.contains(entry)), "{plain}");
    let never = stdout("support_triton", &["support", "gemma-4-31b-it-nvfp4", "a100-sxm", "--tp", "8"]);
    assert!(never.contains("FP8 KV cache is not supported by"), "{never}");
}

#[test]
fn the_shares_of_a_step_are_of_the_accelerators_whole_time() {
    let text = stdout("explain_eager", &["explain", "scenario.yaml", "--step", "prefill=600@0"]);
    let lines = text.split_once("A step of prefill=600@0").unwrap().1.lines();
    let share = |line: &str| line.split_whitespace().find_map(|word| word.strip_suffix('%')?.trim_start_matches('<').parse::<f64>().ok());
    let (between, others): (Vec<&str>, Vec<&str>) =
        lines.filter(|line| share(line).is_some()).partition(|line| line.contains("(between kernels)"));
    assert!(!between.is_empty() && between.iter().all(|line| line.starts_with("graph.")), "{text}");
    let whole: f64 = between.iter().chain(&others).filter_map(|line| share(line)).sum();
    assert!((98.0..=102.0).contains(&whole), "{whole}%: {text}");
}

#[test]
fn a_checkpoint_of_ones_own_is_onboarded_without_a_catalog_entry() {
    let bench = Bench::new("onboard", CHAT);
    let vendor = concat!(env!("CARGO_MANIFEST_DIR"), "/../../catalog/models/qwen3-8b/config.json");
    bench.write("my-model/config.json", &std::fs::read(vendor).unwrap());
    let output = bench.blis(&["onboard", "my-model", "h100", "--tp", "1"]);
    assert!(output.status.success(), "{}", show(&output));
    let own = String::from_utf8(output.stdout).unwrap();
    let catalogued = stdout("onboard_known", &["support", "qwen3-8b", "h100", "--tp", "1"]);
    assert_eq!(own.replace("my-model", "qwen3-8b"), catalogued, "the same checkpoint under another name");
    assert!(refusal("onboard_nothing", &["onboard", "nowhere"]).contains("config.json: cannot be read"));
    // A model so small that a chip holds more than 2^32 tokens of it.
    let tiny = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2,
        "num_key_value_heads": 4, "intermediate_size": 64, "vocab_size": 32000, "max_position_embeddings": 2048, "torch_dtype": "bfloat16"}"#;
    bench.write("tiny/config.json", tiny.as_bytes());
    let small = bench.blis(&["onboard", "tiny", "b200"]);
    assert!(small.status.success(), "{}", show(&small));
}

#[test]
fn a_derived_graph_laid_over_the_catalog_runs_under_its_checkpoints_name() {
    let served = CHAT.replace("llama-3.1-8b-instruct", "mine-8b").replace("meta-llama/Llama-3.1-8B-Instruct", "org/Mine-8B");
    let bench = Bench::new("laid_over", &served);
    let vendor = concat!(env!("CARGO_MANIFEST_DIR"), "/../../catalog/models/qwen3-8b/config.json");
    bench.write("snapshots/abc/config.json", &std::fs::read(vendor).unwrap());
    let derived = bench.blis(&["catalog", "derive", "snapshots/abc", "--checkpoint", "org/Mine-8B"]);
    assert!(derived.status.success(), "{}", show(&derived));
    bench.write("mine/models/mine-8b/graph.yaml", &derived.stdout);
    let run = bench.blis(&["run", "scenario.yaml", "--catalog-overlay", "mine"]);
    assert!(run.status.success(), "{}", show(&run));
    let text = String::from_utf8(derived.stdout).unwrap();
    bench.write("mine/models/mine-8b/graph.yaml", text.replace("hidden_size:", "hiden_size:").as_bytes());
    let told = show(&bench.blis(&["run", "scenario.yaml", "--catalog-overlay", "mine"]));
    assert!(told.contains("error: mine/models/mine-8b/graph.yaml:") && told.contains("did you mean `hidden_size`?"), "{told}");
}

#[test]
fn each_shell_gets_a_completion_script() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(stdout("completions", &["completions", shell]).contains("blis"), "{shell}");
    }
}

#[test]
fn an_entry_of_the_registry_is_shown_with_its_provenance_and_users() {
    assert!(stdout("registry_chips", &["registry", "show"]).contains("h200"));
    assert!(stdout("registry_chip", &["registry", "show", "h200"]).contains("bf16-cublas-linear"));
    let entry = stdout("registry_entry", &["registry", "show", "h200/bf16-cublas-linear"]);
    for part in ["gemm, cublas/linear, bf16", "transferred", "95% interval", "gemm_perf", "held out", "used by", "qwen3-8b"] {
        assert!(entry.contains(part), "{part}: {entry}");
    }
    let curve = stdout("registry_curve", &["registry", "show", "h200/bf16-flash-attn-fa3"]);
    assert!(curve.contains("latency over mean_context") && curve.contains("95% intervals in brackets"), "{curve}");
    assert!(refusal("registry_unknown", &["registry", "show", "h200/bf16-cublas-linea"]).contains("did you mean `bf16-cublas-linear`?"));
}

#[test]
fn the_registry_tells_why_an_operation_gets_its_entry() {
    let why = |arguments: &[&str]| stdout("registry_why", &[&["registry", "why", "h200/gemm"], arguments].concat());
    let chosen = |text: &str| text.lines().find(|line| line.contains("prices the call")).unwrap_or_else(|| panic!("{text}")).to_owned();
    let measured = why(&["--kernel", "cublas/linear", "--format", "bf16"]);
    assert!(chosen(&measured).starts_with("bf16-cublas-linear ") && measured.contains("less trusted"), "{measured}");
    assert!(chosen(&why(&["--kernel", "somebody/else", "--format", "fp8"])).starts_with("any-fp8 "));
    assert!(refusal("registry_why_kernel", &["registry", "why", "h200/gemm", "--kernel", "cublas"]).contains("write LIBRARY/VARIANT"));
    let wrong = refusal("registry_why_format", &["registry", "why", "h200/gemm", "--format", "bf17"]);
    assert!(
        wrong.contains("--format bf17: no weights and activations have this label") && wrong.contains("did you mean `bf16`?"),
        "{wrong}"
    );
    for (operation, group) in [("h200/gemm", "8"), ("h200/collective.all_reduce", "0")] {
        let wrong = refusal("registry_why_group", &["registry", "why", operation, "--group", group]);
        assert!(wrong.contains(&format!("--group {group}: only collectives have a group")), "{wrong}");
    }
    assert!(refusal("registry_why_subject", &["registry", "why", "h200/gem"]).contains("did you mean `gemm`?"));
}

#[test]
fn two_registries_differ_in_what_was_changed_and_nothing_else() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../registry");
    let same = stdout("registry_same", &["registry", "diff", "embedded", root]);
    assert_eq!(same, "The two registries hold the same entries.\n");
    let bench = Bench::new("registry_diff", CHAT);
    let text = std::fs::read_to_string(format!("{root}/h200/sampling.yaml")).unwrap();
    bench.write("changed/h200/sampling.yaml", text.replacen("value: 14,", "value: 15,", 1).as_bytes());
    bench.write("plain/h200/sampling.yaml", text.as_bytes());
    let output = bench.blis(&["registry", "diff", "plain", "changed"]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("h200/") && told.contains("value") && told.lines().count() <= 6, "{told}");
}

#[test]
fn explain_shows_the_kernel_of_the_step_and_the_others_on_request() {
    let wide = "command: \"vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 4\"";
    let narrow = "command: \"vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 4096\"";
    let bench = Bench::new("alternatives", &CHAT.replace(narrow, wide));
    let shown = |arguments: &[&str]| {
        let output = bench.blis(&[&["explain", "scenario.yaml"], arguments].concat());
        assert!(output.status.success(), "{}", show(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let plan = text.split("One forward pass on one rank").nth(1).and_then(|rest| rest.split("How it is launched").next()).unwrap();
        (plan.matches("collective.all_reduce").count(), plan.contains("left out; `--alternatives` lists them"))
    };
    let (chosen, told) = shown(&["--step", "decode=16@1000"]);
    let (all, told_all) = shown(&["--step", "decode=16@1000", "--alternatives"]);
    assert!(chosen < all && told && !told_all, "{chosen} of {all}");
    assert!(shown(&["--step", "decode=16@1000", "--step", "prefill=8000@0"]).0 > chosen, "another size has another kernel");
}

#[test]
fn explain_says_what_the_layers_of_each_group_of_the_cache_see() {
    let groups = |scenario: &str| {
        let path = format!("{}/../../scenarios/{scenario}.yaml", env!("CARGO_MANIFEST_DIR"));
        let text = stdout("explain_groups", &["explain", &path]);
        let groups: Vec<String> = text.lines().filter(|line| line.starts_with("group ")).map(str::to_owned).collect();
        groups
    };
    let chunks = groups("llama-4-scout-h100-tp8");
    assert!(chunks[..3].iter().all(|group| group.contains("12 layers that see their chunk of 8,192;")), "{chunks:?}");
    assert!(chunks[3].contains("12 layers that see all tokens;"), "{chunks:?}");
    let states = groups("qwen3.5-397b-h200-tp8");
    assert_eq!(states.iter().filter(|group| group.contains("15 layers that keep a state;")).count(), 3, "{states:?}");
    assert!(groups("gpt-oss-120b-h200-tp4")[0].contains("18 layers that see a window of 128;"));
}

#[test]
fn explain_tells_the_stages_of_a_step_apart() {
    let two = "command: \"vllm serve meta-llama/Llama-3.1-8B-Instruct --pipeline-parallel-size 2 --max-model-len 4096\"";
    let one = "command: \"vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 4096\"";
    let bench = Bench::new("stages", &CHAT.replace(one, two));
    let output = bench.blis(&["explain", "scenario.yaml", "--step", "decode=16@1000"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let time = |of: &str| {
        let line = text.lines().find(|line| line.starts_with(of)).unwrap_or_else(|| panic!("{of}: {text}"));
        let mut words = line[of.len()..].split_whitespace();
        let number: f64 = words.next().unwrap().parse().unwrap();
        if words.next() == Some("us") { number / 1e3 } else { number }
    };
    let (first, second, all) = (time("accelerator of stage 1"), time("accelerator of stage 2"), time("all stages, one after the other"));
    assert!(first > 1.0 && second > 1.0 && (first + second - all).abs() < 0.02, "{first} and {second} ms make {all} ms");
}
