//! One line of predictions: a point's figures, or why it has none.

use blis_contracts::metric::Metric;
use blis_contracts::provenance::Method;
use blis_contracts::result::{RunResult, Statistic};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::unit::Unit;

/// A prediction of one point. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prediction {
    /// The sweep.
    pub scenario: String,
    /// Its lengths.
    pub label: String,
    /// The point.
    pub concurrency: u32,
    /// Mean time to first token.
    pub mean_ttft_us: Option<f64>,
    /// Mean time per output token.
    pub mean_tpot_us: Option<f64>,
    /// Median time to first token.
    pub p50_ttft_us: Option<f64>,
    /// 90th percentile of the time to first token.
    pub p90_ttft_us: Option<f64>,
    /// 99th percentile of the time to first token.
    pub p99_ttft_us: Option<f64>,
    /// Median time per output token.
    pub p50_tpot_us: Option<f64>,
    /// 90th percentile of the time per output token.
    pub p90_tpot_us: Option<f64>,
    /// 99th percentile of the time per output token.
    pub p99_tpot_us: Option<f64>,
    /// Output tokens per second.
    pub output_tok_s: Option<f64>,
    /// Tokens the KV cache holds, as the engine reckons.
    pub kv_tokens: Option<u64>,
    /// Preemptions.
    pub preemptions: Option<u64>,
    /// How close the simulated run is to the measured one: G1 (closest) to G5 (no figure).
    pub grade: Grade,
    /// Why the grade is not better.
    pub grade_reasons: Vec<String>,
    /// Why there is no figure; null where there is one.
    pub refused: Option<String>,
    /// Share of priced time by how its coefficients were obtained.
    pub price_ranks: Option<IndexMap<Method, f64>>,
    /// Simulated seconds of the run.
    pub seconds: Option<f64>,
}

/// How close a simulated run is to the measured one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Grade {
    /// Everything the run depended on is recorded and modelled.
    G1,
    /// Some settings follow the engine's own rules instead of a record.
    G2,
    /// Another release ran, whose relevant code is shown to be the modelled one's.
    G3,
    /// Another release ran.
    G4,
    /// Not simulated.
    G5,
}

impl Prediction {
    /// The figures of a run.
    pub fn of(unit: &Unit, concurrency: u32, result: &RunResult, grade_reasons: Vec<String>) -> Self {
        let figure = |metric: Metric, statistic: Statistic| {
            let id = metric.definition().id;
            result.figures.iter().find(|figure| figure.metric == id && figure.statistic == statistic).and_then(|figure| figure.value)
        };
        let kv = result.kv.values().next();
        Self {
            mean_ttft_us: figure(Metric::Ttft, Statistic::Mean),
            mean_tpot_us: figure(Metric::Tpot, Statistic::Mean),
            p50_ttft_us: figure(Metric::Ttft, Statistic::P50),
            p90_ttft_us: figure(Metric::Ttft, Statistic::P90),
            p99_ttft_us: figure(Metric::Ttft, Statistic::P99),
            p50_tpot_us: figure(Metric::Tpot, Statistic::P50),
            p90_tpot_us: figure(Metric::Tpot, Statistic::P90),
            p99_tpot_us: figure(Metric::Tpot, Statistic::P99),
            output_tok_s: figure(Metric::OutputThroughput, Statistic::Rate),
            kv_tokens: kv.map(|kv| kv.tokens),
            preemptions: kv.map(|kv| kv.preemptions),
            grade: Grade::G4,
            grade_reasons,
            price_ranks: Some(result.prices.by_method.clone()),
            seconds: Some(result.frame.window_end_s),
            ..Self::refused(unit, concurrency, String::new())
        }
        .answered()
    }

    /// A point without figures.
    pub fn refused(unit: &Unit, concurrency: u32, reason: String) -> Self {
        Self {
            scenario: unit.scenario.clone(),
            label: unit.label.clone(),
            concurrency,
            mean_ttft_us: None,
            mean_tpot_us: None,
            p50_ttft_us: None,
            p90_ttft_us: None,
            p99_ttft_us: None,
            p50_tpot_us: None,
            p90_tpot_us: None,
            p99_tpot_us: None,
            output_tok_s: None,
            kv_tokens: None,
            preemptions: None,
            grade: Grade::G5,
            grade_reasons: vec![reason.clone()],
            refused: Some(reason),
            price_ranks: None,
            seconds: None,
        }
    }

    fn answered(self) -> Self {
        Self { refused: None, ..self }
    }
}
