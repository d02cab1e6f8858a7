//! The ledger of a resolution: hands out stated values and upstream's defaults, and writes down where each came from.

use std::fmt::Display;

use serde_json::Value;

use crate::config::error::ConfigError;
use crate::config::former_rules::ReleaseRules;
use crate::config::resolved::{Explained, Source};
use crate::config::setting::Setting;
use crate::config::statements::Statements;
use crate::config::table::Field;
use crate::config::value::{from_word, shown};

/// Values with their origins.
pub(super) struct Ledger<'a> {
    statements: &'a Statements,
    explained: Vec<Explained>,
    /// Each with the setting of which it says what became of the stated value, if any.
    notes: Vec<(Option<Setting>, String)>,
    /// Two spellings of the same thing: the one that rules write, and the other.
    pairs: Vec<(Setting, Setting)>,
}

impl<'a> Ledger<'a> {
    pub(super) fn new(statements: &'a Statements) -> Self {
        let notes = statements.notes.iter().map(|note| (None, note.clone())).collect();
        Self { statements, explained: Vec::new(), notes, pairs: Vec::new() }
    }

    /// The record, by setting, and what a user should read: also every stated value in whose place a rule put another.
    pub(super) fn finish(mut self) -> (Vec<Explained>, Vec<String>) {
        self.explained.sort_by_key(|line| line.setting);
        let replaced: Vec<String> = self.explained.iter().filter_map(|line| self.replaced(line)).collect();
        let notes = self.notes.into_iter().map(|(_, note)| note).chain(replaced).collect();
        (self.explained, notes)
    }

    /// The stated value of a setting, not written down.
    pub(super) fn stated(&self, setting: Setting) -> Option<&'a Value> {
        self.statements.get(setting).map(|statement| &statement.value)
    }

    /// What no setting says, by the release that ran the line.
    pub(super) fn rules(&self) -> ReleaseRules {
        self.statements.rules
    }

    /// Whether the line states `None` for a setting.
    pub(super) fn states_null(&self, setting: Setting) -> bool {
        self.statements.states_null(setting)
    }

    /// Writes down a value that a rule computed, in place of anything written down before.
    pub(super) fn derive(&mut self, setting: Setting, value: impl Display, rule: impl Into<String>) {
        self.write(setting, value.to_string(), Source::Derived, rule.into());
    }

    /// Tells the user something upstream would log; `setting` is the one of which it says what became of the stated value, if any.
    pub(super) fn note(&mut self, setting: Option<Setting>, note: String) {
        self.notes.push((setting, note));
    }

    /// Writes down and returns the stated value, else upstream's literal default; null where neither is.
    pub(super) fn value(&mut self, setting: Setting) -> Value {
        if let Some(statement) = self.statements.get(setting) {
            let value = statement.value.clone();
            self.write(setting, shown(&value), statement.source, statement.rule.clone());
            return value;
        }
        let field = Field::of(setting);
        let value = match field.default.as_ref() {
            Some(Value::String(word)) if field.is_variable() => {
                from_word(field, word).expect("upstream's defaults pass upstream's own checks")
            }
            Some(default) => default.clone(),
            None => Value::Null,
        };
        self.write(setting, shown(&value), Source::UpstreamDefault, "default of the modelled release".to_owned());
        value
    }

    /// A yes or no with a literal default.
    pub(super) fn flag(&mut self, setting: Setting) -> bool {
        self.optional_flag(setting).unwrap_or(false)
    }

    /// A yes or no, or nothing.
    pub(super) fn optional_flag(&mut self, setting: Setting) -> Option<bool> {
        self.value(setting).as_bool()
    }

    /// A yes or no: as stated, else as a rule computed it.
    pub(super) fn flag_or(&mut self, setting: Setting, derived: bool, rule: &str) -> bool {
        let stated = self.optional_flag(setting);
        if stated.is_none() {
            self.derive(setting, derived, rule);
        }
        stated.unwrap_or(derived)
    }

    /// A count, or nothing.
    pub(super) fn optional_count(&mut self, setting: Setting) -> Result<Option<u64>, ConfigError> {
        count(setting, &self.value(setting))
    }

    /// A count with a literal default.
    pub(super) fn count(&mut self, setting: Setting) -> Result<u64, ConfigError> {
        Ok(self.optional_count(setting)?.expect("the setting has a literal default"))
    }

    /// A real number with a literal default.
    pub(super) fn real(&mut self, setting: Setting) -> f64 {
        self.value(setting).as_f64().expect("the setting has a literal default")
    }

    /// A choice with a literal default, by `named`.
    pub(super) fn choice<T>(&mut self, setting: Setting, named: impl Fn(&str) -> Option<T>) -> T {
        let value = self.value(setting);
        value.as_str().and_then(named).expect("the table and the enumeration list the same choices")
    }

    /// Words; none where nothing is stated.
    pub(super) fn words(&mut self, setting: Setting) -> Vec<String> {
        match self.value(setting) {
            Value::Array(items) => items.iter().map(shown).collect(),
            Value::String(text) => text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
        }
    }

    /// The one setting of two spellings of the same thing that is stated; both are an error, as in upstream.
    pub(super) fn either(&mut self, first: Setting, second: Setting) -> Result<Setting, ConfigError> {
        self.pairs.push((first, second));
        match (self.stated(first), self.stated(second)) {
            (Some(_), Some(_)) => Err(ConfigError::MutuallyExclusive {
                first: Field::of(first).name().to_owned(),
                second: Field::of(second).name().to_owned(),
            }),
            (None, Some(_)) => Ok(second),
            (_, None) => Ok(first),
        }
    }

    /// What is told of a stated value that is not the one in force, unless it asked for a derived one or a note tells of it already.
    fn replaced(&self, line: &Explained) -> Option<String> {
        let Explained { setting, value, source: Source::Derived, rule } = line else { return None };
        let others = self.pairs.iter().filter(|(first, _)| first == setting).map(|(_, second)| *second);
        let mut spellings = std::iter::once(*setting).chain(others);
        let (spelling, stated) = spellings.find_map(|spelling| Some((spelling, self.statements.get(spelling)?)))?;
        let (name, was) = (Field::of(spelling).name(), shown(&stated.value));
        let asks = was.eq_ignore_ascii_case("auto") || stated.value == -1;
        let told = stated.source == Source::FormerDefault || self.notes.iter().any(|(of, _)| *of == Some(*setting));
        (!asks && !told && !was.eq_ignore_ascii_case(value)).then(|| format!("{name} = {was} becomes {value}: {rule}"))
    }

    fn write(&mut self, setting: Setting, value: String, source: Source, rule: String) {
        let line = Explained { setting, value, source, rule };
        match self.explained.iter_mut().find(|other| other.setting == setting) {
            Some(other) => *other = line,
            None => self.explained.push(line),
        }
    }
}

/// A non-negative integer, or nothing.
pub(super) fn count(setting: Setting, value: &Value) -> Result<Option<u64>, ConfigError> {
    match (value.is_null(), value.as_u64()) {
        (true, _) => Ok(None),
        (false, Some(number)) => Ok(Some(number)),
        (false, None) => Err(ConfigError::OutOfRange {
            name: Field::of(setting).name().to_owned(),
            value: shown(value),
            wanted: "at least 0".to_owned(),
        }),
    }
}
