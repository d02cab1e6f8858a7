//! How much longer the busiest processor reads where a kernel deals its requests' blocks in turn and their contexts differ.
//!
//! A request is cut into as many parts as its blocks hold shares of a processor, a tenth larger than the mean one; each part of each key
//! head goes to the processor that is first free, request after request. Of equal contexts every processor has about the same, and so
//! the tables' batches were; of unequal ones those above the mean are cut once more, and a second, mostly empty round follows.
//! upstream: vllm-flash-attn `hopper/flash_prepare_scheduler.cu`, `hopper/tile_scheduler.hpp` (in no wheel: the cut was read in its machine code)

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Tokens of a block, which a processor reads at once.
const BLOCK: u64 = 160;

/// What one step's requests are dealt to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dealt {
    pub(crate) kv_heads: u32,
    pub(crate) processors: u32,
}

impl Dealt {
    /// What the busiest processor reads of requests with so many cached tokens, over what it would read if all had their mean: at least 1.
    pub(crate) fn stretch(self, cached: &[u32]) -> f64 {
        let visible: u64 = cached.iter().map(|&cached| u64::from(cached) + 1).sum();
        let mean = visible.div_ceil((cached.len() as u64).max(1));
        let own = self.busiest(cached.iter().map(|&cached| u64::from(cached) + 1));
        let even = self.busiest(cached.iter().map(|_| mean));
        (own as f64 / even as f64).max(1.0)
    }

    /// Blocks of the busiest processor.
    fn busiest(self, contexts: impl Iterator<Item = u64> + Clone) -> u64 {
        let blocks = contexts.map(|context| context.div_ceil(BLOCK));
        let all: u64 = blocks.clone().sum();
        let share = (11 * all * u64::from(self.kv_heads)).div_ceil(10 * u64::from(self.processors)).max(1);
        let mut free: BinaryHeap<Reverse<u64>> = (0..self.processors).map(|_| Reverse(0)).collect();
        for blocks in blocks {
            let parts = blocks.div_ceil(share);
            let most = blocks.div_ceil(parts);
            for part in 0..parts {
                let held = most.min(blocks.saturating_sub(part * most));
                for _ in 0..self.kv_heads {
                    if let Some(mut load) = free.peek_mut() {
                        load.0 += held;
                    }
                }
            }
        }
        free.into_iter().map(|Reverse(load)| load).max().unwrap_or(0).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOPPER: Dealt = Dealt { kv_heads: 2, processors: 132 };

    fn stretch(contexts: impl Iterator<Item = u32>) -> f64 {
        HOPPER.stretch(&contexts.collect::<Vec<_>>())
    }

    #[test]
    fn equal_contexts_are_dealt_evenly() {
        for requests in [1, 4, 16, 32, 64, 200] {
            assert!((stretch((0..requests).map(|_| 8000)) - 1.0).abs() < f64::EPSILON, "{requests}");
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
    fn the_order_of_requests_counts_and_nothing_is_lost() {
        let contexts = [100, 20_000, 300, 9_000];
        let whole: u64 = contexts.iter().map(|context| (*context as u64).div_ceil(BLOCK) * 2).sum();
        let alone = Dealt { kv_heads: 2, processors: 1 };
        assert_eq!(alone.busiest(contexts.iter().map(|&context| context as u64)), whole);
    }
}
