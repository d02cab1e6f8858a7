//! What a group of layers does otherwise that see a chunk of the context: a query sees the tokens of its own chunk, no matter how far
//! into the chunk it lies.
//!
//! upstream: vllm `v1/core/single_type_kv_cache_manager.py::ChunkedLocalAttentionManager`;
//! `v1/kv_cache_interface.py::ChunkedLocalAttentionSpec.max_admission_blocks_per_request`
//!
//! Blocks before the current chunk are given back. All full blocks are findable, whatever the retention. A look-up counts everything
//! before the chunk in which it would end as cached, since nothing there is needed, so that a model of such layers alone "hits" on
//! prompts nobody sent; beside full attention the full layers' hit bounds it.
//!
//! Left out: drafts over chunks, which upstream's manager asserts away.

use super::BlockId;
use super::blocks_for;
use super::lookup::{Class, Hit, Sought};

/// Tokens before the chunk that token number `position` lies in.
pub(super) const fn start_of_chunk(position: u32, chunk: u32) -> u32 {
    position / chunk * chunk
}

/// Most blocks a request holds at once: those of a chunk and of what is in flight.
pub(super) fn most_blocks(chunk: u32, block_size: u32, max_in_flight_tokens: u32, max_model_len: u32) -> u32 {
    let held = chunk.saturating_add(max_in_flight_tokens);
    blocks_for(held.min(max_model_len), block_size)
}

/// The number of processed tokens at which a chunk begins before which one more block lies than now.
pub(super) const fn next_skip_at(processed: u32, chunk: u32, block_size: u32) -> u32 {
    let skipped_blocks = start_of_chunk(processed, chunk) / block_size;
    ((skipped_blocks + 1) * block_size).div_ceil(chunk).saturating_mul(chunk)
}

impl Class {
    /// Everything before the chunk that `limit` lies in, then the run of cached blocks from there.
    pub(super) fn find_chunk(&self, chunk: u32, sought: Sought<'_>, limit: u32, hit: &mut Hit) -> u32 {
        let Sought { pool, contents } = sought;
        let first = (start_of_chunk(limit, chunk) / self.block_size) as usize;
        let blocks = (limit / self.block_size) as usize;
        self.groups.iter().for_each(|group| {
            hit.blocks[*group].clear();
            hit.blocks[*group].resize(first, BlockId::NULL);
        });
        let mut tokens = u32::try_from(first).expect("a prompt has fewer blocks than tokens") * self.block_size;
        for content in self.blocks(contents).take(blocks).skip(first) {
            if !self.all_have(pool, content) {
                break;
            }
            self.groups.iter().for_each(|group| hit.blocks[*group].extend(pool.find(content, *group)));
            tokens += self.block_size;
        }
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::{Attention, Group, Span};
    use super::super::pool::BlockPool;
    use super::*;
    use crate::request::Slot;

    const CHUNKED: Attention = Attention::Chunked { chunk: 64 };

    #[test]
    fn the_next_token_needs_its_own_chunk_alone() {
        assert_eq!([0, 63, 64, 65, 127, 128].map(|computed| CHUNKED.skipped_tokens(computed)), [0, 0, 64, 64, 64, 128]);
        assert_eq!(CHUNKED.reach(), None);
        assert!(!CHUNKED.has_every_prefix() && Attention::Full.has_every_prefix());
    }

    #[test]
    fn a_request_holds_a_chunk_and_what_is_in_flight() {
        assert_eq!(CHUNKED.admission_cap(16, 32, 4096), Some(6));
        assert_eq!(CHUNKED.admission_cap(16, 33, 4096), Some(7));
        assert_eq!(CHUNKED.blocks_per_request(16, 8192, 80), 5);
    }

    #[test]
    fn the_next_skip_is_the_first_count_at_which_one_more_block_goes() {
        for (chunk, block_size) in [(64, 16), (16, 16), (48, 64), (64, 64)] {
            let skipped = |tokens: u32| start_of_chunk(tokens, chunk) / block_size;
            for processed in 0..400 {
                let next = next_skip_at(processed, chunk, block_size);
                assert!(skipped(next) > skipped(processed), "{processed} in chunks of {chunk}");
                assert_eq!(skipped(next - 1), skipped(processed), "{processed} in chunks of {chunk}");
            }
        }
    }

    #[test]
    fn a_chunk_behind_the_next_token_goes_back_whole_and_last_first() {
        let mut pool = BlockPool::new(16, 1, true);
        let mut group = Group::new(CHUNKED.in_blocks(16), 64, 4096);
        group.reserve(Slot(0));
        group.extend(&mut pool, Slot(0), Span { computed: 0, tokens: 80, prefill_end: 0 });
        group.remove_skipped(&mut pool, Slot(0), 63);
        assert_eq!(group.table(Slot(0)), [1, 2, 3, 4, 5].map(BlockId));
        group.remove_skipped(&mut pool, Slot(0), 64);
        assert_eq!(group.table(Slot(0)), [0, 0, 0, 0, 5].map(BlockId));
        assert_eq!(pool.free_order().map(|block| block.0).take(5).collect::<Vec<_>>(), [4, 3, 2, 1, 6]);
    }
}
