//! Two sets of predictions on the same points: better, worse or not distinguished, for every lane at once.
//!
//! Each lane's question is whether the candidate's absolute error differs from the base's. With many lanes some would differ by chance,
//! so Holm's step-down correction shares the chance of a false verdict among them: the lane with the clearest difference is held to the
//! strictest level, and once one is not distinguished, no less clear one is.

use super::bootstrap::{Clusters, Statistic, middle};
use super::figures::Judge;
use super::lanes::{Facts, lanes_by};
use super::points::{Answers, Compared, compared, shared};
use crate::summary::{Dimension, Latency, Outcome, Paired, PairedLane, Rules};

/// A lane with the resampled differences that its verdict rests on.
struct Tested {
    lane: usize,
    p: f64,
    resampled: Vec<f64>,
}

/// Compares a candidate's answers with a base's.
pub(crate) fn paired(base: &Answers, candidate: &Answers, truth: &Answers, facts: &Facts<'_>, judge: &Judge) -> Paired {
    let rules = &judge.rules;
    let count = |answers: &Answers| compared(answers, truth).len();
    let (base_points, candidate_points) = (count(base), count(candidate));
    let (base, candidate) = (compared(&shared(base, candidate), truth), compared(&shared(candidate, base), truth));
    let points: Vec<&Compared> = candidate.iter().collect();
    let mut groups = vec![(None, "all".to_owned(), points.clone())];
    groups.extend(lanes_by(Dimension::Family, &points, facts).into_iter().map(|(value, points)| (Some(Dimension::Family), value, points)));
    let mut lanes = Vec::new();
    let mut tested = Vec::new();
    for (dimension, value, points) in groups {
        for latency in [Latency::Tpot, Latency::Ttft] {
            let clusters = differences(&base, &points, latency);
            let (count, sweeps) = (clusters.points(), clusters.sweeps());
            let difference = (count >= rules.minimum_points).then(|| clusters.statistic(Statistic::Mean));
            if difference.is_some() && sweeps >= rules.minimum_sweeps {
                let resampled = clusters.resampled(Statistic::Mean, rules.paired_resamples, &judge.draws);
                tested.push(Tested { lane: lanes.len(), p: chance(&resampled), resampled });
            }
            lanes.push(PairedLane {
                dimension,
                value: value.clone(),
                latency,
                points: count,
                sweeps,
                difference,
                interval: None,
                corrected_p: None,
                outcome: None,
            });
        }
    }
    let lanes_compared = tested.len();
    decide(&mut lanes, tested, rules);
    let points = points.len();
    Paired { points, only_base: base_points - points, only_candidate: candidate_points - points, lanes_compared, lanes }
}

/// Holm's procedure: the clearest lane first, each at its own level, until one is not distinguished.
fn decide(lanes: &mut [PairedLane], mut tested: Vec<Tested>, rules: &Rules) {
    tested.sort_by(|one, other| one.p.total_cmp(&other.p).then(one.lane.cmp(&other.lane)));
    let (count, level) = (tested.len(), rules.familywise_percent / 100.0);
    let (mut corrected, mut stopped) = (0.0_f64, false);
    for (rank, Tested { lane, p, resampled }) in tested.into_iter().enumerate() {
        let left = (count - rank) as f64;
        corrected = corrected.max((p * left).min(1.0));
        stopped |= corrected > level;
        let lane = &mut lanes[lane];
        lane.interval = Some(middle(&resampled, 1.0 - level / left));
        lane.corrected_p = Some(corrected);
        lane.outcome = Some(match lane.difference {
            Some(difference) if !stopped && difference < 0.0 => Outcome::Better,
            Some(difference) if !stopped && difference > 0.0 => Outcome::Worse,
            Some(_) | None => Outcome::NotDistinguished,
        });
    }
}

/// The chance of resampled differences this far on one side of zero, for both sides.
fn chance(resampled: &[f64]) -> f64 {
    let below = resampled.iter().filter(|value| **value <= 0.0).count();
    let above = resampled.iter().filter(|value| **value >= 0.0).count();
    (2.0 * (below.min(above) + 1) as f64 / (resampled.len() + 1) as f64).min(1.0)
}

/// The candidate's absolute error less the base's, point by point.
fn differences(base: &[Compared], candidate: &[&Compared], latency: Latency) -> Clusters {
    Clusters::of(candidate.iter().filter_map(|point| {
        let at = base.binary_search_by(|other| (other.sweep, other.concurrency).cmp(&(point.sweep, point.concurrency))).ok()?;
        let error = |point: &Compared| point.errors(latency).mean.map(f64::abs);
        Some((point.sweep, error(point)? - error(&base[at])?))
    }))
}
