//! Tests of the table: a whole Result, one with unknown figures, and that the JSON is the document.

use blis_contracts::fate::Fate;
use blis_contracts::provenance::Method;
use blis_contracts::result::{FrameRecord, Inputs, Limit, ResultKind, TokenTotals, Versions};
use blis_contracts::series::{Series, StepKind, StepMix};
use blis_contracts::validity::{ErrorInterval, Validity};

use super::*;

fn figures(unfinished: u64) -> Vec<Figure> {
    let mut figures = Vec::new();
    for metric in Metric::ALL {
        let definition = metric.definition();
        for (index, statistic) in metric.statistics().iter().enumerate() {
            let size = if definition.unit == "ratio" { 0.4321 } else { 41_234.5 };
            let value = size * f64::from(u32::try_from(index).unwrap() + 1);
            figures.push(Figure {
                metric: definition.id.to_owned(),
                scope: "cluster".to_owned(),
                statistic: *statistic,
                value: (unfinished == 0 || *statistic != Statistic::Max).then_some(value),
                unit: definition.unit.to_owned(),
                n: 2_000,
                unfinished,
            });
        }
    }
    figures
}

fn serving() -> KvFigures {
    KvFigures {
        blocks: 27_000,
        tokens: 432_000,
        cores: 1,
        bytes_per_rank: 59_000_000_000,
        peak_utilisation: 0.43,
        preemptions: 1,
        steps: 31_234,
        device_busy: 0.84,
    }
}

fn prices() -> PriceProvenance {
    PriceProvenance {
        by_method: [(Method::Measured, 0.9), (Method::VendorSpec, 0.1)].into_iter().collect(),
        by_primitive: [("norm".to_owned(), 0.2), ("gemm".to_owned(), 0.8)].into_iter().collect(),
        extrapolated: 0.0001,
        least_trusted: Some(Method::VendorSpec),
    }
}

fn steps() -> IndexMap<StepKind, StepMix> {
    let decode = StepMix { steps: 1_000, requests: 16_000, tokens: 16_000, device_s: 9.0 };
    let mixed = StepMix { steps: 100, requests: 1_600, tokens: 200_000, device_s: 1.0 };
    [(StepKind::Decode, decode), (StepKind::Mixed, mixed)].into_iter().collect()
}

fn series() -> Series {
    Series {
        bin_s: 62.5,
        waiting: vec![0.0, 0.5, 8.0, 0.0],
        running: vec![4.0, 16.0, 16.0, 1.0],
        kv_utilisation: vec![0.25, 1.0, 1.0, 0.0],
        device: [(StepKind::Decode, vec![0.5, 0.9, 0.9, 0.25]), (StepKind::Mixed, vec![0.25, 0.0, 0.0, 0.0])].into_iter().collect(),
    }
}

fn validity() -> Validity {
    let interval = |low, high| {
        let over = "llama on h100, 9 to 32 requests in flight".to_owned();
        Some(ErrorInterval { low, high, level: 0.8, covered: 0.79, over, points: 22, deployments: 11 })
    };
    Validity { inside: false, outside: vec!["500.0 prompt tokens on average".to_owned()], tpot: interval(0.95, 1.05), ttft: None }
}

fn example(unfinished: u64) -> RunResult {
    RunResult {
        kind: ResultKind::Result,
        name: "chat".to_owned(),
        inputs: Inputs {
            scenario_sha256: "0123456789abcdef".repeat(4),
            seed: 42,
            edits: vec!["frame.stop.requests=2000".to_owned()],
            data: DataOrigin::Released,
            catalog_sha256: "123456789abcdef0".repeat(4),
            registry_sha256: "23456789abcdef01".repeat(4),
            overlays_sha256: Vec::new(),
            trace_sha256: None,
        },
        versions: Versions { blis: "0.0.0".to_owned(), engine: "engine 1.2.3".to_owned(), generator: "chacha12".to_owned() },
        frame: FrameRecord {
            start: "empty".to_owned(),
            stop: "2000 requests".to_owned(),
            window_start_s: 0.5,
            window_end_s: 250.75,
            expert_routing: None,
        },
        settings: IndexMap::new(),
        substitutions: [("serve".to_owned(), vec!["OLD=1 was read as --new".to_owned()])].into_iter().collect(),
        figures: figures(unfinished),
        fates: [(Fate::Completed, 1_998), (Fate::Refused, 2), (Fate::TimedOut, 0)].into_iter().collect(),
        refusals: [("the prompt is too long".to_owned(), 2)].into_iter().collect(),
        tokens: TokenTotals {
            prompt: 2_000_000,
            prefix_queries: 2_000_000,
            prefix_hits: 1_000_000,
            prompt_computed: 1_000_000,
            output: 512_000,
        },
        kv: [("serve".to_owned(), serving())].into_iter().collect(),
        steps: [("serve".to_owned(), steps())].into_iter().collect(),
        series: [("serve".to_owned(), series())].into_iter().collect(),
        binds: Binds { limit: Limit::KvBlocks, shares: [(Limit::Step, 0.25), (Limit::KvBlocks, 0.75)].into_iter().collect() },
        prices: prices(),
        validity: validity(),
        warnings: vec!["the window is short: its 99th percentile rests on twenty requests, so read it as an order of magnitude".to_owned()],
    }
}

#[test]
fn a_result_reads_from_latencies_to_warnings() {
    insta::assert_snapshot!(table(&example(0)));
}

#[test]
fn an_unknown_figure_is_a_dash_with_its_reason() {
    let text = table(&example(12));
    let ttft = text.lines().find(|line| line.starts_with("ttft")).unwrap();
    assert!(ttft.ends_with("-  2,000"), "{ttft}");
    assert!(text.contains("-: not known, because 12 requests had not finished when the run stopped"));
}

#[test]
fn refusals_that_differ_only_in_numbers_are_told_once() {
    let refusals = [("a prompt of 9 of 8", 1), ("no room", 5), ("a prompt of 12 of 8", 7), ("a prompt of 1 of 8", 1)];
    let result = RunResult { refusals: refusals.map(|(reason, count)| (reason.to_owned(), count)).into_iter().collect(), ..example(0) };
    let text = table(&result);
    let told: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("refused")).map(str::trim).collect();
    assert_eq!(told, ["9: a prompt of 9 of 8 (and 2 reasons with other numbers)", "5: no room"]);
}

#[test]
fn every_metric_has_its_definition_in_the_list() {
    let text = metrics().split_whitespace().collect::<Vec<_>>().join(" ");
    for metric in Metric::ALL {
        assert!(text.contains(metric.definition().formula), "{metric:?}");
    }
}

#[test]
fn the_json_is_the_document() {
    let result = example(12);
    assert_eq!(serde_json::from_str::<RunResult>(&json(&result)).unwrap(), result);
}

#[test]
fn the_page_shows_every_figure_and_no_text_of_a_result_is_markup() {
    let mut result = example(0);
    result.name = "chat <b>&\"".to_owned();
    result.warnings = vec!["<script>alert(1)</script>".to_owned()];
    let page = crate::page::page(&result, Some("a&b.json"));
    assert!(page.contains("<h1>chat &lt;b&gt;&amp;&quot;</h1>") && page.contains("&lt;script&gt;alert(1)") && !page.contains("<script"));
    for figure in &result.figures {
        let scale = figure.value.map(|value| Scale::of(&figure.unit, value)).unwrap();
        assert!(page.contains(&format!("<td>{}</td>", figure.metric)) && page.contains(scale.unit), "{}", figure.metric);
    }
    for text in [
        "432,000 tokens",
        "aria-label=\"gemm 80.0%, norm 20.0%\"",
        "href=\"a&amp;b.json\"",
        "running",
        "250.0 s",
        "1,000",
        "16.0",
        "90.0%",
        "the prompt is too long",
        "OLD=1 was read as --new",
        "vendor spec",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("://"), "the page asks nobody");
}

#[test]
fn an_unknown_figure_has_no_number_on_the_page() {
    let (known, unknown) = (crate::page::page(&example(0), None), crate::page::page(&example(3), None));
    assert!(!known.contains("<td class=\"number\">–</td>") && unknown.contains("<td class=\"number\">–</td>"));
}
