//! Layers that keep a state beside layers that attend: what is kept, and the block that both kinds share.
//!
//! upstream: vllm `model_executor/models/config.py::MambaModelConfig`, `HybridAttentionMambaModelConfig`, `NemotronHForCausalLMConfig`,
//! `Qwen3_5ForConditionalGenerationConfig`; `platforms/interface.py::Platform._align_hybrid_block_size`;
//! `model_executor/layers/mamba/mamba_utils.py::MambaStateShapeCalculator`, `MambaStateDtypeCalculator`;
//! `config/vllm.py::VllmConfig.validate_mamba_block_size`
//!
//! A page of attention grows, by more tokens in a block, until it holds a state; the state's page is then padded to the same size.
//!
//! Left out: speculative states, `ReplaySSM`, states of several sizes in one model, latent attention beside states.

use blis_contracts::format::FormatName;
use blis_contracts::model::{Attention, GatedDelta, Mamba2, ModelGraph};

use super::ledger::Ledger;
use super::model::{attentions, divides, recurrent};
use super::{Machine, attention};
use crate::config::choices::{Dtype, MambaCacheMode, MambaDtype};
use crate::config::error::ConfigError;
use crate::config::resolved::{AttentionSettings, CacheSettings, SchedulerSettings, StateSettings};
use crate::config::setting::Setting;

/// Fills in [`CacheSettings::states`] and aligns the block size with it; refuses what only such layers read where there are none.
pub(super) fn resolve(
    ledger: &mut Ledger<'_>,
    machine: Machine<'_>,
    (ranks, dtype): (u32, Dtype),
    backend: &AttentionSettings,
    scheduler: &SchedulerSettings,
    cache: &mut CacheSettings,
) -> Result<(), ConfigError> {
    if !recurrent(machine.model) {
        return refuse_its_settings(ledger);
    }
    let mode = mode(ledger, cache, scheduler)?;
    let conv_format = conv_format(ledger, dtype);
    let ssm_format = ssm_format(ledger, machine.model, conv_format);
    let state_bytes = state_bytes(machine.model, ranks, conv_format, ssm_format)?;
    let token_bytes = token_bytes(machine.model, ranks, cache)?;
    let smallest = attention::kernel_block_size(machine, backend, cache);
    let aligned = aligned(state_bytes, token_bytes, smallest, cache.block_size)?;
    if aligned > cache.block_size {
        cache.block_size = aligned;
        ledger.derive(Setting::BlockSize, aligned, "so that a page of attention holds a state of the other layers");
    }
    let block_size = match mode {
        MambaCacheMode::Align => cache.block_size,
        MambaCacheMode::None => u32::try_from(cache.max_model_len).map_err(|_| {
            ConfigError::Refused(format!(
                "--max-model-len {}: too long for one block of states; it should be at most {}",
                cache.max_model_len,
                u32::MAX
            ))
        })?,
    };
    ledger.derive(Setting::MambaBlockSize, block_size, "the block of attention, or the longest request where states are not cached");
    let page_bytes = u64::from(cache.block_size) * token_bytes;
    cache.states = Some(StateSettings { mode, block_size, state_bytes, page_bytes, conv_format, ssm_format });
    Ok(())
}

fn refuse_its_settings(ledger: &Ledger<'_>) -> Result<(), ConfigError> {
    let settings = [
        (Setting::MambaCacheMode, MambaCacheMode::None.as_str()),
        (Setting::MambaCacheDtype, MambaDtype::Auto.as_str()),
        (Setting::MambaSsmCacheDtype, MambaDtype::Auto.as_str()),
    ];
    let stated = |setting, default: &str| ledger.stated(setting).is_some_and(|value| value.as_str() != Some(default));
    let odd = settings.into_iter().find(|(setting, default)| stated(*setting, default)).map(|(setting, _)| setting);
    match odd.or_else(|| ledger.stated(Setting::MambaBlockSize).map(|_| Setting::MambaBlockSize)) {
        None => Ok(()),
        Some(setting) => Err(ConfigError::Refused(format!("{}: no layer of this model keeps a state; leave it out", setting.key()))),
    }
}

/// Which states are cached: those of block ends exactly where prompts are looked up.
fn mode(ledger: &mut Ledger<'_>, cache: &CacheSettings, scheduler: &SchedulerSettings) -> Result<MambaCacheMode, ConfigError> {
    let stated = ledger.choice(Setting::MambaCacheMode, MambaCacheMode::named);
    let size = ledger.optional_count(Setting::MambaBlockSize)?;
    if !cache.enable_prefix_caching {
        if size.is_some_and(|size| size != cache.max_model_len) {
            return Err(ConfigError::Refused(format!(
                "--mamba-block-size {}: can only be set with --enable-prefix-caching; leave it out",
                size.unwrap_or_default()
            )));
        }
        if stated == MambaCacheMode::Align {
            let note = "Mamba cache mode is set to 'none' when prefix caching is disabled".to_owned();
            ledger.note(Some(Setting::MambaCacheMode), note);
        }
        ledger.derive(Setting::MambaCacheMode, MambaCacheMode::None, "prefix caching is off");
        return Ok(MambaCacheMode::None);
    }
    if !scheduler.enable_chunked_prefill {
        return Err(ConfigError::Refused("Chunked prefill is required for mamba cache mode 'align'. State --enable-chunked-prefill, or --no-enable-prefix-caching, which \
             needs no such mode."
                .to_owned()));
    }
    if stated == MambaCacheMode::None {
        ledger.derive(Setting::MambaCacheMode, MambaCacheMode::Align, "prefix caching is on");
    }
    Ok(MambaCacheMode::Align)
}

/// How the tokens that convolutions reach are kept.
fn conv_format(ledger: &mut Ledger<'_>, dtype: Dtype) -> FormatName {
    match ledger.choice(Setting::MambaCacheDtype, MambaDtype::named) {
        MambaDtype::Auto => match dtype {
            Dtype::Float16 => FormatName::Fp16,
            Dtype::Bfloat16 => FormatName::Bf16,
        },
        stated @ (MambaDtype::Float32 | MambaDtype::Float16 | MambaDtype::Bfloat16) => format(stated),
    }
}

/// How states are kept: as stated, else as the checkpoint asks for; Nemotron-H asks for 32 bits even where it is silent.
fn ssm_format(ledger: &mut Ledger<'_>, model: &ModelGraph, conv_format: FormatName) -> FormatName {
    const NEMOTRON_H: &str = "NemotronHForCausalLM";
    let asked = model.blocks.values().find_map(|block| match &block.attention {
        Attention::GatedDelta(rule) => rule.state_format,
        Attention::Mamba2(space) => space.state_format,
        Attention::GroupedQuery(_) | Attention::Latent(_) | Attention::Compressed(_) => None,
    });
    let asked = asked.or_else(|| (model.architecture == NEMOTRON_H).then_some(FormatName::Fp32));
    match (ledger.choice(Setting::MambaSsmCacheDtype, MambaDtype::named), asked) {
        (MambaDtype::Auto, Some(asked)) => {
            ledger.derive(Setting::MambaSsmCacheDtype, name(asked), "what the checkpoint asks for");
            asked
        }
        (MambaDtype::Auto, None) => conv_format,
        (stated, _) => {
            let stated = format(stated);
            if asked.is_some_and(|asked| asked != stated) {
                ledger.note(Some(Setting::MambaSsmCacheDtype), format!("the checkpoint asks for states in {}", asked.map_or("", name)));
            }
            stated
        }
    }
}

/// The format of a type that is named; the unnamed one is resolved before.
fn format(stated: MambaDtype) -> FormatName {
    match stated {
        MambaDtype::Float32 => FormatName::Fp32,
        MambaDtype::Float16 => FormatName::Fp16,
        MambaDtype::Auto | MambaDtype::Bfloat16 => FormatName::Bf16,
    }
}

fn name(format: FormatName) -> &'static str {
    match format {
        FormatName::Fp32 => MambaDtype::Float32.as_str(),
        FormatName::Fp16 => MambaDtype::Float16.as_str(),
        FormatName::Bf16
        | FormatName::Fp8
        | FormatName::Fp8Block
        | FormatName::Mxfp8
        | FormatName::Mxfp4
        | FormatName::Nvfp4
        | FormatName::Int8
        | FormatName::Int4Group32
        | FormatName::Int4Group128 => MambaDtype::Bfloat16.as_str(),
    }
}

/// Bytes of one layer's state on one rank, the same in all layers that keep one.
fn state_bytes(model: &ModelGraph, ranks: u32, conv: FormatName, ssm: FormatName) -> Result<u64, ConfigError> {
    let mut found: Option<u64> = None;
    for block in model.blocks.values() {
        let (conv_elements, ssm_elements) = match &block.attention {
            Attention::GatedDelta(rule) => gated_delta(rule, ranks)?,
            Attention::Mamba2(space) => mamba2(space, ranks)?,
            Attention::GroupedQuery(_) => continue,
            Attention::Latent(_) | Attention::Compressed(_) => {
                return Err(ConfigError::Refused(
                    "states beside another attention than grouped-query attention are not modelled".to_owned(),
                ));
            }
        };
        let bytes = conv.stored_bytes(1, conv_elements) + ssm.stored_bytes(1, ssm_elements);
        if found.is_some_and(|other| other != bytes) {
            return Err(ConfigError::NotPorted("layers with states of different sizes are not modelled".to_owned()));
        }
        found = Some(bytes);
    }
    Ok(found.expect("only asked of a model with states"))
}

/// Elements on one rank: what the convolution reaches back to, and the states of the heads.
fn gated_delta(rule: &GatedDelta, ranks: u32) -> Result<(u64, u64), ConfigError> {
    divides("linear_num_key_heads", rule.key_heads, ranks)?;
    divides("linear_num_value_heads", rule.value_heads, ranks)?;
    let ranks = u64::from(ranks);
    Ok((rule.conv_width() / ranks * u64::from(rule.conv_tokens - 1), rule.state_elements() / ranks))
}

fn mamba2(space: &Mamba2, ranks: u32) -> Result<(u64, u64), ConfigError> {
    divides("mamba_num_heads", space.heads, ranks)?;
    if !space.groups.is_multiple_of(ranks) && space.groups != 1 {
        return Err(ConfigError::Refused(format!(
            "if tensor parallel size ({ranks}) does not divide n_groups ({}), then n_groups must equal 1; state a --tensor-parallel-size that divides it",
            space.groups
        )));
    }
    let ranks = u64::from(ranks);
    // Where one group serves all heads, every rank has it.
    let groups = u64::from(space.groups).max(ranks);
    let conv = space.width() + 2 * groups * u64::from(space.state_dim);
    Ok((conv / ranks * u64::from(space.conv_tokens - 1), space.state_elements() / ranks))
}

/// Bytes of one token's keys and values in one attending layer on one rank.
fn token_bytes(model: &ModelGraph, ranks: u32, cache: &CacheSettings) -> Result<u64, ConfigError> {
    let element = if cache.kv_cache_dtype.is_quantized() { 1 } else { 2 };
    let bytes = |layer: &blis_contracts::model::GroupedQueryAttention| {
        2 * u64::from((layer.kv_heads / ranks).max(1)) * u64::from(layer.head_dim) * element
    };
    let first = attentions(model).map(bytes).next();
    first
        .filter(|first| attentions(model).all(|layer| bytes(layer) == *first))
        .ok_or_else(|| ConfigError::NotPorted("states beside attention of several sizes, or beside none, are not modelled".to_owned()))
}

/// The least tokens of a block, in multiples of what kernels read and of the block so far, whose page holds a state.
fn aligned(state_bytes: u64, token_bytes: u64, smallest: u32, block_size: u32) -> Result<u32, ConfigError> {
    let alignment = u64::from(smallest.max(block_size));
    let tokens = alignment * state_bytes.div_ceil(alignment * token_bytes);
    u32::try_from(tokens.next_multiple_of(smallest.into()))
        .map_err(|_| ConfigError::Refused(format!("a state of {state_bytes} bytes: no block of attention is as large")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_grows_until_its_page_holds_a_state() {
        assert_eq!(aligned(533_504, 1024, 16, 16).unwrap(), 528);
        assert_eq!(aligned(2_816, 512, 16, 16).unwrap(), 16);
        assert_eq!(aligned(533_504, 1024, 16, 64).unwrap(), 576);
        assert_eq!(aligned(533_504, 1024, 128, 128).unwrap(), 640);
        assert_eq!(aligned(100, 1024, 16, 48).unwrap(), 48);
    }
}
