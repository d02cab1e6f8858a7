//! The bounds of histograms.
//!
//! upstream: vllm `v1/metrics/buckets.py`

/// Which bounds a histogram has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Of a request's phases.
    RequestLatency,
    TimeToFirstToken,
    InterTokenLatency,
    IterationTokens,
    RequestParamsN,
    RequestNumPreemptions,
    /// Of token counts; they end at the longest sequence.
    RequestTokens,
}

impl Family {
    pub(super) fn bounds(self, max_model_len: u32) -> Vec<f64> {
        let fixed: &[f64] = match self {
            Self::RequestLatency => &[
                0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0,
                7680.0,
            ],
            Self::TimeToFirstToken => &[
                0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0,
                2560.0,
            ],
            Self::InterTokenLatency => {
                &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0]
            }
            Self::IterationTokens => &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0],
            Self::RequestParamsN => &[1.0, 2.0, 5.0, 10.0, 20.0],
            Self::RequestNumPreemptions => &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0],
            Self::RequestTokens => return one_two_five(max_model_len),
        };
        fixed.to_vec()
    }
}

/// 1, 2, 5, 10, 20, 50 and so on, up to `most`.
fn one_two_five(most: u32) -> Vec<f64> {
    let powers = std::iter::successors(Some(1_u64), |power| Some(power * 10));
    let all = powers.flat_map(|power| [power, 2 * power, 5 * power]);
    all.take_while(|bound| *bound <= u64::from(most)).map(|bound| bound as f64).collect()
}
