//! How much longer the busiest processor reads where a kernel deals its requests' blocks in turn and their contexts differ.
//!
//! A request is cut into as many parts as its blocks hold shares of a processor, a tenth larger than what every processor would have of all;
//! each part of each key head goes to the processor that is first free, request after request. Of equal contexts every processor has
//! about the same, and so the tables' batches were; of unequal ones those above the mean are cut once more, and a second, mostly empty
//! round follows. upstream: vllm-flash-attn `hopper/flash_prepare_scheduler.cu`, `hopper/tile_scheduler.hpp` (in no wheel: cut and blocks were
//! read in machine code, the bound on parts outside graphs is from memory)

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;

use blis_contracts::format::FormatName;
use blis_contracts::step::Launch;

/// Most parts of a request where no captured graph bounds them.
const MOST_PARTS: u64 = 128;

/// What one step's blocks are dealt to, and how large they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dealt {
    pub(crate) kv_heads: u32,
    pub(crate) processors: u32,
    /// Tokens of a block, which a processor reads at once.
    pub(crate) block: u32,
    /// Most parts of a request within a captured graph.
    pub(crate) parts_in_graph: NonZeroU32,
}

/// Tokens of a block, by the width of a head and how keys and values are stored.
pub(crate) const fn block(head_dim: u32, kv_format: FormatName) -> u32 {
    match (head_dim, kv_format) {
        (..=64, _) => 192,
        (65..=128, FormatName::Fp8) => 160,
        (65..=128, _) | (129.., FormatName::Fp8) => 128,
        (129.., _) => 80,
    }
}

impl Dealt {
    /// What the busiest processor reads of requests with so many cached tokens, over what it would read if all had their mean: at least 1.
    pub(crate) fn stretch(self, cached: &[u32], launch: Launch) -> f64 {
        let Some((first, others)) = cached.split_first() else { return 1.0 };
        if others.iter().all(|one| one == first) {
            return 1.0;
        }
        let visible: u64 = cached.iter().map(|&cached| u64::from(cached) + 1).sum();
        let requests = cached.len() as u64;
        let most = if launch == Launch::Full { u64::from(self.parts_in_graph.get()).min(MOST_PARTS) } else { MOST_PARTS };
        let own = self.busiest(cached.iter().map(|&cached| u64::from(cached) + 1), most);
        let even = self.busiest_of_equal(requests, visible.div_ceil(requests), most);
        (own as f64 / even as f64).max(1.0)
    }

    /// Blocks of a part at most, of requests with so many blocks in all.
    fn share(self, blocks: u64) -> u64 {
        (11 * blocks * u64::from(self.kv_heads)).div_ceil(10 * u64::from(self.processors)).max(1)
    }

    /// Blocks of the busiest processor.
    fn busiest(self, contexts: impl Iterator<Item = u64> + Clone, most_parts: u64) -> u64 {
        let blocks = contexts.map(|context| context.div_ceil(u64::from(self.block)));
        let share = self.share(blocks.clone().sum());
        let mut free: BinaryHeap<Reverse<u64>> = (0..self.processors).map(|_| Reverse(0)).collect();
        for blocks in blocks {
            let parts = blocks.div_ceil(share).min(most_parts);
            let each = blocks.div_ceil(parts);
            for part in 0..parts {
                let held = each.min(blocks.saturating_sub(part * each));
                for _ in 0..self.kv_heads {
                    if let Some(mut load) = free.peek_mut() {
                        load.0 += held;
                    }
                }
            }
        }
        free.into_iter().map(|Reverse(load)| load).max().unwrap_or(0).max(1)
    }

    /// The same where all requests have a context: rounds of equal parts.
    fn busiest_of_equal(self, requests: u64, context: u64, most_parts: u64) -> u64 {
        let blocks = context.div_ceil(u64::from(self.block));
        let parts = blocks.div_ceil(self.share(requests * blocks)).min(most_parts);
        let rounds = (requests * parts * u64::from(self.kv_heads)).div_ceil(u64::from(self.processors));
        rounds * blocks.div_ceil(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOPPER: Dealt = Dealt { kv_heads: 2, processors: 132, block: 160, parts_in_graph: NonZeroU32::new(32).unwrap() };

    fn stretch(contexts: impl Iterator<Item = u32>) -> f64 {
        HOPPER.stretch(&contexts.collect::<Vec<_>>(), Launch::Piecewise)
    }

    #[test]
    fn equal_contexts_are_dealt_evenly_and_nearly_equal_ones_nearly_so() {
        for requests in [1, 4, 16, 32, 64, 200] {
            assert!((stretch((0..requests).map(|_| 8000)) - 1.0).abs() < f64::EPSILON, "{requests}");
            assert!(stretch((0..requests).map(|index| 8000 + index % 2)) < 1.05, "{requests}");
        }
    }

    #[test]
    fn unequal_ones_need_a_second_round_once_parts_outnumber_processors() {
        // 64 requests over two heads are 128 parts of 132 processors while each is one part.
        let spread = |requests: u32| stretch((0..requests).map(|index| 6_500 + 3_000 * (index * 37 % requests) / requests));
        assert!(spread(4) < 1.2, "{}", spread(4));
        assert!((1.3..2.0).contains(&spread(64)), "{}", spread(64));
    }

    #[test]
    fn the_order_of_requests_counts() {
        let contexts: Vec<u32> = (0..64).map(|index| 1_000 + 120 * index).collect();
        let longest_first: Vec<u32> = contexts.iter().rev().copied().collect();
        let of = |contexts: &[u32]| HOPPER.stretch(contexts, Launch::Piecewise);
        assert!(of(&longest_first) < of(&contexts), "{} {}", of(&longest_first), of(&contexts));
    }

    #[test]
    fn a_captured_graph_bounds_the_parts_of_a_request() {
        let contexts: Vec<u32> = std::iter::once(100_000).chain([1_000; 7]).collect();
        let alone = Dealt { kv_heads: 1, ..HOPPER };
        assert!(alone.stretch(&contexts, Launch::Full) > 2.0 * alone.stretch(&contexts, Launch::Eager));
        let unbounded = Dealt { parts_in_graph: NonZeroU32::MAX, ..alone };
        assert_eq!(unbounded.stretch(&contexts, Launch::Full).to_bits(), alone.stretch(&contexts, Launch::Eager).to_bits());
    }
}
