//! Which layers each stage of a pipeline runs.
//!
//! upstream: vllm `distributed/utils.py::get_pp_indices`
//!
//! Layers are divided evenly; of what is left over, each of the last stages but the very last gets one. Left out: models whose
//! layers keep caches of several kinds, or of which a stage would hold layers without a feed-forward part.

use std::ops::Range;

use blis_contracts::model::{Attention, FeedForward, LayerBlock};

use super::site::Site;
use super::{LoweringError, compressed};

/// The layers of each stage.
pub(super) fn layers(site: &Site<'_>) -> Vec<Range<usize>> {
    divided(site.model.layer_count(), site.stages as usize)
}

fn divided(layers: usize, stages: usize) -> Vec<Range<usize>> {
    let mut counts = vec![layers / stages; stages];
    for back in 2..layers % stages + 2 {
        counts[stages - back] += 1;
    }
    let mut first = 0;
    let range = |count| {
        let range = first..first + count;
        first = range.end;
        range
    };
    counts.into_iter().map(range).collect()
}

/// Refuses to cut a model whose stages would differ in kind.
pub(super) fn check(site: &Site<'_>) -> Result<(), LoweringError> {
    let plain = |block: &LayerBlock| {
        let alike = match &block.attention {
            Attention::GroupedQuery(attention) => attention.window.is_none() && attention.chunk.is_none() && attention.indexer.is_none(),
            Attention::Latent(attention) => attention.selection.is_none(),
            Attention::Compressed(_) | Attention::GatedDelta(_) | Attention::Mamba2(_) => false,
        };
        alike && block.feed_forward != FeedForward::Absent
    };
    if site.stages > 1 && (compressed::applies(site) || !site.model.blocks.values().all(plain)) {
        let reason = "has layers of several kinds, which stages of a pipeline would share unevenly".to_owned();
        let instead = "leave --pipeline-parallel-size out, and divide each layer by --tensor-parallel-size";
        return Err(LoweringError::NotModelled { model: site.model.name.clone(), reason, instead });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_that_do_not_divide_go_to_the_last_stages_but_one() {
        let counts = |layers, stages| divided(layers, stages).iter().map(Range::len).collect::<Vec<_>>();
        assert_eq!(counts(126, 2), [63, 63]);
        assert_eq!(counts(61, 2), [31, 30]);
        assert_eq!(counts(10, 4), [2, 3, 3, 2]);
        assert_eq!(counts(11, 4), [3, 3, 3, 2]);
        assert_eq!(divided(5, 2), [0..3, 3..5]);
        assert_eq!(counts(7, 1), [7]);
    }
}
