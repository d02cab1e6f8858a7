//! Every sweep with its points, as the summary shows them.

use std::collections::BTreeMap;

use super::every_point;
use super::lanes::{Facts, band, tier};
use super::measured::{ByConcurrency, PeerAnswers, PeerTimes, SweepKey};
use super::points::{Answer, Answers, Compared};
use crate::prediction::Prediction;
use crate::summary::{Deployment, Latency, MeasuredPoint, PeerPoint, PointSummary, Rules, Simulated, SweepSummary};
use crate::sweep::Sweep;
use blis_registry::errors::family;

/// Every sweep that is known of, by name.
pub(crate) fn sweeps(facts: &Facts<'_>, truth: &Answers, compared: &[Compared], peers: &PeerAnswers, rules: &Rules) -> Vec<SweepSummary> {
    let mut points: BTreeMap<SweepKey, Vec<u32>> = BTreeMap::new();
    for (key, concurrency) in every_point(facts, truth) {
        points.entry(key).or_default().push(concurrency);
    }
    let of_sweep = |(key, points): (SweepKey, Vec<u32>)| SweepSummary {
        deployment: facts.sweeps.get(&key).map(deployment),
        tpot_band: band(&key, Latency::Tpot, compared, facts, rules),
        ttft_band: band(&key, Latency::Ttft, compared, facts, rules),
        points: points.into_iter().map(|concurrency| point(&key, concurrency, facts, truth, compared, peers)).collect(),
        scenario: key.0,
        label: key.1,
    };
    points.into_iter().map(of_sweep).collect()
}

fn deployment(sweep: &Sweep) -> Deployment {
    let model = sweep.model().unwrap_or_default();
    Deployment {
        model: model.to_owned(),
        family: family(model),
        chip: sweep.gpu.clone(),
        gpus: sweep.gpus(),
        engine: sweep.framework.clone(),
        build: sweep.build().to_owned(),
        precision: sweep.precision.clone(),
        layout: sweep.parallel.layout(),
        tier: tier(sweep),
        run_date: sweep.run_date.clone(),
        command: sweep.launch.server_command.clone(),
        env: sweep.launch.env.clone(),
        logged: sweep.settings.clone(),
    }
}

fn point(key: &SweepKey, concurrency: u32, facts: &Facts<'_>, truth: &Answers, compared: &[Compared], peers: &PeerAnswers) -> PointSummary {
    let prediction = facts.predictions.get(key).and_then(|points| points.get(&concurrency)).map(|point| &point.value);
    let measured = truth.get(key).and_then(|points| points.get(&concurrency));
    let sweep = facts.sweeps.get(key);
    let errors = compared.iter().find(|point| point.key == *key && point.concurrency == concurrency);
    let peer = |(name, answers): (&String, &BTreeMap<SweepKey, ByConcurrency<PeerTimes>>)| {
        let (mean_tpot_us, mean_ttft_us) = *answers.get(key)?.get(&concurrency)?;
        Some(PeerPoint { estimator: name.clone(), mean_tpot_us, mean_ttft_us })
    };
    PointSummary {
        concurrency,
        grade: prediction.map(|prediction| prediction.grade),
        grade_reasons: prediction.map(|prediction| prediction.grade_reasons.clone()).unwrap_or_default(),
        refused: prediction.and_then(|prediction| prediction.refused.clone()),
        simulated: prediction.and_then(|prediction| simulated(prediction, sweep)),
        measured: measured.map(|answer| measured_point(answer, concurrency, sweep)),
        tpot_error: errors.and_then(|point| point.tpot.mean),
        ttft_error: errors.and_then(|point| point.ttft.mean),
        kv_pool_ratio: errors.and_then(|point| point.kv_pool_ratio),
        price_ranks: prediction.and_then(|prediction| prediction.price_ranks.clone()),
        price_primitives: prediction.and_then(|prediction| prediction.price_primitives.clone()),
        peers: peers.iter().filter_map(peer).collect(),
    }
}

fn simulated(prediction: &Prediction, sweep: Option<&Sweep>) -> Option<Simulated> {
    let (mean_tpot_us, mean_ttft_us) = (prediction.mean_tpot_us?, prediction.mean_ttft_us?);
    Some(Simulated {
        mean_tpot_us,
        mean_ttft_us,
        output_tok_s_gpu: sweep.map(|sweep| throughput(sweep, prediction.concurrency, mean_tpot_us, mean_ttft_us)),
        output_tok_s: prediction.output_tok_s,
        kv_tokens: prediction.kv_tokens,
        preemptions: prediction.preemptions,
    })
}

fn measured_point(answer: &Answer, concurrency: u32, sweep: Option<&Sweep>) -> MeasuredPoint {
    let both = answer.tpot.mean.zip(answer.ttft.mean).zip(sweep);
    MeasuredPoint {
        mean_tpot_us: answer.tpot.mean,
        mean_ttft_us: answer.ttft.mean,
        output_tok_s_gpu: both.map(|((tpot, ttft), sweep)| throughput(sweep, concurrency, tpot, ttft)),
        kv_tokens: answer.kv_tokens,
    }
}

/// Output tokens per second and chip, by Little's law: the requests in flight, over the mean time each takes.
fn throughput(sweep: &Sweep, concurrency: u32, tpot_us: f64, ttft_us: f64) -> f64 {
    let tokens = sweep.mean_output_tokens();
    let seconds = (ttft_us + tpot_us * (tokens - 1.0)) / 1e6;
    f64::from(concurrency) * tokens / seconds / f64::from(sweep.gpus())
}
