//! Experts of a stream narrower than the residual one: the projections into it and back.
//!
//! upstream: vllm `model_executor/layers/fused_moe/runner/moe_runner.py::MoERunner.forward`

use blis_contracts::model::ExpertLatent;
use blis_contracts::plan::{Primitive, PrimitiveShape, RowRange, RowSet};

use super::LoweringError;
use super::elementwise::Input;
use super::linear::{self, Matrix};
use super::names::INDUCTOR_FUSED;
use super::pass::Pass;

impl Pass<'_> {
    /// The projection to what experts read, whole on every rank.
    pub(super) fn narrow(&mut self, latent: ExpertLatent, rows: RowSet) -> Result<(), LoweringError> {
        let matrix = Matrix { columns: latent.width, depth: self.site.model.hidden_size, format: latent.format };
        let choice = linear::choose(self.site, "projection into experts", matrix)?;
        self.quantise_if_needed(Input::of(&choice), matrix.depth, rows, RowRange::ALL);
        self.gemm(matrix, &choice, rows);
        Ok(())
    }

    /// The scaling of what experts yield, and the projection back. Says whether everything is summed over the ranks before it: it is where
    /// the projection is quantised and so does not commute with the sum.
    /// upstream: vllm `model_executor/layers/fused_moe/runner/moe_runner.py::MoERunner._maybe_reduce_routed_output_before_transform`
    pub(super) fn widen(&mut self, latent: ExpertLatent, rows: RowSet, shared: bool) -> Result<bool, LoweringError> {
        let (site, hidden, plain) = (self.site, self.site.model.hidden_size, self.site.element_bytes());
        let first = latent.format.weights != site.dtype() && rows == RowSet::Tokens;
        if first {
            self.all_reduce(plain * latent.width);
            if shared {
                self.all_reduce(plain * hidden);
            }
        }
        let scale = PrimitiveShape::Stream { bytes_per_row: 2 * plain * latent.width };
        self.push(Primitive::Activation, INDUCTOR_FUSED, scale, rows, RowRange::ALL);
        let matrix = Matrix { columns: hidden, depth: latent.width, format: latent.format };
        let choice = linear::choose(site, "projection out of experts", matrix)?;
        self.quantise_if_needed(Input::of(&choice), matrix.depth, rows, RowRange::ALL);
        self.gemm(matrix, &choice, rows);
        Ok(first)
    }
}
