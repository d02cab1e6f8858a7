//! The files compared: measurements, other estimators' answers, predictions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::grade::{Grade, grade};
use crate::jsonl::{Input, InputError, Numbered, unique_keys};
use crate::prediction::Prediction;

/// A sweep's name: deployment and lengths.
pub(crate) type SweepKey = (String, String);
/// Values by concurrency.
pub(crate) type ByConcurrency<T> = BTreeMap<u32, T>;

/// The measurements of one sweep, by concurrency. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The deployment.
    pub scenario: String,
    /// Its lengths.
    pub label: String,
    /// The engine that ran.
    pub framework: String,
    /// Mean time per output token.
    #[serde(deserialize_with = "unique_keys")]
    pub mean_tpot_us: ByConcurrency<f64>,
    /// Mean time to first token.
    #[serde(deserialize_with = "unique_keys")]
    pub mean_ttft_us: ByConcurrency<f64>,
    /// Median time per output token.
    #[serde(default, deserialize_with = "unique_keys")]
    pub p50_tpot_us: ByConcurrency<f64>,
    /// 90th percentile of the time per output token.
    #[serde(default, deserialize_with = "unique_keys")]
    pub p90_tpot_us: ByConcurrency<f64>,
    /// 99th percentile of the time per output token.
    #[serde(default, deserialize_with = "unique_keys")]
    pub p99_tpot_us: ByConcurrency<f64>,
    /// Median time to first token.
    #[serde(default, deserialize_with = "unique_keys")]
    pub p50_ttft_us: ByConcurrency<f64>,
    /// 90th percentile of the time to first token.
    #[serde(default, deserialize_with = "unique_keys")]
    pub p90_ttft_us: ByConcurrency<f64>,
    /// 99th percentile of the time to first token.
    #[serde(default, deserialize_with = "unique_keys")]
    pub p99_ttft_us: ByConcurrency<f64>,
    /// Tokens the KV cache holds, where the server logged them.
    pub gpu_kv_tokens: Option<KvTokens>,
}

/// Tokens a KV cache holds: one number for the sweep, or one for each point.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KvTokens {
    /// For every point that has none of its own.
    pub all: Option<u64>,
    /// For single points.
    #[serde(deserialize_with = "unique_keys")]
    pub by_concurrency: ByConcurrency<u64>,
}

/// Another estimator's answers to the points of one sweep.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Peers {
    /// The deployment.
    pub scenario: String,
    /// Its lengths.
    pub label: String,
    /// Concurrency, the estimator's name, mean time per output token and mean time to first token (microseconds, null where it has none).
    pub points: Vec<(u32, String, Option<f64>, Option<f64>)>,
}

impl Measured {
    /// Every value by concurrency, with its name in the file.
    fn latencies(&self) -> [(&'static str, &ByConcurrency<f64>); 8] {
        [
            ("mean_tpot_us", &self.mean_tpot_us),
            ("mean_ttft_us", &self.mean_ttft_us),
            ("p50_tpot_us", &self.p50_tpot_us),
            ("p90_tpot_us", &self.p90_tpot_us),
            ("p99_tpot_us", &self.p99_tpot_us),
            ("p50_ttft_us", &self.p50_ttft_us),
            ("p90_ttft_us", &self.p90_ttft_us),
            ("p99_ttft_us", &self.p99_ttft_us),
        ]
    }

    /// Tokens that the KV cache of a point holds.
    pub(crate) fn kv_tokens(&self, concurrency: u32) -> Option<u64> {
        let kv = self.gpu_kv_tokens.as_ref()?;
        kv.by_concurrency.get(&concurrency).copied().or(kv.all)
    }
}

/// Measurements by sweep. A sweep stated twice and a value that is not above zero are refused.
pub(crate) fn read_measured(input: &Input) -> Result<BTreeMap<SweepKey, Numbered<Measured>>, InputError> {
    let mut sweeps: BTreeMap<SweepKey, Numbered<Measured>> = BTreeMap::new();
    for Numbered { line, value } in input.lines::<Measured>("a measured sweep")? {
        for (name, values) in value.latencies() {
            if let Some((concurrency, measured)) = values.iter().find(|(_, measured)| !positive(**measured)) {
                let message = format!(
                    "{name} at concurrency {concurrency} is {measured}; a measured time is above 0, and one that is missing is left out"
                );
                return Err(input.at(line, message));
            }
        }
        if let Some(kv) = &value.gpu_kv_tokens
            && kv.by_concurrency.values().chain(&kv.all).any(|&tokens| tokens == 0)
        {
            return Err(input.at(line, "gpu_kv_tokens states a cache of 0 tokens; one that was not logged is null"));
        }
        if value.mean_tpot_us.is_empty() && value.mean_ttft_us.is_empty() {
            return Err(input.at(line, "no point has a measured time"));
        }
        let key = (value.scenario.clone(), value.label.clone());
        if let Some(earlier) = sweeps.get(&key) {
            return Err(input.at(line, format!("{} {} stands on line {} too", key.0, key.1, earlier.line)));
        }
        sweeps.insert(key, Numbered { line, value });
    }
    Ok(sweeps)
}

/// Mean time per output token and mean time to first token.
pub(crate) type PeerTimes = (Option<f64>, Option<f64>);
/// Answers by estimator, sweep and concurrency.
pub(crate) type PeerAnswers = BTreeMap<String, BTreeMap<SweepKey, ByConcurrency<PeerTimes>>>;

/// Other estimators' answers. A point answered twice by one estimator is refused, and so is a time that is not above zero.
pub(crate) fn read_peers(input: &Input) -> Result<PeerAnswers, InputError> {
    let mut answers = PeerAnswers::new();
    for Numbered { line, value } in input.lines::<Peers>("an estimator's answers to a sweep")? {
        let key = (value.scenario, value.label);
        for (concurrency, estimator, tpot, ttft) in value.points {
            if let Some(time) = tpot.into_iter().chain(ttft).find(|time| !positive(*time)) {
                let message = format!("{estimator} answers concurrency {concurrency} with {time}; a time is above 0, and none is null");
                return Err(input.at(line, message));
            }
            let of_sweep = answers.entry(estimator.clone()).or_default().entry(key.clone()).or_default();
            if of_sweep.insert(concurrency, (tpot, ttft)).is_some() {
                return Err(input.at(line, format!("{estimator} answers {} {} at concurrency {concurrency} twice", key.0, key.1)));
            }
        }
    }
    Ok(answers)
}

/// Predictions by sweep and concurrency.
pub(crate) type Predictions = BTreeMap<SweepKey, ByConcurrency<Numbered<Prediction>>>;

/// Predictions, as this version writes them. A point answered twice is refused, and a line whose fields contradict each other.
pub(crate) fn read_predictions(input: &Input) -> Result<Predictions, InputError> {
    let what = format!("a prediction as version {} writes it", env!("CARGO_PKG_VERSION"));
    let raw = input.lines::<Value>(&what)?;
    let mut predictions = Predictions::new();
    for (Numbered { line, value }, raw) in input.lines::<Prediction>(&what)?.into_iter().zip(raw) {
        let whole = serde_json::to_value(&value).expect("a prediction is JSON");
        if let Some(missing) = whole.as_object().into_iter().flatten().map(|(key, _)| key).find(|key| raw.value.get(key).is_none()) {
            return Err(input.at(line, format!("not {what}: missing field `{missing}`")));
        }
        consistent(&value).map_err(|message| input.at(line, message))?;
        let key = (value.scenario.clone(), value.label.clone());
        let concurrency = value.concurrency;
        let points = predictions.entry(key.clone()).or_default();
        if let Some(earlier) = points.get(&concurrency) {
            let message = format!("{} {} at concurrency {concurrency} stands on line {} too", key.0, key.1, earlier.line);
            return Err(input.at(line, message));
        }
        points.insert(concurrency, Numbered { line, value });
    }
    Ok(predictions)
}

fn consistent(prediction: &Prediction) -> Result<(), String> {
    let times = [
        prediction.mean_tpot_us,
        prediction.mean_ttft_us,
        prediction.p50_tpot_us,
        prediction.p90_tpot_us,
        prediction.p99_tpot_us,
        prediction.p50_ttft_us,
        prediction.p90_ttft_us,
        prediction.p99_ttft_us,
    ];
    if let Some(time) = times.into_iter().flatten().find(|time| !positive(*time)) {
        return Err(format!("a predicted time is {time}; it must be above 0"));
    }
    let decided = grade(&prediction.grade_reasons);
    if decided != prediction.grade {
        return Err(format!("grade {:?} contradicts its reasons, which make it {decided:?}", prediction.grade));
    }
    let figures = (prediction.mean_tpot_us.is_some(), prediction.mean_ttft_us.is_some());
    match (prediction.grade, figures, prediction.refused.is_some()) {
        (Grade::G5, (false, false), true) | (Grade::G1 | Grade::G2 | Grade::G3 | Grade::G4, (true, true), false) => Ok(()),
        (grade, ..) => Err(format!(
            "grade {grade:?} contradicts the rest: G5 has a reason in `refused` and no mean times, any other has both means and no reason"
        )),
    }
}

fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}
