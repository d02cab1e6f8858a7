//! Deployments over two nodes: what joins the nodes is priced, and what is missing is told.

use blis_contracts::fate::Fate;
use blis_contracts::metric::Metric;
use blis_contracts::result::{RunResult, Statistic};
use blis_contracts::scenario::Scenario;
use blis_contracts::strict::{Document, LineEndings};
use blis_sim::World;

use crate::fixture::{prepare_text, run_text};

/// A closed loop of 32 clients against one endpoint.
fn scenario(model: &str, cluster: &str, command: &str) -> String {
    format!(
        "kind: Scenario
name: nodes
seed: 0
model: {model}
engine: {{kind: vllm}}
cluster: {cluster}
pools: [{{name: serve, role: both, replicas: 1, command: \"vllm serve {command}\"}}]
workload: {{client: inferencex, isl: 512, osl: 64, concurrency: 32, range_ratio: 1.0, seed: 0, warmup: 0}}
frame: {{start: empty, stop: {{requests: 64}}}}
"
    )
}

fn gap_us(result: &RunResult) -> f64 {
    let figure = result.figures.iter().find(|figure| figure.metric == Metric::Tpot.definition().id && figure.statistic == Statistic::Mean);
    figure.and_then(|figure| figure.value).expect("every request completes")
}

fn refusal(text: &str) -> String {
    let document = Document::parse("scenario.yaml", text.as_bytes(), LineEndings::LfOrCrLf).expect("a document");
    blis_sim::prepare(&Scenario::load(&document).expect("a valid scenario"), &World::released()).expect_err("it does not start").to_string()
}

const EXPERTS: &str = "deepseek-ai/DeepSeek-V3 --data-parallel-size 16 --data-parallel-size-local 8 --data-parallel-address 10.0.0.1 \
                       --enable-expert-parallel --max-model-len 4096";

#[test]
fn deepseek_v3_runs_data_parallel_over_two_nodes_and_a_slower_network_makes_it_slower() {
    let gap = |fabric: &str| {
        let result = run_text(&scenario("deepseek-v3", &format!("{{hardware: h200, nodes: 2, fabric: {fabric}}}"), EXPERTS));
        assert_eq!(result.fates[&Fate::Completed], 64, "{:?}", result.fates);
        assert!(result.validity.outside.iter().any(|why| why.contains("joined by a network")), "{:?}", result.validity);
        gap_us(&result)
    };
    let (infiniband, roce_400, roce_200) = (gap("infiniband-ndr-400"), gap("roce-400"), gap("roce-200"));
    assert!(infiniband <= roce_400 && roce_400 < roce_200, "{infiniband} {roce_400} {roce_200}");
}

#[test]
fn ranks_that_share_matrices_over_two_nodes_sum_by_nccl_over_the_network() {
    let text = scenario(
        "llama-3.1-405b-instruct",
        "{hardware: h100, nodes: 2, fabric: infiniband-ndr-400}",
        "meta-llama/Llama-3.1-405B-Instruct --tensor-parallel-size 16 --nnodes 2 --max-model-len 8192",
    );
    let prepared = prepare_text(&text);
    let plan = prepared.plan();
    assert_eq!((plan.fabric.as_str(), plan.layout.domain), ("infiniband-ndr-400", 8));
    let lines = prepared.environment.plan(prepared.engine.plan_id()).explain(&prepared.launched(&[500; 8], &[]));
    let sums: Vec<_> = lines.iter().filter(|line| line.kernel.as_deref() == Some("nccl/all-reduce")).collect();
    assert!(!sums.is_empty() && sums.iter().all(|line| line.entry == "nccl-all-reduce-8-network"), "{sums:?}");
    assert_eq!(sums.iter().map(|line| line.count).sum::<u64>(), 2 * 126 + 1);
}

#[test]
fn one_node_is_the_same_whatever_network_stands_beside_it() {
    let on = |cluster: &str| {
        let mut result = run_text(&scenario("gpt-oss-20b", cluster, "openai/gpt-oss-20b --tensor-parallel-size 2"));
        // What was read, and so what was not, is all that tells the runs apart.
        result.inputs = run_text(&scenario("gpt-oss-20b", "{hardware: h100, nodes: 1}", "openai/gpt-oss-20b")).inputs;
        serde_json::to_string(&result).expect("a result is JSON")
    };
    let alone = on("{hardware: h100, nodes: 1}");
    assert_eq!(alone, on("{hardware: h100, nodes: 2, fabric: roce-200}"));
}

#[test]
fn nodes_and_the_network_that_a_line_needs_are_asked_for() {
    let too_few = refusal(&scenario("deepseek-v3", "{hardware: h200, nodes: 1, fabric: roce-400}", EXPERTS));
    assert_eq!(too_few, "cluster.nodes: the launch line spreads the ranks over 2 nodes, and the cluster has 1");
    let unjoined = refusal(&scenario("deepseek-v3", "{hardware: h200, nodes: 2}", EXPERTS));
    assert_eq!(
        unjoined,
        "cluster: groups of ranks reach beyond the 8 that one domain of links holds, and the cluster names no network between nodes"
    );
    let unknown = refusal(&scenario("deepseek-v3", "{hardware: h200, nodes: 2, fabric: roce-40}", EXPERTS));
    assert_eq!(unknown, "cluster.fabric: no network `roce-40` in the catalog");
    // Two trays lie in one domain of links, which needs no other network.
    let links = "openai/gpt-oss-120b --tensor-parallel-size 8 --nnodes 2";
    assert_eq!(prepare_text(&scenario("gpt-oss-120b", "{hardware: gb200-nvl72, nodes: 2}", links)).plan().fabric, "");
}
