//! The places of a closed loop: which are free, and who holds the others.

use std::collections::{BTreeMap, BTreeSet};

/// The places of one client.
#[derive(Debug)]
pub(crate) struct Lanes {
    free: BTreeSet<u32>,
    held: BTreeMap<u64, u32>,
}

impl Lanes {
    pub(crate) fn new(count: u32) -> Self {
        Self { free: (0..count).collect(), held: BTreeMap::new() }
    }

    pub(crate) fn any_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The first free place, held from now on by a session or request of this number.
    pub(crate) fn take(&mut self, holder: u64) -> u32 {
        let lane = self.free.pop_first().expect("a closed loop sends only where a place is free");
        self.held.insert(holder, lane);
        lane
    }

    /// The place a holder has.
    pub(crate) fn of(&self, holder: u64) -> Option<u32> {
        self.held.get(&holder).copied()
    }

    /// Gives a holder's place, if it has one, to another.
    pub(crate) fn hand_over(&mut self, from: u64, to: u64) {
        if let Some(lane) = self.held.remove(&from) {
            self.held.insert(to, lane);
        }
    }

    /// Frees a holder's place.
    pub(crate) fn give_back(&mut self, holder: u64) {
        self.free.extend(self.held.remove(&holder));
    }
}
