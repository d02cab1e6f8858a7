//! What the surface list says of a name is what the reader does with it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::config::table::Field;
use crate::config::{Launch, Status, read};
use crate::surface::{Coverage, Item, surface};

/// States one setting, dotted keys as objects, and answers the refusal.
fn refusal(setting: &str, value: Value) -> Option<String> {
    let mut stated = Map::from_iter([("model".to_owned(), json!("m"))]);
    match setting.split_once('.') {
        Some((object, key)) => stated.insert(object.to_owned(), json!({ key: value })),
        None => stated.insert(setting.to_owned(), value),
    };
    read(Launch { args: Some(&stated), ..Launch::default() }).err().map(|error| error.to_string())
}

fn named(item: &Item) -> Option<(&Field, &'static str)> {
    item.setting.map(|setting| (Field::named(setting).expect("a setting of the surface is a field"), setting))
}

#[test]
fn every_name_is_listed_once_with_a_status_and_a_reason() {
    let names: BTreeSet<_> = surface().iter().map(|item| (item.category, item.name)).collect();
    assert_eq!(names.len(), surface().len());
    assert!(names.len() > 350, "the release registers connectors, methods, backends, metrics");
    for item in surface() {
        assert!(!item.reason.is_empty(), "{}", item.name);
        assert_eq!(
            item.status == Coverage::Modelled,
            !item.evidence.is_empty(),
            "{}: what is modelled, and only that, has evidence",
            item.name
        );
        assert_eq!(item.status == Coverage::OutOfScope, item.scope.is_some(), "{}", item.name);
        assert!(item.traced.is_empty() || item.status == Coverage::Refused, "{}: what is only traced is refused", item.name);
    }
}

#[test]
fn a_value_of_an_enumerated_setting_runs_only_where_its_item_is_modelled() {
    let mut tried = 0;
    for item in surface() {
        let Some((field, setting)) = named(item) else { continue };
        let is_object = setting.ends_with("_config");
        if is_object || field.status == Status::Inert || (field.status == Status::NotModelled && field.values.is_empty()) {
            continue;
        }
        tried += 1;
        let refused = refusal(setting, json!(item.name));
        assert_eq!(refused.is_none(), item.status == Coverage::Modelled, "{setting} {}: {refused:?}", item.name);
        let by_name = refused.as_ref().is_none_or(|text| text.contains(item.name) && text.contains(field.name().trim_start_matches('-')));
        assert!(by_name, "{setting} {}: {refused:?}", item.name);
    }
    assert!(tried > 100, "{tried} values of enumerated settings");
}

#[test]
fn what_is_named_inside_a_refused_setting_is_refused_with_it() {
    let mut tried = 0;
    for item in surface() {
        let Some((field, setting)) = named(item) else { continue };
        if field.status != Status::NotModelled || !field.values.is_empty() {
            continue;
        }
        tried += 1;
        assert_ne!(item.status, Coverage::Modelled, "{setting} {}", item.name);
        let value = if setting.ends_with("_config") { json!({ "name": item.name }) } else { json!(item.name) };
        let refused = refusal(setting, value);
        let is_default = field.default == Some(json!(item.name));
        let by_name = refused.as_ref().is_some_and(|text| text.contains(field.name()) || text.contains(setting));
        assert!(is_default || by_name, "{setting} {}: {refused:?}", item.name);
    }
    assert!(tried > 60, "{tried} names inside refused settings");
}

#[test]
fn a_setting_that_no_decision_reads_names_nothing_that_is_modelled() {
    for item in surface() {
        let inert = named(item).is_some_and(|(field, _)| field.status == Status::Inert);
        assert!(!inert || item.status != Coverage::Modelled, "{} {}", item.category, item.name);
    }
}
