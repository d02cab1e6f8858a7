//! Explanations and totals add up to the prices they explain.

use blis_contracts::provenance::Method;
use blis_contracts::step::Launch;
use blis_kernel::PriceLine;
use blis_registry::vocabulary::Subject;

use crate::fixture::{decode, mixed, mixture, model, prefill, step};

fn on_device(lines: &[PriceLine]) -> f64 {
    lines.iter().filter(|line| line.on_device).map(|line| line.ns).sum()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

#[test]
fn the_lines_of_a_step_add_up_to_its_price() {
    let mut plan = model("h200").compile(&mixture("h200")).unwrap();
    for rank in [decode(&[1_000; 64], 64, Launch::Full), mixed(&[3_000; 16], 1_000, 4_096), decode(&[9], 1, Launch::Eager)] {
        let shape = step(rank);
        let lines = plan.explain(&shape);
        let estimate = plan.price(&shape);
        assert!(close(on_device(&lines), estimate.device_ns), "{lines:#?}");
        let host = |wanted: &[Subject]| lines.iter().filter(|line| wanted.contains(&line.primitive)).map(|line| line.ns).sum::<f64>();
        assert!(close(host(&[Subject::HostSchedule, Subject::HostPrepare]), estimate.before_ns));
        assert!(close(host(&[Subject::HostUpdate]), estimate.after_ns));
    }
}

#[test]
fn totals_equal_the_sum_of_the_steps_and_shares_sum_to_one() {
    let mut plan = model("h200").compile(&mixture("h200")).unwrap();
    let shapes = [decode(&[1_000; 64], 64, Launch::Full), decode(&[900; 3], 4, Launch::Eager), mixed(&[3_000; 16], 1_000, 0)].map(step);
    let mut priced = 0.0;
    for shape in shapes.iter().cycle().take(30) {
        priced += plan.price(shape).device_ns;
    }
    let totals = plan.totals();
    assert!(close(on_device(&totals.lines), priced));
    assert_eq!(totals.steps, 30);
    for shares in [totals.by_primitive().iter().map(|(_, share)| share).sum::<f64>(), totals.by_rank().iter().map(|(_, share)| share).sum()]
    {
        assert!(close(shares, 1.0), "{shares}");
    }
    assert!(totals.least_trusted() >= Some(Method::Transferred));
}

#[test]
fn a_chunk_over_cached_tokens_is_marked_extrapolated_where_no_data_cover_it() {
    let mut plan = model("h200").compile(&mixture("h200")).unwrap();
    plan.price(&step(prefill(1_000, 0, Launch::Eager)));
    let flagged = |plan: &blis_kernel::CompiledPlan| {
        plan.totals().lines.iter().any(|line| line.primitive == Subject::AttentionPrefill && line.extrapolated)
    };
    assert!(!flagged(&plan));
    plan.price(&step(prefill(1_000, 5_000, Launch::Eager)));
    assert!(flagged(&plan));
}

#[test]
fn an_eager_pass_is_as_long_as_its_launches_where_they_take_longer() {
    let mut plan = model("h200").compile(&mixture("h200")).unwrap();
    let replayed = plan.price(&step(decode(&[100], 1, Launch::Full)));
    let eager = plan.price(&step(decode(&[100], 1, Launch::Eager)));
    assert!(eager.device_ns > replayed.device_ns);
    assert!(plan.starved_ns() > 0.0);
    let large = plan.price(&step(prefill(8_192, 0, Launch::Full)));
    assert!(plan.price(&step(prefill(8_192, 0, Launch::Eager))).device_ns.total_cmp(&large.device_ns).is_eq());
}
