//! What a comparison says of predictions whose errors are known.

use std::sync::OnceLock;

use blis_score::compare::{Inputs, compare};
use blis_score::grade::{Grade, ReasonCode};
use blis_score::summary::{BlockerKind, Dimension, Figure, Lane, Latency, Outcome, Summary};

use crate::fixture::{self, file, measured, predictions, summary, units};

/// Predictions that are 10 % slow, and 20 % slow at the highest concurrency.
fn known(_: usize, concurrency: u32) -> f64 {
    if concurrency == 128 { 1.2 } else { 1.1 }
}

/// What is said of them, worked out once for all tests.
fn known_summary() -> &'static Summary {
    static SUMMARY: OnceLock<Summary> = OnceLock::new();
    SUMMARY.get_or_init(|| summary(&predictions(known)))
}

fn near(figure: Figure, expect: f64, points: usize, sweeps: usize) {
    let value = figure.value.unwrap();
    assert!((value - expect).abs() < 1e-9, "{value} is not {expect}");
    assert_eq!((figure.points, figure.sweeps), (points, sweeps));
}

fn lane<'a>(summary: &'a Summary, dimension: Dimension, value: &str) -> &'a Lane {
    summary.lanes.iter().find(|lane| lane.dimension == dimension && lane.value == value).unwrap()
}

#[test]
fn errors_are_relative_to_the_measurement_and_pooled_over_points() {
    let summary = known_summary();
    near(summary.headline.tpot.absolute, (3.0 * 10.0 + 20.0) / 4.0, 36, 9);
    near(summary.headline.tpot.median, 10.0, 36, 9);
    near(summary.headline.ttft.signed, 12.5, 36, 9);
    let fast = fixture::summary(&predictions(|_, _| 0.8));
    near(fast.headline.tpot.signed, -20.0, 36, 9);
    near(fast.headline.tpot.absolute, 20.0, 36, 9);
}

#[test]
fn the_shape_error_divides_by_the_anchor_and_leaves_it_out() {
    let summary = known_summary();
    // The quotients are right at two of the three points that are left, and 1.2 / 1.1 at the last.
    near(summary.headline.tpot.shape, 100.0 * (1.2 / 1.1 - 1.0) / 3.0, 27, 9);
    let scaled = fixture::summary(&predictions(|number, _| 0.5 + 0.1 * f64::from(u32::try_from(number).unwrap())));
    near(scaled.headline.tpot.shape, 0.0, 27, 9);
}

#[test]
fn a_sweep_whose_anchor_has_no_answer_has_no_shape_error() {
    let mut lines = predictions(known);
    lines.remove(0);
    let summary = summary(&lines);
    assert_eq!((summary.counts.answered, summary.counts.unanswered), (47, 1));
    assert_eq!((summary.headline.tpot.absolute.points, summary.headline.tpot.shape.points), (35, 24));
}

#[test]
fn counts_add_up_and_a_refused_point_is_counted_but_not_compared() {
    let summary = known_summary();
    let counts = &summary.counts;
    assert_eq!((counts.points, counts.answered, counts.simulated, counts.refused, counts.unanswered), (48, 48, 36, 12, 0));
    assert_eq!((counts.measured, counts.compared), (48, 36));
    assert_eq!(counts.by_grade.values().sum::<usize>(), counts.answered);
    assert_eq!((counts.by_grade[&Grade::G1], counts.by_grade[&Grade::G2], counts.by_grade[&Grade::G5]), (0, 9, 12));
    assert_eq!(summary.coverage.iter().map(|row| row.points).sum::<usize>(), counts.points);
    assert_eq!(summary.coverage.iter().map(|row| row.simulated).sum::<usize>(), counts.simulated);
    assert_eq!(summary.sweeps.iter().map(|sweep| sweep.points.len()).sum::<usize>(), counts.points);
}

#[test]
fn every_lane_of_a_dimension_holds_its_points_and_too_few_make_no_figure() {
    let summary = known_summary();
    for dimension in [Dimension::Family, Dimension::Chip, Dimension::Concurrency, Dimension::Grade, Dimension::Tier, Dimension::Layout] {
        let points: usize = summary.lanes.iter().filter(|lane| lane.dimension == dimension).map(|lane| lane.figures.points).sum();
        assert_eq!(points, summary.counts.compared, "{dimension:?}");
    }
    near(lane(summary, Dimension::Family, "alpha").figures.tpot.absolute, 12.5, 24, 6);
    near(lane(summary, Dimension::Family, "beta-moe").figures.tpot.absolute, 12.5, 12, 3);
    assert_eq!(
        lane(summary, Dimension::Family, "beta-moe").figures.tpot.absolute.interval,
        None,
        "three sweeps are too few for an interval"
    );
    near(lane(summary, Dimension::Tier, "logged").figures.tpot.absolute, 12.5, 24, 6);
    near(lane(summary, Dimension::Tier, "unlogged").figures.tpot.absolute, 12.5, 12, 3);
    let highest = lane(summary, Dimension::Concurrency, "65 to 256").figures.tpot.absolute;
    assert_eq!((highest.value, highest.points), (None, 9), "nine points are below the minimum of ten");
    let bands: Vec<&str> =
        summary.lanes.iter().filter(|lane| lane.dimension == Dimension::Concurrency).map(|lane| lane.value.as_str()).collect();
    assert_eq!(bands, ["1 to 4", "5 to 16", "17 to 64", "65 to 256"]);
}

#[test]
fn the_kv_pool_takes_the_points_own_log_before_the_sweeps() {
    let summary = known_summary();
    // 1500 simulated against 1000 logged at three points of four, 2000 at the fourth.
    near(summary.headline.kv_pool_ratio, (3.0 * 1.5 + 0.75) / 4.0, 24, 6);
}

#[test]
fn percentiles_count_only_where_they_were_measured() {
    let mut truth = measured();
    truth[0]["p99_tpot_us"] = serde_json::json!({"2": 5200.0 / 1.5, "8": 5800.0 / 1.5});
    let (lines, measured, units) = (file("p", &predictions(known)), file("m", &truth), file("u", &units()));
    let inputs = Inputs { predictions: &lines, measured: &measured, units: Some(&units), peers: None, base: None };
    let percentiles = compare(&inputs).unwrap().headline.tpot.percentiles;
    assert_eq!((percentiles.value, percentiles.points), (None, 2));
}

#[test]
fn throughput_follows_littles_law_on_both_sides() {
    let summary = summary(&predictions(|_, _| 1.0));
    let point = &summary.sweeps.iter().find(|sweep| sweep.label == "1k1k").unwrap().points[1];
    let (tpot, ttft) = fixture::truth(8);
    let tokens = f64::midpoint(819.0, 1024.0);
    let expect = 8.0 * tokens / ((ttft + tpot * (tokens - 1.0)) / 1e6) / 2.0;
    assert_eq!(point.simulated.as_ref().unwrap().output_tok_s_gpu, Some(expect));
    assert_eq!(point.measured.as_ref().unwrap().output_tok_s_gpu, Some(expect));
}

#[test]
fn a_band_comes_from_other_sweeps_and_holds_what_was_measured() {
    let summary = known_summary();
    let alpha = summary.sweeps.iter().find(|sweep| sweep.deployment.as_ref().unwrap().family == "alpha").unwrap();
    let band = alpha.tpot_band.as_ref().unwrap();
    assert_eq!((band.points, band.over.as_str()), (20, "other sweeps of alpha"));
    assert!((band.low - 1.0 / 1.2).abs() < 1e-9 && (band.high - 1.0 / 1.1).abs() < 1e-9, "{band:?}");
    let beta = summary.sweeps.iter().find(|sweep| sweep.deployment.as_ref().unwrap().family == "beta-moe").unwrap();
    assert_eq!(beta.tpot_band.as_ref().unwrap().over, "all other sweeps", "the family's two other sweeps have too few points");
}

#[test]
fn an_estimator_is_compared_on_the_points_that_both_answer() {
    let summary = known_summary();
    let all = &summary.peers[0].lanes[0];
    assert_eq!(summary.peers[0].unmatched, 12, "its answers to the points that are refused here");
    near(all.theirs.tpot.absolute, 20.0, 36, 9);
    near(all.ours.tpot.absolute, 12.5, 36, 9);
    near(all.theirs.ttft.absolute, 0.0, 27, 9);
    near(all.ours.ttft.absolute, (2.0 * 10.0 + 20.0) / 3.0, 27, 9);
    assert!(summary.peers[0].lanes.iter().any(|lane| lane.dimension == Some(Dimension::Chip) && lane.value == "h100"));
}

#[test]
fn a_candidate_is_better_worse_or_not_distinguished() {
    let outcome = |summary: &Summary, latency| {
        let lanes = &summary.paired.as_ref().unwrap().lanes;
        lanes.iter().find(|lane| lane.dimension.is_none() && lane.latency == latency).unwrap().outcome
    };
    assert_eq!(outcome(&summary(&predictions(|_, _| 1.1)), Latency::Tpot), Some(Outcome::Better));
    assert_eq!(outcome(&summary(&predictions(|_, _| 1.4)), Latency::Tpot), Some(Outcome::Worse));
    assert_eq!(outcome(&summary(&predictions(|_, _| 1.3)), Latency::Tpot), Some(Outcome::NotDistinguished));
    let mixed = |number: usize, _| if number.is_multiple_of(2) { 1.2 } else { 1.4 };
    assert_eq!(outcome(&summary(&predictions(mixed)), Latency::Ttft), Some(Outcome::NotDistinguished));
}

#[test]
fn verdicts_are_held_to_stricter_levels_the_more_lanes_there_are() {
    let summary = summary(&predictions(|_, _| 1.1));
    let paired = summary.paired.unwrap();
    assert_eq!((paired.points, paired.only_base, paired.only_candidate), (36, 0, 0));
    assert_eq!(paired.lanes_compared, 4, "two latencies over all points and in one family; the other has three sweeps");
    let beta: Vec<_> = paired.lanes.iter().filter(|lane| lane.value == "beta-moe").collect();
    assert!(beta.iter().all(|lane| lane.difference.is_some() && lane.outcome.is_none()), "{beta:?}");
    let smallest = paired.lanes.iter().filter_map(|lane| lane.corrected_p).fold(1.0, f64::min);
    assert!((smallest - 4.0 * 2.0 / 10_001.0).abs() < 1e-12, "{smallest}");
}

#[test]
fn the_backlog_ranks_by_points_and_names_what_stands_alone() {
    let summary = known_summary();
    let rows: Vec<_> = summary.backlog.iter().map(|row| (row.kind, row.code, row.subject.as_str(), row.points, row.alone)).collect();
    assert_eq!(
        rows,
        [
            (BlockerKind::Price, ReasonCode::CoefficientNotFitted, "roofline", 36, 36),
            (BlockerKind::Demoted, ReasonCode::OtherRelease, "1.2.0", 27, 18),
            (BlockerKind::Refused, ReasonCode::EngineUnsupported, "other", 12, 12),
            (BlockerKind::Demoted, ReasonCode::SettingTranslated, "--old", 12, 0),
            (BlockerKind::Demoted, ReasonCode::ClientDiffers, "prompt lengths", 9, 6),
        ]
    );
    assert_eq!((summary.backlog[2].models.as_slice(), summary.backlog[0].time_percent), (&["gamma3-1b".to_owned()][..], Some(25.0)));
    assert_eq!(summary.backlog[2].what, "engine `other` is not modelled");
}

#[test]
fn without_units_the_lanes_that_need_none_remain() {
    let (lines, measured) = (file("p", &predictions(known)), file("m", &measured()));
    let summary = compare(&Inputs { predictions: &lines, measured: &measured, units: None, peers: None, base: None }).unwrap();
    let mut dimensions: Vec<Dimension> = summary.lanes.iter().map(|lane| lane.dimension).collect();
    dimensions.dedup();
    assert_eq!(dimensions, [Dimension::Lengths, Dimension::Concurrency, Dimension::Grade]);
    assert!(summary.coverage.is_empty() && summary.sweeps.iter().all(|sweep| sweep.deployment.is_none()));
    near(summary.headline.tpot.absolute, 12.5, 36, 9);
}

#[test]
fn the_order_of_lines_changes_no_byte_but_the_files_hash() {
    let text = |reverse: bool| {
        let mut lines = predictions(|number, c| 1.0 + 0.01 * f64::from(c % 7) + 0.02 * f64::from(u32::try_from(number).unwrap()));
        if reverse {
            lines.reverse();
        }
        let mut summary = summary(&lines);
        summary.provenance.predictions.sha256 = String::new();
        serde_json::to_string(&summary).unwrap()
    };
    assert_eq!(text(false), text(true));
}
