//! How a checkpoint's modules are stored: the quantisation its files declare, module by module.
//!
//! Understood: modelopt (FP8, NVFP4, mixtures of these and MXFP8), transformers' fp8 (per tensor and 128 x 128 blocks), mxfp4, and the weight schemes of
//! compressed-tensors that catalog formats can express. Anything else is refused by its name.

use blis_contracts::format::{FormatName, MatmulFormat};
use indexmap::IndexMap;

use super::DeriveError;
use super::family::{Family, Nested};
use super::keys::Keys;
use super::mixed;
use super::patterns::Pattern;
use crate::tree::Tree;

/// What a checkpoint declares.
#[derive(Debug, Clone)]
pub(crate) struct Quantisation {
    /// The method in the checkpoint's own word; absent when unquantised.
    pub(crate) method: Option<String>,
    /// How keys and values are stored, where stated.
    pub(crate) kv_format: Option<FormatName>,
    converted: MatmulFormat,
    plain: MatmulFormat,
    excluded: Vec<Pattern>,
    /// The format of each listed module, where the checkpoint lists them; empty where one format holds for all.
    listed: IndexMap<String, MatmulFormat>,
    /// Whether the method converts the output projection unless it is excluded.
    converts_output: bool,
    /// Where the text model stands inside another, which names its modules.
    nested: Option<Nested>,
    /// The end of the names of modules that no method converts.
    never: Option<&'static str>,
}

impl Quantisation {
    /// A checkpoint without quantisation, all in one element type.
    pub(crate) fn none(dtype: FormatName) -> Self {
        let plain = MatmulFormat { weights: dtype, activations: dtype };
        Self {
            method: None,
            kv_format: None,
            converted: plain,
            plain,
            excluded: Vec::new(),
            listed: IndexMap::new(),
            converts_output: false,
            nested: None,
            never: None,
        }
    }

    /// How modules that no method converts are stored and multiplied.
    pub(crate) const fn plain(&self) -> MatmulFormat {
        self.plain
    }

    /// How the weights of a linear module are stored and multiplied.
    pub(crate) fn format_of(&self, module: &str) -> MatmulFormat {
        let name = self.nested.map_or_else(|| module.to_owned(), |nested| nested.module(module));
        let stays = self.excluded.iter().any(|pattern| pattern.covers(&name))
            || (module == "lm_head" && !self.converts_output)
            || self.never.is_some_and(|end| module.ends_with(end));
        if stays || !self.listed.is_empty() { self.listed.get(&name).copied().unwrap_or(self.plain) } else { self.converted }
    }
}

impl Quantisation {
    /// The same for an architecture whose modules are named so, and whose router no method converts where it is no plain matrix.
    pub(crate) fn of_family(self, family: &Family) -> Self {
        let never = family.latent.then_some(".mlp.gate");
        Self { nested: family.nested, never, ..self }
    }
}

/// Reads what the files declare. `modelopt` is the content of `hf_quant_config.json`, which overrides a copy within `config.json`.
pub(crate) fn read(config: Option<&Tree>, modelopt: Option<(&str, &Tree)>, dtype: FormatName) -> Result<Quantisation, DeriveError> {
    if let Some((file, tree)) = modelopt {
        return read_modelopt_file(file, tree, dtype);
    }
    let Some(tree) = config else { return Ok(Quantisation::none(dtype)) };
    let keys = Keys::of("config.json", "quantization_config", tree)?;
    let algorithm = keys.text("quant_algo")?;
    let method = match keys.text("quant_method")? {
        Some(method) => method,
        None if algorithm.is_some() => "modelopt",
        None => return Err(DeriveError::Missing { file: "config.json".to_owned(), path: "quantization_config.quant_method".to_owned() }),
    };
    match method {
        "fp8" => read_fp8(&keys, dtype),
        "mxfp4" => read_mxfp4(&keys, dtype),
        "compressed-tensors" => read_compressed_tensors(&keys, dtype),
        "modelopt" | "modelopt_fp4" => read_modelopt_section(&keys, method, dtype),
        other => Err(keys.wrong("quant_method", &Tree::Text(other.to_owned()), "one of compressed-tensors, fp8, modelopt, mxfp4")),
    }
}

fn read_modelopt_file(file: &str, tree: &Tree, dtype: FormatName) -> Result<Quantisation, DeriveError> {
    let top = Keys::of(file, "", tree)?;
    top.any("producer");
    top.any("quant_method");
    let section = top.required("quantization", top.any("quantization"))?;
    top.refuse_others(&[])?;
    let keys = Keys::of(file, "quantization", section)?;
    let kv_format = kv_format(&keys, "kv_cache_quant_algo")?;
    let quantisation = modelopt(&keys, "modelopt", "exclude_modules", kv_format, dtype)?;
    keys.refuse_others(&[])?;
    Ok(quantisation)
}

/// The copy of the modelopt declaration that newer exporters put in `config.json`.
fn read_modelopt_section(keys: &Keys<'_>, method: &str, dtype: FormatName) -> Result<Quantisation, DeriveError> {
    let kv_format = kv_format(keys, "kv_cache_scheme")?;
    let quantisation = modelopt(keys, method, "ignore", kv_format, dtype)?;
    keys.refuse_others(&["config_groups", "producer"])?;
    Ok(quantisation)
}

/// The algorithm of checkpoints that state one for each module.
const MIXED: &str = "MIXED_PRECISION";

fn modelopt(
    keys: &Keys<'_>,
    method: &str,
    excluded: &'static str,
    kv_format: Option<FormatName>,
    dtype: FormatName,
) -> Result<Quantisation, DeriveError> {
    let algorithm = keys.required("quant_algo", keys.text("quant_algo")?)?;
    if algorithm == MIXED {
        keys.any("quant_method");
        let listed = mixed::read(keys)?;
        let excluded = patterns(keys, excluded)?;
        return Ok(Quantisation { method: Some(method.to_owned()), kv_format, listed, excluded, ..Quantisation::none(dtype) });
    }
    let group = keys.natural("group_size")?;
    let format = match (algorithm, group) {
        ("FP8", None) => FormatName::Fp8,
        ("NVFP4", None | Some(16)) => FormatName::Nvfp4,
        ("FP8" | "NVFP4", Some(group)) => {
            return Err(keys.wrong("group_size", &Tree::Natural(group), "16 for NVFP4, absent for FP8"));
        }
        (other, _) => return Err(keys.wrong("quant_algo", &Tree::Text(other.to_owned()), "FP8, NVFP4 or MIXED_PRECISION")),
    };
    Ok(Quantisation {
        method: Some(method.to_owned()),
        kv_format,
        converted: MatmulFormat { weights: format, activations: format },
        excluded: patterns(keys, excluded)?,
        converts_output: true,
        ..Quantisation::none(dtype)
    })
}

fn read_fp8(keys: &Keys<'_>, dtype: FormatName) -> Result<Quantisation, DeriveError> {
    let weights = match keys.any("weight_block_size") {
        None => FormatName::Fp8,
        Some(Tree::Sequence(block)) if block[..] == [Tree::Natural(128), Tree::Natural(128)] => FormatName::Fp8Block,
        Some(other) => return Err(keys.wrong("weight_block_size", other, "[128, 128]")),
    };
    match keys.text("activation_scheme")? {
        Some("static" | "dynamic") => {}
        Some(other) => return Err(keys.wrong("activation_scheme", &Tree::Text(other.to_owned()), "static or dynamic")),
        None => keys.required("activation_scheme", None)?,
    }
    match keys.text("fmt")? {
        None | Some("e4m3" | "float8_e4m3fn") => {}
        Some(other) => return Err(keys.wrong("fmt", &Tree::Text(other.to_owned()), "e4m3")),
    }
    match keys.text("scale_fmt")? {
        None | Some("ue8m0") => {}
        Some(other) => return Err(keys.wrong("scale_fmt", &Tree::Text(other.to_owned()), "ue8m0")),
    }
    let mut excluded = patterns(keys, "modules_to_not_convert")?;
    excluded.extend(patterns(keys, "ignored_layers")?);
    keys.refuse_others(&[])?;
    Ok(Quantisation {
        method: Some("fp8".to_owned()),
        converted: MatmulFormat { weights, activations: FormatName::Fp8 },
        excluded,
        ..Quantisation::none(dtype)
    })
}

fn read_mxfp4(keys: &Keys<'_>, dtype: FormatName) -> Result<Quantisation, DeriveError> {
    let excluded = patterns(keys, "modules_to_not_convert")?;
    keys.refuse_others(&[])?;
    Ok(Quantisation {
        method: Some("mxfp4".to_owned()),
        converted: MatmulFormat { weights: FormatName::Mxfp4, activations: dtype },
        excluded,
        converts_output: true,
        ..Quantisation::none(dtype)
    })
}

fn read_compressed_tensors(keys: &Keys<'_>, dtype: FormatName) -> Result<Quantisation, DeriveError> {
    let groups = keys.required("config_groups", keys.any("config_groups"))?;
    let one = "exactly one group, as every module is stored one way or not at all";
    let Some([(_, group)]) = groups.as_map() else { return Err(keys.wrong("config_groups", groups, one)) };
    let group_keys = Keys::of("config.json", "quantization_config.config_groups[0]", group)?;
    let targets = group_keys.texts("targets")?;
    if targets != ["Linear"] {
        let shown = Tree::Sequence(targets.into_iter().map(|target| Tree::Text(target.to_owned())).collect());
        return Err(group_keys.wrong("targets", &shown, "[\"Linear\"]"));
    }
    let weights = group_keys.required("weights", group_keys.any("weights"))?;
    let converted = compressed_format(&group_keys, weights, group_keys.any("input_activations").is_some(), dtype)?;
    group_keys.refuse_others(&["output_activations", "format"])?;
    let kv_format = kv_format(keys, "kv_cache_scheme")?;
    let excluded = patterns(keys, "ignore")?;
    keys.refuse_others(&["format", "global_compression_ratio", "quantization_status", "version"])?;
    Ok(Quantisation {
        method: Some("compressed-tensors".to_owned()),
        kv_format,
        converted,
        excluded,
        converts_output: true,
        ..Quantisation::none(dtype)
    })
}

/// The catalog format of a compressed-tensors weight scheme.
fn compressed_format(
    group: &Keys<'_>,
    weights: &Tree,
    quantised_activations: bool,
    dtype: FormatName,
) -> Result<MatmulFormat, DeriveError> {
    let keys = Keys::of("config.json", "quantization_config.config_groups[0].weights", weights)?;
    let bits = keys.required("num_bits", keys.natural("num_bits")?)?;
    let kind = keys.required("type", keys.text("type")?)?;
    let strategy = keys.required("strategy", keys.text("strategy")?)?;
    let group_size = keys.natural("group_size")?;
    let format = match (kind, bits, strategy, group_size, quantised_activations) {
        ("float", 8, "tensor" | "channel", None, true) => FormatName::Fp8,
        ("float", 8, "block", None, true) => FormatName::Fp8Block,
        ("float", 4, "tensor_group", Some(16), _) => FormatName::Nvfp4,
        ("int", 8, "channel" | "tensor", None, true) => FormatName::Int8,
        ("int", 4, "group", Some(32), false) => FormatName::Int4Group32,
        ("int", 4, "group", Some(128), false) => FormatName::Int4Group128,
        _ => return Err(group.wrong("weights", weights, "a scheme the catalog's formats can express")),
    };
    let activations = if quantised_activations { format.usual_activations() } else { dtype };
    Ok(MatmulFormat { weights: format, activations })
}

/// The KV format a declaration states: `FP8`, `NVFP4`, or compressed-tensors' object.
fn kv_format(keys: &Keys<'_>, key: &'static str) -> Result<Option<FormatName>, DeriveError> {
    match keys.any(key) {
        None => Ok(None),
        Some(Tree::Text(text)) if text == "FP8" => Ok(Some(FormatName::Fp8)),
        Some(Tree::Text(text)) if text == "NVFP4" => Ok(Some(FormatName::Nvfp4)),
        Some(scheme @ Tree::Map(_)) if is_fp8(scheme) => Ok(Some(FormatName::Fp8)),
        Some(other) => Err(keys.wrong(key, other, "FP8, NVFP4, or a float scheme of 8 bits")),
    }
}

fn is_fp8(scheme: &Tree) -> bool {
    scheme.get("num_bits") == Some(&Tree::Natural(8)) && scheme.get("type") == Some(&Tree::Text("float".to_owned()))
}

fn patterns(keys: &Keys<'_>, key: &'static str) -> Result<Vec<Pattern>, DeriveError> {
    let wrong = |text: &str, expected: &str| keys.wrong(key, &Tree::Text(text.to_owned()), expected);
    let mut patterns = Vec::new();
    for text in keys.texts(key)? {
        let expected = "names, globs, or expressions of letters, `.`, `.*`, `\\.`, `$` and one choice `(a|b)`";
        let read = Pattern::parse(text).ok_or_else(|| wrong(text, expected))?;
        if read.iter().any(Pattern::names_one_expert) {
            return Err(wrong(text, "patterns that treat all experts of a layer alike"));
        }
        patterns.extend(read);
    }
    Ok(patterns)
}
