//! What a full block holds, as a small number: equal numbers mean equal prefixes.
//!
//! upstream: vllm `v1/core/kv_cache_utils.py::get_request_block_hasher`
//!
//! Upstream chains a cryptographic hash over the tokens of each full block. Here a token is a (source, offset) pair, so a block is a
//! short list of slices of sources, and its identity is interned: a node stands for (parent node, source, offset, length). No two
//! different prefixes share a node, and two equal prefixes always do. Nodes are counted references: a request holds its last node, a
//! node holds its parent, a cached block holds the node of its content; a node nobody holds is forgotten, so memory follows the pool
//! and the live requests, not the run.
//!
//! Most prefixes have one continuation, so a node keeps its first child itself; only further children, and those of the empty prefix,
//! are found through a hash table.

use blis_contracts::request::TokenSource;
use rustc_hash::FxHashMap;

/// A prefix of tokens, up to and including one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The empty prefix.
    pub const ROOT: Self = Self(u32::MAX);

    /// The node's position in per-node arrays. The root has none.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Consecutive tokens of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slice {
    /// Where the tokens come from.
    pub source: TokenSource,
    /// The first token's offset in the source.
    pub offset: u32,
    /// How many tokens; at least one.
    pub length: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Link {
    parent: NodeId,
    slice: Slice,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    link: Link,
    holders: u32,
    /// The child that is not in the hash table; the root stands for none.
    child: NodeId,
    /// Children that are.
    more_children: u32,
}

/// All prefixes that a live request or a cached block stands on.
#[derive(Debug, Default)]
pub struct ContentChain {
    nodes: Vec<Node>,
    vacant: Vec<NodeId>,
    by_link: FxHashMap<Link, NodeId>,
}

impl ContentChain {
    /// The prefix `parent` + `slice`. The caller's hold on `parent` becomes a hold on the result.
    pub fn extend(&mut self, parent: NodeId, slice: Slice) -> NodeId {
        let link = Link { parent, slice };
        if let Some(known) = self.find(&link) {
            self.hold(known);
            self.release(parent);
            return known;
        }
        let node = Node { link, holders: 1, child: NodeId::ROOT, more_children: 0 };
        let id = if let Some(id) = self.vacant.pop() {
            self.nodes[id.index()] = node;
            id
        } else {
            self.nodes.push(node);
            NodeId(u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 prefixes are alive at once"))
        };
        match self.nodes.get_mut(parent.index()) {
            Some(parent) if parent.child == NodeId::ROOT => parent.child = id,
            Some(parent) => {
                parent.more_children += 1;
                self.by_link.insert(link, id);
            }
            None => {
                self.by_link.insert(link, id);
            }
        }
        id
    }

    fn find(&self, link: &Link) -> Option<NodeId> {
        if let Some(parent) = self.nodes.get(link.parent.index()) {
            if parent.child != NodeId::ROOT && self.nodes[parent.child.index()].link == *link {
                return Some(parent.child);
            }
            if parent.more_children == 0 {
                return None;
            }
        }
        self.by_link.get(link).copied()
    }

    /// Adds a hold on a node.
    #[inline]
    pub fn hold(&mut self, node: NodeId) {
        self.nodes[node.index()].holders += 1;
    }

    /// Gives up a hold on a node, and forgets every prefix nobody holds any more.
    #[inline]
    pub fn release(&mut self, node: NodeId) {
        if node != NodeId::ROOT {
            let entry = &mut self.nodes[node.index()];
            entry.holders -= 1;
            if entry.holders == 0 {
                self.forget(node);
            }
        }
    }

    fn forget(&mut self, mut node: NodeId) {
        loop {
            let link = self.nodes[node.index()].link;
            self.vacant.push(node);
            let Some(parent) = self.nodes.get_mut(link.parent.index()) else {
                self.by_link.remove(&link);
                return;
            };
            if parent.child == node {
                parent.child = NodeId::ROOT;
            } else {
                parent.more_children -= 1;
                self.by_link.remove(&link);
            }
            parent.holders -= 1;
            if parent.holders > 0 {
                return;
            }
            node = link.parent;
        }
    }

    /// The slices of a prefix, in order.
    pub fn slices(&self, node: NodeId) -> Vec<Slice> {
        let mut slices = Vec::new();
        let mut next = node;
        while let Some(node) = self.nodes.get(next.index()) {
            slices.push(node.link.slice);
            next = node.link.parent;
        }
        slices.reverse();
        slices
    }

    /// Positions a per-node array needs.
    pub fn capacity(&self) -> usize {
        self.nodes.len()
    }

    /// Prefixes somebody holds.
    pub fn alive(&self) -> usize {
        self.nodes.len() - self.vacant.len()
    }

    /// Panics when the counts and the index disagree. `held` counts the holds of requests and cached blocks.
    pub fn check_invariants(&self, held: usize) {
        let mut vacant = vec![false; self.nodes.len()];
        for id in &self.vacant {
            assert!(!std::mem::replace(&mut vacant[id.index()], true), "a vacant node is listed once");
        }
        let alive = || self.nodes.iter().zip(&vacant).filter(|(_, vacant)| !**vacant).map(|(node, _)| node);
        let total: usize = alive().map(|node| node.holders as usize).sum();
        let parents = alive().filter(|node| node.link.parent != NodeId::ROOT).count();
        assert_eq!(total, parents + held, "every hold belongs to a child, a request or a cached block");
        let inline = alive().filter(|node| node.child != NodeId::ROOT).count();
        assert_eq!(self.alive(), inline + self.by_link.len(), "a node is its parent's own child or in the table");
        let further: usize = alive().map(|node| node.more_children as usize).sum();
        let first_slices = alive().filter(|node| node.link.parent == NodeId::ROOT).count();
        assert_eq!(further + first_slices, self.by_link.len(), "children in the table are counted");
        for (index, node) in self.nodes.iter().enumerate().filter(|(index, _)| !vacant[*index]) {
            let found = self.find(&node.link).map(NodeId::index);
            assert_eq!(found, Some(index), "every prefix is found by its link");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(source: TokenSource, offset: u32, length: u32) -> Slice {
        Slice { source, offset, length }
    }

    #[test]
    fn equal_prefixes_meet_and_different_ones_never_do() {
        let mut chain = ContentChain::default();
        let shared = slice(TokenSource::Shared(0), 0, 16);
        let one = chain.extend(NodeId::ROOT, shared);
        let same = chain.extend(NodeId::ROOT, shared);
        assert_eq!(one, same);
        let tail = chain.extend(one, slice(TokenSource::Unique(1), 0, 16));
        let other = chain.extend(same, slice(TokenSource::Unique(2), 0, 16));
        assert_ne!(tail, other);
        chain.check_invariants(2);
    }

    #[test]
    fn a_prefix_nobody_holds_is_forgotten_with_its_ancestors() {
        let mut chain = ContentChain::default();
        let mut node = NodeId::ROOT;
        for block in 0..5 {
            node = chain.extend(node, slice(TokenSource::Unique(7), block * 16, 16));
        }
        assert_eq!((chain.alive(), chain.by_link.len()), (5, 1), "a first child needs no place in the table");
        chain.release(node);
        assert_eq!(chain.alive(), 0);
        chain.check_invariants(0);
        let reused = chain.extend(NodeId::ROOT, slice(TokenSource::Shared(3), 0, 16));
        assert!(reused.index() < 5, "vacant nodes are reused");
    }

    #[test]
    fn further_children_are_found_after_the_first_is_gone() {
        let mut chain = ContentChain::default();
        let parent = chain.extend(NodeId::ROOT, slice(TokenSource::Shared(0), 0, 16));
        let children: Vec<_> = (0..4)
            .map(|index| {
                chain.hold(parent);
                chain.extend(parent, slice(TokenSource::Unique(index), 0, 16))
            })
            .collect();
        chain.check_invariants(5);
        chain.release(children[0]);
        chain.release(children[2]);
        chain.check_invariants(3);
        chain.hold(parent);
        assert_eq!(chain.extend(parent, slice(TokenSource::Unique(3), 0, 16)), children[3]);
        chain.hold(parent);
        chain.extend(parent, slice(TokenSource::Unique(9), 0, 16));
        chain.check_invariants(5);
    }

    #[test]
    fn a_child_keeps_its_ancestors_alive() {
        let mut chain = ContentChain::default();
        let first = chain.extend(NodeId::ROOT, slice(TokenSource::Shared(0), 0, 16));
        chain.hold(first);
        let second = chain.extend(first, slice(TokenSource::Shared(0), 16, 16));
        chain.release(first);
        assert_eq!(chain.alive(), 2);
        chain.release(second);
        assert_eq!(chain.alive(), 0);
    }
}
