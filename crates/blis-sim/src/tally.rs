//! Samples and counts: what a run's figures are computed from.
//!
//! Everything here derives from request records, each added once when its fate is written, and from the gaps between chunks.

use std::collections::BTreeMap;

use blis_contracts::fate::Fate;
use blis_contracts::record::RequestRecord;

use crate::histogram::Histogram;
use crate::objectives::Objectives;
use crate::shortfall::Cut;

/// The samples of the measured requests, and counts over all requests.
#[derive(Debug, Default)]
pub struct Tally {
    pub(crate) ttft_us: Vec<f64>,
    pub(crate) tpot_us: Vec<f64>,
    pub(crate) e2el_us: Vec<f64>,
    pub(crate) queue_delay_us: Vec<f64>,
    pub(crate) itl_us: Histogram,
    /// Measured requests by fate.
    pub(crate) measured: BTreeMap<Fate, u64>,
    /// All requests by fate.
    pub(crate) fates: BTreeMap<Fate, u64>,
    /// Refusals by reason.
    pub(crate) refusals: BTreeMap<String, u64>,
    /// Answers that ended before what their request asked for.
    pub(crate) cut: Cut,
    /// How requests did against the objectives of their classes.
    pub(crate) objectives: Objectives,
    /// Prompt tokens of completed measured requests.
    pub(crate) completed_prompt: u64,
    /// Prompt and output tokens of completed measured requests.
    pub(crate) completed_tokens: u64,
    /// Output tokens of measured requests.
    pub(crate) measured_output: u64,
    /// Prompt tokens of all requests.
    pub(crate) prompt_tokens: u64,
    /// Output tokens of all requests.
    pub(crate) output_tokens: u64,
}

impl Tally {
    /// No samples yet, requests to be judged by these objectives.
    pub(crate) fn judging(objectives: Objectives) -> Self {
        Self { objectives, ..Self::default() }
    }

    /// Adds a request whose fate is known.
    pub(crate) fn add(&mut self, record: &RequestRecord, measured: bool) {
        *self.fates.entry(record.fate).or_default() += 1;
        self.prompt_tokens += record.prompt_tokens;
        self.output_tokens += record.output_tokens;
        if let Some(reason) = &record.refusal {
            *self.refusals.entry(reason.clone()).or_default() += 1;
        }
        if !measured {
            return;
        }
        *self.measured.entry(record.fate).or_default() += 1;
        self.measured_output += record.output_tokens;
        self.objectives.judge(record);
        if record.fate == Fate::Completed {
            self.completed_prompt += record.prompt_tokens;
            self.completed_tokens += record.prompt_tokens + record.output_tokens;
        }
        self.ttft_us.extend(record.ttft_us().map(|micros| micros as f64));
        self.tpot_us.extend(record.tpot_us());
        self.e2el_us.extend(record.e2el_us().map(|micros| micros as f64));
        self.queue_delay_us.extend(record.queue_delay_us().map(|micros| micros as f64));
    }

    /// Adds `count` requests that were never sent.
    pub(crate) fn add_not_started(&mut self, count: u64) {
        if count > 0 {
            *self.fates.entry(Fate::NotStarted).or_default() += count;
        }
    }

    /// Requests with a fate.
    pub fn total(&self) -> u64 {
        self.fates.values().sum()
    }

    /// All requests by fate.
    pub fn fates(&self) -> impl Iterator<Item = (Fate, u64)> + '_ {
        self.fates.iter().map(|(fate, count)| (*fate, *count))
    }

    /// Measured requests that completed.
    pub fn completed(&self) -> u64 {
        self.measured.get(&Fate::Completed).copied().unwrap_or(0)
    }

    /// Measured requests that neither completed nor were turned away: their latency is not known.
    pub(crate) fn unfinished(&self) -> u64 {
        [Fate::InFlightAtHorizon, Fate::QueuedAtHorizon].iter().filter_map(|fate| self.measured.get(fate)).sum()
    }
}

/// The quantile `q` of ascending samples, interpolated linearly between neighbours; `None` of no samples.
pub(crate) fn quantile_of_sorted(samples: &[f64], q: f64) -> Option<f64> {
    let last = samples.len().checked_sub(1)?;
    let position = last as f64 * q;
    let lower = libm::floor(position);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank lies between 0 and the number of samples")]
    let rank = lower as usize;
    let (below, above) = (samples[rank], samples[(rank + 1).min(last)]);
    Some(below + (above - below) * (position - lower))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_interpolates_as_numpy_does() {
        let samples = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(quantile_of_sorted(&samples, 0.5), Some(3.0));
        assert_eq!(quantile_of_sorted(&samples, 0.9), Some(6.800_000_000_000_001));
        assert_eq!(quantile_of_sorted(&samples, 1.0), Some(8.0));
        assert_eq!(quantile_of_sorted(&[], 0.5), None);
    }
}
