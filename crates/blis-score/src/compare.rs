//! Simulation against measurement: the one place where the two meet.
//!
//! Predictions and measurements are read strictly, joined by sweep and concurrency, and reduced to a [`Summary`]. Units, where given, say
//! what the points have in common; without them the lanes that need one are absent and the coverage is empty.
//!
//! Left out: which points may be looked at. Whoever holds the measurements decides that by handing them over.
//!
//! Reading order: [`measured`] (the files), [`points`] (relative errors), `bootstrap` and `figures`, `lanes`, `paired`.

pub mod measured;

mod points;

mod bootstrap;
mod figures;

mod lanes;
mod paired;
mod sweeps;

use std::collections::{BTreeMap, BTreeSet};

use crate::backlog;
use crate::grade::Grade;
use crate::jsonl::{Input, InputError, Numbered};
use crate::ledger::roles::unknown;
use crate::summary::{Counts, Coverage, FileIdentity, Provenance, SCHEMA, Summary, SummaryKind};
use crate::sweep::{Sweep, read_sweeps};
use figures::Judge;
use lanes::Facts;
use measured::{Measured, PeerAnswers, Predictions, SweepKey};
use points::{Answer, Answers, Compared, Times};

/// The files of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// Predictions.
    pub predictions: &'a Input,
    /// Measurements.
    pub measured: &'a Input,
    /// The units that both are of.
    pub units: Option<&'a Input>,
    /// Other estimators' answers.
    pub peers: Option<&'a Input>,
    /// Predictions to compare the others with.
    pub base: Option<&'a Input>,
}

/// Compares predictions with measurements.
pub fn compare(inputs: &Inputs<'_>) -> Result<Summary, InputError> {
    let judge = Judge::default();
    let predictions = measured::read_predictions(inputs.predictions)?;
    let measured = measured::read_measured(inputs.measured)?;
    let peers = inputs.peers.map(measured::read_peers).transpose()?.unwrap_or_default();
    let base = inputs.base.map(measured::read_predictions).transpose()?;
    let sweeps = inputs.units.map(read_sweeps).transpose()?.unwrap_or_default();
    let sweeps: BTreeMap<SweepKey, Sweep> =
        sweeps.into_iter().map(|sweep| ((sweep.scenario.clone(), sweep.label.clone()), sweep)).collect();
    if inputs.units.is_some() {
        check_points(inputs, &sweeps, &predictions, &measured, base.as_ref())?;
    }

    let facts = Facts { sweeps: &sweeps, predictions: &predictions };
    let (answers, truth) = (points::predicted(&predictions), points::observed(&measured));
    let compared = points::compared(&answers, &truth);
    let all: Vec<&Compared> = compared.iter().collect();
    let arms =
        peer_answers(&peers).into_iter().map(|(name, theirs)| lanes::arm(&name, &theirs, &answers, &truth, &facts, &judge)).collect();
    let paired = base.map(|base| paired::paired(&points::predicted(&base), &answers, &truth, &facts, &judge));
    Ok(Summary {
        kind: SummaryKind::ScoreSummary,
        schema: SCHEMA,
        provenance: provenance(inputs),
        counts: counts(&facts, &truth, &compared),
        headline: figures::figures(&all, &judge),
        lanes: lanes::lanes(&all, &facts, &judge),
        peers: arms,
        paired,
        coverage: coverage(&facts, &compared),
        backlog: backlog::backlog(&predictions, &sweeps),
        sweeps: sweeps::sweeps(&facts, &truth, &compared, &peers, &judge.rules),
        rules: judge.rules,
    })
}

/// Every point that is predicted or measured is a point of the units.
fn check_points(
    inputs: &Inputs<'_>,
    sweeps: &BTreeMap<SweepKey, Sweep>,
    predictions: &Predictions,
    measured: &BTreeMap<SweepKey, Numbered<Measured>>,
    base: Option<&Predictions>,
) -> Result<(), InputError> {
    let check = |input: &Input, line: usize, key: &SweepKey, concurrency: u32| match sweeps.get(key) {
        None => Err(input.at(line, unknown(key, sweeps.keys()))),
        Some(sweep) if !sweep.concurrency.contains(&concurrency) => {
            let message = format!("{} {} has no point at concurrency {concurrency}; its points are {:?}", key.0, key.1, sweep.concurrency);
            Err(input.at(line, message))
        }
        Some(_) => Ok(()),
    };
    let sets = [(Some(inputs.predictions), Some(predictions)), (inputs.base, base)];
    for (input, predictions) in sets.into_iter().filter_map(|(input, predictions)| input.zip(predictions)) {
        for (key, points) in predictions {
            for (concurrency, point) in points {
                check(input, point.line, key, *concurrency)?;
            }
        }
    }
    for (key, Numbered { line, value }) in measured {
        for concurrency in value.mean_tpot_us.keys().chain(value.mean_ttft_us.keys()) {
            check(inputs.measured, *line, key, *concurrency)?;
        }
    }
    Ok(())
}

fn peer_answers(peers: &PeerAnswers) -> BTreeMap<String, Answers> {
    let times = |mean| Times { mean, percentiles: [None; 3] };
    let answer = |(tpot, ttft): (Option<f64>, Option<f64>)| Answer { tpot: times(tpot), ttft: times(ttft), kv_tokens: None };
    let of_estimator = |answers: &BTreeMap<SweepKey, measured::ByConcurrency<_>>| {
        let of_sweep = |points: &measured::ByConcurrency<_>| points.iter().map(|(c, times)| (*c, answer(*times))).collect();
        answers.iter().map(|(key, points)| (key.clone(), of_sweep(points))).collect()
    };
    peers.iter().map(|(name, answers)| (name.clone(), of_estimator(answers))).collect()
}

fn provenance(inputs: &Inputs<'_>) -> Provenance {
    let identity = |input: &Input| FileIdentity { name: input.name(), sha256: input.sha256() };
    Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        predictions: identity(inputs.predictions),
        measured: identity(inputs.measured),
        units: inputs.units.map(identity),
        peers: inputs.peers.map(identity),
        base: inputs.base.map(identity),
    }
}

/// Every point there is: of the units, or of predictions and measurements where there are none.
fn every_point(facts: &Facts<'_>, truth: &Answers) -> BTreeSet<(SweepKey, u32)> {
    if !facts.sweeps.is_empty() {
        let of_sweep = |(key, sweep): (&SweepKey, &Sweep)| sweep.concurrency.iter().map(|c| (key.clone(), *c)).collect::<Vec<_>>();
        return facts.sweeps.iter().flat_map(of_sweep).collect();
    }
    let predicted = facts.predictions.iter().flat_map(|(key, points)| points.keys().map(|c| (key.clone(), *c)));
    predicted.chain(truth.iter().flat_map(|(key, points)| points.keys().map(|c| (key.clone(), *c)))).collect()
}

fn counts(facts: &Facts<'_>, truth: &Answers, compared: &[Compared]) -> Counts {
    let points = every_point(facts, truth).len();
    let predictions = || facts.predictions.values().flat_map(BTreeMap::values).map(|point| &point.value);
    let answered = predictions().count();
    let refused = predictions().filter(|prediction| prediction.refused.is_some()).count();
    Counts {
        points,
        answered,
        simulated: answered - refused,
        refused,
        unanswered: points
            - every_point(facts, truth).iter().filter(|(key, c)| facts.predictions.get(key).is_some_and(|p| p.contains_key(c))).count(),
        measured: truth.values().map(BTreeMap::len).sum(),
        compared: compared.len(),
        by_grade: by_grade(predictions().map(|prediction| prediction.grade)),
    }
}

fn by_grade(grades: impl Iterator<Item = Grade>) -> BTreeMap<Grade, usize> {
    let mut counts = BTreeMap::from([Grade::G1, Grade::G2, Grade::G3, Grade::G4, Grade::G5].map(|grade| (grade, 0)));
    for grade in grades {
        *counts.entry(grade).or_default() += 1;
    }
    counts
}

fn coverage(facts: &Facts<'_>, compared: &[Compared]) -> Vec<Coverage> {
    let mut groups: BTreeMap<[&str; 4], Vec<(&SweepKey, &Sweep)>> = BTreeMap::new();
    for (key, sweep) in facts.sweeps {
        let model = sweep.model().unwrap_or_default();
        groups.entry([model, &sweep.gpu, &sweep.framework, sweep.build()]).or_default().push((key, sweep));
    }
    let row = |([model, chip, engine, build], sweeps): ([&str; 4], Vec<(&SweepKey, &Sweep)>)| {
        let predictions =
            || sweeps.iter().filter_map(|(key, _)| facts.predictions.get(*key)).flat_map(BTreeMap::values).map(|point| &point.value);
        Coverage {
            model: model.to_owned(),
            chip: chip.to_owned(),
            engine: engine.to_owned(),
            build: build.to_owned(),
            points: sweeps.iter().map(|(_, sweep)| sweep.concurrency.len()).sum(),
            simulated: predictions().filter(|prediction| prediction.refused.is_none()).count(),
            compared: compared.iter().filter(|point| sweeps.iter().any(|(key, _)| **key == point.key)).count(),
            by_grade: by_grade(predictions().map(|prediction| prediction.grade)),
        }
    };
    groups.into_iter().map(row).collect()
}
