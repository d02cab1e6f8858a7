//! From samples to figures, by the definitions of the metric registry.

use blis_contracts::metric::Metric;
use blis_contracts::result::{Figure, Statistic};

use crate::histogram::Histogram;
use crate::objectives::Class;
use crate::outcome::Outcome;
use crate::tally::quantile_of_sorted;

/// The scope of figures over everything.
const CLUSTER: &str = "cluster";

const LATENCY_STATISTICS: [Statistic; 6] =
    [Statistic::Mean, Statistic::P50, Statistic::P90, Statistic::P95, Statistic::P99, Statistic::Max];

const SECONDS_OF_AN_HOUR: f64 = 3600.0;

/// What the cluster holds and costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resources {
    /// Accelerators of the cluster.
    pub accelerators: u32,
    /// KV blocks its pool can use.
    pub usable_blocks: u64,
    /// Dollars for one accelerator and one hour; none where the scenario states no price.
    pub usd_per_gpu_hour: Option<f64>,
}

/// Every figure of a run: the cluster's, then those of each service class with an objective, where there are several.
pub fn figures(outcome: &Outcome, resources: &Resources) -> Vec<Figure> {
    let mut all = latencies(outcome);
    all.extend(rates(outcome, resources));
    all.extend(objectives(outcome));
    all.extend(occupancies(outcome, resources));
    let of_cluster = |figure: &Figure| figure.scope == CLUSTER;
    let place = |figure: &Figure| Metric::ALL.iter().position(|metric| metric.definition().id == figure.metric);
    all.sort_by_key(|figure| (!of_cluster(figure), figure.scope.clone(), place(figure)));
    all
}

fn latencies(outcome: &Outcome) -> Vec<Figure> {
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
    let tpot: Vec<&Figure> = all.iter().filter(|figure| figure.metric == Metric::Tpot.definition().id).collect();
    let reciprocal = |statistic: &Statistic| {
        let tpot = tpot.iter().find(|figure| figure.statistic == *statistic);
        let value = tpot.and_then(|figure| figure.value).filter(|us| *us > 0.0).map(|us| 1e6 / us);
        figure(Metric::Interactivity, *statistic, value, tally.tpot_us.len() as u64, unfinished)
    };
    let interactivity: Vec<Figure> = Metric::Interactivity.statistics().iter().map(reciprocal).collect();
    all.extend(interactivity);
    all.extend(of_histogram(&tally.itl_us));
    all
}

fn rates(outcome: &Outcome, resources: &Resources) -> Vec<Figure> {
    let tally = &outcome.tally;
    let unfinished = tally.unfinished();
    let accelerators = f64::from(resources.accelerators);
    let mut all = Vec::new();
    let mut rate = |metric, count: u64, share: f64| {
        let value = per_second(outcome, count).filter(|_| count > 0).map(|value| value / share);
        all.push(figure(metric, Statistic::Rate, value, count, unfinished));
    };
    rate(Metric::RequestThroughput, tally.completed(), 1.0);
    rate(Metric::InputThroughput, tally.completed_prompt, 1.0);
    rate(Metric::OutputThroughput, tally.measured_output, 1.0);
    rate(Metric::TotalThroughput, tally.completed_tokens, 1.0);
    rate(Metric::OutputThroughputPerGpu, tally.measured_output, accelerators);
    rate(Metric::TotalThroughputPerGpu, tally.completed_tokens, accelerators);
    if let Some(price) = resources.usd_per_gpu_hour {
        let per_second_usd = price * accelerators / SECONDS_OF_AN_HOUR;
        for (metric, tokens) in [
            (Metric::CostPerMillionInputTokens, tally.completed_prompt),
            (Metric::CostPerMillionOutputTokens, tally.measured_output),
            (Metric::CostPerMillionTokens, tally.completed_tokens),
        ] {
            let value = per_second(outcome, tokens).filter(|_| tokens > 0).map(|tokens| per_second_usd / tokens * 1e6);
            all.push(figure(metric, Statistic::Mean, value, tokens, unfinished));
        }
    }
    all
}

fn per_second(outcome: &Outcome, count: u64) -> Option<f64> {
    let window_s = outcome.window_end.since(outcome.window_start).as_seconds();
    (window_s > 0.0).then(|| count as f64 / window_s)
}

/// Goodput and attainment over all classes with an objective, and of each where there are several.
fn objectives(outcome: &Outcome) -> Vec<Figure> {
    let classes = outcome.tally.objectives.classes();
    let of = |scope: &str, members: &[Class]| {
        let sum = |count: fn(&Class) -> u64| members.iter().map(count).sum::<u64>();
        let (met, judged, unfinished) = (sum(|class| class.met), sum(|class| class.judged), sum(|class| class.unfinished));
        let attained = (judged > 0).then(|| met as f64 / judged as f64);
        [
            figure(Metric::Goodput, Statistic::Rate, per_second(outcome, met), met, unfinished),
            figure(Metric::SloAttainment, Statistic::Mean, attained, judged, unfinished),
        ]
        .map(|figure| Figure { scope: scope.to_owned(), ..figure })
    };
    let mut all = Vec::new();
    if !classes.is_empty() {
        all.extend(of(CLUSTER, classes));
    }
    if classes.len() > 1 {
        all.extend(classes.iter().flat_map(|class| of(&format!("class/{}", class.name), std::slice::from_ref(class))));
    }
    all
}

fn occupancies(outcome: &Outcome, resources: &Resources) -> [Figure; 2] {
    let sent = outcome.tally.measured.values().sum();
    let usable = resources.usable_blocks;
    let share = outcome.used_blocks.filter(|_| usable > 0).map(|blocks| blocks / usable as f64);
    [
        figure(Metric::Concurrency, Statistic::Mean, outcome.concurrency, sent, 0),
        figure(Metric::KvUtilisation, Statistic::Mean, share, outcome.engine.steps, 0),
    ]
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
        scope: CLUSTER.to_owned(),
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
