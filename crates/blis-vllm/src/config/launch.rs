//! A launch line with its environment, read into statements: the entry of the reading half.

use serde_json::{Map, Value};

use super::args::{self, Arguments};
use super::command;
use super::env;
use super::error::ConfigError;
use super::formerly::{self, Release};
use super::inert;
use super::setting::Setting;
use super::statements::{Statements, Unsettled};
use super::table::{Estimation, Field};
use super::value::shown;

/// How a pool's engine is launched, as a scenario states it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Launch<'a> {
    /// The shell line, as its user has it.
    pub command: Option<&'a str>,
    /// The arguments by upstream's field names, in order.
    pub args: Option<&'a Map<String, Value>>,
    /// Environment variables.
    pub env: &'a [(String, String)],
    /// The release the line was written for, where it is not the modelled one.
    pub written_for: Option<&'a str>,
}

/// What a launch line states.
#[derive(Debug, Clone, PartialEq)]
pub struct Stated {
    /// The checkpoint it names.
    pub(super) model: String,
    /// Everything else, every value of it modelled or inert.
    pub(super) statements: Statements,
}

impl Stated {
    /// The checkpoint the line names; upstream's default where it names none.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// What the line states for a field, by upstream's name of it; earlier spellings count as what they mean now.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.statements.value(key)
    }

    /// The same with other tokens of a block, or none stated.
    pub(crate) fn with_block_size(&self, tokens: Option<u32>) -> Self {
        let mut other = self.clone();
        other.statements.replace(Setting::BlockSize, tokens.map(Value::from));
        other
    }

    /// Translations and warnings so far.
    pub fn notes(&self) -> &[String] {
        &self.statements.notes
    }
}

/// A launch line read as far as it goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// What it states, without what was refused.
    pub stated: Stated,
    /// What an estimation rule stands in for.
    pub estimates: Vec<Estimated>,
    /// What neither the port models nor a rule stands in for, in the order of the line.
    pub refusals: Vec<ConfigError>,
}

/// A value that is not modelled, and what takes its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Estimated {
    /// The setting.
    pub field: &'static Field,
    /// The value the line states.
    pub stated: String,
}

impl Estimated {
    /// What takes the value's place, in a sentence.
    pub fn account(&self) -> String {
        let (name, stated) = (self.field.name(), &self.stated);
        match self.field.estimation() {
            Estimation::StandIn(rule) => {
                format!("{name} = {stated} is not modelled; {} stands in for it: {} ({})", rule.value, rule.because, rule.preserves)
            }
            Estimation::Unset(why) => {
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                format!("{name} = {stated} is not modelled; it is left out, so that the engine resolves its default{why}")
            }
            Estimation::None => format!("{name} = {stated} is not modelled"),
        }
    }
}

/// Reads a launch line, every value of which must be modelled or inert.
pub fn read(launch: Launch<'_>) -> Result<Stated, ConfigError> {
    let mut unsettled = Unsettled::default();
    let stated = gather(launch, &mut unsettled);
    if unsettled.refusals.is_empty() {
        let stated = stated?;
        return match stated.statements.not_modelled().into_iter().next() {
            Some((_, refusal)) => Err(refusal),
            None => Ok(stated),
        };
    }
    Err(unsettled.refusals.swap_remove(0))
}

/// Reads the launch line of a run that is to be estimated: where a value is not modelled, its field's estimation rule applies. An error is
/// of a line that cannot be read at all.
pub fn read_estimating(launch: Launch<'_>) -> Result<Reading, ConfigError> {
    let mut unsettled = Unsettled::default();
    let mut stated = gather(launch, &mut unsettled)?;
    let mut reading = (Vec::new(), unsettled.refusals);
    for (field, refusal) in stated.statements.not_modelled() {
        let value = stated.value(field.key).map(shown).unwrap_or_default();
        if !field.names_code(&value) && stated.statements.estimate(field) {
            reading.0.push(Estimated { field, stated: value });
        } else {
            reading.1.push(refusal);
        }
    }
    Ok(Reading { stated, estimates: reading.0, refusals: reading.1 })
}

/// What a launch line states. Statements that are refused are left out; the rest is an error only where the line makes no sense.
fn gather(launch: Launch<'_>, unsettled: &mut Unsettled) -> Result<Stated, ConfigError> {
    let release = launch.written_for.map(Release::written_for).transpose()?;
    let (words, line_env, positional) = match (launch.command, launch.args) {
        (Some(line), None) => {
            let command = command::split(line)?;
            (command.arguments, command.env, command.positional_model)
        }
        (None, Some(map)) => (args::words_of(map), Vec::new(), true),
        (Some(_), Some(_)) => return Err(ConfigError::CommandOrArgs { found: "both are given" }),
        (None, None) => return Err(ConfigError::CommandOrArgs { found: "neither is given" }),
    };
    let Arguments { model: tag, mut statements, unsettled: open } = args::read(&words, release)?;
    *unsettled = open;
    for (name, word) in launch.env.iter().chain(&line_env) {
        if line_env.iter().any(|(other, _)| other == name) && launch.env.iter().any(|(other, _)| other == name) {
            return Err(ConfigError::VariableTwice { name: name.clone() });
        }
        env::state(&mut statements, name, word, release, unsettled);
    }
    let ranks = statements.get(Setting::TensorParallelSize).and_then(|s| s.value.as_u64()).and_then(|n| u32::try_from(n).ok());
    for (old, value) in std::mem::take(&mut unsettled.former) {
        match formerly::translate(&mut statements, &old, &value, release, ranks.unwrap_or(1)) {
            Ok(true) => {}
            Ok(false) => unsettled.refusals.push(ConfigError::UnknownFlag { flag: old, hint: String::new() }),
            Err(error) => unsettled.refusals.push(error),
        }
    }
    inert::check(&statements, &mut unsettled.refusals);
    let model = model_of(tag, positional, &statements)?;
    Ok(Stated { model, statements })
}

/// The model: positional, which only `vllm serve` reads, or by `--model`. Upstream moves `--model` before a positional one, which it
/// then does not recognise.
fn model_of(tag: Option<String>, positional: bool, statements: &Statements) -> Result<String, ConfigError> {
    match (tag, positional) {
        (Some(flag), true) if statements.get(Setting::Model).is_some() => {
            Err(ConfigError::UnknownFlag { flag, hint: "; the model is already given by --model".to_owned() })
        }
        (Some(tag), true) => Ok(tag),
        (Some(flag), false) => Err(ConfigError::UnknownFlag { flag, hint: "; this entry point takes the model by --model".to_owned() }),
        (None, _) => {
            let stated = statements.get(Setting::Model).map(|statement| &statement.value);
            Ok(stated.or(Field::of(Setting::Model).default.as_ref()).map(shown).unwrap_or_default())
        }
    }
}
