//! What a group of layers that keep a state does otherwise, where the states of block ends are cached.
//!
//! upstream: vllm `v1/core/single_type_kv_cache_manager.py::MambaManager`; `v1/kv_cache_interface.py::is_mamba_prefill_checkpoint_valid`,
//! `get_mamba_prefill_checkpoint_position`; `v1/core/sched/scheduler.py::Scheduler._mamba_block_aligned_split`
//!
//! The block at index i holds the state after (i + 1) block sizes of tokens, or the running state where the request is not there yet.
//! A step takes one block for the state it ends in and leaves a gap before it; the block of the step before last is given back when
//! its successor is processed. The state that a hit resumes from is one block, so that a hit reaches as far back as a window of two
//! tokens would. Upstream also frees "the last state block" by name: without drafts the rule for blocks out of sight frees it first.
//!
//! Left out: hits inside a block (`prefix_match_unit`), and with them copies on write; drafts' states; junction checkpoints of drafts;
//! hand-over of states to connectors.

use super::BlockId;
use super::blocks_for;
use super::group::{Attention, CachePolicy, Group, MambaMode, Span};
use super::pool::BlockPool;
use crate::request::Slot;

impl Span {
    /// Whether the kernel writes the state of the last block end within the span on its way to the span's end.
    pub(super) fn has_checkpoint(&self, block_size: u32) -> bool {
        let position = last_block_end(self.tokens, block_size);
        self.tokens >= self.prefill_end && self.computed.is_multiple_of(block_size) && position >= self.computed + block_size
    }
}

/// The last block end that leaves a token to compute.
const fn last_block_end(tokens: u32, block_size: u32) -> u32 {
    tokens.saturating_sub(1) / block_size * block_size
}

impl Group {
    /// Whether a hit ends in a state that another request caches in this very step, which its own step cannot read yet.
    pub(super) fn waits_for_next_step(&self, pool: &BlockPool, hits: &[BlockId]) -> bool {
        hits.last().is_some_and(|last| pool.content(*last).is_some_and(|content| self.cached_now.contains(&content)))
    }

    /// Notes the state of the prompt's last block end as cached in this step, as long as the request holds it and has not filled
    /// another block: upstream registers it anew with each of the request's steps.
    pub(super) fn note_prompt_end(&mut self, slot: Slot, full: u32, policy: &CachePolicy<'_>) {
        let Some(resend) = policy.boundaries[0] else { return };
        let end = resend / self.block_size();
        if full == end && self.holds_prompt_end(slot, resend) {
            self.cached_now.push(policy.contents[end as usize - 1]);
        }
    }

    /// Whether a request holds the state of the last block end among its prompt's first tokens.
    pub(super) fn holds_prompt_end(&self, slot: Slot, tokens: u32) -> bool {
        let end = (tokens / self.block_size()) as usize;
        let aligned = matches!(self.attention, Attention::Mamba(MambaMode::Align { .. }));
        aligned && end > 0 && self.table(slot).get(end - 1).is_some_and(|block| !block.is_null())
    }

    /// Blocks from the pool to admit a request: one for the state its first step ends in, one for a checkpoint, and the hit's.
    pub(super) fn aligned_to_admit(&self, pool: &BlockPool, span: Span, hits: &[BlockId], checkpoints: bool) -> u32 {
        let block_size = self.block_size();
        let hit_blocks = u32::try_from(hits.len()).expect("a table has fewer blocks than the pool");
        let missing = blocks_for(span.tokens, block_size).saturating_sub(hit_blocks);
        let most = 1 + u32::from(checkpoints && span.has_checkpoint(block_size));
        let revived = hits.iter().filter(|block| !block.is_null() && pool.is_idle(**block)).count();
        missing.min(most) + u32::try_from(revived).expect("a table has fewer blocks than the pool")
    }
}

/// Where prompts are cut so that steps end at states worth caching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlignedSplit {
    block_size: u32,
    checkpoints: bool,
}

/// A prompt, or what a preemption threw away, as it is about to be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Tokens computed before.
    pub start: u32,
    /// Tokens that budgets allow.
    pub tokens: u32,
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Tokens known by now.
    pub known: u32,
    /// Where a prefix proven to be shared ends; 0 for none.
    pub junction: u32,
    /// Most tokens a step may ever give one prompt.
    pub most: u32,
}

impl AlignedSplit {
    /// The rule of a cache some of whose groups keep states; none where no group caches them.
    pub fn of(mut groups: impl Iterator<Item = (Attention, u32)>) -> Option<Self> {
        let rule = |(attention, block_size)| match attention {
            Attention::Mamba(MambaMode::Align { checkpoints }) => Some(Self { block_size, checkpoints }),
            Attention::Full | Attention::SlidingWindow { .. } | Attention::Chunked { .. } | Attention::Mamba(MambaMode::None) => None,
        };
        groups.find_map(rule)
    }

    /// Tokens of the chunk after it has been cut; none where it must wait for a larger one.
    pub fn cut(self, chunk: Chunk) -> u32 {
        let Self { block_size, checkpoints } = self;
        let Chunk { start, tokens, prompt, known, junction, most } = chunk;
        let prefill_end = prompt.max(known - 1);
        if start >= prefill_end {
            return tokens;
        }
        let mut end = start + tokens;
        let inside = Span { computed: start, tokens: prefill_end, prefill_end }.has_checkpoint(block_size);
        let on_the_way = checkpoints && end >= prefill_end && inside;
        if end < prefill_end {
            let aligned = end / block_size * block_size;
            if aligned > start || block_size <= most {
                end = aligned;
            }
        }
        let next = (start / block_size + 1) * block_size;
        let stops = [
            if start.is_multiple_of(block_size) || on_the_way { 0 } else { next },
            if on_the_way { 0 } else { last_block_end(known, block_size) },
            if (start..end).contains(&junction) { start + (junction - start) / block_size * block_size } else { 0 },
        ];
        stops.into_iter().filter(|stop| (start + 1..end).contains(stop)).min().unwrap_or(end).saturating_sub(start)
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::GroupConfig;
    use super::*;

    const SPLIT: AlignedSplit = AlignedSplit { block_size: 16, checkpoints: false };

    fn chunk(start: u32, tokens: u32, prompt: u32) -> Chunk {
        Chunk { start, tokens, prompt, known: prompt, junction: 0, most: 64 }
    }

    #[test]
    fn a_prompt_is_cut_at_its_last_block_end_and_chunks_end_at_block_ends() {
        assert_eq!(SPLIT.cut(chunk(0, 40, 40)), 32);
        assert_eq!(SPLIT.cut(chunk(32, 8, 40)), 8);
        assert_eq!(SPLIT.cut(chunk(0, 30, 100)), 16);
        assert_eq!(SPLIT.cut(chunk(0, 10, 100)), 0, "a block may still come whole");
        assert_eq!(SPLIT.cut(Chunk { most: 12, ..chunk(0, 10, 100) }), 10, "no step takes a whole block");
        assert_eq!(SPLIT.cut(Chunk { most: 12, ..chunk(10, 12, 100) }), 6, "a chunk inside a block stops at its end");
        assert_eq!(SPLIT.cut(chunk(0, 32, 32)), 16, "the last token is computed again by a repeat");
        assert_eq!(SPLIT.cut(Chunk { known: 41, ..chunk(40, 1, 40) }), 1, "decodes are not cut");
    }

    #[test]
    fn a_proven_prefix_is_a_stop_and_a_checkpoint_spares_one() {
        assert_eq!(SPLIT.cut(Chunk { junction: 48, ..chunk(16, 64, 100) }), 32);
        let checkpoints = AlignedSplit { checkpoints: true, ..SPLIT };
        assert_eq!(checkpoints.cut(chunk(0, 40, 40)), 40);
        assert_eq!(checkpoints.cut(chunk(0, 17, 17)), 17, "the first block's end is a checkpoint too");
        assert_eq!(checkpoints.cut(chunk(5, 35, 40)), 11, "a start inside a block has none");
    }

    #[test]
    fn a_step_takes_one_block_and_leaves_a_gap() {
        let mut pool = BlockPool::new(16, 1, true);
        let align = Attention::Mamba(MambaMode::Align { checkpoints: false });
        let mut group = Group::new(GroupConfig { attention: align, block_size: 16 }, 64, 4096);
        group.reserve(Slot(0));
        let span = |computed, tokens| Span { computed, tokens, prefill_end: 0 };
        group.extend(&mut pool, Slot(0), span(0, 48));
        assert_eq!(group.table(Slot(0)), [0, 0, 1].map(BlockId));
        group.extend(&mut pool, Slot(0), span(48, 60));
        assert_eq!(group.table(Slot(0)), [0, 0, 1, 2].map(BlockId));
        group.remove_skipped(&mut pool, Slot(0), 48);
        assert_eq!(group.table(Slot(0)), [0, 0, 1, 2].map(BlockId), "the state of the last token is still read");
        group.remove_skipped(&mut pool, Slot(0), 49);
        assert_eq!(group.table(Slot(0)), [0, 0, 0, 2].map(BlockId));
    }

    #[test]
    fn a_checkpoint_takes_a_block_of_its_own() {
        let mut pool = BlockPool::new(16, 1, true);
        let align = Attention::Mamba(MambaMode::Align { checkpoints: true });
        let mut group = Group::new(GroupConfig { attention: align, block_size: 16 }, 64, 4096);
        group.reserve(Slot(0));
        let span = Span { computed: 0, tokens: 60, prefill_end: 60 };
        assert_eq!(group.blocks_to_admit(&pool, span, &[], true), 2);
        group.extend(&mut pool, Slot(0), span);
        assert_eq!(group.table(Slot(0)), [0, 0, 1, 2].map(BlockId));
        assert!(!Span { tokens: 59, ..span }.has_checkpoint(16), "a chunk before the prompt's end has none");
        assert!(!Span { computed: 8, ..span }.has_checkpoint(16));
    }
}
