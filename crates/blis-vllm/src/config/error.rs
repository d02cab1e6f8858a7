//! Why a launch line was refused. A message names the setting as upstream spells it, the value, and what would be right.

/// A launch line that the modelled release, or this port of it, does not take.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// Neither a command nor arguments, or both.
    #[error("a pool takes either `command` or `args`; {found}")]
    CommandOrArgs {
        /// What was given.
        found: &'static str,
    },
    /// A shell line that no shell would split.
    #[error("command: the quotes do not balance")]
    Unbalanced,
    /// A shell line with something a scenario cannot run.
    #[error("command: {found:?} needs a shell; state the value itself")]
    ShellSyntax {
        /// The word.
        found: String,
    },
    /// A shell line that does not start the server.
    #[error(
        "command: starts {found:?}; it should start `vllm serve MODEL` or `python3 -m vllm.entrypoints.openai.api_server --model MODEL`"
    )]
    NotAServer {
        /// The words it starts with.
        found: String,
    },
    /// A flag the modelled release lacks.
    #[error("unrecognized arguments: {flag}{hint}")]
    UnknownFlag {
        /// The flag as written.
        flag: String,
        /// The nearest flag, or the releases that had it.
        hint: String,
    },
    /// An abbreviation of several flags.
    #[error("ambiguous option: {flag} could match {matches}")]
    AmbiguousFlag {
        /// The abbreviation as written.
        flag: String,
        /// The flags it could mean.
        matches: String,
    },
    /// A flag without the value it needs.
    #[error("argument {flag}: expected {wanted}")]
    MissingValue {
        /// The flag.
        flag: String,
        /// How many values of what kind.
        wanted: &'static str,
    },
    /// A value for a flag that takes none.
    #[error("argument {flag}: takes no value, but has {value:?}; write {flag} or its --no- form")]
    UnexpectedValue {
        /// The flag.
        flag: String,
        /// The value.
        value: String,
    },
    /// A value of the wrong type.
    #[error("{name}: {value} is not {wanted}")]
    WrongType {
        /// The setting.
        name: String,
        /// The value as written.
        value: String,
        /// The type.
        wanted: String,
    },
    /// A value outside a closed list.
    #[error("{name}: invalid choice {value:?}{hint}; choose from {choices}")]
    InvalidChoice {
        /// The setting.
        name: String,
        /// The value as written.
        value: String,
        /// The nearest choice.
        hint: String,
        /// All choices.
        choices: String,
    },
    /// A value outside its range.
    #[error("{name}: {value} should be {wanted}")]
    OutOfRange {
        /// The setting.
        name: String,
        /// The value.
        value: String,
        /// The range.
        wanted: String,
    },
    /// A key that a JSON flag does not have.
    #[error("{object}: unknown key {key:?}{hint}")]
    UnknownKey {
        /// The flag.
        object: String,
        /// The key.
        key: String,
        /// The nearest key, or the releases that had it.
        hint: String,
    },
    /// An environment variable that nothing is known about.
    #[error("unknown environment variable {name}{hint}")]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The nearest variable, or the releases that had it.
        hint: String,
    },
    /// A variable stated twice.
    #[error("environment variable {name} is set both in `env` and in the command")]
    VariableTwice {
        /// The variable.
        name: String,
    },
    /// A setting of the modelled release that this port does not model.
    #[error("{name} = {value} is not modelled: {reason}{instead}")]
    NotModelled {
        /// The setting's upstream name.
        name: String,
        /// The value.
        value: String,
        /// Why.
        reason: String,
        /// What is accepted.
        instead: String,
    },
    /// A model on a chip with settings that the modelled release would run and this port does not.
    #[error("{0}")]
    NotPorted(String),
    /// A spelling of an earlier release without an equivalent.
    #[error("{name} = {value} has no equivalent in the modelled release: {reason}")]
    NoEquivalent {
        /// The old spelling.
        name: String,
        /// The value.
        value: String,
        /// Why.
        reason: String,
    },
    /// Two settings that say the same thing.
    #[error("{first} and {second} are mutually exclusive")]
    MutuallyExclusive {
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// A release in `written_for` that is no release.
    #[error("{value:?} is not a release such as \"0.22.0\"")]
    NotARelease {
        /// The value.
        value: String,
    },
    /// A release in `written_for` whose spellings nobody here knows.
    #[error("{value:?} is later than {}, the modelled release, so that its spellings are not known", crate::RELEASE)]
    LaterRelease {
        /// The value.
        value: String,
    },
    /// Fewer devices of a node named than ranks lie there.
    #[error(
        "{name} = {value}: the engine finds {devices} of a node's devices, and the ranks there are {ranks}; name at least {ranks}, or leave it out"
    )]
    TooFewDevices {
        /// What names them.
        name: String,
        /// The value as written.
        value: String,
        /// Devices that the engine finds.
        devices: u32,
        /// Ranks of a node.
        ranks: u32,
    },
    /// Statements that upstream refuses whatever the model and the machine.
    #[error("{0}")]
    Inconsistent(String),
    /// A combination that upstream refuses at start-up, or that no modelled kernel serves.
    #[error("{0}")]
    Refused(String),
}

/// The part of a pool's document that a refusal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// The launch line, or several parts at once.
    Line,
    /// An environment variable, wherever it is stated.
    Variable(&'a str),
    /// The release that the line was written for.
    WrittenFor,
}

impl ConfigError {
    /// What the refusal is about.
    pub fn place(&self) -> Place<'_> {
        match self {
            Self::NotARelease { .. } | Self::LaterRelease { .. } => Place::WrittenFor,
            Self::UnknownVariable { name, .. } | Self::VariableTwice { name } => Place::Variable(name),
            Self::WrongType { name, .. }
            | Self::InvalidChoice { name, .. }
            | Self::OutOfRange { name, .. }
            | Self::NotModelled { name, .. }
            | Self::NoEquivalent { name, .. }
            | Self::TooFewDevices { name, .. }
                if !name.starts_with('-') =>
            {
                Place::Variable(name)
            }
            Self::WrongType { .. }
            | Self::InvalidChoice { .. }
            | Self::OutOfRange { .. }
            | Self::NotModelled { .. }
            | Self::NoEquivalent { .. }
            | Self::TooFewDevices { .. }
            | Self::CommandOrArgs { .. }
            | Self::Unbalanced
            | Self::ShellSyntax { .. }
            | Self::NotAServer { .. }
            | Self::UnknownFlag { .. }
            | Self::AmbiguousFlag { .. }
            | Self::MissingValue { .. }
            | Self::UnexpectedValue { .. }
            | Self::UnknownKey { .. }
            | Self::MutuallyExclusive { .. }
            | Self::NotPorted(_)
            | Self::Inconsistent(_)
            | Self::Refused(_) => Place::Line,
        }
    }

    /// Whether the line itself is wrong, so that no model and no machine makes it right. The other refusals are of a deployment: upstream
    /// would take the line elsewhere, or this port does not model what it asks for.
    pub const fn is_of_the_line(&self) -> bool {
        match self {
            Self::CommandOrArgs { .. }
            | Self::Unbalanced
            | Self::ShellSyntax { .. }
            | Self::NotAServer { .. }
            | Self::UnknownFlag { .. }
            | Self::AmbiguousFlag { .. }
            | Self::MissingValue { .. }
            | Self::UnexpectedValue { .. }
            | Self::WrongType { .. }
            | Self::InvalidChoice { .. }
            | Self::OutOfRange { .. }
            | Self::UnknownKey { .. }
            | Self::UnknownVariable { .. }
            | Self::VariableTwice { .. }
            | Self::NoEquivalent { .. }
            | Self::MutuallyExclusive { .. }
            | Self::NotARelease { .. }
            | Self::LaterRelease { .. }
            | Self::Inconsistent(_) => true,
            Self::NotModelled { .. } | Self::TooFewDevices { .. } | Self::NotPorted(_) | Self::Refused(_) => false,
        }
    }
}
