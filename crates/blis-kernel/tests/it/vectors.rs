//! Every form answers what its twin in the fitting scripts answers.

use blis_kernel::forms::Form;
use blis_kernel::inputs::Inputs;
use blis_registry::Entry;
use blis_registry::vocabulary::{FormName, Input, Subject};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::{Value, json};

const VECTORS: &str = include_str!("../../../../fitting/vectors.json");

/// Cases of each form that must be there at least.
const LEAST_CASES: usize = 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    inputs: IndexMap<Input, f64>,
    coefficients: IndexMap<String, Value>,
    curves: IndexMap<String, Value>,
    answer: f64,
}

/// An entry with a case's coefficients; provenance does not matter to a form.
fn entry(form: FormName, case: &Case) -> Entry {
    let unit = |name: &str| form.coefficient(name).unwrap_or_else(|| panic!("{form} reads no {name}")).unit;
    let subject = Subject::ALL.iter().find(|subject| subject.forms().contains(&form)).expect("every form prices something");
    let ranges = case.coefficients.get("ranges").cloned().unwrap_or(json!([]));
    let constants = case.coefficients.iter().filter(|(name, _)| *name != "ranges");
    let coefficients: serde_json::Map<_, _> =
        constants.map(|(name, value)| (name.clone(), json!({"value": value, "unit": unit(name)}))).collect();
    let curve =
        |(name, curve): (&String, &Value)| (name.clone(), json!({"over": curve["over"], "points": curve["points"], "unit": unit(name)}));
    let curves: serde_json::Map<_, _> = case.curves.iter().map(curve).collect();
    let document = json!({
        "name": "case", "primitive": subject, "method": "assumed", "form": form, "coefficients": coefficients, "curves": curves,
        "ranges": ranges, "boundary": {"clock": "device", "launch": "graph"},
    });
    serde_json::from_value(document).expect("a case is an entry")
}

#[test]
fn every_form_agrees_with_its_python_twin() {
    let vectors: IndexMap<FormName, Vec<Case>> = serde_json::from_str(VECTORS).unwrap();
    for &form in FormName::ALL {
        let cases = vectors.get(&form).unwrap_or_else(|| panic!("no vectors for {form}"));
        assert!(cases.len() >= LEAST_CASES, "{form}: {} vectors", cases.len());
        for (index, case) in cases.iter().enumerate() {
            let inputs = case.inputs.iter().fold(Inputs::NONE, |inputs, (&input, &value)| inputs.with(input, value));
            let answer = Form::read(&entry(form, case), &Inputs::NONE).price(&inputs);
            let error = (answer / case.answer - 1.0).abs();
            assert!(error < 1e-9, "{form} case {index}: {answer}, the twin says {}", case.answer);
        }
    }
}

#[test]
fn the_vectors_name_no_form_that_is_not_there() {
    let vectors: IndexMap<String, Value> = serde_json::from_str(VECTORS).unwrap();
    let known: Vec<&str> = FormName::ALL.iter().map(|form| form.as_str()).collect();
    assert!(vectors.keys().all(|form| known.contains(&form.as_str())), "{:?}", vectors.keys());
}
