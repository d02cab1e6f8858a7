//! What a run is given beside its parts, and what it leaves: the frame, who looks on, the outcome, and why there may be none.

use blis_contracts::engine::{EngineCounters, EngineSnapshot, StepTicket};
use blis_contracts::record::RequestRecord;
use blis_contracts::units::SimTime;
use blis_workload::source::Draft;

use crate::backlog::Growth;
use crate::series::Recorder;
use crate::tally::Tally;

/// The experimental frame, as far as the loop needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Requests to send, warm-up not counted; absent where sources end by themselves or the horizon stops the run.
    pub requests: Option<u64>,
    /// The instant the run stops at, whatever is in flight.
    pub horizon: Option<SimTime>,
    /// Requests, in order of sending and warm-up not counted, that no figure counts.
    pub discard_first: u64,
}

/// Watches a run from outside; nothing it does can change the run.
pub trait Observer {
    /// A client sent a request.
    fn sent(&mut self, at: SimTime, draft: &Draft);

    /// A request's fate was written.
    fn record(&mut self, record: &RequestRecord);

    /// The engine launched a step, which left it in this state.
    fn stepped(&mut self, step: &StepTicket, state: &EngineSnapshot);

    /// Called now and then.
    fn progress(&mut self, progress: Progress);
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Simulated time.
    pub now: SimTime,
    /// Requests that ended.
    pub ended: u64,
}

/// What a run leaves.
#[derive(Debug)]
pub struct Outcome {
    /// Samples and counts.
    pub tally: Tally,
    /// When the first measured request was sent.
    pub window_start: SimTime,
    /// When the last measured request ended, or the horizon.
    pub window_end: SimTime,
    /// Requests in flight, averaged over the measured window.
    pub concurrency: Option<f64>,
    /// KV blocks in use, averaged over the measured window.
    pub used_blocks: Option<f64>,
    /// Most KV blocks in use in the measured window.
    pub peak_blocks: u64,
    /// The engine's totals.
    pub engine: EngineCounters,
    /// The engine over simulated time.
    pub(crate) recorder: Recorder,
    /// How the queue grew, where it grew as long as requests were sent.
    pub(crate) growth: Option<Growth>,
    /// When the last event happened.
    pub end: SimTime,
    /// What ended the run.
    pub ended: Ended,
    /// Counts of the loop's own work.
    pub statistics: Statistics,
    /// Names of the clients that stated a priority other than 0, in the workload's order.
    pub prioritised: Vec<String>,
}

/// What ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The horizon, before everything was done.
    Horizon,
    /// The number of requests, all of which ended.
    Requests,
    /// The workload, which sends no more.
    Workload,
}

/// Counts of the loop's own work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Events handled.
    pub events: u64,
    /// Engine wake-ups.
    pub engine_wakes: u64,
    /// Tokens passed to the front end.
    pub tokens: u64,
    /// Most requests in flight.
    pub peak_in_flight: u64,
}

/// A run that cannot give a Result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// Nothing arrives.
    #[error("no request is sent before the horizon at {horizon}; the first would be sent at {}", first.map_or_else(|| "no time at all".to_owned(), |time| time.to_string()))]
    NothingArrives {
        /// Where the run stops.
        horizon: SimTime,
        /// When the first request would be sent.
        first: Option<SimTime>,
    },
    /// The workload sends nothing.
    #[error("no client sends any request")]
    NoRequests,
    /// The frame ends before any request that counts is sent.
    #[error(
        "no request is measured: the run ends at {end}, when {sent} requests had been sent, {warm_up} of them to warm up, and `discard_first` is {discard_first}"
    )]
    NothingMeasured {
        /// When the run ended.
        end: SimTime,
        /// Requests sent, warm-up included.
        sent: u64,
        /// Requests sent to warm up.
        warm_up: u64,
        /// Requests after them that no figure counts.
        discard_first: u64,
    },
    /// The clock has no room for what is to come.
    #[error(
        "the run passes {} of simulated time, the most there is, when {sent} requests have been sent; state a horizon, or let requests follow sooner",
        SimTime::BEYOND
    )]
    TooLong {
        /// Requests sent, warm-up not counted.
        sent: u64,
    },
    /// Requests wait, and nothing will ever happen.
    #[error("no progress from {now} on: {waiting} requests wait and no event is due")]
    Stalled {
        /// The last instant at which something happened.
        now: SimTime,
        /// Requests that had not ended.
        waiting: u64,
    },
    /// The engine steps on and on without any request changing state.
    #[error("no progress from {since} to {now}: no request changed state in {wakes} engine steps while {waiting} requests were in flight")]
    Livelock {
        /// When a request last changed state.
        since: SimTime,
        /// The instant the watchdog gave up.
        now: SimTime,
        /// Engine wake-ups in between.
        wakes: u64,
        /// Requests that had not ended.
        waiting: u64,
    },
}
