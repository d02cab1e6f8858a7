//! What points have in common: lanes, the arms of other estimators, the error bands of sweeps.

use std::collections::BTreeMap;

use super::bootstrap::middle;
use super::figures::{Judge, figures};
use super::measured::{Predictions, SweepKey};
use super::points::{Answers, Compared, compared, shared};
use crate::summary::{Arm, ArmLane, Band, Dimension, Lane, Latency, Rules, Tier};
use crate::sweep::Sweep;
use blis_registry::errors::family;

/// Every dimension, in the order in which a summary lists them.
const DIMENSIONS: [Dimension; 10] = [
    Dimension::Family,
    Dimension::Model,
    Dimension::Chip,
    Dimension::Engine,
    Dimension::Layout,
    Dimension::Precision,
    Dimension::Lengths,
    Dimension::Concurrency,
    Dimension::Grade,
    Dimension::Tier,
];

/// The dimensions on which other estimators are compared.
const ARM_DIMENSIONS: [Dimension; 3] = [Dimension::Family, Dimension::Chip, Dimension::Tier];

/// Bands of concurrency, by their upper ends; what lies above the last is a band too.
const BANDS: [(u32, &str); 4] = [(4, "1 to 4"), (16, "5 to 16"), (64, "17 to 64"), (256, "65 to 256")];
const BAND_ABOVE: &str = "above 256";

/// What is known of the points beside their times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    /// The units by sweep; none where none were given.
    pub(crate) sweeps: &'a BTreeMap<SweepKey, Sweep>,
    pub(crate) predictions: &'a Predictions,
}

/// Whether the server's own log was kept.
pub(crate) fn tier(sweep: &Sweep) -> Tier {
    if sweep.settings.is_some() { Tier::Logged } else { Tier::Unlogged }
}

impl Facts<'_> {
    /// The model and family of a sweep, where units were given.
    pub(crate) fn model(&self, key: &SweepKey) -> Option<&str> {
        self.sweeps.get(key).and_then(Sweep::model)
    }

    /// What a point's lane of a dimension is called, with its place among the lanes; none where it is not known.
    fn value(&self, dimension: Dimension, point: &Compared) -> Option<(usize, String)> {
        let sweep = self.sweeps.get(&point.key);
        let value = match dimension {
            Dimension::Family => family(self.model(&point.key)?),
            Dimension::Model => self.model(&point.key)?.to_owned(),
            Dimension::Chip => sweep?.gpu.clone(),
            Dimension::Engine => sweep?.framework.clone(),
            Dimension::Layout => return Some((sweep?.gpus() as usize, sweep?.parallel.layout())),
            Dimension::Precision => sweep?.precision.clone(),
            Dimension::Lengths => point.key.1.clone(),
            Dimension::Concurrency => {
                let at = BANDS.iter().position(|(upper, _)| point.concurrency <= *upper).unwrap_or(BANDS.len());
                return Some((at, BANDS.get(at).map_or(BAND_ABOVE, |(_, name)| name).to_owned()));
            }
            Dimension::Grade => format!("{:?}", self.predictions.get(&point.key)?.get(&point.concurrency)?.value.grade),
            Dimension::Tier => match tier(sweep?) {
                Tier::Logged => "logged".to_owned(),
                Tier::Unlogged => "unlogged".to_owned(),
            },
        };
        Some((0, value))
    }
}

/// Points by what they share, in the order of the lanes. Points of which it is not known are left out.
pub(crate) fn lanes_by<'a>(dimension: Dimension, points: &[&'a Compared], facts: &Facts<'_>) -> Vec<(String, Vec<&'a Compared>)> {
    let mut groups: BTreeMap<(usize, String), Vec<&Compared>> = BTreeMap::new();
    for &point in points {
        if let Some(value) = facts.value(dimension, point) {
            groups.entry(value).or_default().push(point);
        }
    }
    groups.into_iter().map(|((_, value), points)| (value, points)).collect()
}

/// Errors by every dimension that is known.
pub(crate) fn lanes(points: &[&Compared], facts: &Facts<'_>, judge: &Judge) -> Vec<Lane> {
    let of_dimension = |dimension| lanes_by(dimension, points, facts).into_iter().map(move |(value, points)| (dimension, value, points));
    let all = DIMENSIONS.into_iter().flat_map(of_dimension);
    all.map(|(dimension, value, points)| Lane { dimension, value, figures: figures(&points, judge) }).collect()
}

/// Another estimator beside ours: both on the points that both answer.
pub(crate) fn arm(estimator: &str, theirs: &Answers, ours: &Answers, truth: &Answers, facts: &Facts<'_>, judge: &Judge) -> Arm {
    let answers: usize = theirs.values().map(BTreeMap::len).sum();
    let (theirs, ours) = (compared(&shared(theirs, ours), truth), compared(&shared(ours, theirs), truth));
    let unmatched = answers - theirs.len();
    let (theirs, ours): (Vec<&Compared>, Vec<&Compared>) = (theirs.iter().collect(), ours.iter().collect());
    let lane = |dimension, value: String, theirs: &[&Compared], ours: &[&Compared]| ArmLane {
        dimension,
        value,
        theirs: figures(theirs, judge),
        ours: figures(ours, judge),
    };
    let mut lanes = vec![lane(None, "all".to_owned(), &theirs, &ours)];
    for dimension in ARM_DIMENSIONS {
        let pairs = lanes_by(dimension, &theirs, facts).into_iter().zip(lanes_by(dimension, &ours, facts));
        lanes.extend(pairs.map(|((value, theirs), (_, ours))| lane(Some(dimension), value, &theirs, &ours)));
    }
    Arm { estimator: estimator.to_owned(), unmatched, lanes }
}

/// The error band of a sweep, from the points of other sweeps: of the same family where there are enough, else of all.
///
/// A sweep's own points are left out, so that the band says what one would have expected of it without having measured it.
pub(crate) fn band(key: &SweepKey, latency: Latency, points: &[Compared], facts: &Facts<'_>, rules: &Rules) -> Option<Band> {
    let own = facts.model(key).map(family);
    let ratios = |same_family: bool| -> Vec<f64> {
        let others = points.iter().filter(|point| point.key != *key);
        let chosen = others.filter(|point| !same_family || facts.model(&point.key).map(family) == own);
        chosen.filter_map(|point| Some(1.0 / (1.0 + point.errors(latency).mean? / 100.0))).collect()
    };
    let in_family = own.is_some().then(|| ratios(true)).filter(|ratios| ratios.len() >= rules.minimum_points);
    let (mut ratios, over) = match (in_family, &own) {
        (Some(ratios), Some(own)) => (ratios, format!("other sweeps of {own}")),
        (None | Some(_), _) => (ratios(false), "all other sweeps".to_owned()),
    };
    if ratios.len() < rules.minimum_points {
        return None;
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let [low, high] = middle(&ratios, rules.band_percent / 100.0);
    Some(Band { low, high, points: ratios.len(), over })
}
