//! Bootstrap intervals over sweeps, and the percentile they are read from.
//!
//! The points of one sweep share a deployment and its errors, so whole sweeps are drawn: drawing points would make intervals too narrow.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use blis_workload::random::Substream;

/// What is said of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statistic {
    Mean,
    Median,
}

/// Values grouped by the sweep they belong to.
#[derive(Debug, Clone)]
pub(crate) struct Clusters {
    values: Vec<Vec<f64>>,
    /// Sum and count of each group.
    sums: Vec<(f64, usize)>,
}

impl Clusters {
    /// Groups values whose sweeps come in ascending order of their index.
    pub(crate) fn of(values: impl IntoIterator<Item = (usize, f64)>) -> Self {
        let mut clusters: Vec<Vec<f64>> = Vec::new();
        let mut last = None;
        for (sweep, value) in values {
            if last != Some(sweep) {
                clusters.push(Vec::new());
                last = Some(sweep);
            }
            clusters.last_mut().expect("one was just pushed").push(value);
        }
        let sums = clusters.iter().map(|values| (values.iter().sum(), values.len())).collect();
        Self { values: clusters, sums }
    }

    pub(crate) fn sweeps(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn points(&self) -> usize {
        self.sums.iter().map(|(_, count)| count).sum()
    }

    /// The statistic of every value; there is at least one.
    pub(crate) fn statistic(&self, statistic: Statistic) -> f64 {
        let every: Vec<u32> = (0..count(self.sweeps())).collect();
        self.of_sample(statistic, &every, &mut Vec::new())
    }

    /// The statistic of each resample, ascending.
    pub(crate) fn resampled(&self, statistic: Statistic, resamples: u32, draws: &Draws) -> Vec<f64> {
        let mut values = Vec::new();
        let drawn = draws.of(resamples, self.sweeps());
        let mut statistics: Vec<f64> = drawn.chunks(self.sweeps()).map(|sample| self.of_sample(statistic, sample, &mut values)).collect();
        statistics.sort_unstable_by(f64::total_cmp);
        statistics
    }

    /// The statistic of the sweeps drawn; a mean needs their sums only.
    fn of_sample(&self, statistic: Statistic, sample: &[u32], values: &mut Vec<f64>) -> f64 {
        match statistic {
            Statistic::Mean => {
                let (sum, count) =
                    sample.iter().map(|&sweep| self.sums[sweep as usize]).fold((0.0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
                sum / count as f64
            }
            Statistic::Median => {
                values.clear();
                values.extend(sample.iter().flat_map(|&sweep| &self.values[sweep as usize]));
                values.sort_unstable_by(f64::total_cmp);
                quantile(values, 0.5)
            }
        }
    }
}

/// Which sweeps each resample draws, one resample after another.
type Drawn = Rc<[u32]>;

/// Which sweeps each resample draws. Every figure over equally many sweeps draws the same, so the draws are made once.
#[derive(Debug)]
pub(crate) struct Draws {
    seed: u64,
    /// By the number of resamples and of sweeps.
    made: RefCell<BTreeMap<(u32, usize), Drawn>>,
}

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, made: RefCell::new(BTreeMap::new()) }
    }

    /// The draws of every resample of so many sweeps.
    fn of(&self, resamples: u32, sweeps: usize) -> Drawn {
        let make = || {
            let mut stream = Substream::new(self.seed, "score", "bootstrap", 0);
            let last = count(sweeps) - 1;
            (0..resamples as usize * sweeps).map(|_| stream.integer(0, last)).collect()
        };
        Rc::clone(self.made.borrow_mut().entry((resamples, sweeps)).or_insert_with(make))
    }
}

fn count(sweeps: usize) -> u32 {
    u32::try_from(sweeps).expect("fewer sweeps than 2^32")
}

/// A quantile of ascending values, linear between neighbours; there is at least one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length is a small number above zero")]
pub(crate) fn quantile(ascending: &[f64], share: f64) -> f64 {
    let at = share * (ascending.len() - 1) as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(ascending.len() - 1);
    ascending[below] + (ascending[above] - ascending[below]) * (at - at.floor())
}

/// The middle `confidence` (a share) of ascending values.
pub(crate) fn middle(ascending: &[f64], confidence: f64) -> [f64; 2] {
    let tail = (1.0 - confidence) / 2.0;
    [quantile(ascending, tail), quantile(ascending, 1.0 - tail)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_linearly_between_neighbours() {
        let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-12, "{one} is not {other}");
        near(quantile(&[1.0, 2.0, 4.0], 0.75), 3.0);
        let [low, high] = middle(&[0.0, 1.0, 2.0, 3.0, 4.0], 0.5);
        near(low, 1.0);
        near(high, 3.0);
        near(Clusters::of([(0, 9.0), (0, 1.0), (1, 5.0), (2, 3.0)]).statistic(Statistic::Median), 4.0);
    }

    #[test]
    fn equal_sweeps_leave_no_doubt_and_different_ones_do() {
        let equal = Clusters::of((0..40).map(|i| (i / 4, f64::from(u32::try_from(i % 4).unwrap()))));
        let [low, high] = middle(&equal.resampled(Statistic::Mean, 200, &Draws::new(1)), 0.95);
        assert_eq!((low, high), (1.5, 1.5));
        let unequal = Clusters::of((0..40).map(|i| (i / 4, f64::from(u32::try_from(i / 4).unwrap()))));
        let [low, high] = middle(&unequal.resampled(Statistic::Mean, 200, &Draws::new(1)), 0.95);
        assert!(low < 4.0 && high > 5.0, "{low} {high}");
        assert_eq!((unequal.sweeps(), unequal.points()), (10, 40));
    }

    #[test]
    fn the_same_seed_draws_the_same_resamples_and_another_does_not() {
        let clusters = Clusters::of((0..12).map(|i| (i / 3, f64::from(u32::try_from(i * i).unwrap()))));
        let draw = |seed| clusters.resampled(Statistic::Mean, 50, &Draws::new(seed));
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
