//! Layers whose pages differ in size, packed side by side into one kind of block.
//!
//! upstream: vllm `v1/core/kv_cache_utils.py::_get_packed_kv_cache_groups`, `_approximate_gcd`
//!
//! Layers of one kind and block size form a bucket. A bucket in which every page size occurs equally often repeats a pattern of
//! one layer per size; such buckets are split into groups of about as many repeats as the largest of them that mixes sizes. A block
//! is as large as the widest group.
//!
//! Left out: state buckets of recurrent layers and ring buffers.

use super::LayerKv;
use super::groups::LayerGroup;
use crate::kv::group::GroupConfig;

/// Layers of one kind and block size, by page size in order of first appearance.
struct Bucket {
    group: GroupConfig,
    by_page: Vec<(u64, Vec<usize>)>,
}

impl Bucket {
    /// The layers with the most common page size: repeats of the pattern, where it is balanced.
    fn repeats(&self) -> usize {
        self.by_page.iter().map(|(_, members)| members.len()).max().unwrap_or(0)
    }

    fn balanced(&self) -> bool {
        self.by_page.iter().all(|(_, members)| members.len() == self.by_page[0].1.len())
    }

    /// The layers in the order of the model.
    fn members(&self) -> Vec<usize> {
        let mut members: Vec<usize> = self.by_page.iter().flat_map(|(_, members)| members.iter().copied()).collect();
        members.sort_unstable();
        members
    }
}

/// The groups of layers whose pages are packed.
pub(super) fn groups(layers: &[LayerKv]) -> Vec<LayerGroup> {
    let buckets = buckets(layers);
    let balanced = || buckets.iter().filter(|bucket| bucket.balanced());
    let mixing = balanced().filter(|bucket| bucket.by_page.len() > 1).map(Bucket::repeats).max();
    let per_group = mixing.map(|least| approximate_divisor(&balanced().map(Bucket::repeats).collect::<Vec<_>>(), least));
    let mut groups = Vec::new();
    for bucket in &buckets {
        let count = per_group.filter(|_| bucket.balanced()).map_or(1, |size| bucket.repeats().div_ceil(size));
        if count == 1 {
            groups.push(LayerGroup::new(layers, bucket.members(), bucket.group));
            continue;
        }
        for offset in 0..count {
            let repeats = (offset..bucket.repeats()).step_by(count);
            let members = repeats.flat_map(|repeat| bucket.by_page.iter().map(move |(_, members)| members[repeat])).collect();
            groups.push(LayerGroup::new(layers, members, bucket.group));
        }
    }
    groups
}

fn buckets(layers: &[LayerKv]) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = Vec::new();
    for (index, layer) in layers.iter().enumerate() {
        let group = layer.attention.in_blocks(layer.block_size);
        let at = buckets.iter().position(|bucket| bucket.group == group).unwrap_or_else(|| {
            buckets.push(Bucket { group, by_page: Vec::new() });
            buckets.len() - 1
        });
        let by_page = &mut buckets[at].by_page;
        match by_page.iter_mut().find(|(bytes, _)| *bytes == layer.page_bytes) {
            Some((_, members)) => members.push(index),
            None => by_page.push((layer.page_bytes, vec![index])),
        }
    }
    buckets
}

/// The size from `least` on whose multiples cover the values with the least excess; the largest among equals.
fn approximate_divisor(values: &[usize], least: usize) -> usize {
    let most = values.iter().copied().max().unwrap_or(least);
    let excess = |size: usize| values.iter().map(|value| value.next_multiple_of(size) - value).sum::<usize>();
    (least.max(1)..=most).rev().min_by_key(|size| excess(*size)).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_group_wastes_the_fewest_layers_and_is_the_largest_among_equals() {
        assert_eq!(approximate_divisor(&[61, 31, 30], 30), 31);
        assert_eq!(approximate_divisor(&[43, 21, 20], 20), 22);
        assert_eq!(approximate_divisor(&[12, 6], 2), 6);
        assert_eq!(approximate_divisor(&[4], 9), 9);
    }
}
