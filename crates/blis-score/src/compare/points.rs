//! Predictions and measurements of the same points, as relative errors.
//!
//! The shape error is that of the `AISimulate` project: within a sweep each side is divided by its own value at the sweep's lowest measured
//! concurrency, that anchor is left out, and the relative errors of the quotients are pooled over sweeps. A sweep whose anchor has no
//! answer has no shape error.

use std::collections::BTreeMap;

use super::measured::{ByConcurrency, Measured, Predictions, SweepKey};
use crate::jsonl::Numbered;
use crate::prediction::Prediction;
use crate::summary::Latency;

/// Times of one latency at one point, in microseconds: the mean, then the percentiles 50, 90 and 99.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Times {
    pub(crate) mean: Option<f64>,
    pub(crate) percentiles: [Option<f64>; 3],
}

/// What a side says about one point.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Answer {
    pub(crate) tpot: Times,
    pub(crate) ttft: Times,
    pub(crate) kv_tokens: Option<u64>,
}

/// What a side says, by sweep and concurrency.
pub(crate) type Answers = BTreeMap<SweepKey, ByConcurrency<Answer>>;

/// Relative errors of one latency at one point, in percent; null where a side is missing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Errors {
    pub(crate) mean: Option<f64>,
    pub(crate) shape: Option<f64>,
    pub(crate) percentiles: Option<f64>,
}

/// One compared point.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Compared {
    /// Position of the sweep among the measured ones.
    pub(crate) sweep: usize,
    pub(crate) key: SweepKey,
    pub(crate) concurrency: u32,
    pub(crate) tpot: Errors,
    pub(crate) ttft: Errors,
    /// Simulated over measured.
    pub(crate) kv_pool_ratio: Option<f64>,
}

impl Answer {
    pub(crate) fn times(&self, latency: Latency) -> &Times {
        match latency {
            Latency::Tpot => &self.tpot,
            Latency::Ttft => &self.ttft,
        }
    }
}

impl Compared {
    pub(crate) fn errors(&self, latency: Latency) -> &Errors {
        match latency {
            Latency::Tpot => &self.tpot,
            Latency::Ttft => &self.ttft,
        }
    }
}

/// What predictions say. A refused point says nothing and is left out.
pub(crate) fn predicted(predictions: &Predictions) -> Answers {
    let answer = |prediction: &Prediction| Answer {
        tpot: Times {
            mean: prediction.mean_tpot_us,
            percentiles: [prediction.p50_tpot_us, prediction.p90_tpot_us, prediction.p99_tpot_us],
        },
        ttft: Times {
            mean: prediction.mean_ttft_us,
            percentiles: [prediction.p50_ttft_us, prediction.p90_ttft_us, prediction.p99_ttft_us],
        },
        kv_tokens: prediction.kv_tokens,
    };
    let of_sweep = |points: &ByConcurrency<Numbered<Prediction>>| {
        points
            .iter()
            .filter(|(_, point)| point.value.refused.is_none())
            .map(|(concurrency, point)| (*concurrency, answer(&point.value)))
            .collect()
    };
    predictions.iter().map(|(key, points)| (key.clone(), of_sweep(points))).collect()
}

/// What measurements say.
pub(crate) fn observed(measured: &BTreeMap<SweepKey, Numbered<Measured>>) -> Answers {
    let of_sweep = |sweep: &Measured| -> ByConcurrency<Answer> {
        let at = |values: &ByConcurrency<f64>, concurrency| values.get(&concurrency).copied();
        let answer = |c: u32| Answer {
            tpot: Times {
                mean: at(&sweep.mean_tpot_us, c),
                percentiles: [&sweep.p50_tpot_us, &sweep.p90_tpot_us, &sweep.p99_tpot_us].map(|p| at(p, c)),
            },
            ttft: Times {
                mean: at(&sweep.mean_ttft_us, c),
                percentiles: [&sweep.p50_ttft_us, &sweep.p90_ttft_us, &sweep.p99_ttft_us].map(|p| at(p, c)),
            },
            kv_tokens: sweep.kv_tokens(c),
        };
        sweep.mean_tpot_us.keys().chain(sweep.mean_ttft_us.keys()).map(|&concurrency| (concurrency, answer(concurrency))).collect()
    };
    measured.iter().map(|(key, sweep)| (key.clone(), of_sweep(&sweep.value))).collect()
}

/// Answers reduced to the means that another side has too, so that both are judged on the same points.
pub(crate) fn shared(answers: &Answers, other: &Answers) -> Answers {
    let both = |mine: Times, theirs: Times| Times { mean: mine.mean.filter(|_| theirs.mean.is_some()), percentiles: [None; 3] };
    let of_sweep = |points: &ByConcurrency<Answer>, others: &ByConcurrency<Answer>| {
        let point = |(concurrency, mine): (&u32, &Answer)| {
            let theirs = others.get(concurrency)?;
            Some((*concurrency, Answer { tpot: both(mine.tpot, theirs.tpot), ttft: both(mine.ttft, theirs.ttft), kv_tokens: None }))
        };
        points.iter().filter_map(point).collect()
    };
    answers.iter().filter_map(|(key, points)| Some((key.clone(), of_sweep(points, other.get(key)?)))).collect()
}

/// The points that both sides answer with at least one mean, by sweep and concurrency.
pub(crate) fn compared(answers: &Answers, truth: &Answers) -> Vec<Compared> {
    let mut points = Vec::new();
    for (sweep, (key, measured)) in truth.iter().enumerate() {
        let Some(answered) = answers.get(key) else { continue };
        for (&concurrency, truth) in measured {
            let Some(answer) = answered.get(&concurrency) else { continue };
            let errors = |latency| errors(latency, concurrency, answered, measured);
            let (tpot, ttft) = (errors(Latency::Tpot), errors(Latency::Ttft));
            let ratio = |(simulated, measured): (u64, u64)| simulated as f64 / measured as f64;
            if tpot.mean.is_some() || ttft.mean.is_some() {
                let kv_pool_ratio = answer.kv_tokens.zip(truth.kv_tokens).map(ratio);
                points.push(Compared { sweep, key: key.clone(), concurrency, tpot, ttft, kv_pool_ratio });
            }
        }
    }
    points
}

fn errors(latency: Latency, concurrency: u32, answers: &ByConcurrency<Answer>, truth: &ByConcurrency<Answer>) -> Errors {
    let (answer, measured) = (answers[&concurrency].times(latency), truth[&concurrency].times(latency));
    let mean = |at: u32| Some((answers.get(&at)?.times(latency).mean?, truth.get(&at)?.times(latency).mean?));
    let anchor = truth.iter().find(|(_, answer)| answer.times(latency).mean.is_some()).map(|(anchor, _)| *anchor);
    let shape = anchor.filter(|&anchor| anchor != concurrency).and_then(|anchor| {
        let ((ours, theirs), (our_anchor, their_anchor)) = (mean(concurrency)?, mean(anchor)?);
        Some(percent(ours / our_anchor, theirs / their_anchor))
    });
    let pairs = answer.percentiles.into_iter().zip(measured.percentiles);
    let distances: Vec<f64> = pairs.filter_map(|(ours, theirs)| Some(percent(ours?, theirs?).abs())).collect();
    let percentiles = (!distances.is_empty()).then(|| distances.iter().sum::<f64>() / distances.len() as f64);
    Errors { mean: mean(concurrency).map(|(ours, theirs)| percent(ours, theirs)), shape, percentiles }
}

/// How far a value lies above another, in percent of it.
pub(crate) fn percent(value: f64, reference: f64) -> f64 {
    100.0 * (value / reference - 1.0)
}
