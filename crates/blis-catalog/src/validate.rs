//! What every chip and graph of a catalog must satisfy beyond its types: the same rules for the embedded copy, a path and an overlay.

use blis_contracts::chip::Chip;
use blis_contracts::format::FormatName;
use blis_contracts::model::{
    Attention, CompressedAttention, FeedForward, GatedDelta, GroupedQueryAttention, LatentAttention, LayerBlock, Mamba2, MixtureOfExperts,
    ModelGraph,
};
use blis_contracts::strict::Problem;

use crate::counts;
use crate::derive::check_published;
use crate::derive::family::Family;

/// The least share of a chip's stated memory that a driver reports: below it the figure is a slip. Error correction held in
/// the memory itself, as GDDR6 has it, keeps a sixteenth.
const REPORTED_SHARE_MIN: f64 = 0.93;

/// The most by which a dense rate exceeds what its width allows beside bf16's: data sheets round.
const ROUNDING_MAX: f64 = 1.03;

/// The same for formats of four bits, whose units Blackwell Ultra widened by half (14 beside 2.25); a rate with sparsity is
/// still twice as high.
const FOUR_BIT_MAX: f64 = 1.6;

/// The problems of a chip named after its file.
pub(crate) fn chip(chip: &Chip, file_stem: &str) -> Vec<Problem> {
    let mut problems = name(&chip.name, file_stem);
    let mut positive = |path: &str, value: f64| {
        if !(value.is_finite() && value > 0.0) {
            problems.push(Problem::new(path, format!("{value} is not a positive figure")));
        }
    };
    positive("multiprocessors.value", chip.multiprocessors.value.into());
    positive("memory.value", chip.memory.value.as_f64());
    positive("memory_bandwidth.value", chip.memory_bandwidth.value.get());
    positive("l2_cache.value", chip.l2_cache.value.as_f64());
    positive("gpus_per_node.value", chip.gpus_per_node.value.into());
    positive("gpus_per_domain.value", chip.gpus_per_domain.value.into());
    positive("link_bandwidth.value", chip.link_bandwidth.value.get());
    positive("host_bandwidth.value", chip.host_bandwidth.value.get());
    for (format, peak) in &chip.peak {
        positive(&format!("peak.{format}.value"), peak.value.get());
    }
    let (stated, reported) = (chip.memory.value.as_f64(), chip.reported_memory.value.as_f64());
    if !(stated * REPORTED_SHARE_MIN..=stated).contains(&reported) {
        problems.push(Problem::new("reported_memory.value", format!("{reported} is not close below the stated {stated}")));
    }
    problems.extend(peaks(chip));
    problems.extend(citations(chip));
    problems
}

/// Peaks are dense: each halving of the width at most doubles the rate (but for units of four bits), and bf16 is there to
/// compare with.
fn peaks(chip: &Chip) -> Vec<Problem> {
    let Some(bf16) = chip.peak.get(&FormatName::Bf16) else {
        return vec![Problem::new("peak", "no peak for bf16, which every model needs")];
    };
    let bf16 = bf16.value.get();
    let excessive = chip.peak.iter().filter(|(format, peak)| {
        let bits = format.parts().payload_bits;
        let slack = if bits == 4 { FOUR_BIT_MAX } else { ROUNDING_MAX };
        peak.value.get() > bf16 * 16.0 / f64::from(bits) * slack
    });
    excessive
        .map(|(format, peak)| {
            let message = format!("{} is more than the width of {format} allows a dense rate beside bf16's {bf16}", peak.value.get());
            Problem::new(format!("peak.{format}.value"), message)
        })
        .collect()
}

fn citations(chip: &Chip) -> Vec<Problem> {
    let sources = [
        ("device_name", &chip.device_name.source),
        ("compute_capability", &chip.compute_capability.source),
        ("multiprocessors", &chip.multiprocessors.source),
        ("memory", &chip.memory.source),
        ("reported_memory", &chip.reported_memory.source),
        ("memory_bandwidth", &chip.memory_bandwidth.source),
        ("l2_cache", &chip.l2_cache.source),
        ("gpus_per_node", &chip.gpus_per_node.source),
        ("gpus_per_domain", &chip.gpus_per_domain.source),
        ("link_bandwidth", &chip.link_bandwidth.source),
        ("host_bandwidth", &chip.host_bandwidth.source),
    ];
    let peaks = chip.peak.iter().map(|(format, peak)| (format!("peak.{format}"), &peak.source));
    sources
        .into_iter()
        .map(|(path, source)| (path.to_owned(), source))
        .chain(peaks)
        .filter(|(_, source)| source.trim().is_empty())
        .map(|(path, _)| Problem::new(format!("{path}.source"), "empty; every figure names where a reader finds it"))
        .collect()
}

/// The problems of an entry's name.
pub(crate) fn name(name: &str, expected: &str) -> Vec<Problem> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_');
    if name != expected {
        vec![Problem::new("name", format!("`{name}` lies under the name `{expected}`"))]
    } else if name.is_empty() || !name.chars().all(plain) {
        vec![Problem::new("name", format!("`{name}` is not lower case letters, digits, `-`, `.` and `_`"))]
    } else {
        Vec::new()
    }
}

/// The problems of a graph named after its directory.
pub(crate) fn graph(graph: &ModelGraph, directory: &str) -> Vec<Problem> {
    let mut problems = name(&graph.name, directory);
    if Family::of(&graph.architecture).is_none() {
        problems.push(Problem::new("architecture", format!("no rule derives `{}`", graph.architecture)));
    }
    for (path, value) in
        [("hidden_size", graph.hidden_size), ("vocab_size", graph.vocab_size), ("max_position_embeddings", graph.max_position_embeddings)]
    {
        if value == 0 {
            problems.push(Problem::new(path, "0 is not a positive width"));
        }
    }
    for (name, layer) in &graph.blocks {
        problems.extend(block(name, layer));
    }
    let known = |name: &String| graph.blocks.contains_key(name);
    let unknown = graph.stack.iter().flat_map(|run| &run.cycle).find(|name| !known(name));
    if let Some(name) = unknown {
        problems.push(Problem::new("stack", format!("names the block `{name}`, which is not there")));
    }
    if graph.stack.iter().any(|run| run.times == 0 || run.cycle.is_empty()) || graph.layer_count() == 0 {
        problems.push(Problem::new("stack", "has an empty run, or no layer at all"));
    }
    if problems.is_empty() {
        problems.extend(counted(graph));
    }
    problems
}

fn block(name: &str, block: &LayerBlock) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut check = |field: &str, holds: bool, message: String| {
        if !holds {
            problems.push(Problem::new(format!("blocks.{name}.{field}"), message));
        }
    };
    match &block.attention {
        Attention::GroupedQuery(attention) => grouped_query(attention, &mut check),
        Attention::Latent(attention) => latent(attention, &mut check),
        Attention::Compressed(attention) => compressed(attention, &mut check),
        Attention::GatedDelta(attention) => gated_delta(attention, &mut check),
        Attention::Mamba2(attention) => mamba2(attention, &mut check),
    }
    match &block.feed_forward {
        FeedForward::Dense(dense) => {
            check("feed_forward.dense.intermediate_size", dense.intermediate_size > 0, "0 is not a positive width".to_owned());
        }
        FeedForward::MixtureOfExperts(moe) => experts(moe, &mut check),
        FeedForward::Absent => {}
    }
    problems
}

fn grouped_query(attention: &GroupedQueryAttention, check: &mut impl FnMut(&str, bool, String)) {
    let (query, kv) = (attention.query_heads, attention.kv_heads);
    check(
        "attention.grouped_query.kv_heads",
        kv > 0 && query > 0 && query.is_multiple_of(kv),
        format!("{kv} does not divide the {query} query heads"),
    );
    check("attention.grouped_query.head_dim", attention.head_dim > 0, "0 is not a positive width".to_owned());
    check("attention.grouped_query.window", attention.window != Some(0), "0 is not a positive window".to_owned());
    if let Some(indexer) = &attention.indexer {
        let path = "attention.grouped_query.indexer";
        let positive = indexer.query_heads > 0 && indexer.head_dim > 0 && indexer.block_tokens > 0;
        check(path, positive, "0 is not a positive number of heads, elements or tokens".to_owned());
        let (picked, fixed) = (indexer.top_k, indexer.first_blocks.saturating_add(indexer.last_blocks));
        check(&format!("{path}.top_k"), picked > 0 && picked >= fixed, format!("{picked} blocks do not hold the {fixed} always seen"));
    }
}

fn compressed(attention: &CompressedAttention, check: &mut impl FnMut(&str, bool, String)) {
    for (field, value) in [
        ("query_heads", attention.query_heads),
        ("head_dim", attention.head_dim),
        ("rotary_dim", attention.rotary_dim),
        ("window", attention.window),
        ("query_rank", attention.query_rank),
        ("output_rank", attention.output_rank),
        ("compression.ratio", attention.compression.as_ref().map_or(1, |compression| compression.ratio)),
    ] {
        check(&format!("attention.compressed.{field}"), value > 0, "0 is not a positive width".to_owned());
    }
    let (groups, heads) = (attention.output_groups, attention.query_heads);
    check(
        "attention.compressed.output_groups",
        groups > 0 && heads.is_multiple_of(groups),
        format!("{groups} does not divide the {heads} query heads"),
    );
    let selection = attention.compression.as_ref().and_then(|compression| compression.selection.as_ref());
    let scores = selection.is_none_or(|selection| selection.heads > 0 && selection.head_dim > 0 && selection.top_k > 0);
    check("attention.compressed.compression.selection", scores, "a width of 0 cannot score".to_owned());
}

fn gated_delta(rule: &GatedDelta, check: &mut impl FnMut(&str, bool, String)) {
    let path = "attention.gated_delta";
    let (keys, values) = (rule.key_heads, rule.value_heads);
    check(
        &format!("{path}.value_heads"),
        keys > 0 && values > 0 && values.is_multiple_of(keys),
        format!("{values} is not a multiple of the {keys} key heads"),
    );
    for (field, value) in [("key_dim", rule.key_dim), ("value_dim", rule.value_dim), ("conv_tokens", rule.conv_tokens)] {
        check(&format!("{path}.{field}"), value > 0, "0 is not a positive width".to_owned());
    }
}

fn mamba2(space: &Mamba2, check: &mut impl FnMut(&str, bool, String)) {
    let path = "attention.mamba2";
    let (groups, heads) = (space.groups, space.heads);
    check(
        &format!("{path}.groups"),
        groups > 0 && heads > 0 && heads.is_multiple_of(groups),
        format!("{groups} does not divide the {heads} heads"),
    );
    for (field, value) in [
        ("head_dim", space.head_dim),
        ("state_dim", space.state_dim),
        ("conv_tokens", space.conv_tokens),
        ("chunk_tokens", space.chunk_tokens),
    ] {
        check(&format!("{path}.{field}"), value > 0, "0 is not a positive width".to_owned());
    }
}

fn latent(attention: &LatentAttention, check: &mut impl FnMut(&str, bool, String)) {
    for (field, value) in [
        ("query_heads", attention.query_heads),
        ("query_rank", attention.query_rank.unwrap_or(1)),
        ("kv_rank", attention.kv_rank),
        ("plain_dim", attention.plain_dim),
        ("rotary_dim", attention.rotary_dim),
        ("value_dim", attention.value_dim),
    ] {
        check(&format!("attention.latent.{field}"), value > 0, "0 is not a positive width".to_owned());
    }
    let scores = attention.indexer().is_none_or(|indexer| indexer.heads > 0 && indexer.head_dim > 0);
    let sees = attention.selection.as_ref().is_none_or(|selection| selection.top_k > 0);
    check("attention.latent.selection", scores && sees, "a width or a number of 0 cannot score or be seen".to_owned());
}

fn experts(moe: &MixtureOfExperts, check: &mut impl FnMut(&str, bool, String)) {
    let (experts, top_k) = (moe.experts, moe.top_k);
    let path = "feed_forward.mixture_of_experts";
    check(&format!("{path}.top_k"), top_k > 0 && top_k <= experts, format!("{top_k} of {experts} experts cannot be picked"));
    check(&format!("{path}.intermediate_size"), moe.intermediate_size > 0, "0 is not a positive width".to_owned());
    if let Some(groups) = moe.groups {
        let (count, picked) = (groups.count, groups.picked);
        check(
            &format!("{path}.groups"),
            count > 0 && experts.is_multiple_of(count) && picked > 0 && picked <= count,
            format!("{picked} of {count} groups of {experts} experts cannot be picked"),
        );
    }
    let width = moe.latent.map_or(1, |latent| latent.width);
    check(&format!("{path}.latent.width"), width > 0, "0 is not a positive width".to_owned());
    check(&format!("{path}.shared_gate"), !moe.shared_gate || moe.shared.is_some(), "weighs shared experts that are not there".to_owned());
    let shared = moe.shared.as_ref().map_or(1, |shared| shared.intermediate_size);
    check(&format!("{path}.shared.intermediate_size"), shared > 0, "0 is not a positive width".to_owned());
}

/// The stated counts are those of the graph, and agree with the published ones.
fn counted(graph: &ModelGraph) -> Vec<Problem> {
    let stated = &graph.parameters;
    let counted = counts::count(graph, stated.active_leaves_out.clone(), stated.published.clone());
    let mut problems = Vec::new();
    for (path, stated, counted) in [("parameters.total", stated.total, counted.total), ("parameters.active", stated.active, counted.active)]
    {
        if stated != counted {
            problems.push(Problem::new(path, format!("{stated}, where the blocks have {counted}")));
        }
    }
    if let Err(error) = check_published(graph, &counted) {
        problems.push(Problem::new("parameters.published", error.to_string()));
    }
    problems
}
