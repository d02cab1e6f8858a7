//! A run over simulated time, drawn: requests, KV cache, and what the accelerator ran.

use std::fmt::Write as _;

use blis_contracts::result::RunResult;
use blis_contracts::series::{Series, StepKind};

use super::{WIDTH, escape, scroll, table};
use crate::quantity::{Scale, count, share, value};

/// Height of a drawing, its time axis left out.
const HEIGHT: f64 = 120.0;
/// Height of the time axis.
const AXIS: f64 = 22.0;
/// Room above the drawing.
const TOP: f64 = 8.0;
/// Where the drawing begins and ends from left to right.
const LEFT: f64 = 60.0;
const RIGHT: f64 = WIDTH - 10.0;

/// Every pool over time; nothing where a Result is of no time at all.
pub(super) fn over_time(result: &RunResult) -> String {
    result.series.iter().filter(|(_, series)| !series.running.is_empty()).map(|(pool, series)| of_pool(pool, series)).collect()
}

/// Steps by kind.
pub(super) fn step_mix(result: &RunResult) -> String {
    let of_pool = |(pool, mix): (&String, &indexmap::IndexMap<StepKind, blis_contracts::series::StepMix>)| {
        let whole: f64 = mix.values().map(|mix| mix.device_s).sum();
        let rows = mix.iter().map(|(kind, mix)| {
            let each = |amount: u64| format!("{:.1}", amount as f64 / mix.steps.max(1) as f64);
            let time = if whole > 0.0 { share(mix.device_s / whole) } else { share(0.0) };
            let mean = value(mix.device_s * 1e6 / mix.steps.max(1) as f64, "us");
            vec![pool.clone(), kind.as_str().to_owned(), count(mix.steps), each(mix.requests), each(mix.tokens), mean, time]
        });
        table(&["pool", "step", ">steps", ">requests each", ">tokens each", ">accelerator time each", ">of accelerator time"], rows)
    };
    result.steps.iter().map(of_pool).collect()
}

fn of_pool(pool: &str, series: &Series) -> String {
    let end_s = series.bin_s * series.running.len() as f64;
    let most = series.running.iter().chain(&series.waiting).copied().fold(1.0, f64::max);
    let requests = chart(
        "requests that run and wait",
        end_s,
        most,
        &format!("{most:.0}"),
        &[("running", &series.running), ("waiting", &series.waiting)],
    );
    let kv = chart("share of the KV cache in use", end_s, 1.0, "100%", &[("KV in use", &series.kv_utilisation)]);
    let device: Vec<(&str, &[f64])> = series.device.iter().map(|(kind, shares)| (kind.as_str(), shares.as_slice())).collect();
    let device = chart("share of time in which the accelerator ran each kind of step", end_s, 1.0, "100%", &device);
    format!(
        "<h3>pool {}: requests</h3>\n{requests}<h3>KV cache in use</h3>\n{kv}<h3>Accelerator, by kind of step</h3>\n{device}",
        escape(pool)
    )
}

/// Lines over time with a legend.
fn chart(label: &str, end_s: f64, most: f64, top: &str, lines: &[(&str, &[f64])]) -> String {
    let mut body = String::new();
    for (y, text) in [(0.0, top), (HEIGHT, "0")] {
        write!(body, "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{:.1}\" y2=\"{:.1}\"/>", y + TOP, y + TOP)
            .expect("text takes anything");
        writeln!(body, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", LEFT - 6.0, y + 12.0, escape(text))
            .expect("text takes anything");
    }
    let scale = Scale::of("us", end_s * 1e6);
    for part in 0..=4_u32 {
        let x = LEFT + (RIGHT - LEFT) * f64::from(part) / 4.0;
        let time = format!("{} {}", scale.print(end_s * 1e6 * f64::from(part) / 4.0), scale.unit);
        let anchor = match part {
            0 => "start",
            4 => "end",
            _ => "middle",
        };
        writeln!(body, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{time}</text>", HEIGHT + AXIS + 4.0)
            .expect("text takes anything");
    }
    let mut legend = String::new();
    for (colour, (name, values)) in lines.iter().enumerate() {
        writeln!(body, "<polyline class=\"line{colour}\" points=\"{}\"/>", points(values, most)).expect("text takes anything");
        write!(legend, "<span class=\"key{colour}\">{}</span> ", escape(name)).expect("text takes anything");
    }
    let height = HEIGHT + AXIS + 10.0;
    let svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{} over simulated time\">\n{body}</svg>\n", escape(label));
    format!("<p class=\"legend\">{legend}</p>\n{}", scroll(&svg))
}

/// Averages of bins as a line of steps.
fn points(values: &[f64], most: f64) -> String {
    let x = |bin: usize| LEFT + (RIGHT - LEFT) * bin as f64 / values.len() as f64;
    let mut points = String::new();
    for (bin, value) in values.iter().enumerate() {
        let y = TOP + HEIGHT * (1.0 - value / most);
        write!(points, "{:.1},{y:.1} {:.1},{y:.1} ", x(bin), x(bin + 1)).expect("text takes anything");
    }
    points
}
