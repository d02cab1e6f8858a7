//! Lowering the catalog's models: which kernels run, what they multiply, and what stays resident.

mod block_sparse;
mod blocks;
mod compressed;
mod exchange;
mod former;
mod gemma4;
mod kernels;
mod latent;
mod llama4;
mod mamba2;
mod nodes;
mod parts;
mod recurrent;
mod resident;
mod selected;
mod shapes;
mod unusual;

use blis_contracts::chip::Chip;
use blis_contracts::model::ModelGraph;
use blis_contracts::part::Part;
use blis_contracts::plan::{Dealing, LoweredLayer, PoolPlan, PrimitiveShape, RowRange, RowSet};
use blis_contracts::strict::{Document, LineEndings};
use serde::de::DeserializeOwned;

use super::{LoweringError, lower};
use crate::config::{Launch, Machine, read, resolve};

macro_rules! catalog {
    ($path:literal) => {
        ($path, include_str!(concat!("../../../../catalog/", $path, ".yaml")))
    };
}

/// The catalog's files, read as text: a crate of this layer does not depend on the catalog's.
const CATALOG: &[(&str, &str)] = &[
    catalog!("hardware/h100"),
    catalog!("hardware/h200"),
    catalog!("hardware/b200"),
    catalog!("hardware/b300"),
    catalog!("hardware/gb200-nvl72"),
    catalog!("hardware/gb300-nvl72"),
    catalog!("hardware/a100-sxm"),
    catalog!("hardware/l40s"),
    catalog!("hardware/rtx-pro-6000"),
    catalog!("models/deepseek-v4-flash/graph"),
    catalog!("models/deepseek-v4-pro/graph"),
    catalog!("models/gpt-oss-20b/graph"),
    catalog!("models/gpt-oss-120b/graph"),
    catalog!("models/llama-3.1-8b-instruct/graph"),
    catalog!("models/llama-3.1-70b-instruct/graph"),
    catalog!("models/llama-3.1-70b-instruct-fp8/graph"),
    catalog!("models/llama-3.1-70b-instruct-fp4/graph"),
    catalog!("models/qwen3-8b/graph"),
    catalog!("models/qwen3-32b-fp8/graph"),
    catalog!("models/qwen3-30b-a3b/graph"),
    catalog!("models/qwen3-30b-a3b-fp8/graph"),
    catalog!("models/minimax-m2.5/graph"),
    catalog!("models/minimax-m2.5-nvfp4/graph"),
    catalog!("models/minimax-m3/graph"),
    catalog!("models/minimax-m3-nvfp4/graph"),
    catalog!("models/deepseek-v3/graph"),
    catalog!("models/deepseek-v3.1-nvfp4/graph"),
    catalog!("models/deepseek-v3.2/graph"),
    catalog!("models/deepseek-v3.2-nvfp4/graph"),
    catalog!("models/glm-5/graph"),
    catalog!("models/glm-5-nvfp4/graph"),
    catalog!("models/glm-5.2/graph"),
    catalog!("models/qwen3.5-397b-a17b/graph"),
    catalog!("models/qwen3.5-397b-a17b-nvfp4/graph"),
    catalog!("models/gemma-4-26b-a4b/graph"),
    catalog!("models/gemma-4-26b-a4b-nvfp4/graph"),
    catalog!("models/gemma-4-31b-it-nvfp4/graph"),
    catalog!("models/llama-4-scout/graph"),
    catalog!("models/llama-4-maverick/graph"),
    catalog!("models/nemotron-3-nano-30b-a3b/graph"),
    catalog!("models/nemotron-3-nano-30b-a3b-nvfp4/graph"),
    catalog!("models/nemotron-3-super-120b-a12b/graph"),
    catalog!("models/nemotron-3-super-120b-a12b-fp8/graph"),
    catalog!("models/nemotron-3-super-120b-a12b-nvfp4/graph"),
    catalog!("models/nemotron-3-ultra-550b-a55b-fp8/graph"),
    catalog!("models/nemotron-3-ultra-550b-a55b-nvfp4/graph"),
    catalog!("models/nemotron-h-56b-base-8k/graph"),
    catalog!("models/kimi-k2.5/graph"),
    catalog!("models/kimi-k2.5-nvfp4/graph"),
];

fn load<T: DeserializeOwned>(path: &str) -> T {
    let (_, text) = CATALOG.iter().find(|(name, _)| *name == path).unwrap_or_else(|| panic!("{path} is not listed"));
    Document::parse(path, text.as_bytes(), LineEndings::Lf).unwrap().decode().unwrap()
}

fn model(name: &str) -> ModelGraph {
    load(&format!("models/{name}/graph"))
}

fn chip(name: &str) -> Chip {
    load(&format!("hardware/{name}"))
}

/// A launch line: model, chip, arguments.
#[derive(Debug, Clone, Copy)]
struct Line<'a>(&'a str, &'a str, &'a str);

impl Line<'_> {
    fn lower(self) -> Result<PoolPlan, LoweringError> {
        self.lower_as(None)
    }

    /// As a run of a release had it; of the modelled one where none is named.
    fn lower_as(self, release: Option<&str>) -> Result<PoolPlan, LoweringError> {
        let Self(name, chip_name, arguments) = self;
        let (model, chip) = (model(name), chip(chip_name));
        let (variables, arguments): (Vec<&str>, Vec<&str>) =
            arguments.split(' ').filter(|word| !word.is_empty()).partition(|word| word.starts_with("VLLM_"));
        let env: Vec<(String, String)> =
            variables.iter().filter_map(|word| word.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let command = format!("vllm serve m {}", arguments.join(" "));
        let mut stated = read(Launch { command: Some(&command), args: None, env: &env, written_for: None }).unwrap();
        if let Some(release) = release {
            stated.take_defaults_of(release, &model).unwrap();
        }
        let resolved = resolve(&stated, Machine { model: &model, chip: &chip, gpus: 8 }).unwrap();
        lower(&model, &resolved, &chip)
    }

    fn plan(self) -> PoolPlan {
        self.lower().unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

/// A piece of work on one line: what, by what, over which rows, how large.
fn written(piece: &LoweredLayer) -> String {
    let rows = match piece.rows {
        RowSet::Tokens => "tokens",
        RowSet::Split => "split",
        RowSet::Gathered => "gathered",
        RowSet::Sampled => "sampled",
        RowSet::Requests => "requests",
        RowSet::Decodes => "decodes",
        RowSet::Prefills => "prefills",
        RowSet::Cached => "cached",
    };
    let part = match piece.part {
        Part::Whole => "",
        Part::Picking => " picking",
        Part::Scored => " scored",
        Part::Readied => " readied",
        Part::Unreadied => " unreadied",
        Part::Mixed => " mixed",
        Part::DensePrompts => " of dense prompts",
        Part::BesideDense => " beside dense prompts",
    };
    let range = match piece.runs_for {
        RowRange::ALL => String::new(),
        RowRange { least, most: u32::MAX } => format!(" from {least}"),
        RowRange { least: 0, most } => format!(" to {most}"),
        RowRange { least, most } => format!(" {least} to {most}"),
    };
    let shape = match piece.shape {
        PrimitiveShape::Gemm { columns, depth, format } => format!("{depth} x {columns} {}", format.label()),
        PrimitiveShape::Attention { query_heads, kv_heads, head_dim, kv_group, window, chunk, sinks, kv_format, dealing } => {
            let chunk = if chunk == 0 { String::new() } else { format!(", chunk {chunk}") };
            let dealt = if dealing == Dealing::Evenly { "" } else { ", dealt in turn" };
            format!(
                "{query_heads}/{kv_heads} heads of {head_dim}, group {kv_group}, window {window}{chunk}, sinks {sinks}, {kv_format}{dealt}"
            )
        }
        PrimitiveShape::BatchedGemm { batch, columns, depth, format } => format!("{batch} of {depth} x {columns} {}", format.label()),
        PrimitiveShape::Latent { query_heads, kv_heads, key_dim, value_dim, kv_group, format } => {
            format!("{query_heads}/{kv_heads} heads of {key_dim} and {value_dim}, group {kv_group}, {format}")
        }
        PrimitiveShape::Traffic { bytes } => format!("{bytes} B a call"),
        PrimitiveShape::Gathered { query_heads, head_dim, entry_bytes, window, ratio, top_k, multiplied } => format!(
            "{query_heads} heads of {head_dim} on entries of {entry_bytes} B, window {window}, {top_k} for {ratio} tokens, {multiplied}"
        ),
        PrimitiveShape::Scores { heads, head_dim, entry_bytes, ratio, top_k, ranked, multiplied } => format!(
            "{heads} heads of {head_dim} on entries of {entry_bytes} B for {ratio} tokens, {top_k} of them, ranked to {ranked}, {multiplied}"
        ),
        PrimitiveShape::Scan { bytes_per_token, bytes_per_row } => format!("{bytes_per_token} B a token, {bytes_per_row} B a row"),
        PrimitiveShape::Recurrent { heads, state_elements } => format!("{heads} heads with states of {state_elements}"),
        PrimitiveShape::Moe { experts, local_experts, top_k, hidden, intermediate, gated, format } => {
            format!("{top_k} of {experts} ({local_experts} here), {hidden} x {intermediate} gated {gated} {}", format.label())
        }
        PrimitiveShape::Collective { group, bytes_per_row } => format!("{bytes_per_row} B a row over {group}"),
        PrimitiveShape::Stream { bytes_per_row } => format!("{bytes_per_row} B a row"),
        PrimitiveShape::Sampling { vocabulary, .. } => format!("{vocabulary} logits"),
    };
    format!("{} {}/{} {rows}{part}{range}: {shape}", piece.primitive.as_str(), piece.kernel.library, piece.kernel.variant)
}
