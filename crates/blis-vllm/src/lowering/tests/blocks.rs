//! Which shorter blocks start-up advises where the blocks that a line states are so long that no request fits.

use super::*;
use crate::config::Resolved;
use crate::engine::settings::sizing_input;
use crate::kv_sizing::{Remedy, size};
use crate::lowering::kv_layers;
use crate::startup::blocks::shorter;

/// What is advised, where a size is left out as well if `default`.
fn advised_with(Line(name, chip_name, arguments): Line<'_>, default: bool) -> Option<Remedy> {
    let (model, chip) = (model(name), chip(chip_name));
    let command = format!("vllm serve m {arguments}");
    let stated = read(Launch { command: Some(&command), args: None, env: &[], written_for: None }).unwrap();
    let machine = Machine { model: &model, chip: &chip, gpus: 8 };
    let fits = |resolved: &Resolved| {
        let layers = kv_layers(&model, resolved, &chip).unwrap();
        size(&sizing_input(resolved, layers, 0, u64::MAX).unwrap()).is_ok()
    };
    let resolved = resolve(&stated, machine).unwrap();
    assert!(!fits(&resolved), "{arguments}: a request fits");
    let with_blocks = |tokens: Option<u32>| resolve(&stated.with_block_size(tokens.or((!default).then_some(1))), machine).ok();
    shorter(&resolved, with_blocks, fits)
}

fn advised(line: Line<'_>) -> Option<Remedy> {
    advised_with(line, true)
}

#[test]
fn the_longest_half_with_which_a_request_fits_is_advised() {
    // 1,024 tokens of 144 KiB; one block is kept free.
    let line = |tokens: u64, block: &str| format!("--max-model-len 1024 --kv-cache-memory-bytes {} {block}", tokens * 147_456);
    let advised = |tokens, block, default| advised_with(Line("qwen3-8b", "h200", &line(tokens, block)), default);
    let to = |enough, default_fits| Some(Remedy::ShorterBlocks { stated: 1024, enough, default_fits });
    assert_eq!(advised(1024 + 16, "--block-size 1024", true), to(16, true));
    assert_eq!(advised(1024 + 128, "--block-size 1024", true), to(128, true));
    assert_eq!(advised(1024 + 128, "--block-size 1024", false), to(128, false));
    let told = to(128, true).zip(to(128, false)).map(|(left_out, stated)| (left_out.to_string(), stated.to_string())).unwrap();
    assert!(told.0.ends_with(": lower `block_size` to 128, or leave it out"), "{}", told.0);
    assert!(told.1.ends_with(": lower `block_size` to 128"), "{}", told.1);
    // No half of 48 but the size in force without it.
    let odd = Some(Remedy::ShorterBlocks { stated: 48, enough: 16, default_fits: true });
    assert_eq!(advised(1024 + 16, "--block-size 48", true), odd);
    assert_eq!(advised(1024 + 15, "--block-size 1024", true), None, "no block would do");
    assert_eq!(advised(1024 + 15, "", true), None, "the line states none");
}

#[test]
fn a_size_that_the_backend_does_not_read_is_not_advised() {
    // 16 tokens would do, and this backend reads 64.
    let line = "--tensor-parallel-size 8 --max-model-len 4096 --attention-backend FLASHMLA --block-size 4096 --kv-cache-memory-bytes";
    assert_eq!(advised(Line("deepseek-v3", "h200", &format!("{line} 290000000"))), None);
    let enough = Some(Remedy::ShorterBlocks { stated: 4096, enough: 64, default_fits: true });
    assert_eq!(advised(Line("deepseek-v3", "h200", &format!("{line} 293000000"))), enough);
}

#[test]
fn a_block_that_holds_a_state_is_not_advised_to_be_shorter() {
    let line = "--tensor-parallel-size 8 --max-num-seqs 1 --enforce-eager --enable-prefix-caching --kv-cache-memory-bytes 160000000";
    assert_eq!(advised(Line("qwen3.5-397b-a17b", "h200", &format!("{line} --block-size 288"))), None);
}
