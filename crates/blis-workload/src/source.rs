//! What the simulator sees of a workload: sources that send requests and learn when their requests end.
//!
//! A source owns its own arrival process and knows nothing of the engine. It is driven by two calls: [`Source::send`] at the instants
//! it names, and [`Source::ended`] when one of its requests ends at the client.

use std::sync::Arc;

use blis_contracts::record::RequestRecord;
use blis_contracts::request::{RequestId, Segment};
use blis_contracts::units::{SimDuration, SimTime};

/// A source of requests: one client of the scenario.
pub trait Source: std::fmt::Debug {
    /// The client's name in the scenario.
    fn name(&self) -> &str;

    /// The service class of its requests.
    fn class(&self) -> &str;

    /// When the source next sends by itself; `None` while it waits for a request to end, and for ever once it is done.
    fn next_send(&self) -> Option<SimTime>;

    /// The request due at `now`, which is the instant [`Self::next_send`] named.
    fn send(&mut self, now: SimTime) -> Draft;

    /// One of this source's requests ended at the client: it received its last token, was refused, or was given up.
    fn ended(&mut self, now: SimTime, record: &RequestRecord);

    /// Requests the source has sent so far, warm-up included.
    fn sent(&self) -> u64;

    /// Requests the source would still send if the run went on; `None` where it would send for ever.
    fn unsent(&self) -> Option<u64>;
}

/// A request as its client sends it.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// Its number: the client's index in the workload in the high bits, the request's index in the client's order in the low 40.
    pub id: RequestId,
    /// The prompt.
    pub prompt: Arc<[Segment]>,
    /// Tokens it will generate.
    pub output_length: u32,
    /// The limit the client states, where it states one.
    pub max_tokens: Option<u32>,
    /// Scheduling priority.
    pub priority: i32,
    /// Whether it belongs to the warm-up, which no figure counts.
    pub warm_up: bool,
    /// How long its client waits for its last token before it gives up, where it ever does.
    pub timeout: Option<SimDuration>,
    /// Why it is sent when it is, for whoever records it.
    pub origin: Origin,
}

/// Why a request is sent when it is, and what it belongs to. Nothing of it reaches an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    /// The earlier request whose end it follows, and how long after.
    pub after: Option<(RequestId, SimDuration)>,
    /// Its place in a session of several rounds.
    pub session: Option<Round>,
    /// The place in a closed loop that it takes.
    pub lane: Option<u32>,
    /// The phase of its client's arrivals.
    pub phase: Option<u32>,
}

/// A request's place in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// The session, in its client's order.
    pub session: u64,
    /// The request's index in it.
    pub round: u32,
    /// Rounds that follow it.
    pub left: u32,
}

/// Bits of a request's number that hold its index in its client's order.
pub const INDEX_BITS: u32 = 40;

/// The number of the `index`th request of the `client`th client.
///
/// Panics past 2^40 requests of one client or 2^24 clients; validation refuses such a workload.
pub fn request_id(client: u32, index: u64) -> RequestId {
    assert!(index < 1 << INDEX_BITS && client < 1 << (64 - INDEX_BITS), "request {index} of client {client} has no number");
    RequestId(u64::from(client) << INDEX_BITS | index)
}

/// The client that sent a request, by index in the workload.
pub fn client_of(id: RequestId) -> u32 {
    u32::try_from(id.0 >> INDEX_BITS).expect("a client index has 24 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_number_gives_its_client_back() {
        assert_eq!(client_of(request_id(7, 123)), 7);
        assert_eq!(request_id(0, 5).0, 5);
    }
}
