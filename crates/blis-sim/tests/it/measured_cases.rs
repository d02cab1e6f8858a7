//! Three measured cases of one small model whose prompts are longer than a step, where the gaps of a reply hold other users' prompts.
//!
//! Measured on one H200 under release 0.18.0, closed loop, 9,000 tokens in and 30 out, the default token budget; the gap is that of the
//! load generator, (last - first) / (tokens - 1). The number of requests is not known; ten for each user are sent here.

use blis_contracts::metric::Metric;
use blis_contracts::result::{Figure, RunResult, Statistic};

use crate::fixture::run_text;

/// Users, the measured gap in milliseconds, and how far below it the simulated one may lie, as a share. The last may only shrink, and is
/// to become 0.15 for each.
const CASES: [(u32, f64, f64); 3] = [(16, 93.6, 0.25), (32, 236.8, 0.15), (64, 308.8, 0.34)];

fn gap_ms(users: u32) -> f64 {
    let text = format!(
        "kind: Scenario
name: long prompts of {users} users
seed: 0
model: qwen3-8b
engine: {{kind: vllm, written_for: \"0.18.0\"}}
cluster: {{hardware: h200, nodes: 1}}
pools: [{{name: serve, role: both, replicas: 1, command: vllm serve Qwen/Qwen3-8B}}]
workload: {{client: inferencex, isl: 9000, osl: 30, concurrency: {users}, range_ratio: 1.0, seed: 0, warmup: 0}}
frame: {{start: empty, stop: {{requests: {}}}}}
",
        10 * users
    );
    let result: RunResult = run_text(&text);
    let gap = |figure: &&Figure| figure.metric == Metric::Tpot.definition().id && figure.statistic == Statistic::Mean;
    result.figures.iter().find(gap).and_then(|figure| figure.value).expect("every request completes") / 1e3
}

#[test]
fn the_gaps_of_a_reply_hold_other_users_prompts_as_measured() {
    let told = CASES.map(|(users, measured, admitted)| (users, gap_ms(users) / measured - 1.0, admitted));
    let holds = |(_, error, admitted): &(u32, f64, f64)| (-admitted..=0.15).contains(error);
    assert!(told.iter().all(holds), "users, error and how far below it may lie: {told:?}");
    let gaps: Vec<f64> = CASES.iter().zip(told).map(|((_, measured, _), (_, error, _))| measured * (1.0 + error)).collect();
    assert!(gaps.windows(2).all(|pair| pair[0] < pair[1]), "more users, more of their prompts within a reply: {gaps:?}");
}
