//! Tokens that `DeepEP` sends to their experts: what travels, by what, over which graphs, and where it is refused.

use blis_contracts::plan::Primitive;

use super::*;

const CORES: &str = "--data-parallel-size 8 --enable-expert-parallel";

/// The pieces of a plan that exchange tokens of all cores or run experts, each once.
fn around_experts(plan: &PoolPlan) -> Vec<String> {
    let kinds = [Primitive::AllToAll, Primitive::AllGather, Primitive::MoeExperts];
    plan.layers.iter().filter(|piece| piece.layer == 10 && kinds.contains(&piece.primitive)).map(written).collect()
}

fn on(model: &str, chip: &str, line: &str) -> PoolPlan {
    Line(model, chip, line).plan()
}

fn megabytes(plan: &PoolPlan, name: &str) -> Option<u64> {
    plan.buffers.iter().find(|buffer| buffer.name == name).map(|buffer| buffer.bytes.get() / 1_000_000)
}

#[test]
fn deepep_sends_tokens_to_their_experts_and_what_they_yield_back() {
    // Eight slots of 7,168 bytes with 56 scales and a header, and eight rows of 16 bits back.
    let few = on("deepseek-v3", "h200", &format!("{CORES} --all2all-backend deepep_low_latency"));
    assert_eq!(
        around_experts(&few),
        [
            "collective.all_to_all deepep/low-latency-dispatch tokens: 59264 B a row over 8",
            "moe.experts deepgemm/masked-moe gathered: 8 of 256 (32 here), 7168 x 2048 gated true fp8_block",
            "collective.all_to_all deepep/low-latency-combine tokens: 114688 B a row over 8",
        ]
    );
    // 5.251 of eight ranks hold any of eight experts. The kernel quantises what it reads itself, so that 16 bits travel.
    let many = on("deepseek-v3", "h200", &format!("{CORES} --all2all-backend deepep_high_throughput"));
    assert_eq!(
        around_experts(&many),
        [
            "collective.all_to_all deepep/dispatch tokens: 75279 B a row over 8",
            "moe.experts flashinfer/cutlass-moe gathered: 8 of 256 (32 here), 7168 x 2048 gated true fp8_block",
            "collective.all_to_all deepep/combine tokens: 75279 B a row over 8",
        ]
    );
    // Blackwell's first choice serves gathered tokens alone; the next one reads 8 bits.
    let blackwell = around_experts(&on("deepseek-v3", "b200", &format!("{CORES} --all2all-backend deepep_high_throughput")));
    assert_eq!(blackwell[0], "collective.all_to_all deepep/dispatch tokens: 37640 B a row over 8");
    assert!(blackwell[1].starts_with("moe.experts deepgemm/moe"), "{}", blackwell[1]);
    // Ranks of a core send their parts.
    let line = "--tensor-parallel-size 4 --data-parallel-size 2 --enable-expert-parallel --all2all-backend deepep_low_latency";
    assert!(
        around_experts(&on("deepseek-v3.2", "h200", line))
            .contains(&"collective.all_to_all deepep/low-latency-dispatch split: 59264 B a row over 8".to_owned())
    );
}

#[test]
fn an_exchange_that_waits_for_the_host_leaves_no_graphs_and_one_into_slots_takes_few_tokens() {
    let steps = |backend: &str| on("deepseek-v3", "h200", &format!("{CORES} --all2all-backend {backend}"));
    let (gathered, many, few) = (steps("allgather_reducescatter"), steps("deepep_high_throughput"), steps("deepep_low_latency"));
    assert!(!gathered.graphs.full.is_empty() && !few.graphs.full.is_empty());
    assert!(many.graphs.full.is_empty() && many.graphs.piecewise.is_empty());
    let tokens = |plan: &PoolPlan| plan.profiling.ranks[0].padded_tokens;
    assert_eq!((tokens(&gathered), tokens(&many), tokens(&few)), (8192, 8192, 256));
    // Four times 256 experts by 256 tokens of 14,560 bytes, and 32 experts' products over 2,048 slots.
    assert_eq!(megabytes(&few, "DeepEP slots"), Some(3_816));
    assert_eq!(megabytes(&few, "workspace of experts in slots"), Some(1_207));
    assert_eq!(megabytes(&many, "DeepEP buffer"), Some(1_073));
    assert_eq!((megabytes(&many, "DeepEP slots"), megabytes(&gathered, "DeepEP buffer")), (None, None));
    // Without whole experts tokens are gathered all the same, and the graphs are gone all the same.
    let parts = on("deepseek-v3", "h200", "--data-parallel-size 8 --all2all-backend deepep_high_throughput");
    assert!(around_experts(&parts)[0].starts_with("collective.all_gather nccl/all-gather"));
    assert!(parts.graphs.full.is_empty());
}

#[test]
fn deepep_is_refused_where_nothing_says_what_it_takes() {
    let refused = |model, chip, line: &str| Line(model, chip, line).lower().unwrap_err().to_string();
    for (model, chip, line, told) in [
        ("gpt-oss-120b", "h200", CORES, "a residual stream of 2880 elements is padded for DeepEP's kernels"),
        ("qwen3-30b-a3b", "h200", CORES, "which kernel runs experts stored as bf16 beside DeepEP is not ported"),
        (
            "deepseek-v3",
            "h200",
            "--data-parallel-size 16 --nnodes 2 --enable-expert-parallel",
            "no table times DeepEP's kernels as vLLM calls them over several nodes",
        ),
        ("minimax-m2.5", "l40s", CORES, "no table times DeepEP's kernels on this chip"),
        (
            "minimax-m2.5",
            "h200",
            "--tensor-parallel-size 2 --data-parallel-size 4 --enable-expert-parallel",
            "every rank of a core would send the tokens of all of them",
        ),
    ] {
        let said = refused(model, chip, &format!("{line} --all2all-backend deepep_low_latency"));
        assert!(said.starts_with("--all2all-backend deepep_low_latency: ") && said.contains(told), "{model} on {chip}: {said}");
    }
    let slots = format!("{CORES} --all2all-backend deepep_low_latency --moe-backend flashinfer_cutlass");
    assert!(refused("deepseek-v3", "h200", &slots).starts_with("--moe-backend flashinfer_cutlass"));
}

#[test]
fn a_model_whose_graphs_need_no_compiler_is_refused_an_exchange_that_waits_for_the_host() {
    let line = format!("vllm serve m {CORES} --all2all-backend deepep_high_throughput");
    let (model, chip) = (model("deepseek-v3.2"), chip("h200"));
    let told = |line: &str| {
        let stated = read(Launch { command: Some(line), args: None, env: &[], written_for: None }).unwrap();
        resolve(&stated, Machine { model: &model, chip: &chip, gpus: 8 }).map_err(|error| error.to_string())
    };
    let error = told(&line).unwrap_err();
    assert!(error.contains("--all2all-backend = deepep_high_throughput") && error.contains("--enforce-eager"), "{error}");
    assert!(told(&format!("{line} --enforce-eager")).is_ok());
}
