//! `blis fields`: every setting of an engine and what the port does with it.

use blis_contracts::strict::did_you_mean;
use blis_report::grid::Grid;
use blis_vllm::config::{ConfigClass, Estimation, Field, Kind, Status, config_classes, fields, former_spellings, gone_flags};
use clap::ValueEnum;

use super::{Outcome, print};
use crate::failure::Failure;

/// The arguments of `blis fields`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The engine
    engine: Engine,
    /// A flag, a key, an environment variable, or a class of the engine's that holds configuration; all are listed where left out
    #[arg(allow_hyphen_values = true)]
    name: Option<String>,
}

/// The engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    Vllm,
}

pub(super) fn run(args: &Args) -> Outcome {
    match (args.engine, &args.name) {
        (Engine::Vllm, None) => print(&list()),
        (Engine::Vllm, Some(name)) => print(&describe(name)?),
    }
}

fn list() -> String {
    let mut grid = Grid::new(&["name", "status", "type", "default"]);
    for field in fields() {
        grid.row([field.name(), status(field.status), kind(field.kind), &default(field)]);
    }
    let classes: Vec<String> = config_classes().iter().map(class).collect();
    format!("{}\n{}", grid.wrapped().print(), classes.join("\n"))
}

/// The fields of a class, and by which settings a launch line states each.
fn class(class: &ConfigClass) -> String {
    let mut grid = Grid::new(&[class.name, "stated by", "status"]);
    for (name, keys) in &class.fields {
        let stated: Vec<&Field> = keys.iter().filter_map(|key| Field::called(key)).collect();
        let mut statuses: Vec<&str> = stated.iter().map(|field| status(field.status)).collect();
        statuses.dedup();
        let names: Vec<&str> = stated.iter().map(|field| field.name()).collect();
        let by = if names.is_empty() { "nothing: the engine sets it itself".to_owned() } else { names.join(", ") };
        grid.row([*name, &by, &statuses.join(", ")]);
    }
    grid.wrapped().print()
}

/// Everything known of the settings with that name: usually one, or a spelling of an earlier release.
fn describe(name: &str) -> Result<String, Failure> {
    let is_it = |flag: &str| flag == name || flag.trim_start_matches('-') == name;
    let mut parts: Vec<String> = Field::meant(name).map(facts).into_iter().collect();
    for former in former_spellings().iter().filter(|former| is_it(former.old)) {
        let mut grid = Grid::headless(&["", ""]);
        grid.row(["name", former.old]);
        grid.row(["status", "a spelling of earlier releases; `engine.written_for` has it translated"]);
        let until = former.until.map(|release| format!(" until {release}")).unwrap_or_default();
        grid.row(["releases", &format!("from {}{until}", former.from)]);
        if !former.when.is_empty() {
            grid.row(["values", &former.when.join(", ")]);
        }
        for (setting, value) in &former.to {
            grid.row(["becomes", &format!("{setting} {value}")]);
        }
        grid.row(["because", former.reason]);
        parts.push(grid.wrapped().print());
    }
    for gone in gone_flags().iter().filter(|gone| gone.flags.iter().copied().any(is_it)) {
        let mut grid = Grid::headless(&["", ""]);
        grid.row(["name", &gone.flags.join(", ")]);
        grid.row(["status", "gone, and translated for no release"]);
        let releases = [gone.from.map(|from| format!("from {from}")), gone.until.map(|until| format!("until before {until}"))];
        grid.row(["releases", &releases.into_iter().flatten().collect::<Vec<_>>().join(" ")]);
        grid.row(["instead", gone.instead]);
        parts.push(grid.wrapped().print());
    }
    parts.extend(config_classes().iter().filter(|class| class.name == name).map(class));
    if parts.is_empty() {
        let keys = fields().iter().flat_map(|field| field.flags.iter().copied().chain([field.key]));
        let known: Vec<&str> = keys.chain(config_classes().iter().map(|class| class.name)).collect();
        return Err(Failure::input(format!("the engine has no setting `{name}`"), did_you_mean(name, &known)));
    }
    Ok(parts.join("\n"))
}

fn facts(field: &Field) -> String {
    let mut grid = Grid::headless(&["", ""]);
    grid.row(["name", field.key]);
    let mut fact = |key: &str, value: String| {
        if !value.is_empty() {
            grid.row([key, &value]);
        }
    };
    fact("flags", field.flags.join(", "));
    fact("scope", field.scope.to_owned());
    fact("type", kind(field.kind).to_owned());
    fact("choices", field.choices.join(", "));
    let bounds = [("above", field.gt), ("at least", field.ge), ("below", field.lt), ("at most", field.le)];
    fact("range", bounds.iter().filter_map(|(word, bound)| Some(format!("{word} {}", (*bound)?))).collect::<Vec<_>>().join(", "));
    fact("default", default(field));
    fact("status", status(field.status).to_owned());
    fact("accepted", field.values.join(", "));
    fact("because", field.reason().to_owned());
    fact("estimated", estimation(field.estimation()));
    fact("code", if field.code.is_some() { "it can name code that the release does not ship".to_owned() } else { String::new() });
    grid.wrapped().print()
}

/// What stands in for a setting where a measured run did not record it, or passed what is not modelled.
fn estimation(rule: Estimation) -> String {
    match rule {
        Estimation::None => "by no rule".to_owned(),
        Estimation::Unset(None) => "left out where a run did not record it".to_owned(),
        Estimation::Unset(Some(why)) => format!("left out: {why}"),
        Estimation::StandIn(rule) => {
            let clause = |clause: &std::collections::BTreeMap<&str, &str>| {
                clause.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(" and ")
            };
            let clauses: Vec<String> = rule.valid_when.iter().map(clause).collect();
            format!("{} stands in for {}: {}; it keeps {}", rule.value, clauses.join(", "), rule.because, rule.preserves)
        }
    }
}

fn default(field: &Field) -> String {
    match &field.default {
        None => "computed at start-up".to_owned(),
        Some(serde_json::Value::Null) => "none".to_owned(),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

fn status(status: Status) -> &'static str {
    match status {
        Status::Modelled => "modelled",
        Status::Inert => "inert",
        Status::NotModelled => "not modelled",
        Status::Nested => "an object",
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Flag => "a bare flag",
        Kind::FlagOrStr => "a bare flag or text",
        Kind::Int | Kind::IntChoice => "integer",
        Kind::IntHuman => "integer, 8k and the like",
        Kind::IntHumanOrAuto => "integer, 8k and the like, or auto",
        Kind::Float => "number",
        Kind::Str => "text",
        Kind::Choice | Kind::ChoiceFolded | Kind::ChoiceNocase | Kind::Enum => "choice",
        Kind::Ints => "integers",
        Kind::Strs => "words",
        Kind::List => "JSON list",
        Kind::Json => "JSON",
        Kind::JsonOrStr => "JSON or text",
        Kind::Nested => "JSON with keys of its own",
        Kind::Bool | Kind::BoolInt | Kind::BoolWord | Kind::BoolOne => "yes or no",
    }
}
