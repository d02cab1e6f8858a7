//! Layers that keep a state instead of keys and values: what they keep, what they run, what they weigh.
//!
//! upstream: vllm `model_executor/layers/mamba/abstract.py::MambaBase.get_kv_cache_spec`,
//! `model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py::QwenGatedDeltaNetAttention.forward_cuda`, `_forward_core`,
//! `_resolve_gdn_prefill_backend`
//!
//! A gated delta rule projects its input twice, convolves queries, keys and values, and runs the rule by one kernel for decodes and
//! another, over chunks, for prompts; a gated norm and a projection follow. Left out: gathering and scattering the states of prompts,
//! copies of states at block ends, Mamba-2's own kernels ([`super::mamba2`]), an input that one projection reads narrow and the other wide.

use blis_contracts::format::FormatName;
use blis_contracts::model::{Attention as Kind, GatedDelta};
use blis_contracts::plan::{Primitive, PrimitiveShape, RowRange, RowSet};

use super::LoweringError;
use super::elementwise::Input;
use super::linear::{self, LinearChoice, Matrix};
use super::names::{
    FLASHINFER_GDN_PREFILL, KernelName, TRITON_CAUSAL_CONV, TRITON_CAUSAL_CONV_UPDATE, TRITON_CHUNK_DELTA, TRITON_GATED_NORM,
    TRITON_PACKED_DELTA, TRITON_POST_CONV,
};
use super::pass::{Pass, Sum};
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

/// The projection to queries, keys, values and the gate of the output.
pub(super) fn input(site: &Site<'_>, rule: &GatedDelta) -> Result<(Matrix, LinearChoice), LoweringError> {
    let columns = site.share(rule.conv_width() + rule.value_width());
    let matrix = Matrix { columns, depth: site.model.hidden_size, format: rule.input_format };
    Ok((matrix, linear::choose(site, "projections of the delta rule", matrix)?))
}

/// The kernel of the rule over prompts.
fn prefill(site: &Site<'_>, rule: &GatedDelta) -> KernelName {
    let blackwell = (site.family(10) || site.family(12)) && rule.key_dim == 128;
    if site.capability == (9, 0) || blackwell { FLASHINFER_GDN_PREFILL } else { TRITON_CHUNK_DELTA }
}

impl Pass<'_> {
    pub(super) fn delta(&mut self, rule: &GatedDelta, next: Input) -> Result<(), LoweringError> {
        let (site, hidden, plain) = (self.site, self.site.model.hidden_size, self.site.element_bytes());
        let (matrix, choice) = input(site, rule)?;
        self.gemm(matrix, &choice, RowSet::Tokens);
        let gates = Matrix { columns: site.share(2 * u64::from(rule.value_heads)), depth: hidden, format: rule.gates_format };
        let choice = linear::choose(site, "gates of the delta rule", gates)?;
        self.gemm(gates, &choice, RowSet::Tokens);
        self.rule(rule);
        let depth = site.share(rule.value_width());
        self.stream(Primitive::Norm, TRITON_GATED_NORM, 3 * depth * plain);
        let output = Matrix { columns: hidden, depth, format: rule.output_format };
        let choice = linear::choose(site, "output projection", output)?;
        let reads = Input::of(&choice);
        if reads != Input::Plain {
            self.quantise(reads, depth, RowSet::Tokens, RowRange::ALL);
        }
        self.gemm(output, &choice, RowSet::Tokens);
        self.sum_and_norm(Sum { width: hidden, adds: true, adjacent: true, needed: true }, next);
        Ok(())
    }

    /// Convolution and rule, apart for decodes and for prompts.
    fn rule(&mut self, rule: &GatedDelta) {
        let (site, plain) = (self.site, self.site.element_bytes());
        let settings = site.resolved.cache.states.expect("a model with states has their settings");
        let convolved = site.share(rule.conv_width());
        let reached = settings.conv_format.stored_bytes(u64::from(rule.conv_tokens - 1), convolved);
        let stream = |bytes_per_row| PrimitiveShape::Stream { bytes_per_row };
        // A decode reads and writes its token and what the convolution reaches back to, then its states, queries, keys, values, output.
        let update = stream(2 * (plain * convolved + reached));
        self.push(Primitive::Convolution, TRITON_CAUSAL_CONV_UPDATE, update, RowSet::Decodes, RowRange::ALL);
        let states = settings.ssm_format.stored_bytes(1, site.share(rule.state_elements()));
        let token = plain * (convolved + site.share(rule.value_width()));
        self.push(Primitive::RecurrentDecode, TRITON_PACKED_DELTA, stream(2 * states + token), RowSet::Decodes, RowRange::ALL);
        let through = stream(2 * plain * convolved);
        self.push(Primitive::Convolution, TRITON_CAUSAL_CONV, through, RowSet::Prefills, RowRange::ALL);
        self.push(Primitive::Activation, TRITON_POST_CONV, through, RowSet::Prefills, RowRange::ALL);
        let shape = PrimitiveShape::Recurrent { heads: rule.value_heads / site.ranks, state_elements: rule.key_dim * rule.value_dim };
        self.push(Primitive::RecurrentPrefill, prefill(site, rule), shape, RowSet::Requests, RowRange::ALL);
    }
}

/// Weights of a gated delta rule on one rank.
pub(super) fn weights(site: &Site<'_>, rule: &GatedDelta, add: &mut impl FnMut(&str, u64)) {
    let (hidden, plain) = (site.model.hidden_size, site.element_bytes());
    let heads = site.share(rule.value_heads.into());
    let columns = site.share(rule.conv_width() + rule.value_width());
    add("projections of the delta rule", rule.input_format.weights.stored_bytes(columns, hidden));
    add("gates of the delta rule", rule.gates_format.weights.stored_bytes(2 * heads, hidden));
    add("convolution", site.share(rule.conv_width()) * u64::from(rule.conv_tokens) * plain);
    add("decays and offsets", FormatName::Fp32.stored_bytes(1, heads) + plain * heads);
    add("gated norm", u64::from(rule.value_dim) * plain);
    add("output projection", rule.output_format.weights.stored_bytes(hidden, site.share(rule.value_width())));
}
