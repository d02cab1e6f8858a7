//! A made-up world: sweeps whose true latencies follow a formula, and predictions that miss them by a known factor.

use blis_score::Input;
use blis_score::compare::{Inputs, compare};
use blis_score::summary::Summary;
use serde_json::{Value, json};

/// Concurrency of each sweep's points.
pub(crate) const CONCURRENCY: [u32; 4] = [2, 8, 32, 128];
/// The lines of a file.
pub(crate) type Lines = Vec<Value>;

/// Two families on two chips under two engines, in three lengths: twelve sweeps of four points.
pub(crate) fn units() -> Lines {
    let mut units = Lines::new();
    for (model, gpu, framework) in
        [("alpha-7b", "h100", "vllm"), ("alpha-7b", "b200", "vllm"), ("beta-moe-2x8b", "h100", "vllm"), ("gamma3-1b", "b200", "other")]
    {
        for (label, isl, osl) in [("1k1k", 1024, 1024), ("8k1k", 8192, 1024), ("1k8k", 1024, 8192)] {
            let mut unit = json!({
                "scenario": format!("{model}-{gpu}-fp8-{framework}-tp2.yaml"), "label": label, "framework": framework, "gpu": gpu, "precision": "fp8",
                "parallel": {"tp": 2, "pp": 1, "adp": 1, "mtp": null, "mep": null}, "run_date": "2026-01-02", "concurrency": CONCURRENCY,
                "launch": {
                    "script": "recipes/a.sh@1234abcd", "image": format!("example/{framework}:v1.2.0"), "server_command": format!("{framework} serve {model} <&> $CONC"),
                    "args": {"max-num-seqs": "$CONC"}, "env": {"A": "1"}, "notes": "",
                    "client": {"isl": isl, "osl": osl, "range_ratio": 0.8, "seed": 0, "num_prompts": "$CONC*10", "warmups": "none"},
                },
            });
            if gpu == "h100" {
                unit["settings"] = json!({"all": {"passed": {"block_size": 16}, "resolved": {"max_num_seqs": 64}}, "by_concurrency": {}});
            }
            units.push(unit);
        }
    }
    units
}

/// The true time per output token and time to first token, in microseconds.
pub(crate) fn truth(concurrency: u32) -> (f64, f64) {
    (5_000.0 + 100.0 * f64::from(concurrency), 40_000.0 + 1_000.0 * f64::from(concurrency))
}

/// What was measured: the truth.
pub(crate) fn measured() -> Lines {
    let by_concurrency = |of: fn((f64, f64)) -> f64| -> Value {
        CONCURRENCY.iter().map(|c| (c.to_string(), json!(of(truth(*c))))).collect::<serde_json::Map<_, _>>().into()
    };
    let sweep = |unit: &Value| {
        let mut sweep = json!({"scenario": unit["scenario"], "label": unit["label"], "framework": unit["framework"], "mean_tpot_us": by_concurrency(|t| t.0), "mean_ttft_us": by_concurrency(|t| t.1)});
        if unit["gpu"] == "h100" {
            sweep["gpu_kv_tokens"] = json!({"all": 1000, "by_concurrency": {"8": 2000}});
        }
        sweep
    };
    units().iter().map(sweep).collect()
}

/// Predictions: `factor` gives the multiple of the truth for a sweep's number and a concurrency. The engine `other` is refused.
pub(crate) fn predictions(factor: impl Fn(usize, u32) -> f64) -> Lines {
    let mut lines = Lines::new();
    for (number, unit) in units().iter().enumerate() {
        for concurrency in CONCURRENCY {
            lines.push(if unit["framework"] == "other" {
                refused(unit, concurrency)
            } else {
                answered(unit, concurrency, factor(number, concurrency))
            });
        }
    }
    lines
}

fn answered(unit: &Value, concurrency: u32, factor: f64) -> Value {
    let (tpot, ttft) = truth(concurrency);
    let reason = |code: &str, subject: &str, text: &str| json!({"code": code, "subject": subject, "text": text});
    let mut reasons = vec![reason("coefficient_not_fitted", "roofline", "25 % of the time")];
    reasons.push(match concurrency {
        2 => reason("client_differs", "prompt lengths", "lengths were not verified"),
        _ => reason("other_release", "1.2.0", "ran 1.2.0"),
    });
    if unit["label"] == "1k8k" {
        reasons.push(reason("setting_translated", "--old", "a flag <stands> for another"));
    }
    json!({
        "scenario": unit["scenario"], "label": unit["label"], "concurrency": concurrency, "mean_ttft_us": ttft * factor, "mean_tpot_us": tpot * factor,
        "p50_ttft_us": ttft, "p90_ttft_us": ttft, "p99_ttft_us": ttft, "p50_tpot_us": tpot, "p90_tpot_us": tpot, "p99_tpot_us": tpot,
        "output_tok_s": 100.0, "kv_tokens": 1500, "preemptions": 0, "grade": if concurrency == 2 { "G2" } else { "G4" }, "grade_reasons": reasons,
        "refused": null, "price_ranks": {"measured": 0.75, "roofline": 0.25},
        "price_primitives": {"gemm": 0.7, "attention.decode": 0.3}, "extrapolated": 0.125, "seconds": 10.0,
        "frame": {"start": "empty", "warm_up": 0, "stop": "10 requests", "window_start_s": 0.0, "window_end_s": 10.0, "concurrency": 1.5},
    })
}

fn refused(unit: &Value, concurrency: u32) -> Value {
    let reason = "engine `other` is not modelled";
    json!({
        "scenario": unit["scenario"], "label": unit["label"], "concurrency": concurrency, "mean_ttft_us": null, "mean_tpot_us": null,
        "p50_ttft_us": null, "p90_ttft_us": null, "p99_ttft_us": null, "p50_tpot_us": null, "p90_tpot_us": null, "p99_tpot_us": null,
        "output_tok_s": null, "kv_tokens": null, "preemptions": null, "grade": "G5", "grade_reasons": [{"code": "engine_unsupported", "subject": "other", "text": reason}], "refused": reason, "price_ranks": null,
        "price_primitives": null, "extrapolated": null, "frame": null, "seconds": null,
    })
}

/// Another estimator, 20 % slow in time per output token, which has no time to first token at the lowest concurrency.
pub(crate) fn peers() -> Lines {
    let points: Vec<Value> = CONCURRENCY.iter().map(|&c| json!([c, "Peer", truth(c).0 * 1.2, (c > 2).then_some(truth(c).1)])).collect();
    units().iter().map(|unit| json!({"scenario": unit["scenario"], "label": unit["label"], "points": points})).collect()
}

/// Lines as text.
pub(crate) fn text(lines: &[Value]) -> String {
    lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n") + "\n"
}

/// Lines as a file.
pub(crate) fn file(name: &str, lines: &[Value]) -> Input {
    Input::of(name, text(lines))
}

/// Everything compared with everything, and with predictions that are 30 % slow.
pub(crate) fn summary(predictions: &[Value]) -> Summary {
    let base = file("base.jsonl", &self::predictions(|_, _| 1.3));
    let (predictions, measured) = (file("predictions.jsonl", predictions), file("measured.jsonl", &measured()));
    let (units, peers) = (file("units.jsonl", &units()), file("peers.jsonl", &peers()));
    let inputs = Inputs { predictions: &predictions, measured: &measured, units: Some(&units), peers: Some(&peers), base: Some(&base) };
    compare(&inputs).unwrap()
}
