//! How evenly the ranks that share a layer's experts are loaded: what the busiest of them gets of a step.
//!
//! Experts lie on ranks in the order of their numbers, and popularity knows nothing of numbers: an assignment drawn at random. A
//! rank's load then varies for two reasons, which add up as variances: which experts it holds, and which of them tokens pick.
//! Ranks share a fixed total, so their loads move against each other; the busiest lies above the mean by the expected maximum of as
//! many normal deviates. All ranks wait for it when they exchange results.
//! Left out: experts that are moved or doubled while serving, and that the rank with the most pairs is not always the one with
//! the most experts hit.

use crate::routing::{RoutingBalance, log_misses, picked_by_any};

/// Steps of the integral below, over deviates from 0 to [`FARTHEST`].
const STEPS: u32 = 800;
const FARTHEST: f64 = 8.0;

/// The ranks that share a layer's experts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Placement {
    experts: u32,
    /// Experts a token picks.
    top_k: u32,
    balance: RoutingBalance,
    /// The probability that a token picks each expert.
    picked: Vec<f64>,
    /// Of each, the logarithm of the probability that it does not.
    log_misses: Vec<f64>,
    /// Experts of one rank.
    local: u32,
    /// Deviations by which the busiest rank lies above the mean.
    deviations: f64,
}

/// What one rank gets of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Load {
    /// (token, expert) pairs.
    pub(crate) pairs: f64,
    /// Distinct experts that any token picks.
    pub(crate) hit: f64,
}

impl Placement {
    /// Experts of which each rank holds `local`, where each token picks `top_k` by a balance.
    pub(crate) fn new(experts: u32, local: u32, top_k: u32, balance: RoutingBalance) -> Self {
        let ranks = experts.div_ceil(local.max(1));
        let deviations = if ranks > 1 { busiest_of(ranks) } else { 0.0 };
        let picked = balance.probabilities(experts, top_k);
        Self { experts, top_k, balance, log_misses: log_misses(&picked), picked, local, deviations }
    }

    /// The load of the busiest rank when so many tokens pick their experts.
    pub(crate) fn busiest(&self, tokens: f64) -> Load {
        let share = f64::from(self.local) / f64::from(self.experts);
        let pairs = tokens * f64::from(self.top_k) * share;
        let hit = (self.balance.expected_distinct_of(&self.log_misses, tokens) * share).min(f64::from(self.local));
        if self.local >= self.experts {
            return Load { pairs, hit };
        }
        let most = tokens * f64::from(self.top_k.min(self.local));
        let pairs = pairs + self.deviations * self.deviation(&self.picked, |p| (tokens * p, tokens * p * (1.0 - p)));
        let drawn = |log_miss: f64| {
            let reached = picked_by_any(log_miss, tokens);
            (reached, reached * (1.0 - reached))
        };
        let hit = hit + self.deviations * self.deviation(&self.log_misses, drawn);
        Load { pairs: pairs.min(most), hit: hit.min(f64::from(self.local)) }
    }

    /// Standard deviation of a rank's load, given mean and variance of what an expert adds to it, by what is known of each.
    fn deviation(&self, known: &[f64], of: impl Fn(f64) -> (f64, f64)) -> f64 {
        let (all, local) = (f64::from(self.experts), f64::from(self.local));
        let mean = known.iter().map(|p| of(*p).0).sum::<f64>() / all;
        let unequal: f64 = known.iter().map(|p| (of(*p).0 - mean) * (of(*p).0 - mean)).sum::<f64>() / (all - 1.0);
        let picking: f64 = known.iter().map(|p| of(*p).1).sum::<f64>() / all;
        libm::sqrt(local * (1.0 - local / all) * (unequal + picking))
    }
}

/// The expected maximum of the deviations of `ranks` equal shares of a fixed total.
fn busiest_of(ranks: u32) -> f64 {
    let below = |x: f64| libm::erfc(-x / core::f64::consts::SQRT_2) / 2.0;
    let exponent = f64::from(ranks);
    // The mean of the maximum is the integral of P(max > x) over x > 0 less that of P(max < -x).
    let at = |x: f64| 1.0 - libm::pow(below(x), exponent) - libm::pow(below(-x), exponent);
    let width = FARTHEST / f64::from(STEPS);
    let inner: f64 = (1..STEPS).map(|step| at(f64::from(step) * width)).sum();
    let independent = width * (at(0.0) / 2.0 + inner + at(FARTHEST) / 2.0);
    independent * libm::sqrt(exponent / (exponent - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_of_two_lies_above_the_mean_by_the_mean_absolute_deviation() {
        assert!((busiest_of(2) - libm::sqrt(2.0 / core::f64::consts::PI)).abs() < 1e-4);
        // 1.02938 is the expected maximum of four independent deviates.
        assert!((busiest_of(4) - 1.029_38 * libm::sqrt(4.0 / 3.0)).abs() < 1e-4);
    }

    #[test]
    fn a_rank_with_every_expert_gets_everything() {
        let balance = RoutingBalance::PowerLaw { exponent: 0.75 };
        let load = Placement::new(128, 128, 4, balance).busiest(100.0);
        assert_eq!(load, Load { pairs: 400.0, hit: balance.expected_distinct(128, 4, 100.0) });
    }

    #[test]
    fn popular_experts_load_ranks_unevenly_however_many_tokens_come_and_equal_ones_do_not() {
        let over_mean = |balance, ranks: u32, tokens: f64| {
            Placement::new(256, 256 / ranks, 8, balance).busiest(tokens).pairs / (tokens * 8.0 / f64::from(ranks))
        };
        let skewed = RoutingBalance::PowerLaw { exponent: 0.75 };
        assert!(over_mean(RoutingBalance::Uniform, 8, 1e6) < 1.01);
        assert!((1.05..1.15).contains(&over_mean(skewed, 2, 1e6)));
        assert!((1.3..1.6).contains(&over_mean(skewed, 8, 1e6)));
        assert!(over_mean(RoutingBalance::Uniform, 8, 16.0) > 1.1);
    }

    #[test]
    fn no_rank_gets_more_than_its_experts_can_take() {
        let load = Placement::new(8, 1, 2, RoutingBalance::PowerLaw { exponent: 2.0 }).busiest(3.0);
        assert!(load.pairs <= 3.0 && load.hit <= 1.0, "{load:?}");
    }
}
