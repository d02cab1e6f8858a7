//! Files of sweeps that are and are not in order.

use super::*;

const SWEEP: &str = r#"{"scenario":"m-h100-fp8-vllm-tp1","label":"1k1k","framework":"vllm","gpu":"h100","precision":"fp8","parallel":{"tp":1,"pp":1,"adp":1,"mtp":1,"mep":1},"run_date":null,"concurrency":[1,4],"settings":{"all":{"passed":{"block_size":16},"resolved":{}},"by_concurrency":{"4":{"passed":{"max_num_seqs":4},"resolved":{}}}},"launch":{"script":"s","image":"i:v1.2.3","server_command":"c","args":{},"env":{},"notes":"","client":{"num_prompts":"$CONC","isl":8,"osl":8,"range_ratio":1.0,"seed":0,"warmups":""}}}"#;

fn read(text: &str) -> Result<Vec<Sweep>, String> {
    read_sweeps(&Input::of("units.jsonl", text)).map_err(|error| error.to_string())
}

#[test]
fn a_line_that_is_no_sweep_is_refused_by_its_number() {
    let second = |line: &str| read(&format!("{SWEEP}\n{line}\n")).unwrap_err();
    assert_eq!(second(&SWEEP[..60]).split(':').nth(1), Some("2"));
    assert_eq!(second(SWEEP), "units.jsonl:2: m-h100-fp8-vllm-tp1 1k1k stands on an earlier line too");
    let other = SWEEP.replace("1k1k", "8k1k");
    assert!(second(&other.replace("[1,4]", "[4,0]")).contains("concurrency lists 0"));
    assert!(second(&other.replace("\"gpu\":\"h100\",", "")).contains("missing field `gpu`"));
    assert!(second(&other.replace("\"label\"", "\"tpot_us\":1,\"label\"")).contains("unknown field `tpot_us`"));
    assert!(second(&other.replace("\"passed\":{\"block", "\"stated\":{\"block")).contains("unknown field `stated`"));
}

#[test]
fn what_was_logged_at_one_concurrency_stands_beside_what_was_logged_at_all() {
    let sweeps = read(SWEEP).unwrap();
    let names = |concurrency| sweeps[0].passed(concurrency).map(|(name, _)| name.as_str()).collect::<Vec<_>>();
    assert_eq!((names(1), names(4)), (vec!["block_size"], vec!["block_size", "max_num_seqs"]));
}
