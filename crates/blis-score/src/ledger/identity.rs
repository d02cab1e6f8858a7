//! Identifiers: canonical JSON, unit identifiers and role keys.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::jsonl::hex;
use crate::sweep::Sweep;

/// JSON in one spelling: UTF-8, keys sorted by their bytes, no spaces.
pub fn canonical_json(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_unstable();
            let members: Vec<String> =
                keys.iter().map(|key| format!("{}:{}", Value::from(key.as_str()), canonical_json(&map[*key]))).collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical_json).collect::<Vec<_>>().join(",")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// The fields that identify the unit of one point, in the source's own names; a value the source lacks is null.
///
/// The recipe and the image stand for the configuration that the source hashes; any digest on the image is left out, because the source
/// records it for some runs and not for others.
pub fn identifying_fields(source: &str, sweep: &Sweep, concurrency: u32) -> Value {
    let image = sweep.launch.image.split_once("@sha256:").map_or(sweep.launch.image.as_str(), |(image, _)| image);
    json!({
        "source": source,
        "scenario": sweep.scenario,
        "label": sweep.label,
        "framework": sweep.framework,
        "gpu": sweep.gpu,
        "precision": sweep.precision,
        "parallel": sweep.parallel,
        "image": image,
        "script": sweep.launch.script,
        "isl": sweep.launch.client.isl,
        "osl": sweep.launch.client.osl,
        "run_date": sweep.run_date,
        "concurrency": concurrency,
    })
}

/// What units share that must share a role: every point and every repetition of one deployment.
pub fn role_key(source: &str, sweep: &Sweep) -> Value {
    json!({ "source": source, "scenario": sweep.scenario, "label": sweep.label })
}

/// The identifier of a set of identifying fields: SHA-256 of their canonical JSON, in hexadecimal.
pub fn unit_id(fields: &Value) -> String {
    hex(&Sha256::digest(canonical_json(fields).as_bytes()))
}
