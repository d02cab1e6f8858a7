//! Gemma 4: heads of two widths, which choose how all layers attend, and images whose tokens see each other.
//!
//! upstream: vllm `model_executor/models/config.py::Gemma4Config.verify_and_update_config`;
//! `transformers_utils/model_arch_config_convertor.py::Gemma4ModelArchConfigConvertor.is_mm_prefix_lm`;
//! `engine/arg_utils.py::EngineArgs._get_min_mm_batched_tokens`, `model_executor/models/gemma4_mm.py::Gemma4ProcessingInfo.get_mm_max_tokens_per_item`
//!
//! Images themselves are refused with the workload that has them; what the ability to take them changes holds for text too.

use super::Machine;
use super::ledger::Ledger;
use super::model::attentions;
use crate::config::choices::AttentionBackend;
use crate::config::resolved::CacheSettings;
use crate::config::setting::Setting;

/// The architecture that takes images, and its text part alone.
const WITH_IMAGES: &str = "Gemma4ForConditionalGeneration";
const TEXT_ALONE: &str = "Gemma4ForCausalLM";

/// Tokens of the longest video: 32 frames of 70 tokens, two that enclose them and about six of the time.
const VIDEO_TOKENS: u64 = 32 * (70 + 2 + 6);

/// Widest head that `FlashAttention` 4 reads.
const FLASH_ATTN_4_WIDEST: u32 = 512;

/// Whether attention must be able to show the tokens of an image to each other.
pub(super) fn masks_images(machine: Machine<'_>, language_model_only: bool) -> bool {
    machine.model.architecture == WITH_IMAGES && !machine.model.encoders.is_empty() && !language_model_only
}

/// Least tokens of a step where the line states none: an image or video is never split.
pub(super) fn least_tokens(machine: Machine<'_>, language_model_only: bool) -> u64 {
    if masks_images(machine, language_model_only) { VIDEO_TOKENS } else { 0 }
}

/// What the line states of attention, or what heads of two widths make of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Preference {
    /// The version of `FlashAttention`.
    pub(super) version: Option<u8>,
    /// The backend.
    pub(super) backend: Option<AttentionBackend>,
}

/// Settles on one `FlashAttention` for both widths where it reads both, else on Triton.
pub(super) fn prefer(ledger: &mut Ledger<'_>, machine: Machine<'_>, cache: &CacheSettings, stated: Preference) -> Preference {
    let mut widths: Vec<u32> = attentions(machine.model).map(|attention| attention.head_dim).collect();
    widths.sort_unstable();
    widths.dedup();
    let [_, .., widest] = widths[..] else { return stated };
    if ![WITH_IMAGES, TEXT_ALONE].contains(&machine.model.architecture.as_str()) {
        return stated;
    }
    let capability = machine.chip.compute_capability.value.0;
    if matches!(capability, 9..=11) && widest <= FLASH_ATTN_4_WIDEST {
        let flash_attn = matches!(stated.backend, None | Some(AttentionBackend::FlashAttn));
        let each_its_own = capability == 9 && cache.kv_cache_dtype.is_quantized();
        if stated.version.is_none() && flash_attn && !each_its_own {
            ledger.derive(Setting::AttentionConfigFlashAttnVersion, 4, "heads of two widths, both of which FlashAttention 4 reads");
            return Preference { version: Some(4), ..stated };
        }
        return stated;
    }
    Preference { backend: stated.backend.or(Some(AttentionBackend::TritonAttn)), ..stated }
}
