//! Laws of prices that need a whole model: more ranks never save more than their number, and longer prompts never cost less.

use blis_contracts::step::PrefillRow;
use blis_sim::{Flags, Prepared, Question, World, support};

use crate::fixture::prepare_text;

/// Accelerator time of the reference steps over so many ranks, in nanoseconds: decode, then prefill.
fn device_ns(model: &str, chip: &str, tensor: u32, world: &World) -> Option<[f64; 2]> {
    let answer = support(Question { model, chip, tensor, flags: &Flags::default(), nodes: 1, fabric: None }, world).ok()?;
    let time = |lines: &[blis_kernel::PriceLine]| lines.iter().filter(|line| line.on_device).map(|line| line.ns).sum();
    Some([time(&answer.decode), time(&answer.prefill)])
}

#[test]
fn twice_the_ranks_never_halve_a_step() {
    let world = World::released();
    let mut compared = 0;
    for model in ["llama-3.1-70b-instruct-fp8", "qwen3-32b", "gpt-oss-120b", "qwen3-235b-a22b-fp8"] {
        for chip in ["h100", "h200", "b200"] {
            let times: Vec<[f64; 2]> = [1, 2, 4, 8].into_iter().filter_map(|tensor| device_ns(model, chip, tensor, &world)).collect();
            for pair in times.windows(2) {
                for (narrow, wide) in pair[0].into_iter().zip(pair[1]) {
                    assert!(wide > narrow / 2.0, "{model} on {chip}: {wide} ns after {narrow} ns on half the ranks");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared >= 24, "{compared} steps compared");
}

/// Lengths within a captured graph, just beyond it, and of several steps of capture sizes.
const LENGTHS: [u32; 12] = [1, 8, 9, 64, 65, 256, 257, 512, 513, 2_048, 4_096, 8_192];

#[test]
fn a_longer_prompt_never_costs_less_and_grows_across_capture_sizes() {
    for chip in ["h100", "h200", "b200"] {
        let prepared: Prepared = prepare_text(&format!(
            "kind: Scenario
name: prompts
seed: 0
model: llama-3.1-8b-instruct
engine: {{kind: vllm}}
cluster: {{hardware: {chip}, nodes: 1}}
pools: [{{name: serve, role: both, replicas: 1, command: vllm serve meta-llama/Llama-3.1-8B-Instruct}}]
workload: {{client: inferencex, isl: 1, osl: 1, concurrency: 1, range_ratio: 1.0, seed: 0, warmup: 0}}
frame: {{start: empty, stop: {{requests: 1}}}}
"
        ));
        let times = LENGTHS.map(|query| {
            let shape = prepared.launched(&[], &[PrefillRow { query, context: 0 }]);
            let plan = prepared.environment.plan(prepared.engine.plan_id());
            plan.explain(&shape).iter().filter(|line| line.on_device).map(|line| line.ns).sum::<f64>()
        });
        for (pair, lengths) in times.windows(2).zip(LENGTHS.windows(2)) {
            assert!(pair[1] >= pair[0], "{chip}: {} tokens take {} ns, {} take {} ns", lengths[0], pair[0], lengths[1], pair[1]);
        }
        assert!(times[11] > 10.0 * times[7], "{chip}: sixteen times the prompt of 512 tokens takes over ten times as long");
    }
}

#[test]
fn prompts_no_longer_than_what_a_query_sees_attend_densely_and_are_scored_for_others_alone() {
    for (chip, model, served) in [("h200", "deepseek-v3.2", "deepseek-ai/DeepSeek-V3.2"), ("b200", "glm-5-nvfp4", "nvidia/GLM-5-NVFP4")] {
        let prepared: Prepared = prepare_text(&format!(
            "kind: Scenario
name: prompts
seed: 0
model: {model}
engine: {{kind: vllm}}
cluster: {{hardware: {chip}, nodes: 1}}
pools: [{{name: serve, role: both, replicas: 1, command: vllm serve {served} --tensor-parallel-size 8 --max-model-len 16384}}]
workload: {{client: inferencex, isl: 1, osl: 1, concurrency: 1, range_ratio: 1.0, seed: 0, warmup: 0}}
frame: {{start: empty, stop: {{requests: 1}}}}
"
        ));
        let plan = prepared.environment.plan(prepared.engine.plan_id());
        let attends = |decode: &[u32], prompts: &[(u32, u32)]| {
            let rows: Vec<PrefillRow> = prompts.iter().map(|&(query, context)| PrefillRow { query, context }).collect();
            let lines = plan.explain(&prepared.launched(decode, &rows));
            let of = |kind: &str| lines.iter().any(|line| line.primitive.as_str().contains(kind));
            let kinds = ["latent.prefill", "selection.prefill", "selection.decode", "sparse_prefill", "sparse_decode"];
            kinds.into_iter().filter(|kind| of(kind)).collect::<Vec<_>>()
        };
        assert_eq!(attends(&[], &[(2048, 0), (548, 1500)]), ["latent.prefill"]);
        assert_eq!(attends(&[], &[(2049, 0), (500, 0)]), ["selection.prefill", "sparse_prefill"], "one long prompt makes all pick");
        assert_eq!(attends(&[900], &[(1024, 0)]), ["latent.prefill", "selection.prefill", "selection.decode", "sparse_decode"]);
        assert_eq!(attends(&[900], &[(64, 0)]), ["selection.prefill", "selection.decode", "sparse_prefill", "sparse_decode"]);
        let kernels = |query| {
            let lines = plan.explain(&prepared.launched(&[], &[PrefillRow { query, context: 0 }]));
            lines.iter().filter(|line| line.kernel.is_some()).map(|line| line.ns).sum::<f64>()
        };
        assert!(kernels(2048) < 0.95 * kernels(2049), "{chip}: {} ns, and {} ns of one token more", kernels(2048), kernels(2049));
    }
}
