//! The experimental frame: from which state a run starts, when it ends, and what of it is measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MAX_REQUESTS;
use super::distribution::require_positive_time;
use crate::strict::Problems;

/// The frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// The state the run starts from.
    pub start: StartState,
    /// When the run ends.
    pub stop: Stop,
    /// Which requests are measured; all of them where left out.
    #[serde(default)]
    pub measure: Measure,
}

/// The state a run starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StartState {
    /// No request anywhere and nothing cached.
    Empty,
}

/// When a run ends: at the first of the conditions stated. There is at least one, unless the workload ends by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// So many requests are sent, warm-up apart, and the run ends when the last of them has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Simulated time at which the run stops, whatever is in flight, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon_s: Option<f64>,
}

/// Which requests are measured.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Requests, the earliest sent, that no figure counts.
    pub discard_first: u64,
}

impl Frame {
    pub(super) fn validate(&self, problems: &mut Problems) {
        problems.within("stop", |problems| self.stop.validate(problems));
        if let Some(requests) = self.stop.requests.filter(|requests| *requests > 0) {
            let discarded = self.measure.discard_first;
            problems.within("measure", |problems| {
                problems.require("discard_first", discarded < requests, format_args!("below frame.stop.requests ({requests})"), discarded);
            });
        }
    }
}

impl Stop {
    fn validate(&self, problems: &mut Problems) {
        if let Some(requests) = self.requests {
            problems.require("requests", (1..=MAX_REQUESTS).contains(&requests), format_args!("from 1 to {MAX_REQUESTS}"), requests);
        }
        if let Some(horizon) = self.horizon_s {
            require_positive_time(problems, "horizon_s", horizon);
        }
    }
}
