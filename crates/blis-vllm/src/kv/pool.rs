//! The pool of KV blocks: who holds them, which contents they keep, and which one is handed out next.
//!
//! upstream: vllm `v1/core/block_pool.py::BlockPool`
//!
//! A block that is freed with a known content stays findable until it is handed out again. Two blocks may hold the same content; the
//! one cached first is found. Differences in form only: a record per block and no objects, and the index from
//! content to blocks is an array look-up, since a content is a dense number (see [`super::chain`]).
//!
//! Left out: partial blocks, reuse watchers, residency metrics.

use super::BlockId;
use super::chain::{ContentChain, NodeId};
use super::events::{Journal, Naming};
use super::free_list::FreeList;

#[derive(Debug, Clone, Copy)]
struct Block {
    /// Requests that hold it.
    references: u32,
    /// The content it is findable by; the empty prefix where it is not.
    content: NodeId,
    /// Neighbours in the ring of blocks with the same content and group, in the order in which they were cached.
    earlier: BlockId,
    later: BlockId,
    /// The group whose layers filled it.
    group: u8,
}

/// A block that nobody holds and that keeps nothing.
const VACANT: Block = Block { references: 0, content: NodeId::ROOT, earlier: BlockId::NULL, later: BlockId::NULL, group: 0 };

/// The pool.
#[derive(Debug)]
pub struct BlockPool {
    /// Contents of live requests and cached blocks.
    pub chain: ContentChain,
    free: FreeList,
    caching: bool,
    groups: usize,
    total: u32,
    /// The placeholder and every block that was ever handed out.
    blocks: Vec<Block>,
    /// The block cached first, at content * groups + group; the placeholder for none.
    first: Vec<BlockId>,
    cached: u32,
    handed_out: u64,
    /// What became findable and what was forgotten, where somebody listens.
    journal: Option<Box<Journal>>,
}

impl BlockPool {
    /// A pool of `blocks` blocks of which the first is the placeholder.
    pub fn new(blocks: u32, groups: usize, caching: bool) -> Self {
        assert!(blocks > 0, "a pool has at least the placeholder block");
        let mut free = FreeList::full(blocks);
        assert_eq!(free.pop_front(), Some(BlockId::NULL), "the placeholder is the first block");
        Self {
            chain: ContentChain::default(),
            free,
            caching,
            groups,
            total: blocks,
            blocks: vec![VACANT],
            first: Vec::new(),
            cached: 0,
            handed_out: 0,
            journal: None,
        }
    }

    /// Blocks that can be handed out.
    #[inline]
    pub const fn free_blocks(&self) -> u32 {
        self.free.len()
    }

    /// Blocks a request can ever hold: all but the placeholder.
    pub const fn usable_blocks(&self) -> u32 {
        self.total - 1
    }

    /// The free blocks in the order in which they will be handed out.
    pub fn free_order(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.free.iter()
    }

    /// Blocks handed out since the start.
    pub const fn handed_out(&self) -> u64 {
        self.handed_out
    }

    /// Begins a journal of events.
    pub fn record_events(&mut self, naming: Naming) {
        self.journal = Some(Box::new(Journal::new(naming)));
    }

    /// The journal of events, where there is one.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_deref()
    }

    /// Notes that a request's blocks from `first` up to the one that ends with `content` were considered, and those at `kept` cached.
    #[cold]
    pub fn note_stored(&mut self, group: usize, first: u32, kept: &[u32], content: NodeId) {
        if let Some(journal) = &mut self.journal {
            journal.stored(&self.chain, group, first, kept, content);
        }
    }

    /// Whether contents are remembered.
    #[inline]
    pub const fn caching(&self) -> bool {
        self.caching
    }

    /// Whether nobody holds the block.
    #[inline]
    pub fn is_idle(&self, block: BlockId) -> bool {
        self.blocks.get(block.index()).is_none_or(|block| block.references == 0)
    }

    /// Hands out the next block; its old content is forgotten. Panics when none is free: callers check first.
    #[inline]
    pub fn take(&mut self) -> BlockId {
        let block = self.free.pop_front().expect("the caller checked that a block is free");
        self.handed_out += 1;
        match self.blocks.get_mut(block.index()) {
            None => self.blocks.push(Block { references: 1, ..VACANT }),
            Some(record) => {
                debug_assert!(record.references == 0, "a free block has no holder");
                record.references = 1;
                if record.content != NodeId::ROOT {
                    self.forget(block);
                }
            }
        }
        block
    }

    /// What a block is findable by; nothing for the placeholder and for blocks that keep nothing.
    pub(super) fn content(&self, block: BlockId) -> Option<NodeId> {
        self.blocks.get(block.index()).map(|block| block.content).filter(|content| *content != NodeId::ROOT)
    }

    /// Adds a holder to a cached block.
    pub fn touch(&mut self, block: BlockId) {
        if block.is_null() {
            return;
        }
        if self.is_idle(block) {
            self.free.remove(block);
        }
        self.blocks[block.index()].references += 1;
    }

    /// Gives up one hold on each block. Those nobody holds any more become free: blocks without a content are handed out first, in
    /// this order; the others last, in this order.
    pub fn release(&mut self, blocks: impl Iterator<Item = BlockId>) {
        let mut front = self.free.front();
        for block in blocks {
            if block.is_null() {
                continue;
            }
            let record = &mut self.blocks[block.index()];
            record.references -= 1;
            if record.references > 0 {
                continue;
            }
            if record.content == NodeId::ROOT {
                self.free.insert(&mut front, block);
            } else {
                self.free.push_back(block);
            }
        }
    }

    /// The block of `group` that was first cached with this content.
    #[inline]
    pub fn find(&self, content: NodeId, group: usize) -> Option<BlockId> {
        self.first.get(content.index() * self.groups + group).copied().filter(|block| !block.is_null())
    }

    /// Makes a full block findable by its content.
    pub fn cache(&mut self, block: BlockId, content: NodeId, group: usize) {
        assert!(self.blocks[block.index()].content == NodeId::ROOT, "block {} is cached twice", block.0);
        self.chain.hold(content);
        self.cached += 1;
        let key = content.index() * self.groups + group;
        if key >= self.first.len() {
            self.first.resize(self.chain.capacity().next_power_of_two() * self.groups, BlockId::NULL);
        }
        let group = u8::try_from(group).expect("a model has far fewer than 256 groups");
        let first = self.first[key];
        let (earlier, later) = if first.is_null() {
            self.first[key] = block;
            (block, block)
        } else {
            let last = std::mem::replace(&mut self.blocks[first.index()].earlier, block);
            self.blocks[last.index()].later = block;
            (last, first)
        };
        let references = self.blocks[block.index()].references;
        self.blocks[block.index()] = Block { references, content, earlier, later, group };
    }

    /// A block that keeps something is handed out again: nobody finds it by that any more.
    fn forget(&mut self, block: BlockId) {
        let Block { content, earlier, later, group, .. } = self.blocks[block.index()];
        let first = &mut self.first[content.index() * self.groups + usize::from(group)];
        if later == block {
            *first = BlockId::NULL;
        } else {
            if *first == block {
                *first = later;
            }
            self.blocks[earlier.index()].later = later;
            self.blocks[later.index()].earlier = earlier;
        }
        if let Some(journal) = &mut self.journal {
            journal.removed(&self.chain, content, group.into());
        }
        self.blocks[block.index()].content = NodeId::ROOT;
        self.cached -= 1;
        self.chain.release(content);
    }

    /// Panics when the parts disagree. `tables` are the blocks that requests hold, one entry per hold; `request_nodes` counts the
    /// contents requests hold.
    pub fn check_invariants(&self, tables: impl Iterator<Item = BlockId>, request_nodes: usize) {
        let mut held = vec![0; self.blocks.len()];
        let never_handed_out = self.total as usize - self.blocks.len();
        for block in tables.filter(|block| !block.is_null()) {
            held[block.index()] += 1;
        }
        assert!(self.blocks.iter().map(|block| block.references).eq(held), "a block's holders are the tables that name it");
        let mut listed = 0;
        for block in self.free.iter() {
            assert!(self.is_idle(block) && !block.is_null(), "free block {} has no holder", block.0);
            listed += 1;
        }
        let idle = never_handed_out + self.blocks.iter().skip(1).filter(|block| block.references == 0).count();
        assert_eq!((listed, listed), (idle, self.free.len() as usize), "every block without a holder is free");
        let cached = self.blocks.iter().filter(|block| block.content != NodeId::ROOT).count();
        assert_eq!(cached, self.cached as usize, "cached blocks are counted");
        assert!(self.caching || cached == 0, "nothing is cached where caching is off");
        self.chain.check_invariants(request_nodes + cached);
    }
}

#[cfg(test)]
mod tests;
