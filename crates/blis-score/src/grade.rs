//! Grades: how close a simulated run is to the measured one, and the reasons that decide it.
//!
//! A reason is a code of a closed list, a subject (the field, kernel method or build it is about) and a sentence. Each code states the
//! best grade a point that has it can get, and a point's grade is the worst of these: nothing else decides it. Whether a field is
//! modelled is never decided here; the engine's own reader says so.
//!
//! G3 needs a committed account of the ported functions that changed between two releases. There is none, so no code gives G3 and
//! every other release is G4.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How close a simulated run is to the measured one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Grade {
    /// Everything the run depended on is recorded and modelled.
    G1,
    /// As G1, but for differences that the point names.
    G2,
    /// Another release ran, whose ported functions are shown to be the modelled one's.
    G3,
    /// Another release, a nightly or a custom build ran.
    G4,
    /// Not simulated.
    G5,
}

/// Why a grade is not better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasonCode {
    /// G2: what the launch line leaves out follows the engine's own rules, since no log says what the server made of it.
    SettingsUnlogged,
    /// G2: the server read its weights from a folder that is taken to hold the checkpoint it is named after.
    LocalCheckpoint,
    /// G2: the server's log says it resolved a setting otherwise than the port does.
    ResolutionDiffers,
    /// G2: the unit states another layout than its launch line, by which it is simulated.
    LayoutDiffers,
    /// G2: the run passed a setting that is not modelled, and the engine's estimation rule stands in for it.
    SettingEstimated,
    /// G2: a spelling of another release was read as what it means in the modelled one, or a default of the release that ran was taken
    /// where the modelled one has another.
    SettingTranslated,
    /// G2: the build is of no release, so the release whose spellings its launch line uses was found by trying.
    SpellingsAssumed,
    /// G2: something the client did is not known, or not repeated.
    ClientDiffers,
    /// G2: fewer requests were in flight on average than the client kept, by more than the stated tolerance.
    ConcurrencyOff,
    /// G2: the engine did not complete every request.
    RequestsUnserved,
    /// G2: a share of the time is priced by coefficients carried over from another chip, release or kernel.
    KernelBorrowed,
    /// G2: a share of the time is priced by publications, data sheets, peaks or assumptions.
    CoefficientNotFitted,
    /// G2: a share of the time is priced outside the range its coefficients were fitted in.
    CoefficientExtrapolated,
    /// G4: another release ran.
    OtherRelease,
    /// G4: a nightly build ran.
    NightlyBuild,
    /// G4: a build ran that is neither a release nor a nightly.
    CustomBuild,
    /// G5: the run loaded code that the modelled release does not ship.
    CodeNotVisible,
    /// G5: the run was measured behind a router that is not modelled.
    RouterUnsupported,
    /// G5: the result depends on a value that the run did not record.
    ValueNotRecorded,
    /// G5: the run sets a field that the engine's port does not model.
    FieldNotModelled,
    /// G5: the run sets a field that the engine's port says nothing of.
    FieldUnclassified,
    /// G5: there is no port of the engine.
    EngineUnsupported,
    /// G5: the deployment cannot be written as a scenario.
    TopologyUnsupported,
    /// G5: the catalog lacks the model or the chip.
    NotInCatalog,
    /// G5: the run sets a field, or a value of one, that the modelled release does not have.
    FieldNotInRelease,
    /// G5: two records of one stage of a field differ.
    ValueConflict,
    /// G5: the recorded build cannot be read.
    BuildUnparseable,
    /// G5, and a fault of the record: the launch line cannot be read at all.
    LaunchUnreadable,
    /// G5, and a fault of the simulation: the modelled engine does not start, or serves nothing, where the measured one did.
    RunRefused,
}

impl ReasonCode {
    /// The best grade of a point that has such a reason.
    pub const fn grade(self) -> Grade {
        match self {
            Self::SettingsUnlogged
            | Self::LocalCheckpoint
            | Self::ResolutionDiffers
            | Self::SettingEstimated
            | Self::SettingTranslated
            | Self::SpellingsAssumed
            | Self::ClientDiffers
            | Self::LayoutDiffers
            | Self::ConcurrencyOff
            | Self::RequestsUnserved
            | Self::KernelBorrowed
            | Self::CoefficientNotFitted
            | Self::CoefficientExtrapolated => Grade::G2,
            Self::OtherRelease | Self::NightlyBuild | Self::CustomBuild => Grade::G4,
            Self::CodeNotVisible
            | Self::RouterUnsupported
            | Self::ValueNotRecorded
            | Self::FieldNotModelled
            | Self::FieldUnclassified
            | Self::EngineUnsupported
            | Self::TopologyUnsupported
            | Self::NotInCatalog
            | Self::FieldNotInRelease
            | Self::ValueConflict
            | Self::BuildUnparseable
            | Self::LaunchUnreadable
            | Self::RunRefused => Grade::G5,
        }
    }

    /// Whether the reason is about the prices, whose shares a prediction states by method.
    pub(crate) const fn is_about_prices(self) -> bool {
        matches!(self, Self::KernelBorrowed | Self::CoefficientNotFitted)
    }
}

/// One reason why a grade is not better.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GradeReason {
    /// Which.
    pub code: ReasonCode,
    /// What it is about: a field by the engine's name, a build, a method, a checkpoint.
    pub subject: String,
    /// The reason in a sentence.
    pub text: String,
}

impl GradeReason {
    /// A reason.
    pub(crate) fn new(code: ReasonCode, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self { code, subject: subject.into(), text: text.into() }
    }
}

/// The grade of a point that has these reasons and no others.
pub fn grade(reasons: &[GradeReason]) -> Grade {
    reasons.iter().map(|reason| reason.code.grade()).max().unwrap_or(Grade::G1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_reason_decides_the_grade_and_none_makes_it_exact() {
        let reasons = |codes: &[ReasonCode]| codes.iter().map(|&code| GradeReason::new(code, "s", "t")).collect::<Vec<_>>();
        assert_eq!(grade(&[]), Grade::G1);
        assert_eq!(grade(&reasons(&[ReasonCode::SettingTranslated])), Grade::G2);
        assert_eq!(grade(&reasons(&[ReasonCode::NightlyBuild, ReasonCode::SettingTranslated])), Grade::G4);
        assert_eq!(grade(&reasons(&[ReasonCode::OtherRelease, ReasonCode::ValueConflict])), Grade::G5);
    }
}
