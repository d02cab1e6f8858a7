//! What a run recorded of itself, against what its launch line states: the build, and the settings in the server's log.
//!
//! The launch line and the logged passed values record the same stage, so that a difference is a conflict. A logged resolved value is
//! compared with what the port resolves, after the run. Nothing here knows any setting but the checkpoint, whose name is a path where
//! the server read it from a disk.

use blis_contracts::provenance::ResolvedSetting;
use blis_vllm::config::Reading;
use serde_json::Value;

use crate::grade::{GradeReason, ReasonCode};
use crate::sweep::{Parallel, Sweep};

/// The setting that names the checkpoint.
const MODEL: &str = "model";
/// The release that the log says ran.
const VERSION: &str = "engine_version";
/// The names of the widths that a unit states too, as launch lines have them.
const WIDTHS: [&str; 3] = ["tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"];

/// The build that ran, as its image's tag tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build<'a> {
    /// A release, by its number.
    Release(&'a str),
    /// A nightly build, by its tag.
    Nightly(&'a str),
    /// Any other, by its tag.
    Custom(&'a str),
}

impl<'a> Build<'a> {
    /// Reads a tag: `v0.22.0`, `v0.17.0-cu130`, `nightly-COMMIT`, or anything else.
    pub(crate) fn of(image: &'a str) -> Result<Self, GradeReason> {
        let name = image.split_once('@').map_or(image, |(name, _)| name);
        let last = name.rsplit('/').next().unwrap_or(name);
        let Some((_, tag)) = last.split_once(':').filter(|(_, tag)| !tag.is_empty()) else {
            return Err(GradeReason::new(
                ReasonCode::BuildUnparseable,
                "launch.image",
                format!("image `{image}` has no tag that names a build"),
            ));
        };
        let release = tag.strip_prefix('v').map(|tag| tag.split(['-', '+']).next().unwrap_or(tag)).filter(|release| is_release(release));
        Ok(match release {
            Some(release) => Self::Release(release),
            None if tag.starts_with("nightly") => Self::Nightly(tag),
            None => Self::Custom(tag),
        })
    }

    /// Why the build alone keeps a point from a better grade; none where the modelled release ran.
    pub(crate) fn reason(self) -> Option<GradeReason> {
        let scored = blis_vllm::RELEASE;
        match self {
            Self::Release(release) if release == scored => None,
            Self::Release(release) => {
                let text = format!("ran {release}, scored on {scored}; no account shows the ported functions unchanged between them");
                Some(GradeReason::new(ReasonCode::OtherRelease, release, text))
            }
            Self::Nightly(tag) => Some(GradeReason::new(ReasonCode::NightlyBuild, tag, format!("ran the build {tag}, scored on {scored}"))),
            Self::Custom(tag) => Some(GradeReason::new(ReasonCode::CustomBuild, tag, format!("ran the build {tag}, scored on {scored}"))),
        }
    }
}

fn is_release(text: &str) -> bool {
    text.split('.').count() == 3 && text.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Compares the log with the launch line and the image: the differences that grade a point, and the conflicts that leave it unscored.
/// What an estimation rule stands in for was stated all the same.
pub(crate) fn check(sweep: &Sweep, concurrency: u32, build: Build<'_>, reading: &Reading) -> Vec<GradeReason> {
    let stated = &reading.stated;
    let mut reasons = Vec::new();
    if sweep.settings.is_none() {
        let text = "no server log was kept: what the launch line leaves out follows the modelled release's own rules";
        reasons.push(GradeReason::new(ReasonCode::SettingsUnlogged, "settings", text));
    }
    let conflict = |name: &str, text: String| GradeReason::new(ReasonCode::ValueConflict, name, text);
    for (name, passed) in sweep.passed(concurrency) {
        if name == MODEL {
            reasons.extend(checkpoint(passed, stated.model()));
            continue;
        }
        if reading.estimates.iter().any(|estimated| estimated.field.key == name) {
            continue;
        }
        match stated.value(name) {
            Some(value) if same(value, passed) => {}
            Some(value) => reasons.push(conflict(name, format!("the launch line states {name} = {value}, the server's log {passed}"))),
            None => {
                reasons
                    .push(conflict(name, format!("the server's log has {name} = {passed} as passed, the launch line does not state it")));
            }
        }
    }
    let Parallel { tp, pp, adp, .. } = sweep.parallel;
    for ((width, field), name) in [(tp, "tp"), (pp, "pp"), (adp, "adp")].into_iter().zip(WIDTHS) {
        if let Some(ran) = stated.value(name).map_or(Some(1), Value::as_u64)
            && ran != u64::from(width)
        {
            let text = format!("the unit states parallel.{field} = {width}, the launch line {name} = {ran}, by which it is simulated");
            reasons.push(GradeReason::new(ReasonCode::LayoutDiffers, name, text));
        }
    }
    let logged = sweep.resolved(concurrency).find(|(name, _)| *name == VERSION).and_then(|(_, version)| version.as_str());
    if let (Build::Release(release), Some(logged)) = (build, logged)
        && release != logged
    {
        reasons.push(conflict(VERSION, format!("the image is of release {release}, the server's log says {logged}")));
    }
    reasons
}

/// A checkpoint read from a folder is taken to be the one the launch line names where the folder has its name.
fn checkpoint(passed: &Value, stated: &str) -> Option<GradeReason> {
    let passed = passed.as_str().unwrap_or_default();
    let last = |name: &str| name.rsplit('/').next().map(str::to_owned);
    if passed == stated {
        None
    } else if passed.starts_with('/') && last(passed) == last(stated) {
        let text = format!("the server read {passed}, taken to hold {stated}");
        Some(GradeReason::new(ReasonCode::LocalCheckpoint, stated, text))
    } else {
        let text = format!("the launch line states the checkpoint {stated}, the server's log {passed}");
        Some(GradeReason::new(ReasonCode::ValueConflict, MODEL, text))
    }
}

/// Whether two records state one value. Whole and real numbers of one size are one value.
fn same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one.total_cmp(&other).is_eq(),
        _ => one == other,
    }
}

/// Settings that the log says were resolved otherwise than the port resolves them.
pub(crate) fn resolved_otherwise(sweep: &Sweep, concurrency: u32, settings: &[ResolvedSetting]) -> Vec<GradeReason> {
    let differs = |(name, logged): (&String, &Value)| {
        let ours = &settings.iter().find(|setting| setting.name == *name)?.value;
        let logged = logged.as_str().map_or_else(|| logged.to_string(), str::to_owned);
        let text = || format!("the server resolved {name} to {logged}, the modelled release resolves it to {ours}");
        (!logged.eq_ignore_ascii_case(ours)).then(|| GradeReason::new(ReasonCode::ResolutionDiffers, name.clone(), text()))
    };
    sweep.resolved(concurrency).filter(|(name, _)| *name != VERSION).filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_names_a_release_a_nightly_or_a_build_of_its_own() {
        assert_eq!(Build::of("vllm/vllm-openai:v0.17.0-cu130@sha256:00ff"), Ok(Build::Release("0.17.0")));
        assert_eq!(Build::of("host:5000/vllm:v0.22.0"), Ok(Build::Release("0.22.0")));
        assert_eq!(Build::of("vllm/vllm-openai:nightly-93d8"), Ok(Build::Nightly("nightly-93d8")));
        assert_eq!(Build::of("vllm/vllm-openai:vnext"), Ok(Build::Custom("vnext")));
        assert_eq!(Build::of("host:5000/vllm").unwrap_err().code, ReasonCode::BuildUnparseable);
        assert!(Build::Release(blis_vllm::RELEASE).reason().is_none());
    }

    #[test]
    fn a_folder_named_after_the_checkpoint_is_taken_for_it_and_no_other_is() {
        let check = |passed: &str| checkpoint(&Value::from(passed), "openai/gpt-oss-20b").map(|reason| reason.code);
        assert_eq!(check("openai/gpt-oss-20b"), None);
        assert_eq!(check("/models/gpt-oss-20b"), Some(ReasonCode::LocalCheckpoint));
        assert_eq!(check("/models/gpt-oss-120b"), Some(ReasonCode::ValueConflict));
        assert_eq!(check("someone/gpt-oss-20b"), Some(ReasonCode::ValueConflict));
    }

    #[test]
    fn numbers_are_compared_by_size() {
        assert!(same(&Value::from(1), &Value::from(1.0)) && !same(&Value::from(1), &Value::from("1")));
    }
}
