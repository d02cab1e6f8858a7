//! The model's side: heads against ranks, element type, declared quantisation.
//!
//! upstream: vllm `config/model.py::ModelConfig.verify_with_parallel_config`, `_get_and_verify_dtype`, `_verify_quantization`.

use blis_contracts::format::FormatName;
use blis_contracts::model::{Attention, FeedForward, LatentAttention, ModelGraph};

use super::Machine;
use super::compressed;
use super::ledger::Ledger;
use crate::config::choices::Dtype;
use crate::config::error::ConfigError;
use crate::config::setting::Setting;

/// Ranks that share each matrix, checked against the heads and, where the line states no nodes, against the one node.
pub(super) fn tensor_parallel_size(ledger: &mut Ledger<'_>, machine: Machine<'_>, nnodes: u64, stages: u32) -> Result<u32, ConfigError> {
    let stated = ledger.count(Setting::TensorParallelSize)?;
    let world = stated.saturating_mul(stages.into());
    if world > u64::from(machine.gpus).saturating_mul(nnodes) {
        let refusal = match nnodes {
            1 => format!("world size ({world}) is larger than the number of available GPUs ({}) in this node", machine.gpus),
            _ => format!("world size ({world}) is larger than the number of GPUs of {nnodes} nodes of {}", machine.gpus),
        };
        let factors = match stages {
            1 => format!("--tensor-parallel-size {stated}"),
            _ => format!("--tensor-parallel-size {stated} or --pipeline-parallel-size {stages}"),
        };
        return Err(ConfigError::Refused(format!("{refusal}; lower {factors}, or state more nodes with --nnodes")));
    }
    let too_large =
        |_| ConfigError::Inconsistent(format!("--tensor-parallel-size {stated} is too large; it should be at most {}", u32::MAX));
    let ranks = u32::try_from(stated).map_err(too_large)?;
    compressed::check_ranks(machine.model, ranks)?;
    for attention in attentions(machine.model) {
        let (heads, kv_heads) = (attention.query_heads, attention.kv_heads);
        divides("total number of attention heads", heads, ranks)?;
        if !kv_heads.is_multiple_of(ranks) && !ranks.is_multiple_of(kv_heads) {
            return Err(ConfigError::Refused(format!(
                "key-value heads ({kv_heads}) must be divisible by tensor parallel size ({ranks}), or divide it; change \
                 --tensor-parallel-size"
            )));
        }
    }
    if let Some(attention) = latent_attention(machine.model)? {
        divides("total number of attention heads", attention.query_heads, ranks)?;
    }
    Ok(ranks)
}

/// Refuses ranks that cannot share `count` of something evenly.
pub(super) fn divides(what: &str, count: u32, ranks: u32) -> Result<(), ConfigError> {
    if count.is_multiple_of(ranks) {
        return Ok(());
    }
    Err(ConfigError::Refused(format!(
        "{what} ({count}) must be divisible by tensor parallel size ({ranks}); state a --tensor-parallel-size that divides it"
    )))
}

/// The element type of activations: as stated, else the checkpoint's.
pub(super) fn dtype(ledger: &mut Ledger<'_>, machine: Machine<'_>) -> Result<Dtype, ConfigError> {
    match ledger.value(Setting::Dtype).as_str() {
        Some("bfloat16") => return Ok(Dtype::Bfloat16),
        Some("half" | "float16") => return Ok(Dtype::Float16),
        _ => {}
    }
    let declared = machine.model.dtype;
    let dtype = match declared {
        FormatName::Bf16 => Dtype::Bfloat16,
        FormatName::Fp16 => Dtype::Float16,
        FormatName::Fp32 | FormatName::Fp8 | FormatName::Fp8Block | FormatName::Mxfp8 | FormatName::Nvfp4 | FormatName::Mxfp4 => {
            return Err(unmodelled_dtype(declared));
        }
        FormatName::Int4Group32 | FormatName::Int4Group128 | FormatName::Int8 => return Err(unmodelled_dtype(declared)),
    };
    ledger.derive(Setting::Dtype, dtype, "the checkpoint's own type");
    Ok(dtype)
}

fn unmodelled_dtype(declared: FormatName) -> ConfigError {
    ConfigError::NotPorted(format!("the checkpoint declares activations of type {declared}, which is not modelled; state --dtype bfloat16"))
}

/// The checkpoint's own quantisation method, against a stated one and the element type of activations.
pub(super) fn quantization(ledger: &mut Ledger<'_>, machine: Machine<'_>, dtype: Dtype) -> Result<(), ConfigError> {
    let own = method(machine.model);
    let stated = ledger.value(Setting::Quantization);
    let stated = stated.as_str();
    match (stated, own) {
        (Some(stated), None) => {
            return Err(ConfigError::NotModelled {
                name: "--quantization".to_owned(),
                value: stated.to_owned(),
                reason: "quantising a checkpoint while it is loaded is not modelled".to_owned(),
                instead: "; leave it out, or name a quantised checkpoint".to_owned(),
            });
        }
        (Some(stated), Some(own)) if stated != own && !overrides(own) => {
            return Err(ConfigError::Refused(format!(
                "quantization method specified in the model config ({own}) does not match the quantization method specified in \
                 the `quantization` argument ({stated}); leave --quantization out"
            )));
        }
        (Some(stated), Some(own)) if stated != own => {
            let note = format!("--quantization {stated} has no effect: the checkpoint's own method, {own}, replaces it");
            ledger.note(Some(Setting::Quantization), note);
        }
        (None, _) | (Some(_), Some(_)) => {}
    }
    if stated != own {
        ledger.derive(Setting::Quantization, own.unwrap_or("None"), "the checkpoint's own method");
    }
    match (own, dtype) {
        (Some(GPT_OSS_MXFP4), Dtype::Float16) => Err(ConfigError::Refused(format!(
            "{dtype} is not supported for quantization method {GPT_OSS_MXFP4}; supported is bfloat16: state --dtype bfloat16"
        ))),
        _ => Ok(()),
    }
}

/// Upstream's name of gpt-oss's own method.
const GPT_OSS_MXFP4: &str = "gpt_oss_mxfp4";

/// Whether upstream lets the checkpoint's method replace whatever a line states.
fn overrides(own: &str) -> bool {
    own == GPT_OSS_MXFP4 || own.starts_with("modelopt")
}

/// Upstream's name of the checkpoint's method.
fn method(model: &ModelGraph) -> Option<&str> {
    let declared = model.quantisation.as_deref()?;
    Some(match declared {
        "mxfp4" if model.architecture == GPT_OSS => GPT_OSS_MXFP4,
        "fp8" if compressed::attentions(model).next().is_some() => "deepseek_v4_fp8",
        "modelopt" if is_nvfp4(model) => "modelopt_fp4",
        other => other,
    })
}

/// The architecture with start-up rules of its own. upstream: vllm `model_executor/models/config.py::GptOssForCausalLMConfig`.
pub(super) const GPT_OSS: &str = "GptOssForCausalLM";

/// The attention parts of the distinct layers.
pub(super) fn attentions(model: &ModelGraph) -> impl Iterator<Item = &blis_contracts::model::GroupedQueryAttention> {
    model.blocks.values().filter_map(|block| match &block.attention {
        Attention::GroupedQuery(attention) => Some(attention),
        Attention::Latent(_) | Attention::Compressed(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => None,
    })
}

/// Whether some layers keep a state instead of attending.
pub(super) fn recurrent(model: &ModelGraph) -> bool {
    model.blocks.values().any(|block| matches!(block.attention, Attention::GatedDelta(_) | Attention::Mamba2(_)))
}

/// The latent attention of a model all of whose layers have the same; refuses a model that mixes it with another.
pub(super) fn latent_attention(model: &ModelGraph) -> Result<Option<&LatentAttention>, ConfigError> {
    let mut found = None;
    for block in model.blocks.values() {
        match (&block.attention, found) {
            (Attention::GroupedQuery(_) | Attention::Compressed(_) | Attention::GatedDelta(_) | Attention::Mamba2(_), None) => {}
            (Attention::Latent(attention), None) if attentions(model).next().is_none() => found = Some(attention),
            (Attention::Latent(attention), Some(other)) if same_widths(attention, other) => {}
            (
                Attention::Latent(_)
                | Attention::GroupedQuery(_)
                | Attention::Compressed(_)
                | Attention::GatedDelta(_)
                | Attention::Mamba2(_),
                _,
            ) => {
                return Err(ConfigError::NotPorted(format!(
                    "layers of the model `{}` have different kinds of attention, which is not modelled",
                    model.name
                )));
            }
        }
    }
    Ok(found)
}

fn same_widths(a: &LatentAttention, b: &LatentAttention) -> bool {
    let widths = |x: &LatentAttention| (x.query_heads, x.kv_rank, x.plain_dim, x.rotary_dim, x.value_dim);
    widths(a) == widths(b)
}

/// Whether any dense or expert weights are stored in a format.
fn stores(model: &ModelGraph, format: FormatName) -> bool {
    model.blocks.values().any(|block| {
        let attention = match &block.attention {
            Attention::GroupedQuery(attention) => attention.qkv_format.weights,
            Attention::Latent(attention) => attention.query_format.weights,
            Attention::Compressed(attention) => attention.query_format.weights,
            Attention::GatedDelta(rule) => rule.input_format.weights,
            Attention::Mamba2(space) => space.input_format.weights,
        };
        let feed_forward = match &block.feed_forward {
            FeedForward::Dense(dense) => dense.up_format.weights,
            FeedForward::MixtureOfExperts(experts) => experts.expert_format.weights,
            FeedForward::Absent => return attention == format,
        };
        attention == format || feed_forward == format
    })
}

/// Whether the checkpoint is NVFP4. upstream: vllm `config/model.py::ModelConfig.is_nvfp4_quantized`.
pub(super) fn is_nvfp4(model: &ModelGraph) -> bool {
    stores(model, FormatName::Nvfp4)
}

/// Whether weights are scaled by block. upstream: vllm `config/vllm.py::has_blocked_weights`.
pub(super) fn has_blocked_weights(model: &ModelGraph) -> bool {
    stores(model, FormatName::Fp8Block)
}
