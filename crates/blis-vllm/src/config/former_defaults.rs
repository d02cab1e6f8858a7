//! Defaults that earlier releases had otherwise: what a measured run of such a release resolved where its launch line says nothing.
//!
//! A line that a user writes down for an earlier release keeps the modelled release's defaults: it asks what that line does today. A
//! measured run is another matter, since it ran with its own. A row was read in the sources of several releases, and holds from the
//! first to the last of them that had it. What no setting says is in `former_rules`. A build between two releases ran with what the later of them
//! still had. Left out: defaults that change nothing this port prices.

use blis_contracts::model::ModelGraph;

use super::error::ConfigError;
use super::former_rules::ReleaseRules;
use super::formerly::Release;
use super::launch::Stated;
use super::resolve::has_experts;
use super::resolved::Source;
use super::setting::Setting;
use super::statements::Statement;
use super::table::Field;
use super::value::{from_word, shown};

/// A setting whose default earlier releases had otherwise.
struct Row {
    setting: Setting,
    value: &'static str,
    until: &'static [Until],
}

/// How long some runs had the earlier default.
struct Until {
    of: Runs,
    /// The first release that was read and had it, where an earlier one had not.
    first: Option<&'static str>,
    /// The last release that was read and had it.
    last: &'static str,
    because: &'static str,
}

/// Which runs a default says something of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    /// All of them.
    All,
    /// Those of several ranks that share matrices.
    SeveralRanks,
    /// Those of several ranks that share matrices, on one node.
    SeveralRanksOfOneNode,
    /// Those of a mixture of experts.
    Mixtures,
    /// Those at an optimization level below the third, which is where a line that states none is.
    BelowTheThirdLevel,
}

const ROWS: [Row; 10] = [
    Row {
        setting: Setting::CompilationConfigCudagraphMode,
        value: "PIECEWISE",
        until: &[Until { of: Runs::All, first: None, last: "0.10.2", because: "0.11.0 made FULL_AND_PIECEWISE the default" }],
    },
    Row {
        setting: Setting::CompilationConfigPassConfigFuseAllreduceRms,
        value: "false",
        until: &[Until {
            of: Runs::SeveralRanks,
            first: None,
            last: "0.16.0",
            because: "off at every optimization level up to 0.16.0, and without levels in 0.10.2",
        }],
    },
    Row {
        setting: Setting::CompilationConfigPassConfigFuseNormQuant,
        value: "false",
        until: &[Until {
            of: Runs::All,
            first: None,
            last: "0.10.2",
            because: "0.10.2 fused norms and quantisation only where the line asked for it",
        }],
    },
    Row {
        setting: Setting::CompilationConfigPassConfigFuseActQuant,
        value: "false",
        until: &[Until {
            of: Runs::All,
            first: None,
            last: "0.10.2",
            because: "0.10.2 fused activations and quantisation only where the line asked for it",
        }],
    },
    Row {
        setting: Setting::VllmAllreduceUseSymmMem,
        value: "0",
        until: &[Until { of: Runs::SeveralRanks, first: None, last: "0.10.2", because: "on by default from 0.11.0" }],
    },
    Row {
        setting: Setting::VllmAllreduceUseFlashinfer,
        value: "0",
        until: &[Until {
            of: Runs::SeveralRanks,
            first: None,
            last: "0.28.0",
            because: "off by default from 0.17.0 to 0.28.0, and absent before",
        }],
    },
    Row {
        setting: Setting::VllmFlashinferAllreduceBackend,
        value: "trtllm",
        until: &[Until {
            of: Runs::SeveralRanksOfOneNode,
            first: None,
            last: "0.22.0",
            because: "up to 0.22.0 auto was trtllm on one node, and 0.25.0 made it mnnvl",
        }],
    },
    Row {
        setting: Setting::VllmBlockscaleFp8GemmFlashinfer,
        value: "0",
        until: &[Until { of: Runs::All, first: None, last: "0.16.0", because: "on by default from 0.17.0" }],
    },
    Row {
        setting: Setting::EnableFlashinferAutotune,
        value: "false",
        until: &[Until {
            of: Runs::BelowTheThirdLevel,
            first: Some("0.21.0"),
            last: "0.21.0",
            because: "0.21.0 tuned FlashInfer's kernels at no level but the third; 0.18.0 and 0.22.0 do from the first",
        }],
    },
    Row {
        setting: Setting::VllmUseV2ModelRunner,
        value: "0",
        until: &[
            Until { of: Runs::All, first: None, last: "0.18.0", because: "off by default in 0.18.0, and absent before" },
            Until {
                of: Runs::Mixtures,
                first: None,
                last: "0.28.0",
                because: "up to 0.28.0 few mixtures of experts, and none that was measured, ran the second model runner by default",
            },
        ],
    },
];

/// Releases that were read, with the day their wheel was built, oldest first.
const READ: [(&str, &str); 8] = [
    ("0.10.2", "2025-09-13"),
    ("0.15.1", "2026-02-04"),
    ("0.18.0", "2026-03-20"),
    ("0.22.0", "2026-05-29"),
    ("0.25.0", "2026-07-11"),
    ("0.26.0", "2026-07-25"),
    ("0.27.0", "2026-08-10"),
    ("0.28.0", "2026-08-25"),
];

/// The first release that was read and built on `day` (`2026-07-02`) or later: what it still had, a build of that day had too.
pub fn release_after(day: &str) -> Option<&'static str> {
    READ.iter().find(|(_, built)| *built >= day).map(|(release, _)| *release)
}

impl Stated {
    /// Takes the defaults of `release`, which ran `model`, for what the line leaves out, where the modelled release has others, and its
    /// rules where no setting says them. Each default taken is among the notes.
    pub fn take_defaults_of(&mut self, release: &str, model: &ModelGraph) -> Result<(), ConfigError> {
        let ran = Release::parse(release)?;
        self.statements.rules = ReleaseRules::of(ran, &self.statements.without_effect);
        let above_one = |setting| self.statements.get(setting).and_then(|count| count.value.as_u64()).is_some_and(|count| count > 1);
        let (several, nodes) = (above_one(Setting::TensorParallelSize), above_one(Setting::Nnodes));
        let third = self.statements.get(Setting::OptimizationLevel).is_some_and(|level| level.value.as_u64() == Some(3));
        for row in &ROWS {
            let field = Field::of(row.setting);
            let concerned = |of: Runs| match of {
                Runs::All => true,
                Runs::SeveralRanks => several,
                Runs::SeveralRanksOfOneNode => several && !nodes,
                Runs::Mixtures => has_experts(model),
                Runs::BelowTheThirdLevel => !third,
            };
            let read = |release: &str| Release::parse(release).expect("the releases of the rows are checked by the tests of this file");
            let had_it =
                |until: &&Until| concerned(until.of) && until.first.is_none_or(|first| read(first) <= ran) && ran <= read(until.last);
            let Some(Until { first, last, because, .. }) = row.until.iter().find(had_it).filter(|_| !self.statements.has(field)) else {
                continue;
            };
            let value = from_word(field, row.value)?;
            let name = field.name();
            let rule = first.map_or_else(|| format!("default up to {last}"), |first| format!("default from {first} to {last}"));
            self.statements.notes.push(format!("{name} = {} was the {rule} ({because})", shown(&value)));
            self.statements.insert(field, Statement { value, source: Source::FormerDefault, rule });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{gpt_oss, llama};
    use crate::config::{Launch, read};

    const FUSED: &str = "compilation_config.pass_config.fuse_allreduce_rms";
    const SECOND_RUNNER: &str = "VLLM_USE_V2_MODEL_RUNNER";

    fn taken(line: &str, release: &str, model: &ModelGraph) -> Stated {
        let mut stated = read(Launch { command: Some(line), args: None, env: &[], written_for: None }).unwrap();
        stated.take_defaults_of(release, model).unwrap();
        stated
    }

    fn value(stated: &Stated, key: &str) -> Option<String> {
        stated.value(key).map(shown)
    }

    #[test]
    fn every_row_gives_its_field_a_value_it_accepts_and_no_field_has_two() {
        for row in &ROWS {
            let field = Field::of(row.setting);
            let read = row
                .until
                .iter()
                .all(|until| [until.first.unwrap_or(until.last), until.last].iter().all(|release| Release::parse(release).is_ok()));
            assert!(from_word(field, row.value).is_ok() && read && !row.until.is_empty(), "{}", field.name());
            assert_eq!(ROWS.iter().filter(|other| other.setting == row.setting).count(), 1, "{}", field.name());
        }
    }

    #[test]
    fn a_run_of_an_earlier_release_takes_its_defaults_for_what_the_line_leaves_out() {
        let old = taken("vllm serve m -tp 2", "0.10.2", &llama());
        assert_eq!(value(&old, "compilation_config.cudagraph_mode").as_deref(), Some("PIECEWISE"));
        assert_eq!(value(&old, FUSED).as_deref(), Some("false"));
        assert_eq!(old.notes().len(), 9);
        let stated = taken("vllm serve m -tp 2 -cc.pass_config.fuse_allreduce_rms true", "0.10.2", &llama());
        assert_eq!(value(&stated, FUSED).as_deref(), Some("true"));
        assert_eq!(value(&taken("vllm serve m -tp 2", "0.17.0", &llama()), FUSED), None);
        assert_eq!(taken("vllm serve m", "0.10.2", &llama()).notes().len(), 5, "what ranks do together says nothing of one");
        let sums = |line| value(&taken(line, "0.10.2", &llama()), "VLLM_FLASHINFER_ALLREDUCE_BACKEND");
        assert_eq!(sums("vllm serve m -tp 2").as_deref(), Some("trtllm"));
        assert_eq!(sums("vllm serve m -tp 16 --nnodes 2"), None, "auto was trtllm on one node alone");
    }

    #[test]
    fn mixtures_of_experts_ran_the_first_model_runner_longer() {
        let ran = |release, model: &ModelGraph| value(&taken("vllm serve m", release, model), SECOND_RUNNER);
        assert_eq!(ran("0.22.0", &llama()), None);
        assert_eq!(ran("0.22.0", &gpt_oss()), ran("0.10.2", &llama()));
        assert!(ran("0.28.0", &gpt_oss()).is_some());
        assert_eq!(ran("0.29.0", &gpt_oss()), None);
    }

    #[test]
    fn a_pass_that_a_line_asked_for_is_told_from_its_absence() {
        let asked = |line| {
            let mut stated = read(Launch { command: Some(line), args: None, env: &[], written_for: Some("0.22.0") }).unwrap();
            stated.take_defaults_of("0.22.0", &llama()).unwrap();
            stated.statements.rules.fuses_spanning_norms
        };
        assert!(asked("vllm serve m -cc.pass_config.fuse_minimax_qk_norm true") && !asked("vllm serve m"));
    }

    #[test]
    fn one_release_did_not_tune_what_those_before_and_after_it_did() {
        let ran = |release| value(&taken("vllm serve m", release, &llama()), "enable_flashinfer_autotune");
        assert_eq!(ran("0.21.0").as_deref(), Some("false"));
        assert_eq!((ran("0.18.0"), ran("0.22.0")), (None, None));
        assert_eq!(value(&taken("vllm serve m -O3", "0.21.0", &llama()), "enable_flashinfer_autotune"), None);
    }

    #[test]
    fn a_run_of_the_modelled_release_takes_none() {
        let today = taken("vllm serve m -tp 2", crate::RELEASE, &gpt_oss());
        assert!(today.notes().is_empty());
        assert_eq!(today.statements.rules, ReleaseRules::MODELLED);
    }

    #[test]
    fn a_build_between_two_releases_has_what_the_later_still_had() {
        assert_eq!(release_after("2026-07-02"), Some("0.25.0"));
        assert_eq!(release_after("2026-07-11"), Some("0.25.0"));
        assert_eq!(release_after("2026-08-30"), None);
        assert!(READ.is_sorted_by(|a, b| a.1 < b.1 && Release::parse(a.0).unwrap() < Release::parse(b.0).unwrap()));
    }
}
