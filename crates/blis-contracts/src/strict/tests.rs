//! Unit tests of strict loading: scalars, decoding, edits. The corpus of malformed documents is in `tests/corpus`.

use std::fmt::Debug;

use serde::Deserialize;

use super::*;

fn load(text: &str) -> Document {
    Document::parse("f.yaml", text.as_bytes(), LineEndings::LfOrCrLf).unwrap()
}

fn refusal(text: &str) -> String {
    Document::parse("f.yaml", text.as_bytes(), LineEndings::LfOrCrLf).unwrap_err().to_string()
}

fn decode<T: for<'de> Deserialize<'de> + Debug>(text: &str) -> Result<T, String> {
    load(text).decode::<T>().map_err(|error| error.to_string())
}

#[derive(Debug, PartialEq, Deserialize)]
struct Holder<T> {
    v: T,
}

fn value<T: for<'de> Deserialize<'de> + Debug>(text: &str) -> Result<T, String> {
    decode::<Holder<T>>(&format!("v: {text}")).map(|holder| holder.v).map_err(|error| error.replace("f.yaml:1:4: v: ", ""))
}

#[test]
fn integers_fit_exactly_or_are_refused() {
    assert_eq!(value::<u64>("18446744073709551615"), Ok(u64::MAX));
    assert_eq!(value::<i64>("-9223372036854775808"), Ok(i64::MIN));
    assert_eq!(value::<u8>("+255"), Ok(255));
    assert_eq!(value::<u8>("256").unwrap_err(), "expected an integer from 0 to 255, found the integer 256");
    assert_eq!(value::<u32>("-1").unwrap_err(), "expected an integer from 0 to 4294967295, found the integer -1");
    assert_eq!(
        value::<u32>("1e3").unwrap_err(),
        "expected an integer from 0 to 4294967295, found the number 1e3\n  hint: write it without a fraction or an exponent"
    );
    assert_eq!(
        value::<u8>("\"7\"").unwrap_err(),
        "expected an integer from 0 to 255, found the text \"7\"\n  hint: write it without quotes"
    );
    assert!(value::<u64>("340282366920938463463374607431768211456000").is_err());
}

#[test]
fn reals_are_exact_and_finite() {
    assert_eq!(value::<f64>("8"), Ok(8.0));
    assert_eq!(value::<f64>("0"), Ok(0.0));
    assert_eq!(value::<f64>("-170141183460469231731687303715884105728"), Ok(-(2.0_f64.powi(127))));
    assert_eq!(value::<f64>("-.5"), Ok(-0.5));
    assert_eq!(value::<f64>("5."), Ok(5.0));
    assert_eq!(value::<f64>("1.7976931348623157e308"), Ok(f64::MAX));
    assert_eq!(value::<f64>("0.10000000000000000000"), Ok(0.1));
    assert_eq!(value::<f64>("9007199254740992"), Ok(9_007_199_254_740_992.0));
    assert_eq!(value::<f64>("-0.0").map(f64::to_bits), Ok((-0.0_f64).to_bits()));
    assert_eq!(
        value::<f64>("9007199254740993").unwrap_err(),
        "the integer 9007199254740993 has no exact floating-point value\n  hint: write it with an exponent"
    );
    assert!(value::<f64>("\"8\"").unwrap_err().contains("expected a number, found the text"));
    assert!(value::<f32>("0.5").is_err());
}

#[test]
fn ambiguous_numbers_are_refused_when_read() {
    for text in ["0x10", "0o17", "007", "00.5", ".nan", ".NaN", "-.inf", "+.Inf", "1e309", "1e999", "1e-320", "0.123456789012345678"] {
        assert!(refusal(&format!("v: {text}")).starts_with("f.yaml:1:4: v: "), "{text}");
    }
}

#[test]
fn text_that_only_resembles_a_number_is_text() {
    for text in ["1_000", "12:30", "0.22.0", "1e", "e5", "--", "+", ".", "0x", "0b1", "2026-01-01", "yes", "on", "NaN", "inf"] {
        assert_eq!(value::<String>(text).as_deref(), Ok(text));
    }
}

#[test]
fn booleans_are_those_of_the_core_schema() {
    assert_eq!(value::<bool>("True"), Ok(true));
    assert_eq!(value::<bool>("on").unwrap_err(), "expected true or false, found the text \"on\"\n  hint: write true");
    assert_eq!(value::<String>("false").unwrap_err(), "expected text, found the boolean false\n  hint: quote it: \"false\"");
}

#[test]
fn a_number_is_never_read_as_text() {
    assert_eq!(value::<String>("0.22").unwrap_err(), "expected text, found the number 0.22\n  hint: quote it: \"0.22\"");
}

#[test]
fn null_unsets_an_option_and_an_empty_value_is_refused() {
    assert_eq!(value::<Option<u8>>("null"), Ok(None));
    assert_eq!(value::<Option<u8>>("3"), Ok(Some(3)));
    assert_eq!(refusal("v:\n"), "f.yaml:1:2: v: there is no value here\n  hint: write a value, `null`, or leave the key out");
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    Both,
    Prefill,
}

#[derive(Clone, Debug, PartialEq, Deserialize, serde::Serialize, schemars::JsonSchema)]
struct Uniform {
    min: u32,
    max: u32,
}

#[derive(Clone, Debug, PartialEq, Deserialize, serde::Serialize, schemars::JsonSchema)]
struct Constant {
    value: u32,
}

tagged_enum! {
    /// A test enum told by a tag.
    enum Law by tag "law" {
        /// Same value always.
        Constant(Constant) = "constant",
        /// Any value of a range.
        Uniform(Uniform) = "uniform",
    }
}

tagged_enum! {
    /// A test enum told by the presence of a key.
    enum Either by key {
        /// Holds `value`.
        Constant(Constant) = "value",
        /// Holds `min`.
        Uniform(Uniform) = "min",
    }
}

#[test]
fn plain_enums_name_the_nearest_value() {
    assert_eq!(value::<Role>("prefill"), Ok(Role::Prefill));
    assert_eq!(value::<Role>("Both").unwrap_err(), "unknown value `Both`\n  hint: did you mean `both`?");
    assert_eq!(value::<Role>("decode").unwrap_err(), "unknown value `decode`\n  hint: known here: both, prefill");
    assert_eq!(value::<Role>("[both]").unwrap_err(), "expected one of both, prefill, found a sequence");
}

#[test]
fn a_tagged_enum_keeps_places_inside_its_variant() {
    assert_eq!(value::<Law>("{max: 3, law: uniform, min: 1}"), Ok(Law::Uniform(Uniform { min: 1, max: 3 })));
    let check = |text: &str| decode::<Holder<Law>>(text).unwrap_err();
    assert_eq!(check("v:\n  law: unifrom\n  min: 1"), "f.yaml:2:8: v.law: unknown value `unifrom`\n  hint: did you mean `uniform`?");
    assert_eq!(check("v:\n  law: uniform\n  mim: 1"), "f.yaml:3:3: v.mim: unknown key `mim`\n  hint: did you mean `min`?");
    assert_eq!(check("v:\n  law: uniform\n  min: -1"), "f.yaml:3:8: v.min: expected an integer from 0 to 4294967295, found the integer -1");
    assert_eq!(check("v:\n  law: uniform\n  min: 1"), "f.yaml:1:1: v: the key `max` is missing");
    assert_eq!(check("v: {min: 1}"), "f.yaml:1:4: v: the key `law` is missing\n  hint: it is one of constant, uniform");
    assert_eq!(check("v: uniform"), "f.yaml:1:4: v: expected a map with the key `law`, found the text \"uniform\"");
}

#[test]
fn a_keyed_enum_wants_exactly_one_of_its_keys() {
    assert_eq!(value::<Either>("{value: 3}"), Ok(Either::Constant(Constant { value: 3 })));
    assert_eq!(value::<Either>("{min: 1, max: 2}"), Ok(Either::Uniform(Uniform { min: 1, max: 2 })));
    assert_eq!(
        value::<Either>("{vlaue: 3}").unwrap_err(),
        "one of the keys `value`, `min` is missing\n  hint: is `vlaue` meant to be `value`?"
    );
    assert_eq!(
        value::<Either>("{value: 3, min: 1}").unwrap_err(),
        "the keys `value` and `min` exclude each other\n  hint: keep one of them"
    );
}

#[test]
fn a_tagged_enum_prints_what_it_reads() {
    for law in [Law::Constant(Constant { value: 3 }), Law::Uniform(Uniform { min: 1, max: 3 })] {
        let printed = serde_json::to_string(&law).unwrap();
        assert_eq!(load(&printed).decode::<Law>().as_ref(), Ok(&law), "{printed}");
    }
}

#[test]
fn unknown_keys_are_refused_without_the_type_asking_for_it() {
    assert_eq!(decode::<Holder<u8>>("v: 1\nw: 2").unwrap_err(), "f.yaml:2:1: w: unknown key `w`\n  hint: did you mean `v`?");
}

#[test]
fn a_path_leads_to_its_place_or_to_the_nearest_enclosing_one() {
    let document = load("a:\n  - b: {c: 1}\n    \"d.e\": 2\n");
    let place = |path: &str| document.error_at(path, "wrong").to_string();
    assert_eq!(place("a[0].b.c"), "f.yaml:2:12: a[0].b.c: wrong");
    assert_eq!(place("a[0].d.e"), "f.yaml:3:12: a[0].d.e: wrong");
    assert_eq!(place("a[0].b.x"), "f.yaml:2:8: a[0].b.x: wrong");
    assert_eq!(place("a[7]"), "f.yaml:1:1: a[7]: wrong");
    assert_eq!(place("z"), "f.yaml:1:1: z: wrong");
    assert!(document.get("a[0].b.c").is_some() && document.get("a[0].b.x").is_none());
}

#[test]
fn positions_become_byte_offsets() {
    let text = "a: 1\nα: β\n";
    let offset = |line, column| Position { line, column }.offset_in(text);
    assert_eq!(&text[offset(2, 4)..offset(2, 5)], "β");
    assert_eq!(offset(2, 99), text.len() - 1);
    assert_eq!(offset(9, 1), text.len());
}

const POOLS: &str = "pools:\n  - {name: serve, replicas: 1, env: {A: x}}\n  - {name: other, replicas: 2}\n";

fn edited(assignment: &str) -> Result<String, String> {
    let mut document = load(POOLS);
    document.set(assignment).map(|()| document.to_json()).map_err(|error| error.to_string())
}

#[test]
fn an_edit_writes_by_index_and_by_name() {
    let whole = r#"{"pools": [{"name": "serve", "replicas": 3, "env": {"A": "x"}}, {"name": "other", "replicas": 2}]}"#;
    assert_eq!(edited("pools[0].replicas=3").as_deref(), Ok(whole));
    assert_eq!(edited("pools[serve].replicas= 3 ").as_deref(), Ok(whole));
}

#[test]
fn an_edit_creates_a_key_only_where_its_map_exists() {
    assert!(edited("pools[other].env={B: \"1\"}").unwrap().contains(r#""env": {"B": "1"}"#));
    assert!(edited("seed=7").unwrap().ends_with(r#""seed": 7}"#));
    assert_eq!(
        edited("pools[0].evn.B=1").unwrap_err(),
        "--set pools[0].evn.B=1: pools[0]: there is no key `evn` here\n  hint: did you mean `env`?"
    );
}

#[test]
fn an_edit_that_leads_nowhere_says_where_it_stops() {
    let check = |edit: &str, expected: &str| assert_eq!(edited(edit).unwrap_err(), format!("--set {edit}: {expected}"));
    check("pools[2].replicas=1", "pools: there is no item 2 in a sequence of 2");
    check("pools[nobody].replicas=1", "pools: no item has the name or id `nobody`");
    check("pools.replicas=1", "pools: `pools` is a sequence, not a map");
    check("pools[0].name.x=1", "pools[0].name: `pools[0].name` is the text \"serve\", not a map");
    check("pools[0.x=1", "the path `pools[0.x` is malformed; write keys with dots and items in brackets, as in `pools[0].replicas`");
    check("pools", "an edit has the form `path=value`");
    check("seed=", "there is no value after `=`\n  hint: write `null` or `\"\"` if nothing is meant");
    check("seed=1 # one", "the value has something after it\n  hint: quote it if that is part of the text");
}

#[test]
fn an_edited_value_is_checked_like_any_other() {
    let mut document = load("v: 1\n");
    document.set("v=two").unwrap();
    let error = document.decode::<Holder<u8>>().unwrap_err();
    assert_eq!(error.to_string(), "--set v=two:1:9: v: expected an integer from 0 to 255, found the text \"two\"");
    assert_eq!(&error.file[8..], "two");
    let error = load("v: 1").set("v=.nan").unwrap_err();
    assert_eq!(error.to_string(), "--set v=.nan:1:9: v: `.nan` is not a finite number\n  hint: quote it if text is meant");
    let error = load("v: 1").set("v={a: {b: .nan}}").unwrap_err();
    assert!(error.to_string().starts_with("--set v={a: {b: .nan}}:1:17: v.a.b: `.nan` is not"), "{error}");
    let error = load("v: 1").set("v={a: [1,\n .nan]}").unwrap_err();
    assert!(error.to_string().contains(":2:2: v.a[1]: `.nan` is not"), "{error}");
}

#[test]
fn an_overlay_merges_maps_and_replaces_the_rest() {
    let mut document = load("a: {b: 1, c: [1, 2]}\nd: x\n");
    document.overlay(&Document::parse("over.yaml", b"a: {c: [3], e: 4}", LineEndings::Lf).unwrap());
    assert_eq!(document.to_json(), r#"{"a": {"b": 1, "c": [3], "e": 4}, "d": "x"}"#);
    assert_eq!(document.error_at("a.e", "wrong").to_string(), "over.yaml:1:16: a.e: wrong");
}

#[test]
fn names_are_near_when_at_most_a_third_changes() {
    assert_eq!(nearest("max-num-seq", ["max_num_seqs", "max_model_len"]), Some("max_num_seqs"));
    assert_eq!(nearest("H100", ["h200", "h100"]), Some("h100"));
    assert_eq!(nearest("zebra", ["h200", "h100"]), None);
    assert_eq!(nearest("a100", ["h100", "a100-sxm"]), Some("a100-sxm"), "words may be left out at the end");
    assert_eq!(nearest("H100", ["h100-nvl", "h100"]), Some("h100"));
    assert_eq!(nearest("h200-sxm", ["b200", "h200"]), Some("h200"));
    assert_eq!(nearest("memory_bandwith", ["memory", "memory_bandwidth"]), Some("memory_bandwidth"));
}

#[test]
fn carriage_returns_are_for_files_users_write() {
    let text = b"v: 1\r\n";
    assert!(Document::parse("f.yaml", text, LineEndings::LfOrCrLf).is_ok());
    let error = Document::parse("f.yaml", text, LineEndings::Lf).unwrap_err();
    assert_eq!(error.to_string(), "f.yaml:1:5: a carriage return may not stand here\n  hint: end lines with a line feed");
    assert!(Document::parse("f.yaml", b"v: 1\rw: 2", LineEndings::LfOrCrLf).is_err());
}

#[test]
fn json_is_read_as_written_by_others() {
    let text = "{\n\t\"a\":[1,-2.5e+3,true,null,\"\\u00e9\\/\\n\"],\n\t\"b\":{}\n}\n";
    assert_eq!(load(text).to_json(), "{\"a\": [1, -2.5e+3, true, null, \"é/\\n\"], \"b\": {}}");
}

#[test]
fn a_map_of_one_key_names_a_variant_and_holds_its_content() {
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Part {
        Bare,
        Sized { width: u32 },
        Named(String),
    }
    assert_eq!(value("{sized: {width: 3}}"), Ok(Part::Sized { width: 3 }));
    assert_eq!(value("{named: x}"), Ok(Part::Named("x".to_owned())));
    assert_eq!(value("bare"), Ok(Part::Bare));
    let refused = |text: &str| decode::<Holder<Part>>(&format!("v: {text}")).unwrap_err();
    assert_eq!(refused("{bare: 3}"), "f.yaml:1:11: v.bare: the name stands alone, without a value");
    assert_eq!(refused("{sized: {wdth: 3}}"), "f.yaml:1:13: v.sized.wdth: unknown key `wdth`\n  hint: did you mean `width`?");
    assert_eq!(refused("sized"), "f.yaml:1:4: v: the name alone is not enough here\n  hint: write a map of the name and its content");
    assert_eq!(refused("{szed: {}}"), "f.yaml:1:4: v: expected one of bare, sized, named, found a map");
    assert_eq!(refused("{bare: 1, named: x}"), "f.yaml:1:4: v: expected one of bare, sized, named, found a map");
}
