//! Files of units that are and are not in order.

use super::*;

const UNIT: &str = r#"{"scenario":"s","label":"1k1k","framework":"vllm","gpu":"h100","concurrency":[1],"launch":{"image":"i","server_command":"c","env":{},"client":{"num_prompts":"$CONC","isl":1,"osl":1,"range_ratio":1.0,"seed":0,"warmups":""}}}"#;

fn refusal(text: &str) -> String {
    parse_units("units.jsonl", text).unwrap_err().to_string()
}

#[test]
fn a_line_that_is_no_unit_is_refused_by_its_number() {
    let second = |line: &str| refusal(&format!("{UNIT}\n{line}\n"));
    assert!(second(&UNIT[..60]).starts_with("units.jsonl:2: EOF"));
    assert_eq!(
        refusal(&format!("{UNIT}\n{}", &UNIT[..60])),
        "units.jsonl:2: the last line is cut short: the file was not written to its end"
    );
    assert_eq!(second(""), "units.jsonl:2: an empty line; every line is one object");
    assert_eq!(second("3"), "units.jsonl:2: not a unit: invalid type: integer `3`, expected struct Unit (column 1)");
    assert_eq!(second(UNIT), "units.jsonl:2: s 1k1k stands on an earlier line too");
    assert_eq!(
        second(&UNIT.replace("\"s\"", "\"t\"").replace("[1]", "[4,0]")),
        "units.jsonl:2: t 1k1k: concurrency must list numbers above 0, found [4, 0]"
    );
    assert!(second(&UNIT.replace("\"gpu\":\"h100\",", "")).contains("missing field `gpu`"));
    assert_eq!(refusal(""), "units.jsonl:1: the file is empty");
}

#[test]
fn each_line_is_a_unit() {
    let text = format!("{UNIT}\n{}\n", UNIT.replace("1k1k", "8k1k"));
    assert_eq!(parse_units("units.jsonl", &text).unwrap().len(), 2);
}
