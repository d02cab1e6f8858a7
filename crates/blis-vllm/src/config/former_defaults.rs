//! Defaults that earlier releases had otherwise: what a measured run of such a release resolved where its launch line says nothing.
//!
//! A line that a user writes down for an earlier release keeps the modelled release's defaults: it asks what that line does today. A
//! measured run is another matter, since it ran with its own. A row was read in the sources of the releases it was `seen` in, and not
//! in any later one that was read; it applies up to the last of them. Left out: defaults that change nothing this port prices.

use super::error::ConfigError;
use super::formerly::Release;
use super::launch::Stated;
use super::resolved::Source;
use super::setting::Setting;
use super::statements::Statement;
use super::table::Field;
use super::value::{from_word, shown};

/// One default of earlier releases.
struct Row {
    setting: Setting,
    value: &'static str,
    /// The last release that was read and had it.
    last: &'static str,
    because: &'static str,
    /// Whether it says something of one rank alone.
    alone: bool,
}

const ROWS: [Row; 4] = [
    Row {
        setting: Setting::CompilationConfigCudagraphMode,
        value: "PIECEWISE",
        last: "0.10.2",
        because: "0.11.0 made FULL_AND_PIECEWISE the default",
        alone: true,
    },
    Row {
        setting: Setting::CompilationConfigPassConfigFuseAllreduceRms,
        value: "false",
        last: "0.16.0",
        because: "off at every optimization level up to 0.16.0, and without levels in 0.10.2",
        alone: false,
    },
    Row { setting: Setting::VllmAllreduceUseSymmMem, value: "0", last: "0.10.2", because: "on by default from 0.11.0", alone: false },
    Row {
        setting: Setting::VllmAllreduceUseFlashinfer,
        value: "0",
        last: "0.25.0",
        because: "off by default from 0.17.0 to 0.25.0, and absent before",
        alone: false,
    },
];

impl Stated {
    /// Takes the defaults of `release`, which ran, for what the line leaves out, where the modelled release has others. Each one taken is
    /// among the notes.
    pub fn take_defaults_of(&mut self, release: &str) -> Result<(), ConfigError> {
        let ran = Release::parse(release)?;
        let several =
            self.statements.get(Setting::TensorParallelSize).and_then(|ranks| ranks.value.as_u64()).is_some_and(|ranks| ranks > 1);
        for row in &ROWS {
            let field = Field::of(row.setting);
            if Release::parse(row.last)? < ran || self.statements.has(field) || !(row.alone || several) {
                continue;
            }
            let value = from_word(field, row.value)?;
            let name = field.name();
            self.statements.notes.push(format!("{name} = {} is the default of {release}, which ran ({})", shown(&value), row.because));
            self.statements.insert(field, Statement { value, source: Source::FormerDefault, rule: format!("default of {release}") });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Launch, read};

    const FUSED: &str = "compilation_config.pass_config.fuse_allreduce_rms";

    fn taken(line: &str, release: &str) -> Stated {
        let mut stated = read(Launch { command: Some(line), args: None, env: &[], written_for: None }).unwrap();
        stated.take_defaults_of(release).unwrap();
        stated
    }

    #[test]
    fn every_row_gives_its_field_a_value_it_accepts() {
        for row in &ROWS {
            let field = Field::of(row.setting);
            assert!(from_word(field, row.value).is_ok() && Release::parse(row.last).is_ok(), "{}", field.name());
        }
    }

    #[test]
    fn a_run_of_an_earlier_release_takes_its_defaults_for_what_the_line_leaves_out() {
        let old = taken("vllm serve m -tp 2", "0.10.2");
        assert_eq!(old.value("compilation_config.cudagraph_mode").map(shown).as_deref(), Some("PIECEWISE"));
        assert_eq!(old.value(FUSED).map(shown).as_deref(), Some("false"));
        assert_eq!(old.notes().len(), ROWS.len());
        let stated = taken("vllm serve m -tp 2 -cc.pass_config.fuse_allreduce_rms true", "0.10.2");
        assert_eq!(stated.value(FUSED).map(shown).as_deref(), Some("true"));
        assert_eq!(taken("vllm serve m -tp 2", "0.17.0").value(FUSED), None);
        assert_eq!(taken("vllm serve m", "0.10.2").notes().len(), 1, "what ranks do together says nothing of one");
    }

    #[test]
    fn a_run_of_the_modelled_release_takes_none() {
        assert!(taken("vllm serve m -tp 2", crate::RELEASE).notes().is_empty());
    }
}
