//! The shipped registry prices everything a plan may hold, on every chip (VAL-2, SUB-7), and holds nothing no plan asks for (VAL-8).

use blis_catalog::Catalog;
use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::plan::{KernelImpl, PrimitiveShape};
use blis_contracts::step::Launch;
use blis_registry::vocabulary::{Subject, Tier};
use blis_registry::{Query, Registry};

use crate::fixture::{CHIPS, decode, mixture, model, prefill, step};

#[test]
fn every_subject_has_a_value_on_every_chip_whatever_the_kernel_format_and_group() {
    let registry = Registry::embedded();
    let unknown = KernelImpl::named("a-library", "of-tomorrow");
    assert_eq!(registry.chips(), Catalog::embedded().chips().collect::<Vec<_>>(), "the registry and the catalog name the same chips");
    let mut missing = Vec::new();
    for chip in registry.chips() {
        let coefficients = registry.chip(&chip).unwrap();
        for &subject in Subject::ALL {
            for group in [None, Some(2), Some(4), Some(8), Some(16)] {
                let collective = matches!(subject, Subject::AllReduce | Subject::AllGather | Subject::ReduceScatter | Subject::Send);
                if collective && group.is_none() {
                    continue;
                }
                for &tier in Tier::ALL.iter().filter(|tier| collective || tier.is_nearest()) {
                    let query = Query { subject, kernel: Some(&unknown), format: Some("of_tomorrow"), group, tier };
                    if coefficients.find(&query).is_err() {
                        missing.push(format!("{chip}: {subject}, group {group:?}, {tier}"));
                    }
                }
            }
        }
    }
    assert!(missing.is_empty(), "no value for {missing:#?}");
}

#[test]
fn every_way_to_launch_a_pass_has_a_finite_positive_price_on_every_chip() {
    for chip in CHIPS {
        let mut plan = model(chip).compile(&mixture(chip)).unwrap();
        for launch in Launch::ALL {
            for rank in [decode(&[1_000; 16], 16, launch), prefill(2_000, 0, launch)] {
                let estimate = plan.price(&step(rank));
                for ns in [estimate.before_ns, estimate.launch_ns, estimate.device_ns, estimate.after_ns] {
                    assert!(ns.is_finite() && ns > 0.0, "{chip} {launch:?}: {estimate:?}");
                }
            }
        }
    }
}

#[test]
fn every_format_of_weights_can_be_multiplied_on_every_chip() {
    for chip in CHIPS {
        for weights in FormatName::ALL {
            let mut plan = mixture(chip);
            let format = MatmulFormat { weights, activations: weights.usual_activations() };
            for layer in &mut plan.layers {
                if let PrimitiveShape::Gemm { format: stated, .. } | PrimitiveShape::Moe { format: stated, .. } = &mut layer.shape {
                    *stated = format;
                }
            }
            let shape = step(decode(&[500; 8], 8, Launch::Full));
            let estimate = model(chip).compile(&plan).unwrap().price(&shape);
            assert!(estimate.device_ns.is_finite() && estimate.device_ns > 0.0, "{chip} {weights}");
        }
    }
}

/// Every kernel an engine's lowering can name.
const KERNELS: &str = include_str!("../../../blis-vllm/kernel_impls.json");

/// Entries scoped by a format although no plan states one for such work; may only shrink.
const SCOPED_IN_VAIN: [&str; 2] = ["fp8-quantise", "nvfp4-quantise"];

#[test]
fn every_entry_can_be_selected_by_some_plan() {
    let kernels: serde_json::Value = serde_json::from_str(KERNELS).unwrap();
    let kernels: Vec<KernelImpl> = kernels["kernels"].as_array().unwrap().iter().map(named).collect();
    assert!(kernels.len() > 30, "{} kernels", kernels.len());
    let registry = Registry::embedded();
    for chip in registry.chips() {
        for entry in registry.chip(&chip).unwrap().entries() {
            if let Some(scope) = &entry.kernel {
                assert!(kernels.iter().any(|kernel| scope.covers(kernel)), "{chip}: no engine names the kernel of {}", entry.name);
            }
            let states_format = matches!(
                entry.primitive,
                Subject::Gemm
                    | Subject::MoeExperts
                    | Subject::AttentionPrefill
                    | Subject::AttentionDecode
                    | Subject::BatchedGemm
                    | Subject::LatentPrefill
                    | Subject::LatentDecode
            );
            let listed = SCOPED_IN_VAIN.contains(&entry.name.as_str());
            assert!(entry.format.is_none() || states_format || listed, "{chip}: no plan states the format of {}", entry.name);
        }
    }
}

fn named(kernel: &serde_json::Value) -> KernelImpl {
    KernelImpl::named(kernel["library"].as_str().expect("text"), kernel["variant"].as_str().expect("text"))
}

#[test]
fn a_plan_for_another_chip_is_refused_naming_both() {
    let error = model("h200").compile(&mixture("h100")).unwrap_err().to_string();
    assert!(error.contains("h100") && error.contains("h200"), "{error}");
}
