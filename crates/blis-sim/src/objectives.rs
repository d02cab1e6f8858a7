//! How requests do against the objectives of their service classes.
//!
//! A request meets its objective if it completed and no limited latency exceeded its limit. One that was refused or timed out
//! does not meet it; one still in flight when the run stopped is not judged.

use blis_contracts::fate::Fate;
use blis_contracts::record::RequestRecord;
use blis_contracts::scenario::{Objective, Scenario};
use blis_workload::source::Source;

/// The classes with an objective and what became of their requests.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Objectives {
    classes: Vec<Class>,
    /// The class of each source, by its index in the workload.
    of_source: Vec<Option<usize>>,
}

/// One class with an objective.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Class {
    pub(crate) name: String,
    objective: Objective,
    /// Measured requests whose outcome is known.
    pub(crate) judged: u64,
    /// Of these, the ones that met the objective.
    pub(crate) met: u64,
    /// Measured requests in flight when the run stopped.
    pub(crate) unfinished: u64,
}

impl Objectives {
    /// The objectives of a scenario, nothing judged yet.
    pub(crate) fn of(scenario: &Scenario, sources: &[Box<dyn Source>]) -> Self {
        let class = |(name, objective): (&String, &Objective)| Class {
            name: name.clone(),
            objective: *objective,
            judged: 0,
            met: 0,
            unfinished: 0,
        };
        let of_source = sources.iter().map(|source| scenario.objectives.get_index_of(source.class())).collect();
        Self { classes: scenario.objectives.iter().map(class).collect(), of_source }
    }

    /// Judges a measured request whose fate is known.
    pub(crate) fn judge(&mut self, record: &RequestRecord) {
        let Some(class) = self.of_source.get(record.client as usize).copied().flatten() else { return };
        let class = &mut self.classes[class];
        match record.fate {
            Fate::InFlightAtHorizon | Fate::QueuedAtHorizon => class.unfinished += 1,
            Fate::Completed | Fate::Refused | Fate::TimedOut | Fate::NotStarted => {
                class.judged += 1;
                class.met += u64::from(meets(&class.objective, record));
            }
        }
    }

    /// The classes, in the order the scenario states their objectives.
    pub(crate) fn classes(&self) -> &[Class] {
        &self.classes
    }
}

fn meets(objective: &Objective, record: &RequestRecord) -> bool {
    let within = |limit_ms: Option<f64>, micros: Option<f64>| match (limit_ms, micros) {
        (Some(limit), Some(micros)) => micros <= limit * 1e3,
        (None, _) | (Some(_), None) => true,
    };
    record.fate == Fate::Completed
        && within(objective.ttft_ms, record.ttft_us().map(|micros| micros as f64))
        && within(objective.tpot_ms, record.tpot_us())
        && within(objective.e2el_ms, record.e2el_us().map(|micros| micros as f64))
}

#[cfg(test)]
mod tests {
    use blis_contracts::request::RequestId;
    use blis_contracts::units::SimTime;

    use super::*;

    fn record(fate: Fate, first_ms: u64, last_ms: u64, output_tokens: u64) -> RequestRecord {
        let at = |ms: u64| Some(SimTime::from_micros(ms * 1000));
        RequestRecord {
            id: RequestId(0),
            client: 0,
            index: 0,
            warm_up: false,
            fate,
            refusal: None,
            sent: SimTime::ZERO,
            received: at(0),
            scheduled: at(0),
            first_token: at(first_ms),
            last_token: at(last_ms),
            prompt_tokens: 10,
            cached_tokens: 0,
            output_tokens,
            preemptions: 0,
        }
    }

    fn judged(objective: Objective, records: &[RequestRecord]) -> (u64, u64, u64) {
        let class = Class { name: "chat".to_owned(), objective, judged: 0, met: 0, unfinished: 0 };
        let mut objectives = Objectives { classes: vec![class], of_source: vec![Some(0)] };
        for record in records {
            objectives.judge(record);
        }
        let class = &objectives.classes()[0];
        (class.met, class.judged, class.unfinished)
    }

    #[test]
    fn a_latency_at_its_limit_is_within_it_and_one_above_is_not() {
        let objective = Objective { ttft_ms: Some(100.0), tpot_ms: Some(10.0), e2el_ms: Some(190.0) };
        assert_eq!(judged(objective, &[record(Fate::Completed, 100, 190, 10)]), (1, 1, 0));
        assert_eq!(judged(objective, &[record(Fate::Completed, 101, 190, 10)]), (0, 1, 0));
        assert_eq!(judged(objective, &[record(Fate::Completed, 99, 190, 10)]), (0, 1, 0), "91 ms over 9 gaps is above 10 ms");
        assert_eq!(judged(objective, &[record(Fate::Completed, 100, 191, 20)]), (0, 1, 0));
    }

    #[test]
    fn a_single_token_has_no_tpot_to_exceed() {
        let objective = Objective { tpot_ms: Some(1.0), ..Objective::default() };
        assert_eq!(judged(objective, &[record(Fate::Completed, 500, 500, 1)]), (1, 1, 0));
    }

    #[test]
    fn a_refusal_fails_and_an_unfinished_request_is_not_judged() {
        let objective = Objective { ttft_ms: Some(1e6), ..Objective::default() };
        let records = [Fate::Completed, Fate::Refused, Fate::TimedOut, Fate::InFlightAtHorizon].map(|fate| record(fate, 1, 2, 2));
        assert_eq!(judged(objective, &records), (1, 3, 1));
    }
}
