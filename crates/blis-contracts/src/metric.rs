//! The metric registry: one definition for every figure BLIS reports.
//!
//! A metric is a formula over a population; a figure is a metric with a statistic at a scope. Nothing else defines a metric.

use crate::result::Statistic;

/// A metric BLIS reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// Time to first token.
    Ttft,
    /// Time per output token after the first, per request.
    Tpot,
    /// Gaps between consecutive chunks of tokens, pooled.
    Itl,
    /// Time to the last token.
    E2el,
    /// Time from arrival to first being scheduled.
    QueueDelay,
    /// Requests completed per second.
    RequestThroughput,
    /// Output tokens per second.
    OutputThroughput,
    /// Prompt and output tokens per second.
    TotalThroughput,
    /// Output tokens per second per accelerator.
    OutputThroughputPerGpu,
    /// Output tokens per second that one request receives.
    Interactivity,
    /// Requests in flight, averaged over time.
    Concurrency,
    /// Share of KV blocks in use, averaged over time.
    KvUtilisation,
}

/// A metric's definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Definition {
    /// The identifier documents use.
    pub id: &'static str,
    /// The unit of its figures.
    pub unit: &'static str,
    /// What is summed or sampled.
    pub population: &'static str,
    /// The formula in words.
    pub formula: &'static str,
}

impl Metric {
    /// Every metric, in the order reports list them.
    pub const ALL: [Self; 12] = [
        Self::Ttft,
        Self::Tpot,
        Self::Itl,
        Self::E2el,
        Self::QueueDelay,
        Self::RequestThroughput,
        Self::OutputThroughput,
        Self::TotalThroughput,
        Self::OutputThroughputPerGpu,
        Self::Interactivity,
        Self::Concurrency,
        Self::KvUtilisation,
    ];

    /// The metric that documents call `id`.
    pub fn named(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.definition().id == id)
    }

    /// The statistics a run gives of it.
    pub const fn statistics(self) -> &'static [Statistic] {
        match self {
            Self::Ttft | Self::Tpot | Self::Itl | Self::E2el | Self::QueueDelay | Self::Interactivity => {
                &[Statistic::Mean, Statistic::P50, Statistic::P90, Statistic::P95, Statistic::P99, Statistic::Max]
            }
            Self::RequestThroughput | Self::OutputThroughput | Self::TotalThroughput | Self::OutputThroughputPerGpu => &[Statistic::Rate],
            Self::Concurrency | Self::KvUtilisation => &[Statistic::Mean],
        }
    }

    /// Its one definition.
    pub const fn definition(self) -> Definition {
        let (id, unit, population, formula) = match self {
            Self::Ttft => {
                ("ttft", "us", "measured requests with a first token", "client time of the first token - time the client sent the request")
            }
            Self::Tpot => (
                "tpot",
                "us",
                "completed measured requests with at least two tokens",
                "(client time of the last token - client time of the first) / (output tokens - 1)",
            ),
            Self::Itl => {
                ("itl", "us", "chunks after the first of measured requests", "client time of a chunk - client time of the chunk before it")
            }
            Self::E2el => ("e2el", "us", "completed measured requests", "client time of the last token - time the client sent the request"),
            Self::QueueDelay => {
                ("queue_delay", "us", "measured requests that were scheduled", "time first scheduled - time the engine received it")
            }
            Self::RequestThroughput => ("request_throughput", "1/s", "completed measured requests", "count / measured window"),
            Self::OutputThroughput => ("output_throughput", "tokens/s", "output tokens of measured requests", "count / measured window"),
            Self::TotalThroughput => {
                ("total_throughput", "tokens/s", "prompt and output tokens of completed measured requests", "count / measured window")
            }
            Self::OutputThroughputPerGpu => {
                ("output_throughput_per_gpu", "tokens/s", "output tokens of measured requests", "count / measured window / accelerators")
            }
            Self::Interactivity => {
                ("interactivity", "tokens/s", "completed measured requests with at least two tokens", "1 / tpot of the request")
            }
            Self::Concurrency => ("concurrency", "requests", "measured window", "time average of requests sent and not ended"),
            Self::KvUtilisation => ("kv_utilisation", "ratio", "measured window", "time average of KV blocks in use / KV blocks usable"),
        };
        Definition { id, unit, population, formula }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_metrics_share_an_identifier() {
        let mut ids: Vec<_> = Metric::ALL.iter().map(|metric| metric.definition().id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), Metric::ALL.len());
    }
}
