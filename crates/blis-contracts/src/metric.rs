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
    /// Requests completed within their objective per second.
    Goodput,
    /// Share of requests completed within their objective.
    SloAttainment,
    /// Prompt tokens per second.
    InputThroughput,
    /// Output tokens per second.
    OutputThroughput,
    /// Prompt and output tokens per second.
    TotalThroughput,
    /// Output tokens per second per accelerator.
    OutputThroughputPerGpu,
    /// Prompt and output tokens per second per accelerator.
    TotalThroughputPerGpu,
    /// Output tokens per second that one request receives.
    Interactivity,
    /// Dollars for a million prompt tokens.
    CostPerMillionInputTokens,
    /// Dollars for a million output tokens.
    CostPerMillionOutputTokens,
    /// Dollars for a million prompt and output tokens.
    CostPerMillionTokens,
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
    pub const ALL: [Self; 19] = [
        Self::Ttft,
        Self::Tpot,
        Self::Itl,
        Self::E2el,
        Self::QueueDelay,
        Self::RequestThroughput,
        Self::Goodput,
        Self::SloAttainment,
        Self::InputThroughput,
        Self::OutputThroughput,
        Self::TotalThroughput,
        Self::OutputThroughputPerGpu,
        Self::TotalThroughputPerGpu,
        Self::Interactivity,
        Self::CostPerMillionInputTokens,
        Self::CostPerMillionOutputTokens,
        Self::CostPerMillionTokens,
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
            Self::Ttft | Self::Tpot | Self::Itl | Self::E2el | Self::QueueDelay => {
                &[Statistic::Mean, Statistic::P50, Statistic::P90, Statistic::P95, Statistic::P99, Statistic::Max]
            }
            Self::Interactivity => &[Statistic::Mean, Statistic::P50, Statistic::P90, Statistic::P95, Statistic::P99],
            Self::RequestThroughput
            | Self::Goodput
            | Self::InputThroughput
            | Self::OutputThroughput
            | Self::TotalThroughput
            | Self::OutputThroughputPerGpu
            | Self::TotalThroughputPerGpu => &[Statistic::Rate],
            Self::SloAttainment
            | Self::CostPerMillionInputTokens
            | Self::CostPerMillionOutputTokens
            | Self::CostPerMillionTokens
            | Self::Concurrency
            | Self::KvUtilisation => &[Statistic::Mean],
        }
    }

    /// The key of the scenario without which a run does not give it; none where every run does.
    pub const fn needs(self) -> Option<&'static str> {
        match self {
            Self::Goodput | Self::SloAttainment => Some("objectives"),
            Self::CostPerMillionInputTokens | Self::CostPerMillionOutputTokens | Self::CostPerMillionTokens => Some("cost"),
            Self::Ttft
            | Self::Tpot
            | Self::Itl
            | Self::E2el
            | Self::QueueDelay
            | Self::RequestThroughput
            | Self::InputThroughput
            | Self::OutputThroughput
            | Self::TotalThroughput
            | Self::OutputThroughputPerGpu
            | Self::TotalThroughputPerGpu
            | Self::Interactivity
            | Self::Concurrency
            | Self::KvUtilisation => None,
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
                let population = "chunks after the first of measured requests: one of each token, or of several where a stream interval is \
                                  set or the front end falls behind";
                ("itl", "us", population, "client time of a chunk - client time of the chunk before it")
            }
            Self::E2el => ("e2el", "us", "completed measured requests", "client time of the last token - time the client sent the request"),
            Self::QueueDelay => {
                ("queue_delay", "us", "measured requests that were scheduled", "time first scheduled - time the engine received it")
            }
            Self::RequestThroughput => ("request_throughput", "1/s", "completed measured requests", "count / measured window"),
            Self::Goodput => {
                ("goodput", "1/s", "measured requests of a class with an objective, completed within it", "count / measured window")
            }
            Self::SloAttainment => (
                "slo_attainment",
                "ratio",
                "measured requests of a class with an objective that were not in flight when the run stopped",
                "those completed within it / all of them",
            ),
            Self::InputThroughput => {
                ("input_throughput", "tokens/s", "prompt tokens of completed measured requests", "count / measured window")
            }
            Self::OutputThroughput => ("output_throughput", "tokens/s", "output tokens of measured requests", "count / measured window"),
            Self::TotalThroughput => {
                ("total_throughput", "tokens/s", "prompt and output tokens of completed measured requests", "count / measured window")
            }
            Self::OutputThroughputPerGpu => {
                ("output_throughput_per_gpu", "tokens/s", "output tokens of measured requests", "count / measured window / accelerators")
            }
            Self::TotalThroughputPerGpu => (
                "total_throughput_per_gpu",
                "tokens/s",
                "prompt and output tokens of completed measured requests",
                "count / measured window / accelerators",
            ),
            Self::Interactivity => (
                "interactivity",
                "tokens/s",
                "completed measured requests with at least two tokens",
                "1 / the same statistic of tpot, so that p99 is what the slowest hundredth sees",
            ),
            Self::CostPerMillionInputTokens => dollars("cost_per_million_input_tokens", "price x accelerators / input_throughput"),
            Self::CostPerMillionOutputTokens => dollars("cost_per_million_output_tokens", "price x accelerators / output_throughput"),
            Self::CostPerMillionTokens => dollars("cost_per_million_tokens", "price x accelerators / total_throughput"),
            Self::Concurrency => ("concurrency", "requests", "measured window", "time average of requests sent and not ended"),
            Self::KvUtilisation => ("kv_utilisation", "ratio", "measured window", "time average of KV blocks in use / KV blocks usable"),
        };
        Definition { id, unit, population, formula }
    }
}

/// The parts of a definition of a cost: each carries the whole cost of the window.
const fn dollars(id: &'static str, formula: &'static str) -> (&'static str, &'static str, &'static str, &'static str) {
    (id, "usd", "the accelerators and tokens of the measured window, at the scenario's price of an accelerator-hour", formula)
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
