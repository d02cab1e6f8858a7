//! Capture sizes and graph modes, against the figures upstream's own start-up gives.

use crate::config::CudagraphMode::{Full, FullAndPiecewise, FullDecodeOnly, None as NoGraphs, Piecewise};
use crate::config::tests::{Case, a100, b200, gpt_oss, h100, llama, resolved, serve};

#[test]
fn default_capture_sizes_number_51_or_83() {
    for (chip, count, largest) in [(a100(), 51, 512), (h100(), 51, 512), (b200(), 83, 1024)] {
        let got = Case::line("vllm serve m").resolve(&llama(), &chip).unwrap().compilation;
        assert_eq!((got.cudagraph_capture_sizes.len(), got.max_cudagraph_capture_size), (count, largest), "{}", chip.name);
    }
}

#[test]
fn gpt_oss_captures_up_to_1024_everywhere_unless_told_otherwise() {
    let sizes = |arguments: &str| Case::line(&serve(arguments)).resolve(&gpt_oss(), &h100()).unwrap().compilation.cudagraph_capture_sizes;
    assert_eq!((sizes("").len(), sizes("").last()), (83, Some(&1024)));
    assert_eq!(sizes("--max-num-seqs 4").last(), Some(&1024), "the ceiling is set before the requests are looked at");
    assert_eq!(sizes("--max-cudagraph-capture-size 16"), [1, 2, 4, 8, 16]);
    assert_eq!(sizes("--cudagraph-capture-sizes 3 1 3"), [1, 3]);
}

#[test]
fn sizes_follow_the_requests_the_tokens_and_the_line() {
    let grid = |ceiling: u64| -> Vec<u64> {
        let steps = [1, 2, 4].into_iter().chain((8..256).step_by(8)).chain((256..=ceiling).step_by(16));
        steps.filter(|size| *size <= ceiling).collect()
    };
    let cases = [
        ("--max-num-seqs 1", vec![1, 2]),
        ("--max-num-seqs 3", vec![1, 2, 3, 4]),
        ("--max-num-seqs 5", vec![1, 2, 4, 5, 8]),
        ("--max-num-seqs 64", grid(128)),
        ("--max-num-seqs 64 --max-num-batched-tokens 100", grid(96).into_iter().chain([100]).collect()),
        ("--max-cudagraph-capture-size 2048", grid(2048)),
        ("--max-cudagraph-capture-size 2050", grid(2048)),
        ("--max-cudagraph-capture-size 20", vec![1, 2, 4, 8, 16]),
        ("--cudagraph-capture-sizes 4 2 4 9000", vec![2, 4]),
        ("-cc.cudagraph_capture_sizes [7,1]", vec![1, 7]),
        ("--performance-mode interactivity --max-num-seqs 8", (1..=16).collect()),
    ];
    for (arguments, expected) in cases {
        assert_eq!(resolved(arguments).unwrap().compilation.cudagraph_capture_sizes, expected, "{arguments}");
    }
}

#[test]
fn a_ceiling_off_the_grid_is_truncated_and_said_so() {
    let got = resolved("--max-cudagraph-capture-size 2050").unwrap();
    assert_eq!(got.compilation.max_cudagraph_capture_size, 2048);
    assert_eq!(got.notes, ["max_cudagraph_capture_size 2050 is truncated to 2048"]);
}

#[test]
fn stated_sizes_that_are_not_those_in_force_are_told_in_the_spelling_of_the_line() {
    let notes = |arguments: &str| resolved(arguments).unwrap().notes;
    let becomes = "becomes [1,2,4]: from the stated sizes or ceiling, the requests and the tokens of one step";
    assert_eq!(notes("--cudagraph-capture-sizes 4 2 1"), [format!("--cudagraph-capture-sizes = [4,2,1] {becomes}")]);
    let other = notes("-cc.cudagraph_capture_sizes=[4,2,1]");
    assert_eq!(other, [format!("compilation_config.cudagraph_capture_sizes = [4,2,1] {becomes}")]);
    assert_eq!(notes("-cc.cudagraph_capture_sizes=[1,2,4]"), [""; 0]);
    let ceiling = notes("-cc.max_cudagraph_capture_size=2050");
    assert_eq!(ceiling, ["max_cudagraph_capture_size 2050 is truncated to 2048"]);
}

#[test]
fn the_graph_mode_is_what_level_compiler_and_backend_leave_of_it() {
    let cases = [
        (h100(), "", FullAndPiecewise),
        (h100(), "-O0", NoGraphs),
        (h100(), "-O1", Piecewise),
        (h100(), "-O3", FullAndPiecewise),
        (h100(), "-cc.mode NONE", FullDecodeOnly),
        (h100(), "-cc.mode 0 -cc.cudagraph_mode PIECEWISE", NoGraphs),
        (h100(), "-cc.cudagraph_mode full", Full),
        (a100(), "-cc.cudagraph_mode FULL", FullAndPiecewise),
        (a100(), "-cc.cudagraph_mode FULL -cc.mode NONE", FullDecodeOnly),
        (b200(), "-cc.cudagraph_mode FULL", FullAndPiecewise),
        (h100(), "-cc.splitting_ops []", Full),
        (a100(), "-cc.splitting_ops []", FullDecodeOnly),
        (h100(), "-cc.splitting_ops [] -cc.cudagraph_mode PIECEWISE", NoGraphs),
        (h100(), "-cc.pass_config.fuse_attn_quant true", Full),
        (b200(), "-cc.pass_config.fuse_attn_quant true", FullDecodeOnly),
        (b200(), "-cc.pass_config.fuse_attn_quant true -cc.splitting_ops [] -cc.cudagraph_mode FULL_DECODE_ONLY", FullDecodeOnly),
    ];
    for (chip, arguments, expected) in cases {
        let got = Case::line(&serve(arguments)).resolve(&llama(), &chip).unwrap().compilation;
        assert_eq!(got.cudagraph_mode, expected, "{} {arguments}", chip.name);
    }
}
