//! What a launch line states: one value per field, with the words it was stated in. Later statements replace earlier ones.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::error::ConfigError;
use super::former_rules::ReleaseRules;
use super::resolved::Source;
use super::setting::Setting;
use super::table::{Estimation, Field, Status, nearest};
use super::value::shown;

/// One stated value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Statement {
    /// The value, typed.
    pub(super) value: Value,
    /// Whether the line says it, or a spelling of an earlier release.
    pub(super) source: Source,
    /// The words of the line, or the translation and its reason.
    pub(super) rule: String,
}

/// What reading leaves open: spellings to translate, and what was refused.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    /// Spellings of earlier releases, with their values, in order.
    pub(super) former: Vec<(String, Value)>,
    /// Refusals, in order.
    pub(super) refusals: Vec<ConfigError>,
}

/// Everything a launch line states.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Statements {
    by_key: BTreeMap<&'static str, Statement>,
    /// Translations and warnings.
    pub(super) notes: Vec<String>,
    /// Former spellings of what has no effect now.
    pub(super) without_effect: BTreeSet<&'static str>,
    /// What the release that runs does otherwise.
    pub(super) rules: ReleaseRules,
}

impl Statements {
    /// Records a statement of the line.
    pub(super) fn state(&mut self, field: &'static Field, value: Value, words: String) {
        self.insert(field, Statement { value, source: Source::Stated, rule: words });
    }

    /// Records a statement of either kind.
    pub(super) fn insert(&mut self, field: &'static Field, statement: Statement) {
        self.by_key.insert(field.key, statement);
    }

    /// Puts another value in place of what is stated for a setting, or none.
    pub(super) fn replace(&mut self, setting: Setting, value: Option<Value>) {
        let field = Field::of(setting);
        match value {
            Some(value) => {
                let words = format!("{} {}", field.name(), shown(&value));
                self.state(field, value, words);
            }
            None => drop(self.by_key.remove(field.key)),
        }
    }

    /// Drops what was stated under `object`, a JSON flag.
    pub(super) fn forget_keys_of(&mut self, object: &Field) {
        self.by_key.retain(|key, _| !object.has_key(key));
    }

    /// The statement of a setting, where its value is not null.
    pub(super) fn get(&self, setting: Setting) -> Option<&Statement> {
        self.by_key.get(setting.key()).filter(|statement| !statement.value.is_null())
    }

    /// What was stated for the field of that name.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.by_key.get(key).map(|statement| &statement.value)
    }

    /// Whether a setting is stated as null.
    pub(super) fn states_null(&self, setting: Setting) -> bool {
        self.by_key.get(setting.key()).is_some_and(|statement| statement.value.is_null())
    }

    /// Whether a field was stated at all.
    pub(super) fn has(&self, field: &Field) -> bool {
        self.by_key.contains_key(field.key)
    }

    /// Whether a field is stated with a value, as a word.
    pub(super) fn states(&self, key: &str, word: &str) -> bool {
        let wanted = Field::named(key).and_then(|field| super::value::from_word(field, word).ok());
        wanted.is_some_and(|wanted| self.by_key.get(key).is_some_and(|statement| statement.value == wanted))
    }

    /// Refusals of the values that this port does not model, in the order of the names. An object is refused by those of its keys that are.
    pub(super) fn not_modelled(&self) -> Vec<(&'static Field, ConfigError)> {
        let refused = |(key, statement): (&&'static str, &Statement)| {
            let field = Field::named(key).expect("statements are made about fields of the table");
            Some((field, check_one(field, &statement.value).err()?))
        };
        let mut refusals: Vec<(&'static Field, ConfigError)> = self.by_key.iter().filter_map(refused).collect();
        let names: Vec<&str> = refusals.iter().map(|(field, _)| field.key).collect();
        refusals.retain(|(object, _)| !names.iter().any(|name| object.has_key(name)));
        refusals
    }

    /// Puts a field's estimation rule in the place of what is stated for it. False where no rule is for the value.
    pub(super) fn estimate(&mut self, field: &'static Field) -> bool {
        match field.estimation() {
            Estimation::None => false,
            Estimation::Unset(_) => self.by_key.remove(field.key).is_some(),
            Estimation::StandIn(rule) => {
                let holds = rule.valid_when.iter().any(|clause| clause.iter().all(|(key, word)| self.states(key, word)));
                let Some(value) = super::value::from_word(field, rule.value).ok().filter(|_| holds) else { return false };
                let rule = format!("stands in: {}", rule.because);
                self.insert(field, Statement { value, source: Source::Stated, rule });
                true
            }
        }
    }
}

fn check_one(field: &Field, value: &Value) -> Result<(), ConfigError> {
    let listed =
        field.values.iter().any(|accepted| *accepted == shown(value)) || (field.values.is_empty() && field.status == Status::Modelled);
    let accepted = match field.status {
        Status::Inert | Status::Nested => true,
        Status::Modelled => value.is_null() || listed,
        Status::NotModelled => listed || is_default(field, value),
    };
    if accepted {
        return Ok(());
    }
    let near = nearest(&shown(value), field.values.iter().copied()).map(|name| format!("; the nearest is {name}"));
    let default = field.default.as_ref().filter(|_| !field.is_variable()).map(shown);
    let instead = match (field.status, default) {
        (Status::Modelled, _) => format!("; accepted are {}{}", field.values.join(", "), near.unwrap_or_default()),
        (_, Some(default)) => format!("; leave it at its default, {default}"),
        (_, None) => "; leave it out".to_owned(),
    };
    Err(ConfigError::NotModelled { name: field.name().to_owned(), value: shown(value), reason: field.reason().to_owned(), instead })
}

/// Whether a value is upstream's default: variables' defaults are words, other defaults are typed.
fn is_default(field: &Field, value: &Value) -> bool {
    let default = match field.default.as_ref() {
        None => return false,
        Some(Value::String(word)) if field.is_variable() => super::value::from_word(field, word).unwrap_or(Value::Null),
        Some(default) => default.clone(),
    };
    // A real number and an integer of the same value are the same default.
    match (default.as_f64(), value.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b).is_eq(),
        _ => default == *value,
    }
}
