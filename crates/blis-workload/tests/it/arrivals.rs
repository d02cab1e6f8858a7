//! When clients send: gaps, phases, rates that change, populations, and what is left when a run stops early.

use blis_contracts::units::SimTime;
use serde_json::{Value, json};

use crate::clients::{build, client, drive};

fn times(arrival: &Value, extra: &Value, count: usize) -> Vec<f64> {
    let mut all = build(&json!({"clients": [client("a", arrival, extra)]}));
    drive(&mut *all[0], count, 10).iter().map(|(time, _)| time.as_seconds()).collect()
}

/// Mean and coefficient of variation of the gaps.
fn gaps(times: &[f64]) -> (f64, f64) {
    let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / gaps.len() as f64;
    (mean, variance.sqrt() / mean)
}

#[test]
fn gamma_and_weibull_arrivals_have_the_stated_rate_and_variation() {
    for process in ["gamma", "weibull"] {
        for cv in [0.4, 2.0] {
            let (mean, found) = gaps(&times(&json!({"process": process, "rate": 8.0, "cv": cv}), &json!({}), 20_000));
            assert!((mean * 8.0 - 1.0).abs() < 0.04, "{process} {cv}: mean gap {mean}");
            assert!((found / cv - 1.0).abs() < 0.06, "{process} {cv}: {found}");
        }
    }
}

#[test]
fn each_phase_has_its_own_rate_and_nothing_is_sent_after_the_last() {
    let phases = json!({"process": "phases", "phases": [
        {"duration_s": 10, "arrival": {"process": "constant", "rate": 2}},
        {"duration_s": 5},
        {"duration_s": 10, "arrival": {"process": "constant", "rate": 4}},
    ]});
    let mut all = build(&json!({"clients": [client("a", &phases, &json!({}))]}));
    assert_eq!(all[0].unsent(), Some(20 + 40));
    let sent = drive(&mut *all[0], 20 + 40, 10);
    assert_eq!(all[0].next_send(), None);
    assert_eq!(all[0].unsent(), Some(0));
    let of = |phase: u32| sent.iter().filter(move |(_, draft)| draft.origin.phase == Some(phase)).map(|(time, _)| time.as_seconds());
    assert_eq!((of(0).next(), of(0).next_back(), of(1).count()), (Some(0.5), Some(10.0), 0));
    assert_eq!((of(2).next(), of(2).next_back()), (Some(15.25), Some(25.0)));
}

#[test]
fn a_poisson_phase_sends_about_what_its_rate_says() {
    let phases = json!({"process": "phases", "phases": [
        {"duration_s": 1000, "arrival": {"process": "poisson", "rate": 4}},
        {"duration_s": 1000, "arrival": {"process": "gamma", "rate": 12, "cv": 2}},
    ]});
    let all = build(&json!({"clients": [client("a", &phases, &json!({}))]}));
    let total = all[0].unsent().unwrap();
    assert!((15_300..16_700).contains(&total), "{total}");
}

#[test]
fn a_rate_that_changes_keeps_its_mean_and_its_burstiness() {
    let day = json!({"profile": {"shape": "diurnal", "period_s": 400, "peak_s": 100, "peak_to_trough": 3}});
    let times = times(&json!({"process": "poisson", "rate": 10}), &day, 40_000);
    let within = |from: f64, to: f64| times.iter().filter(|time| (from..to).contains(&(**time % 400.0))).count() as f64;
    // Over the half around the peak the rate is 1 + a x 2 / pi, with a = 1/2; over the other half as much less.
    let ratio = within(0.0, 200.0) / within(200.0, 400.0);
    assert!((ratio - 1.318_31 / 0.681_69).abs() < 0.06, "{ratio}");
    let whole = times.last().unwrap() / 4000.0;
    assert!((whole - 1.0).abs() < 0.03, "{whole}");
}

#[test]
fn traffic_that_drains_ends() {
    let drain = json!({"profile": {"shape": "drain", "start_s": 10, "duration_s": 20}});
    let all = build(&json!({"clients": [client("a", &json!({"process": "constant", "rate": 10}), &drain)]}));
    assert_eq!(all[0].unsent(), Some(199), "ten seconds of traffic, and half of twenty more");
}

#[test]
fn a_population_shares_its_rate_and_each_member_draws_for_itself() {
    let four = json!({"clients": [client("a", &json!({"process": "poisson", "rate": 8.0}), &json!({"population": 4}))]});
    let mut all = build(&four);
    assert_eq!(all.iter().map(|source| source.name().to_owned()).collect::<Vec<_>>(), ["a-0", "a-1", "a-2", "a-3"]);
    let mut first: Vec<SimTime> = Vec::new();
    for source in &mut all {
        let times: Vec<f64> = drive(&mut **source, 4_000, 10).iter().map(|(time, _)| time.as_seconds()).collect();
        let (mean, _) = gaps(&times);
        assert!((mean * 2.0 - 1.0).abs() < 0.06, "{mean}");
        first.push(SimTime::from_seconds(times[0]));
    }
    first.dedup();
    assert_eq!(first.len(), 4);
    let loops = json!({"clients": [client("a", &json!({"process": "closed_loop", "concurrency": 6}), &json!({"population": 3}))]});
    assert_eq!(drive(&mut *build(&loops)[0], 2, 10).iter().filter(|(time, _)| *time == SimTime::ZERO).count(), 2);
}

#[test]
fn a_population_that_sends_at_equal_intervals_takes_turns() {
    let phases = json!({"process": "phases", "phases": [
        {"duration_s": 1, "arrival": {"process": "constant", "rate": 8}},
        {"duration_s": 0.5},
        {"duration_s": 1, "arrival": {"process": "constant", "rate": 4}},
    ]});
    let times = |arrival: &Value, each: usize| {
        let mut all = build(&json!({"clients": [client("a", arrival, &json!({"population": 4}))]}));
        let mut times: Vec<u64> =
            all.iter_mut().flat_map(|source| drive(&mut **source, each, 10)).map(|(time, _)| time.as_micros()).collect();
        times.sort_unstable();
        times
    };
    let plain = times(&json!({"process": "constant", "rate": 8}), 3);
    assert_eq!(plain, (1..=12).map(|turn| turn * 125_000).collect::<Vec<u64>>());
    let of_phases = times(&phases, 2);
    assert_eq!(of_phases[..4], [125_000, 250_000, 375_000, 500_000]);
    assert_eq!(of_phases.len(), 8);
}

#[test]
fn a_phase_at_equal_intervals_sends_its_rate_times_its_length() {
    for (rate, duration_s, requests) in [(2.0, 5.0, 10), (3.0, 10.0, 30), (7.0, 0.9, 6), (0.1, 700.0, 70)] {
        let phases = json!({"process": "phases", "phases": [{"duration_s": duration_s, "arrival": {"process": "constant", "rate": rate}}]});
        let mut source = build(&json!({"clients": [client("a", &phases, &json!({}))]})).remove(0);
        let mut sent = 0;
        while source.next_send().is_some() {
            let now = source.next_send().unwrap();
            let _ = source.send(now);
            sent += 1;
        }
        assert_eq!(sent, requests, "{rate} per second for {duration_s} s");
    }
}

#[test]
fn paired_lengths_stay_together_and_counted_ones_keep_their_values() {
    let paired = |order: &str| {
        let mut one = client("a", &json!({"process": "constant", "rate": 1}), &json!({}));
        let fields = one.as_object_mut().unwrap();
        fields.remove("input");
        fields.remove("output");
        fields.insert("lengths".to_owned(), json!({"pairs": [[100, 1], [200, 2], [300, 3]], "order": order}));
        let mut all = build(&json!({"clients": [one]}));
        drive(&mut *all[0], 30, 10).iter().map(|(_, draft)| (draft.prompt[0].length, draft.output_length)).collect::<Vec<_>>()
    };
    assert_eq!(paired("listed")[..4], [(100, 1), (200, 2), (300, 3), (100, 1)]);
    let drawn = paired("drawn");
    assert!(drawn.iter().all(|(input, output)| *input == 100 * output));
    assert!((1..=3).all(|output| drawn.iter().any(|pair| pair.1 == output)));
}
