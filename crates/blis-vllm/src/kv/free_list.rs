//! The free blocks in the order in which they will be handed out.
//!
//! upstream: vllm `v1/core/kv_cache_utils.py::FreeKVCacheBlockQueue`
//!
//! A circular doubly linked list over block numbers with one sentinel, so that a cached block can leave the middle in constant time.
//! Blocks that were never handed out always stand together, ascending, so the first of them stands for all: a large pool costs what
//! a run uses of it.

use super::BlockId;

/// A block that is not in the list links to itself.
#[derive(Debug, Clone)]
pub struct FreeList {
    /// Links of the sentinel, then of each block up to the first that was never handed out.
    links: Vec<Neighbours>,
    blocks: u32,
    length: u32,
}

#[derive(Debug, Clone, Copy)]
struct Neighbours {
    previous: Node,
    next: Node,
}

/// A place in the list: the sentinel, or a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node(u32);

impl Node {
    const SENTINEL: Self = Self(0);

    const fn of(block: BlockId) -> Self {
        Self(block.0 + 1)
    }

    const fn block(self) -> BlockId {
        BlockId(self.0 - 1)
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where the next block freed without a content goes: such blocks come first, in the order in which they are freed together.
#[derive(Debug, Clone, Copy)]
pub struct FrontCursor(Node);

impl FreeList {
    /// All blocks of a pool of `blocks`, ascending.
    pub fn full(blocks: u32) -> Self {
        let mut list = Self { links: vec![Neighbours { previous: Node::SENTINEL, next: Node::SENTINEL }], blocks, length: blocks };
        list.reveal_next(Node::SENTINEL, Node::SENTINEL);
        list
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
        let first = self.links[Node::SENTINEL.index()].next;
        if first == Node::SENTINEL {
            return None;
        }
        let links = &mut self.links[first.index()];
        let next = links.next;
        *links = Neighbours { previous: first, next: first };
        self.links[next.index()].previous = Node::SENTINEL;
        self.links[Node::SENTINEL.index()].next = next;
        self.length -= 1;
        if first.index() + 1 == self.links.len() {
            self.reveal_next(Node::SENTINEL, next);
        }
        Some(first.block())
    }

    /// Takes a block that was handed out before out of the list. Panics when it is not in it.
    #[inline]
    pub fn remove(&mut self, block: BlockId) {
        assert!(self.contains(block), "block {} is not free", block.0);
        let node = Node::of(block);
        let Neighbours { previous, next } = self.links[node.index()];
        self.links[previous.index()].next = next;
        self.links[next.index()].previous = previous;
        self.links[node.index()] = Neighbours { previous: node, next: node };
        self.length -= 1;
    }

    /// A cursor before the first block.
    #[inline]
    pub const fn front(&self) -> FrontCursor {
        FrontCursor(Node::SENTINEL)
    }

    /// Inserts a block at the cursor and moves the cursor behind it.
    #[inline]
    pub fn insert(&mut self, cursor: &mut FrontCursor, block: BlockId) {
        let next = self.links[cursor.0.index()].next;
        self.link(cursor.0, block, next);
        cursor.0 = Node::of(block);
    }

    /// Appends a block at the end.
    #[inline]
    pub fn push_back(&mut self, block: BlockId) {
        let last = self.links[Node::SENTINEL.index()].previous;
        self.link(last, block, Node::SENTINEL);
    }

    /// Whether a block is free.
    #[inline]
    pub fn contains(&self, block: BlockId) -> bool {
        let node = Node::of(block);
        self.links.get(node.index()).is_none_or(|links| links.next != node)
    }

    /// The free blocks in order.
    pub fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        let after = |node: Node| Some(self.links[node.index()].next).filter(|next| *next != Node::SENTINEL);
        std::iter::successors(after(Node::SENTINEL), move |node| after(*node)).flat_map(|node| {
            let stands_for_more = node.index() + 1 == self.links.len();
            let last = if stands_for_more { self.blocks } else { node.0 };
            (node.0..=last).map(|node| Node(node).block())
        })
    }

    /// Puts the next block that was never handed out, if there is one, between two neighbours. It is counted already.
    fn reveal_next(&mut self, previous: Node, next: Node) {
        let node = Node(u32::try_from(self.links.len()).expect("the pool was built from a u32"));
        if node.0 > self.blocks {
            return;
        }
        self.links.push(Neighbours { previous, next });
        self.links[previous.index()].next = node;
        self.links[next.index()].previous = node;
    }

    #[inline]
    fn link(&mut self, previous: Node, block: BlockId, next: Node) {
        let node = Node::of(block);
        let links = &mut self.links[node.index()];
        assert!(links.next == node, "block {} is freed twice", block.0);
        *links = Neighbours { previous, next };
        self.links[previous.index()].next = node;
        self.links[next.index()].previous = node;
        self.length += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_list_hands_out_ascending_blocks() {
        let mut list = FreeList::full(3);
        assert!(!list.is_empty());
        let popped: Vec<_> = std::iter::from_fn(|| list.pop_front()).collect();
        assert_eq!(popped, [BlockId(0), BlockId(1), BlockId(2)]);
        assert!(list.is_empty() && list.iter().next().is_none());
    }

    #[test]
    fn a_large_list_costs_what_is_used_of_it() {
        let mut list = FreeList::full(1_000_000);
        list.pop_front();
        assert_eq!((list.links.len(), list.len()), (3, 999_999));
        assert!(list.contains(BlockId(1)) && list.contains(BlockId(999_999)) && !list.contains(BlockId(0)));
    }

    #[test]
    fn blocks_enter_at_the_cursor_in_order_and_at_the_end() {
        let mut list = FreeList::full(8);
        (0..5).for_each(|block| assert_eq!(list.pop_front(), Some(BlockId(block))));
        let mut cursor = list.front();
        list.insert(&mut cursor, BlockId(4));
        list.push_back(BlockId(3));
        list.push_back(BlockId(0));
        list.insert(&mut cursor, BlockId(1));
        list.remove(BlockId(0));
        assert_eq!(list.iter().collect::<Vec<_>>(), [4, 1, 5, 6, 7, 3].map(BlockId));
        assert_eq!(list.len(), 6);
        let popped: Vec<_> = std::iter::from_fn(|| list.pop_front()).collect();
        assert_eq!(popped, [4, 1, 5, 6, 7, 3].map(BlockId));
    }
}
