//! Deployments over two nodes: what joins the nodes is priced, and what is missing is told.

use blis_contracts::environment::Environment;
use blis_contracts::fate::Fate;
use blis_contracts::metric::Metric;
use blis_contracts::plan::Primitive;
use blis_contracts::result::{RunResult, Statistic};
use blis_contracts::scenario::Scenario;
use blis_contracts::step::StepShape;
use blis_contracts::strict::{Document, LineEndings};
use blis_kernel::PriceLine;
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

const STAGES: &str =
    "meta-llama/Llama-3.1-405B-Instruct --tensor-parallel-size 8 --pipeline-parallel-size 2 --nnodes 2 --max-model-len 8192";

#[test]
fn llama_405b_in_two_stages_on_two_nodes_hands_over_between_them_and_each_stage_prices_its_own_layers() {
    let on = |fabric: &str| scenario("llama-3.1-405b-instruct", &format!("{{hardware: h100, nodes: 2, fabric: {fabric}}}"), STAGES);
    let mut prepared = prepare_text(&on("infiniband-ndr-400"));
    let plan = prepared.plan().clone();
    assert_eq!((plan.layout.pipeline, plan.layout.domain, plan.in_flight, plan.kv_budget.len()), (2, 8, 3, 2));
    let attention =
        |stage| plan.layers.iter().filter(|layer| layer.stage == stage && layer.primitive == Primitive::AttentionDecode).count();
    assert_eq!([attention(0), attention(1)], [63, 63]);
    let of = |primitive| plan.layers.iter().filter(|layer| layer.primitive == primitive).map(|layer| layer.stage).collect::<Vec<_>>();
    assert_eq!((of(Primitive::Embedding), of(Primitive::Send), of(Primitive::Sampling)), (vec![0], vec![0, 0], vec![1]));
    // 405 billion weights of 16 bits, with one of the two embeddings: a sixteenth on each rank of the heavier stage.
    let weights = prepared.memory.weights.get() as f64 / (2.0 * 405.85e9 / 16.0);
    assert!((0.99..1.01).contains(&weights), "{weights}");
    let shape = prepared.launched(&[500; 8], &[]);
    let sends = |line: &&PriceLine| line.kernel.as_deref() == Some("nccl/send");
    let lines = prepared.environment.plan(prepared.engine.plan_id()).explain(&shape);
    assert!(lines.iter().filter(sends).all(|line| line.entry == "any-send-network" && line.count == 2), "{lines:?}");
    let id = prepared.engine.plan_id();
    let stages = [0, 1].map(|stage| prepared.environment.price(id, &StepShape { stage, ..shape.clone() }).device_ns);
    let explained: f64 = lines.iter().filter(|line| line.on_device).map(|line| line.ns).sum();
    assert!((explained / stages.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{explained} {stages:?}");
    let (near, far) = (run_text(&on("infiniband-ndr-400")), run_text(&on("roce-200")));
    assert_eq!(near.fates[&Fate::Completed], 64);
    assert!(gap_us(&near) < gap_us(&far), "{} {}", gap_us(&near), gap_us(&far));
    // Two stages, one after the other: a reply's gap is at least both.
    assert!(gap_us(&near) * 1e3 > stages.iter().sum::<f64>(), "{} {stages:?}", gap_us(&near));
}

#[test]
fn two_stages_on_one_node_send_over_its_links_and_a_model_with_layers_of_several_kinds_is_not_cut() {
    let line = "meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2 --pipeline-parallel-size 2";
    let prepared = prepare_text(&scenario("llama-3.1-8b-instruct", "{hardware: h100, nodes: 1}", line));
    let lines = prepared.environment.plan(prepared.engine.plan_id()).explain(&prepared.launched(&[500; 8], &[]));
    let sends: Vec<_> = lines.iter().filter(|line| line.kernel.as_deref() == Some("nccl/send")).collect();
    assert_eq!(sends.iter().map(|line| line.entry.as_str()).collect::<Vec<_>>(), ["any-send"]);
    // A lone request's next token waits for the last stage to sample the one before: the steps of half as many layers come one by one.
    let alone = |line: &str| {
        gap_us(&run_text(
            &scenario("llama-3.1-8b-instruct", "{hardware: h100, nodes: 1}", line).replace("concurrency: 32", "concurrency: 1"),
        ))
    };
    let (whole, cut) = (alone("meta-llama/Llama-3.1-8B-Instruct"), alone("meta-llama/Llama-3.1-8B-Instruct --pipeline-parallel-size 2"));
    assert!((1.0..1.15).contains(&(cut / whole)), "{cut} {whole}");
    let mixed = refusal(&scenario("gpt-oss-20b", "{hardware: h100, nodes: 1}", "openai/gpt-oss-20b --pipeline-parallel-size 2"));
    let way_out = "which stages of a pipeline would share unevenly, which is not modelled; leave --pipeline-parallel-size out, and divide \
                   each layer by --tensor-parallel-size";
    assert!(mixed.ends_with(way_out), "{mixed}");
}

/// Open arrivals at `rate` requests a second, which tell batches apart, against so many stages.
fn in_stages(stages: u32, rate: f64) -> RunResult {
    run_text(&format!(
        "kind: Scenario
name: stages
seed: 1
model: llama-3.1-8b-instruct
engine: {{kind: vllm}}
cluster: {{hardware: h100, nodes: 1}}
pools: [{{name: serve, role: both, replicas: 1, command: \"vllm serve meta-llama/Llama-3.1-8B-Instruct --pipeline-parallel-size {stages} \
         --max-model-len 16384\"}}]
workload:
  clients:
    - id: chat
      arrival: {{process: poisson, rate: {rate:?}}}
      input: {{distribution: constant, value: 512}}
      output: {{distribution: uniform, min: 1, max: 100}}
frame: {{start: empty, stop: {{requests: 40}}}}
"
    ))
}

fn mean(result: &RunResult, metric: Metric) -> (f64, u64) {
    let id = metric.definition().id;
    let figure = result.figures.iter().find(|figure| figure.metric == id && figure.statistic == Statistic::Mean).expect("a latency");
    (figure.value.expect("requests complete"), figure.n)
}

#[test]
fn batches_that_take_turns_in_the_stages_lose_no_gap_between_tokens() {
    for stages in 1..=3 {
        let result = in_stages(stages, 8.0);
        let (gap, gaps) = mean(&result, Metric::Itl);
        assert_eq!(gaps, result.tokens.output - 40, "{stages} stages");
        let spans = 40.0 * (mean(&result, Metric::E2el).0 - mean(&result, Metric::Ttft).0);
        assert!((gap * gaps as f64 - spans).abs() < 1.0, "{stages} stages: {gap} x {gaps} is not {spans}");
    }
}

#[test]
fn a_lone_prompt_pays_for_every_stage_and_one_among_others_waits_less_for_its_turn() {
    let first_token = |stages, rate| mean(&in_stages(stages, rate), Metric::Ttft).0;
    let waiting = |stages| mean(&in_stages(stages, 8.0), Metric::QueueDelay).0;
    let alone = [1, 2, 3].map(|stages| first_token(stages, 0.05));
    let [one, two, three] = alone;
    let crossing = two - one;
    assert!(crossing > 10.0 && ((three - two) / crossing - 1.0).abs() < 0.1, "{alone:?}");
    // The next batch enters as soon as the first stage is free, a third of the way through a step; gaps in the load blur the ratio.
    assert!(first_token(3, 8.0) < first_token(1, 8.0) && 1.5 * waiting(3) < waiting(1), "{} {}", waiting(3), waiting(1));
}

#[test]
fn one_node_is_the_same_whatever_network_stands_beside_it() {
    let on = |cluster: &str, told: &[&str]| {
        let mut result = run_text(&scenario("gpt-oss-20b", cluster, "openai/gpt-oss-20b --tensor-parallel-size 2"));
        assert_eq!(result.substitutions["serve"], told);
        result.substitutions.clear();
        // What was read, and so what was not, is all that tells the runs apart.
        result.inputs = run_text(&scenario("gpt-oss-20b", "{hardware: h100, nodes: 1}", "openai/gpt-oss-20b")).inputs;
        serde_json::to_string(&result).expect("a result is JSON")
    };
    let alone = on("{hardware: h100, nodes: 1}", &[]);
    let fabric = "cluster.fabric (roce-200) has no effect: ranks that exchange data lie in one domain of links";
    assert_eq!(alone, on("{hardware: h100, nodes: 1, fabric: roce-200}", &[fabric]));
    let nodes = "cluster.nodes (2): the launch line takes 1, and the others have no effect";
    assert_eq!(alone, on("{hardware: h100, nodes: 2, fabric: roce-200}", &[nodes, fabric]));
}

#[test]
fn nodes_and_the_network_that_a_line_needs_are_asked_for() {
    let too_few = refusal(&scenario("deepseek-v3", "{hardware: h200, nodes: 1, fabric: roce-400}", EXPERTS));
    assert_eq!(too_few, "cluster.nodes: the launch line spreads the ranks over 2 nodes, and the cluster has 1; it should have 2");
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
