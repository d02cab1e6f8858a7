//! Stacks that no published model has: each runs, or is refused by what is missing.

use blis_contracts::model::{Attention, FeedForward, LayerBlock, StackRun};
use blis_contracts::plan::KvSpan;

use super::*;

/// A model whose stack is so many of its first block of a kind.
fn stacked(name: &str, times: u32, kind: impl Fn(&LayerBlock) -> bool) -> ModelGraph {
    let mut model = model(name);
    let found = model.blocks.iter().find(|(_, block)| kind(block)).map(|(name, _)| name.clone());
    model.blocks.retain(|name, _| Some(name) == found.as_ref());
    model.stack = found.map(|block| StackRun { cycle: vec![block], times }).into_iter().collect();
    model
}

fn lowered(model: &ModelGraph) -> Result<PoolPlan, String> {
    let chip = chip("h200");
    let line = "vllm serve m --max-model-len 8192";
    let stated = read(Launch { command: Some(line), args: None, env: &[], written_for: None }).unwrap();
    let resolved = resolve(&stated, Machine { model, chip: &chip, gpus: 8 }).map_err(|error| error.to_string())?;
    lower(model, &resolved, &chip).map_err(|error| error.to_string())
}

/// Layers of each group of the cache, and what they see.
fn groups(plan: &PoolPlan) -> Vec<(u32, KvSpan)> {
    assert!(plan.kv.iter().all(|group| group.bytes_per_block.get() > 0 && group.tokens_per_block.get() > 0));
    plan.kv.iter().map(|group| (group.layers, group.sees)).collect()
}

#[test]
fn stacks_of_windows_of_chunks_of_latent_layers_and_of_one_layer_run() {
    let grouped = |kind: fn(&blis_contracts::model::GroupedQueryAttention) -> bool| move |block: &LayerBlock| matches!(&block.attention, Attention::GroupedQuery(attention) if kind(attention));
    let windows = stacked("gpt-oss-20b", 4, grouped(|attention| attention.window.is_some()));
    assert_eq!(groups(&lowered(&windows).unwrap()), [(4, KvSpan::Window(128))]);
    let chunks = stacked("llama-4-scout", 3, grouped(|attention| attention.chunk.is_some()));
    assert_eq!(groups(&lowered(&chunks).unwrap()), [(3, KvSpan::Chunk(8192))]);
    let latent = stacked("deepseek-v3", 2, |block| matches!(block.attention, Attention::Latent(_)));
    assert_eq!(groups(&lowered(&latent).unwrap()), [(2, KvSpan::All)]);
    let one = stacked("llama-3.1-8b-instruct", 1, |_| true);
    assert_eq!(groups(&lowered(&one).unwrap()), [(1, KvSpan::All)]);
}

#[test]
fn a_stack_without_attention_is_refused() {
    let recurrent = stacked("qwen3.5-397b-a17b", 4, |block| matches!(block.attention, Attention::GatedDelta(_)));
    let refused = lowered(&recurrent).unwrap_err();
    assert!(refused.contains("the model has no attention layer"), "{refused}");
    let empty = stacked("llama-3.1-8b-instruct", 1, |_| false);
    let refused = lowered(&empty).unwrap_err();
    assert!(refused.contains("the model has no attention layer"), "{refused}");
}

#[test]
fn layers_with_norms_behind_their_parts_are_refused_outside_the_family_that_has_them() {
    let mut other = model("gemma-4-26b-a4b");
    other.architecture = "Gemma3ForConditionalGeneration".to_owned();
    let refused = lowered(&other).unwrap_err();
    assert!(refused.ends_with("has 7 norms in a layer of 2 parts, which is not modelled"), "{refused}");
    let mut plain = model("gemma-4-26b-a4b");
    plain.blocks.values_mut().for_each(|block| block.norms = 2);
    let refused = lowered(&plain).unwrap_err();
    assert!(refused.ends_with("has 2 norms in a layer of 2 parts, which is not modelled"), "{refused}");
    let mut alone = model("gemma-4-26b-a4b");
    let FeedForward::MixtureOfExperts(moe) = &mut alone.blocks["full"].feed_forward else { panic!("experts in every layer") };
    moe.shared = None;
    let refused = lowered(&alone).unwrap_err();
    assert!(refused.ends_with("has layers that no model of its architecture has, which is not modelled"), "{refused}");
    let staged = Line("gemma-4-26b-a4b", "h200", "--pipeline-parallel-size 2").lower().unwrap_err().to_string();
    assert!(staged.contains("has layers of several kinds, which stages of a pipeline would share unevenly"), "{staged}");
}
