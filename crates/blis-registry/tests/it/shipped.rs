//! The copy compiled into the program.

use std::path::Path;

use blis_registry::Registry;
use blis_registry::vocabulary::{Family, Subject};

/// The least a shipped registry holds; a build that embeds less has lost something.
const LEAST_CHIPS: usize = 9;

fn checkout() -> Registry {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../registry");
    Registry::open(&root, &[]).expect("the shipped registry is valid")
}

#[test]
fn every_file_is_valid_and_every_chip_has_every_family() {
    let registry = checkout();
    assert!(registry.chips().len() >= LEAST_CHIPS);
    for chip in registry.chips() {
        let coefficients = registry.chip(&chip).unwrap();
        let families: Vec<Family> = coefficients.entries().iter().map(|entry| entry.primitive.family()).collect();
        assert!(Family::ALL.iter().all(|family| families.contains(family)), "{chip}: {families:?}");
        let subjects: Vec<Subject> = coefficients.entries().iter().map(|entry| entry.primitive).collect();
        assert!(Subject::ALL.iter().all(|subject| subjects.contains(subject)), "{chip}: {subjects:?}");
    }
    let errors = registry.errors().expect("the shipped registry has a table of errors");
    assert!(errors.rows.len() > 10 && errors.coverage.len() == 6);
    assert!(registry.files_not_read().is_empty());
}

#[test]
fn the_embedded_copy_equals_the_checkout() {
    let (embedded, checkout) = (Registry::embedded(), checkout());
    assert_eq!(embedded.content_hash(), checkout.content_hash());
    assert_eq!(embedded.chips(), checkout.chips());
    for chip in embedded.chips() {
        assert_eq!(embedded.chip(&chip).unwrap(), checkout.chip(&chip).unwrap());
    }
    assert_eq!(embedded.errors(), checkout.errors());
}

#[test]
fn a_run_reads_only_its_own_chip() {
    let registry = Registry::embedded();
    registry.chip("h200").unwrap();
    assert!(registry.files_read().iter().all(|path| path.starts_with("h200/")), "{:?}", registry.files_read());
    assert!(registry.files_not_read().iter().any(|path| path.starts_with("h100/")));
}

#[test]
fn a_chip_without_coefficients_is_refused_with_the_nearest_name() {
    let error = Registry::embedded().chip("h20O").unwrap_err();
    let blis_registry::RegistryError::UnknownChip { nearest, .. } = &error else { panic!("{error}") };
    assert_eq!(nearest.as_deref(), Some("h200"));
    assert!(error.to_string().starts_with("no coefficients of the chip `h20O` in the registry (embedded); it has a100-sxm"), "{error}");
}

#[test]
fn no_entry_is_scoped_to_a_model() {
    // Entries have no field for a model; their names must not smuggle one in.
    let registry = Registry::embedded();
    for chip in registry.chips() {
        for entry in registry.chip(&chip).unwrap().entries() {
            let name = entry.name.to_lowercase();
            assert!(["llama", "qwen", "gpt-oss", "deepseek"].iter().all(|model| !name.contains(model)), "{chip}: {name}");
        }
    }
}
