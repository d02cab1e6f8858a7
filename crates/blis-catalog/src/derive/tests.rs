//! The committed graphs anew from the committed configurations, and configurations that must be refused or read in a certain way.

use std::path::{Path, PathBuf};

use blis_contracts::format::MatmulFormat;
use blis_contracts::model::{Attention, FeedForward, GroupedQueryAttention, LayerBlock};

use super::*;
use crate::Catalog;
use crate::write_graph;

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalog/models")
}

/// A small Llama with some keys replaced (`null` removes) or added.
fn config(architecture: &str, model_type: &str, changes: &[(&str, &str)]) -> Vec<u8> {
    let mut keys: Vec<(&str, String)> = vec![
        ("architectures", format!("[\"{architecture}\"]")),
        ("model_type", format!("\"{model_type}\"")),
        ("hidden_size", "256".to_owned()),
        ("intermediate_size", "512".to_owned()),
        ("num_attention_heads", "4".to_owned()),
        ("num_key_value_heads", "2".to_owned()),
        ("num_hidden_layers", "4".to_owned()),
        ("vocab_size", "1000".to_owned()),
        ("max_position_embeddings", "4096".to_owned()),
        ("torch_dtype", "\"bfloat16\"".to_owned()),
    ];
    for (key, value) in changes {
        keys.retain(|(name, _)| name != key);
        keys.push((key, (*value).to_owned()));
    }
    let lines: Vec<String> = keys.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
    format!("{{{}}}", lines.join(", ")).into_bytes()
}

fn derive_from(config: Vec<u8>, headers: Vec<(String, Vec<u8>)>) -> Result<ModelGraph, DeriveError> {
    derive(&Inputs { entry: ModelEntry::local("small"), config, quantisation_config: None, headers })
}

fn llama(changes: &[(&str, &str)]) -> Result<ModelGraph, DeriveError> {
    derive_from(config("LlamaForCausalLM", "llama", changes), Vec::new())
}

fn refusal(changes: &[(&str, &str)]) -> String {
    llama(changes).unwrap_err().to_string()
}

fn windows(graph: &ModelGraph) -> Vec<Option<u32>> {
    graph.layers().map(|block| grouped_query(block).window).collect()
}

fn grouped_query(block: &LayerBlock) -> &GroupedQueryAttention {
    match &block.attention {
        Attention::GroupedQuery(attention) => attention,
        Attention::Latent(_) | Attention::Compressed(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => {
            panic!("{block:?} has no grouped-query attention")
        }
    }
}

fn only(graph: &ModelGraph) -> &LayerBlock {
    assert_eq!(graph.blocks.len(), 1);
    &graph.blocks[0]
}

#[test]
fn every_graph_whose_configuration_is_committed_derives_to_what_is_committed() {
    let catalog = Catalog::embedded();
    let mut derived = 0;
    for model in catalog.models().filter(|model| models().join(model).join(CONFIG).exists()) {
        let graph = derive_catalog_model(&models().join(model), None).unwrap();
        assert_eq!(write_graph(&graph), write_graph(&catalog.model(model).unwrap()), "{model}");
        derived += 1;
    }
    assert!(derived >= 13, "only {derived} models have their configuration here");
}

/// Models for which no printed count was found in a source that can be cited, or only one of more than a graph holds.
const NO_PUBLISHED_COUNT: [&str; 5] = ["deepseek-v3.2", "deepseek-v3.2-nvfp4", "glm-5.2", "minimax-m3", "minimax-m3-nvfp4"];

#[test]
fn parameter_counts_are_the_published_ones() {
    let catalog = Catalog::embedded();
    let count = |model: &str| catalog.model(model).unwrap().parameters;
    assert_eq!(count("llama-3.1-8b-instruct").total, 8_030_261_248);
    assert_eq!(count("llama-3.1-70b-instruct").total, 70_553_706_496);
    assert_eq!(count("llama-3.1-405b-instruct").total, 405_853_388_800);
    assert_eq!(count("mixtral-8x7b").total, 46_702_792_704);
    assert_eq!(count("gpt-oss-120b").total, 116_829_156_672);
    for model in catalog.models() {
        let graph = catalog.model(model).unwrap();
        let parameters = &graph.parameters;
        assert!(parameters.published.is_some() || NO_PUBLISHED_COUNT.contains(&model), "{model} states no published count");
        check_published(&graph, parameters).unwrap();
    }
}

#[test]
fn a_key_that_is_not_known_to_leave_the_shape_alone_is_refused() {
    assert_eq!(
        refusal(&[("num_nextn_predict_layers", "1")]),
        "config.json: num_nextn_predict_layers: unknown key (value 1); it may change the model's shape, so no graph is derived"
    );
    assert!(refusal(&[("sliding_window", "128")]).contains("sliding_window: unknown key"));
}

#[test]
fn what_tools_and_other_classes_add_changes_nothing() {
    let plain = llama(&[]).unwrap();
    let tuned =
        [("unsloth_fixed", "true"), ("unsloth_version", "\"2025.9\""), ("_attn_implementation_autoset", "true"), ("made_up", "null")];
    let same =
        |one: &ModelGraph, other: &ModelGraph| assert_eq!((&one.blocks, one.parameters.total), (&other.blocks, other.parameters.total));
    same(&llama(&tuned).unwrap(), &plain);
    let experts = [("num_experts", "8"), ("num_experts_per_tok", "2"), ("moe_intermediate_size", "64")];
    let qwen = |more: &[(&str, &str)]| {
        derive_from(config("Qwen3MoeForCausalLM", "qwen3_moe", &[&experts[..], more].concat()), Vec::new()).unwrap()
    };
    same(&qwen(&[("qkv_bias", "false"), ("use_qk_norm", "true"), ("shared_expert_intermediate_size", "0")]), &qwen(&[]));
}

#[test]
fn a_checkpoint_is_named_by_its_launch_lines_or_its_folder_and_errors_say_where() {
    let folder = std::env::temp_dir().join(format!("blis-derive-{}", std::process::id())).join("Snapshot");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(CONFIG), config("LlamaForCausalLM", "llama", &[])).unwrap();
    let named = |checkpoint| derive_directory(&folder, checkpoint).map(|graph| (graph.name, graph.aliases)).unwrap();
    assert_eq!(named(None), ("snapshot".to_owned(), vec![]));
    assert_eq!(named(Some("Org/My-Model")), ("my-model".to_owned(), vec!["Org/My-Model".to_owned()]));
    assert_eq!(named(Some("my-model")), ("my-model".to_owned(), vec![]));
    for (changes, told) in
        [(&[("hidden_size", "null")][..], "hidden_size: missing"), (&[("architectures", "[\"Foo\"]")], "no rule derives `Foo`")]
    {
        std::fs::write(folder.join(CONFIG), config("LlamaForCausalLM", "llama", changes)).unwrap();
        let error = derive_directory(&folder, None).unwrap_err().to_string();
        assert!(error.starts_with(&folder.join(CONFIG).display().to_string()) && error.contains(told), "{error}");
    }
    std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
}

#[test]
fn malformed_configurations_are_refused_by_the_key_at_fault() {
    for (changes, expected) in [
        (&[("architectures", "[\"MambaForCausalLM\"]")][..], "no rule derives `MambaForCausalLM`; known: DeepseekV32ForCausalLM, "),
        (&[("architectures", "[]")], "architectures: [] is not a list of one class"),
        (&[("model_type", "\"qwen3\"")], "model_type: \"qwen3\" is not `llama`"),
        (&[("hidden_size", "null")], "hidden_size: missing"),
        (&[("hidden_size", "-4096")], "hidden_size: -4096 is not a positive integer"),
        (&[("hidden_size", "\"4096\"")], "hidden_size: \"4096\" is not a positive integer"),
        (&[("hidden_size", "257")], "hidden_size: 257 is not a multiple of num_attention_heads (4)"),
        (&[("num_key_value_heads", "3")], "num_key_value_heads: 3 is not a divisor of num_attention_heads (4)"),
        (&[("num_hidden_layers", "1000000000")], "num_hidden_layers: 1000000000 is not at most 4096"),
        (&[("torch_dtype", "\"int3\"")], "torch_dtype: \"int3\" is not bfloat16, float16 or float32"),
        (&[("tie_word_embeddings", "1")], "tie_word_embeddings: 1 is not true or false"),
        (&[("rope_scaling", "{\"rope_type\": \"spiral\"}")], "rope_scaling.rope_type: \"spiral\" is not default"),
        (&[("quantization_config", "{\"quant_method\": \"awq\"}")], "quant_method: \"awq\" is not one of compressed-tensors, fp8"),
        (&[("quantization_config", "{}")], "quantization_config.quant_method: missing"),
    ] {
        let message = refusal(changes);
        assert!(message.contains(expected), "{message}");
    }
    let twice = br#"{"hidden_size": 1, "hidden_size": 2}"#.to_vec();
    assert!(derive_from(twice, Vec::new()).unwrap_err().to_string().contains("duplicate key `hidden_size`"));
    assert!(derive_from(b"[1".to_vec(), Vec::new()).unwrap_err().to_string().starts_with("config.json: not the JSON"));
}

#[test]
fn windows_follow_the_rule_of_the_architecture() {
    let of = |architecture, model_type, changes: &[(&str, &str)]| {
        windows(&derive_from(config(architecture, model_type, changes), Vec::new()).unwrap())
    };
    let (full, near) = (None, Some(64));
    let window = ("sliding_window", "64");
    assert_eq!(of("MistralForCausalLM", "mistral", &[window]), [near; 4]);
    assert_eq!(of("Qwen3ForCausalLM", "qwen3", &[window, ("use_sliding_window", "false")]), [full; 4]);
    let upper = [window, ("use_sliding_window", "true"), ("max_window_layers", "3")];
    assert_eq!(of("Qwen3ForCausalLM", "qwen3", &upper), [full, full, full, near]);
    assert_eq!(of("Gemma3ForCausalLM", "gemma3_text", &[window, ("sliding_window_pattern", "2")]), [near, full, near, full]);
    let listed = r#"["full_attention", "sliding_attention", "full_attention", "full_attention"]"#;
    assert_eq!(of("Gemma3ForCausalLM", "gemma3_text", &[window, ("layer_types", listed)]), [full, near, full, full]);
    let none_listed = config("Gemma3ForCausalLM", "gemma3_text", &[window, ("layer_types", "[]")]);
    let refused = derive_from(none_listed, Vec::new()).unwrap_err().to_string();
    assert!(refused.contains("layer_types") && refused.contains("one entry for each of the 4 layers"), "{refused}");
}

#[test]
fn tied_embeddings_take_no_second_matrix() {
    let (tied, own) = (llama(&[("tie_word_embeddings", "true")]).unwrap(), llama(&[]).unwrap());
    assert_eq!(own.parameters.total - tied.parameters.total, 1000 * 256);
}

#[test]
fn mixed_layers_are_dense_where_the_configuration_says_so() {
    let changes = [
        ("num_experts", "8"),
        ("num_experts_per_tok", "2"),
        ("moe_intermediate_size", "64"),
        ("mlp_only_layers", "[0]"),
        ("decoder_sparse_step", "1"),
    ];
    let graph = derive_from(config("Qwen3MoeForCausalLM", "qwen3_moe", &changes), Vec::new()).unwrap();
    assert_eq!(graph.layer_names().collect::<Vec<_>>(), ["dense", "moe", "moe", "moe"]);
}

/// A small `MiniMax` with some keys replaced.
fn minimax(changes: &[(&str, &str)]) -> Result<ModelGraph, DeriveError> {
    let mut keys = vec![
        ("num_local_experts", "8"),
        ("num_experts_per_tok", "2"),
        ("head_dim", "64"),
        ("rotary_dim", "32"),
        ("use_qk_norm", "true"),
        ("qk_norm_type", "\"per_layer\""),
        ("scoring_func", "\"sigmoid\""),
        ("use_routing_bias", "true"),
        ("shared_intermediate_size", "0"),
        ("attn_type_list", "[1, 1, 1, 1]"),
    ];
    for change in changes {
        keys.retain(|(key, _)| *key != change.0);
        keys.push(*change);
    }
    derive_from(config("MiniMaxM2ForCausalLM", "minimax_m2", &keys), Vec::new())
}

#[test]
fn norms_over_all_heads_partial_rotation_and_a_selection_bias_are_read_from_the_configuration() {
    let (graph, plain) = (minimax(&[]).unwrap(), minimax(&[("use_qk_norm", "false"), ("use_routing_bias", "false")]).unwrap());
    let attention = grouped_query(only(&graph));
    assert_eq!((attention.qk_norm_widths(), attention.rotated()), ((4 * 64, 2 * 64), 32));
    let FeedForward::MixtureOfExperts(moe) = &only(&graph).feed_forward else { panic!("a mixture") };
    assert!(moe.selection_bias && !moe.router_bias);
    assert_eq!(graph.parameters.total - plain.parameters.total, 4 * (6 * 64 + 8));
    for (key, value, expected) in [
        ("rotary_dim", "128", "rotary_dim: 128 is not at most head_dim (64)"),
        ("qk_norm_type", "\"per_head\"", "qk_norm_type: \"per_head\" is not per_layer"),
        ("scoring_func", "\"softmax\"", "scoring_func: \"softmax\" is not sigmoid"),
        ("shared_intermediate_size", "64", "shared_intermediate_size: 64 is not 0"),
        ("attn_type_list", "[1, 0, 1, 1]", "attn_type_list: "),
        ("use_qk_norm", "null", "use_qk_norm: missing"),
    ] {
        let message = minimax(&[(key, value)]).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn quantisation_is_read_module_by_module() {
    let fp8 = |weights| MatmulFormat { weights, activations: FormatName::Fp8 };
    let quantised = |text: &str| llama(&[("quantization_config", text)]);
    let graph = quantised(
        r#"{"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "modules_to_not_convert": ["model.layers.*.self_attn"]}"#,
    )
    .unwrap();
    let attention = grouped_query(only(&graph));
    let FeedForward::Dense(dense) = &only(&graph).feed_forward else { panic!("a dense model") };
    assert_eq!((attention.qkv_format, dense.up_format), (MatmulFormat::BF16, fp8(FormatName::Fp8Block)));
    assert_eq!(graph.output_projection, MatmulFormat::BF16);

    let channel = r#"{"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
        "kv_cache_scheme": {"num_bits": 8, "type": "float"},
        "config_groups": {"group_0": {"targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
            "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true}}}}"#;
    let graph = quantised(channel).unwrap();
    let attention = grouped_query(only(&graph));
    assert_eq!((attention.qkv_format, graph.kv_format), (fp8(FormatName::Fp8), Some(FormatName::Fp8)));

    let uneven = r#"{"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["model.layers.2.self_attn.k_proj"]}"#;
    let message = quantised(uneven).unwrap_err().to_string();
    assert_eq!(
        message,
        "layer 2: self_attn.q_proj, self_attn.k_proj, self_attn.v_proj are stored in different formats, which a graph cannot state"
    );
    let uneven = quantised(r#"{"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": [64, 64]}"#);
    assert!(uneven.unwrap_err().to_string().contains("weight_block_size: [64, 64] is not [128, 128]"));
}

#[test]
fn a_layer_left_unquantised_becomes_a_block_of_its_own() {
    let text = r#"{"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["model.layers.0"]}"#;
    let graph = llama(&[("quantization_config", text)]).unwrap();
    assert_eq!(graph.layer_names().collect::<Vec<_>>(), ["layer", "layer-2", "layer-2", "layer-2"]);
}

#[test]
fn position_scaling_extends_the_context_where_it_is_of_a_kind_that_does() {
    let scaled = |scaling: &str| llama(&[("rope_scaling", scaling)]).unwrap().max_position_embeddings;
    assert_eq!(scaled(r#"{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}"#), 16_384);
    assert_eq!(scaled(r#"{"type": "linear", "factor": 2}"#), 8192);
    assert_eq!(scaled(r#"{"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 1024}"#), 4096);
}

/// The header of a small Llama in one shard.
fn header(graph_layers: u32, change: impl Fn(&str) -> Option<String>) -> Vec<(String, Vec<u8>)> {
    let mut tensors = vec![("model.embed_tokens.weight".to_owned(), "[1000, 256]"), ("lm_head.weight".to_owned(), "[1000, 256]")];
    tensors.push(("model.norm.weight".to_owned(), "[256]"));
    for layer in 0..graph_layers {
        for (name, shape) in [
            ("self_attn.q_proj", "[256, 256]"),
            ("self_attn.k_proj", "[128, 256]"),
            ("self_attn.v_proj", "[128, 256]"),
            ("self_attn.o_proj", "[256, 256]"),
            ("input_layernorm", "[256]"),
            ("post_attention_layernorm", "[256]"),
            ("mlp.gate_proj", "[512, 256]"),
            ("mlp.up_proj", "[512, 256]"),
            ("mlp.down_proj", "[256, 512]"),
        ] {
            tensors.push((format!("model.layers.{layer}.{name}.weight"), shape));
        }
    }
    let lines: Vec<String> = tensors
        .iter()
        .filter_map(|(name, shape)| {
            Some(format!("\"{}\": {{\"dtype\": \"BF16\", \"shape\": {shape}, \"data_offsets\": [0, 0]}}", change(name)?))
        })
        .collect();
    vec![("model.safetensors".to_owned(), format!("{{{}}}", lines.join(", ")).into_bytes())]
}

#[test]
fn headers_must_hold_exactly_the_tensors_the_configuration_implies() {
    let with = |headers| derive_from(config("LlamaForCausalLM", "llama", &[("torch_dtype", "null")]), headers);
    let same = |name: &str| Some(name.to_owned());
    let graph = with(header(4, same)).unwrap();
    assert_eq!((graph.dtype, graph.derived_from.inferred.len()), (FormatName::Bf16, 0));
    assert_eq!(
        with(header(3, same)).unwrap_err().to_string(),
        "headers: tensor `model.layers.3.self_attn.q_proj.weight`: in no shard, though the configuration implies it"
    );
    let renamed = with(header(4, |name| Some(name.replace("layers.2.input_layernorm", "layers.2.extra_norm"))));
    assert!(renamed.unwrap_err().to_string().contains("layers.2.input_layernorm.weight`: in no shard"));
    let more = with(header(5, same)).unwrap_err().to_string();
    assert!(more.contains("the configuration implies no such tensor"), "{more}");
    let reshaped = derive_from(config("LlamaForCausalLM", "llama", &[("vocab_size", "1001")]), header(4, same)).unwrap_err().to_string();
    assert_eq!(
        reshaped,
        "model.safetensors: tensor `model.embed_tokens.weight`: BF16 [1000, 256], where the configuration implies BF16 [1001, 256]"
    );
}

#[test]
fn a_text_model_inside_another_is_read_with_the_names_its_modules_have_there() {
    let catalog = Catalog::embedded();
    let graph = catalog.model("kimi-k2.5-nvfp4").unwrap();
    let FeedForward::MixtureOfExperts(moe) = &graph.blocks["moe"].feed_forward else { panic!("no experts") };
    let Attention::Latent(attention) = &graph.blocks["moe"].attention else { panic!("no latent attention") };
    let stored = [attention.down_format, attention.output_format, moe.router_format, moe.expert_format].map(|format| format.weights);
    assert_eq!(stored, [FormatName::Bf16, FormatName::Bf16, FormatName::Bf16, FormatName::Nvfp4]);
    assert_eq!(moe.shared.as_ref().unwrap().up_format.weights, FormatName::Nvfp4);
    // The publisher counts 400M for the image encoder.
    assert_eq!(graph.encoders.iter().map(|encoder| encoder.parameters).collect::<Vec<_>>(), [416_866_032, 54_277_888]);
}

#[test]
fn llama_4_has_as_many_parameters_as_its_files_hold() {
    let total = |name| Catalog::embedded().model(name).unwrap().parameters.total;
    assert_eq!((total("llama-4-scout"), total("llama-4-maverick")), (108_641_793_536, 401_583_781_376));
}

#[test]
fn metas_encoder_has_the_parameters_of_its_widths() {
    let config = r#"{"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "text_config": {"model_type": "llama4_text",
        "torch_dtype": "bfloat16", "hidden_size": 5120, "intermediate_size": 64, "intermediate_size_mlp": 512, "num_hidden_layers": 4,
        "vocab_size": 1000, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 4096,
        "attention_chunk_size": 128, "num_local_experts": 8, "num_experts_per_tok": 1}, "vision_config": {"hidden_size": 1408,
        "intermediate_size": 5632, "num_hidden_layers": 34, "image_size": 336, "patch_size": 14, "projector_input_dim": 4096,
        "projector_output_dim": 4096, "pixel_shuffle_ratio": 0.5}}"#;
    let graph = derive_from(config.as_bytes().to_vec(), Vec::new()).unwrap();
    let parameters: Vec<u64> = graph.encoders.iter().map(|encoder| encoder.parameters).collect();
    assert_eq!(parameters, [811_115_008, 60_817_408]);
}

#[test]
fn deepseek_v3_2_has_what_its_repository_prints_once_the_module_for_multi_token_prediction_is_added() {
    let graph = Catalog::embedded().model("deepseek-v3.2").unwrap();
    let mut module = graph.clone();
    module.blocks = [("layer".to_owned(), graph.layers().last().unwrap().clone())].into_iter().collect();
    module.stack = vec![blis_contracts::model::StackRun { cycle: vec!["layer".to_owned()], times: 1 }];
    // A layer with an embedding, an output embedding and a last norm of its own, two more norms and the projection between.
    let hidden = graph.hidden_size;
    let whole = graph.parameters.total + counts::count(&module, Vec::new(), None).total + 2 * hidden + 2 * hidden * hidden;
    assert_eq!(counts::agrees(whole, "685B"), Some(true), "{whole}");
}
