//! The free blocks in the order in which they will be handed out.
//!
//! upstream: vllm `v1/core/kv_cache_utils.py::FreeKVCacheBlockQueue`
//!
//! A circular doubly linked list over block numbers with one sentinel, so that a cached block can leave the middle in constant time.

use super::BlockId;

/// A block that is not in the list links to itself.
#[derive(Debug, Clone)]
pub struct FreeList {
    links: Vec<Neighbours>,
    length: u32,
}

#[derive(Debug, Clone, Copy)]
struct Neighbours {
    previous: u32,
    next: u32,
}

/// Where the next block freed without a content goes: such blocks come first, in the order in which they are freed together.
#[derive(Debug, Clone, Copy)]
pub struct FrontCursor(u32);

impl FreeList {
    /// All blocks of a pool of `blocks`, ascending.
    pub fn full(blocks: u32) -> Self {
        let count = blocks + 1;
        let links = (0..count).map(|block| Neighbours { previous: (block + blocks) % count, next: (block + 1) % count });
        Self { links: links.collect(), length: blocks }
    }

    /// Free blocks.
    #[inline]
    pub const fn len(&self) -> u32 {
        self.length
    }

    /// Whether none is free.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The block that will be handed out next.
    #[inline]
    pub fn pop_front(&mut self) -> Option<BlockId> {
        let first = self.links[self.sentinel()].next;
        if first as usize == self.sentinel() {
            return None;
        }
        self.remove(BlockId(first));
        Some(BlockId(first))
    }

    /// Takes a block out of the list. Panics when it is not in it.
    #[inline]
    pub fn remove(&mut self, block: BlockId) {
        assert!(self.contains(block), "block {} is not free", block.0);
        let Neighbours { previous, next } = self.links[block.index()];
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
        self.links[block.index()] = Neighbours { previous: block.0, next: block.0 };
        self.length -= 1;
    }

    /// A cursor before the first block.
    #[inline]
    pub fn front(&self) -> FrontCursor {
        FrontCursor(u32::try_from(self.sentinel()).expect("the sentinel is a u32 by construction"))
    }

    /// Inserts a block at the cursor and moves the cursor behind it.
    #[inline]
    pub fn insert(&mut self, cursor: &mut FrontCursor, block: BlockId) {
        let next = self.links[cursor.0 as usize].next;
        self.link(cursor.0, block, next);
        cursor.0 = block.0;
    }

    /// Appends a block at the end.
    #[inline]
    pub fn push_back(&mut self, block: BlockId) {
        let sentinel = self.front().0;
        let last = self.links[sentinel as usize].previous;
        self.link(last, block, sentinel);
    }

    /// Whether a block is free.
    #[inline]
    pub fn contains(&self, block: BlockId) -> bool {
        self.links[block.index()].next != block.0
    }

    /// The free blocks in order.
    pub fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        let sentinel = self.front().0;
        let step = move |block: u32| Some(self.links[block as usize].next).filter(|next| *next != sentinel);
        std::iter::successors(step(sentinel), move |block| step(*block)).map(BlockId)
    }

    #[inline]
    fn link(&mut self, previous: u32, block: BlockId, next: u32) {
        assert!(!self.contains(block), "block {} is freed twice", block.0);
        self.links[block.index()] = Neighbours { previous, next };
        self.links[previous as usize].next = block.0;
        self.links[next as usize].previous = block.0;
        self.length += 1;
    }

    #[inline]
    fn sentinel(&self) -> usize {
        self.links.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_list_hands_out_ascending_blocks() {
        let mut list = FreeList::full(3);
        let popped: Vec<_> = std::iter::from_fn(|| list.pop_front()).collect();
        assert_eq!(popped, [BlockId(0), BlockId(1), BlockId(2)]);
        assert!(list.is_empty());
    }

    #[test]
    fn blocks_enter_at_the_cursor_in_order_and_at_the_end() {
        let mut list = FreeList::full(5);
        for block in [1, 3, 4] {
            list.remove(BlockId(block));
        }
        let mut cursor = list.front();
        list.insert(&mut cursor, BlockId(4));
        list.push_back(BlockId(3));
        list.insert(&mut cursor, BlockId(1));
        assert_eq!(list.iter().collect::<Vec<_>>(), [4, 1, 0, 2, 3].map(BlockId));
        assert_eq!(list.len(), 5);
    }
}
