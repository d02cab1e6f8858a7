//! Service-level objectives by service class, and the price of the machines: what turns figures into goodput and dollars.
//!
//! Left out: policies that act on classes; nothing here changes what an engine does.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Workload, require_text};
use crate::strict::Problems;

/// The service class of requests whose client states none.
pub const DEFAULT_CLASS: &str = "default";

/// The dearest accelerator-hour a scenario may state, in dollars.
const MAX_USD_PER_GPU_HOUR: f64 = 1e6;

/// The longest latency an objective may state: a day, in milliseconds.
const MAX_LIMIT_MS: f64 = 86_400_000.0;

/// The latencies that a request of a service class must not exceed; a latency left out is not judged.
///
/// The keys and their unit are those of vLLM's benchmark client (`--goodput ttft:500 tpot:50`).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Objective {
    /// Time to first token, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
    /// Time per output token after the first, in milliseconds. A request of one token has none and cannot exceed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_ms: Option<f64>,
    /// Time to the last token, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e2el_ms: Option<f64>,
}

/// What the machines cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Dollars for one accelerator and one hour.
    pub usd_per_gpu_hour: f64,
}

impl Objective {
    fn validate(&self, problems: &mut Problems) {
        let limits = [("ttft_ms", self.ttft_ms), ("tpot_ms", self.tpot_ms), ("e2el_ms", self.e2el_ms)];
        if limits.iter().all(|(_, limit)| limit.is_none()) {
            problems.refuse("", "limits nothing; state at least one of `ttft_ms`, `tpot_ms` and `e2el_ms`");
        }
        for (key, limit) in limits {
            if let Some(limit) = limit {
                let holds = limit > 0.0 && limit <= MAX_LIMIT_MS;
                problems.require(key, holds, format_args!("above 0 and at most {MAX_LIMIT_MS} ms"), limit);
            }
        }
    }
}

impl Cost {
    pub(super) fn validate(self, problems: &mut Problems) {
        let price = self.usd_per_gpu_hour;
        let holds = price > 0.0 && price <= MAX_USD_PER_GPU_HOUR;
        problems.require("usd_per_gpu_hour", holds, format_args!("above 0 and at most {MAX_USD_PER_GPU_HOUR} dollars"), price);
    }
}

/// Checks the objectives, and that classes and objectives name each other.
pub(super) fn validate_all(problems: &mut Problems, objectives: &IndexMap<String, Objective>, workload: &Workload) {
    for (class, objective) in objectives {
        problems.within(&format!("objectives.{class}"), |problems| {
            require_text(problems, "", class);
            objective.validate(problems);
            let known = !matches!(workload, Workload::Trace(_));
            if known && !workload.classes().any(|used| used == class) {
                let used: Vec<String> = workload.classes().map(|class| format!("`{class}`")).collect();
                problems.refuse("", format!("no request is of class `{class}`; the workload's classes are {}", used.join(", ")));
            }
        });
    }
    let Workload::Clients(workload) = workload else { return };
    problems.within("workload", |problems| {
        problems.each("clients", &workload.clients, |problems, client| {
            if let Some(class) = client.slo_class.as_ref().filter(|class| !objectives.contains_key(*class)) {
                problems.refuse("slo_class", format!("`{class}` has no objective; add `objectives: {{{class}: {{ttft_ms: ...}}}}`"));
            }
        });
    });
}
