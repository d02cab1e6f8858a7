//! How tokens spread over experts: how many distinct experts a step touches.
//!
//! A profile belongs to a workload, never to a model: it states how unequal experts are, and the layer states how many there are.
//! How unevenly that loads ranks which share the experts is worked out in `placement`.
//! Left out: correlation between the tokens of one request.

/// The balance of routing under a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RoutingBalance {
    /// Every expert is as likely as any other.
    Uniform,
    /// The r-th most popular expert is picked in proportion to `r^-exponent`.
    PowerLaw {
        /// How steeply popularity falls; 0 is uniform.
        exponent: f64,
    },
}

impl RoutingBalance {
    /// The expected number of distinct experts that `tokens` tokens pick, `top_k` of `experts` each.
    ///
    /// Tokens choose independently; a token picks an expert with that expert's inclusion probability, and these sum to `top_k`.
    pub fn expected_distinct(self, experts: u32, top_k: u32, tokens: f64) -> f64 {
        self.expected_distinct_of(&log_misses(&self.probabilities(experts, top_k)), tokens)
    }

    /// The same, given what [`log_misses`] makes of the probabilities.
    pub(crate) fn expected_distinct_of(self, log_misses: &[f64], tokens: f64) -> f64 {
        let hit = |log_miss: &f64| picked_by_any(*log_miss, tokens);
        match self {
            Self::Uniform => log_misses.len() as f64 * log_misses.first().map_or(0.0, hit),
            Self::PowerLaw { .. } => log_misses.iter().map(hit).sum(),
        }
    }

    /// The probability that a token picks each expert, most popular first; they sum to `top_k`.
    pub(crate) fn probabilities(self, experts: u32, top_k: u32) -> Vec<f64> {
        let picks = f64::from(top_k.min(experts));
        match self {
            Self::Uniform => vec![picks / f64::from(experts); experts as usize],
            Self::PowerLaw { exponent } => {
                let weights: Vec<f64> = (1..=experts).map(|rank| libm::pow(f64::from(rank), -exponent)).collect();
                let scale = inclusion_scale(&weights, picks);
                weights.iter().map(|weight| (weight * scale).min(1.0)).collect()
            }
        }
    }
}

/// For each probability of being picked, the logarithm of the probability of not being picked.
pub(crate) fn log_misses(probabilities: &[f64]) -> Vec<f64> {
    probabilities.iter().map(|probability| libm::log1p(-probability)).collect()
}

/// The probability that any of so many tokens picks what each of them misses with this probability, of which the logarithm is given.
pub(crate) fn picked_by_any(log_miss: f64, tokens: f64) -> f64 {
    if tokens > 0.0 { -libm::expm1(tokens * log_miss) } else { 0.0 }
}

/// The factor that makes descending weights, each capped at 1, sum to `total`.
fn inclusion_scale(weights: &[f64], total: f64) -> f64 {
    let mut below: f64 = weights.iter().sum();
    for (capped, weight) in weights.iter().enumerate() {
        let scale = (total - capped as f64) / below;
        if weight * scale <= 1.0 {
            return scale;
        }
        below -= weight;
    }
    // Every expert is certain: total equals the number of experts.
    weights.last().map_or(1.0, |least| 1.0 / least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_picks_exactly_its_top_k() {
        for balance in [RoutingBalance::Uniform, RoutingBalance::PowerLaw { exponent: 0.9 }] {
            let hit = balance.expected_distinct(128, 4, 1.0);
            assert!((hit - 4.0).abs() < 1e-9, "{balance:?}: {hit}");
        }
    }

    #[test]
    fn many_tokens_touch_every_expert_and_skew_touches_fewer() {
        let uniform = RoutingBalance::Uniform.expected_distinct(128, 4, 64.0);
        let skewed = RoutingBalance::PowerLaw { exponent: 1.0 }.expected_distinct(128, 4, 64.0);
        assert!(skewed < uniform && uniform < 128.0);
        assert!(RoutingBalance::Uniform.expected_distinct(128, 4, 10_000.0) > 127.99);
    }

    #[test]
    fn a_power_law_of_exponent_zero_is_uniform() {
        for tokens in [1.0, 7.0, 300.0] {
            let flat = RoutingBalance::PowerLaw { exponent: 0.0 }.expected_distinct(60, 6, tokens);
            assert!((flat - RoutingBalance::Uniform.expected_distinct(60, 6, tokens)).abs() < 1e-9);
        }
    }

    #[test]
    fn a_layer_whose_tokens_pick_every_expert_touches_all_of_them() {
        let hit = RoutingBalance::PowerLaw { exponent: 2.0 }.expected_distinct(4, 4, 1.0);
        assert!((hit - 4.0).abs() < 1e-9);
    }
}
