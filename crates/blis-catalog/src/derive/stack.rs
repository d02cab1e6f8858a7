//! A list of layers as named blocks and runs of repeated cycles.

use std::fmt;

use blis_contracts::model::{Attention, FeedForward, LayerBlock, StackRun};
use indexmap::IndexMap;

/// What a layer is that others of its model are not, as far as its name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It attends, where others keep a state.
    Attention,
    /// It keeps a state by the gated delta rule.
    Delta,
    /// It keeps the state of a Mamba-2 scan.
    Mamba,
    /// It attends to all tokens, in the respect in which others do not.
    Full,
    /// It attends within chunks.
    Chunked,
    /// It attends within a window.
    Sliding,
    /// It attends to a window alone, where others see compressed tokens too.
    Window,
    /// It attends to entries of so many tokens each.
    Compressed(u32),
    /// It picks the tokens it attends to.
    Indexed,
    /// It attends to tokens that a layer below picked.
    Reusing,
    /// It has no network behind it.
    Alone,
    /// Its network is a mixture of experts.
    Experts,
    /// Its network is one.
    Dense,
    /// Its experts are looked up by token.
    ByToken,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attention => f.write_str("attention"),
            Self::Delta => f.write_str("delta"),
            Self::Mamba => f.write_str("mamba"),
            Self::Full => f.write_str("full"),
            Self::Chunked => f.write_str("chunked"),
            Self::Sliding => f.write_str("sliding"),
            Self::Window => f.write_str("window"),
            Self::Compressed(ratio) => write!(f, "compressed-{ratio}"),
            Self::Indexed => f.write_str("indexed"),
            Self::Reusing => f.write_str("reusing"),
            Self::Alone => f.write_str("alone"),
            Self::Experts => f.write_str("moe"),
            Self::Dense => f.write_str("dense"),
            Self::ByToken => f.write_str("by-token"),
        }
    }
}

/// Names the distinct layers and writes their order as runs.
pub(crate) fn compress(layers: Vec<LayerBlock>) -> (IndexMap<String, LayerBlock>, Vec<StackRun>) {
    let mut distinct: Vec<LayerBlock> = Vec::new();
    let mut order = Vec::with_capacity(layers.len());
    for layer in layers {
        let known = distinct.iter().position(|block| *block == layer);
        order.push(known.unwrap_or(distinct.len()));
        if known.is_none() {
            distinct.push(layer);
        }
    }
    let names = names(&distinct);
    let stack = runs(&order)
        .into_iter()
        .map(|(cycle, times)| StackRun { cycle: cycle.iter().map(|&block| names[block].clone()).collect(), times })
        .collect();
    (names.into_iter().zip(distinct).collect(), stack)
}

/// A name for each block that says how it differs from the others.
fn names(blocks: &[LayerBlock]) -> Vec<String> {
    let windowed = |block: &LayerBlock| match &block.attention {
        Attention::GroupedQuery(attention) => attention.window.is_some(),
        Attention::Latent(_) | Attention::Compressed(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => false,
    };
    let recurrence = |block: &LayerBlock| match &block.attention {
        Attention::GatedDelta(_) => Some(Kind::Delta),
        Attention::Mamba2(_) => Some(Kind::Mamba),
        Attention::GroupedQuery(_) | Attention::Latent(_) | Attention::Compressed(_) => None,
    };
    let compression = |block: &LayerBlock| match &block.attention {
        Attention::Compressed(attention) => {
            Some(attention.compression.as_ref().map_or(Kind::Window, |compression| Kind::Compressed(compression.ratio)))
        }
        Attention::GroupedQuery(_) | Attention::Latent(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => None,
    };
    let indexed = |block: &LayerBlock| match &block.attention {
        Attention::GroupedQuery(attention) => attention.indexer.is_some(),
        Attention::Latent(attention) => attention.indexer().is_some(),
        Attention::Compressed(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => false,
    };
    let reusing = |block: &LayerBlock| matches!(&block.attention, Attention::Latent(attention) if attention.selection.is_some());
    let sparse = |block: &LayerBlock| matches!(block.feed_forward, FeedForward::MixtureOfExperts(_));
    let differ = |property: &dyn Fn(&LayerBlock) -> bool| blocks.iter().any(property) && !blocks.iter().all(property);
    let looked_up = |block: &LayerBlock| matches!(&block.feed_forward, FeedForward::MixtureOfExperts(moe) if moe.picks_by_token);
    let (by_window, by_indexer, by_network, by_picking) = (differ(&windowed), differ(&indexed), differ(&sparse), differ(&looked_up));
    let chunked = |block: &LayerBlock| matches!(&block.attention, Attention::GroupedQuery(attention) if attention.chunk.is_some());
    let by_chunk = differ(&chunked);
    let by_recurrence = differ(&|block| recurrence(block).is_some());
    let alone = |block: &LayerBlock| block.feed_forward == FeedForward::Absent;
    let mut names: Vec<String> = Vec::new();
    for block in blocks {
        let mut parts = Vec::new();
        if by_recurrence {
            parts.push(recurrence(block).unwrap_or(Kind::Attention));
        }
        if by_chunk {
            parts.push(if chunked(block) { Kind::Chunked } else { Kind::Full });
        }
        if by_window {
            parts.push(if windowed(block) { Kind::Sliding } else { Kind::Full });
        }
        parts.extend(compression(block));
        if by_indexer {
            parts.push(match (indexed(block), reusing(block)) {
                (true, _) => Kind::Indexed,
                (false, true) => Kind::Reusing,
                (false, false) => Kind::Full,
            });
        }
        if by_network {
            parts.push(if alone(block) {
                Kind::Alone
            } else if sparse(block) {
                Kind::Experts
            } else {
                Kind::Dense
            });
        }
        if by_picking && looked_up(block) {
            parts.push(Kind::ByToken);
        }
        let words: Vec<String> = parts.iter().map(Kind::to_string).collect();
        let stem = if words.is_empty() { "layer".to_owned() } else { words.join("-") };
        let taken = |name: &String| names.contains(name);
        let numbered = (2..).map(|number| format!("{stem}-{number}"));
        let name = std::iter::once(stem.clone()).chain(numbered).find(|name| !taken(name)).expect("numbers do not run out");
        names.push(name);
    }
    names
}

/// Splits an order greedily: from each position, the cycle whose repetitions cover the most, the shortest among equals.
fn runs(order: &[usize]) -> Vec<(Vec<usize>, u32)> {
    let mut runs = Vec::new();
    let mut at = 0;
    while at < order.len() {
        let rest = &order[at..];
        let repeats = |period: usize| rest.chunks_exact(period).take_while(|chunk| *chunk == &rest[..period]).count();
        let mut best = (1, repeats(1));
        for period in 2..=rest.len() / 2 {
            let times = repeats(period);
            if times > 1 && period * times > best.0 * best.1 {
                best = (period, times);
            }
        }
        let (period, times) = best;
        runs.push((rest[..period].to_vec(), u32::try_from(times).expect("a model has fewer layers than 2^32")));
        at += period * times;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_written_as_its_repeated_cycles() {
        assert_eq!(runs(&[0, 0, 0]), [(vec![0], 3)]);
        assert_eq!(runs(&[0, 1, 0, 1]), [(vec![0, 1], 2)]);
        assert_eq!(runs(&[0, 1, 1, 1]), [(vec![0], 1), (vec![1], 3)]);
        assert_eq!(runs(&[0, 0, 1, 0, 0, 1, 0, 0]), [(vec![0, 0, 1], 2), (vec![0], 2)]);
    }

    #[test]
    fn writing_runs_out_gives_the_order_back() {
        for seed in 0..200_usize {
            let order: Vec<usize> = (0..17).map(|index| (seed * (index / 3 + 1) + index * (seed % 5)) % 3).collect();
            let written: Vec<usize> =
                runs(&order).into_iter().flat_map(|(cycle, times)| std::iter::repeat_n(cycle, times as usize).flatten()).collect();
            assert_eq!(written, order);
        }
    }
}
