//! Random draws: named substreams and the samplers over them.
//!
//! Every draw comes from the substream named by component, purpose and entity, so a request gets the same inputs whatever happened
//! to the requests before it. A substream is `ChaCha12` keyed with SHA-256 over (seed, component, purpose, entity). The samplers are
//! ours, because a library's may change values between releases.

use blis_contracts::scenario::{CountDistribution, EmpiricalCount, TimeDistribution};
use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

/// How this module turns a seed into draws; part of the frame, because another way would change every draw.
pub const GENERATOR: &str = "ChaCha12 keyed with SHA-256(seed, component, purpose, entity), encoding 1";

/// One stream of random draws.
#[derive(Debug)]
pub struct Substream(ChaCha12Rng);

impl Substream {
    /// The substream of a name under a scenario's seed. Text is length-prefixed, numbers are little-endian, so no two names collide.
    pub fn new(seed: u64, component: &str, purpose: &str, entity: u64) -> Self {
        let mut hash = Sha256::new();
        hash.update(seed.to_le_bytes());
        for text in [component, purpose] {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        hash.update(entity.to_le_bytes());
        Self(ChaCha12Rng::from_seed(hash.finalize().into()))
    }

    /// A real in [0, 1), one of 2^53 equally likely ones.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// An integer from `min` to `max`, each equally likely.
    pub fn integer(&mut self, min: u32, max: u32) -> u32 {
        let span = u64::from(max - min);
        let mask = u64::MAX >> (span | 1).leading_zeros();
        loop {
            let draw = self.0.next_u64() & mask;
            if draw <= span {
                return min + u32::try_from(draw).expect("the span fits 32 bits");
            }
        }
    }

    /// An exponentially distributed real of the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log1p(-self.unit())
    }

    /// A standard normal real, by the Box-Muller transform (its cosine branch).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log1p(-self.unit()));
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    /// A log-normally distributed real whose own mean and standard deviation are given.
    pub fn lognormal(&mut self, mean: f64, std: f64) -> f64 {
        let variance = libm::log1p((std / mean) * (std / mean));
        libm::exp(libm::log(mean) - variance / 2.0 + libm::sqrt(variance) * self.normal())
    }

    /// A whole number of a distribution: rounded to the nearest, bounds taken where the draw lies beyond them.
    pub fn count(&mut self, distribution: &CountDistribution) -> u32 {
        match distribution {
            CountDistribution::Constant(constant) => constant.value,
            CountDistribution::Uniform(range) => self.integer(range.min, range.max),
            CountDistribution::Normal(spread) => bounded(spread.mean + spread.std * self.normal(), spread.min, spread.max),
            CountDistribution::Lognormal(spread) => bounded(self.lognormal(spread.mean, spread.std), spread.min, spread.max),
            CountDistribution::Exponential(decay) => bounded(self.exponential(decay.mean), decay.min, decay.max),
            CountDistribution::Empirical(counted) => self.counted(counted),
        }
    }

    /// One of the numbers that were counted, as often as its weight says.
    fn counted(&mut self, counted: &EmpiricalCount) -> u32 {
        let Some(weights) = &counted.weights else { return counted.values[self.index(counted.values.len())] };
        let mut left = self.unit() * weights.iter().sum::<f64>();
        for (value, weight) in counted.values.iter().zip(weights) {
            if left < *weight {
                return *value;
            }
            left -= weight;
        }
        // Rounding used up the last of the weights.
        let last = weights.iter().rposition(|weight| *weight > 0.0).expect("validation asks for a positive weight");
        counted.values[last]
    }

    /// A position in a list, each equally likely.
    pub fn index(&mut self, length: usize) -> usize {
        let last = u32::try_from(length - 1).expect("a document holds fewer items than that");
        self.integer(0, last) as usize
    }

    /// A gamma distributed real of the given shape and a scale of 1.
    ///
    /// Sources: G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", ACM TOMS 26(3), 2000; for shapes below
    /// 1 their section 6: a draw of the shape plus 1, times a uniform number to the power of the inverse of the shape.
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let above = self.gamma(shape + 1.0);
            return above * libm::exp(libm::log1p(-self.unit()) / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / libm::sqrt(9.0 * d);
        loop {
            let x = self.normal();
            let root = 1.0 + c * x;
            if root <= 0.0 {
                continue;
            }
            let v = root * root * root;
            if libm::log1p(-self.unit()) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return d * v;
            }
        }
    }

    /// A Weibull distributed real of the given shape and a scale of 1: an exponential one to the power of the inverse of the shape.
    pub fn weibull(&mut self, shape: f64) -> f64 {
        libm::pow(-libm::log1p(-self.unit()), 1.0 / shape)
    }

    /// A time of a distribution, in seconds.
    pub fn seconds(&mut self, distribution: &TimeDistribution) -> f64 {
        match distribution {
            TimeDistribution::Constant(constant) => constant.value_s,
            TimeDistribution::Uniform(range) => range.min_s + (range.max_s - range.min_s) * self.unit(),
            TimeDistribution::Exponential(decay) => self.exponential(decay.mean_s),
            TimeDistribution::Lognormal(spread) => self.lognormal(spread.mean_s, spread.std_s),
        }
    }
}

/// A distribution of gaps between arrivals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Gap {
    Constant { mean: f64 },
    Exponential { mean: f64 },
    Gamma { shape: f64, scale: f64 },
    Weibull { shape: f64, scale: f64 },
}

impl Gap {
    /// Gamma distributed gaps of a mean and a coefficient of variation.
    pub(crate) fn gamma(mean: f64, cv: f64) -> Self {
        let shape = 1.0 / (cv * cv);
        Self::Gamma { shape, scale: mean / shape }
    }

    /// Weibull distributed gaps of a mean and a coefficient of variation.
    pub(crate) fn weibull(mean: f64, cv: f64) -> Self {
        let shape = weibull_shape(cv);
        Self::Weibull { shape, scale: mean / libm::tgamma(1.0 + 1.0 / shape) }
    }

    /// A gap, of a stream that is asked for only where one is drawn.
    pub(crate) fn draw(self, stream: impl FnOnce() -> Substream) -> f64 {
        match self {
            Self::Constant { mean } => mean,
            Self::Exponential { mean } => stream().exponential(mean),
            Self::Gamma { shape, scale } => scale * stream().gamma(shape),
            Self::Weibull { shape, scale } => scale * stream().weibull(shape),
        }
    }
}

/// The coefficient of variation of a Weibull distribution.
pub fn weibull_cv(shape: f64) -> f64 {
    libm::sqrt(libm::expm1(libm::lgamma(1.0 + 2.0 / shape) - 2.0 * libm::lgamma(1.0 + 1.0 / shape)))
}

/// The shape of the Weibull distribution with a coefficient of variation, which falls as the shape grows: by halving its logarithm's
/// range until the ends meet.
pub fn weibull_shape(cv: f64) -> f64 {
    let (mut low, mut high) = (libm::log(0.05), libm::log(500.0));
    loop {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            return libm::exp(middle);
        }
        if weibull_cv(libm::exp(middle)) > cv {
            low = middle;
        } else {
            high = middle;
        }
    }
}

/// The largest number a distribution gives.
pub(crate) fn largest_count(distribution: &CountDistribution) -> u32 {
    match distribution {
        CountDistribution::Constant(constant) => constant.value,
        CountDistribution::Uniform(range) => range.max,
        CountDistribution::Normal(spread) | CountDistribution::Lognormal(spread) => spread.max,
        CountDistribution::Exponential(decay) => decay.max,
        CountDistribution::Empirical(_) => distribution.largest(),
    }
}

/// The mean of the distribution itself, before bounds and rounding.
pub(crate) fn mean_count(distribution: &CountDistribution) -> f64 {
    match distribution {
        CountDistribution::Constant(constant) => f64::from(constant.value),
        CountDistribution::Uniform(range) => f64::midpoint(f64::from(range.min), f64::from(range.max)),
        CountDistribution::Normal(spread) | CountDistribution::Lognormal(spread) => spread.mean,
        CountDistribution::Exponential(decay) => decay.mean,
        CountDistribution::Empirical(counted) => {
            let weight = |index: usize| counted.weights.as_ref().map_or(1.0, |weights| weights[index]);
            let sum: f64 = (0..counted.values.len()).map(weight).sum();
            counted.values.iter().enumerate().map(|(index, value)| weight(index) * f64::from(*value)).sum::<f64>() / sum
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value lies between two 32-bit bounds")]
fn bounded(value: f64, min: u32, max: u32) -> u32 {
    libm::round(value).clamp(f64::from(min), f64::from(max)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(mut draw: impl FnMut(&mut Substream) -> f64) -> (f64, f64) {
        let draws: Vec<f64> = (0..20_000).map(|entity| draw(&mut Substream::new(7, "client", "test", entity))).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / draws.len() as f64;
        (mean, variance.sqrt())
    }

    fn close(value: f64, expected: f64, tolerance: f64) {
        assert!((value - expected).abs() <= tolerance * expected.max(1.0), "{value} is not {expected}");
    }

    #[test]
    fn a_substream_depends_on_each_part_of_its_name_and_on_nothing_else() {
        let first = |seed, component, purpose, entity| Substream::new(seed, component, purpose, entity).unit().to_bits();
        let base = first(1, "client/a", "input", 3);
        assert_eq!(base, first(1, "client/a", "input", 3));
        for other in [
            first(2, "client/a", "input", 3),
            first(1, "client/", "ainput", 3),
            first(1, "client/a", "output", 3),
            first(1, "client/a", "input", 4),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn samplers_have_the_moments_they_are_given() {
        let (mean, std) = moments(|stream| stream.lognormal(512.0, 256.0));
        close(mean, 512.0, 0.02);
        close(std, 256.0, 0.05);
        let (mean, std) = moments(|stream| stream.exponential(10.0));
        close(mean, 10.0, 0.03);
        close(std, 10.0, 0.04);
        let (mean, std) = moments(|stream| f64::from(stream.integer(3, 12)));
        close(mean, 7.5, 0.02);
        close(std, (99.0f64 / 12.0).sqrt(), 0.03);
        let (mean, std) = moments(Substream::normal);
        close(mean, 0.0, 0.03);
        close(std, 1.0, 0.03);
    }

    #[test]
    fn gaps_have_the_mean_and_the_variation_they_are_given() {
        for cv in [0.3, 1.0, 2.5] {
            for gap in [Gap::gamma(0.25, cv), Gap::weibull(0.25, cv)] {
                let mut entity = 0;
                let (mean, std) = moments(|_| {
                    entity += 1;
                    4.0 * gap.draw(|| Substream::new(11, "client", "gaps", entity))
                });
                close(mean, 1.0, 0.06);
                close(std / mean, cv, 0.08);
            }
        }
        for cv in [0.01, 0.5, 1.0, 3.0, 100.0] {
            close(weibull_cv(weibull_shape(cv)), cv, 1e-9);
        }
        close(weibull_shape(1.0), 1.0, 1e-9);
    }

    #[test]
    fn counted_numbers_occur_as_often_as_their_weights_say() {
        let counted = CountDistribution::Empirical(EmpiricalCount { values: vec![100, 240, 7], weights: Some(vec![3.0, 1.0, 0.0]) });
        let (mean, _) = moments(|stream| f64::from(stream.count(&counted)));
        close(mean, 135.0, 0.01);
        close(mean_count(&counted), 135.0, 1e-12);
        let plain = CountDistribution::Empirical(EmpiricalCount { values: vec![1, 2, 3], weights: None });
        let (mean, std) = moments(|stream| f64::from(stream.count(&plain)));
        close(mean, 2.0, 0.02);
        close(std, (2.0f64 / 3.0).sqrt(), 0.02);
    }

    #[test]
    fn a_range_of_one_number_gives_that_number() {
        assert_eq!(Substream::new(0, "a", "b", 0).integer(9, 9), 9);
    }
}
