//! How a request ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A request's one fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It received its last token.
    Completed,
    /// The engine refused it, with a reason.
    Refused,
    /// Its client gave up at its deadline.
    TimedOut,
    /// It had received service but not its last token when the run stopped.
    InFlightAtHorizon,
    /// It waited for service when the run stopped.
    QueuedAtHorizon,
    /// It was generated but never sent.
    NotStarted,
}

impl Fate {
    /// Every fate, in the order reports list them.
    pub const ALL: [Self; 6] =
        [Self::Completed, Self::Refused, Self::TimedOut, Self::InFlightAtHorizon, Self::QueuedAtHorizon, Self::NotStarted];

    /// The name documents and reports use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
            Self::InFlightAtHorizon => "in_flight_at_horizon",
            Self::QueuedAtHorizon => "queued_at_horizon",
            Self::NotStarted => "not_started",
        }
    }
}
