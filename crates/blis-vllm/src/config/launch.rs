//! A launch line with its environment, read into statements: the entry of the reading half.

use serde_json::{Map, Value};

use super::args::{self, Arguments};
use super::command;
use super::env;
use super::error::ConfigError;
use super::formerly::{self, Release};
use super::setting::Setting;
use super::statements::Statements;
use super::table::Field;
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

    /// Translations and warnings so far.
    pub fn notes(&self) -> &[String] {
        &self.statements.notes
    }
}

/// Reads a launch line.
pub fn read(launch: Launch<'_>) -> Result<Stated, ConfigError> {
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
    let Arguments { model: tag, mut statements, mut former } = args::read(&words, release)?;
    for (name, word) in launch.env.iter().chain(&line_env) {
        if line_env.iter().any(|(other, _)| other == name) && launch.env.iter().any(|(other, _)| other == name) {
            return Err(ConfigError::VariableTwice { name: name.clone() });
        }
        env::state(&mut statements, name, word, release, &mut former)?;
    }
    let ranks = statements.get(Setting::TensorParallelSize).and_then(|s| s.value.as_u64()).and_then(|n| u32::try_from(n).ok());
    for (old, value) in former {
        if !formerly::translate(&mut statements, &old, &value, release, ranks.unwrap_or(1))? {
            return Err(ConfigError::UnknownFlag { flag: old, hint: String::new() });
        }
    }
    statements.check_modelled()?;
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
