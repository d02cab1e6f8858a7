//! `model.yaml`: what the catalog states about a model that the vendor's files cannot say, each with its citation.
//!
//! The deriver merges it into the graph; a run never reads it.

use blis_contracts::format::FormatName;
use blis_contracts::model::{Encoder, EncoderPart, PublishedCount, UncountedPart};
use serde::{Deserialize, Serialize};

use crate::patterns::{CONFIG, QUANTISATION_CONFIG};
use crate::tree::Tree;

/// A model's entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelEntry {
    /// The catalog name.
    pub name: String,
    /// Checkpoint names that resolve to the model.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Where the vendor's files were read.
    pub source: String,
    /// The licence of the vendor's files, and so whether they are kept beside this one.
    pub licence: String,
    /// The vendor's `config.json` at the source, where it is not kept beside this file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The vendor's `hf_quant_config.json` at the source, where there is one and it is not kept beside this file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantisation_config: Option<String>,
    /// A quantisation that no file at the source states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantisation: Option<StatedQuantisation>,
    /// An encoder beside the text model that the configuration at the source leaves out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoders: Option<StatedEncoder>,
    /// The parameter counts the publisher prints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<PublishedCount>,
    /// Parts the publisher's active count leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active_leaves_out: Vec<UncountedPart>,
}

/// modelopt's declaration, in its own vocabulary, read elsewhere than in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatedQuantisation {
    /// `FP8` or `NVFP4`.
    pub quant_algo: String,
    /// How keys and values are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache_quant_algo: Option<String>,
    /// Modules that are left as they were.
    pub exclude_modules: Vec<String>,
    /// Where it is stated.
    pub source: String,
}

/// An encoder by its parameters, read elsewhere than in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatedEncoder {
    /// Those of the layers that encode.
    pub tower: u64,
    /// Those of what brings their output to the width of the text.
    pub projector: u64,
    /// Where they are from.
    pub source: String,
}

impl StatedEncoder {
    /// Both parts, stored in one format.
    pub(crate) fn in_format(&self, format: FormatName) -> Vec<Encoder> {
        let of = |part, parameters| Encoder { part, parameters, format };
        vec![of(EncoderPart::Tower, self.tower), of(EncoderPart::Projector, self.projector)]
    }
}

impl ModelEntry {
    /// The entry of a directory that has none.
    pub(crate) fn local(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            aliases: Vec::new(),
            source: format!("directory `{name}`"),
            licence: "not stated".to_owned(),
            config: None,
            quantisation_config: None,
            quantisation: None,
            encoders: None,
            published: None,
            active_leaves_out: Vec::new(),
        }
    }

    /// The name of the vendor's configuration at the source.
    pub(crate) fn config_name(&self) -> &str {
        self.config.as_deref().unwrap_or(CONFIG)
    }

    /// The name of the vendor's quantisation file at the source.
    pub(crate) fn quantisation_config_name(&self) -> &str {
        self.quantisation_config.as_deref().unwrap_or(QUANTISATION_CONFIG)
    }
}

impl StatedQuantisation {
    /// The declaration in the shape of `hf_quant_config.json`.
    pub(crate) fn as_declaration(&self) -> Tree {
        let text = |value: &str| Tree::Text(value.to_owned());
        let excluded = self.exclude_modules.iter().map(|module| text(module)).collect();
        let section = vec![
            ("quant_algo".to_owned(), text(&self.quant_algo)),
            ("kv_cache_quant_algo".to_owned(), self.kv_cache_quant_algo.as_deref().map_or(Tree::Null, text)),
            ("exclude_modules".to_owned(), Tree::Sequence(excluded)),
        ];
        Tree::Map(vec![("quantization".to_owned(), Tree::Map(section))])
    }
}
