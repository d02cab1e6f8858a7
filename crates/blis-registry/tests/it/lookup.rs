//! Look-ups rank by trust, then by scope, whatever the order of the entries (VAL-4 of the design).

use blis_contracts::plan::KernelImpl;
use blis_contracts::provenance::Method;
use blis_registry::vocabulary::{Family, Subject, Tier};
use blis_registry::{ChipCoefficients, CoefficientSet, Entry, Query, Registry, SetError};

use crate::{GEMM, directory};

/// A plain entry to vary, read from the test's own directory.
fn base(test: &str) -> CoefficientSet {
    let root = directory(test, &[("h100/gemm.yaml", GEMM)]);
    let entries = Registry::open(&root, &[]).expect("the text is valid").chip("h100").expect("the chip is there").entries().to_vec();
    let kind = blis_registry::entry::CoefficientSetKind::CoefficientSet;
    CoefficientSet { kind, chip: "h100".to_owned(), family: Family::Gemm, script: "a test".to_owned(), entries }
}

/// Every scope an entry may have for the query below: by kernel or not, by format or not, by group or not.
fn scopes(method: Method, template: &Entry) -> Vec<Entry> {
    let kernel = template.kernel.clone();
    (0..8)
        .map(|bits: u32| Entry {
            name: format!("{method}-{bits:03b}"),
            kernel: (bits & 4 != 0).then(|| kernel.clone()).flatten(),
            format: (bits & 2 != 0).then(|| "bf16".to_owned()),
            group: (bits & 1 != 0).then_some(4),
            method,
            ..template.clone()
        })
        .collect()
}

#[test]
fn every_pair_of_entries_is_ordered_by_method_then_kernel_then_format_then_group_in_either_order() {
    let set = base("lookup-order");
    let entries: Vec<Entry> =
        [Method::Measured, Method::Transferred, Method::Roofline].into_iter().flat_map(|method| scopes(method, &set.entries[0])).collect();
    let kernel = KernelImpl::named("cublas", "linear");
    let query = Query { subject: Subject::Gemm, kernel: Some(&kernel), format: Some("bf16"), group: Some(4), tier: Tier::Domain };
    let trust = |entry: &Entry| (entry.method, std::cmp::Reverse((entry.kernel.is_some(), entry.format.is_some(), entry.group.is_some())));
    for first in &entries {
        for second in entries.iter().filter(|other| other.name != first.name) {
            let pair = CoefficientSet { entries: vec![first.clone(), second.clone()], ..set.clone() };
            let coefficients = ChipCoefficients::new("h100", [pair]).unwrap();
            let found = coefficients.find(&query).unwrap();
            let better = if trust(first) < trust(second) { first } else { second };
            assert_eq!(found.entry.name, better.name);
            assert_eq!(found.displaced.len(), 1);
        }
    }
}

#[test]
fn an_entry_of_another_kernel_format_or_group_does_not_match() {
    let set = base("lookup-scope");
    let coefficients = ChipCoefficients::new("h100", [set]).unwrap();
    let (cublas, other) = (KernelImpl::named("cublas", "linear"), KernelImpl::named("marlin", "linear"));
    let name = |kernel, format| {
        let query = Query { subject: Subject::Gemm, kernel: Some(kernel), format: Some(format), group: None, tier: Tier::Domain };
        coefficients.find(&query).unwrap().entry.name.clone()
    };
    assert_eq!(name(&cublas, "bf16"), "bf16");
    assert_eq!(name(&cublas, "fp8"), "any");
    assert_eq!(name(&other, "bf16"), "any");
}

#[test]
fn what_nothing_covers_is_named() {
    let coefficients = ChipCoefficients::new("h100", [base("lookup-nothing")]).unwrap();
    let kernel = KernelImpl::named("nccl", "all-reduce");
    let query = Query { subject: Subject::AllReduce, kernel: Some(&kernel), format: None, group: Some(4), tier: Tier::Domain };
    let error = coefficients.find(&query).unwrap_err().to_string();
    assert_eq!(error, "no coefficient of the chip `h100` prices `collective.all_reduce` by nccl/all-reduce over 4 ranks");
}

#[test]
fn a_set_of_another_chip_is_refused() {
    let error = ChipCoefficients::new("h200", [base("lookup-other-chip")]).unwrap_err();
    assert_eq!(error, SetError::OtherChip { chip: "h200".to_owned(), found: "h100".to_owned() });
}
