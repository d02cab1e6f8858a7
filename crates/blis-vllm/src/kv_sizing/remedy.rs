//! What keeps a pool too small, and so what would make it large enough.
//!
//! Upstream always advises more of the device's memory, which changes nothing where the line states the pool itself, and is not the cause
//! where blocks are so long that a request takes many more tokens than it has.

use std::fmt;

use super::{SizingInput, size};

/// The shortest block that is tried instead of a stated one.
const SHORTEST_BLOCK: u32 = 16;

/// What would make a pool large enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// More of the device's memory, as upstream advises.
    Memory,
    /// More blocks than the line states.
    Blocks {
        /// As stated.
        stated: u64,
        /// At least.
        needed: u64,
    },
    /// More bytes than the line states.
    Bytes {
        /// As stated.
        stated: u64,
        /// At least.
        needed: u64,
    },
    /// Shorter blocks than the line states.
    ShorterBlocks {
        /// Tokens of a block, as stated.
        stated: u32,
        /// Tokens of a block with which the pool is large enough.
        enough: u32,
    },
}

impl Remedy {
    /// Where a pool of so many blocks would do.
    pub(super) fn of(input: &SizingInput, needed_blocks: u64, bytes_per_block: u64) -> Self {
        if let Some(stated) = input.num_gpu_blocks_override {
            return Self::Blocks { stated: stated.into(), needed: needed_blocks };
        }
        if let Some((stated, enough)) = shorter_blocks(input) {
            return Self::ShorterBlocks { stated, enough };
        }
        if input.bytes_stated {
            return Self::Bytes { stated: input.available_bytes, needed: needed_blocks.saturating_mul(bytes_per_block) };
        }
        Self::Memory
    }

    /// The advice; upstream's where that is right.
    pub(crate) fn or(self, upstream: &str) -> String {
        if self == Self::Memory { upstream.to_owned() } else { format!("{self}.") }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => write!(f, "Try increasing `gpu_memory_utilization`"),
            Self::Blocks { stated, needed } => {
                write!(f, "The line states the pool: raise `num_gpu_blocks_override` ({stated}) to at least {needed}, or leave it out")
            }
            Self::Bytes { stated, needed } => {
                write!(f, "The line states the pool: raise `kv_cache_memory_bytes` ({stated}) to at least {needed}, or leave it out")
            }
            Self::ShorterBlocks { stated, enough } => write!(
                f,
                "A request takes whole blocks of {stated} tokens, and one block is kept free: lower `block_size` to {enough} or less, or leave it out"
            ),
        }
    }
}

/// The stated tokens of a block, and the most of its halves with which a request would fit.
fn shorter_blocks(input: &SizingInput) -> Option<(u32, u32)> {
    let stated = input.layers.first().map(|layer| layer.block_size).filter(|_| input.block_size_stated)?;
    let halves = std::iter::successors(Some(stated), |tokens| Some(tokens / 2)).skip(1);
    let enough = halves.take_while(|tokens| *tokens >= SHORTEST_BLOCK && tokens.is_multiple_of(SHORTEST_BLOCK)).find(|tokens| {
        let mut shorter = SizingInput { block_size_stated: false, ..input.clone() };
        for layer in &mut shorter.layers {
            // A state does not shrink with its block, so that nothing is won there.
            if layer.block_size != stated || !layer.page_bytes.is_multiple_of(u64::from(stated / tokens)) {
                return false;
            }
            layer.page_bytes /= u64::from(stated / tokens);
            layer.block_size = *tokens;
        }
        size(&shorter).is_ok()
    })?;
    Some((stated, enough))
}
