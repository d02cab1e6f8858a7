//! Requests in flight: one dense, recycled slot each.

use std::sync::Arc;

use blis_contracts::fate::Fate;
use blis_contracts::record::RequestRecord;
use blis_contracts::request::{RequestId, RequestSlot, Segment};
use blis_contracts::units::SimTime;
use blis_workload::source::{Draft, INDEX_BITS, client_of};

use crate::front_end::Streamed;

/// A request between the instant its client sent it and the instant it ended there.
#[derive(Debug, Clone)]
pub(crate) struct LiveRequest {
    pub(crate) id: RequestId,
    pub(crate) sent: SimTime,
    pub(crate) received: Option<SimTime>,
    pub(crate) scheduled: Option<SimTime>,
    pub(crate) first_token: Option<SimTime>,
    pub(crate) last_chunk: SimTime,
    /// Tokens generated.
    pub(crate) tokens: u64,
    /// What its client has of them.
    pub(crate) streamed: Streamed,
    pub(crate) prompt_tokens: u64,
    /// Tokens it asks for.
    pub(crate) asked_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) preemptions: u32,
    pub(crate) warm_up: bool,
    /// Whether figures count it.
    pub(crate) measured: bool,
    pub(crate) standing: Standing,
    pub(crate) refusal: Option<String>,
    /// When its client gives up.
    pub(crate) deadline: Option<SimTime>,
}

/// Who still has something to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its client and the engine.
    Open,
    /// Its client, which what the engine gave last is on its way to.
    Ended,
    /// The engine: its client has given up and its record is written, and its slot waits for the engine to let go.
    Abandoned,
}

impl LiveRequest {
    /// A request sent at `now`.
    pub(crate) fn new(draft: &Draft, now: SimTime, measured: bool) -> Self {
        Self {
            id: draft.id,
            sent: now,
            received: None,
            scheduled: None,
            first_token: None,
            last_chunk: now,
            tokens: 0,
            streamed: Streamed::default(),
            prompt_tokens: prompt_tokens(&draft.prompt),
            asked_tokens: draft.max_tokens.map_or(draft.output_length, |limit| limit.min(draft.output_length)).into(),
            cached_tokens: 0,
            preemptions: 0,
            warm_up: draft.warm_up,
            measured,
            standing: Standing::Open,
            refusal: None,
            deadline: None,
        }
    }

    /// The engine has nothing more to do with it.
    pub(crate) fn engine_is_done(&mut self) {
        if self.standing == Standing::Open {
            self.standing = Standing::Ended;
        }
    }

    /// Whether something that reaches the client at `at` comes too late.
    pub(crate) fn comes_too_late(&self, at: SimTime) -> bool {
        self.deadline.is_some_and(|deadline| at > deadline)
    }

    /// What is kept of the request once its fate is known.
    pub(crate) fn into_record(self, fate: Fate) -> RequestRecord {
        RequestRecord {
            id: self.id,
            client: client_of(self.id),
            index: self.id.0 & ((1 << INDEX_BITS) - 1),
            warm_up: self.warm_up,
            fate,
            refusal: self.refusal,
            sent: self.sent,
            received: self.received,
            scheduled: self.scheduled,
            first_token: self.first_token,
            last_token: self.first_token.map(|_| self.last_chunk),
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            output_tokens: self.streamed.tokens,
            preemptions: self.preemptions,
        }
    }
}

/// The slots.
#[derive(Debug, Default)]
pub(crate) struct LiveRequests {
    slots: Vec<Option<LiveRequest>>,
    free: Vec<RequestSlot>,
}

impl LiveRequests {
    pub(crate) fn insert(&mut self, request: LiveRequest) -> RequestSlot {
        if let Some(slot) = self.free.pop() {
            self.slots[slot.0 as usize] = Some(request);
            return slot;
        }
        let slot = RequestSlot(u32::try_from(self.slots.len()).expect("fewer than 2^32 requests are in flight"));
        self.slots.push(Some(request));
        slot
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: RequestSlot) -> &mut LiveRequest {
        self.slots[slot.0 as usize].as_mut().expect("an engine names only requests that have not ended")
    }

    pub(crate) fn remove(&mut self, slot: RequestSlot) -> LiveRequest {
        self.free.push(slot);
        self.slots[slot.0 as usize].take().expect("a request ends once")
    }

    /// Takes every request still in flight, in slot order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = LiveRequest> + '_ {
        self.free.clear();
        self.slots.drain(..).flatten()
    }
}

fn prompt_tokens(prompt: &Arc<[Segment]>) -> u64 {
    prompt.iter().map(|segment| u64::from(segment.length)).sum()
}
