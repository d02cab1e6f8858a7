//! The KV caches of a scenario's model, from the content of its `config.json`.
//!
//! The oracle transcribes the same few model files: layer names, and which layers have a window.

use serde_json::{Map, Value};

use super::setup::SetupError;
use crate::kv::group::Attention;
use crate::kv_sizing::LayerKv;

/// Bytes of an element of the 16-bit types the presets use.
const ELEMENT_BYTES: u64 = 2;

/// A scenario's model, as far as its KV cache goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceModel {
    pub(super) layers: Vec<LayerKv>,
}

impl TraceModel {
    pub(super) fn read(given: &Value) -> Result<Self, SetupError> {
        let config = merged(given)?;
        let count = |key: &str| config.get(key).and_then(Value::as_u64).ok_or_else(|| SetupError::model(format!("{key} is not a count")));
        let model_type = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
        let has_window = match model_type {
            "gpt_oss" => true,
            "llama" | "qwen3" | "qwen3_moe" => false,
            other => return Err(SetupError::model(format!("model_type {other:?} has no transcription of its layers"))),
        };
        let module = if has_window { "attn" } else { "self_attn" };
        let bytes_per_token = 2 * count("num_key_value_heads")? * count("head_dim")? * ELEMENT_BYTES;
        let mut layers = Vec::new();
        for index in 0..count("num_hidden_layers")? {
            let attention = if has_window && index % 2 == 0 {
                let window =
                    u32::try_from(count("sliding_window")?).map_err(|_| SetupError::model("sliding_window is too large".to_owned()))?;
                Attention::SlidingWindow { window }
            } else {
                Attention::Full
            };
            layers.push(LayerKv { name: format!("model.layers.{index}.{module}.attn"), attention, bytes_per_token });
        }
        Ok(Self { layers })
    }
}

/// The preset's keys under the given ones.
fn merged(given: &Value) -> Result<Map<String, Value>, SetupError> {
    let (preset, keys) = match given {
        Value::String(name) => (Some(name.clone()), Map::new()),
        Value::Object(keys) => {
            let mut keys = keys.clone();
            let preset = keys.remove("preset").and_then(|name| name.as_str().map(str::to_owned));
            (preset, keys)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return Err(SetupError::model("expected a preset's name or a map".to_owned()));
        }
    };
    let mut config = match preset.as_deref() {
        None => Map::new(),
        Some("tiny-llama") => tiny("llama", 2, None),
        Some("tiny-gptoss") => tiny("gpt_oss", 4, Some(128)),
        Some(other) => return Err(SetupError::model(format!("unknown preset {other:?}; known are tiny-llama, tiny-gptoss"))),
    };
    config.extend(keys);
    Ok(config)
}

fn tiny(model_type: &str, layers: u32, window: Option<u32>) -> Map<String, Value> {
    let mut config = Map::new();
    config.insert("model_type".to_owned(), model_type.into());
    config.insert("num_hidden_layers".to_owned(), layers.into());
    config.insert("num_key_value_heads".to_owned(), 2.into());
    config.insert("head_dim".to_owned(), 64.into());
    if let Some(window) = window {
        config.insert("sliding_window".to_owned(), window.into());
    }
    config
}
