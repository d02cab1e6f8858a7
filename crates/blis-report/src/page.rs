//! A Result as one page that needs nothing else: no script, no network, light and dark, drawn in SVG.
//!
//! It shows what the Result holds, and names the timeline that lies beside it. Left out: single requests and steps, which the timeline has.

mod over_time;

use std::fmt::{Display, Write as _};

use blis_contracts::metric::Metric;
use blis_contracts::provenance::SettingSource;
use blis_contracts::result::{DataOrigin, Figure, RunResult, Statistic};
use blis_contracts::validity::ErrorInterval;

use crate::quantity::{Scale, bytes, count, counted, share};
use crate::result::expected;

const STYLE: &str = include_str!("page/style.css");
/// What stands where a run gives no value.
const UNKNOWN: &str = "–";
/// Width of a drawing; the page stretches it.
const WIDTH: f64 = 720.0;
/// Where the names of a drawing end and its bars begin.
const MARGIN: f64 = 170.0;
/// Room for the value behind a bar.
const BEHIND: f64 = 60.0;
/// Height of one row of a drawing.
const ROW: f64 = 22.0;

/// The page of a Result; `timeline` is where the run's timeline lies, seen from the page.
pub fn page(result: &RunResult, timeline: Option<&str>) -> String {
    let name = escape(&result.name);
    let sections = [
        section("Warnings", &warnings(result)),
        section("Latency", &latency(result)),
        section("Rates and averages", &totals(result)),
        section("Requests and tokens", &requests(result)),
        section("What requests waited for", &bars(result.binds.shares.iter().map(|(limit, share)| (limit.as_str(), *share)))),
        section("Over simulated time", &(over_time::over_time(result) + &link(timeline))),
        section("Steps", &over_time::step_mix(result)),
        section("KV cache", &kv(result)),
        section("What the time goes to", &bars(result.prices.by_primitive.iter().map(|(name, share)| (name.as_str(), *share)))),
        section("What the prices rest on", &prices(result)),
        section("How far to trust it", &validity(result)),
        section("Settings with their sources", &settings(result)),
        section("What went in", &inputs(result)),
        section("What the figures mean", &definitions(result)),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>BLIS: {name}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>{name}</h1>\n<p class=\"soft\">{} · seed {} · BLIS {}</p>\n{}</body>\n</html>\n",
        escape(&result.versions.engine),
        result.inputs.seed,
        escape(&result.versions.blis),
        sections.concat(),
    )
}

/// Text in which nothing is markup.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A section; none where there is nothing to show.
fn section(title: &str, body: &str) -> String {
    if body.is_empty() { String::new() } else { format!("<section>\n<h2>{title}</h2>\n{body}</section>\n") }
}

/// A table. A column whose heading begins with `>` holds numbers.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let class = |at: usize| if head[at].starts_with('>') { " class=\"number\"" } else { "" };
    let head_cell = |(at, name): (usize, &&str)| format!("<th scope=\"col\"{}>{}</th>", class(at), name.trim_start_matches('>'));
    let heads: String = head.iter().enumerate().map(head_cell).collect();
    let heads = if head.iter().all(|name| name.is_empty()) { String::new() } else { format!("<thead><tr>{heads}</tr></thead>\n") };
    let row = |cells: Vec<String>| {
        let cell = |(at, cell): (usize, &String)| format!("<td{}>{}</td>", class(at), escape(cell));
        format!("<tr>{}</tr>\n", cells.iter().enumerate().map(cell).collect::<String>())
    };
    let rows: String = rows.into_iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("<div class=\"scroll\"><table>\n{heads}<tbody>\n{rows}</tbody>\n</table></div>\n")
}

/// Facts: a name and a value each.
fn facts<K: Display>(facts: impl IntoIterator<Item = (K, String)>) -> String {
    table(&["", ""], facts.into_iter().map(|(name, value)| vec![name.to_string(), value]))
}

fn drawing(label: &str, rows: usize, body: &str) -> String {
    scroll(&format!("<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\">\n{body}</svg>\n", ROW * rows as f64, escape(label)))
}

/// What is wider than a phone, and moves sideways there.
fn scroll(body: &str) -> String {
    format!("<div class=\"scroll\">{body}</div>\n")
}

/// Where single steps and requests are to be seen.
fn link(timeline: Option<&str>) -> String {
    match timeline {
        Some(place) => format!(
            "<p><a href=\"{0}\" download>Timeline: {0}</a> <span class=\"soft\">steps, requests and queues one by one, for a viewer of the trace-event format, such as Perfetto or the one built into Chromium</span></p>\n",
            escape(place)
        ),
        None => "<p class=\"soft\">Single steps and requests: run the scenario with <code>--timeline FILE.json</code>, and name the file here with the same flag.</p>\n".to_owned(),
    }
}

/// Shares as bars, the largest first; shares of nothing are left out.
fn bars<'a>(shares: impl Iterator<Item = (&'a str, f64)>) -> String {
    let mut shares: Vec<(&str, f64)> = shares.filter(|(_, share)| *share > 0.0).collect();
    shares.sort_by(|one, other| other.1.total_cmp(&one.1));
    if shares.is_empty() {
        return "<p class=\"soft\">Nothing.</p>\n".to_owned();
    }
    let mut body = String::new();
    for (row, (name, part)) in (0_u32..).zip(&shares) {
        let (top, wide) = (f64::from(row) * ROW, (WIDTH - MARGIN - BEHIND) * part.min(1.0));
        let (baseline, end) = (top + 15.0, MARGIN + wide + 6.0);
        writeln!(
            body,
            "<text x=\"0\" y=\"{baseline}\">{}</text><rect class=\"bar\" x=\"{MARGIN}\" y=\"{}\" width=\"{wide:.1}\" height=\"14\"/><text x=\"{end:.1}\" y=\"{baseline}\">{}</text>",
            escape(&name.replace('_', " ")),
            top + 4.0,
            share(*part),
        )
        .expect("text takes anything");
    }
    let label: Vec<String> = shares.iter().map(|(name, part)| format!("{name} {}", share(*part))).collect();
    drawing(&label.join(", "), shares.len(), &body)
}

fn warnings(result: &RunResult) -> String {
    let paragraph = |warning: &String| format!("<p class=\"warning\">{}</p>\n", escape(warning));
    result.warnings.iter().map(paragraph).collect()
}

/// The figures of each scope and metric, in the order they appear; those with percentiles, or those without.
fn groups(result: &RunResult, sampled: bool) -> Vec<Vec<&Figure>> {
    let mut groups: Vec<Vec<&Figure>> = Vec::new();
    for figure in &result.figures {
        match groups.iter_mut().find(|group| group[0].metric == figure.metric && group[0].scope == figure.scope) {
            Some(group) => group.push(figure),
            None => groups.push(vec![figure]),
        }
    }
    groups.retain(|group| group.iter().any(|figure| figure.statistic.quantile().is_some()) == sampled);
    groups
}

/// Every distribution: a drawing on the metric's own scale, then the numbers.
fn latency(result: &RunResult) -> String {
    let groups = groups(result, true);
    let statistics: Vec<Statistic> = Statistic::ALL.into_iter().filter(|statistic| *statistic != Statistic::Rate).collect();
    let value = |group: &[&Figure], wanted| group.iter().find(|figure| figure.statistic == wanted).and_then(|figure| figure.value);
    let mut body = String::new();
    for (row, group) in (0_u32..).zip(&groups) {
        body += &spread(f64::from(row) * ROW, &group[0].metric, |statistic| value(group, statistic));
    }
    let heads: Vec<String> = ["metric".to_owned(), "scope".to_owned()]
        .into_iter()
        .chain(statistics.iter().map(|s| format!(">{}", s.as_str())))
        .chain([">n".to_owned(), ">unfinished".to_owned()])
        .collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let rows = groups.iter().map(|group| {
        let scale = Scale::of(&group[0].unit, value(group, Statistic::Mean).unwrap_or(0.0));
        let print = |value: Option<f64>| value.map_or_else(|| UNKNOWN.to_owned(), |value| format!("{} {}", scale.print(value), scale.unit));
        let has = |statistic: Statistic| group.iter().any(|figure| figure.statistic == statistic);
        let values = statistics.iter().map(|statistic| if has(*statistic) { print(value(group, *statistic)) } else { String::new() });
        let counts = [count(group[0].n), count(group[0].unfinished)];
        [group[0].metric.clone(), group[0].scope.clone()].into_iter().chain(values).chain(counts).collect()
    });
    let note = "<p class=\"soft\">Each from its median to its 99th percentile, on its own scale up to the largest sample; strokes are the percentiles 50, 90, 95 and 99, the dot is the mean.</p>\n";
    drawing("distributions, whose numbers are in the table below", groups.len(), &body) + note + &table(&heads, rows)
}

/// One distribution as a range with its percentiles.
fn spread(top: f64, name: &str, value: impl Fn(Statistic) -> Option<f64>) -> String {
    let mut body = format!("<text x=\"0\" y=\"{}\">{}</text>", top + 15.0, escape(&name.replace('_', " ")));
    let known: Vec<f64> = Statistic::ALL.into_iter().filter_map(&value).collect();
    let most = known.iter().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return body + "\n";
    }
    let at = |value: f64| MARGIN + (WIDTH - MARGIN - BEHIND) * (value / most).clamp(0.0, 1.0);
    let middle = top + 11.0;
    write!(body, "<line class=\"rule\" x1=\"{MARGIN}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>", at(most))
        .expect("text takes anything");
    if let (Some(low), Some(high)) = (value(Statistic::P50), value(Statistic::P99)) {
        write!(body, "<rect class=\"range\" x=\"{:.1}\" y=\"{}\" width=\"{:.1}\" height=\"10\"/>", at(low), top + 6.0, at(high) - at(low))
            .expect("text takes anything");
    }
    for percentile in Statistic::ALL.into_iter().filter(|statistic| statistic.quantile().is_some()).filter_map(&value) {
        let x = at(percentile);
        write!(body, "<line class=\"tick\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{}\"/>", top + 4.0, top + 18.0)
            .expect("text takes anything");
    }
    if let Some(mean) = value(Statistic::Mean) {
        write!(body, "<circle class=\"mean\" cx=\"{:.1}\" cy=\"{middle}\" r=\"3\"/>", at(mean)).expect("text takes anything");
    }
    body + "\n"
}

fn totals(result: &RunResult) -> String {
    let row = |figure: &Figure| {
        let scale = Scale::of(&figure.unit, figure.value.unwrap_or(0.0));
        let value = figure.value.map_or_else(|| UNKNOWN.to_owned(), |value| format!("{} {}", scale.print(value), scale.unit));
        vec![figure.metric.clone(), figure.scope.clone(), value]
    };
    table(&["metric", "scope", ">value"], groups(result, false).into_iter().flatten().map(row))
}

fn requests(result: &RunResult) -> String {
    let tokens = &result.tokens;
    let fates = result
        .fates
        .iter()
        .filter(|(_, requests)| **requests > 0)
        .map(|(fate, requests)| (fate.as_str().replace('_', " "), count(*requests)));
    let refusals = result.refusals.iter().map(|(reason, requests)| (format!("refused: {reason}"), count(*requests)));
    let tokens = [
        ("prompt tokens", tokens.prompt),
        ("prompt tokens computed", tokens.prompt_computed),
        ("prompt tokens looked up in the prefix cache", tokens.prefix_queries),
        ("of these, found", tokens.prefix_hits),
        ("output tokens", tokens.output),
    ];
    facts(fates.chain(refusals).chain(tokens.map(|(name, tokens)| (name.to_owned(), count(tokens)))))
}

fn kv(result: &RunResult) -> String {
    let of_pool = |(pool, kv): (&String, &blis_contracts::result::KvFigures)| {
        let rows = [
            ("size", format!("{} tokens in {}, {} a rank", count(kv.tokens), counted(kv.blocks, "block"), bytes(kv.bytes_per_rank))),
            ("largest share in use", share(kv.peak_utilisation)),
            ("preemptions", count(kv.preemptions)),
            ("steps", count(kv.steps)),
            ("accelerator at work", format!("{} of the run", share(kv.device_busy))),
        ];
        format!("<h3>pool {}</h3>\n{}", escape(pool), facts(rows))
    };
    result.kv.iter().map(of_pool).collect()
}

fn prices(result: &RunResult) -> String {
    let drawn = bars(result.prices.by_method.iter().map(|(method, share)| (method.as_str(), *share)));
    let least = result.prices.least_trusted.map(|method| ("least trusted method", method.as_str().replace('_', " ")));
    drawn + &facts([("outside the fitted range", share(result.prices.extrapolated))].into_iter().chain(least))
}

fn validity(result: &RunResult) -> String {
    let validity = &result.validity;
    let verdict =
        if validity.inside { "within what was compared with measurements" } else { "outside what was compared with measurements" };
    let outside = validity.outside.iter().map(|reason| ("because", reason.clone()));
    let interval = |(name, interval): (&'static str, &Option<ErrorInterval>)| {
        let told = interval.as_ref().map(|interval| {
            let points = format!("{} of {}", counted(interval.points.into(), "point"), counted(interval.deployments.into(), "deployment"));
            let covered = share(interval.covered);
            format!(
                "{} of the simulated mean, for {} of deployments; over {} ({points}; covered {covered} of those left out)",
                expected(interval),
                share(interval.level),
                interval.over
            )
        });
        (name, told.unwrap_or_else(|| UNKNOWN.to_owned()))
    };
    let intervals = [("measured mean ttft", &validity.ttft), ("measured mean tpot", &validity.tpot)].map(interval);
    facts([("verdict", verdict.to_owned())].into_iter().chain(outside).chain(intervals))
}

fn settings(result: &RunResult) -> String {
    let of_pool = |(pool, settings): (&String, &Vec<blis_contracts::provenance::ResolvedSetting>)| {
        let rows = settings.iter().map(|setting| {
            vec![setting.name.clone(), setting.value.clone(), source(setting.source).to_owned(), setting.rule.clone().unwrap_or_default()]
        });
        format!(
            "<details><summary>pool {}: {}</summary>\n{}</details>\n",
            escape(pool),
            counted(settings.len() as u64, "setting"),
            table(&["setting", "value", "source", "rule"], rows)
        )
    };
    let read =
        result.substitutions.iter().flat_map(|(pool, read)| read.iter().map(move |read| (format!("pool {pool} reads"), read.clone())));
    let pools: String = result.settings.iter().map(of_pool).collect();
    facts(read) + &pools
}

/// Where a setting's value came from, in words.
fn source(source: SettingSource) -> &'static str {
    match source {
        SettingSource::Stated => "stated",
        SettingSource::Translated => "stated in another release's spelling",
        SettingSource::Recorded => "recorded by a measured run",
        SettingSource::UpstreamDefault => "the engine's default or rule",
        SettingSource::CitedMeasurement => "a cited measurement",
    }
}

fn inputs(result: &RunResult) -> String {
    let (frame, inputs) = (&result.frame, &result.inputs);
    let data = match inputs.data {
        DataOrigin::Released => "those of the release",
        DataOrigin::Experimental => "experimental",
    };
    let edits = inputs.edits.iter().map(|edit| ("edit", edit.clone()));
    facts(
        [
            ("start", frame.start.clone()),
            ("stop", frame.stop.clone()),
            ("measured window", format!("{:.3} s to {:.3} s of simulated time", frame.window_start_s, frame.window_end_s)),
            ("data", data.to_owned()),
            ("scenario", inputs.scenario_sha256.clone()),
            ("catalog", inputs.catalog_sha256.clone()),
            ("registry", inputs.registry_sha256.clone()),
            ("random generator", result.versions.generator.clone()),
        ]
        .into_iter()
        .chain(edits),
    )
}

fn definitions(result: &RunResult) -> String {
    let used = Metric::ALL
        .into_iter()
        .map(Metric::definition)
        .filter(|definition| result.figures.iter().any(|figure| figure.metric == definition.id));
    facts(used.map(|definition| (definition.id, format!("{}; over {}", definition.formula, definition.population))))
}
