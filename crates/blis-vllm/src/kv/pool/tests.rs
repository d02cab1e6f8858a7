//! The pool against a list-and-search model of upstream's rules.

use blis_contracts::request::TokenSource;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::super::chain::Slice;
use super::*;

fn content(pool: &mut BlockPool, source: u64) -> NodeId {
    pool.chain.extend(NodeId::ROOT, Slice { source: TokenSource::Unique(source), offset: 0, length: 16 })
}

fn order(pool: &BlockPool) -> Vec<u32> {
    pool.free_order().map(|block| block.0).collect()
}

#[test]
fn a_block_without_content_is_reused_first_and_a_cached_one_last() {
    let mut pool = BlockPool::new(6, 1, true);
    let taken: Vec<_> = (0..3).map(|_| pool.take()).collect();
    let node = content(&mut pool, 1);
    pool.cache(taken[0], node, 0);
    pool.chain.release(node);
    pool.release(taken.iter().rev().copied());
    assert_eq!((order(&pool), pool.handed_out()), (vec![3, 2, 4, 5, 1], 3));
    pool.check_invariants(std::iter::empty(), 0);
}

#[test]
fn the_block_cached_first_is_found_until_it_is_handed_out_again() {
    let mut pool = BlockPool::new(4, 1, true);
    let (first, second) = (pool.take(), pool.take());
    let node = content(&mut pool, 1);
    pool.cache(first, node, 0);
    pool.cache(second, node, 0);
    assert_eq!(pool.find(node, 0), Some(first));
    pool.release([first, second].into_iter());
    assert_eq!(pool.take(), BlockId(3));
    assert_eq!(pool.take(), first);
    assert_eq!(pool.find(node, 0), Some(second));
    assert_eq!(pool.take(), second);
    assert_eq!(pool.find(node, 0), None);
}

#[test]
fn a_content_is_found_only_in_the_group_that_cached_it() {
    let mut pool = BlockPool::new(4, 2, true);
    let block = pool.take();
    let node = content(&mut pool, 1);
    pool.cache(block, node, 1);
    assert_eq!((pool.find(node, 0), pool.find(node, 1)), (None, Some(block)));
}

/// Upstream's rules over plain lists.
struct Naive {
    free: Vec<u32>,
    references: Vec<u32>,
    content: Vec<Option<u64>>,
    by_content: Vec<(u64, Vec<u32>)>,
}

impl Naive {
    fn new(blocks: u32) -> Self {
        let count = blocks as usize;
        Self { free: (1..blocks).collect(), references: vec![0; count], content: vec![None; count], by_content: Vec::new() }
    }

    fn take(&mut self) -> u32 {
        let block = self.free.remove(0);
        if let Some(content) = self.content[block as usize].take() {
            for (known, blocks) in &mut self.by_content {
                if *known == content {
                    blocks.retain(|cached| *cached != block);
                }
            }
        }
        self.references[block as usize] = 1;
        block
    }

    fn find(&self, content: u64) -> Option<u32> {
        self.by_content.iter().find(|(known, _)| *known == content).and_then(|(_, blocks)| blocks.first().copied())
    }

    fn touch(&mut self, block: u32) {
        self.free.retain(|free| *free != block);
        self.references[block as usize] += 1;
    }

    fn cache(&mut self, block: u32, content: u64) {
        self.content[block as usize] = Some(content);
        match self.by_content.iter_mut().find(|(known, _)| *known == content) {
            Some((_, blocks)) => blocks.push(block),
            None => self.by_content.push((content, vec![block])),
        }
    }

    fn release(&mut self, blocks: &[u32]) {
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for block in blocks {
            self.references[*block as usize] -= 1;
            if self.references[*block as usize] == 0 {
                if self.content[*block as usize].is_some() { &mut last } else { &mut first }.push(*block);
            }
        }
        first.append(&mut self.free);
        first.append(&mut last);
        self.free = first;
    }
}

#[derive(Debug, Clone)]
enum Action {
    Take(u32),
    Cache(usize, u64),
    Touch(u64),
    Release(usize, usize),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (1_u32..4).prop_map(Action::Take),
        (any::<usize>(), 0_u64..6).prop_map(|(held, content)| Action::Cache(held, content)),
        (0_u64..6).prop_map(Action::Touch),
        (any::<usize>(), 1_usize..5).prop_map(|(start, count)| Action::Release(start, count)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_pool_agrees_with_plain_lists(actions in prop::collection::vec(action(), 1..200)) {
        let mut pool = BlockPool::new(10, 1, true);
        let mut naive = Naive::new(10);
        let nodes: Vec<_> = (0..6).map(|source| content(&mut pool, source)).collect();
        let mut held: Vec<u32> = Vec::new();
        for action in actions {
            match action {
                Action::Take(count) => {
                    for _ in 0..count.min(pool.free_blocks()) {
                        let block = pool.take().0;
                        prop_assert_eq!(block, naive.take());
                        held.push(block);
                    }
                }
                Action::Cache(index, content) => {
                    let Some(&block) = held.get(index % held.len().max(1)) else { continue };
                    if naive.content[block as usize].is_none() {
                        pool.cache(BlockId(block), nodes[usize::try_from(content).unwrap()], 0);
                        naive.cache(block, content);
                    }
                }
                Action::Touch(content) => {
                    let found = pool.find(nodes[usize::try_from(content).unwrap()], 0).map(|block| block.0);
                    prop_assert_eq!(found, naive.find(content));
                    if let Some(block) = found {
                        pool.touch(BlockId(block));
                        naive.touch(block);
                        held.push(block);
                    }
                }
                Action::Release(start, count) => {
                    let start = start % (held.len() + 1);
                    let end = (start + count).min(held.len());
                    let freed: Vec<_> = held.drain(start..end).collect();
                    pool.release(freed.iter().copied().map(BlockId));
                    naive.release(&freed);
                }
            }
            prop_assert_eq!(order(&pool), naive.free.clone());
            pool.check_invariants(held.iter().copied().map(BlockId), nodes.len());
        }
    }
}
