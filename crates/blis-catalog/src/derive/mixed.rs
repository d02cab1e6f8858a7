//! Checkpoints that state a format for each module: modelopt's `MIXED_PRECISION`.
//!
//! A module that is not listed stays as it is. Left out: experts of one layer in different formats, which a graph cannot state.

use blis_contracts::format::{FormatName, MatmulFormat};
use indexmap::IndexMap;

use super::DeriveError;
use super::keys::Keys;

/// The format of every listed module, all experts of a layer under the first one's name.
pub(crate) fn read(keys: &Keys<'_>) -> Result<IndexMap<String, MatmulFormat>, DeriveError> {
    const LIST: &str = "quantized_layers";
    let list = keys.required(LIST, keys.any(LIST))?;
    let modules = list.as_map().ok_or_else(|| keys.wrong(LIST, list, "an object of modules"))?;
    let mut formats: IndexMap<String, MatmulFormat> = IndexMap::with_capacity(modules.len());
    for (module, stated) in modules {
        let format = format(keys, module, stated)?;
        let known = formats.entry(first_expert(module)).or_insert(format);
        if *known != format {
            return Err(keys.wrong(LIST, stated, &format!("{} for `{module}`, as its layer's other experts have", known.label())));
        }
    }
    Ok(formats)
}

fn format(keys: &Keys<'_>, module: &str, stated: &crate::tree::Tree) -> Result<MatmulFormat, DeriveError> {
    let wrong = || keys.wrong("quantized_layers", stated, &format!("FP8, MXFP8 or NVFP4 in groups of 16 for `{module}`"));
    let algorithm = stated.get("quant_algo").and_then(crate::tree::Tree::as_text).ok_or_else(wrong)?;
    let group = stated.get("group_size").map(|group| group.as_natural().ok_or_else(wrong)).transpose()?;
    let format = match (algorithm, group) {
        ("FP8", None) => FormatName::Fp8,
        ("MXFP8", None | Some(32)) => FormatName::Mxfp8,
        ("NVFP4", None | Some(16)) => FormatName::Nvfp4,
        _ => return Err(wrong()),
    };
    Ok(MatmulFormat { weights: format, activations: format })
}

/// A module's name with the number of its expert, where it has one, replaced by the first one's.
fn first_expert(module: &str) -> String {
    const EXPERTS: &str = ".experts.";
    let Some((layer, rest)) = module.split_once(EXPERTS) else { return module.to_owned() };
    match rest.split_once('.') {
        Some((number, projection)) if number.bytes().all(|byte| byte.is_ascii_digit()) => format!("{layer}{EXPERTS}0.{projection}"),
        _ => module.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn formats(text: &str) -> Result<IndexMap<String, MatmulFormat>, String> {
        let tree = Tree::parse(text.as_bytes()).unwrap();
        let keys = Keys::of("hf_quant_config.json", "quantization", &tree).unwrap();
        read(&keys).map_err(|error| error.to_string())
    }

    #[test]
    fn experts_of_a_layer_share_one_format_and_other_modules_have_their_own() {
        let listed = r#"{"quantized_layers": {"l.0.mlp.down_proj": {"quant_algo": "MXFP8"},
            "l.3.experts.0.w1": {"quant_algo": "NVFP4", "group_size": 16}, "l.3.experts.127.w1": {"quant_algo": "NVFP4", "group_size": 16}}}"#;
        let formats = formats(listed).unwrap();
        assert_eq!(formats.len(), 2);
        assert_eq!(formats["l.0.mlp.down_proj"].label(), "mxfp8");
        assert_eq!(formats["l.3.experts.0.w1"].label(), "nvfp4");
    }

    #[test]
    fn experts_that_differ_and_algorithms_no_format_expresses_are_refused_by_name() {
        let uneven = r#"{"quantized_layers": {"l.3.experts.0.w1": {"quant_algo": "NVFP4"}, "l.3.experts.1.w1": {"quant_algo": "FP8"}}}"#;
        assert!(formats(uneven).unwrap_err().contains("nvfp4 for `l.3.experts.1.w1`"));
        let unknown = r#"{"quantized_layers": {"l.0.q_proj": {"quant_algo": "W4A8_AWQ"}}}"#;
        assert!(formats(unknown).unwrap_err().contains("is not FP8, MXFP8 or NVFP4 in groups of 16 for `l.0.q_proj`"));
    }
}
