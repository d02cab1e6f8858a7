//! What the cost model is asked about a batch.

use blis_contracts::step::{PrefillRow, RankStep};

use super::core::requests;
use crate::cudagraph::CudaGraphs;
use crate::sched::batch::Batch;

/// Describes `batch`, padded as it is launched, into `rank`.
pub(super) fn describe(batch: &Batch, graphs: &CudaGraphs, rank: &mut RankStep) {
    fill(batch, rank);
    let dispatch = graphs.dispatch(batch.tokens, requests(batch), uniform_decode(batch, graphs, rank));
    rank.launch = dispatch.launch;
    rank.padded_tokens = dispatch.padded_tokens;
}

/// Whether a batch counts as decodes alone when a graph is chosen.
pub(super) fn uniform_decode(batch: &Batch, graphs: &CudaGraphs, rank: &RankStep) -> bool {
    if graphs.judges_by_tokens() { batch.tokens == requests(batch) } else { rank.prefill.is_empty() }
}

/// Describes `batch` without its padding.
pub(super) fn fill(batch: &Batch, rank: &mut RankStep) {
    rank.clear();
    if batch.prefill_rows == 0 {
        rank.decode.extend(batch.rows.iter().map(|row| row.context));
    } else {
        for row in &batch.rows {
            if row.is_decode() {
                rank.decode.push(row.context);
            } else {
                rank.prefill.push(PrefillRow { query: row.tokens, context: row.context });
            }
        }
    }
    rank.sampled = batch.sampled;
}
