//! The samplers against vectors from a second implementation, and shapes against scipy.
//!
//! The vectors come from a transcription of the documented recipe into Python (hashlib's SHA-256, `ChaCha12` from its definition, the
//! same sampling rules in `math`), so they hold the whole chain: naming of substreams, generator, conversion to reals, sampler.

use blis_workload::random::{Substream, weibull_shape};

fn stream(entity: u64) -> Substream {
    Substream::new(42, "client/a", "arrival", entity)
}

fn check(expected: [f64; 4], draw: impl Fn(&mut Substream) -> f64) {
    for (entity, expected) in (0u64..).zip(expected) {
        let value = draw(&mut stream(entity));
        assert!((value / expected - 1.0).abs() < 1e-12, "entity {entity}: {value} is not {expected}");
    }
}

#[test]
fn gamma_draws_are_those_of_the_recipe() {
    let below_one = [2.975_462_574_338_857e-5, 0.284_229_413_086_694_75, 0.094_678_336_567_278_38, 0.004_814_373_650_013_175];
    check(below_one, |stream| stream.gamma(0.25));
    check([3.772_360_811_617_606_4, 4.462_816_535_502_013, 3.517_318_403_869_24, 3.252_680_118_164_011_3], |stream| stream.gamma(4.0));
}

#[test]
fn weibull_draws_are_those_of_the_recipe() {
    let below_one = [0.346_636_449_489_892_14, 0.042_958_054_376_955_684, 0.004_111_215_256_009_56, 1.257_476_300_247_924];
    check(below_one, |stream| stream.weibull(0.5));
    check([0.767_305_934_119_184_4, 0.455_261_736_782_364_26, 0.253_216_822_115_777_56, 1.058_948_774_659_73], |stream| {
        stream.weibull(2.0)
    });
}

#[test]
fn exponential_and_normal_draws_are_those_of_the_recipe() {
    let exponential = [0.588_758_396_534_514_1, 0.207_263_248_978_094_73];
    let normal = [0.054_674_937_244_560_434, 0.388_859_226_485_407_2];
    for (entity, (exponential, normal)) in (0u64..).zip(exponential.into_iter().zip(normal)) {
        assert!((stream(entity).exponential(1.0) - exponential).abs() < 1e-12);
        assert!((stream(entity).normal() - normal).abs() < 1e-12);
    }
}

/// Roots that scipy 1.17 finds with `brentq` over `gammaln`.
#[test]
fn weibull_shapes_are_those_scipy_finds() {
    for (cv, shape) in [(0.5, 2.101_349_094_688_544), (1.8, 0.588_815_502_075_761_7), (3.0, 0.411_340_269_020_745_7)] {
        assert!((weibull_shape(cv) - shape).abs() < 1e-9, "{cv}: {}", weibull_shape(cv));
    }
}
