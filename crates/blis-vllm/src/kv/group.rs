//! One KV-cache group: the block tables of the requests, and which blocks its attention still needs.
//!
//! upstream: vllm `v1/core/single_type_kv_cache_manager.py::SingleTypeKVCacheManager`, `FullAttentionManager`, `SlidingWindowManager`
//!
//! What layers that keep a state do otherwise stands in [`super::mamba`], what those that see a chunk of the context do in
//! [`super::chunked`].
//!
//! Left out: every other manager, blocks for externally computed tokens, the wider window of several drafting modules, tails kept for a request that is still
//! being prefilled elsewhere.

use super::chain::NodeId;
use super::pool::BlockPool;
use super::{BlockId, blocks_for, chunked};
use crate::request::Slot;

/// How the layers of a group look back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Attention {
    /// Every earlier token.
    Full,
    /// The last `window` tokens, the current one included.
    SlidingWindow {
        /// Tokens a query sees.
        window: u32,
    },
    /// The tokens of its own chunk of the context, the current one included.
    Chunked {
        /// Tokens of a chunk.
        chunk: u32,
    },
    /// A state that stands for every earlier token.
    Mamba(MambaMode),
}

/// Which states of a layer that keeps one are in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MambaMode {
    /// The running one.
    None,
    /// The running one and those of block ends that are cached.
    Align {
        /// Whether the kernel writes the state of the last block end inside a prompt on its way, so that no step has to end there.
        checkpoints: bool,
    },
}

impl Attention {
    /// A group of layers that look back this way, in blocks of so many tokens.
    pub const fn in_blocks(self, block_size: u32) -> GroupConfig {
        GroupConfig { attention: self, block_size }
    }

    /// Tokens whose blocks the next one needs, itself included; absent where it needs all, or those of a chunk. The state of the last
    /// computed token stands for all before it.
    pub(crate) const fn reach(self) -> Option<u32> {
        match self {
            Self::Full | Self::Chunked { .. } | Self::Mamba(MambaMode::None) => None,
            Self::SlidingWindow { window } => Some(window),
            Self::Mamba(MambaMode::Align { .. }) => Some(2),
        }
    }

    /// Whether every prefix of what can be resumed from can be resumed from too.
    pub(super) const fn has_every_prefix(self) -> bool {
        self.reach().is_none() && !matches!(self, Self::Chunked { .. })
    }

    /// Tokens that the token after `computed` no longer sees.
    pub(crate) const fn skipped_tokens(self, computed: u32) -> u32 {
        if let Self::Chunked { chunk } = self {
            return chunked::start_of_chunk(computed, chunk);
        }
        match self.reach() {
            None => 0,
            Some(reach) => (computed + 1).saturating_sub(reach),
        }
    }

    /// Most blocks a request holds at once, where the group gives blocks back while the request runs.
    ///
    /// upstream: vllm `v1/kv_cache_interface.py::SlidingWindowSpec.max_admission_blocks_per_request`
    pub fn admission_cap(self, block_size: u32, max_in_flight_tokens: u32, max_model_len: u32) -> Option<u32> {
        match self {
            Self::Full | Self::Mamba(_) => None,
            Self::Chunked { chunk } => Some(chunked::most_blocks(chunk, block_size, max_in_flight_tokens, max_model_len)),
            Self::SlidingWindow { window } => {
                let held = (window - 1).saturating_add(max_in_flight_tokens);
                Some(blocks_for(held.min(max_model_len), block_size) + 1)
            }
        }
    }
}

impl Attention {
    /// Most blocks one request of the greatest length takes.
    ///
    /// upstream: vllm `v1/kv_cache_interface.py::KVCacheSpec.max_memory_usage_bytes`
    pub fn blocks_per_request(self, block_size: u32, max_in_flight_tokens: u32, max_model_len: u32) -> u32 {
        match self {
            Self::Full => blocks_for(max_model_len, block_size),
            Self::SlidingWindow { .. } | Self::Chunked { .. } => {
                match self.admission_cap(block_size, max_in_flight_tokens, max_model_len) {
                    Some(cap) => cap,
                    None => blocks_for(max_model_len, block_size),
                }
            }
            Self::Mamba(MambaMode::None) => 1,
            Self::Mamba(MambaMode::Align { checkpoints }) => 2 + u32::from(checkpoints),
        }
    }
}

/// A group as it is sized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupConfig {
    /// How its layers look back.
    pub attention: Attention,
    /// Tokens of one block.
    pub block_size: u32,
}

/// Which full blocks of a sliding-window group are worth finding again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// All of them.
    Dense,
    /// Only those that a repeat of the prompt, or a request sharing a proven prefix, can resume from.
    Replay,
    /// Those of [`Self::Replay`] and the ends of segments of so many tokens.
    Interval(u32),
}

/// A group's block tables.
#[derive(Debug)]
pub struct Group {
    /// How its layers look back.
    pub attention: Attention,
    block_size: u32,
    admission_cap: Option<u32>,
    /// The last block of a hit is left to be computed again, since drafting reads beyond it.
    drops: bool,
    /// Last known tokens that are not cached yet, since drafting may write them again.
    lag: u32,
    /// The blocks of each request slot, in token order.
    tables: Vec<Vec<BlockId>>,
    /// Leading blocks of each table whose contents have been considered for the cache.
    considered: Vec<u32>,
    /// Contents that became findable in this step.
    pub(super) cached_now: Vec<NodeId>,
}

impl Group {
    /// A group without requests.
    pub fn new(config: GroupConfig, max_in_flight_tokens: u32, max_model_len: u32) -> Self {
        let GroupConfig { attention, block_size } = config;
        let admission_cap = attention.admission_cap(block_size, max_in_flight_tokens, max_model_len);
        Self {
            attention,
            block_size,
            admission_cap,
            drops: false,
            lag: 0,
            tables: Vec::new(),
            considered: Vec::new(),
            cached_now: Vec::new(),
        }
    }

    /// Makes room for a drafter.
    pub fn set_drafting(&mut self, drops: bool, lag: u32) {
        self.drops = drops;
        self.lag = lag;
    }

    /// Whether the last block of a hit is left to be computed again.
    pub const fn drops(&self) -> bool {
        self.drops
    }

    /// Makes room for a request slot.
    pub fn reserve(&mut self, slot: Slot) {
        if slot.index() >= self.tables.len() {
            self.tables.resize_with(slot.index() + 1, Vec::new);
            self.considered.resize(slot.index() + 1, 0);
        }
    }

    /// A request's blocks, in token order.
    #[inline]
    pub fn table(&self, slot: Slot) -> &[BlockId] {
        &self.tables[slot.index()]
    }

    /// Every block every request holds.
    pub fn held_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.tables.iter().flatten().copied()
    }

    /// Tokens of one block.
    pub const fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Tokens the table has slots for.
    #[inline]
    pub fn capacity(&self, slot: Slot) -> u32 {
        self.table_length(slot) * self.block_size
    }

    /// The token count at which the next full block can be considered for the cache.
    #[inline]
    pub fn next_cache_at(&self, slot: Slot) -> u32 {
        (self.considered[slot.index()] + 1) * self.block_size + self.lag
    }

    /// The number of processed tokens at which the next block falls out of sight, given that `processed` have been accounted for.
    #[inline]
    pub const fn next_skip_at(&self, processed: u32) -> u32 {
        if let Attention::Chunked { chunk } = self.attention {
            return chunked::next_skip_at(processed, chunk, self.block_size);
        }
        match self.attention.reach() {
            None => u32::MAX,
            Some(reach) => {
                let skipped_blocks = self.attention.skipped_tokens(processed) / self.block_size;
                (skipped_blocks + 1) * self.block_size + reach - 1
            }
        }
    }

    /// Blocks that a request without any needs from the pool for a span whose computed tokens are cached in `hits`.
    pub fn blocks_to_admit(&self, pool: &BlockPool, span: Span, hits: &[BlockId], capped: bool) -> u32 {
        if self.waits_for_next_step(pool, hits) {
            return pool.usable_blocks() + 2;
        }
        if let Attention::Mamba(MambaMode::Align { checkpoints }) = self.attention {
            return self.aligned_to_admit(pool, span, hits, checkpoints);
        }
        let Span { tokens, computed, .. } = span;
        let mut required = blocks_for(tokens, self.block_size);
        if capped && let Some(cap) = self.admission_cap {
            required = required.min(cap);
        }
        let skipped = self.attention.skipped_tokens(computed) / self.block_size;
        let new = required.saturating_sub(skipped.max(count(hits)));
        let seen = hits.get(skipped as usize..).unwrap_or_default();
        let revived = seen.iter().filter(|block| !block.is_null() && pool.is_idle(**block)).count();
        new + count_of(revived)
    }

    /// Blocks that a request with a table needs for a span.
    pub fn blocks_to_grow(&self, slot: Slot, span: Span) -> u32 {
        let missing = blocks_for(span.tokens, self.block_size).saturating_sub(self.table_length(slot));
        match self.attention {
            Attention::Mamba(MambaMode::Align { checkpoints }) => {
                missing.min(1 + u32::from(checkpoints && span.has_checkpoint(self.block_size)))
            }
            Attention::Full | Attention::SlidingWindow { .. } | Attention::Chunked { .. } | Attention::Mamba(MambaMode::None) => missing,
        }
    }

    /// Starts a table with the cached blocks of a prefix of `computed` tokens.
    pub fn adopt(&mut self, pool: &mut BlockPool, slot: Slot, hits: &[BlockId], computed: u32) {
        let table = &mut self.tables[slot.index()];
        debug_assert!(table.is_empty(), "only a request without blocks adopts cached ones");
        let skipped = (self.attention.skipped_tokens(computed) / self.block_size) as usize;
        table.resize(skipped, BlockId::NULL);
        for block in hits.get(skipped..).unwrap_or_default() {
            pool.touch(*block);
            table.push(*block);
        }
        self.considered[slot.index()] = count(table);
    }

    /// Extends a table for a span. The caller has checked that the pool has the blocks.
    pub fn extend(&mut self, pool: &mut BlockPool, slot: Slot, span: Span) {
        let taken = self.blocks_to_grow(slot, span) as usize;
        let table = &mut self.tables[slot.index()];
        let kept = (blocks_for(span.tokens, self.block_size) as usize).saturating_sub(taken);
        if kept > table.len() {
            // Only states leave a gap: block ends inside a step whose state nobody keeps.
            table.resize(kept, BlockId::NULL);
        }
        for _ in 0..taken {
            table.push(pool.take());
        }
    }

    /// Gives back the blocks that no token after `processed` sees, last first.
    pub fn remove_skipped(&mut self, pool: &mut BlockPool, slot: Slot, processed: u32) {
        let table = &mut self.tables[slot.index()];
        let skipped = ((self.attention.skipped_tokens(processed) / self.block_size) as usize).min(table.len());
        let first = match self.attention {
            // States lie between gaps.
            Attention::Mamba(_) => table[..skipped].iter().position(|block| !block.is_null()).unwrap_or(skipped),
            Attention::Full | Attention::SlidingWindow { .. } | Attention::Chunked { .. } => {
                table[..skipped].iter().rposition(|block| block.is_null()).map_or(0, |last_null| last_null + 1)
            }
        };
        if first == skipped {
            return;
        }
        pool.release(table[first..skipped].iter().rev().copied());
        table[first..skipped].fill(BlockId::NULL);
    }

    /// Gives back everything, last block first.
    pub fn free(&mut self, pool: &mut BlockPool, slot: Slot) {
        let table = &mut self.tables[slot.index()];
        pool.release(table.iter().rev().copied());
        table.clear();
        self.considered[slot.index()] = 0;
    }

    /// Makes the full blocks among the first `tokens` findable, where the retention wants them. `contents` has one node per full block.
    pub fn cache(&mut self, pool: &mut BlockPool, index: usize, slot: Slot, tokens: u32, policy: &CachePolicy<'_>) {
        // Where blocks differ in length, only what ends at a common end is looked at.
        let full = tokens.saturating_sub(self.lag) / policy.alignment * (policy.alignment / self.block_size);
        let considered = self.considered[slot.index()];
        // Stays empty, and so takes no memory, where nobody listens.
        let mut kept = Vec::new();
        let listened = pool.journal().is_some();
        for block_index in considered..full {
            let block = self.tables[slot.index()][block_index as usize];
            if !block.is_null() && self.retains(block_index, policy) {
                pool.cache(block, self.content(block_index, policy), index);
                if matches!(self.attention, Attention::Mamba(_)) {
                    self.cached_now.push(self.content(block_index, policy));
                }
                if listened {
                    kept.push(block_index);
                }
            }
        }
        if listened && considered < full {
            pool.note_stored(index, considered, &kept, self.content(full - 1, policy));
        }
        self.considered[slot.index()] = considered.max(full);
        self.note_prompt_end(slot, full, policy);
    }

    /// What a full block of a request holds.
    fn content(&self, block: u32, policy: &CachePolicy<'_>) -> NodeId {
        policy.contents[((block + 1) * (self.block_size / policy.hash_block_size) - 1) as usize]
    }

    /// Contiguous cached blocks that a hit needs at its end.
    pub(crate) const fn blocks_for_hit(window: u32, block_size: u32) -> u32 {
        blocks_for(window - 1, block_size)
    }

    fn retains(&self, block: u32, policy: &CachePolicy<'_>) -> bool {
        let Some(reach) = self.attention.reach() else { return true };
        // What is dropped lies behind the boundary.
        let beyond = u32::from(self.drops);
        let need = Self::blocks_for_hit(reach, self.block_size) + beyond;
        let ends_a_segment = |tokens: u32| {
            let per_segment = tokens / self.block_size;
            need >= per_segment || (block >= beyond && (block - beyond) % per_segment >= per_segment - need)
        };
        let ends_at = |boundary: u32| {
            let end = boundary / policy.alignment * (policy.alignment / self.block_size) + beyond;
            (end.saturating_sub(need)..end).contains(&block)
        };
        let replayed = || policy.boundaries.iter().flatten().any(|boundary| ends_at(*boundary));
        match policy.retention {
            Retention::Dense => ends_a_segment(policy.alignment),
            Retention::Replay => replayed(),
            Retention::Interval(tokens) => ends_a_segment(tokens) || replayed(),
        }
    }

    fn table_length(&self, slot: Slot) -> u32 {
        count(self.table(slot))
    }
}

/// The tokens a request needs slots for, and where its prompt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Tokens computed before.
    pub computed: u32,
    /// Tokens to have slots for, those included.
    pub tokens: u32,
    /// The token count from which a chunk is worth a checkpoint: the end of the prompt where only such states are retained, else 0.
    pub prefill_end: u32,
}

/// What decides whether a full block becomes findable.
#[derive(Debug, Clone, Copy)]
pub struct CachePolicy<'a> {
    /// The content of each full stretch of the request.
    pub contents: &'a [NodeId],
    /// Tokens of such a stretch.
    pub hash_block_size: u32,
    /// Tokens at whose multiples hits end.
    pub alignment: u32,
    /// The retention of sliding-window groups.
    pub retention: Retention,
    /// Token counts from which a later request can resume: those of a repeat of the prompt, and the end of a proven shared prefix.
    pub boundaries: [Option<u32>; 3],
}

fn count(blocks: &[BlockId]) -> u32 {
    count_of(blocks.len())
}

fn count_of(blocks: usize) -> u32 {
    u32::try_from(blocks).expect("a table has fewer blocks than the pool")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(window: u32) -> Group {
        let mut group = Group::new(Attention::SlidingWindow { window }.in_blocks(16), 64, 4096);
        group.reserve(Slot(0));
        group
    }

    #[test]
    fn a_window_skips_what_the_next_token_cannot_see() {
        let attention = Attention::SlidingWindow { window: 4 };
        assert_eq!([3, 4, 7].map(|computed| attention.skipped_tokens(computed)), [0, 1, 4]);
        assert_eq!(Attention::Full.skipped_tokens(1_000), 0);
    }

    #[test]
    fn the_admission_cap_is_window_and_tokens_in_flight_and_one_block() {
        let attention = Attention::SlidingWindow { window: 128 };
        assert_eq!(attention.admission_cap(16, 64, 4096), Some(13));
        assert_eq!(attention.admission_cap(16, 8192, 4096), Some(257));
        let one_wider = Attention::SlidingWindow { window: 129 };
        assert_eq!(one_wider.admission_cap(16, 64, 4096), Some(13), "the window holds the token itself, which needs no slot yet");
    }

    #[test]
    fn blocks_out_of_sight_return_last_first_and_only_once() {
        let mut pool = BlockPool::new(8, 1, true);
        let mut group = group(16);
        group.extend(&mut pool, Slot(0), Span { computed: 0, tokens: 64, prefill_end: 0 });
        group.remove_skipped(&mut pool, Slot(0), 47);
        assert_eq!(group.table(Slot(0)), [0, 0, 3, 4].map(BlockId));
        let order: Vec<_> = pool.free_order().map(|block| block.0).collect();
        assert_eq!(order, [2, 1, 5, 6, 7]);
        group.remove_skipped(&mut pool, Slot(0), 63);
        assert_eq!(group.table(Slot(0)), [0, 0, 0, 4].map(BlockId));
    }

    #[test]
    fn the_next_skip_is_the_first_count_at_which_one_more_block_goes() {
        let group = group(33);
        for processed in 0..300 {
            let skipped = |tokens: u32| group.attention.skipped_tokens(tokens) / 16;
            let next = group.next_skip_at(processed);
            assert_eq!(skipped(next), skipped(processed) + 1);
            assert_eq!(skipped(next - 1), skipped(processed));
        }
    }

    #[test]
    fn replay_retention_keeps_the_window_before_the_prompt_end_and_the_junction() {
        let mut group = group(33);
        let kept = |group: &Group, retention, replay, junction| -> Vec<u32> {
            let policy =
                CachePolicy { contents: &[], hash_block_size: 16, alignment: 16, retention, boundaries: [Some(replay), None, junction] };
            (0..12).filter(|block| group.retains(*block, &policy)).collect()
        };
        assert_eq!(kept(&group, Retention::Replay, 99, None), [4, 5]);
        assert_eq!(kept(&group, Retention::Replay, 99, Some(48)), [1, 2, 4, 5]);
        assert_eq!(kept(&group, Retention::Dense, 99, None).len(), 12);
        assert_eq!(kept(&group, Retention::Interval(64), 40, None), [0, 1, 2, 3, 6, 7, 10, 11]);
        group.set_drafting(true, 0);
        assert_eq!(kept(&group, Retention::Replay, 80, None), [3, 4, 5], "the block behind the boundary is looked at and dropped");
        assert_eq!(kept(&group, Retention::Replay, 0, None), [0]);
        assert_eq!(kept(&group, Retention::Interval(64), 0, None), [0, 2, 3, 4, 6, 7, 8, 10, 11]);
    }
}
