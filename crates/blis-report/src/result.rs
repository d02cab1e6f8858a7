//! A Result as an aligned table and as JSON.
//!
//! The table answers in the order of the questions: how fast, how much, what became of the requests, what they waited for, where
//! the prices came from, and what to beware of; what each name means is a list of its own. A figure the run does not give is a dash, never a zero;
//! a statistic that a metric does not have is left blank.

use indexmap::IndexMap;

use blis_contracts::metric::Metric;
use blis_contracts::result::{Binds, DataOrigin, Figure, KvFigures, PriceProvenance, RunResult, Statistic};
use blis_contracts::scenario::ExpertRouting;
use blis_contracts::validity::{ErrorInterval, Validity};

use crate::grid::Grid;
use crate::quantity::{Scale, bytes, count, counted, share, short_hash};

/// The statistics of the table of samples; the others are in the JSON.
const SHOWN: [Statistic; 5] = [Statistic::Mean, Statistic::P50, Statistic::P90, Statistic::P99, Statistic::Max];

/// What stands where a run gives no value.
const UNKNOWN: &str = "-";

/// Primitives that are named one by one; the others are summed.
const PRIMITIVES: usize = 6;

/// The Result as JSON, one key on each line.
pub fn json(result: &RunResult) -> String {
    serde_json::to_string_pretty(result).expect("a Result holds text keys and finite numbers") + "\n"
}

/// The Result as tables for a terminal.
pub fn table(result: &RunResult) -> String {
    let versions = &result.versions;
    let mut parts = vec![format!("{}  ({}, seed {}, blis {})\n", result.name, versions.engine, result.inputs.seed, versions.blis)];
    for (scope, figures) in by_scope(&result.figures) {
        if scope != "cluster" {
            parts.push(format!("{scope}\n"));
        }
        parts.push(samples(&figures));
        parts.push(totals(&figures));
    }
    parts.push(facts(result));
    parts.push(warnings(&result.warnings));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn warnings(warnings: &[String]) -> String {
    let mut grid = Grid::headless(&["", ""]);
    for warning in warnings {
        grid.row(["warning", warning]);
    }
    grid.wrapped().print()
}

/// The definitions of the metrics as a table: all that there are.
pub fn metrics() -> String {
    let mut grid = Grid::new(&["metric", "unit", "definition"]);
    for metric in Metric::ALL {
        let definition = metric.definition();
        grid.row([definition.id, definition.unit, &format!("{}; over {}", definition.formula, definition.population)]);
    }
    grid.wrapped().print()
}

/// Figures grouped by scope, in the order the scopes appear.
fn by_scope(figures: &[Figure]) -> IndexMap<&str, Vec<&Figure>> {
    let mut scopes: IndexMap<&str, Vec<&Figure>> = IndexMap::new();
    for figure in figures {
        scopes.entry(&figure.scope).or_default().push(figure);
    }
    scopes
}

/// The figures of one scope grouped by metric; a metric with a percentile is one of samples.
fn by_metric<'a>(figures: &[&'a Figure], sampled: bool) -> Vec<Vec<&'a Figure>> {
    let mut metrics: IndexMap<&str, Vec<&Figure>> = IndexMap::new();
    for figure in figures {
        metrics.entry(&figure.metric).or_default().push(figure);
    }
    let has_percentile = |figures: &Vec<&Figure>| figures.iter().any(|figure| figure.statistic.quantile().is_some());
    metrics.into_values().filter(|figures| has_percentile(figures) == sampled).collect()
}

/// Metrics with a distribution: one row each.
fn samples(figures: &[&Figure]) -> String {
    let mut grid = Grid::new(&["", "unit", ">mean", ">p50", ">p90", ">p99", ">max", ">n"]);
    for row in by_metric(figures, true) {
        let of = |statistic| row.iter().find(|figure| figure.statistic == statistic).map(|figure| figure.value);
        let reference = SHOWN.iter().find_map(|statistic| of(*statistic).flatten()).unwrap_or(0.0);
        let scale = Scale::of(&row[0].unit, reference);
        let print = |value: Option<f64>| value.map_or_else(|| UNKNOWN.to_owned(), |value| scale.print(value));
        let values = SHOWN.map(|statistic| of(statistic).map(print).unwrap_or_default());
        grid.row([row[0].metric.clone(), scale.unit.to_owned()].into_iter().chain(values).chain([count(row[0].n)]));
    }
    grid.print() + &unfinished_note(figures)
}

/// Says why figures are missing, where unfinished requests are the reason.
fn unfinished_note(figures: &[&Figure]) -> String {
    let unknown = figures.iter().filter(|figure| figure.value.is_none() && figure.unfinished > 0);
    match unknown.map(|figure| figure.unfinished).max() {
        Some(unfinished) => {
            format!("{UNKNOWN}: not known, because {} had not finished when the run stopped\n", counted(unfinished, "request"))
        }
        None => String::new(),
    }
}

/// Metrics with one value each.
fn totals(figures: &[&Figure]) -> String {
    let mut grid = Grid::headless(&["", ">", ""]);
    for row in by_metric(figures, false) {
        for figure in row {
            let scale = Scale::of(&figure.unit, figure.value.unwrap_or(0.0));
            let value = figure.value.map_or_else(|| UNKNOWN.to_owned(), |value| scale.print(value));
            grid.row([&figure.metric, &value, scale.unit]);
        }
    }
    grid.print()
}

/// What became of the requests, what they waited for, what the prices stand on, and what went in.
fn facts(result: &RunResult) -> String {
    let mut grid = Grid::headless(&["", ""]);
    let mut fact = |key: &str, value: String| {
        if !value.is_empty() {
            grid.row([key, &value]);
        }
    };
    let fates = result.fates.iter().filter(|(_, requests)| **requests > 0);
    fact("requests", list(fates.map(|(fate, requests)| format!("{} {}", count(*requests), fate.as_str().replace('_', " ")))));
    refusals(&result.refusals, &mut fact);
    let tokens = &result.tokens;
    fact("tokens", format!("{} prompt, {} output", count(tokens.prompt), count(tokens.output)));
    if tokens.prefix_queries > 0 {
        let hits = share(tokens.prefix_hits as f64 / tokens.prefix_queries as f64);
        fact("prefix cache", format!("{hits} of {} prompt tokens found", count(tokens.prefix_queries)));
    }
    fact("binds", binds(&result.binds));
    for (pool, figures) in &result.kv {
        fact(&format!("pool {pool}"), pool_work(figures));
        fact("", pool_memory(figures));
    }
    price_facts(&result.prices, &mut fact);
    validity_facts(&result.validity, &mut fact);
    let frame = &result.frame;
    let window = frame.window_end_s - frame.window_start_s;
    fact("window", format!("{window:.3} s of simulated time, from {:.3} s; stop after {}", frame.window_start_s, frame.stop));
    fact("experts", frame.expert_routing.map(routing).unwrap_or_default());
    for (pool, substitutions) in &result.substitutions {
        for substitution in substitutions {
            fact(&format!("pool {pool} reads"), substitution.clone());
        }
    }
    fact("edits", list(result.inputs.edits.iter().cloned()));
    let inputs = &result.inputs;
    let origin = match inputs.data {
        DataOrigin::Released => "released",
        DataOrigin::Experimental => "experimental",
    };
    let hashes = [("scenario", &inputs.scenario_sha256), ("catalog", &inputs.catalog_sha256), ("registry", &inputs.registry_sha256)];
    fact("inputs", format!("{}; {origin} data", list(hashes.map(|(name, hash)| format!("{name} {}", short_hash(hash))))));
    fact("figures", "defined by `blis metrics`".to_owned());
    grid.wrapped().print()
}

/// How tokens are taken to spread over experts.
pub(crate) fn routing(routing: ExpertRouting) -> String {
    let stated = if routing == ExpertRouting::ASSUMED { ", as assumed where a scenario states none" } else { "" };
    match routing.exponent {
        exponent if exponent > 0.0 => format!("the r-th most popular is picked in proportion to r^-{exponent}{stated}"),
        _ => "each is picked as often as any other".to_owned(),
    }
}

/// Refusals by reason, most frequent first. Reasons that differ only in their numbers are told once, by the first of them.
fn refusals(refusals: &IndexMap<String, u64>, fact: &mut impl FnMut(&str, String)) {
    let mut kinds: IndexMap<String, (&str, u64, u64)> = IndexMap::new();
    for (reason, requests) in refusals {
        let kind = reason.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect();
        let (_, total, reasons) = kinds.entry(kind).or_insert((reason, 0, 0));
        *total += requests;
        *reasons += 1;
    }
    kinds.sort_by(|_, one, _, other| other.1.cmp(&one.1));
    for (example, total, reasons) in kinds.into_values() {
        let others = if reasons > 1 { format!(" (and {} with other numbers)", counted(reasons - 1, "reason")) } else { String::new() };
        fact("refused", format!("{}: {example}{others}", count(total)));
    }
}

fn binds(binds: &Binds) -> String {
    let mut shares: Vec<_> = binds.shares.iter().filter(|(_, share)| **share > 0.0).collect();
    shares.sort_by(|one, other| other.1.total_cmp(one.1));
    if shares.is_empty() {
        return "nothing: no request waited".to_owned();
    }
    list(shares.into_iter().map(|(limit, part)| format!("{} {}", limit.as_str().replace('_', " "), share(*part)))) + " of the waiting"
}

fn pool_work(figures: &KvFigures) -> String {
    format!(
        "{}, accelerator at work {} of the run, {}",
        counted(figures.steps, "step"),
        share(figures.device_busy),
        counted(figures.preemptions, "preemption")
    )
}

fn pool_memory(figures: &KvFigures) -> String {
    format!(
        "KV {} ({} tokens, {} a rank), peak {} in use",
        counted(figures.blocks, "block"),
        count(figures.tokens),
        bytes(figures.bytes_per_rank),
        share(figures.peak_utilisation)
    )
}

fn price_facts(prices: &PriceProvenance, fact: &mut impl FnMut(&str, String)) {
    let methods = prices.by_method.iter().filter(|(_, part)| **part > 0.0);
    fact("prices from", list(methods.map(|(method, part)| format!("{} {}", method.as_str().replace('_', " "), share(*part)))));
    let mut primitives: Vec<_> = prices.by_primitive.iter().filter(|(_, part)| **part > 0.0).collect();
    primitives.sort_by(|one, other| other.1.total_cmp(one.1));
    let rest: f64 = primitives.iter().skip(PRIMITIVES).map(|(_, part)| **part).sum();
    let named = primitives.iter().take(PRIMITIVES).map(|(name, part)| format!("{name} {}", share(**part)));
    fact("time goes to", list(named.chain((rest > 0.0).then(|| format!("others {}", share(rest))))));
    if prices.extrapolated > 0.0 {
        fact("extrapolated", format!("{} of priced time is outside the range its coefficients were fitted in", share(prices.extrapolated)));
    }
}

/// Whether deployments like this one were measured, and where the measured means lay.
fn validity_facts(validity: &Validity, fact: &mut impl FnMut(&str, String)) {
    let verdict = if validity.inside { "within what was compared with measurements".to_owned() } else { validity.outside.join("; ") };
    fact(if validity.inside { "validity" } else { "not validated" }, verdict);
    let interval =
        |name: &str, interval: &Option<ErrorInterval>| interval.as_ref().map(|interval| format!("{name} {}", expected(interval)));
    let known = list([interval("ttft", &validity.ttft), interval("tpot", &validity.tpot)].into_iter().flatten());
    if let Some(interval) = validity.tpot.as_ref().or(validity.ttft.as_ref()) {
        let points = counted(interval.points.into(), "point");
        fact(
            "expected",
            format!(
                "measured means: {known} of the simulated, for {} of deployments (from {points} of {})",
                share(interval.level),
                interval.over
            ),
        );
    }
}

/// An interval as percentages of the simulated mean.
pub(crate) fn expected(interval: &ErrorInterval) -> String {
    format!("{:.0} to {:.0}%", interval.low * 1e2, interval.high * 1e2)
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    items.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
