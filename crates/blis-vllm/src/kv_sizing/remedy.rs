//! What keeps a pool too small, and so what would make it large enough.
//!
//! Upstream always advises more of the device's memory, which changes nothing where the line states the pool itself, and is not the cause
//! where blocks are so long that a request takes many more tokens than it has. Whether they are, start-up finds out: which others the
//! attention reads is not known here.

use std::fmt;

use super::KvSizingError;

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
        /// Tokens of a block that the statement leads to.
        stated: u32,
        /// Tokens of a block with which the pool is large enough.
        enough: u32,
        /// Whether it is without the statement too.
        default_fits: bool,
    },
}

/// What the line states of the pool itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StatedPool {
    /// Its blocks, which count whatever the bytes.
    pub(crate) blocks: Option<u64>,
    /// Its bytes.
    pub(crate) bytes: Option<u64>,
}

impl StatedPool {
    /// What to change where a pool of so many blocks would do.
    pub(crate) fn remedy(self, needed_blocks: u64, bytes_per_block: u64) -> Remedy {
        match (self.blocks, self.bytes) {
            (Some(stated), _) => Remedy::Blocks { stated, needed: needed_blocks },
            (None, Some(stated)) => Remedy::Bytes { stated, needed: needed_blocks.saturating_mul(bytes_per_block) },
            (None, None) => Remedy::Memory,
        }
    }
}

impl KvSizingError {
    /// The same with shorter blocks for a remedy where there are such, unless the line states how many blocks there are.
    pub(crate) fn or_shorter_blocks(mut self, shorter: impl FnOnce() -> Option<Remedy>) -> Self {
        let (Self::NoMemory(remedy) | Self::NothingFits(remedy) | Self::RequestDoesNotFit { remedy, .. }) = &mut self else { return self };
        if !matches!(remedy, Remedy::Blocks { .. })
            && let Some(shorter) = shorter()
        {
            *remedy = shorter;
        }
        self
    }
}

impl Remedy {
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
            Self::ShorterBlocks { stated, enough, default_fits } => write!(
                f,
                "A request takes whole blocks of {stated} tokens, and one block is kept free: lower `block_size` to {enough}{}",
                if *default_fits { ", or leave it out" } else { "" }
            ),
        }
    }
}
