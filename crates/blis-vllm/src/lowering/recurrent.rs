//! Layers that keep a state instead of keys and values: what they keep.
//!
//! upstream: vllm `model_executor/layers/mamba/abstract.py::MambaBase.get_kv_cache_spec`

use blis_contracts::model::Attention as Kind;

use super::site::Site;
use crate::config::{MambaCacheMode, StateSettings};
use crate::kv::group::{Attention, MambaMode};
use crate::kv_sizing::LayerKv;

/// The state of a layer that keeps one, as sizing sees it.
pub(super) fn state(site: &Site<'_>, index: usize, kind: &Kind) -> Option<LayerKv> {
    let StateSettings { mode, block_size, page_bytes, .. } = site.resolved.cache.states?;
    // Mamba-2's kernels can write a state in the middle of a prompt on their way; those of the delta rule cannot.
    let (module, checkpoints) = match kind {
        Kind::GatedDelta(_) => ("linear_attn", false),
        Kind::Mamba2(_) => ("mixer", true),
        Kind::GroupedQuery(_) | Kind::Latent(_) | Kind::Compressed(_) => return None,
    };
    let attention = Attention::Mamba(match mode {
        MambaCacheMode::None => MambaMode::None,
        MambaCacheMode::Align => MambaMode::Align { checkpoints },
    });
    Some(LayerKv { name: format!("model.layers.{index}.{module}"), attention, block_size, page_bytes })
}
