//! The legacy generator against values printed by numpy 2.4.6.

use blis_workload::mt19937::NumpyRandomState;

/// `np.random.seed(seed); a = np.random.randint(low, high, size=1000); b = np.random.randint(819, 1025, size=5)`:
/// (seed, low, high, first six of a, sum of a, b).
type Vector = (u32, u32, u32, [u32; 6], u64, [u32; 5]);

const VECTORS: [Vector; 10] = [
    (0, 819, 1025, [991, 866, 936, 1011, 886, 1014], 922_577, [943, 919, 948, 976, 952]),
    (0, 0, 1, [0; 6], 0, [991, 866, 936, 1011, 886]),
    (0, 6553, 8193, [7237, 7112, 7769, 7388, 7316, 7936], 7_379_158, [986, 976, 884, 842, 1019]),
    (0, 5, 6, [5; 6], 5_000, [991, 866, 936, 1011, 886]),
    (0, 0, 100_000, [68_268, 43_567, 42_613, 45_891, 21_243, 95_939], 51_744_878, [867, 1018, 1001, 915, 919]),
    (1, 819, 1025, [856, 959, 891, 956, 1022, 952], 922_910, [821, 820, 891, 870, 1018]),
    (1, 0, 100_000, [98_539, 77_708, 5_192, 98_047, 50_057, 73_349], 49_859_919, [1020, 903, 834, 1012, 871]),
    (20_261, 819, 1025, [924, 897, 1018, 827, 832, 852], 920_040, [889, 1017, 919, 935, 987]),
    (20_261, 6553, 8193, [7018, 6914, 6631, 7841, 8102, 7555], 7_377_587, [870, 821, 1024, 1020, 883]),
    (20_261, 0, 100_000, [68_049, 8_553, 84_046, 46_605, 7_263, 77_351], 51_348_882, [864, 972, 964, 839, 864]),
];

#[test]
fn integers_are_those_numpy_draws() {
    for (seed, low, high, first, sum, after) in VECTORS {
        let mut random = NumpyRandomState::seeded(seed);
        let drawn = random.integers(low, high, 1000);
        assert_eq!(drawn[..6], first, "seed {seed}, {low}..{high}");
        assert_eq!(drawn.iter().map(|value| u64::from(*value)).sum::<u64>(), sum, "seed {seed}, {low}..{high}");
        assert_eq!(random.integers(819, 1025, 5), after, "seed {seed}, after {low}..{high}");
    }
}
