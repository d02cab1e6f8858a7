//! The backlog: everything that lowers coverage or grade, with the points it holds back, so that work starts at its top.
//!
//! Reasons are counted as the predictions state them, by code and subject; nothing here classifies a setting. Entries are ranked by the points they hold
//! back: refusals first among equals, then grades, then prices.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::measured::{Predictions, SweepKey};
use crate::grade::{Grade, GradeReason, ReasonCode};
use crate::prediction::Prediction;
use crate::summary::{Blocker, BlockerKind};
use crate::sweep::Sweep;

/// What identifies an entry: its kind, its engine, the code of its reason, what that is about.
type Entry = (BlockerKind, Option<String>, ReasonCode, String);

/// What an entry holds back.
#[derive(Debug, Default)]
struct Held {
    points: usize,
    alone: usize,
    sweeps: BTreeSet<SweepKey>,
    share: f64,
    /// Its reasons' sentences, of which one is told.
    texts: BTreeSet<String>,
}

/// Ranks what holds points back.
pub(crate) fn backlog(predictions: &Predictions, sweeps: &BTreeMap<SweepKey, Sweep>) -> Vec<Blocker> {
    let mut entries: BTreeMap<Entry, Held> = BTreeMap::new();
    for (key, points) in predictions {
        let engine = sweeps.get(key).map(|sweep| sweep.framework.clone());
        for prediction in points.values().map(|point| &point.value) {
            for Reason { kind, code, subject, text, share, alone } in reasons(prediction) {
                let held = entries.entry((kind, engine.clone(), code, subject)).or_default();
                held.texts.insert(text);
                held.points += 1;
                held.alone += usize::from(alone);
                held.share += share;
                held.sweeps.insert(key.clone());
            }
        }
    }
    let mut rows: Vec<Blocker> = entries.into_iter().map(|(entry, held)| row(entry, &held, sweeps)).collect();
    // The sort is stable, so that what holds back equally many points keeps the order of kind, engine and reason.
    rows.sort_by_key(|row| std::cmp::Reverse(row.points));
    rows
}

/// What holds one point back.
struct Reason {
    kind: BlockerKind,
    code: ReasonCode,
    subject: String,
    text: String,
    /// Share of the point's time.
    share: f64,
    /// Whether nothing else of that kind holds the point back.
    alone: bool,
}

fn reasons(prediction: &Prediction) -> Vec<Reason> {
    let kind = |reason: &GradeReason| match reason.code.grade() {
        Grade::G5 => BlockerKind::Refused,
        Grade::G1 | Grade::G2 | Grade::G3 | Grade::G4 if reason.code.is_about_prices() => BlockerKind::Price,
        Grade::G1 | Grade::G2 | Grade::G3 | Grade::G4 => BlockerKind::Demoted,
    };
    let named: BTreeSet<&GradeReason> = prediction.grade_reasons.iter().collect();
    let shares: BTreeMap<&str, f64> = prediction.price_ranks.iter().flatten().map(|(method, share)| (method.as_str(), *share)).collect();
    let of = |reason: &GradeReason| Reason {
        kind: kind(reason),
        code: reason.code,
        subject: reason.subject.clone(),
        text: reason.text.clone(),
        share: shares.get(reason.subject.as_str()).copied().unwrap_or(0.0),
        alone: named.iter().filter(|other| kind(other) == kind(reason)).count() == 1,
    };
    named.iter().map(|reason| of(reason)).collect()
}

fn row((kind, engine, code, subject): Entry, held: &Held, sweeps: &BTreeMap<SweepKey, Sweep>) -> Blocker {
    let concerned = |fact: fn(&Sweep) -> String| -> Vec<String> {
        held.sweeps.iter().filter_map(|key| sweeps.get(key)).map(fact).collect::<BTreeSet<_>>().into_iter().collect()
    };
    Blocker {
        kind,
        code,
        what: text_of(&subject, &held.texts),
        subject,
        engine,
        points: held.points,
        alone: held.alone,
        sweeps: held.sweeps.len(),
        models: concerned(|sweep| sweep.model().unwrap_or_default().to_owned()),
        chips: concerned(|sweep| sweep.gpu.clone()),
        time_percent: (kind == BlockerKind::Price).then(|| 100.0 * held.share / held.points as f64),
    }
}

/// One sentence for reasons that differ in their numbers only: the first, or what they are about where there are several.
fn text_of(subject: &str, texts: &BTreeSet<String>) -> String {
    match texts.first() {
        Some(text) if texts.len() == 1 => text.clone(),
        Some(text) => format!("{text} (and {} more about {subject})", texts.len() - 1),
        None => subject.to_owned(),
    }
}
