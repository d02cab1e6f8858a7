//! Properties of strict loading over generated input: nothing panics, and a printed tree reads back as itself.

use blis_contracts::scenario::Scenario;
use blis_contracts::strict::{Document, LineEndings};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const BASE: &str = r#"
kind: Scenario
name: base
seed: 42
model: some-model
engine: {kind: some-engine, written_for: "1.2"}
cluster: {hardware: h100, nodes: 1}
pools:
  - {name: serve, role: both, replicas: 1, command: "serve it", env: {A: "1"}}
workload:
  clients:
    - id: chat
      arrival: {process: poisson, rate: 8.0}
      input: {distribution: lognormal, mean: 512, std: 256, min: 16, max: 4096}
      output: {distribution: constant, value: 4}
frame: {start: empty, stop: {requests: 2000}}
"#;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() }
}

fn load_anything(bytes: &[u8]) {
    if let Ok(document) = Document::parse("f.yaml", bytes, LineEndings::LfOrCrLf) {
        let again = Document::parse("f.json", document.to_json().as_bytes(), LineEndings::Lf).unwrap();
        assert_eq!(again.root(), document.root());
        if let Err(errors) = Scenario::load(&document) {
            assert!(!errors.0.is_empty());
        }
    }
}

/// JSON text of a value at most `depth` levels deep.
fn json(depth: u32) -> impl Strategy<Value = String> {
    let text = any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap());
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| value.to_string()),
        "-?(0|[1-9][0-9]{0,7})\\.[0-9]{1,8}(e-?[0-9]{1,2})?",
        text.clone(),
    ];
    leaf.prop_recursive(depth, 64, 6, move |inner| {
        let map = prop::collection::btree_map(text.clone(), inner.clone(), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(|items| format!("[{}]", items.join(", "))),
            map.prop_map(|map| format!(
                "{{{}}}",
                map.into_iter().map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>().join(", ")
            )),
        ]
    })
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn no_bytes_make_the_loader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        load_anything(&bytes);
    }

    #[test]
    fn no_text_of_the_characters_yaml_reads_makes_the_loader_panic(text in "[-?:,\\[\\]{}#&*!|>'\"%@` \n\t\r.0-9a-eé<~\\\\]{0,80}") {
        load_anything(text.as_bytes());
    }

    #[test]
    fn no_damage_to_a_scenario_makes_the_loader_panic(
        at in 0..BASE.len(),
        removed in 0..20_usize,
        inserted in "[-?:,\\[\\]{}#&*!|>'\"%@` \n\t.0-9a-e\\\\]{0,6}",
    ) {
        let end = (at + removed).min(BASE.len());
        load_anything(format!("{}{inserted}{}", &BASE[..at], &BASE[end..]).as_bytes());
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn a_printed_tree_reads_back_as_itself(text in json(5)) {
        let document = Document::parse("f.json", text.as_bytes(), LineEndings::LfOrCrLf);
        if let Ok(document) = document {
            let printed = document.to_json();
            let again = Document::parse("f.json", printed.as_bytes(), LineEndings::Lf).unwrap();
            prop_assert_eq!(again.root(), document.root());
            prop_assert_eq!(again.to_json(), printed);
        } else {
            let refused_by_rule = text.contains(|c: char| c.is_control() || c == '\u{feff}' || c == '\u{fffe}' || c == '\u{ffff}');
            prop_assert!(refused_by_rule, "{text}: {document:?}");
        }
    }

    #[test]
    fn an_integer_literal_decodes_to_itself_or_not_at_all(value in any::<i128>()) {
        let text = value.to_string();
        let document = Document::parse("f.yaml", text.as_bytes(), LineEndings::Lf).unwrap();
        prop_assert_eq!(document.decode::<u64>().ok(), u64::try_from(value).ok());
        prop_assert_eq!(document.decode::<i16>().ok(), i16::try_from(value).ok());
    }

    #[test]
    fn a_real_decodes_to_the_value_it_was_printed_from(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        let text = format!("{value:?}");
        let decoded = Document::parse("f.yaml", text.as_bytes(), LineEndings::Lf).ok().and_then(|document| document.decode::<f64>().ok());
        let readable = value.is_normal() || value.to_bits() << 1 == 0;
        prop_assert_eq!(decoded.map(f64::to_bits), readable.then_some(bits));
    }
}
