//! Spellings of earlier releases: whether a line written for one may use them, and what they mean now.
//!
//! Only spellings are translated here, never defaults (`former_defaults` has those that measured runs took). The rows are `data/formerly.toml`, each read in the releases it names.

use serde_json::Value;

use super::error::ConfigError;
use super::resolved::Source;
use super::statements::{Statement, Statements};
use super::table::{Becomes, Field, Former, formerly, gone_flags};
use super::value::{from_json, from_word, json, shown};

/// A release number, major, minor and patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Release([u32; 3]);

impl Release {
    /// The release a line was written for: none after the modelled one, whose spellings nobody knows here.
    pub(super) fn written_for(text: &str) -> Result<Self, ConfigError> {
        let release = Self::parse(text)?;
        if release > Self::parse(crate::RELEASE)? {
            return Err(ConfigError::LaterRelease { value: text.to_owned() });
        }
        Ok(release)
    }

    pub(crate) const fn new(number: [u32; 3]) -> Self {
        Self(number)
    }

    /// Reads `0.22.0`, or `v0.22.0`; a suffix after the patch (`rc1`, `.post1`) belongs to the release.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        let bad = || ConfigError::NotARelease { value: text.to_owned() };
        let mut parts = text.strip_prefix('v').unwrap_or(text).splitn(3, '.');
        let mut number = [0; 3];
        for slot in &mut number {
            let digits: String = parts.next().ok_or_else(bad)?.chars().take_while(char::is_ascii_digit).collect();
            *slot = digits.parse().map_err(|_| bad())?;
        }
        Ok(Self(number))
    }
}

/// The rows of one old spelling.
pub(super) fn rows(old: &str) -> impl Iterator<Item = &'static Former> {
    formerly().iter().filter(move |row| row.old == old)
}

/// The row of `old` that a line written for `release` may use, if any has it.
fn in_release(old: &str, release: Release) -> impl Iterator<Item = &'static Former> {
    let release_of = |text: &str| Release::parse(text).expect("the releases of the table are checked by the tests of this crate");
    rows(old).filter(move |row| release_of(row.from) <= release && row.until.is_none_or(|until| release < release_of(until)))
}

/// Whether a line written for `release` may use the spelling, and how many words follow it on a command line.
pub(super) fn takes(old: &str, release: Option<Release>) -> Option<usize> {
    in_release(old, release?).next().map(|row| row.takes)
}

/// The hint for a spelling with `value` that the modelled release lacks: the releases that had it, and what takes the place of that value.
pub(super) fn hint(old: &str, value: &Value) -> Option<String> {
    let had = |from: Option<&str>, until: Option<&str>| {
        let from = from.map(|from| format!(" from {from}")).unwrap_or_default();
        let until = until.map(|until| format!("{}before {until}", if from.is_empty() { " " } else { " until " }));
        format!("; vLLM had it{from}{}", until.unwrap_or_default())
    };
    if let Some(gone) = gone_flags().iter().find(|gone| gone.flags.contains(&old)) {
        return Some(format!("{}: {}", had(gone.from, gone.until), gone.instead));
    }
    let first = rows(old).next()?;
    let written = shown(value);
    let (mut advice, mut releases) = (Vec::new(), None);
    for row in rows(old).filter(|row| covers(row, &written)) {
        releases = Some(had(Some(row.from), row.until));
        let beside: Vec<String> = row.beside.iter().map(|(key, word)| format!("beside {key} = {word} ")).collect();
        advice.push(format!("{}{}", beside.concat(), instead(row)));
        if beside.is_empty() {
            break;
        }
    }
    Some(match releases {
        Some(releases) => format!("{releases}: {}", advice.join("; otherwise ")),
        None => format!("{}: {}", had(Some(first.from), first.until), translatable(rows(old))),
    })
}

/// What to write for a row of the table, or why nothing can be.
fn instead(row: &Former) -> String {
    let now = match row.becomes {
        Becomes::Setting | Becomes::ByWorldSizeMb => {
            let settings = row.to.iter().map(|(key, value)| {
                let name = Field::named(key).map_or(*key, Field::name);
                if *value == "=" { name.to_owned() } else { format!("{name} {value}") }
            });
            format!("state {}", settings.collect::<Vec<_>>().join(" and "))
        }
        Becomes::Nothing => "leave it out".to_owned(),
        Becomes::Refused => return format!("it has no equivalent in the modelled release, as {}", row.reason),
    };
    format!("{now}, or state engine.written_for for a line of such a release")
}

/// Whether a row is for that value of its spelling.
fn covers(row: &Former, written: &str) -> bool {
    row.when.is_empty() || row.when.contains(&written)
}

/// The values that rows of one spelling translate.
fn translatable(rows: impl Iterator<Item = &'static Former>) -> String {
    let values: Vec<&str> = rows.filter(|row| row.becomes != Becomes::Refused).flat_map(|row| row.when.iter().copied()).collect();
    format!("only {} can be translated", values.join(", "))
}

/// Translates the spelling `old` with `value`, of a line written for `release`, on `ranks` ranks. False where no row covers it.
pub(super) fn translate(
    statements: &mut Statements,
    old: &str,
    value: &Value,
    release: Option<Release>,
    ranks: u32,
) -> Result<bool, ConfigError> {
    let Some(release) = release else { return Ok(false) };
    let written = shown(value);
    let holds = |row: &&Former| covers(row, &written) && row.beside.iter().all(|(key, wanted)| statements.states(key, wanted));
    let Some(row) = in_release(old, release).find(holds) else {
        return match in_release(old, release).next() {
            Some(_) => Err(no_equivalent(old, &written, &translatable(in_release(old, release)))),
            None => Ok(false),
        };
    };
    let spelled = if row.takes == 0 && old.starts_with("--") { old.to_owned() } else { format!("{old} = {written}") };
    let said = match row.becomes {
        Becomes::Refused => return Err(no_equivalent(old, &written, row.reason)),
        Becomes::Nothing => {
            statements.without_effect.insert(row.old);
            "has no effect now".to_owned()
        }
        Becomes::Setting => {
            let mut said = Vec::new();
            for (key, new) in &row.to {
                let field = Field::named(key).expect("the generator checks that translations name fields");
                let value = if *new == "=" { old_value(field, value)? } else { from_word(field, new)? };
                said.push(state(statements, field, value, &spelled, row.reason));
            }
            said.join(", and ")
        }
        Becomes::ByWorldSizeMb => by_world_size(statements, row, value, &spelled, ranks)?,
    };
    statements.notes.push(format!("{spelled} {said} ({})", row.reason));
    Ok(true)
}

fn old_value(field: &'static Field, value: &Value) -> Result<Value, ConfigError> {
    match value {
        Value::String(word) => from_word(field, word),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => from_json(field, value),
    }
}

fn by_world_size(
    statements: &mut Statements,
    row: &'static Former,
    value: &Value,
    spelled: &str,
    ranks: u32,
) -> Result<String, ConfigError> {
    let wrong = || ConfigError::WrongType {
        name: row.old.to_string(),
        value: shown(value),
        wanted: "a JSON object of sizes in megabytes by number of ranks".to_owned(),
    };
    let sizes = value.as_str().and_then(json).filter(Value::is_object).ok_or_else(wrong)?;
    let Some(size) = sizes.get(ranks.to_string()) else { return Ok(format!("has no effect now on {ranks} ranks")) };
    let key = row.to.keys().next().expect("the row names the setting it becomes");
    let field = Field::named(key).expect("the generator checks that translations name fields");
    let size = Value::from(size.as_f64().ok_or_else(wrong)?);
    Ok(format!("{} on {ranks} ranks", state(statements, field, size, spelled, row.reason)))
}

/// States what `spelled` means now and says so. A statement of the line in today's spelling, or of an earlier translation, wins over it.
fn state(statements: &mut Statements, field: &'static Field, value: Value, spelled: &str, reason: &str) -> String {
    let name = field.name();
    match statements.value(field.key) {
        Some(stated) if *stated != value => format!("does not set {name}, which is stated as {}", shown(stated)),
        Some(_) => format!("means {name} = {}, which is stated", shown(&value)),
        None => {
            let said = format!("means {name} = {}", shown(&value));
            statements.insert(field, Statement { value, source: Source::FormerlySpelled, rule: format!("{spelled}: {reason}") });
            said
        }
    }
}

fn no_equivalent(name: &str, value: &str, reason: &str) -> ConfigError {
    ConfigError::NoEquivalent { name: name.to_owned(), value: value.to_owned(), reason: reason.to_owned() }
}
