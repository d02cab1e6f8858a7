//! Over how many nodes a line spreads its ranks, and what upstream refuses of it.

use super::*;
use crate::config::resolved::Placement;

fn placement(arguments: &str) -> Result<Placement, String> {
    let resolved = Case::line(&serve(arguments)).resolve(&gpt_oss(), &h100());
    resolved.map(|resolved| resolved.placement).map_err(|error| error.to_string())
}

#[test]
fn ranks_lie_where_upstream_starts_their_workers() {
    let cases = [
        ("", (1, 1)),
        ("--tensor-parallel-size 8", (1, 8)),
        ("--nnodes 1 --tensor-parallel-size 4", (1, 4)),
        ("--tensor-parallel-size 16 --nnodes 2", (2, 8)),
        ("--tensor-parallel-size 8 --nnodes 2", (2, 4)),
        ("--data-parallel-size 16 --nnodes 2", (2, 8)),
        ("--tensor-parallel-size 8 --data-parallel-size 2 --nnodes 2 --node-rank 0", (2, 8)),
        ("--tensor-parallel-size 8 --data-parallel-size 2 --nnodes 4", (4, 4)),
        ("--tensor-parallel-size 4 --pipeline-parallel-size 2", (1, 8)),
        ("--tensor-parallel-size 8 --pipeline-parallel-size 2 --nnodes 2", (2, 8)),
        ("--data-parallel-size 16 --data-parallel-size-local 8", (2, 8)),
        ("--tensor-parallel-size 4 --data-parallel-size 6 --data-parallel-size-local 2 --data-parallel-address 10.0.0.1", (3, 8)),
        ("--data-parallel-size 8 --data-parallel-size-local 8", (1, 8)),
        ("--data-parallel-size 65536 --nnodes 8192", (8192, 8)),
    ];
    for (arguments, (nodes, ranks_per_node)) in cases {
        assert_eq!(placement(arguments), Ok(Placement { nodes, ranks_per_node }), "{arguments}");
    }
}

#[test]
fn what_upstream_refuses_of_nodes_is_refused_by_its_reason() {
    let cases = [
        (
            "--tensor-parallel-size 8 --pipeline-parallel-size 2",
            "world size (16) is larger than the number of available GPUs (8) in this node",
        ),
        (
            "--data-parallel-size 2 --pipeline-parallel-size 2",
            "--pipeline-parallel-size 2 with engine cores that share experts is not modelled",
        ),
        ("--tensor-parallel-size 16", "world size (16) is larger than the number of available GPUs (8) in this node"),
        ("--tensor-parallel-size 8 --nnodes 3", "--nnodes 3 must evenly divide the total world size (8)"),
        ("--tensor-parallel-size 32 --nnodes 2", "world size (32) is larger than the number of GPUs of 2 nodes of 8"),
        ("--data-parallel-size 32 --nnodes 2", "local rank 15 of 16 on a node is out of bounds for 8 devices"),
        ("--nnodes 0", "--nnodes: 0 should be at least 1"),
        (
            "--data-parallel-size 65537 --nnodes 65537",
            "--data-parallel-size 65537: int too big to convert; engine cores are told apart by two",
        ),
        (
            "--tensor-parallel-size 2 --data-parallel-size 4 --data-parallel-size-local 1 --nnodes 2",
            "nnodes (2) must be divisible by the number of data parallel node groups (4 = data_parallel_size 4 / data_parallel_size_local 1)",
        ),
        ("--data-parallel-size 2 --data-parallel-size-local 3", "data_parallel_size_local (3) must be <= data_parallel_size (2)"),
        (
            "--tensor-parallel-size 4 --data-parallel-size 6 --data-parallel-size-local 3",
            "--data-parallel-size-local 3: 3 engine cores of 4 GPUs are larger than the number of available GPUs (8) in this node",
        ),
        ("--data-parallel-size 2 --data-parallel-size-local 0", "--data-parallel-size-local = 0 is not modelled: a first node without"),
        (
            "--tensor-parallel-size 16 --nnodes 2 --node-rank 1",
            "--node-rank = 1 is not modelled: an endpoint over several nodes is stated by",
        ),
        (
            "--tensor-parallel-size 16 --nnodes 2 --headless",
            "--headless = true is not modelled: an endpoint over several nodes is stated by",
        ),
        ("--tensor-parallel-size 16 --nnodes 2 --distributed-executor-backend ray", "--distributed-executor-backend = ray is not modelled"),
    ];
    for (arguments, refusal) in cases {
        let got = placement(arguments).unwrap_err();
        assert!(got.starts_with(refusal), "{arguments}: {got}");
    }
    let env = [("VLLM_FLASHINFER_ALLREDUCE_BACKEND", "trtllm")];
    let line = serve("--tensor-parallel-size 16 --nnodes 2");
    let refusal = Case { line: &line, env: &env, written_for: None }.resolve(&gpt_oss(), &h100()).unwrap_err().to_string();
    assert!(refusal.starts_with("Flashinfer allreduce is not supported for multi-node allreduce with 'trtllm' backend"), "{refusal}");
}

#[test]
fn a_refusal_of_ranks_names_the_flags_to_change() {
    let lower = "lower --tensor-parallel-size 8 or --pipeline-parallel-size 2, or state more nodes with --nnodes";
    let cases = [
        ("--tensor-parallel-size 8 --pipeline-parallel-size 2", lower),
        ("--tensor-parallel-size 16", "lower --tensor-parallel-size 16, or state more nodes with --nnodes"),
        ("--tensor-parallel-size 3", "state a --tensor-parallel-size that divides it"),
        ("--data-parallel-size 2 --pipeline-parallel-size 2", "leave it out, or --data-parallel-size 2"),
        ("--data-parallel-size 32 --nnodes 2", "or the 1 ranks of --tensor-parallel-size and --pipeline-parallel-size"),
        ("--data-parallel-size 16", "in this node; lower it, or state more nodes with --nnodes"),
    ];
    for (arguments, way_out) in cases {
        let got = placement(arguments).unwrap_err();
        assert!(got.ends_with(way_out), "{arguments}: {got}");
    }
    let deep = Case::line(&serve("--pipeline-parallel-size 4")).resolve(&llama(), &h100()).unwrap_err().to_string();
    let layers = "--pipeline-parallel-size 4 with fewer layers than stages is not modelled; state at most 2, the model's layers";
    assert_eq!(deep, layers);
}

#[test]
fn a_line_that_states_the_cores_of_its_own_node_says_what_is_taken_of_the_others() {
    let notes = |arguments: &str| Case::line(&serve(arguments)).resolve(&gpt_oss(), &h100()).unwrap().notes;
    let told = notes("--data-parallel-size 16 --data-parallel-size-local 8");
    assert_eq!(told, ["every node after the first is taken to run 8 engine cores too, as the lines of those nodes state"]);
    assert_eq!(notes("--data-parallel-size 16 --nnodes 2"), [""; 0]);
}

#[test]
fn ray_may_place_engine_cores_and_not_run_their_workers() {
    let cores = "--data-parallel-size 8 --data-parallel-backend ray";
    let got = placement(cores).unwrap_err();
    let expected = "--data-parallel-backend = ray is not modelled: it makes Ray's executor that of the workers too";
    assert!(got.starts_with(expected) && got.ends_with("beside which Ray only places the engine cores"), "{got}");
    let same = Ok(Placement { nodes: 2, ranks_per_node: 8 });
    let local = "--data-parallel-size 16 --data-parallel-size-local 8";
    assert_eq!(placement(&format!("{local} --data-parallel-backend ray --distributed-executor-backend mp")), same);
    assert_eq!(placement(local), same);
    assert_eq!(placement("--data-parallel-backend ray"), placement(""), "one rank has no executor to choose");
    let got = placement("--data-parallel-size 16 --nnodes 2 --data-parallel-backend ray").unwrap_err();
    assert!(got.starts_with("Invalid data-parallel launch options: `--nnodes 2` requires `--data-parallel-backend mp`"), "{got}");
}

#[test]
fn every_rank_finds_a_device_among_those_that_the_line_names() {
    let placed = |visible: Option<&str>, arguments: &str| {
        let env: Vec<(&str, &str)> = visible.iter().map(|list| ("CUDA_VISIBLE_DEVICES", *list)).collect();
        Case { line: &serve(arguments), env: &env, written_for: None }.resolve(&gpt_oss(), &h100()).map(drop)
    };
    let taken = [
        (Some("0,1"), "--tensor-parallel-size 2"),
        (Some("7, 3 ,5,1"), "--tensor-parallel-size 2 --data-parallel-size 2"),
        (Some("0,1,2,3"), "--tensor-parallel-size 8 --nnodes 2"),
        (Some("GPU-a,GPU-b"), "--tensor-parallel-size 2"),
        (Some(" GPU-a, GPU-b"), "--tensor-parallel-size 2"),
        (Some("4,5,6,7"), "--tensor-parallel-size 2 --device-ids 3,0"),
        (None, "--tensor-parallel-size 2 --device-ids 7,6,5"),
        (None, "--tensor-parallel-size 2 --device-ids GPU-a,GPU-b"),
    ];
    for (visible, arguments) in taken {
        assert_eq!(placed(visible, arguments), Ok(()), "{visible:?} {arguments}");
    }
    let refused = [
        (Some("0"), "--tensor-parallel-size 2", "finds 1 of a node's devices, and the ranks there are 2; name at least 2, or leave it out"),
        (Some("0,1"), "--data-parallel-size 4", "finds 2 of a node's devices, and the ranks there are 4"),
        (Some("0,1,2"), "--tensor-parallel-size 8 --nnodes 2", "finds 3 of a node's devices, and the ranks there are 4"),
        (Some("0,1"), "--tensor-parallel-size 2 --pipeline-parallel-size 2", "finds 2 of a node's devices, and the ranks there are 4"),
        (Some(""), "", "CUDA_VISIBLE_DEVICES = : the engine finds 0 of a node's devices"),
        // The list ends before a device that is not there, and one named twice hides all.
        (Some("0,8,1"), "--tensor-parallel-size 2", "finds 1 of a node's devices"),
        (Some("0,-1,1"), "--tensor-parallel-size 2", "finds 1 of a node's devices"),
        (Some("1,1"), "", "finds 0 of a node's devices"),
        (Some("1,01"), "", "finds 0 of a node's devices"),
        (Some("GPU-a,GPU-a"), "", "finds 0 of a node's devices"),
        (Some("0,one"), "", "CUDA_VISIBLE_DEVICES: 0,one should be a list of devices, by number or by UUID"),
        (Some("MIG-a"), "", "CUDA_VISIBLE_DEVICES = MIG-a is not modelled: a slice of a device"),
        (
            None,
            "--tensor-parallel-size 4 --device-ids 0,1",
            "--device-ids = 0,1: the engine finds 2 of a node's devices, and the ranks there are 4",
        ),
        (None, "--device-ids 8", "--device-ids index 8 is out of range: 8 devices of a node are visible"),
        (Some("4,5"), "--device-ids 4", "--device-ids index 4 is out of range: 2 devices of a node are visible"),
    ];
    for (visible, arguments, refusal) in refused {
        let got = placed(visible, arguments).unwrap_err();
        assert!(got.to_string().contains(refusal), "{visible:?} {arguments}: {got}");
    }
}
