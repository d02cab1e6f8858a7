//! Checks that need the folder `shared/` beside the checkout, which not every reader has.
//!
//! Absent, the step says that it skipped. Present, it must really look: fewer units or points than stated here fail it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::workspace::{Outcome, Profile, Workspace, capture};

/// The measured deployments, one JSON object a line, relative to the root.
const UNITS: &str = "../shared/measurements/inferencex-units.jsonl";

/// The fewest units the file must hold.
const UNITS_MIN: usize = 152;

/// The fewest points that must be predicted and not refused.
const POINTS_MIN: usize = 356;

/// Predicts every unit and counts what came back.
pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    if !workspace.root.join("../shared").is_dir() {
        return Ok(Outcome::Skipped("no folder `shared` beside the checkout".to_owned()));
    }
    let units = std::fs::read_to_string(workspace.root.join(UNITS)).with_context(|| format!("cannot read {UNITS}"))?;
    let binary = workspace.build_blis(Profile::Release)?;
    let binary = binary.to_str().context("the target folder's path is not UTF-8")?;
    let lines = capture(&mut workspace.command(binary, &["score", "predict", "--units", UNITS]))?;
    let lines = String::from_utf8(lines).context("`blis score predict` did not print text")?;
    let tally = Tally::of(&units, &lines)?;
    tally.check(UNITS_MIN, POINTS_MIN)?;
    Ok(Outcome::Passed(format!("{} units: {} points predicted, {} refused", tally.units, tally.points, tally.refused)))
}

/// What `blis score predict` made of the units.
#[derive(Debug)]
struct Tally {
    units: usize,
    points: usize,
    refused: usize,
    unanswered: Vec<String>,
}

impl Tally {
    /// Counts the answers; a line is a refusal where its `refused` holds a reason, else the prediction of one point.
    fn of(units: &str, lines: &str) -> Result<Self> {
        let asked = units.lines().map(unit_of).collect::<Result<Vec<_>>>()?;
        let mut answered = BTreeSet::new();
        let (mut points, mut refused) = (0, 0);
        for line in lines.lines() {
            answered.insert(unit_of(line)?);
            let value: Value = serde_json::from_str(line)?;
            if value["refused"].is_string() {
                refused += 1;
            } else {
                points += 1;
            }
        }
        let unanswered = asked.iter().filter(|unit| !answered.contains(*unit)).cloned().collect();
        Ok(Self { units: asked.len(), points, refused, unanswered })
    }

    /// Every unit has an answer, and there were as many of each as there must be.
    fn check(&self, units_min: usize, points_min: usize) -> Result<()> {
        if let Some(unit) = self.unanswered.first() {
            bail!("{} units have neither prediction nor refusal, the first is {unit}", self.unanswered.len());
        }
        if self.units < units_min {
            bail!("{} units, at least {units_min} expected", self.units);
        }
        if self.points < points_min {
            bail!("{} points predicted, at least {points_min} expected", self.points);
        }
        Ok(())
    }
}

/// What names a unit, in the file and in the answers.
fn unit_of(line: &str) -> Result<String> {
    let value: Value = serde_json::from_str(line).with_context(|| format!("not a JSON object: {line}"))?;
    let part = |key: &str| value[key].as_str().map(str::to_owned).with_context(|| format!("no `{key}` in {line}"));
    Ok(format!("{} {}", part("scenario")?, part("label")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: &str = "{\"scenario\": \"a\", \"label\": \"1k1k\"}\n{\"scenario\": \"b\", \"label\": \"1k1k\"}\n";
    const PREDICTED: &str = "{\"scenario\": \"a\", \"label\": \"1k1k\", \"concurrency\": 4, \"refused\": null}\n";
    const REFUSED: &str = "{\"scenario\": \"b\", \"label\": \"1k1k\", \"refused\": \"pipeline parallel\"}\n";

    #[test]
    fn every_unit_answered_and_enough_points_pass() {
        let tally = Tally::of(UNITS, &[PREDICTED, REFUSED].concat()).unwrap();
        assert_eq!((tally.units, tally.points, tally.refused), (2, 1, 1));
        assert!(tally.check(2, 1).is_ok());
    }

    #[test]
    fn a_unit_without_an_answer_is_named() {
        let error = Tally::of(UNITS, PREDICTED).unwrap().check(2, 1).unwrap_err().to_string();
        assert!(error.ends_with("the first is b 1k1k"), "{error}");
    }

    #[test]
    fn too_few_units_or_points_fail() {
        let tally = Tally::of(UNITS, &[PREDICTED, REFUSED].concat()).unwrap();
        assert!(tally.check(3, 1).is_err());
        assert!(tally.check(2, 2).is_err());
    }
}
