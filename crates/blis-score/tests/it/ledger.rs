//! Identities, the account of every record, and the lists that may be published.

use blis_score::ledger::identity::{canonical_json, unit_id};
use blis_score::ledger::ingest::{LedgerError, Source, ingest};
use blis_score::ledger::roles::{published_lists, read_units};
use serde_json::{Value, json};

use crate::fixture::{file, units};

fn source(revision: &str) -> Source {
    Source { name: "made-up".to_owned(), revision: revision.to_owned() }
}

#[test]
fn canonical_json_sorts_keys_at_every_depth_and_keeps_types() {
    let value: Value = serde_json::from_str(r#"{"b": [1, {"z": null, "a": "é\n"}], "a": true, "B": 1.5}"#).unwrap();
    assert_eq!(canonical_json(&value), r#"{"B":1.5,"a":true,"b":[1,{"a":"é\n","z":null}]}"#);
    assert_eq!(unit_id(&json!({})), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", "SHA-256 of an empty object");
}

#[test]
fn every_point_is_a_unit_and_shares_its_role_key_with_its_sweep() {
    let (listed, report) = ingest(&file("units.jsonl", &units()), &source("2026-01-02")).unwrap();
    assert_eq!((report.records_read, report.units, report.role_keys), (12, 48, 12));
    assert_eq!(listed[0].role_key, listed[3].role_key);
    assert_ne!(listed[3].role_key, listed[4].role_key);
    let mut ids: Vec<&str> = listed.iter().map(|unit| unit.unit_id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 48);
}

#[test]
fn nothing_but_identifying_fields_changes_an_identity() {
    let id = |change: fn(&mut Value)| {
        let mut lines = units();
        change(&mut lines[0]);
        ingest(&file("units.jsonl", &lines), &source("2026-01-02")).unwrap().0[0].unit_id.clone()
    };
    let plain = id(|_| {});
    assert_eq!(plain, id(|unit| unit["launch"]["notes"] = json!("words")));
    assert_eq!(plain, id(|unit| unit["settings"] = json!(null)));
    assert_eq!(
        plain,
        id(|unit| unit["launch"]["image"] = json!("example/vllm:v1.2.0@sha256:00ff")),
        "a digest is recorded for some runs only"
    );
    assert_ne!(plain, id(|unit| unit["run_date"] = json!("2026-01-03")));
    assert_ne!(plain, id(|unit| unit["launch"]["image"] = json!("example/vllm:v1.2.1")));
}

#[test]
fn a_repeated_record_is_merged_and_a_contradicting_one_left_out() {
    let mut lines = units();
    lines.push(lines[0].clone());
    let mut other = lines[1].clone();
    other["run_date"] = json!("2026-05-05");
    lines.push(other);
    let (listed, report) = ingest(&file("units.jsonl", &lines), &source("2026-01-02")).unwrap();
    assert_eq!((report.records_read, listed.len()), (14, 48));
    assert_eq!((report.records_merged[0].line, report.records_merged[0].into), (13, 1));
    assert_eq!(
        (report.records_left_out[0].line, report.records_left_out[0].reason.as_str()),
        (14, "describes the deployment of line 2 differently")
    );
}

#[test]
fn a_revision_that_names_no_fixed_state_is_refused() {
    for revision in ["latest", "main", "unknown", ""] {
        let refused = ingest(&file("units.jsonl", &units()), &source(revision));
        assert!(matches!(refused, Err(LedgerError::Unpinned(_))), "{revision}");
    }
}

#[test]
fn only_published_roles_are_listed() {
    let (listed, _) = ingest(&file("units.jsonl", &units()), &source("2026-01-02")).unwrap();
    let role = |at: usize, role: &str| json!({"scenario": units()[at]["scenario"], "label": units()[at]["label"], "role": role});
    let roles = file("roles", &[role(0, "fit"), role(1, "held"), role(2, "anchor"), role(3, "select"), role(4, "validate")]);
    let lists = published_lists(&listed, &roles).unwrap();
    assert_eq!((lists.fit.len(), lists.anchor.len(), lists.report.len()), (4, 4, 0));
    let hidden = &listed[4].unit_id;
    assert!(!lists.fit.contains(hidden) && !lists.anchor.contains(hidden));
    let complaint = |lines: &[Value]| published_lists(&listed, &file("roles", lines)).unwrap_err().to_string();
    let unknown = json!({"scenario": "alpha-7b-h100-fp8-vllm-tp2.yaml", "label": "2k1k", "role": "fit"});
    assert_eq!(
        complaint(&[role(0, "fit"), unknown]),
        "roles:2: no unit is called alpha-7b-h100-fp8-vllm-tp2.yaml 2k1k; the nearest is alpha-7b-h100-fp8-vllm-tp2.yaml 1k1k"
    );
    assert!(
        complaint(&[role(0, "fit"), role(0, "held")])
            .starts_with("roles:2: alpha-7b-h100-fp8-vllm-tp2.yaml 1k1k has the role Fit on line 1 already")
    );
    assert!(complaint(&[role(0, "public")]).contains("unknown variant `public`"));
}

#[test]
fn a_unit_list_is_read_back_and_a_changed_field_gives_it_away() {
    let (listed, _) = ingest(&file("units.jsonl", &units()), &source("2026-01-02")).unwrap();
    let mut lines: Vec<Value> = listed.iter().map(|unit| serde_json::to_value(unit).unwrap()).collect();
    assert_eq!(read_units(&file("list", &lines)).unwrap(), listed);
    lines[2]["fields"]["concurrency"] = json!(33);
    assert!(read_units(&file("list", &lines)).unwrap_err().to_string().starts_with("list:3: unit_id is "));
}
