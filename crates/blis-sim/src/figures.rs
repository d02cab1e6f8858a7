//! From samples to figures, by the definitions of the metric registry.

use blis_contracts::metric::Metric;
use blis_contracts::result::{Figure, Statistic};

use crate::histogram::Histogram;
use crate::simulation::Outcome;
use crate::tally::quantile_of_sorted;

const LATENCY_STATISTICS: [Statistic; 6] =
    [Statistic::Mean, Statistic::P50, Statistic::P90, Statistic::P95, Statistic::P99, Statistic::Max];

/// Every figure of a run at the scope of the whole cluster.
///
/// `accelerators` is what the cluster holds, `usable_blocks` what its KV pool holds.
pub fn figures(outcome: &Outcome, accelerators: u32, usable_blocks: u64) -> Vec<Figure> {
    let tally = &outcome.tally;
    let unfinished = tally.unfinished();
    let mut all = Vec::new();
    for (metric, samples) in [
        (Metric::Ttft, &tally.ttft_us),
        (Metric::Tpot, &tally.tpot_us),
        (Metric::E2el, &tally.e2el_us),
        (Metric::QueueDelay, &tally.queue_delay_us),
    ] {
        all.extend(of_samples(metric, samples.clone(), unfinished));
    }
    all.extend(of_samples(Metric::Interactivity, tally.tpot_us.iter().filter(|us| **us > 0.0).map(|us| 1e6 / us).collect(), unfinished));
    all.extend(of_histogram(&tally.itl_us));
    let window_s = outcome.window_end.since(outcome.window_start).as_seconds();
    let rate = |metric, count: u64, share: f64| {
        let value = (window_s > 0.0 && count > 0).then(|| count as f64 / window_s / share);
        figure(metric, Statistic::Rate, value, count, unfinished)
    };
    all.push(rate(Metric::RequestThroughput, tally.completed(), 1.0));
    all.push(rate(Metric::OutputThroughput, tally.measured_output, 1.0));
    all.push(rate(Metric::TotalThroughput, tally.completed_tokens, 1.0));
    all.push(rate(Metric::OutputThroughputPerGpu, tally.measured_output, f64::from(accelerators)));
    let sent = tally.measured.values().sum();
    all.push(figure(Metric::Concurrency, Statistic::Mean, outcome.concurrency, sent, 0));
    let share = outcome.used_blocks.filter(|_| usable_blocks > 0).map(|blocks| blocks / usable_blocks as f64);
    all.push(figure(Metric::KvUtilisation, Statistic::Mean, share, outcome.engine.steps, 0));
    all.sort_by_key(|figure| Metric::ALL.iter().position(|metric| metric.definition().id == figure.metric));
    all
}

fn of_samples(metric: Metric, mut samples: Vec<f64>, unfinished: u64) -> Vec<Figure> {
    let n = samples.len() as u64;
    let mean = (n > 0).then(|| samples.iter().sum::<f64>() / n as f64);
    samples.sort_by(f64::total_cmp);
    LATENCY_STATISTICS
        .map(|statistic| {
            let value = match statistic.quantile() {
                Some(q) => quantile_of_sorted(&samples, q).filter(|_| leaves_room(q, n, unfinished)),
                None if statistic == Statistic::Mean => mean,
                None => samples.last().copied().filter(|_| unfinished == 0),
            };
            figure(metric, statistic, value, n, unfinished)
        })
        .to_vec()
}

fn of_histogram(gaps: &Histogram) -> Vec<Figure> {
    LATENCY_STATISTICS
        .map(|statistic| {
            let value = match statistic.quantile() {
                Some(q) => gaps.quantile(q),
                None if statistic == Statistic::Mean => gaps.mean(),
                None => gaps.max().map(|micros| micros as f64),
            };
            figure(Metric::Itl, statistic, value, gaps.samples(), 0)
        })
        .to_vec()
}

/// Whether a quantile is known although some requests have no sample: they may all lie above it.
fn leaves_room(q: f64, n: u64, unfinished: u64) -> bool {
    unfinished as f64 <= (1.0 - q) * (n + unfinished) as f64 + 1e-9
}

fn figure(metric: Metric, statistic: Statistic, value: Option<f64>, n: u64, unfinished: u64) -> Figure {
    let definition = metric.definition();
    Figure {
        metric: definition.id.to_owned(),
        scope: "cluster".to_owned(),
        statistic,
        value,
        unit: definition.unit.to_owned(),
        n,
        unfinished,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_withheld_where_unfinished_requests_could_move_it() {
        let figures = of_samples(Metric::Ttft, (1..=90).map(f64::from).collect(), 10);
        let value = |statistic| figures.iter().find(|figure| figure.statistic == statistic).unwrap().value;
        assert_eq!(value(Statistic::P50), Some(45.5));
        assert!(value(Statistic::P90).is_some());
        assert_eq!(value(Statistic::P95), None);
        assert_eq!(value(Statistic::Max), None);
    }
}
