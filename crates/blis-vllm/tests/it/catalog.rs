//! The catalog's models and chips, lowered.

use std::fs;
use std::path::Path;

use blis_contracts::chip::Chip;
use blis_contracts::model::ModelGraph;
use blis_contracts::plan::PoolPlan;
use blis_contracts::strict::{Document, LineEndings};
use blis_vllm::config::{Launch, Machine, read, resolve};
use blis_vllm::lowering::lower;
use serde::de::DeserializeOwned;

/// A file of the catalog.
pub(crate) fn load<T: DeserializeOwned>(path: &str) -> T {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalog").join(path);
    let text = fs::read(&file).unwrap_or_else(|error| panic!("{path}: {error}"));
    let document = Document::parse(path, &text, LineEndings::Lf).expect("the catalog is well-formed");
    document.decode().expect("the catalog is valid")
}

/// The plan of a catalog model on a catalog chip, or what refuses it.
pub(crate) fn lowered(model: &str, chip: &str, arguments: &str) -> Result<PoolPlan, String> {
    let model: ModelGraph = load(&format!("models/{model}/graph.yaml"));
    let chip: Chip = load(&format!("hardware/{chip}.yaml"));
    let line = format!("vllm serve m {arguments}");
    let stated = read(Launch { command: Some(&line), args: None, env: &[], written_for: None }).map_err(|error| error.to_string())?;
    let machine = Machine { model: &model, chip: &chip, gpus: 8 };
    let resolved = resolve(&stated, machine).map_err(|error| error.to_string())?;
    lower(&model, &resolved, &chip).map_err(|error| error.to_string())
}
