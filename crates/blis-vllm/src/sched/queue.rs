//! The waiting queue under both policies.
//!
//! upstream: vllm `v1/core/sched/request_queue.py::FCFSRequestQueue`, `PriorityRequestQueue`

use std::collections::{BTreeSet, VecDeque};

use blis_contracts::request::RequestId;
use blis_contracts::units::SimTime;

use crate::request::{Identity, Slot};

/// In which order waiting requests are admitted and running ones preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// In order of arrival; the last admitted is preempted first.
    Fcfs,
    /// By priority, then arrival, then identifier; the least urgent is preempted first.
    Priority,
}

/// Upstream compares identifiers as text; they print zero-padded, so numbers compare the same way.
type Rank = (i32, SimTime, RequestId, Slot);

/// The queue.
#[derive(Debug)]
pub enum WaitingQueue {
    /// First come, first served.
    Fcfs(VecDeque<Slot>),
    /// Ordered by urgency.
    Priority(BTreeSet<Rank>),
}

fn rank(slot: Slot, identity: &Identity) -> Rank {
    (identity.priority, identity.arrival, identity.id, slot)
}

impl WaitingQueue {
    /// An empty queue.
    pub fn new(policy: Policy) -> Self {
        match policy {
            Policy::Fcfs => Self::Fcfs(VecDeque::new()),
            Policy::Priority => Self::Priority(BTreeSet::new()),
        }
    }

    /// Requests in it.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Fcfs(queue) => queue.len(),
            Self::Priority(queue) => queue.len(),
        }
    }

    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Queues a new request.
    pub fn push(&mut self, slot: Slot, identity: &Identity) {
        match self {
            Self::Fcfs(queue) => queue.push_back(slot),
            Self::Priority(queue) => {
                queue.insert(rank(slot, identity));
            }
        }
    }

    /// Puts a request back at the front; under priorities it goes where its urgency puts it.
    pub fn push_front(&mut self, slot: Slot, identity: &Identity) {
        match self {
            Self::Fcfs(queue) => queue.push_front(slot),
            Self::Priority(_) => self.push(slot, identity),
        }
    }

    /// The next request.
    pub fn front(&self) -> Option<Slot> {
        match self {
            Self::Fcfs(queue) => queue.front().copied(),
            Self::Priority(queue) => queue.first().map(|rank| rank.3),
        }
    }

    /// Takes the next request.
    pub fn pop(&mut self) -> Option<Slot> {
        match self {
            Self::Fcfs(queue) => queue.pop_front(),
            Self::Priority(queue) => queue.pop_first().map(|rank| rank.3),
        }
    }

    /// Takes a given request out; nothing happens when it is not there.
    pub fn remove(&mut self, slot: Slot, identity: &Identity) {
        match self {
            Self::Fcfs(queue) => queue.retain(|waiting| *waiting != slot),
            Self::Priority(queue) => {
                queue.remove(&rank(slot, identity));
            }
        }
    }

    /// The requests in the order in which they would be taken.
    pub fn in_order(&self) -> Box<dyn Iterator<Item = Slot> + '_> {
        match self {
            Self::Fcfs(queue) => Box::new(queue.iter().copied()),
            Self::Priority(queue) => Box::new(queue.iter().map(|rank| rank.3)),
        }
    }
}
