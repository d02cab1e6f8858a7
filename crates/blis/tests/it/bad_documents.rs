//! Documents that are wrong in themselves: each is one clear error with its place, and exit code 2.

use crate::harness::{Bench, CHAT, check, show};

const RATE: &str = "rate: 8.0";
const INPUT: &str = "input: {distribution: uniform, min: 100, max: 900}";

#[test]
fn an_unknown_key_gets_the_nearest() {
    check("unknown_key", &[("replicas:", "replcas:")], &[]);
}

#[test]
fn a_duplicate_key_is_refused() {
    check("duplicate_key", &[("seed: 42", "seed: 42\nseed: 43")], &[]);
}

#[test]
fn a_rate_is_a_finite_number() {
    check("rate_nan", &[(RATE, "rate: .nan")], &[]);
    check("rate_infinite", &[(RATE, "rate: .inf")], &[]);
    check("rate_enormous", &[(RATE, "rate: 1e308")], &[]);
    check("rate_beyond_floats", &[(RATE, "rate: 1e309")], &[]);
}

#[test]
fn a_rate_is_positive() {
    check("rate_negative", &[(RATE, "rate: -8.0")], &[]);
    check("rate_zero", &[(RATE, "rate: 0")], &[]);
}

#[test]
fn a_length_is_positive() {
    check("length_zero", &[(INPUT, "input: {distribution: constant, value: 0}")], &[]);
    check("length_negative", &[(INPUT, "input: {distribution: constant, value: -5}")], &[]);
    check("length_fraction", &[(INPUT, "input: {distribution: constant, value: 1.5}")], &[]);
}

#[test]
fn text_is_no_number() {
    check("text_for_number", &[(RATE, "rate: fast")], &[]);
    check("quoted_number", &[("seed: 42", "seed: \"42\"")], &[]);
}

#[test]
fn every_problem_is_told_at_once() {
    check("many_problems", &[(RATE, "rate: -8.0"), ("requests: 100", "requests: 0"), ("replicas: 1", "replicas: 0")], &[]);
}

#[test]
fn an_edit_is_checked_like_the_file() {
    check("edit_unknown_key", &[], &["--set", "workload.clients[chat].arival.rate=4"]);
    check("edit_wrong_value", &[], &["--set", "workload.clients[chat].arrival.rate=-4"]);
    check("edit_without_value", &[], &["--set", "seed"]);
}

#[test]
fn an_alias_bomb_is_refused_at_its_first_anchor() {
    let bomb = "a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nd: [*c, *c, *c, *c]\n";
    check("alias_bomb", &[("kind: Scenario\n", bomb)], &[]);
}

#[test]
fn a_document_of_a_hundred_megabytes_is_refused_by_its_size() {
    let bench = Bench::new("huge_document", CHAT);
    bench.write_zeros("huge.yaml", 100_000_000);
    let output = bench.blis(&["run", "huge.yaml"]);
    insta::with_settings!({prepend_module_to_snapshot => false}, { insta::assert_snapshot!("huge_document", show(&output)) });
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let bench = Bench::new("no_file", CHAT);
    let output = bench.blis(&["validate", "scenari.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(show(&output).contains("scenari.yaml: cannot be read"), "{}", show(&output));
}
