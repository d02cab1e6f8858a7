//! What changes where ranks lie on several nodes: which communicators are left, and what the plan says of its domains of links.

use blis_contracts::plan::{Layout, Primitive};

use super::*;

/// The kernels that sum over ranks, and the ranks of a domain of links that the plan states.
fn sums(line: Line<'_>) -> (Vec<String>, u32) {
    let plan = line.plan();
    let mut kernels: Vec<String> = Vec::new();
    for piece in plan.layers.iter().filter(|piece| piece.primitive == Primitive::AllReduce) {
        let name = format!("{}/{}", piece.kernel.library, piece.kernel.variant);
        if !kernels.contains(&name) {
            kernels.push(name);
        }
    }
    (kernels, plan.layout.domain)
}

#[test]
fn sums_over_nodes_that_no_links_join_are_left_to_nccl() {
    let (one, domain) = sums(Line("llama-3.1-70b-instruct", "h100", "--tensor-parallel-size 8"));
    assert!(one.len() > 1 && domain == 0, "{one:?}, {domain}");
    for chip in ["h100", "b200"] {
        let (two, domain) = sums(Line("llama-3.1-70b-instruct", chip, "--tensor-parallel-size 8 --nnodes 2"));
        assert_eq!((two, domain), (vec!["nccl/all-reduce".to_owned()], 4), "{chip}");
    }
}

#[test]
fn nodes_of_one_domain_of_links_keep_what_links_allow() {
    let line = "--tensor-parallel-size 8 --nnodes 2";
    let (kernels, domain) = sums(Line("llama-3.1-70b-instruct", "gb200-nvl72", line));
    assert_eq!(domain, 0, "72 accelerators lie in one domain");
    assert!(kernels.contains(&"flashinfer/fused-all-reduce-norm".to_owned()), "{kernels:?}");
    assert!(!kernels.contains(&"vllm-csrc/custom-all-reduce".to_owned()), "vLLM's own kernel needs one node: {kernels:?}");
}

#[test]
fn sixteen_ranks_of_one_domain_sum_by_flashinfer_as_far_as_it_was_tuned_for_their_nodes() {
    let most = |chip, line| {
        let plan = Line("llama-3.1-70b-instruct", chip, line).plan();
        let sums = plan.layers.iter().filter(|piece| piece.primitive == Primitive::AllReduce && piece.layer == 5);
        sums.filter(|piece| piece.kernel.library == "flashinfer").map(|piece| piece.runs_for.most).max().unwrap() + 1
    };
    let alone = "--tensor-parallel-size 16 --nnodes 4 -cc.pass_config.fuse_allreduce_rms false";
    // A row has 16 KiB: 8 MiB, tuned and exclusive, and 64 MiB, the pass's own and inclusive.
    assert_eq!(most("gb300-nvl72", alone), 8 * 64);
    assert_eq!(most("gb200-nvl72", alone), 64 * 64 + 1);
}

#[test]
fn tokens_of_cores_on_two_nodes_meet_at_the_experts_over_the_network_and_independent_cores_never_do() {
    let plan = Line("qwen3-30b-a3b-fp8", "h200", "--data-parallel-size 16 --nnodes 2 --enable-expert-parallel").plan();
    assert_eq!(plan.layout, Layout { data: 16, expert: 16, domain: 8, ..Layout::SINGLE });
    let group = |piece: &&LoweredLayer| matches!(piece.shape, PrimitiveShape::Collective { group: 16, .. });
    assert_eq!(plan.layers.iter().filter(group).count(), 2 * 48, "a gathering and a scattering of each layer");
    let dense = Line("llama-3.1-8b-instruct", "h200", "--data-parallel-size 16 --nnodes 2").plan();
    assert_eq!(dense.layout, Layout { data: 16, ..Layout::SINGLE });
}

#[test]
fn parts_are_exchanged_by_vllms_own_kernels_as_far_as_one_domain_of_links_reaches() {
    let line = "--tensor-parallel-size 8 --data-parallel-size 2 --nnodes 4 --enable-expert-parallel";
    let parts = |chip| {
        let plan = Line("deepseek-v3.2", chip, line).plan();
        let of_ranks = |piece: &&LoweredLayer| matches!(piece.shape, PrimitiveShape::Collective { group: 8, .. }) && piece.layer == 5;
        plan.layers.iter().filter(of_ranks).map(written).collect::<Vec<_>>()
    };
    let joined = parts("gb200-nvl72");
    assert!(
        joined.contains(&"collective.all_gather vllm-csrc/lamport-all-gather split to 146: 14336 B a row over 8".to_owned()),
        "{joined:#?}"
    );
    assert!(joined.iter().any(|piece| piece.contains("vllm-csrc/multimem-reduce-scatter")), "{joined:#?}");
    let apart = parts("b200");
    assert!(!apart.is_empty() && apart.iter().all(|piece| piece.contains(" nccl/")), "{apart:#?}");
}
