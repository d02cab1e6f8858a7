//! The backlog: everything that lowers coverage or grade, with the points it holds back, so that work starts at its top.
//!
//! Reasons are counted as the predictions state them; nothing here classifies a setting. Entries are ranked by the points they hold
//! back: refusals first among equals, then grades, then prices.

use std::collections::{BTreeMap, BTreeSet};

use blis_contracts::provenance::Method;

use crate::compare::measured::{Predictions, SweepKey};
use crate::ledger::sweep::Sweep;
use crate::prediction::Prediction;
use crate::summary::{Blocker, BlockerKind};

/// What identifies an entry: its kind, its engine, its reason.
type Entry = (BlockerKind, Option<String>, String);

/// What an entry holds back.
#[derive(Debug, Default)]
struct Held {
    points: usize,
    alone: usize,
    sweeps: BTreeSet<SweepKey>,
    share: f64,
}

/// Ranks what holds points back.
pub(crate) fn backlog(predictions: &Predictions, sweeps: &BTreeMap<SweepKey, Sweep>) -> Vec<Blocker> {
    let mut entries: BTreeMap<Entry, Held> = BTreeMap::new();
    for (key, points) in predictions {
        let engine = sweeps.get(key).map(|sweep| sweep.framework.clone());
        for prediction in points.values().map(|point| &point.value) {
            for (kind, what, share, alone) in reasons(prediction) {
                let held = entries.entry((kind, engine.clone(), what)).or_default();
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

/// What holds one point back: how, what, the share of its time, and whether nothing else of that kind does.
fn reasons(prediction: &Prediction) -> Vec<(BlockerKind, String, f64, bool)> {
    if let Some(refused) = &prediction.refused {
        return vec![(BlockerKind::Refused, refused.clone(), 0.0, true)];
    }
    let named: BTreeSet<&String> = prediction.grade_reasons.iter().collect();
    let alone = named.len() == 1;
    let mut reasons: Vec<_> = named.into_iter().map(|reason| (BlockerKind::Demoted, reason.clone(), 0.0, alone)).collect();
    let prices = prediction.price_ranks.iter().flatten().filter(|(method, share)| !is_fitted(**method) && **share > 0.0);
    let prices: Vec<_> = prices.map(|(method, share)| (name(*method), *share)).collect();
    let alone = prices.len() == 1;
    reasons.extend(prices.into_iter().map(|(method, share)| (BlockerKind::Price, method, share, alone)));
    reasons
}

fn row((kind, engine, what): Entry, held: &Held, sweeps: &BTreeMap<SweepKey, Sweep>) -> Blocker {
    let concerned = |fact: fn(&Sweep) -> String| -> Vec<String> {
        held.sweeps.iter().filter_map(|key| sweeps.get(key)).map(fact).collect::<BTreeSet<_>>().into_iter().collect()
    };
    Blocker {
        kind,
        what,
        engine,
        points: held.points,
        alone: held.alone,
        sweeps: held.sweeps.len(),
        models: concerned(|sweep| sweep.model().unwrap_or_default().to_owned()),
        chips: concerned(|sweep| sweep.gpu.clone()),
        time_percent: (kind == BlockerKind::Price).then(|| 100.0 * held.share / held.points as f64),
    }
}

/// Whether a method rests on measurements of what it prices.
fn is_fitted(method: Method) -> bool {
    match method {
        Method::Measured | Method::Calibrated => true,
        Method::Transferred | Method::Literature | Method::VendorSpec | Method::Roofline | Method::Assumed | Method::NotCharged => false,
    }
}

/// The method's name in documents.
fn name(method: Method) -> String {
    serde_json::to_value(method).ok().and_then(|name| name.as_str().map(str::to_owned)).expect("a method's name is text")
}
