//! Parameter counts of a model graph: elements of its tensors, scales left out, and their agreement with what a publisher prints.

use blis_contracts::model::{
    Attention, BlockIndexer, CompressedAttention, DenseFeedForward, FeedForward, GatedDelta, GroupedQueryAttention, LatentAttention,
    LayerBlock, Mamba2, ModelGraph, ParameterCount, PublishedCount, ResidualLanes, TokenIndexer, UncountedPart,
};

/// Parameters of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LayerCount {
    /// All of them.
    pub(crate) total: u64,
    /// Those of the router.
    pub(crate) router: u64,
    /// Those of experts that a token does not pass.
    pub(crate) idle_experts: u64,
}

/// Counts a graph whose layers are complete; `published` and `active_leaves_out` come from the publisher.
pub(crate) fn count(graph: &ModelGraph, active_leaves_out: Vec<UncountedPart>, published: Option<PublishedCount>) -> ParameterCount {
    let embedding = graph.vocab_size * graph.hidden_size;
    let output = if graph.tied_embeddings { 0 } else { embedding };
    let layers: Vec<LayerCount> = graph.layers().map(|block| layer(block, graph.hidden_size)).collect();
    let sum = |part: fn(&LayerCount) -> u64| layers.iter().map(part).sum::<u64>();
    let lanes = graph.residual_lanes.map_or(0, |lanes| mixing(lanes, graph.hidden_size, layers.len() as u64));
    let total = embedding + output + graph.hidden_size + sum(|layer| layer.total) + lanes + encoders(graph);
    let active = total - sum(|layer| layer.idle_experts) - parts(graph, &active_leaves_out);
    ParameterCount { total, active, active_leaves_out, published }
}

/// Parameters of some parts of a graph.
pub(crate) fn parts(graph: &ModelGraph, parts: &[UncountedPart]) -> u64 {
    let count = |part: &UncountedPart| match part {
        UncountedPart::Embedding => graph.vocab_size * graph.hidden_size,
        UncountedPart::Router => graph.layers().map(|block| layer(block, graph.hidden_size).router).sum(),
        UncountedPart::Encoder => encoders(graph),
    };
    parts.iter().map(count).sum()
}

fn encoders(graph: &ModelGraph) -> u64 {
    graph.encoders.iter().map(|encoder| encoder.parameters).sum()
}

fn layer(block: &LayerBlock, hidden: u64) -> LayerCount {
    let attention = match &block.attention {
        Attention::GroupedQuery(attention) => grouped_query(attention, hidden),
        Attention::Latent(attention) => latent(attention, hidden),
        Attention::Compressed(attention) => compressed(attention, hidden),
        Attention::GatedDelta(rule) => gated_delta(rule, hidden),
        Attention::Mamba2(space) => mamba2(space, hidden),
    };
    let total = attention + u64::from(block.norms) * hidden;
    match &block.feed_forward {
        FeedForward::Absent => LayerCount { total, router: 0, idle_experts: 0 },
        FeedForward::Dense(dense) => LayerCount { total: total + dense_network(dense, hidden), router: 0, idle_experts: 0 },
        FeedForward::MixtureOfExperts(moe) => {
            let stream = moe.latent.map_or(hidden, |latent| latent.width);
            let expert = network(stream, moe.intermediate_size, moe.gated, moe.bias);
            let around = moe.latent.map_or(0, |latent| 2 * latent.width * hidden) + u64::from(moe.shared_gate) * hidden;
            let scales = if moe.router_scales { hidden + u64::from(moe.experts) } else { 0 };
            let router = scales + u64::from(moe.experts) * (hidden + u64::from(moe.router_bias) + u64::from(moe.selection_bias));
            let shared = moe.shared.as_ref().map_or(0, |shared| dense_network(shared, hidden));
            LayerCount {
                total: total + router + shared + around + u64::from(moe.experts) * expert,
                router,
                idle_experts: u64::from(moe.experts.saturating_sub(moe.top_k)) * expert,
            }
        }
    }
}

fn grouped_query(attention: &GroupedQueryAttention, hidden: u64) -> u64 {
    let (query_heads, kv_heads) = (u64::from(attention.query_heads), u64::from(attention.kv_heads));
    let head_dim = u64::from(attention.head_dim);
    let qkv = (query_heads + if attention.values_are_keys { 1 } else { 2 } * kv_heads) * head_dim;
    let gate = if attention.output_gate { query_heads * head_dim } else { 0 };
    let mut total = (qkv + gate) * hidden + query_heads * head_dim * hidden;
    total += if attention.qkv_bias { qkv } else { 0 };
    total += if attention.output_bias { hidden } else { 0 };
    total += if attention.sinks { query_heads } else { 0 };
    let (query_norm, key_norm) = attention.qk_norm_widths();
    total += attention.indexer.as_ref().map_or(0, |indexer| index_parameters(indexer, hidden));
    total + query_norm + key_norm
}

/// Parameters of an indexer: its queries' projection, its one key's, and a norm over a head of either.
fn index_parameters(indexer: &BlockIndexer, hidden: u64) -> u64 {
    let head_dim = u64::from(indexer.head_dim);
    (u64::from(indexer.query_heads) + 1) * head_dim * hidden + 2 * head_dim
}

/// Beside its projections: the convolution without bias, a decay and an offset of steps per value head, a norm over a value head.
fn gated_delta(rule: &GatedDelta, hidden: u64) -> u64 {
    let (values, heads) = (rule.value_width(), u64::from(rule.value_heads));
    let projections = hidden * (rule.conv_width() + values + 2 * heads) + values * hidden;
    projections + rule.conv_width() * u64::from(rule.conv_tokens) + 2 * heads + u64::from(rule.value_dim)
}

/// Beside its projections: the convolution, a decay, a direct path and an offset of steps per head, a norm over all heads.
fn mamba2(space: &Mamba2, hidden: u64) -> u64 {
    let projections = hidden * space.input_width() + space.width() * hidden;
    let convolution = space.conv_width() * (u64::from(space.conv_tokens) + u64::from(space.conv_bias));
    projections + convolution + 3 * u64::from(space.heads) + space.width()
}

/// Both latent vectors have a norm.
fn latent(attention: &LatentAttention, hidden: u64) -> u64 {
    let heads = u64::from(attention.query_heads);
    let (kv_rank, value_dim) = (u64::from(attention.kv_rank), u64::from(attention.value_dim));
    let query_columns = heads * u64::from(attention.query_dim());
    let query = match attention.query_rank {
        Some(rank) => u64::from(rank) * (hidden + 1 + query_columns),
        None => hidden * query_columns,
    };
    let down = hidden * u64::from(attention.cached()) + kv_rank;
    let up = kv_rank * heads * (u64::from(attention.plain_dim) + value_dim);
    let indexer = attention.indexer().map_or(0, |indexer| scoring(indexer, hidden, attention.query_rank.map_or(hidden, u64::from)));
    query + down + up + heads * value_dim * hidden + indexer
}

/// What scores tokens: queries, the key with its norm's scale and offset, a weight for each head.
fn scoring(indexer: &TokenIndexer, hidden: u64, query_depth: u64) -> u64 {
    let (heads, head_dim) = (u64::from(indexer.heads), u64::from(indexer.head_dim));
    query_depth * heads * head_dim + hidden * (head_dim + heads) + 2 * head_dim
}

/// Query latent and key have a norm each, and so has what compression writes.
fn compressed(attention: &CompressedAttention, hidden: u64) -> u64 {
    let (rank, head_dim) = (u64::from(attention.query_rank), u64::from(attention.head_dim));
    let down = hidden * (rank + head_dim) + rank + head_dim;
    let query = rank * attention.query_width();
    let output = attention.query_width() * u64::from(attention.output_rank) + attention.grouped_width() * hidden;
    let sinks = if attention.sinks { u64::from(attention.query_heads) } else { 0 };
    let compression = attention.compression.as_ref().map_or(0, |compression| {
        let compressor = |width: u32| {
            let columns = compression.columns(width);
            2 * columns * hidden + u64::from(compression.ratio) * columns + u64::from(width)
        };
        let scores = compression.selection.as_ref().map_or(0, |selection| {
            let heads = u64::from(selection.heads);
            heads * u64::from(selection.head_dim) * rank + heads * hidden + compressor(selection.head_dim)
        });
        compressor(attention.head_dim) + scores
    });
    down + query + output + sinks + compression
}

/// A projection of all lanes, offsets and three scales for each of two sublayers; for the last norm one of all lanes to each, with
/// one scale.
fn mixing(lanes: ResidualLanes, hidden: u64, layers: u64) -> u64 {
    let (count, weights) = (u64::from(lanes.lanes), lanes.weights());
    2 * layers * (weights * count * hidden + weights + 3) + count * (count * hidden + 1) + 1
}

fn dense_network(dense: &DenseFeedForward, hidden: u64) -> u64 {
    network(hidden, dense.intermediate_size, dense.gated, dense.bias)
}

/// Parameters of one feed-forward network.
fn network(hidden: u64, intermediate: u64, gated: bool, bias: bool) -> u64 {
    let up = if gated { 2 * intermediate } else { intermediate };
    (up + intermediate) * hidden + if bias { up + hidden } else { 0 }
}

/// Whether a count agrees with a printed one: equal to an exact figure, within half of the last digit of a rounded one.
/// Nothing where the printed figure is neither digits alone nor digits with a decimal point and `T`, `B` or `M`.
pub(crate) fn agrees(count: u64, printed: &str) -> Option<bool> {
    let (digits, unit) = match printed.chars().next_back()? {
        'T' => (&printed[..printed.len() - 1], 1_000_000_000_000_u64),
        'B' => (&printed[..printed.len() - 1], 1_000_000_000),
        'M' => (&printed[..printed.len() - 1], 1_000_000),
        _ => (printed, 1),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || fraction.len() > 6 || whole.len() > 15 {
        return None;
    }
    let step = unit.checked_div(10_u64.pow(u32::try_from(fraction.len()).ok()?)).filter(|&step| step > 0)?;
    let stated = format!("{whole}{fraction}").parse::<u64>().ok()?.checked_mul(step)?;
    Some(2 * count.abs_diff(stated) <= if unit == 1 { 0 } else { step })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_figure_must_be_met_exactly_and_a_rounded_one_within_half_its_last_digit() {
        assert_eq!(agrees(8_030_261_248, "8030261248"), Some(true));
        assert_eq!(agrees(8_030_261_249, "8030261248"), Some(false));
        assert_eq!(agrees(116_829_156_672, "116.83B"), Some(true));
        assert_eq!(agrees(116_835_000_001, "116.83B"), Some(false));
        assert_eq!(agrees(596_049_920, "0.6B"), Some(true));
        assert_eq!(agrees(1_026_000_000_000, "1.03T"), Some(true));
        assert_eq!(agrees(1, "about 1B"), None);
    }
}
