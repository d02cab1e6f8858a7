//! Models with layers that keep a state: their blocks, caches, layers, weights and refusals.

use super::*;
use crate::config::{MambaCacheMode, Resolved, StateSettings};
use crate::kv::group::{Attention, MambaMode};
use crate::kv_sizing::LayerKv;
use crate::lowering::kv_layers;
use crate::startup::check_states;
use blis_contracts::format::FormatName;

const EIGHT: &str = "--tensor-parallel-size 8";

fn resolved(Line(name, chip_name, arguments): Line<'_>) -> Result<Resolved, String> {
    let command = format!("vllm serve m {arguments}");
    let stated = read(Launch { command: Some(&command), args: None, env: &[], written_for: None }).unwrap();
    resolve(&stated, Machine { model: &model(name), chip: &chip(chip_name), gpus: 8 }).map_err(|error| error.to_string())
}

/// Block of attention, block of states, bytes of a state, bytes of a page.
fn sizes(line: Line<'_>) -> (u32, u32, u64, u64) {
    let cache = resolved(line).unwrap_or_else(|error| panic!("{line:?}: {error}")).cache;
    let states = cache.states.unwrap();
    (cache.block_size, states.block_size, states.state_bytes, states.page_bytes)
}

#[test]
fn a_block_has_as_many_tokens_as_make_a_page_of_attention_hold_a_state() {
    // 64 heads of 128 by 128 in 32 bits and 3 tokens of 12,288 columns in 16, over 8 ranks: 524,288 and 9,216 bytes; 1,024 B a token.
    assert_eq!(sizes(Line("qwen3.5-397b-a17b", "h200", EIGHT)), (528, 528, 533_504, 528 * 1024));
    let fp8 = "--tensor-parallel-size 8 --kv-cache-dtype fp8";
    assert_eq!(sizes(Line("qwen3.5-397b-a17b", "h200", fp8)), (1056, 1056, 533_504, 1056 * 512));
    let narrow = "--tensor-parallel-size 8 --mamba-ssm-cache-dtype bfloat16";
    assert_eq!(sizes(Line("qwen3.5-397b-a17b", "h200", narrow)), (272, 272, 262_144 + 9216, 272 * 1024));
    let wide = "--tensor-parallel-size 8 --mamba-cache-dtype float32";
    assert_eq!(sizes(Line("qwen3.5-397b-a17b", "h200", wide)), (544, 544, 524_288 + 18_432, 544 * 1024));
    let stated = "--tensor-parallel-size 8 --block-size 64";
    assert_eq!(sizes(Line("qwen3.5-397b-a17b", "h200", stated)), (576, 576, 533_504, 576 * 1024));
}

#[test]
fn states_are_not_kept_for_later_prompts_where_prefix_caching_is_off() {
    let line = Line("qwen3.5-397b-a17b", "h200", "--tensor-parallel-size 8 --max-model-len 8192 --no-enable-prefix-caching");
    assert_eq!(sizes(line), (528, 8192, 533_504, 528 * 1024));
    let StateSettings { mode, conv_format, ssm_format, .. } = resolved(line).unwrap().cache.states.unwrap();
    assert_eq!((mode, conv_format, ssm_format), (MambaCacheMode::None, FormatName::Bf16, FormatName::Fp32));
    let default = resolved(Line("qwen3.5-397b-a17b", "h200", EIGHT)).unwrap();
    assert_eq!(default.cache.states.unwrap().mode, MambaCacheMode::Align);
    assert!(default.cache.enable_prefix_caching);
}

#[test]
fn a_stated_block_that_is_made_to_hold_a_state_is_told() {
    let notes = |arguments: &str| resolved(Line("qwen3.5-397b-a17b", "h200", &format!("{EIGHT} {arguments}"))).unwrap().notes;
    let block = resolved(Line("qwen3.5-397b-a17b", "h200", EIGHT)).unwrap().cache.block_size;
    let shared = "the block of attention, or the longest request where states are not cached";
    assert_eq!(notes("--mamba-block-size 64"), [format!("--mamba-block-size = 64 becomes {block}: {shared}")]);
    assert_eq!(notes(&format!("--mamba-block-size {block}")), [""; 0]);
    let told = notes("--block-size 64");
    assert!(told.len() == 1 && told[0].starts_with("--block-size = 64 becomes 576: so that a page of attention holds a state"), "{told:?}");
    let twice = notes("--block-size 64 --block-size 64");
    assert_eq!((twice.len(), twice.last()), (2, told.last()), "{twice:?}");
    assert_eq!(notes(""), [""; 0]);
    let off = notes("--mamba-cache-mode align --no-enable-prefix-caching");
    assert_eq!(off, ["Mamba cache mode is set to 'none' when prefix caching is disabled"]);
}

#[test]
fn more_requests_than_blocks_of_states_are_refused() {
    let few = |arguments: &str| {
        let resolved = resolved(Line("qwen3.5-397b-a17b", "h200", &format!("{EIGHT} --max-num-seqs 128 {arguments}"))).unwrap();
        [127, 128].map(|blocks| check_states(&resolved, (blocks, 1)).err().map(|error| error.to_string()))
    };
    let [below, enough] = few("");
    let told = below.unwrap_or_default();
    assert!(told.contains("max_num_seqs (128) exceeds available Mamba cache blocks (127)"), "{told}");
    assert_eq!(enough, None);
    assert!(told.ends_with("to at most 127 or increase gpu_memory_utilization."), "{told}");
    for (stated, way_out) in [
        (
            "--num-gpu-blocks-override 127",
            "to at most 127. The line states the pool: raise `num_gpu_blocks_override` (127) to at least 128, or leave it out.",
        ),
        ("--kv-cache-memory-bytes 900", "raise `kv_cache_memory_bytes` (900) to at least 128, or leave it out."),
    ] {
        let told = few(stated)[0].clone().unwrap_or_default();
        assert!(told.ends_with(way_out), "{told}");
    }
    assert_eq!(few("--enforce-eager"), [None, None], "without graphs nothing asks for a block of each request");
}

#[test]
fn what_upstream_or_this_port_does_not_serve_is_refused_by_name() {
    for (line, expected) in [
        (
            Line("qwen3.5-397b-a17b", "h200", "--tensor-parallel-size 8 --no-enable-prefix-caching --mamba-block-size 64"),
            "--mamba-block-size 64: can only be set with --enable-prefix-caching; leave it out",
        ),
        (
            Line("qwen3.5-397b-a17b", "h200", "--tensor-parallel-size 8 --no-enable-chunked-prefill"),
            "Chunked prefill is required for mamba cache mode 'align'.",
        ),
        (Line("qwen3-8b", "h200", "--mamba-cache-mode align"), "mamba_cache_mode: no layer of this model keeps a state"),
        (Line("qwen3-8b", "h200", "--mamba-block-size 16"), "mamba_block_size: no layer of this model keeps a state"),
    ] {
        let message = resolved(line).err().unwrap_or_else(|| panic!("{line:?} is accepted"));
        assert!(message.contains(expected), "{line:?}: {message}");
    }
    let all = read(Launch { command: Some("vllm serve m --mamba-cache-mode all"), args: None, env: &[], written_for: None });
    let error = all.unwrap_err().to_string();
    assert!(error.contains("--mamba-cache-mode") && error.contains("all"), "{error}");
}

#[test]
fn each_layer_that_keeps_a_state_is_one_of_the_cache_and_pages_are_of_one_size() {
    let (model, chip) = (model("qwen3.5-397b-a17b"), chip("h200"));
    let layers = |arguments| kv_layers(&model, &resolved(Line("qwen3.5-397b-a17b", "h200", arguments)).unwrap(), &chip).unwrap();
    let kept = |layers: &[LayerKv], mode| layers.iter().filter(|layer| layer.attention == Attention::Mamba(mode)).count();
    let aligned = layers(EIGHT);
    assert_eq!((aligned.len(), kept(&aligned, MambaMode::Align { checkpoints: false })), (60, 45));
    assert!(aligned.iter().all(|layer| (layer.block_size, layer.page_bytes) == (528, 528 * 1024)));
    let off = layers("--tensor-parallel-size 8 --no-enable-prefix-caching --max-model-len 4096");
    assert_eq!(kept(&off, MambaMode::None), 45);
    assert!(off.iter().all(|layer| layer.page_bytes == 528 * 1024));
}

fn layer(plan: &PoolPlan, index: u32) -> Vec<String> {
    plan.layers.iter().filter(|piece| piece.layer == index).map(written).collect()
}

#[test]
fn a_delta_rule_runs_apart_for_decodes_and_for_prompts() {
    let plan = Line("qwen3.5-397b-a17b", "h200", EIGHT).plan();
    let pieces = layer(&plan, 1);
    let expected = [
        "gemm cublas/linear tokens: 4096 x 2560 bf16",
        "gemm cublas/linear tokens: 4096 x 16 bf16",
        // 1,536 columns of 2 bytes and of the three tokens before, read and written; then 8 states of 128 by 128 in 32 bits.
        "convolution triton/causal-conv1d-update decodes: 24576 B a row",
        "recurrent.decode triton/packed-recurrent-delta-rule decodes: 1053696 B a row",
        "convolution triton/causal-conv1d-fn prefills: 6144 B a row",
        "activation triton/gdn-post-conv prefills: 6144 B a row",
        "recurrent.prefill flashinfer/gdn-prefill requests: 8 heads with states of 16384",
        "norm triton/rms-norm-gated tokens: 6144 B a row",
        "gemm cublas/linear tokens: 1024 x 4096 bf16",
    ];
    assert_eq!(pieces[..expected.len()], expected, "{pieces:#?}");
    // The gate of the output is projected with queries, keys and values, and applied after attention.
    let attention = layer(&plan, 3);
    assert_eq!(attention[0], "gemm cublas/linear tokens: 4096 x 2560 bf16", "{attention:#?}");
    assert!(!attention.iter().any(|piece| piece.starts_with("recurrent")), "{attention:#?}");
    // One expert that all tokens share, behind a gate of one column.
    assert!(pieces.contains(&"gemm cublas/linear tokens from 257: 4096 x 1 bf16".to_owned()), "{pieces:#?}");
}

#[test]
fn the_kernel_of_prompts_follows_the_chip() {
    for (chip, expected) in [
        ("h100", "flashinfer/gdn-prefill"),
        ("h200", "flashinfer/gdn-prefill"),
        ("b200", "flashinfer/gdn-prefill"),
        ("a100-sxm", "triton/chunk-gated-delta-rule"),
    ] {
        let plan = Line("qwen3.5-397b-a17b", chip, EIGHT).plan();
        let rules: Vec<String> = layer(&plan, 0).into_iter().filter(|piece| piece.starts_with("recurrent")).collect();
        assert!(rules.iter().any(|piece| piece.contains(expected)), "{chip}: {rules:?}");
    }
}

fn resident(line: Line<'_>) -> u64 {
    line.plan().weights.iter().map(|tensor| tensor.bytes.get() * u64::from(tensor.count)).sum()
}

#[test]
fn one_rank_holds_the_checkpoint_and_eight_hold_a_share_each() {
    let parameters = model("qwen3.5-397b-a17b").parameters.total;
    // Two bytes each, and two more for the decays of 64 heads in 45 layers.
    assert_eq!(resident(Line("qwen3.5-397b-a17b", "h200", "")), 2 * parameters + 2 * 64 * 45);
    let share = resident(Line("qwen3.5-397b-a17b", "h200", EIGHT));
    assert!(share > parameters / 4 && share < parameters / 4 + 1_000_000_000, "{share}");
}
