//! One line of predictions: a point's figures, or why it has none.

use blis_contracts::fate::Fate;
use blis_contracts::metric::Metric;
use blis_contracts::provenance::Method;
use blis_contracts::result::{RunResult, Statistic};
use blis_contracts::scenario::{BenchmarkClient, Scenario, Workload};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grade::{Grade, GradeReason, ReasonCode, grade};
use crate::sweep::Sweep;

/// Share by which the requests in flight may differ, on average, from those the client kept up. The last requests of a run end one by
/// one, so that even an undisturbed run falls short.
const CONCURRENCY_TOLERANCE: f64 = 0.05;

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
    /// Tokens that the KV cache of one engine core holds, as the core reckons: what each logs.
    pub kv_tokens: Option<u64>,
    /// Preemptions.
    pub preemptions: Option<u64>,
    /// How close the simulated run is to the measured one: G1 (closest) to G5 (no figure).
    pub grade: Grade,
    /// Why the grade is not better.
    pub grade_reasons: Vec<GradeReason>,
    /// Why there is no figure; null where there is one.
    pub refused: Option<String>,
    /// Share of priced time by how its coefficients were obtained.
    pub price_ranks: Option<IndexMap<Method, f64>>,
    /// Share of priced time by what is priced.
    pub price_primitives: Option<IndexMap<String, f64>>,
    /// Share of priced time outside the range its coefficients were fitted in.
    pub extrapolated: Option<f64>,
    /// The frame of the run; null where it did not run.
    pub frame: Option<PointFrame>,
    /// Simulated seconds of the run.
    pub seconds: Option<f64>,
}

/// The frame a point was simulated in. Its requests are the client's own, so that nothing in the run is random.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PointFrame {
    /// The state the run started from.
    pub start: String,
    /// Requests sent before the counted ones.
    pub warm_up: u32,
    /// What ended the run.
    pub stop: String,
    /// Start of the measured window, in seconds of simulated time.
    pub window_start_s: f64,
    /// End of the measured window, in seconds of simulated time.
    pub window_end_s: f64,
    /// Requests in flight, averaged over the window.
    pub concurrency: Option<f64>,
}

impl Prediction {
    /// A point that ran. One that served nothing has no figures, and the reason why is returned instead.
    pub(crate) fn of(sweep: &Sweep, scenario: &Scenario, result: &RunResult, mut reasons: Vec<GradeReason>) -> Result<Self, GradeReason> {
        let Workload::Benchmark(BenchmarkClient::Inferencex(client)) = &scenario.workload else {
            unreachable!("points are scenarios of the benchmark client")
        };
        let figure = |metric: Metric, statistic: Statistic| {
            let id = metric.definition().id;
            result.figures.iter().find(|figure| figure.metric == id && figure.statistic == statistic).and_then(|figure| figure.value)
        };
        let means = (figure(Metric::Ttft, Statistic::Mean), figure(Metric::Tpot, Statistic::Mean));
        let (Some(_), Some(_)) = means else { return Err(served_nothing(result)) };
        let achieved = figure(Metric::Concurrency, Statistic::Mean);
        reasons.extend(of_load(client.concurrency, achieved));
        reasons.extend(of_fates(result));
        reasons.extend(of_prices(result));
        reasons.sort();
        let kv = result.kv.values().next();
        let frame = PointFrame {
            start: result.frame.start.clone(),
            warm_up: client.warmup,
            stop: result.frame.stop.clone(),
            window_start_s: result.frame.window_start_s,
            window_end_s: result.frame.window_end_s,
            concurrency: achieved,
        };
        Ok(Self {
            scenario: sweep.scenario.clone(),
            label: sweep.label.clone(),
            concurrency: client.concurrency,
            mean_ttft_us: means.0,
            mean_tpot_us: means.1,
            p50_ttft_us: figure(Metric::Ttft, Statistic::P50),
            p90_ttft_us: figure(Metric::Ttft, Statistic::P90),
            p99_ttft_us: figure(Metric::Ttft, Statistic::P99),
            p50_tpot_us: figure(Metric::Tpot, Statistic::P50),
            p90_tpot_us: figure(Metric::Tpot, Statistic::P90),
            p99_tpot_us: figure(Metric::Tpot, Statistic::P99),
            output_tok_s: figure(Metric::OutputThroughput, Statistic::Rate),
            kv_tokens: kv.map(|kv| kv.tokens / u64::from(kv.cores.max(1))),
            preemptions: kv.map(|kv| kv.preemptions),
            grade: grade(&reasons),
            grade_reasons: reasons,
            refused: None,
            price_ranks: Some(result.prices.by_method.clone()),
            price_primitives: Some(result.prices.by_primitive.clone()),
            extrapolated: Some(result.prices.extrapolated),
            frame: Some(frame),
            seconds: Some(result.frame.window_end_s),
        })
    }

    /// A point without figures, and every reason why.
    pub(crate) fn refused(sweep: &Sweep, concurrency: u32, mut reasons: Vec<GradeReason>) -> Self {
        reasons.sort();
        reasons.dedup();
        let texts: Vec<&str> = reasons.iter().map(|reason| reason.text.as_str()).collect();
        Self {
            scenario: sweep.scenario.clone(),
            label: sweep.label.clone(),
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
            refused: Some(texts.join("; ")),
            grade_reasons: reasons,
            price_ranks: None,
            price_primitives: None,
            extrapolated: None,
            frame: None,
            seconds: None,
        }
    }
}

/// Why a run that ended has no latency.
fn served_nothing(result: &RunResult) -> GradeReason {
    let most = result.refusals.iter().max_by_key(|(_, count)| **count);
    let text = most.map_or_else(
        || "no request received a second token".to_owned(),
        |(reason, count)| format!("{count} requests were refused: {reason}"),
    );
    GradeReason::new(ReasonCode::RunRefused, "requests", text)
}

/// Whether the run held the load that the client kept up.
fn of_load(wanted: u32, achieved: Option<f64>) -> Option<GradeReason> {
    let share = achieved? / f64::from(wanted);
    let text = || format!("{:.1} requests were in flight on average, of {wanted} that the client kept up", share * f64::from(wanted));
    ((1.0 - share).abs() > CONCURRENCY_TOLERANCE).then(|| GradeReason::new(ReasonCode::ConcurrencyOff, "concurrency", text()))
}

/// Requests that did not complete.
fn of_fates(result: &RunResult) -> impl Iterator<Item = GradeReason> + '_ {
    let lost = result.fates.iter().filter(|(fate, count)| **fate != Fate::Completed && **count > 0);
    lost.map(|(fate, count)| {
        GradeReason::new(ReasonCode::RequestsUnserved, fate.as_str(), format!("{count} requests were {}", fate.as_str()))
    })
}

/// Prices that do not rest on a fit of the kernel itself within its range.
fn of_prices(result: &RunResult) -> Vec<GradeReason> {
    let percent = |share: f64| format!("{:.1} % of the time is priced", 100.0 * share);
    let methods = result.prices.by_method.iter().filter(|(_, share)| **share > 0.0);
    let mut reasons: Vec<GradeReason> = methods
        .filter_map(|(method, share)| {
            let code = match method {
                Method::Measured | Method::Calibrated => return None,
                Method::Transferred => ReasonCode::KernelBorrowed,
                Method::Literature | Method::VendorSpec | Method::Roofline | Method::Assumed | Method::NotCharged => {
                    ReasonCode::CoefficientNotFitted
                }
            };
            Some(GradeReason::new(code, method.as_str(), format!("{} by the method {method}", percent(*share))))
        })
        .collect();
    if result.prices.extrapolated > 0.0 {
        let text = format!("{} outside the range its coefficients were fitted in", percent(result.prices.extrapolated));
        reasons.push(GradeReason::new(ReasonCode::CoefficientExtrapolated, "range", text));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_off_beyond_the_tolerance_only() {
        assert_eq!(of_load(64, Some(62.0)), None);
        assert_eq!(of_load(64, None), None);
        let off = of_load(64, Some(32.0)).unwrap();
        assert_eq!(
            (off.code, off.text.as_str()),
            (ReasonCode::ConcurrencyOff, "32.0 requests were in flight on average, of 64 that the client kept up")
        );
    }
}
