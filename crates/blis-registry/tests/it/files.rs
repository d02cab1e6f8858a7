//! Which files count, and what overlays do.

use blis_registry::{Registry, RegistryError};

use crate::{GEMM, directory};

fn refusal(root: &std::path::Path) -> String {
    let error = Registry::open(root, &[]).expect_err("the directory is wrong").to_string();
    error.replace(&format!("{}/", root.display()), "")
}

#[test]
fn a_directory_loads_with_its_hash_and_its_notes_ignored() {
    let root = directory("plain", &[("h100/gemm.yaml", GEMM), ("NOTES.md", "notes")]);
    let registry = Registry::open(&root, &[]).unwrap();
    assert_eq!(registry.chips(), ["h100"]);
    assert_eq!(registry.chip("h100").unwrap().entries().len(), 2);
    assert_eq!(registry.combined_hash(), registry.content_hash());
    assert_eq!(registry.source(), root.display().to_string());
}

#[test]
fn files_that_would_silently_price_nothing_are_refused() {
    let yml = directory("yml", &[("h100/gemm.yml", GEMM)]);
    assert_eq!(refusal(&yml), "h100/gemm.yml: matches no pattern of data (CHIP/FAMILY.yaml)");
    let top = directory("top", &[("gemm.yaml", GEMM)]);
    assert_eq!(refusal(&top), "gemm.yaml: matches no pattern of data (CHIP/FAMILY.yaml)");
    let deep = directory("deep", &[("h100/old/gemm.yaml", GEMM)]);
    assert_eq!(refusal(&deep), "h100/old: matches no pattern of data (CHIP/FAMILY.yaml)");
    let returns = directory("returns", &[("h100/gemm.yaml", &GEMM.replace('\n', "\r\n"))]);
    assert!(refusal(&returns).starts_with("h100/gemm.yaml: contains a carriage return"));
    assert!(refusal(&top.join("nowhere")).ends_with("not a directory"));
}

#[cfg(unix)]
#[test]
fn a_symbolic_link_is_refused() {
    let root = directory("link", &[("h100/gemm.yaml", GEMM)]);
    std::os::unix::fs::symlink(root.join("h100/gemm.yaml"), root.join("h100/moe.yaml")).unwrap();
    assert_eq!(refusal(&root), "h100/moe.yaml: a symbolic link; data are plain files");
}

#[test]
fn paths_that_differ_only_in_case_are_refused() {
    let root = directory("case", &[("h100/gemm.yaml", GEMM), ("H100/gemm.yaml", GEMM)]);
    // A file system that folds case holds only one of the two.
    if std::fs::read_dir(&root).unwrap().count() == 2 {
        assert_eq!(refusal(&root), "h100/gemm.yaml: differs from H100/gemm.yaml only in case");
    }
}

#[test]
fn a_file_in_another_place_than_it_states_is_refused() {
    let root = directory("misplaced", &[("h200/gemm.yaml", GEMM)]);
    assert!(refusal(&root).contains("the file states chip and family of h100/gemm.yaml"), "{}", refusal(&root));
}

#[test]
fn an_overlay_replaces_an_entry_of_the_same_name_and_scope_and_adds_others() {
    let base = directory("base", &[("h100/gemm.yaml", GEMM)]);
    let faster = GEMM.replace("value: 3,", "value: 2.75,").replace("name: any", "name: assumed-any").replace("roofline", "assumed");
    let overlay = directory("overlay", &[("h100/gemm.yaml", &faster)]);
    let registry = Registry::open(&base, &[&overlay]).unwrap();
    let coefficients = registry.chip("h100").unwrap();
    let names: Vec<&str> = coefficients.entries().iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["bf16", "any", "assumed-any"]);
    assert!((coefficients.entries()[0].coefficients["latency"].value - 2.75).abs() < 1e-12);
    assert_eq!(registry.overlay_hashes().len(), 1);
    assert_ne!(registry.combined_hash(), registry.content_hash());
}

#[test]
fn an_overlay_that_leaves_two_entries_unordered_is_refused() {
    let base = directory("clash-base", &[("h100/gemm.yaml", GEMM)]);
    let overlay = directory("clash", &[("h100/gemm.yaml", &GEMM.replace("name: any", "name: another"))]);
    let error = Registry::open(&base, &[&overlay]).unwrap_err();
    assert!(matches!(error, RegistryError::Set(_)), "{error}");
    assert_eq!(error.to_string(), "coefficients of the chip `h100`: `any` and `another` have the same scope and method");
}
