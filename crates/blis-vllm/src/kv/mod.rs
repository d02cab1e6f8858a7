//! KV blocks: the pool, the identity of their contents, the block tables of each group, the prefix-cache look-up, and allocation.
//!
//! Reading order: [`chain`] (what a block holds), [`pool`] (which blocks are free, cached or in use), [`group`] (one group's block
//! tables; [`mamba`]: of states, [`chunked`]: of chunks), [`lookup`] (how much of a prompt is cached), [`manager`] (may this request have the slots it needs).
//!
//! Left out: pools shared with other tiers, partial blocks, copies on write, cross attention: the types cannot express them.

pub mod chain;
pub mod chunked;
pub mod events;
pub mod free_list;
pub mod group;
pub mod hash;
pub mod lookup;
pub mod mamba;
pub mod manager;
pub mod pool;

/// A physical KV block of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

impl BlockId {
    /// The placeholder for tokens that no longer need a block; never free, never cached.
    pub const NULL: Self = Self(0);

    /// The block's position in per-block arrays.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether it is the placeholder.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.0 == Self::NULL.0
    }
}

/// Blocks that `tokens` tokens fill or begin, `block_size` tokens to a block.
#[inline]
pub(crate) const fn blocks_for(tokens: u32, block_size: u32) -> u32 {
    tokens.div_ceil(block_size)
}
