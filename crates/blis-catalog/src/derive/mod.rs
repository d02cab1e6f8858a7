//! Deriving a model graph from a vendor's own files.
//!
//! Input: `config.json`; `hf_quant_config.json` and safetensors headers where they are there; and the catalog's `model.yaml` with
//! what a vendor file cannot say (names, source, printed counts). Output: a [`ModelGraph`] and nothing else; no value comes from
//! anywhere but these files and the facts of the named architecture ([`families`]). An unknown architecture, and a key that is
//! neither read nor known to leave the shape alone, are refused by name.
//!
//! Reading order: [`source`], this file, [`layers`], [`stated`], [`stack`], [`quantisation`], [`headers`].

mod chunked;
mod compressed;
mod encoder;
pub(crate) mod families;
pub(crate) mod family;
mod gemma4;
mod headers;
mod keys;
mod latent;
mod layers;
mod mamba;
mod mixed;
mod patterns;
mod quantisation;
mod recurrent;
mod selected;
mod source;
mod stack;
mod stated;

use std::path::Path;

use blis_contracts::format::FormatName;
use blis_contracts::model::{Derivation, Encoder, ModelGraph, ParameterCount};
use blis_contracts::strict::DocumentError;
use indexmap::IndexMap;

use crate::counts;
use crate::data::sha256_hex;
use crate::entry::ModelEntry;
use crate::patterns::{CONFIG, ENTRY, QUANTISATION_CONFIG};
use crate::tree::Tree;
pub use source::{derive_catalog_model, derive_directory};

use families::{FAMILIES, WITHOUT_EFFECT};
use family::{EncoderKind, Family, InnerName, QkNorm};
use headers::Headers;
use keys::Keys;

#[cfg(test)]
mod tests;

/// Why a graph could not be derived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeriveError {
    /// A file could not be read.
    #[error("{file}: cannot be read: {reason}")]
    Unreadable {
        /// The file.
        file: String,
        /// The system's words.
        reason: String,
    },
    /// A file is not JSON, or has a key twice.
    #[error("{file}: not the JSON that was expected: {reason}")]
    Malformed {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A value is not what the key takes.
    #[error("{file}: {path}: {value} is not {expected}")]
    Value {
        /// The file.
        file: String,
        /// The key, dotted.
        path: String,
        /// The value found.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// A key that must be there is not.
    #[error("{file}: {path}: missing")]
    Missing {
        /// The file.
        file: String,
        /// The key, dotted.
        path: String,
    },
    /// A key that may change the model's shape and that the deriver does not know.
    #[error("{file}: {path}: unknown key (value {value}); it may change the model's shape, so no graph is derived")]
    UnknownKey {
        /// The file.
        file: String,
        /// The key, dotted.
        path: String,
        /// The value found.
        value: String,
    },
    /// An architecture the deriver does not know.
    #[error("{file}: architectures: no rule derives `{architecture}`; known: {known}")]
    UnknownArchitecture {
        /// The file.
        file: String,
        /// The class the checkpoint names.
        architecture: String,
        /// The classes that are known, joined by commas.
        known: String,
    },
    /// Matrices that engines read as one are stored in different ways.
    #[error("layer {layer}: {modules} are stored in different formats, which a graph cannot state")]
    Uneven {
        /// The layer's index.
        layer: u32,
        /// The modules.
        modules: String,
    },
    /// A tensor in the checkpoint's headers contradicts the configuration.
    #[error("{file}: tensor `{tensor}`: {reason}")]
    Tensor {
        /// The shard.
        file: String,
        /// The tensor's name.
        tensor: String,
        /// What is wrong.
        reason: String,
    },
    /// The catalog's own entry of the model is malformed.
    #[error(transparent)]
    Entry(#[from] DocumentError),
    /// The count differs from the printed one.
    #[error("{which} parameters: derived {derived}, which disagrees with the published {printed} ({source_of})")]
    Count {
        /// `total` or `active`.
        which: &'static str,
        /// The derived count.
        derived: u64,
        /// The printed count.
        printed: String,
        /// Where it is printed.
        source_of: String,
    },
}

impl DeriveError {
    /// The same error, its file within a directory.
    fn within(mut self, directory: &Path) -> Self {
        match &mut self {
            Self::Malformed { file, .. }
            | Self::Value { file, .. }
            | Self::Missing { file, .. }
            | Self::UnknownKey { file, .. }
            | Self::UnknownArchitecture { file, .. }
            | Self::Tensor { file, .. } => *file = directory.join(&*file).display().to_string(),
            Self::Unreadable { .. } | Self::Uneven { .. } | Self::Entry(_) | Self::Count { .. } => {}
        }
        self
    }

    pub(crate) fn value(file: &str, path: &str, value: &Tree, expected: &str) -> Self {
        let shown: String = value.to_string().chars().take(120).collect();
        Self::Value { file: file.to_owned(), path: path.to_owned(), value: shown, expected: expected.to_owned() }
    }
}

/// What a graph is derived from, in memory.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// What the vendor's files cannot say.
    pub entry: ModelEntry,
    /// The bytes of `config.json`.
    pub config: Vec<u8>,
    /// The bytes of `hf_quant_config.json`, where there is one.
    pub quantisation_config: Option<Vec<u8>>,
    /// The JSON headers of the checkpoint's shards, by file name, ascending; empty where none are there.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// Derives a graph.
pub fn derive(inputs: &Inputs) -> Result<ModelGraph, DeriveError> {
    let config = parse(CONFIG, &inputs.config)?;
    let whole = Keys::of(CONFIG, "", &config)?;
    let family = family(&whole)?;
    let inner = text_model(&whole, family)?;
    let keys = inner.as_ref().unwrap_or(&whole);
    let headers = Headers::parse(&inputs.headers)?;
    let mut inferred = Vec::new();
    let dtype = dtype(keys, &headers, &mut inferred)?;
    let declared = keys.any("quantization_config").or_else(|| whole.any("quantization_config"));
    let (modelopt_file, modelopt) = modelopt_declaration(inputs)?;
    let quantisation = quantisation::read(declared, modelopt.as_ref().map(|tree| (modelopt_file.as_str(), tree)), dtype)?.of_family(family);
    if family.qk_norm == QkNorm::PerHead && headers.is_empty() {
        inferred.push(format!("a norm over each query and key head: part of {}", family.architecture));
    }
    if family.two_heads && headers.is_empty() {
        inferred
            .push(format!("norms around every part and over query and key heads, and a router's scales: part of {}", family.architecture));
    }
    if let Some(stated) = &inputs.entry.quantisation {
        inferred.push(format!("quantisation: {}", stated.source));
    }

    let shape = layers::Shape::read(keys, family)?;
    let layers = layers::build(keys, family, &shape, &quantisation)?;
    inferred.extend(recurrent::inferred(family));
    let residual_lanes = if family.compressed { Some(compressed::lanes(keys)?) } else { None };
    let max_position_embeddings = if family.two_heads { gemma4::max_positions(keys)? } else { max_positions(keys)? };
    let tied_embeddings = tied_embeddings(keys, &whole)?.unwrap_or(family.tied_by_default);
    let without_effect: Vec<&str> = WITHOUT_EFFECT.iter().chain(family.without_effect).copied().collect();
    keys.refuse_others(&without_effect)?;
    let encoders = encoders(&whole, family, &inputs.entry, (shape.hidden, dtype), &mut inferred)?;
    if family.chunked && keys.any("no_rope_layers").is_none() {
        inferred.push(format!("no_rope_layers: every {}th layer, a default of the configuration's class", chunked::DEFAULT_INTERVAL));
    }

    let (blocks, stack) = stack::compress(layers);
    let plain = quantisation::Quantisation::none(dtype);
    let mut graph = ModelGraph {
        name: inputs.entry.name.clone(),
        aliases: inputs.entry.aliases.clone(),
        architecture: family.architecture.to_owned(),
        derived_from: Derivation { source: inputs.entry.source.clone(), files: hashes(inputs, modelopt.is_some()), inferred },
        dtype,
        hidden_size: shape.hidden,
        vocab_size: shape.vocab,
        max_position_embeddings,
        tied_embeddings,
        output_projection: if tied_embeddings { plain.format_of("lm_head") } else { quantisation.format_of("lm_head") },
        kv_format: quantisation.kv_format,
        quantisation: quantisation.method.clone(),
        residual_lanes,
        blocks,
        stack,
        encoders,
        parameters: ParameterCount { total: 0, active: 0, active_leaves_out: Vec::new(), published: None },
    };
    graph.parameters = counts::count(&graph, inputs.entry.active_leaves_out.clone(), inputs.entry.published.clone());
    check_published(&graph, &graph.parameters)?;
    headers.check(&graph, family)?;
    Ok(graph)
}

/// Refuses counts that disagree with the publisher's.
pub(crate) fn check_published(graph: &ModelGraph, parameters: &ParameterCount) -> Result<(), DeriveError> {
    let Some(published) = &parameters.published else { return Ok(()) };
    let counted = parameters.total - counts::parts(graph, &published.total_leaves_out);
    let figures = [("total", counted, Some(&published.total)), ("active", parameters.active, published.active.as_ref())];
    for (which, derived, printed) in figures {
        let Some(printed) = printed else { continue };
        if counts::agrees(derived, printed) != Some(true) {
            return Err(DeriveError::Count { which, derived, printed: printed.clone(), source_of: published.source.clone() });
        }
    }
    Ok(())
}

fn parse(file: &str, bytes: &[u8]) -> Result<Tree, DeriveError> {
    Tree::parse(bytes).map_err(|error| DeriveError::Malformed { file: file.to_owned(), reason: error.to_string() })
}

/// The family of the one architecture a checkpoint names.
fn family(keys: &Keys<'_>) -> Result<&'static Family, DeriveError> {
    let [architecture] = keys.texts("architectures")?[..] else {
        let found = keys.any("architectures").unwrap_or(&Tree::Null);
        return Err(DeriveError::value(CONFIG, "architectures", found, "a list of one class"));
    };
    let known = || FAMILIES.iter().map(|family| family.architecture).collect::<Vec<_>>().join(", ");
    let family = Family::of(architecture).ok_or_else(|| DeriveError::UnknownArchitecture {
        file: CONFIG.to_owned(),
        architecture: architecture.to_owned(),
        known: known(),
    })?;
    match keys.text("model_type")? {
        None => Ok(family),
        Some(model_type) if model_type == family.model_type || family.other_model_types.contains(&model_type) => Ok(family),
        Some(other) => Err(keys.wrong("model_type", &Tree::Text(other.to_owned()), &format!("`{}`", family.model_type))),
    }
}

/// The keys of a text model that stands inside another.
fn text_model<'a>(whole: &Keys<'a>, family: &Family) -> Result<Option<Keys<'a>>, DeriveError> {
    let Some(nested) = family.nested else { return Ok(None) };
    let tree = whole.required("text_config", whole.any("text_config"))?;
    let keys = Keys::of(CONFIG, "text_config", tree)?;
    let found = |key| keys.any(key).unwrap_or(&Tree::Null);
    match nested.name {
        InnerName::Class(name) if keys.texts("architectures")? != [name] => {
            Err(keys.wrong("architectures", found("architectures"), &format!("[\"{name}\"]")))
        }
        InnerName::ModelType(name) if keys.text("model_type")? != Some(name) => {
            Err(keys.wrong("model_type", found("model_type"), &format!("`{name}`")))
        }
        InnerName::Class(_) | InnerName::ModelType(_) => Ok(Some(keys)),
    }
}

/// What stands beside a text model that is a part of the whole.
fn encoders(
    whole: &Keys<'_>,
    family: &Family,
    entry: &ModelEntry,
    (hidden, dtype): (u64, FormatName),
    inferred: &mut Vec<String>,
) -> Result<Vec<Encoder>, DeriveError> {
    let Some(nested) = family.nested else { return Ok(Vec::new()) };
    let encoders = match (whole.any("vision_config"), &entry.encoders) {
        (None, Some(stated)) => {
            inferred.push(format!("encoder: {}", stated.source));
            stated.in_format(dtype)
        }
        (vision, _) => {
            let vision = Keys::of(CONFIG, "vision_config", whole.required("vision_config", vision)?)?;
            match nested.encoder {
                EncoderKind::MoonVit => encoder::moon_vit(&vision, dtype)?,
                EncoderKind::MiniMaxVl => encoder::minimax_vl(&vision, whole, dtype)?,
                EncoderKind::QwenVl => encoder::qwen_vl(&vision, dtype)?,
                EncoderKind::Llama4 => encoder::llama4(&vision, hidden, dtype)?,
                EncoderKind::Gemma4 => gemma4::tower(&vision, hidden, dtype)?,
            }
        }
    };
    if let Some(found) = whole.any("audio_config") {
        return Err(whole.wrong("audio_config", found, "absent, as encoders of sounds are not understood"));
    }
    whole.any("dtype");
    let without_effect: Vec<&str> = WITHOUT_EFFECT.iter().chain(nested.without_effect).copied().collect();
    whole.refuse_others(&without_effect)?;
    Ok(encoders)
}

/// Whether the output projection shares the embedding's weights, where the text model or the whole says so.
fn tied_embeddings(keys: &Keys<'_>, whole: &Keys<'_>) -> Result<Option<bool>, DeriveError> {
    const KEY: &str = "tie_word_embeddings";
    match (keys.flag(KEY)?, whole.flag(KEY)?) {
        (Some(text), Some(all)) if text != all => Err(whole.wrong(KEY, &Tree::Flag(all), &format!("{text}, as text_config says"))),
        (text, all) => Ok(text.or(all)),
    }
}

/// The element type of unquantised tensors.
fn dtype(keys: &Keys<'_>, headers: &Headers, inferred: &mut Vec<String>) -> Result<FormatName, DeriveError> {
    let stated = match (keys.text("dtype")?, keys.text("torch_dtype")?) {
        (Some(one), Some(other)) if one != other => {
            return Err(keys.wrong("torch_dtype", &Tree::Text(other.to_owned()), &format!("`{one}`, as `dtype` says")));
        }
        (one, other) => one.or(other),
    };
    match stated {
        Some("bfloat16") => Ok(FormatName::Bf16),
        Some("float16") => Ok(FormatName::Fp16),
        Some("float32") => Ok(FormatName::Fp32),
        Some(other) => Err(keys.wrong("torch_dtype", &Tree::Text(other.to_owned()), "bfloat16, float16 or float32")),
        None => Ok(headers.embedding_format()?.unwrap_or_else(|| {
            inferred.push("dtype: bf16, as config.json states none and no header was read".to_owned());
            FormatName::Bf16
        })),
    }
}

/// modelopt's declaration: the vendor's file, or what the catalog entry states with its citation.
fn modelopt_declaration(inputs: &Inputs) -> Result<(String, Option<Tree>), DeriveError> {
    match (&inputs.entry.quantisation, &inputs.quantisation_config) {
        (Some(stated), _) => Ok((ENTRY.to_owned(), Some(stated.as_declaration()))),
        (None, Some(bytes)) => Ok((QUANTISATION_CONFIG.to_owned(), Some(parse(QUANTISATION_CONFIG, bytes)?))),
        (None, None) => Ok((String::new(), None)),
    }
}

/// The longest context after position scaling: the scalings that extend it multiply the length the model was trained with.
fn max_positions(keys: &Keys<'_>) -> Result<u64, DeriveError> {
    let stated = keys.required("max_position_embeddings", keys.natural("max_position_embeddings")?)?;
    let (name, scaling) = match (keys.any("rope_scaling"), keys.any("rope_parameters")) {
        (Some(scaling), _) => ("rope_scaling", scaling),
        (None, Some(scaling)) => ("rope_parameters", scaling),
        (None, None) => return Ok(stated),
    };
    let inner = Keys::of(CONFIG, name, scaling)?;
    let kind = match inner.text("rope_type")? {
        Some(kind) => kind,
        None => inner.required("type", inner.text("type")?)?,
    };
    let trained = inner.natural("original_max_position_embeddings")?;
    match kind {
        "default" | "llama3" | "longrope" => Ok(stated),
        "yarn" | "linear" | "dynamic" => {
            let found = inner.required("factor", inner.any("factor"))?;
            let factor = found.as_number().ok_or_else(|| inner.wrong("factor", found, "a number"))?;
            let scaled = libm::floor(trained.unwrap_or(stated) as f64 * factor);
            if !(1.0..1e12).contains(&scaled) {
                return Err(inner.wrong("factor", &Tree::Real(factor), "a positive factor"));
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked just before the cast")]
            Ok(scaled as u64)
        }
        other => Err(inner.wrong("rope_type", &Tree::Text(other.to_owned()), "default, llama3, longrope, yarn, linear or dynamic")),
    }
}

fn hashes(inputs: &Inputs, modelopt: bool) -> IndexMap<String, String> {
    let mut files = IndexMap::new();
    files.insert(inputs.entry.config_name().to_owned(), sha256_hex(&inputs.config));
    if let Some(bytes) = inputs.quantisation_config.as_ref().filter(|_| modelopt) {
        files.insert(inputs.entry.quantisation_config_name().to_owned(), sha256_hex(bytes));
    }
    for (name, bytes) in &inputs.headers {
        files.insert(format!("{name} (header)"), sha256_hex(bytes));
    }
    files
}
