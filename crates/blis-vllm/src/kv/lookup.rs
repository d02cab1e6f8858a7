//! How much of a prompt is cached: the longest prefix that every group can resume from.
//!
//! upstream: vllm `v1/core/kv_cache_coordinator.py::UnitaryKVCacheCoordinator`, `HybridKVCacheCoordinator.find_longest_cache_hit`
//!
//! Where groups have blocks of several lengths, a hit ends at a multiple of the length that all of them divide.

use super::BlockId;
use super::chain::NodeId;
use super::group::{Attention, Group};
use super::pool::BlockPool;

/// The result of a look-up; the buffers are reused.
#[derive(Debug, Default)]
pub struct Hit {
    /// The cached blocks of each group, in token order; the placeholder where a group no longer needs the tokens.
    pub blocks: Vec<Vec<BlockId>>,
    /// Tokens of the common prefix.
    pub tokens: u32,
    /// The longest prefix a single group had, where it was longer than the common one; else 0.
    pub junction: u32,
}

impl Hit {
    /// Nothing is cached.
    pub fn clear(&mut self, groups: usize) {
        self.blocks.resize_with(groups, Vec::new);
        self.blocks.iter_mut().for_each(Vec::clear);
        self.tokens = 0;
        self.junction = 0;
    }
}

/// Groups that look back the same way are looked up together: a block counts only where all of them have it.
#[derive(Debug)]
pub struct Lookup {
    classes: Vec<Class>,
    /// Tokens at whose multiples hits end.
    alignment: u32,
    /// Tokens of the stretches that contents are named by.
    hash_block_size: u32,
    /// There is one group, whose hit needs no agreement.
    alone: bool,
}

#[derive(Debug)]
pub(super) struct Class {
    attention: Attention,
    pub(super) groups: Vec<usize>,
    pub(super) block_size: u32,
    /// Stretches of a block.
    scale: usize,
    /// The last block of a hit is left to be computed again.
    drops: bool,
}

impl Lookup {
    /// Sorts groups into classes, full attention first: its scan bounds the others.
    pub fn new(groups: &[Group], alignment: u32, hash_block_size: u32) -> Self {
        let mut classes: Vec<Class> = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            match classes.iter_mut().find(|class| class.attention == group.attention && class.block_size == group.block_size()) {
                Some(class) => {
                    class.groups.push(index);
                    class.drops |= group.drops();
                }
                None => classes.push(Class {
                    attention: group.attention,
                    groups: vec![index],
                    block_size: group.block_size(),
                    scale: (group.block_size() / hash_block_size) as usize,
                    drops: group.drops(),
                }),
            }
        }
        classes.sort_by_key(|class| !class.attention.has_every_prefix());
        Self { classes, alignment, hash_block_size, alone: groups.len() == 1 }
    }

    /// Fills `hit` with the longest cached prefix of at most `limit` tokens.
    pub fn find(&self, pool: &BlockPool, contents: &[NodeId], limit: u32, hit: &mut Hit) {
        let sought = Sought { pool, contents };
        if self.alone {
            let class = &self.classes[0];
            hit.tokens = self.find_in(class, sought, limit, class.drops, hit);
            return;
        }
        let mut tokens = limit;
        let mut longest = 0;
        let mut full_tokens = None;
        // Every class accepts the candidate or shortens it; a shortened candidate is tried again on the classes before. With full
        // attention and one window, the window's answer is final, since full attention has every shorter prefix too.
        let one_pass = self.classes.len() == 2 && self.classes[0].attention.has_every_prefix();
        // Classes that have left out their last block for the present candidate: they do so once, having looked one block further.
        let mut left_out = vec![false; if self.classes.iter().any(|class| class.drops) { self.classes.len() } else { 0 }];
        loop {
            let mut candidate = tokens;
            for (index, class) in self.classes.iter().enumerate() {
                if let (true, Some(found)) = (class.attention.has_every_prefix(), full_tokens) {
                    candidate = candidate.min(found);
                    continue;
                }
                let drops = class.drops && !left_out[index];
                let known = u32::try_from(contents.len()).expect("a prompt has fewer blocks than tokens") * self.hash_block_size;
                let within = if drops { known.min(candidate + class.block_size) } else { candidate };
                let found = self.find_in(class, sought, within, drops, hit);
                if drops {
                    left_out[index] = true;
                } else if found < candidate {
                    left_out.fill(false);
                }
                if class.attention.has_every_prefix() {
                    full_tokens = Some(found);
                }
                candidate = found;
                longest = longest.max(candidate);
            }
            let settled = candidate >= tokens;
            tokens = candidate;
            if settled || one_pass {
                break;
            }
        }
        for class in self.classes.iter().filter(|class| class.attention.has_every_prefix()) {
            let kept = tokens.div_ceil(class.block_size) as usize;
            class.groups.iter().for_each(|group| hit.blocks[*group].truncate(kept));
        }
        hit.tokens = tokens;
        hit.junction = if longest > tokens { longest } else { 0 };
    }

    /// The longest prefix of at most `limit` tokens that the groups of a class have, less its last block where that is dropped.
    fn find_in(&self, class: &Class, sought: Sought<'_>, limit: u32, drops: bool, hit: &mut Hit) -> u32 {
        let found = match (class.attention, class.attention.reach()) {
            (Attention::Chunked { chunk }, _) => class.find_chunk(chunk, sought, limit, hit),
            (Attention::Full | Attention::SlidingWindow { .. } | Attention::Mamba(_), None) => self.find_full(class, sought, limit, hit),
            (Attention::Full | Attention::SlidingWindow { .. } | Attention::Mamba(_), Some(reach)) => {
                let need = Group::blocks_for_hit(reach, class.block_size) + u32::from(drops);
                self.find_window(class, need as usize, sought, limit, hit)
            }
        };
        if !drops || found == 0 {
            return found;
        }
        let kept = found - class.block_size;
        class.groups.iter().for_each(|group| hit.blocks[*group].truncate((kept / class.block_size) as usize));
        kept
    }

    /// The run of cached blocks from the start.
    fn find_full(&self, class: &Class, sought: Sought<'_>, limit: u32, hit: &mut Hit) -> u32 {
        let Sought { pool, contents } = sought;
        let mut tokens = 0;
        for content in class.blocks(contents).take((limit / class.block_size) as usize) {
            if !class.all_have(pool, content) {
                break;
            }
            class.groups.iter().for_each(|group| hit.blocks[*group].extend(pool.find(content, *group)));
            tokens += class.block_size;
        }
        tokens -= tokens % self.alignment;
        class.groups.iter().for_each(|group| hit.blocks[*group].truncate((tokens / class.block_size) as usize));
        tokens
    }

    /// The last run of cached blocks that fills the window, or else the run from the start.
    fn find_window(&self, class: &Class, need: usize, sought: Sought<'_>, limit: u32, hit: &mut Hit) -> u32 {
        let Sought { pool, contents } = sought;
        let blocks = (limit / class.block_size) as usize;
        let aligned = |blocks: usize| (blocks as u64 * u64::from(class.block_size)).is_multiple_of(self.alignment.into());
        class.groups.iter().for_each(|group| {
            hit.blocks[*group].clear();
            hit.blocks[*group].resize(blocks, BlockId::NULL);
        });
        let mut run = 0;
        let mut end = None;
        for index in (0..blocks).rev() {
            let content = class.block(contents, index);
            if !class.all_have(pool, content) {
                run = 0;
                continue;
            }
            if run == 0 && !aligned(index + 1) {
                continue;
            }
            for group in &class.groups {
                hit.blocks[*group][index] = pool.find(content, *group).unwrap_or(BlockId::NULL);
            }
            run += 1;
            if run >= need {
                end = Some(index + run);
                break;
            }
        }
        let kept = end.unwrap_or_else(|| (0..=run).rev().find(|blocks| aligned(*blocks)).unwrap_or(0));
        class.groups.iter().for_each(|group| hit.blocks[*group].truncate(kept));
        u32::try_from(kept).expect("a prompt has fewer blocks than tokens") * class.block_size
    }
}

/// What is looked for, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sought<'a> {
    pub(super) pool: &'a BlockPool,
    pub(super) contents: &'a [NodeId],
}

impl Class {
    /// What a prompt's block holds.
    fn block(&self, contents: &[NodeId], index: usize) -> NodeId {
        contents[(index + 1) * self.scale - 1]
    }

    /// What a prompt's full blocks hold.
    pub(super) fn blocks(&self, contents: &[NodeId]) -> impl Iterator<Item = NodeId> {
        contents.chunks_exact(self.scale).filter_map(|stretches| stretches.last().copied())
    }

    pub(super) fn all_have(&self, pool: &BlockPool, content: NodeId) -> bool {
        self.groups.iter().all(|group| pool.find(content, *group).is_some())
    }
}
