//! `blis registry`: one coefficient entry, two registries side by side, and why an operation gets the entry it gets.

use std::path::Path;

use blis_contracts::format::MatmulFormat;
use blis_contracts::plan::KernelImpl;
use blis_contracts::strict::did_you_mean;
use blis_registry::vocabulary::{Family, Subject, Tier};
use blis_registry::{ChipCoefficients, Entry, Query, Registry};
use blis_report::grid::Grid;
use blis_report::quantity::{counted, share};
use blis_sim::{Flags, Question, World, WorldError, support};
use clap::Subcommand;

use super::{Outcome, print};
use crate::data::{DataArgs, world_failure};
use crate::failure::Failure;

/// The arguments of `blis registry`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show an entry with its source, method, interval, held-out errors and users; or list the chips, or a chip's entries
    Show {
        /// CHIP, or CHIP/ENTRY; every chip where left out
        key: Option<String>,
        #[command(flatten)]
        data: DataArgs,
    },
    /// Tell how two registries differ, entry by entry
    Diff {
        /// A registry folder, or `embedded`
        before: String,
        /// A registry folder, or `embedded`
        after: String,
    },
    /// Tell which entry prices an operation, and why the others do not
    Why {
        /// CHIP/PRIMITIVE, as in h200/gemm
        key: String,
        /// The kernel that runs, as LIBRARY/VARIANT
        #[arg(long, value_name = "LIBRARY/VARIANT")]
        kernel: Option<String>,
        /// The label of the formats of the call, as in bf16
        #[arg(long)]
        format: Option<String>,
        /// Ranks of the group, of those in one domain where it lies in several
        #[arg(long, value_name = "RANKS")]
        group: Option<u32>,
        /// The group lies in several domains of links, with a network between them
        #[arg(long)]
        across: bool,
        #[command(flatten)]
        data: DataArgs,
    },
}

pub(super) fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Show { key, data } => show(key.as_deref(), &data.world()?),
        Command::Diff { before, after } => diff(&open(before)?, &open(after)?),
        Command::Why { key, kernel, format, group, across, data } => {
            let tier = if *across { Tier::Network } else { Tier::Domain };
            why(key, kernel.as_deref(), format.as_deref(), (*group, tier), &data.world()?.registry)
        }
    }
}

fn failure(error: blis_registry::RegistryError) -> Failure {
    world_failure(WorldError::Registry(error))
}

fn open(name: &str) -> Result<Registry, Failure> {
    if name == "embedded" { Ok(Registry::embedded()) } else { Registry::open(Path::new(name), &[]).map_err(failure) }
}

fn show(key: Option<&str>, world: &World) -> Outcome {
    let Some(key) = key else { return chips(&world.registry) };
    let (chip, name) = key.split_once('/').map_or((key, None), |(chip, name)| (chip, Some(name)));
    let coefficients = world.registry.chip(chip).map_err(failure)?;
    let Some(name) = name else { return list(&coefficients) };
    let entries: Vec<&Entry> = coefficients.entries().iter().filter(|entry| entry.name == name).collect();
    if entries.is_empty() {
        let known: Vec<&str> = coefficients.entries().iter().map(|entry| entry.name.as_str()).collect();
        return Err(Failure::input(format!("{chip} has no entry `{name}`"), did_you_mean(name, &known)));
    }
    let parts: Vec<String> = entries.into_iter().map(|entry| describe(entry) + &users(entry, chip, world)).collect();
    print(&parts.join("\n"))
}

fn chips(registry: &Registry) -> Outcome {
    let mut grid = Grid::new(&["chip", ">entries", ">measured", ">calibrated", ">transferred", ">other"]);
    for chip in registry.chips() {
        let coefficients = registry.chip(&chip).map_err(failure)?;
        let of = |method: &str| coefficients.entries().iter().filter(|entry| entry.method.as_str() == method).count();
        let all = coefficients.entries().len();
        let counts = ["measured", "calibrated", "transferred"].map(of);
        let rest = all - counts.iter().sum::<usize>();
        let [measured, calibrated, transferred] = counts.map(|count| count.to_string());
        grid.row([chip, all.to_string(), measured, calibrated, transferred, rest.to_string()]);
    }
    print(&grid.print())
}

fn list(coefficients: &ChipCoefficients) -> Outcome {
    let mut grid = Grid::new(&["entry", "prices", "scope", "method", ">held-out median", ">p90"]);
    for entry in coefficients.entries() {
        let [median, p90] = match &entry.fit {
            Some(fit) => [share(fit.median_abs_error), share(fit.p90_abs_error)],
            None => [String::new(), String::new()],
        };
        grid.row([entry.name.as_str(), entry.primitive.as_str(), &scope(entry), entry.method.as_str(), &median, &p90]);
    }
    print(&grid.wrapped().print())
}

/// What an entry is for, in words.
fn scope(entry: &Entry) -> String {
    let kernel = entry.kernel.as_ref().map(|kernel| format!("{}/{}", kernel.library, kernel.variant));
    let domains = entry.tier == Tier::Network;
    let group =
        entry.group.map(|group| if domains { format!("{group} ranks in each of several domains") } else { format!("{group} ranks") });
    let apart = (domains && entry.group.is_none()).then(|| "several domains".to_owned());
    let parts = [kernel, entry.format.clone(), group, apart];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "any call".to_owned() } else { parts.join(", ") }
}

fn describe(entry: &Entry) -> String {
    let mut grid = Grid::headless(&["", ""]);
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            grid.row([name, &value]);
        }
    };
    fact("entry", entry.name.clone());
    fact("prices", format!("{}, {}", entry.primitive, scope(entry)));
    fact("method", entry.method.as_str().to_owned());
    fact("form", format!("{:?}", entry.form));
    for (name, coefficient) in &entry.coefficients {
        let interval = coefficient.interval.map(|(low, high)| format!(", 95% interval {low} to {high}")).unwrap_or_default();
        fact("coefficient", format!("{name} = {} {}{interval}", coefficient.value, coefficient.unit));
    }
    for (name, curve) in &entry.curves {
        let interval = |place: usize| curve.intervals.get(place).map(|(low, high)| format!(" ({low} to {high})")).unwrap_or_default();
        let point = |(place, (at, value)): (usize, &(f64, f64))| format!("{value}{} at {at}", interval(place));
        let points: Vec<String> = curve.points.iter().enumerate().map(point).collect();
        let bounds = if curve.intervals.is_empty() { "" } else { ", 95% intervals in brackets" };
        fact("curve", format!("{name} over {}: {} {}{bounds}", curve.over, points.join(", "), curve.unit));
    }
    for range in &entry.ranges {
        let up_to = range.up_to.map_or_else(|| "all larger".to_owned(), |bytes| format!("up to {bytes} bytes"));
        fact("range of an algorithm", format!("{up_to}: {} us, then {} bytes/us", range.latency, range.bandwidth));
    }
    for (input, (low, high)) in &entry.range {
        fact("fitted over", format!("{input} from {low} to {high}"));
    }
    fact("measured by", format!("{} clock, {} launch", entry.boundary.clock, entry.boundary.launch));
    for source in &entry.sources {
        let table = source.table.as_ref().map(|table| format!(", {table}")).unwrap_or_default();
        let rows = source.rows.map(|rows| format!(", {}", counted(rows, "row"))).unwrap_or_default();
        let hash = source.sha256.as_ref().map(|hash| format!(", sha256 {}", blis_report::quantity::short_hash(hash))).unwrap_or_default();
        fact("source", format!("{}{table}{rows}{hash}", source.source));
    }
    if let Some(fit) = &entry.fit {
        let errors = format!("median {}, 90th percentile {}", share(fit.median_abs_error), share(fit.p90_abs_error));
        fact("held out", format!("{errors} on {} of {} rows", fit.held_out, fit.rows));
    }
    fact("because", entry.reason.clone().unwrap_or_default());
    grid.wrapped().print()
}

/// The models of the catalog whose reference steps an entry prices, each at the smallest width at which it starts on one node.
fn users(entry: &Entry, chip: &str, world: &World) -> String {
    let node = world.catalog.chip(chip).map_or(1, |chip| chip.gpus_per_node.value);
    let widths: Vec<u32> = std::iter::successors(Some(1_u32), |width| Some(width * 2)).take_while(|width| *width <= node).collect();
    let uses = |model: &&str| {
        let first = widths
            .iter()
            .find_map(|&tensor| support(Question { model, chip, tensor, flags: &Flags::default(), nodes: 1, fabric: None }, world).ok());
        first.is_some_and(|answer| {
            answer.decode.iter().chain(&answer.prefill).any(|line| line.entry == entry.name && line.primitive == entry.primitive)
        })
    };
    let users: Vec<&str> = world.catalog.models().filter(uses).collect();
    let mut grid = Grid::headless(&["", ""]);
    grid.row(["used by", &if users.is_empty() { "no reference step of a catalog model".to_owned() } else { users.join(", ") }]);
    grid.wrapped().print()
}

fn why(key: &str, kernel: Option<&str>, format: Option<&str>, (group, tier): (Option<u32>, Tier), registry: &Registry) -> Outcome {
    let malformed = || Failure::input(format!("`{key}` names no operation; write CHIP/PRIMITIVE, as in h200/gemm"), None);
    let (chip, primitive) = key.split_once('/').ok_or_else(malformed)?;
    let coefficients = registry.chip(chip).map_err(failure)?;
    let names: Vec<&str> = Subject::ALL.iter().map(|subject| subject.as_str()).collect();
    let unknown = || Failure::input(format!("nothing is called `{primitive}`"), did_you_mean(primitive, &names));
    let subject = *Subject::ALL.iter().find(|subject| subject.as_str() == primitive).ok_or_else(unknown)?;
    let kernel = match kernel.map(|name| (name, name.split_once('/'))) {
        None => None,
        Some((_, Some((library, variant)))) => Some(KernelImpl::named(library, variant)),
        Some((name, None)) => return Err(Failure::input(format!("--kernel {name}: write LIBRARY/VARIANT, as in cublas/linear"), None)),
    };
    if let Some(format) = format {
        let labels: Vec<String> = MatmulFormat::all().map(MatmulFormat::label).collect();
        let known: Vec<&str> = labels.iter().map(String::as_str).collect();
        if !known.contains(&format) {
            return Err(Failure::input(
                format!("--format {format}: no weights and activations have this label"),
                did_you_mean(format, &known),
            ));
        }
    }
    if let Some(group) = group.filter(|&group| group < 2 || subject.family() != Family::Collective) {
        return Err(Failure::input(format!("--group {group}: only collectives have a group, of two ranks or more"), None));
    }
    let query = Query { subject, kernel: kernel.as_ref(), format, group, tier };
    let found = coefficients.find(&query);
    let mut grid = Grid::new(&["entry", "scope", "method", ""]);
    if let Ok(found) = &found {
        grid.row([found.entry.name.as_str(), &scope(found.entry), found.entry.method.as_str(), "prices the call"]);
        for entry in &found.displaced {
            let why = if entry.method == found.entry.method { "less specific" } else { "less trusted" };
            grid.row([entry.name.as_str(), &scope(entry), entry.method.as_str(), why]);
        }
    }
    let matching = |entry: &&Entry| found.as_ref().is_ok_and(|found| found.entry == *entry || found.displaced.contains(entry));
    for entry in coefficients.entries().iter().filter(|entry| entry.primitive == subject && !matching(entry)) {
        grid.row([entry.name.as_str(), &scope(entry), entry.method.as_str(), "is for another kernel, format or group"]);
    }
    let verdict = found.map_or_else(|error| format!("{error}\n\n"), |_| String::new());
    print(&(verdict + &grid.wrapped().print()))
}

fn diff(before: &Registry, after: &Registry) -> Outcome {
    let mut grid = Grid::new(&["entry", "before", "after"]);
    let mut rows = 0;
    let chips: std::collections::BTreeSet<String> = before.chips().into_iter().chain(after.chips()).collect();
    for chip in chips {
        let of = |registry: &Registry| -> Result<Vec<Entry>, Failure> {
            if registry.chips().contains(&chip) { Ok(registry.chip(&chip).map_err(failure)?.entries().to_vec()) } else { Ok(Vec::new()) }
        };
        let (old, new) = (of(before)?, of(after)?);
        let same = |one: &Entry, other: &Entry| one.name == other.name && one.primitive == other.primitive;
        for entry in &old {
            for (what, was, is) in new
                .iter()
                .find(|other| same(entry, other))
                .map_or_else(|| vec![(String::new(), entry.method.as_str().to_owned(), "absent".to_owned())], |other| changes(entry, other))
            {
                grid.row([format!("{chip}/{}{what}", entry.name), was, is]);
                rows += 1;
            }
        }
        for entry in new.iter().filter(|entry| !old.iter().any(|other| same(entry, other))) {
            grid.row([format!("{chip}/{}", entry.name), "absent".to_owned(), entry.method.as_str().to_owned()]);
            rows += 1;
        }
    }
    if before.errors() != after.errors() {
        grid.row(["errors.yaml", "", "differs"]);
        rows += 1;
    }
    if rows == 0 { print("The two registries hold the same entries.\n") } else { print(&grid.wrapped().print()) }
}

/// What differs between two states of an entry: its place within the entry, and both values.
fn changes(before: &Entry, after: &Entry) -> Vec<(String, String, String)> {
    let value = |entry: &Entry| serde_json::to_value(entry).expect("an entry is JSON");
    let mut changes = Vec::new();
    walk(&value(before), &value(after), "", &mut changes);
    changes
}

fn walk(before: &serde_json::Value, after: &serde_json::Value, place: &str, changes: &mut Vec<(String, String, String)>) {
    use serde_json::Value;
    let (Value::Object(one), Value::Object(other)) = (before, after) else {
        if before != after {
            let told = |value: &Value| if value.is_null() { "absent".to_owned() } else { value.to_string() };
            changes.push((place.to_owned(), told(before), told(after)));
        }
        return;
    };
    let keys: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    for key in keys {
        let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
        walk(&of(one), &of(other), &format!("{place} {key}"), changes);
    }
}
