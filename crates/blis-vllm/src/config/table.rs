//! The field table: every flag, key and variable of the modelled release, with its type, default and what this port does with it.
//!
//! Generated from the wheel by `tools/fields.py` into `data/fields.json`, embedded, and read once on first use. It drives
//! parsing, types, aliases, defaults, refusal and the translation of earlier spellings.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use super::setting::Setting;

/// One flag, key of a JSON flag, or environment variable.
#[derive(Debug, Deserialize)]
pub struct Field {
    /// Upstream's name: the argument's destination, the dotted key, or the variable.
    pub key: &'static str,
    /// Where it is stated: `engine`, `frontend`, `env`, `foreign`, or the JSON flag it is a key of.
    pub scope: &'static str,
    /// Command-line spellings, dashes included.
    #[serde(default)]
    pub flags: Vec<&'static str>,
    /// How a value is written.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The closed list of values, where there is one.
    #[serde(default)]
    pub choices: Vec<&'static str>,
    /// Whether an empty word or `None` means no value.
    #[serde(default)]
    pub optional: bool,
    /// Upstream's default; absent where upstream computes it.
    #[serde(default, deserialize_with = "present")]
    pub default: Option<Value>,
    /// Exclusive lower bound.
    #[serde(default)]
    pub gt: Option<f64>,
    /// Inclusive lower bound.
    #[serde(default)]
    pub ge: Option<f64>,
    /// Exclusive upper bound.
    #[serde(default)]
    pub lt: Option<f64>,
    /// Inclusive upper bound.
    #[serde(default)]
    pub le: Option<f64>,
    /// What this port does with it.
    pub status: Status,
    /// Values accepted although (or, where modelled, only although) others are not.
    #[serde(default)]
    pub values: Vec<&'static str>,
    reason: usize,
    #[serde(default)]
    estimate: Option<usize>,
    /// How it can name code that the release does not ship; absent where it cannot.
    #[serde(default)]
    pub code: Option<&'static str>,
}

/// What stands in for a field where a measured run is estimated although it did not record the field, or passed a value of it that is not
/// modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimation {
    /// Nothing: the run cannot be estimated.
    None,
    /// The field is left out, so that the engine resolves its own default; with the reason, where the value is not modelled.
    Unset(Option<&'static str>),
    /// A value.
    StandIn(&'static StandIn),
}

/// A value that stands in for others.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct StandIn {
    /// The value, as a word.
    pub value: &'static str,
    /// Why it may.
    pub because: &'static str,
    /// What the engine resolves in the same way.
    pub preserves: &'static str,
    /// It stands in where every setting of one of these has its value.
    pub valid_when: Vec<BTreeMap<&'static str, &'static str>>,
}

/// An estimation rule as the table spells it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", tag = "rule")]
enum Rule {
    Unset { because: &'static str },
    StandIn(StandIn),
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `--x` or `--no-x`.
    Bool,
    /// `--x`.
    Flag,
    /// `--x` or `--x VALUE`.
    FlagOrStr,
    /// An integer.
    Int,
    /// An integer, or one with a suffix such as `8k` or `2M`.
    IntHuman,
    /// The same, or `auto`.
    IntHumanOrAuto,
    /// One of a list of integers.
    IntChoice,
    /// A real number.
    Float,
    /// Any text.
    Str,
    /// One of a list, spelled exactly.
    Choice,
    /// One of a list; case and dashes do not matter.
    ChoiceFolded,
    /// One of a list; case does not matter.
    ChoiceNocase,
    /// A member of one of upstream's enumerations; case does not matter.
    Enum,
    /// One or more integers.
    Ints,
    /// One or more words.
    Strs,
    /// A JSON list.
    List,
    /// A JSON object.
    Json,
    /// A JSON object or any text.
    JsonOrStr,
    /// A JSON object whose keys are fields of their own.
    Nested,
    /// A variable that is an integer read as yes or no.
    BoolInt,
    /// A variable that means yes for `1` and `true`.
    BoolWord,
    /// A variable that means yes for `1`.
    BoolOne,
}

/// What this port does with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Changes a decision or a price, and is honoured.
    Modelled,
    /// Changes neither.
    Inert,
    /// Refused away from its default.
    NotModelled,
    /// An object whose keys are fields of their own.
    Nested,
}

/// A spelling of an earlier release.
#[derive(Debug, Deserialize)]
pub struct Former {
    /// The old flag, dotted key or variable.
    pub old: &'static str,
    /// Values of the flag on the command line.
    #[serde(default)]
    pub takes: usize,
    /// Old values the row is for; all where empty.
    #[serde(default)]
    pub when: Vec<&'static str>,
    /// Values other settings must be stated with for the row to hold.
    #[serde(default)]
    pub beside: BTreeMap<&'static str, &'static str>,
    /// The first release read that has it.
    pub from: &'static str,
    /// The first release read that lacks it again; the modelled one where absent.
    #[serde(default)]
    pub until: Option<&'static str>,
    /// The releases it was read in.
    pub seen: Vec<&'static str>,
    /// What it means now.
    pub becomes: Becomes,
    /// The settings it becomes; `=` stands for the old value.
    #[serde(default)]
    pub to: BTreeMap<&'static str, &'static str>,
    /// Why.
    pub reason: &'static str,
}

/// What a spelling of an earlier release means now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Becomes {
    /// The settings of [`Former::to`].
    Setting,
    /// Nothing any more.
    Nothing,
    /// A JSON object of megabytes by number of ranks becomes the value for this layout.
    ByWorldSizeMb,
    /// No equivalent.
    Refused,
}

/// Flags and variables of earlier releases that are translated for none.
#[derive(Debug, Deserialize)]
pub struct Gone {
    /// Their names.
    pub flags: Vec<&'static str>,
    /// The first release read that has them; absent where they went before any release read.
    #[serde(default)]
    pub from: Option<&'static str>,
    /// The first release read that lacks them again; the modelled one where absent.
    #[serde(default)]
    pub until: Option<&'static str>,
    /// What to state in their place.
    pub instead: &'static str,
}

/// A class of upstream's that holds configuration.
#[derive(Debug, Deserialize)]
pub struct ConfigClass {
    /// Its name.
    #[serde(rename = "class")]
    pub name: &'static str,
    /// Its fields, each with the keys of the settings that state it; upstream sets the others itself.
    pub fields: Vec<(&'static str, Vec<&'static str>)>,
}

/// What a command-line spelling states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spelling {
    /// The field.
    pub(super) field: &'static Field,
    /// Whether it is the `--no-` form.
    pub(super) negated: bool,
}

impl PartialEq for Field {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Field {}

/// Tells a null default from an absent one.
fn present<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(source).map(Some)
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
struct Document {
    reasons: Vec<&'static str>,
    estimates: Vec<Rule>,
    fields: Vec<Field>,
    formerly: Vec<Former>,
    gone: Vec<Gone>,
    classes: Vec<ConfigClass>,
}

static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../data/fields.json")).expect("the embedded field table was read by the tests of this crate")
});

static BY_KEY: LazyLock<BTreeMap<&'static str, &'static Field>> =
    LazyLock::new(|| fields().iter().map(|field| (field.key, field)).collect());

static BY_FLAG: LazyLock<BTreeMap<String, Spelling>> = LazyLock::new(|| {
    let mut spellings = BTreeMap::new();
    for field in fields() {
        for flag in &field.flags {
            spellings.insert(flag.to_string(), Spelling { field, negated: false });
            if let (Kind::Bool, Some(name)) = (field.kind, flag.strip_prefix("--")) {
                spellings.insert(format!("--no-{name}"), Spelling { field, negated: true });
            }
        }
    }
    spellings
});

/// Every field, in the order of the table: engine, front end, JSON keys, variables, other libraries' variables.
pub fn fields() -> &'static [Field] {
    &DOCUMENT.fields
}

/// Every spelling of an earlier release.
pub fn formerly() -> &'static [Former] {
    &DOCUMENT.formerly
}

/// Every flag and variable of earlier releases that is translated for none.
pub fn gone_flags() -> &'static [Gone] {
    &DOCUMENT.gone
}

/// Every class of upstream's that holds configuration.
pub fn config_classes() -> &'static [ConfigClass] {
    &DOCUMENT.classes
}

impl Field {
    /// Why the field has its status.
    pub fn reason(&self) -> &'static str {
        DOCUMENT.reasons[self.reason]
    }

    /// What stands in for it.
    pub fn estimation(&self) -> Estimation {
        match (self.estimate.map(|at| &DOCUMENT.estimates[at]), self.status) {
            (Some(Rule::Unset { because }), _) => Estimation::Unset(Some(because)),
            (Some(Rule::StandIn(value)), _) => Estimation::StandIn(value),
            (None, Status::Modelled | Status::Inert | Status::Nested) => Estimation::Unset(None),
            (None, Status::NotModelled) => Estimation::None,
        }
    }

    /// Whether a value of it names code that the release may not ship.
    pub fn names_code(&self, value: &str) -> bool {
        let shipped = value.starts_with("vllm.");
        match self.code {
            None => false,
            Some("any") => !shipped,
            Some(_) => !shipped && value.contains(['.', '/', ':']),
        }
    }

    /// The field of that upstream name, or with that flag.
    pub fn called(name: &str) -> Option<&'static Self> {
        Self::named(name).or_else(|| spelling(name).map(|found| found.field))
    }

    /// The field that a word means: its upstream name, or a flag as a launch line may write it, negated or with a key behind a dot, with or
    /// without the dashes in front.
    pub fn meant(word: &str) -> Option<&'static Self> {
        Self::named(word).or_else(|| Self::flagged(word)).or_else(|| Self::flagged(&format!("--{word}")))
    }

    fn flagged(word: &str) -> Option<&'static Self> {
        let flag = normalised(word);
        let inner = |(outer, key)| Self::named(&format!("{}.{key}", spelling(outer)?.field.key));
        spelling(&flag).map(|found| found.field).or_else(|| flag.split_once('.').and_then(inner))
    }

    /// The field of that upstream name.
    pub(super) fn named(key: &str) -> Option<&'static Self> {
        BY_KEY.get(key).copied()
    }

    /// The field of a modelled setting.
    pub(super) fn of(setting: Setting) -> &'static Self {
        Self::named(setting.key()).expect("both files are written by one run of the generator")
    }

    /// Whether a field is a key of this one, or of an object in it.
    pub(super) fn has_key(&self, key: &str) -> bool {
        key.strip_prefix(self.key).is_some_and(|rest| rest.starts_with('.'))
    }

    /// Whether it is an environment variable.
    pub(super) fn is_variable(&self) -> bool {
        self.scope == "env" || self.scope == "foreign"
    }

    /// How messages name it: its first flag, else its key.
    pub fn name(&self) -> &str {
        self.flags.first().unwrap_or(&self.key)
    }
}

/// `--max_num_seqs` is `--max-num-seqs`, up to the first dot or equals sign.
pub(super) fn normalised(word: &str) -> String {
    let Some(name) = word.strip_prefix("--") else { return word.to_owned() };
    let end = name.find(['.', '=']).unwrap_or(name.len());
    format!("--{}{}", name[..end].replace('_', "-"), &name[end..])
}

/// The spelling of exactly that flag.
pub(super) fn spelling(flag: &str) -> Option<Spelling> {
    BY_FLAG.get(flag).copied()
}

/// All long spellings that begin with `prefix`.
pub(super) fn spellings_from(prefix: &str) -> Vec<(&'static str, Spelling)> {
    BY_FLAG
        .range(prefix.to_owned()..)
        .take_while(|(flag, _)| flag.starts_with(prefix))
        .map(|(flag, spelling)| (flag.as_str(), *spelling))
        .collect()
}

/// The most similar of `names`, where one is similar enough to be meant.
pub(super) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(score, _)| *score >= 0.85)
        .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(a.1)))
        .map(|(_, name)| name)
}

/// Every flag of the command line.
pub(super) fn flags() -> impl Iterator<Item = &'static str> {
    BY_FLAG.keys().map(String::as_str)
}
