//! From the error of whoever refused a point to its reason. The engine's reader decides what is modelled; this only names its verdict.

use blis_sim::RunError;
use blis_vllm::config::{ConfigError, Field};
use blis_vllm::lowering::LoweringError;
use blis_vllm::startup::StartError;

use crate::grade::{GradeReason, ReasonCode};
use crate::point::PointError;

/// The path of the launch line in a sweep.
const LINE: &str = "launch.server_command";
/// What the engine's own environment variables begin with; others belong to libraries.
const OWN_VARIABLES: &str = "VLLM_";
/// The flag that says how cores exchange the tokens of experts.
const EXCHANGE: &str = "--all2all-backend";

impl From<PointError> for GradeReason {
    fn from(error: PointError) -> Self {
        let (code, subject) = match &error {
            PointError::Symbol(_) => (ReasonCode::LaunchUnreadable, LINE),
            PointError::Requests(_) => (ReasonCode::ValueNotRecorded, "client.num_prompts"),
            PointError::NotRecorded { field } => (ReasonCode::ValueNotRecorded, *field),
            PointError::OtherClient { field, .. } => (ReasonCode::FieldNotModelled, *field),
        };
        Self::new(code, subject, error.to_string())
    }
}

/// Why the engine's reader refused a launch line.
pub(crate) fn of_line(error: &ConfigError) -> GradeReason {
    let (code, subject) = match error {
        ConfigError::UnknownFlag { flag, .. } => (ReasonCode::FieldNotInRelease, flag.clone()),
        ConfigError::UnknownKey { object, key, .. } => (ReasonCode::FieldNotInRelease, format!("{object}.{key}")),
        ConfigError::UnknownVariable { name, .. } if name.starts_with(OWN_VARIABLES) => (ReasonCode::FieldNotInRelease, name.clone()),
        ConfigError::UnknownVariable { name, .. } => (ReasonCode::FieldUnclassified, name.clone()),
        ConfigError::NoEquivalent { name, .. }
        | ConfigError::WrongType { name, .. }
        | ConfigError::InvalidChoice { name, .. }
        | ConfigError::OutOfRange { name, .. } => (ReasonCode::FieldNotInRelease, name.clone()),
        ConfigError::NotModelled { name, value, .. } if Field::called(name).is_some_and(|field| field.names_code(value)) => {
            (ReasonCode::CodeNotVisible, name.clone())
        }
        ConfigError::NotModelled { name, .. } => (ReasonCode::FieldNotModelled, name.clone()),
        ConfigError::VariableTwice { name } => (ReasonCode::ValueConflict, name.clone()),
        ConfigError::MutuallyExclusive { first, second } => (ReasonCode::ValueConflict, format!("{first}, {second}")),
        ConfigError::CommandOrArgs { .. }
        | ConfigError::Unbalanced
        | ConfigError::ShellSyntax { .. }
        | ConfigError::NotAServer { .. }
        | ConfigError::AmbiguousFlag { .. }
        | ConfigError::MissingValue { .. }
        | ConfigError::UnexpectedValue { .. }
        | ConfigError::NotARelease { .. } => (ReasonCode::LaunchUnreadable, LINE.to_owned()),
        ConfigError::LaterRelease { .. } => (ReasonCode::FieldNotInRelease, "launch.image".to_owned()),
        ConfigError::TooFewDevices { name, .. } => (ReasonCode::RunRefused, name.clone()),
        ConfigError::NotPorted(_) => (ReasonCode::FieldNotModelled, "model".to_owned()),
        ConfigError::Inconsistent(_) | ConfigError::Refused(_) => (ReasonCode::RunRefused, "start".to_owned()),
    };
    GradeReason::new(code, subject, error.to_string())
}

/// Why a run gave no Result.
pub(crate) fn of_run(error: &RunError) -> GradeReason {
    let refused = |subject: &str| GradeReason::new(ReasonCode::RunRefused, subject, error.to_string());
    match error {
        RunError::Scenario(problem) => refused(&problem.path),
        RunError::Simulation(_) => refused("run"),
        RunError::Start(_, error) => match &**error {
            StartError::Config(error) => of_line(error),
            StartError::Lowering(error @ LoweringError::NotModelled { model, .. }) => {
                GradeReason::new(ReasonCode::FieldNotModelled, model.clone(), error.to_string())
            }
            StartError::Lowering(error @ LoweringError::Exchange { .. }) => {
                GradeReason::new(ReasonCode::FieldNotModelled, EXCHANGE, error.to_string())
            }
            StartError::Lowering(
                LoweringError::NoKernel { .. }
                | LoweringError::ExpertsBackend { .. }
                | LoweringError::Indivisible { .. }
                | LoweringError::Kv(_),
            ) => refused("kernels"),
            StartError::Environment(_) => refused("prices"),
            StartError::WeightsDoNotFit { .. }
            | StartError::BudgetExceedsFree { .. }
            | StartError::TooFewStates { .. }
            | StartError::Kv(_) => refused("memory"),
            StartError::TooFewNodes { .. } | StartError::NoNetwork { .. } => refused("nodes"),
            StartError::Setting(_) => refused("settings"),
        },
    }
}

#[cfg(test)]
mod tests {
    use blis_contracts::strict::Problem;

    use super::*;

    fn of(error: &ConfigError) -> (ReasonCode, String) {
        let reason = of_line(error);
        (reason.code, reason.subject)
    }

    #[test]
    fn a_refused_setting_is_named_with_who_lacks_it() {
        let (name, value, reason) = ("--a".to_owned(), "1".to_owned(), "r".to_owned());
        let not_modelled =
            ConfigError::NotModelled { name: name.clone(), value: value.clone(), reason: reason.clone(), instead: String::new() };
        assert_eq!(of(&not_modelled), (ReasonCode::FieldNotModelled, "--a".to_owned()));
        assert_eq!(of(&ConfigError::NoEquivalent { name, value, reason }), (ReasonCode::FieldNotInRelease, "--a".to_owned()));
        let variable = |name: &str| of(&ConfigError::UnknownVariable { name: name.to_owned(), hint: String::new() }).0;
        assert_eq!((variable("VLLM_X"), variable("OTHER_X")), (ReasonCode::FieldNotInRelease, ReasonCode::FieldUnclassified));
        let combination = "layers of different kinds, which is not modelled".to_owned();
        assert_eq!(of(&ConfigError::NotPorted(combination)), (ReasonCode::FieldNotModelled, "model".to_owned()));
        assert_eq!(of(&ConfigError::Unbalanced), (ReasonCode::LaunchUnreadable, LINE.to_owned()));
    }

    #[test]
    fn an_exchange_that_is_not_modelled_is_a_setting_and_no_fault_of_the_run() {
        let reason = |error: LoweringError| {
            let reason = of_run(&RunError::Start(Problem::new("pools[0]", "p"), Box::new(error.into())));
            (reason.code, reason.subject)
        };
        let exchange = LoweringError::Exchange { backend: "deepep_low_latency", reason: "r".to_owned() };
        assert_eq!(reason(exchange), (ReasonCode::FieldNotModelled, "--all2all-backend".to_owned()));
        let indivisible = LoweringError::Indivisible { what: "w", size: 3, ranks: 2, cores: 1 };
        assert_eq!(reason(indivisible), (ReasonCode::RunRefused, "kernels".to_owned()));
    }
}
