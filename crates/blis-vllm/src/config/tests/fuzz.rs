//! Whatever words a line is made of, it is read or refused; it never panics and never runs away.

use proptest::prelude::*;
use serde_json::Value;

use crate::config::tests::{gpt_oss, h100, llama_fp8};
use crate::config::{Kind, Launch, Machine, fields, read, resolve};

/// A word that a launch line could hold: mostly real flags and plausible values.
fn word() -> impl Strategy<Value = String> {
    let flags: Vec<String> = fields()
        .iter()
        .filter(|field| field.scope == "engine" && field.kind != Kind::Json)
        .flat_map(|field| field.flags.iter().map(|flag| (*flag).to_owned()))
        .chain(fields().iter().filter(|field| field.scope.ends_with("_config")).map(|field| format!("--{}", field.key)))
        .collect();
    let values = [
        "1",
        "0",
        "-1",
        "2",
        "512",
        "8k",
        "9223372036854775807",
        "0.5",
        "nan",
        "None",
        "auto",
        "true",
        "",
        "fp8",
        "[1,2]",
        "[]",
        "{}",
        "{\"mode\":3}",
        "FULL",
        "FLASHINFER",
        "+rms_norm",
        "none",
        "a.b",
        "-",
        "--",
        "=",
        "--=",
        "-.",
        "--x.y.z",
        "-cc.",
        "-cc.mode",
        "-O",
        "é",
    ];
    prop_oneof![
        4 => proptest::sample::select(flags),
        4 => proptest::sample::select(values.to_vec()).prop_map(str::to_owned),
        1 => ".{0,12}",
    ]
}

proptest! {
    #[test]
    fn any_words_are_read_or_refused(words in proptest::collection::vec(word(), 0..8), release in proptest::option::of(Just("0.10.2"))) {
        let line = std::iter::once("vllm serve m".to_owned()).chain(words.iter().map(|word| format!("'{}'", word.replace('\'', "")))).collect::<Vec<_>>().join(" ");
        if let Ok(stated) = read(Launch { command: Some(&line), written_for: release, ..Launch::default() }) {
            for model in [llama_fp8(), gpt_oss()] {
                let resolved = resolve(&stated, Machine { model: &model, chip: &h100(), gpus: 8 });
                prop_assert!(resolved.map_or_else(|error| !error.to_string().is_empty(), |resolved| !resolved.explained.is_empty()));
            }
        }
    }

    #[test]
    fn any_variable_is_read_or_refused(name in "[A-Z_]{0,20}", word in ".{0,20}", at in 0..fields().len()) {
        for name in [name.as_str(), fields()[at].key] {
            let env = [(name.to_owned(), word.clone())];
            let map = serde_json::Map::from_iter([("model".to_owned(), Value::from("m"))]);
            let result = read(Launch { args: Some(&map), env: &env, ..Launch::default() });
            prop_assert!(result.map_or_else(|error| !error.to_string().is_empty(), |stated| stated.model() == "m"));
        }
    }
}
