//! What the cost model is asked about a batch.

use blis_contracts::step::{PrefillRow, RankStep};

use super::core::requests;
use crate::cudagraph::CudaGraphs;
use crate::sched::batch::Batch;

/// Describes `batch`, padded as it is launched, into `rank`.
pub(super) fn describe(batch: &Batch, graphs: &CudaGraphs, rank: &mut RankStep) {
    fill(batch, rank);
    let dispatch = graphs.dispatch(batch.tokens, requests(batch), rank.prefill.is_empty());
    rank.launch = dispatch.launch;
    rank.padded_tokens = dispatch.padded_tokens;
}

/// The same without the padding.
pub(super) fn fill(batch: &Batch, rank: &mut RankStep) {
    rank.clear();
    for row in &batch.rows {
        if row.tokens == 1 && row.context > 0 {
            rank.decode.push(row.context);
        } else {
            rank.prefill.push(PrefillRow { query: row.tokens, context: row.context });
        }
        rank.sampled += u32::from(row.samples);
    }
}
