//! Whether two traces are the same workload: two-sample checks of load, burstiness, lengths, sessions and shared text, phase by phase.
//!
//! A conversion keeps all of them. Lengths are compared by the two-sample statistic of Kolmogorov and Smirnov, the largest distance between
//! two distribution functions, of prompts, of outputs and of both together (by their sum and by their difference, which catch a pairing
//! that was lost); its bound is the one that equal distributions pass 999 times in 1,000. Rates and coefficients of variation may differ
//! by a share that two draws of one Poisson process exceed about as seldom.
//!
//! Source: N. V. Smirnov, "Table for estimating the goodness of fit of empirical distributions", Annals of Mathematical Statistics 19,
//! 1948, for the asymptotic law of the statistic.

use std::collections::BTreeMap;

use super::Trace;
use super::shared::share_of_known;

/// The share by which two numbers may differ however many samples there are.
const SHARE: f64 = 0.01;

/// Standard errors by which two draws of one distribution may differ.
const ERRORS: f64 = 3.3;

/// The largest statistic, before scaling by sample sizes, that equal distributions pass with a probability of 0.999.
const SMIRNOV: f64 = 1.949;

/// A number of prompt and output tokens together.
type OfLengths = fn(f64, f64) -> f64;

/// One comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// What is compared.
    pub what: String,
    /// The first trace's value, or the statistic of two samples.
    pub first: f64,
    /// The second trace's value, or the statistic's bound.
    pub second: f64,
    /// Whether the traces agree.
    pub holds: bool,
}

/// Every comparison of two traces.
pub fn compare(first: &Trace, second: &Trace) -> Vec<Check> {
    let phases = |trace: &Trace| -> BTreeMap<Option<u32>, Trace> {
        let mut parts: BTreeMap<Option<u32>, Trace> = BTreeMap::new();
        for row in &trace.rows {
            parts.entry(row.phase).or_default().rows.push(row.clone());
        }
        parts
    };
    let (left, right) = (phases(first), phases(second));
    let mut checks = vec![check("phases", left.len() as f64, right.len() as f64)];
    for (phase, one) in &left {
        let Some(other) = right.get(phase) else {
            checks.push(Check { what: format!("phase {phase:?}"), first: one.rows.len() as f64, second: 0.0, holds: false });
            continue;
        };
        let of = |what: &str| phase.map_or_else(|| what.to_owned(), |phase| format!("{what}, phase {phase}"));
        checks.extend(in_phase(one, other).into_iter().map(|check| Check { what: of(&check.what), ..check }));
    }
    checks
}

/// The comparisons within one phase.
fn in_phase(first: &Trace, second: &Trace) -> Vec<Check> {
    let mut checks = vec![check("requests", first.rows.len() as f64, second.rows.len() as f64)];
    let (one, other) = (Gaps::of(first), Gaps::of(second));
    let share = SHARE + ERRORS * libm::sqrt(1.0 / one.count.max(1.0) + 1.0 / other.count.max(1.0));
    checks.push(within(share, "requests per second", one.rate, other.rate));
    checks.push(within(share, "variation of gaps", one.variation, other.variation));
    let sample = |trace: &Trace, value: OfLengths| -> Vec<f64> {
        trace.rows.iter().map(|row| value(row.prompt.tokens() as f64, f64::from(row.output_tokens))).collect()
    };
    let lengths: [(&str, OfLengths); 4] = [
        ("prompt tokens", |input, _| input),
        ("output tokens", |_, output| output),
        ("prompt and output together", |input, output| input + output),
        ("prompt less output", |input, output| input - output),
    ];
    checks.extend(lengths.map(|(what, value)| smirnov(what, sample(first, value), sample(second, value))));
    checks.push(smirnov("rounds of sessions", rounds(first), rounds(second)));
    checks.push(check("share of text seen before", share_of_known(first), share_of_known(second)));
    checks
}

/// Whether two counts agree.
fn check(what: &str, first: f64, second: f64) -> Check {
    within(SHARE, what, first, second)
}

fn within(share: f64, what: &str, first: f64, second: f64) -> Check {
    let holds = (first - second).abs() <= share * first.abs().max(second.abs());
    Check { what: what.to_owned(), first, second, holds }
}

/// The load and its burstiness.
struct Gaps {
    count: f64,
    rate: f64,
    variation: f64,
}

impl Gaps {
    /// Of the rows that are sent at instants of their own.
    fn of(trace: &Trace) -> Self {
        let times: Vec<f64> =
            trace.rows.iter().filter(|row| row.after.is_none() && row.lane.is_none()).map(|row| row.arrival_us as f64 / 1e6).collect();
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let count = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / count.max(1.0);
        if mean <= 0.0 {
            return Self { count, rate: 0.0, variation: 0.0 };
        }
        let variance = gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / count;
        Self { count, rate: 1.0 / mean, variation: libm::sqrt(variance) / mean }
    }
}

/// Rows of each session; rows without one are a session each.
fn rounds(trace: &Trace) -> Vec<f64> {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for session in trace.rows.iter().filter_map(|row| row.session) {
        *counts.entry(session).or_default() += 1;
    }
    let alone = trace.rows.iter().filter(|row| row.session.is_none()).map(|_| 1.0);
    counts.values().map(|count| f64::from(*count)).chain(alone).collect()
}

/// The two-sample statistic against its bound.
fn smirnov(what: &str, mut first: Vec<f64>, mut second: Vec<f64>) -> Check {
    first.sort_by(f64::total_cmp);
    second.sort_by(f64::total_cmp);
    let (n, m) = (first.len() as f64, second.len() as f64);
    let (mut i, mut j, mut largest) = (0, 0, 0.0f64);
    while i < first.len() && j < second.len() {
        let at = first[i].min(second[j]);
        i += first[i..].iter().take_while(|value| **value <= at).count();
        j += second[j..].iter().take_while(|value| **value <= at).count();
        largest = largest.max((i as f64 / n - j as f64 / m).abs());
    }
    let bound = SMIRNOV * libm::sqrt((n + m) / (n * m).max(1.0));
    Check { what: what.to_owned(), first: largest, second: bound, holds: largest <= bound }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Substream;
    use crate::trace::{Prompt, Row};

    fn drawn(seed: u64, rate: f64, mean: f64) -> Trace {
        let mut at_s = 0.0;
        let mut rows = Vec::new();
        for entity in 0..2_000 {
            at_s += Substream::new(seed, "t", "gap", entity).exponential(1.0 / rate);
            let own = Substream::new(seed, "t", "input", entity).integer(1, 1000);
            let output = Substream::new(seed, "t", "output", entity).exponential(mean);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers of a test")]
            rows.push(Row {
                arrival_us: (at_s * 1e6) as u64,
                prompt: Prompt { own, ..Prompt::default() },
                output_tokens: output as u32 + own / 2 + 1,
                ..Row::default()
            });
        }
        Trace { rows, ..Trace::default() }
    }

    fn failing(first: &Trace, second: &Trace) -> Vec<String> {
        compare(first, second).into_iter().filter(|check| !check.holds).map(|check| check.what).collect()
    }

    #[test]
    fn two_draws_of_one_workload_agree() {
        assert_eq!(failing(&drawn(1, 8.0, 100.0), &drawn(2, 8.0, 100.0)), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_difference_is_seen() {
        let base = drawn(1, 8.0, 100.0);
        assert_eq!(failing(&base, &drawn(1, 10.0, 100.0)), ["requests per second"]);
        assert!(failing(&base, &drawn(2, 8.0, 200.0)).contains(&"output tokens".to_owned()));
        let mut unpaired = base.clone();
        let outputs: Vec<u32> = base.rows.iter().rev().map(|row| row.output_tokens).collect();
        unpaired.rows.iter_mut().zip(outputs).for_each(|(row, output)| row.output_tokens = output);
        let found = failing(&base, &unpaired);
        assert!(!found.is_empty() && found.iter().all(|what| what.contains("together") || what.contains("less")), "{found:?}");
        let mut bursty = base.clone();
        for pair in bursty.rows.chunks_mut(2) {
            pair[0].arrival_us = pair[pair.len() - 1].arrival_us;
        }
        assert_eq!(failing(&base, &bursty), ["variation of gaps"]);
        let mut joined = base.clone();
        joined.rows.iter_mut().take(1000).for_each(|row| row.session = Some(row.output_tokens % 500));
        assert!(failing(&base, &joined).contains(&"rounds of sessions".to_owned()));
        let mut phased = base.clone();
        phased.rows.iter_mut().skip(1000).for_each(|row| row.phase = Some(1));
        assert!(failing(&base, &phased).contains(&"phases".to_owned()));
    }
}
