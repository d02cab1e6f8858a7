//! Figures over sets of compared points, under the rules that the summary states.

use indexmap::IndexMap;

use super::bootstrap::{Clusters, Draws, Statistic, middle};
use super::points::Compared;
use crate::summary::{Figure, Figures, Latency, LatencyErrors, Rules};

/// What each figure means; the summary carries these sentences.
const DEFINITIONS: &[(&str, &str)] = &[
    ("absolute", "mean over points of |simulated / measured - 1|, in percent"),
    ("median", "median over points of |simulated / measured - 1|, in percent"),
    ("signed", "mean over points of simulated / measured - 1, in percent; above zero means that the simulation is slower"),
    (
        "shape",
        "within a sweep each side is divided by its own value at the lowest measured concurrency, which is then left out; \
         mean over the remaining points of |quotient of simulation / quotient of measurement - 1|, in percent",
    ),
    ("percentiles", "mean over points of the mean relative distance of the percentiles 50, 90 and 99 that were measured, in percent"),
    ("kv_pool_ratio", "mean over points of simulated / measured tokens that the KV cache holds"),
    ("interval", "percentile bootstrap over whole sweeps; it covers which deployments were measured, not the noise of a measurement"),
    (
        "band",
        "range of measured / simulated over points of other sweeps, of the same family where there are enough: the share of them that \
         `band_percent` states lies inside",
    ),
    (
        "throughput",
        "output tokens per second and chip by Little's law, the same formula for both sides: concurrency x mean output length / (mean TTFT + \
         mean TPOT x (mean output length - 1)) / chips",
    ),
    ("tpot", "(time of the last token - time of the first) / (output tokens - 1) of a request, mean over requests"),
    ("ttft", "from taking a place in flight to the first token, mean over requests"),
];

impl Default for Rules {
    fn default() -> Self {
        Self {
            minimum_points: 10,
            minimum_sweeps: 5,
            confidence_percent: 95.0,
            resamples: 2_000,
            paired_resamples: 10_000,
            seed: 0,
            familywise_percent: 5.0,
            band_percent: 80.0,
            definitions: DEFINITIONS.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect::<IndexMap<_, _>>(),
        }
    }
}

/// The rules with the draws that they ask for.
#[derive(Debug)]
pub(crate) struct Judge {
    pub(crate) rules: Rules,
    pub(crate) draws: Draws,
}

impl Default for Judge {
    fn default() -> Self {
        let rules = Rules::default();
        Self { draws: Draws::new(rules.seed), rules }
    }
}

/// Every figure over some points, which come by sweep.
pub(crate) fn figures(points: &[&Compared], judge: &Judge) -> Figures {
    let clusters = Clusters::of(points.iter().map(|point| (point.sweep, 0.0)));
    Figures {
        points: points.len(),
        sweeps: clusters.sweeps(),
        tpot: latency_errors(points, Latency::Tpot, judge),
        ttft: latency_errors(points, Latency::Ttft, judge),
        kv_pool_ratio: figure(points, |point| point.kv_pool_ratio, Statistic::Mean, judge),
    }
}

fn latency_errors(points: &[&Compared], latency: Latency, judge: &Judge) -> LatencyErrors {
    LatencyErrors {
        absolute: figure(points, |point| point.errors(latency).mean.map(f64::abs), Statistic::Mean, judge),
        median: figure(points, |point| point.errors(latency).mean.map(f64::abs), Statistic::Median, judge),
        signed: figure(points, |point| point.errors(latency).mean, Statistic::Mean, judge),
        shape: figure(points, |point| point.errors(latency).shape.map(f64::abs), Statistic::Mean, judge),
        shape_signed: figure(points, |point| point.errors(latency).shape, Statistic::Mean, judge),
        percentiles: figure(points, |point| point.errors(latency).percentiles, Statistic::Mean, judge),
    }
}

fn figure(points: &[&Compared], value: impl Fn(&Compared) -> Option<f64>, statistic: Statistic, judge: &Judge) -> Figure {
    let clusters = Clusters::of(points.iter().filter_map(|point| Some((point.sweep, value(point)?))));
    let (points, sweeps) = (clusters.points(), clusters.sweeps());
    let enough = points >= judge.rules.minimum_points;
    let interval = (enough && sweeps >= judge.rules.minimum_sweeps)
        .then(|| middle(&clusters.resampled(statistic, judge.rules.resamples, &judge.draws), judge.rules.confidence_percent / 100.0));
    Figure { value: enough.then(|| clusters.statistic(statistic)), interval, points, sweeps }
}
