//! An exact count of durations in whole microseconds: pooled inter-token latencies without one entry per token.

use std::collections::BTreeMap;

/// Durations up to this many microseconds have a cell of their own in a flat table.
const FLAT_CELLS: usize = 1 << 17;

/// A count for each duration seen.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    flat: Vec<u64>,
    long: BTreeMap<u64, u64>,
    samples: u64,
}

impl Histogram {
    #[inline]
    pub(crate) fn add(&mut self, micros: u64) {
        self.samples += 1;
        match usize::try_from(micros) {
            Ok(cell) if cell < self.flat.len() => self.flat[cell] += 1,
            Ok(cell) if cell < FLAT_CELLS => {
                self.flat.resize(cell + 1, 0);
                self.flat[cell] += 1;
            }
            Ok(_) | Err(_) => *self.long.entry(micros).or_default() += 1,
        }
    }

    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        let sum_us: u128 = self.cells().map(|(micros, count)| u128::from(micros) * u128::from(count)).sum();
        (self.samples > 0).then(|| sum_us as f64 / self.samples as f64)
    }

    pub(crate) fn max(&self) -> Option<u64> {
        self.long
            .last_key_value()
            .map(|(micros, _)| *micros)
            .or_else(|| self.flat.iter().rposition(|count| *count > 0).map(|cell| cell as u64))
    }

    /// The quantile `q` with linear interpolation between neighbouring samples.
    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        let last = self.samples.checked_sub(1)?;
        let position = last as f64 * q;
        let lower = libm::floor(position);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank lies between 0 and the number of samples")]
        let rank = lower as u64;
        let (below, above) = (self.ranked(rank), self.ranked((rank + 1).min(last)));
        Some(below as f64 + (above as f64 - below as f64) * (position - lower))
    }

    /// Each duration that may have been seen, ascending, and how often.
    fn cells(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let flat = (0..).zip(self.flat.iter().copied());
        flat.chain(self.long.iter().map(|(micros, count)| (*micros, *count)))
    }

    /// The sample of a rank, counted from the smallest.
    fn ranked(&self, rank: u64) -> u64 {
        let mut seen = 0;
        for (micros, count) in self.cells() {
            seen += count;
            if rank < seen {
                return micros;
            }
        }
        unreachable!("rank {rank} lies beyond the {} samples", self.samples)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tally::quantile_of_sorted;

    proptest! {
        #[test]
        fn quantiles_equal_those_of_the_sorted_samples(mut samples in prop::collection::vec(0u64..400_000, 1..200), q in 0.0f64..=1.0) {
            let mut histogram = Histogram::default();
            for micros in &samples {
                histogram.add(*micros);
            }
            samples.sort_unstable();
            prop_assert_eq!(histogram.max(), samples.last().copied());
            prop_assert_eq!(histogram.samples(), samples.len() as u64);
            prop_assert_eq!(histogram.mean(), Some(samples.iter().sum::<u64>() as f64 / samples.len() as f64));
            let exact = quantile_of_sorted(&samples.iter().map(|micros| *micros as f64).collect::<Vec<_>>(), q);
            prop_assert_eq!(histogram.quantile(q), exact);
        }
    }

    #[test]
    fn an_empty_histogram_gives_no_figure() {
        let histogram = Histogram::default();
        assert_eq!((histogram.mean(), histogram.max(), histogram.quantile(0.5)), (None, None, None));
    }
}
