//! A row of values of which the least is always known: a tournament tree, so that many engine cores need not be gone through one by one.
//!
//! Of equal values the first in the row is the least. A change of one value and a question about a stretch of the row each take steps in
//! the logarithm of its length; nothing is allocated after the row is made.

use std::ops::Range;

/// The row.
#[derive(Debug, Clone)]
pub(super) struct Tournament<T> {
    values: Vec<T>,
    /// By node, the place of the least value under it: the root is 1, the nodes below `n` are `2 n` and `2 n + 1`, and the last level is
    /// the row, filled up with places beyond it.
    winners: Vec<usize>,
}

/// A node and the stretch under it.
#[derive(Clone, Copy)]
struct Node {
    index: usize,
    first: usize,
    length: usize,
}

impl Node {
    fn halves(self) -> [Self; 2] {
        let length = self.length / 2;
        let left = Self { index: 2 * self.index, first: self.first, length };
        [left, Self { index: left.index + 1, first: self.first + length, length }]
    }
}

impl<T: Copy + PartialOrd> Tournament<T> {
    /// A row of these values, of which there is at least one.
    pub(super) fn new(values: Vec<T>) -> Self {
        let leaves = values.len().next_power_of_two();
        let mut row = Self { values, winners: (0..2 * leaves).map(|node| node.saturating_sub(leaves)).collect() };
        row.play_all();
        row
    }

    /// Replaces the first values by others.
    pub(super) fn replace(&mut self, values: impl Iterator<Item = T>) {
        self.values.iter_mut().zip(values).for_each(|(value, new)| *value = new);
        self.play_all();
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// All of them, in order.
    pub(super) fn values(&self) -> &[T] {
        &self.values
    }

    /// The least of all.
    #[inline]
    pub(super) fn least(&self) -> T {
        self.values[self.winners[1]]
    }

    /// Replaces the value at a place.
    #[inline]
    pub(super) fn set(&mut self, place: usize, value: T) {
        self.values[place] = value;
        let mut node = self.leaves() + place;
        while node > 1 {
            node /= 2;
            self.play(node);
        }
    }

    /// The least of a stretch, after its place.
    pub(super) fn least_of(&self, stretch: &Range<usize>) -> Option<(usize, T)> {
        self.least_under(self.root(), stretch).map(|place| (place, self.values[place]))
    }

    /// The first place from `from` on with a value of at most `bound`.
    #[inline]
    pub(super) fn first_at_most(&self, from: usize, bound: T) -> Option<usize> {
        self.first_under(self.root(), from, bound)
    }

    fn leaves(&self) -> usize {
        self.winners.len() / 2
    }

    fn root(&self) -> Node {
        Node { index: 1, first: 0, length: self.leaves() }
    }

    fn play_all(&mut self) {
        (1..self.leaves()).rev().for_each(|node| self.play(node));
    }

    fn play(&mut self, node: usize) {
        self.winners[node] = self.better(self.winners[2 * node], self.winners[2 * node + 1]);
    }

    /// The place with the lesser value, the left one of equals; one beyond the row has none.
    fn better(&self, left: usize, right: usize) -> usize {
        match (self.values.get(left), self.values.get(right)) {
            (Some(first), Some(second)) if second < first => right,
            (None, Some(_)) => right,
            (_, _) => left,
        }
    }

    fn least_under(&self, node: Node, stretch: &Range<usize>) -> Option<usize> {
        let (first, end) = (node.first, (node.first + node.length).min(self.len()));
        if end <= stretch.start || stretch.end <= first || end <= first {
            return None;
        }
        if stretch.start <= first && end <= stretch.end {
            return Some(self.winners[node.index]);
        }
        let [left, right] = node.halves().map(|half| self.least_under(half, stretch));
        match (left, right) {
            (Some(left), Some(right)) => Some(self.better(left, right)),
            (only, None) | (None, only) => only,
        }
    }

    fn first_under(&self, node: Node, from: usize, bound: T) -> Option<usize> {
        let winner = self.winners[node.index];
        if node.first + node.length <= from || self.values.get(winner).is_none_or(|least| *least > bound) {
            return None;
        }
        if node.length == 1 {
            return Some(winner);
        }
        node.halves().into_iter().find_map(|half| self.first_under(half, from, bound))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_row_answers_as_a_plain_list_does(
            values in prop::collection::vec(0u8..6, 1..40),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0u8..6, any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..60),
        ) {
            let mut list = values.clone();
            let mut row = Tournament::new(values);
            for (place, value, one, other) in changes {
                let place = place.index(list.len());
                list[place] = value;
                row.set(place, value);
                prop_assert_eq!(row.least(), *list.iter().min().unwrap());
                let (one, other) = (one.index(list.len() + 1), other.index(list.len() + 1));
                let stretch = one.min(other)..one.max(other);
                let least = stretch.clone().map(|place| (place, list[place])).min_by_key(|(_, value)| *value);
                prop_assert_eq!(row.least_of(&stretch), least, "the first of equals");
                let first = (one..list.len()).find(|place| list[*place] <= value);
                prop_assert_eq!(row.first_at_most(one, value), first);
            }
            let other: Vec<u8> = list.iter().rev().copied().collect();
            row.replace(other.iter().copied());
            prop_assert_eq!(row.least(), *other.iter().min().unwrap());
            prop_assert_eq!(row.first_at_most(0, row.least()), (0..other.len()).min_by_key(|place| other[*place]));
        }
    }
}
