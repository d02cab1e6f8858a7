//! The generated table and the code that reads it agree.

use std::collections::BTreeSet;

use crate::config::formerly::Release;
use crate::config::table::Field;
use crate::config::{
    AttentionBackend, Becomes, CompilationMode, CudagraphMode, FlashinferAllreduce, HashAlgo, KvCacheDtype, LinearBackend, MatmulPrecision,
    MlaPrefillBackend, MoeBackend, SchedulingPolicy, Setting, Status, config_classes, fields, former_spellings, gone_flags,
};

#[test]
fn every_field_has_a_status_and_a_reason() {
    assert!(fields().len() > 700, "the table holds the flags, keys and variables of a release");
    assert!(fields().iter().all(|field| !field.reason().is_empty()));
}

#[test]
fn each_field_of_each_class_is_stated_by_settings_of_the_table_or_by_nothing() {
    let stated: Vec<bool> = config_classes()
        .iter()
        .flat_map(|class| &class.fields)
        .map(|(name, keys)| {
            assert!(keys.iter().all(|key| Field::named(key).is_some()), "{name}");
            !keys.is_empty()
        })
        .collect();
    assert_eq!((config_classes().len(), stated.len()), (48, 567), "those of the modelled release");
    assert!(stated.iter().filter(|stated| **stated).count() > 400 && stated.contains(&false));
    let method = config_classes().iter().find(|class| class.name == "SpeculativeConfig").map(|class| &class.fields);
    assert!(method.is_some_and(|fields| fields.contains(&("method", vec!["speculative_config.method"]))));
}

#[test]
fn the_settings_are_the_modelled_fields_in_order() {
    let modelled: Vec<&str> = fields().iter().filter(|field| field.status == Status::Modelled).map(|field| field.key).collect();
    assert_eq!(modelled, Setting::KEYS);
    for (setting, key) in Setting::ALL.iter().zip(Setting::KEYS) {
        assert_eq!((setting.key(), Field::of(*setting).key), (*key, *key));
    }
}

#[test]
fn names_and_spellings_are_unique() {
    let keys: BTreeSet<&str> = fields().iter().map(|field| field.key).collect();
    assert_eq!(keys.len(), fields().len());
    let flags: Vec<&str> = fields().iter().flat_map(|field| field.flags.iter().copied()).collect();
    assert_eq!(flags.iter().collect::<BTreeSet<_>>().len(), flags.len());
}

#[test]
fn enumerations_hold_exactly_the_modelled_choices_of_their_fields() {
    let same = |setting: Setting, names: Vec<&str>| {
        let field = Field::of(setting);
        let modelled = if field.values.is_empty() { &field.choices } else { &field.values };
        assert_eq!(modelled.iter().collect::<BTreeSet<_>>(), names.iter().collect::<BTreeSet<_>>(), "{}", field.key);
    };
    same(Setting::KvCacheDtype, KvCacheDtype::ALL.iter().map(|choice| choice.as_str()).collect());
    same(Setting::PrefixCachingHashAlgo, HashAlgo::ALL.iter().map(|choice| choice.as_str()).collect());
    same(Setting::SchedulingPolicy, SchedulingPolicy::ALL.iter().map(|choice| choice.as_str()).collect());
    same(Setting::CompilationConfigMode, CompilationMode::ALL.iter().map(|choice| choice.as_str()).collect());
    same(Setting::CompilationConfigCudagraphMode, CudagraphMode::ALL.iter().map(|choice| choice.as_str()).collect());
    same(Setting::AttentionBackend, AttentionBackend::ALL.iter().map(|choice| choice.as_str()).collect());
    same(Setting::AttentionConfigMlaPrefillBackend, MlaPrefillBackend::ALL.iter().map(|choice| choice.as_str()).collect());
    same(Setting::MoeBackend, MoeBackend::ALL.iter().map(|choice| choice.as_str()).collect());
    same(Setting::LinearBackend, LinearBackend::ALL.iter().map(|choice| choice.as_str()).collect());
    same(Setting::VllmFlashinferAllreduceBackend, FlashinferAllreduce::ALL.iter().map(|choice| choice.as_str()).collect());
    same(Setting::VllmFloat32MatmulPrecision, MatmulPrecision::ALL.iter().map(|choice| choice.as_str()).collect());
}

#[test]
fn every_former_spelling_names_real_releases_and_fields() {
    assert!(former_spellings().len() >= 30);
    for row in former_spellings() {
        let release = |text: &str| Release::parse(text).unwrap();
        let until = row.until.map(release);
        assert!(until.is_none_or(|until| release(row.from) < until), "{}", row.old);
        let covers = |seen| release(row.from) <= seen && until.is_none_or(|until| seen < until);
        assert!(!row.seen.is_empty() && row.seen.iter().all(|seen| covers(release(seen))), "{}", row.old);
        assert!(row.to.keys().all(|key| Field::named(key).is_some()), "{}", row.old);
        assert_eq!(row.to.is_empty(), matches!(row.becomes, Becomes::Nothing | Becomes::Refused), "{}", row.old);
    }
}

#[test]
fn every_flag_that_is_gone_is_told_with_what_takes_its_place() {
    let former: BTreeSet<&str> = former_spellings().iter().map(|row| row.old).collect();
    let flags: Vec<&str> = gone_flags().iter().flat_map(|gone| gone.flags.iter().copied()).collect();
    assert!(flags.len() >= 40 && flags.iter().all(|flag| Field::called(flag).is_none() && !former.contains(flag)));
    for gone in gone_flags() {
        let [from, until] = [gone.from, gone.until].map(|release| release.map(|text| Release::parse(text).unwrap()));
        assert!(from.zip(until).is_none_or(|(from, until)| from < until), "{:?}", gone.flags);
        assert!(from.or(until).is_some(), "{:?}", gone.flags);
        let named: Vec<&str> = gone.instead.split([' ', ',', ';']).filter(|word| word.starts_with("--")).collect();
        assert!(!named.is_empty() || gone.instead.ends_with("; leave it out"), "{:?}: {}", gone.flags, gone.instead);
        for flag in named {
            let key = flag.trim_start_matches('-').replacen('-', "_", 9);
            let name = flag.split('.').next().unwrap_or(flag);
            assert!(Field::called(name).is_some() && (name == flag || Field::called(&key).is_some()), "{flag}");
        }
    }
}
