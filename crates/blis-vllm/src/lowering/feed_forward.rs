//! The part of a layer behind its attention: a network that every token passes, or experts of which each token picks a few.
//!
//! upstream: vllm `model_executor/layers/fused_moe/runner/moe_runner.py::MoERunner`, `model_executor/layers/fused_moe/runner/shared_experts.py::SharedExperts`
//!
//! With expert parallelism inside one engine core every rank has every token already, as tensor-parallel ranks do, so nothing is
//! exchanged in front of the experts; each rank's partial output is summed behind them. Where ranks hold parts of the tokens, networks
//! and shared experts are whole on each.

use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::model::{DenseFeedForward, FeedForward, LayerBlock, MixtureOfExperts};
use blis_contracts::plan::{Primitive, PrimitiveShape, RowRange, RowSet};

use super::LoweringError;
use super::collective::fused_rows;
use super::elementwise::{self, Input};
use super::exchange::{self, Exchange, Leg};
use super::experts::{self, ExpertsChoice};
use super::former::Former;
use super::linear::{self, Matrix};
use super::names::{
    CUBLAS_LINEAR, CUBLAS_LINEAR_TF32, INDUCTOR_FUSED, NCCL_ALL_GATHER, SHARED_STREAM, TORCH_ADD, TORCH_CAST, TORCH_ELEMENTWISE,
};
use super::parts::TokenParts;
use super::pass::{Pass, Sum, intersection};
use super::site::Site;

/// Rows up to which shared experts run on a stream of their own. upstream: vllm `envs.py::VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD`
pub(super) const SHARED_BESIDE_MOST_ROWS: u32 = 256;

/// What the feed-forward part wants its norm to write; none where there is no such part.
pub(super) fn into_feed_forward(site: &Site<'_>, block: &LayerBlock) -> Result<Option<Input>, LoweringError> {
    match &block.feed_forward {
        FeedForward::Dense(dense) => {
            let width = site.width_over(TokenParts::of(site).rows(block), dense.intermediate_size);
            let matrix =
                Matrix { columns: width * if dense.gated { 2 } else { 1 }, depth: site.model.hidden_size, format: dense.up_format };
            Ok(Some(Input::of(&linear::choose(site, "gate and up projections", matrix)?)))
        }
        FeedForward::MixtureOfExperts(_) => Ok(Some(Input::Plain)),
        FeedForward::Absent => Ok(None),
    }
}

impl Pass<'_> {
    /// A network that every token passes, for row counts within a range; the ranks' answers are not summed.
    pub(super) fn network(&mut self, dense: &DenseFeedForward, rows: RowSet, within: RowRange) -> Result<(), LoweringError> {
        let (site, hidden) = (self.site, self.site.model.hidden_size);
        let width = site.width_over(rows, dense.intermediate_size);
        let up_width = width * if dense.gated { 2 } else { 1 };
        let up = Matrix { columns: up_width, depth: hidden, format: dense.up_format };
        let choice = linear::choose(site, "gate and up projections", up)?;
        self.gemm_within(up, &choice, rows, within);
        let down = Matrix { columns: hidden, depth: width, format: dense.down_format };
        let choice = linear::choose(site, "down projection", down)?;
        let input = Input::of(&choice);
        let quantised = elementwise::activation_quantises(site, input, dense.gated);
        let plain = site.element_bytes();
        let written = if quantised { input.bytes(width, plain) } else { plain * width };
        let shape = PrimitiveShape::Stream { bytes_per_row: plain * up_width + written };
        self.push(Primitive::Activation, elementwise::activation(site, input, dense.gated), shape, rows, within);
        if !quantised {
            self.quantise(input, width, rows, within);
        }
        self.gemm_within(down, &choice, rows, within);
        Ok(())
    }

    /// Experts that every token passes: beside the routed ones for few rows, in front of them for many, and added to their answer.
    /// upstream: vllm `model_executor/layers/fused_moe/runner/shared_experts.py::SharedExperts._determine_shared_experts_order`
    fn shared(&mut self, shared: &DenseFeedForward, gated: bool, rows: RowSet) -> Result<(), LoweringError> {
        let (site, hidden) = (self.site, self.site.model.hidden_size);
        let width = site.width_over(rows, shared.intermediate_size);
        let up = width * if shared.gated { 2 } else { 1 };
        let bytes = shared.up_format.weights.stored_bytes(up, hidden) + shared.down_format.weights.stored_bytes(hidden, width);
        let few = RowRange { least: 0, most: SHARED_BESIDE_MOST_ROWS };
        self.push(Primitive::Beside, SHARED_STREAM, PrimitiveShape::Traffic { bytes }, rows, few);
        let many = RowRange { least: SHARED_BESIDE_MOST_ROWS + 1, most: u32::MAX };
        let input =
            Input::of(&linear::choose(site, "gate and up projections", Matrix { columns: up, depth: hidden, format: shared.up_format })?);
        self.quantise_if_needed(input, hidden, rows, many);
        self.network(shared, rows, many)?;
        if gated {
            let format = MatmulFormat { weights: site.dtype(), activations: site.dtype() };
            let gate = Matrix { columns: 1, depth: hidden, format };
            let choice = linear::choose(site, "gate of shared experts", gate)?;
            self.gemm_within(gate, &choice, rows, many);
            let weigh = PrimitiveShape::Stream { bytes_per_row: 2 * site.element_bytes() * hidden };
            self.push(Primitive::Activation, INDUCTOR_FUSED, weigh, rows, many);
        }
        let shape = PrimitiveShape::Stream { bytes_per_row: 3 * site.element_bytes() * hidden };
        self.push(Primitive::Activation, TORCH_ADD, shape, rows, RowRange::ALL);
        Ok(())
    }

    pub(super) fn experts(&mut self, moe: &MixtureOfExperts, next: Input) -> Result<(), LoweringError> {
        let sum = self.picked(moe, moe.shared.as_ref())?;
        self.sum_and_norm(sum, next);
        Ok(())
    }

    /// A router, the experts it picks and those that every token passes beside them; returns what is left to sum.
    pub(super) fn picked(&mut self, moe: &MixtureOfExperts, shared: Option<&DenseFeedForward>) -> Result<Sum, LoweringError> {
        let (site, hidden) = (self.site, self.site.model.hidden_size);
        let router = Matrix { columns: moe.experts.into(), depth: hidden, format: site.router_format(moe) };
        let choice = linear::router(site, router)?;
        let chosen = experts::choose(site, moe)?;
        let exchange = exchange::around(site, moe, &chosen);
        let casts = |kernel| router.format.weights == FormatName::Fp32 && [CUBLAS_LINEAR, CUBLAS_LINEAR_TF32].contains(&kernel);
        for (range, _) in choice.kernels.iter().filter(|(_, kernel)| casts(*kernel)) {
            let shape = PrimitiveShape::Stream { bytes_per_row: (site.element_bytes() + FormatName::Fp32.stored_bytes(1, 1)) * hidden };
            if !Former::WideRoutersByLibrary.ran(site) || elementwise::norm(site) != INDUCTOR_FUSED {
                self.push(Primitive::Activation, TORCH_CAST, shape, exchange.own, *range);
            } else if let Some(range) = fused_rows(site).and_then(|fused| intersection(fused, *range)) {
                // The compiler writes it with its own norm in front, where FlashInfer does not fuse that with a sum.
                self.push(Primitive::Activation, INDUCTOR_FUSED, shape, exchange.own, range);
            }
        }
        self.gemm(router, &choice, exchange.own);
        let ExpertsChoice { kernel, hidden: padded, pads_input, output, .. } = chosen;
        if let Some(shared) = shared {
            self.shared(shared, moe.shared_gate, exchange.own)?;
        }
        let width = experts::stream_width(site, moe);
        if let Some(latent) = moe.latent {
            self.narrow(latent, exchange.own)?;
        }
        if pads_input {
            let shape = PrimitiveShape::Stream { bytes_per_row: site.element_bytes() * (width + padded) };
            self.push(Primitive::Activation, elementwise::pad(site), shape, exchange.own, RowRange::ALL);
        }
        if site.is_llama4() {
            self.weigh_inputs(kernel, exchange.own);
        }
        self.dispatched(exchange);
        for bytes_per_row in experts::picking_bytes(site, moe, &chosen) {
            self.push(
                Primitive::Activation,
                TORCH_ELEMENTWISE,
                PrimitiveShape::Stream { bytes_per_row },
                exchange.at_experts,
                RowRange::ALL,
            );
        }
        self.multiplied(moe, &chosen, exchange.at_experts);
        let row = site.element_bytes() * output;
        if site.is_minimax_m3() && Former::ScaledBehindExperts.ran(site) {
            let shape = PrimitiveShape::Stream { bytes_per_row: 2 * row };
            self.push(Primitive::Activation, TORCH_ELEMENTWISE, shape, exchange.at_experts, RowRange::ALL);
        }
        self.combined(exchange, row);
        let summed = match moe.latent {
            Some(latent) => self.widen(latent, exchange.own, shared.is_some())?,
            None => false,
        };
        // A padded output is summed whole and cut afterwards, which keeps sum and norm apart.
        let (width, adjacent) = if moe.latent.is_some() { (hidden, true) } else { (output, output == hidden) };
        if exchange.gathers_parts {
            let shape = PrimitiveShape::Collective { group: site.ranks, bytes_per_row: site.element_bytes() * width };
            self.push(Primitive::AllGather, NCCL_ALL_GATHER, shape, exchange.own, RowRange::ALL);
        }
        Ok(Sum { width, adds: true, adjacent, needed: exchange.own == RowSet::Tokens && !summed })
    }

    /// The experts' products over what stands at them.
    pub(super) fn multiplied(&mut self, moe: &MixtureOfExperts, chosen: &ExpertsChoice, rows: RowSet) {
        for (range, kernel) in chosen.kernels(moe) {
            self.push(Primitive::MoeExperts, kernel, chosen.shape(self.site, moe), rows, range);
        }
    }

    /// The way of tokens to the experts of all engine cores; none where there is one core.
    pub(super) fn dispatched(&mut self, exchange: Exchange) {
        self.exchanged(exchange, exchange.there, exchange.dispatched);
    }

    /// The way back of what experts yield, of so many bytes a row.
    pub(super) fn combined(&mut self, exchange: Exchange, bytes_per_row: u64) {
        self.exchanged(exchange, exchange.back, bytes_per_row);
    }

    fn exchanged(&mut self, exchange: Exchange, leg: Leg, row: u64) {
        if exchange.group > 1 {
            let shape = PrimitiveShape::Collective { group: exchange.group, bytes_per_row: leg.all_bytes(row) };
            self.push(leg.primitive, leg.kernel, shape, exchange.own, RowRange::ALL);
        }
    }
}
