//! The shipped registry prices everything a plan may hold, on every chip (VAL-2, SUB-7), and its coefficients obey the chip (SUB-5).

use blis_catalog::Catalog;
use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::plan::{KernelImpl, PrimitiveShape};
use blis_contracts::step::Launch;
use blis_registry::vocabulary::Subject;
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
                let collective = matches!(subject, Subject::AllReduce | Subject::AllGather);
                if collective && group.is_none() {
                    continue;
                }
                let query = Query { subject, kernel: Some(&unknown), format: Some("of_tomorrow"), group };
                if coefficients.find(&query).is_err() {
                    missing.push(format!("{chip}: {subject}, group {group:?}"));
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

#[test]
fn a_plan_for_another_chip_is_refused_naming_both() {
    let error = model("h200").compile(&mixture("h100")).unwrap_err().to_string();
    assert!(error.contains("h100") && error.contains("h200"), "{error}");
}
