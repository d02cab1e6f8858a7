//! What Llama 4 runs beside what other models run: queries scaled by their position, and experts whose input a router weighs.
//!
//! upstream: vllm `model_executor/models/llama4.py::Llama4Attention.forward`, `Llama4MoE.custom_routing_function`;
//! `model_executor/layers/fused_moe/prepare_finalize/no_dp_ep.py::MoEPrepareAndFinalizeNoDPEPModular.prepare`
//!
//! Layers without positions scale queries where others turn them; the compiler merges that into one kernel. One expert is picked by its
//! score, and the score's sigmoid multiplies what the expert reads. TensorRT-LLM's kernel does all that itself; in front of the others
//! PyTorch runs a kernel for each step of it, of which the pick itself is priced with the experts.

use blis_contracts::model::GroupedQueryAttention;
use blis_contracts::plan::{Primitive, PrimitiveShape, RowRange, RowSet};

use super::names::{INDUCTOR_FUSED, KernelName, TORCH_ELEMENTWISE, TRTLLM_EXPERTS};
use super::pass::Pass;

/// Bytes that the steps on one score of a row read and write: to 32 bits, its sigmoid, its index to 32 bits, and back to 16 bits.
const STEPS_ON_A_SCORE: [u64; 4] = [2 + 4, 4 + 4, 8 + 4, 4 + 2];

impl Pass<'_> {
    /// Scales queries by their position.
    pub(super) fn scale_queries(&mut self, attention: &GroupedQueryAttention) {
        let kernel = if self.site.compiled() { INDUCTOR_FUSED } else { TORCH_ELEMENTWISE };
        self.stream(Primitive::Rope, kernel, 2 * self.site.output_depth(attention) * self.site.element_bytes());
    }

    /// Weighs what the picked expert reads.
    pub(super) fn weigh_inputs(&mut self, kernel: KernelName, rows: RowSet) {
        if kernel == TRTLLM_EXPERTS {
            return;
        }
        let weighed = 2 * self.site.model.hidden_size * self.site.element_bytes();
        for bytes_per_row in STEPS_ON_A_SCORE.into_iter().chain([weighed]) {
            let shape = PrimitiveShape::Stream { bytes_per_row };
            self.push(Primitive::Activation, TORCH_ELEMENTWISE, shape, rows, RowRange::ALL);
        }
    }
}
