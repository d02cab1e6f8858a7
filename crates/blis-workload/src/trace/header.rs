//! The header of a BLIS trace: a small YAML document beside the table.
//!
//! Keys that describe the recorded server and what was measured of it are read and not acted on, and a note says so: a replay has a
//! scenario of its own.

use blis_contracts::strict::{Document, DocumentError, LineEndings};
use serde::{Deserialize, Serialize};

/// Versions of the format that are read; the last is the one that is written.
const VERSIONS: [u32; 2] = [2, 3];

/// The header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The version of the format.
    pub trace_version: u32,
    /// The unit of every time in the table.
    pub time_unit: Unit,
    /// Where the requests come from.
    pub mode: Mode,
    /// Rows at the start of the table that belong to the warm-up.
    #[serde(default)]
    pub warm_up_requests: u64,
    /// When the trace was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// The seed of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_seed: Option<u64>,
    /// The document the workload was drawn from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_spec: Option<String>,
    /// How a session's prompts grow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_context_growth: Option<Growth>,
    /// The clients, in the order in which they send at one instant; where left out they come in the order of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<Vec<String>>,
    /// Requests that the recorded run ended without sending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_not_started: Option<u64>,
    /// Whether the workload would have sent for ever, had the run not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_ended: Option<bool>,
    /// The recorded server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<serde_json::Value>,
    /// The network to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<serde_json::Value>,
    /// The targets a request was held to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_slo_targets: Option<serde_json::Value>,
    /// The server's KV offloading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_offload: Option<serde_json::Value>,
    /// The server's own KV metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_kv_metrics: Option<serde_json::Value>,
}

/// The unit of a trace's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Microseconds.
    Microseconds,
}

/// Where the requests of a trace come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// They were sent to a real server.
    Real,
    /// They were drawn from distributions, or converted from another format.
    Generated,
    /// They are those of another trace.
    Replayed,
}

/// How a session's prompts grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Growth {
    /// Each round's `input_tokens` hold the whole conversation so far.
    Accumulate,
}

impl Header {
    /// The header of a trace that this program writes.
    pub fn new(mode: Mode, trace: &super::Trace) -> Self {
        Self {
            trace_version: VERSIONS[1],
            time_unit: Unit::Microseconds,
            mode,
            warm_up_requests: trace.rows.iter().filter(|row| row.warm_up).count() as u64,
            created_at: None,
            workload_seed: None,
            workload_spec: None,
            session_context_growth: None,
            clients: Some(trace.clients.clone()),
            requests_not_started: (trace.not_started > 0).then_some(trace.not_started),
            open_ended: trace.open_ended.then_some(true),
            server: None,
            network: None,
            goodput_slo_targets: None,
            kv_offload: None,
            observed_kv_metrics: None,
        }
    }

    /// The keys stated that a replay does not act on.
    pub(crate) fn unused(&self) -> Vec<&'static str> {
        let described = [
            ("server", &self.server),
            ("network", &self.network),
            ("goodput_slo_targets", &self.goodput_slo_targets),
            ("kv_offload", &self.kv_offload),
            ("observed_kv_metrics", &self.observed_kv_metrics),
        ];
        described.into_iter().filter(|(_, value)| value.as_ref().is_some_and(|value| !value.is_null())).map(|(key, _)| key).collect()
    }

    /// Reads a header; `file` names it in errors.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, DocumentError> {
        let document = Document::parse(file, bytes, LineEndings::LfOrCrLf)?;
        let header: Self = document.decode()?;
        if !VERSIONS.contains(&header.trace_version) {
            let message = format!("must be {} or {}, found {}", VERSIONS[0], VERSIONS[1], header.trace_version);
            return Err(document.error_at("trace_version", message));
        }
        if header.clients.as_ref().is_some_and(|clients| has_twins(clients)) {
            return Err(document.error_at("clients", "names a client twice"));
        }
        Ok(header)
    }
}

fn has_twins(names: &[String]) -> bool {
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}
