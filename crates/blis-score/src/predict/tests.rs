//! Predictions of small sweeps, refusals, and the order of the answer.

use super::*;
use crate::grade::Grade;
use crate::jsonl::Input;
use crate::sweep::read_sweeps;

/// A sweep of gpt-oss-20b small enough for a test, with `$CONC` in its launch line.
const SWEEP: &str = r#"{"scenario":"small-h100-fp4-vllm-tp1","label":"64i32o","framework":"vllm","gpu":"h100","precision":"fp4","parallel":{"tp":1,"pp":1,"adp":1,"mtp":1,"mep":1},"run_date":"2026-05-30","concurrency":[1,4,2],"launch":{"script":"x","image":"vllm/vllm-openai:v0.22.0","server_command":"vllm serve openai/gpt-oss-20b --max-num-seqs $CONC --max-num-batched-tokens 8192 FLAGS","args":{},"env":{},"client":{"num_prompts":"$CONC*10","max_concurrency":"$CONC","request_rate":"inf","ignore_eos":true,"isl":64,"osl":32,"range_ratio":0.8,"seed":0,"warmups":"2*$CONC requests before timing"},"notes":""}}"#;

fn sweep(edits: &[(&str, &str)]) -> Vec<Sweep> {
    let text = edits.iter().fold(SWEEP.to_owned(), |text, (from, to)| text.replace(from, to)).replace("FLAGS", "");
    read_sweeps(&Input::of("units", text)).unwrap()
}

fn predicted(units: &[Sweep]) -> Vec<Prediction> {
    predict(units, 2, &World::released(), &|_| {})
}

#[test]
fn each_point_is_answered_in_the_order_of_the_units_whatever_the_jobs() {
    let units = sweep(&[]);
    let answers = predicted(&units);
    assert_eq!(answers.iter().map(|answer| answer.concurrency).collect::<Vec<_>>(), [1, 4, 2]);
    assert_eq!(answers, predict(&units, 1, &World::released(), &|_| {}));
    for answer in &answers {
        assert_eq!((answer.refused.as_ref(), answer.grade), (None, Grade::G4), "{answer:?}");
        let (ttft, tpot) = (answer.mean_ttft_us.unwrap(), answer.mean_tpot_us.unwrap());
        assert!(tpot > 100.0 && ttft > tpot, "{answer:?}");
    }
    let tpot = |concurrency| answers.iter().find(|answer| answer.concurrency == concurrency).and_then(|answer| answer.mean_tpot_us);
    assert!(tpot(1) < tpot(4));
}

#[test]
fn the_cache_of_a_prediction_is_that_of_one_core_as_each_logs_it() {
    let tokens = |flags: &str, width: &str| predicted(&sweep(&[("FLAGS", flags), ("\"adp\":1", width)]))[0].kv_tokens.unwrap();
    let (one, of_two) = (tokens("--data-parallel-size 1", "\"adp\":1"), tokens("--data-parallel-size 2", "\"adp\":2"));
    assert!(one < of_two && of_two < one * 3 / 2, "a core keeps half of the experts, and its own cache: {one} {of_two}");
}

#[test]
fn a_point_that_cannot_run_is_a_line_with_its_reason_and_no_figure() {
    for (edits, code, subject, text) in [
        (
            &[("\"vllm\"", "\"sglang\""), ("-vllm-", "-sglang-")][..],
            ReasonCode::EngineUnsupported,
            "sglang",
            "engine `sglang` is not modelled",
        ),
        (&[("vllm-openai:v0.22.0", "vllm-openai")], ReasonCode::BuildUnparseable, "launch.image", "has no tag"),
        (&[("openai/gpt-oss-20b", "nobody/nothing")], ReasonCode::NotInCatalog, "nobody/nothing", "no model `nobody/nothing`"),
        (&[("h100", "h1000")], ReasonCode::NotInCatalog, "h1000", "no chip `h1000`"),
        (&[("FLAGS", "--enable-lora")], ReasonCode::FieldNotModelled, "--enable-lora", "is not modelled"),
        (&[("FLAGS", "--no-such-flag 2")], ReasonCode::FieldNotInRelease, "--no-such-flag", "unrecognized arguments"),
        (&[("FLAGS", "--port 'x")], ReasonCode::LaunchUnreadable, "launch.server_command", "quotes do not balance"),
        (&[("FLAGS", "--max-model-len 48"), ("\"osl\":32", "\"osl\":40")], ReasonCode::RunRefused, "requests", "requests were refused: "),
        (&[("\"request_rate\":\"inf\",", "")], ReasonCode::ValueNotRecorded, "client.request_rate", "was not recorded"),
        (&[("\"inf\"", "8")], ReasonCode::FieldNotModelled, "client.request_rate", "is 8; only \"inf\" is simulated"),
    ] {
        let [answer, ..] = &predicted(&sweep(edits))[..] else { panic!("three points") };
        let [reason] = &answer.grade_reasons[..] else { panic!("one reason: {answer:?}") };
        assert_eq!((reason.code, reason.subject.as_str()), (code, subject), "{reason:?}");
        assert!(reason.text.contains(text), "{reason:?}");
        assert_eq!(
            (answer.grade, answer.mean_ttft_us, answer.kv_tokens, &answer.refused),
            (Grade::G5, None, None, &Some(reason.text.clone()))
        );
    }
}

#[test]
fn every_reason_why_a_point_cannot_run_is_told() {
    let edits = [
        ("h100", "h1000"),
        ("openai/gpt-oss-20b", "nobody/nothing"),
        ("FLAGS", "--no-such-flag 2 --enable-lora --scheduler-cls my.own"),
        ("\"inf\"", "8"),
    ];
    let [answer, ..] = &predicted(&sweep(&edits))[..] else { panic!("three points") };
    let told: Vec<(ReasonCode, &str)> = answer.grade_reasons.iter().map(|reason| (reason.code, reason.subject.as_str())).collect();
    let expected = [
        (ReasonCode::CodeNotVisible, "--scheduler-cls"),
        (ReasonCode::FieldNotModelled, "--enable-lora"),
        (ReasonCode::FieldNotModelled, "client.request_rate"),
        (ReasonCode::NotInCatalog, "h1000"),
        (ReasonCode::NotInCatalog, "nobody/nothing"),
        (ReasonCode::FieldNotInRelease, "--no-such-flag"),
    ];
    assert_eq!(told, expected);
    let refused = answer.refused.as_ref().unwrap();
    assert!(answer.grade_reasons.iter().all(|reason| refused.contains(&reason.text)), "{refused}");
}

#[test]
fn a_setting_that_is_not_modelled_is_estimated_by_the_engines_rule_and_named() {
    let [answer, ..] = &predicted(&sweep(&[("FLAGS", "--distributed-executor-backend ray")]))[..] else { panic!("three points") };
    let reason = answer.grade_reasons.iter().find(|reason| reason.code == ReasonCode::SettingEstimated).unwrap();
    assert_eq!((reason.subject.as_str(), answer.refused.as_ref()), ("--distributed-executor-backend", None));
    assert!(reason.text.contains("ray is not modelled; it is left out"), "{reason:?}");
    let [plain, ..] = &predicted(&sweep(&[]))[..] else { panic!("three points") };
    assert_eq!(answer.mean_tpot_us, plain.mean_tpot_us);
}

/// The codes of the first point's reasons that are not about prices, and its grade.
fn graded(edits: &[(&str, &str)]) -> (Vec<ReasonCode>, Grade) {
    let answer = predicted(&sweep(edits)).remove(0);
    let about_prices = |code: ReasonCode| code.is_about_prices() || code == ReasonCode::CoefficientExtrapolated;
    (answer.grade_reasons.iter().map(|reason| reason.code).filter(|code| !about_prices(*code)).collect(), answer.grade)
}

/// The edit that gives the sweep a server log.
fn logged(settings: &str) -> (&'static str, String) {
    ("\"launch\":", format!("\"settings\":{{\"all\":{settings},\"by_concurrency\":{{}}}},\"launch\":"))
}

#[test]
fn the_build_that_ran_decides_between_an_estimate_and_another_version() {
    let image = |tag: &str| format!("vllm-openai:{tag}");
    let of = |tag: &str, line: &str| graded(&[("vllm-openai:v0.22.0", &image(tag)), ("FLAGS", line)]);
    let [unlogged, client] = [ReasonCode::SettingsUnlogged, ReasonCode::ClientDiffers];
    assert_eq!(of(&format!("v{}", blis_vllm::RELEASE), ""), (vec![unlogged, client], Grade::G2));
    // A mixture of experts took another model runner by default until then.
    let earlier = [unlogged, ReasonCode::SettingTranslated, client];
    assert_eq!(of("v0.22.0", ""), ([&earlier[..], &[ReasonCode::OtherRelease]].concat(), Grade::G4));
    assert_eq!(of("nightly-93d8f834", ""), ([&earlier[..], &[ReasonCode::NightlyBuild]].concat(), Grade::G4));
    assert_eq!(of("mine", ""), ([&earlier[..], &[ReasonCode::CustomBuild]].concat(), Grade::G4));
    let translated = ReasonCode::SettingTranslated;
    let codes = vec![unlogged, translated, translated, ReasonCode::SpellingsAssumed, client, ReasonCode::NightlyBuild];
    assert_eq!(of("nightly-93d8f834", "--disable-log-requests"), (codes, Grade::G4), "an earlier spelling in a build of no release");
}

#[test]
fn what_the_log_says_was_passed_is_what_the_line_states() {
    let of = |settings: &str| {
        let (from, to) = logged(settings);
        graded(&[(from, &to)])
    };
    let agreed = vec![ReasonCode::SettingTranslated, ReasonCode::ClientDiffers, ReasonCode::OtherRelease];
    let passed = r#"{"passed":{"max_num_batched_tokens":8192.0,"model":"openai/gpt-oss-20b"},"resolved":{"engine_version":"0.22.0"}}"#;
    assert_eq!(of(passed), (agreed, Grade::G4));
    for contradiction in [
        passed.replace("8192", "4096"),
        passed.replace("max_num_batched_tokens", "block_size"),
        passed.replace("gpt-oss-20b", "gpt-oss-120b"),
        passed.replace("0.22.0", "0.21.0"),
    ] {
        assert_eq!(of(&contradiction), (vec![ReasonCode::ValueConflict], Grade::G5), "{contradiction}");
    }
    let resolved = passed.replace("\"engine_version\"", "\"max_num_batched_tokens\":2048,\"engine_version\"");
    assert_eq!(of(&resolved).0[0], ReasonCode::ResolutionDiffers);
}

#[test]
fn a_layout_that_the_launch_line_contradicts_is_told() {
    for (field, flags) in [("\"tp\":1", "-tp 2"), ("\"adp\":1", "-dp 2")] {
        let wider = field.replace('1', "2");
        let of = |edits: &[(&str, &str)]| graded(edits).0.contains(&ReasonCode::LayoutDiffers);
        assert!(of(&[("FLAGS", flags)]) && of(&[(field, &wider)]) && !of(&[("FLAGS", flags), (field, &wider)]), "{field}");
    }
}

#[test]
fn a_warm_up_changes_a_run_only_where_prefixes_are_cached() {
    let run = |flags: &str, warmups: &str| predicted(&sweep(&[("FLAGS", flags), ("2*$CONC requests before timing", warmups)]));
    let without = "--no-enable-prefix-caching";
    assert_eq!(run(without, "2*$CONC requests before timing"), run(without, "none"));
    let cached = run("", "2*$CONC requests before timing");
    assert_ne!(cached, run("", "none"), "the first request's prompt is cached by its copies");
}
