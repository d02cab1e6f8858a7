//! Which captured graph a step replays, and to what size it is padded.
//!
//! upstream: vllm `v1/worker/gpu/cudagraph_utils.py::CudaGraphManager._init_candidates`, `dispatch`; `v1/worker/utils.py::get_uniform_decode_token_count`
//! upstream: vllm `v1/cudagraph_dispatcher.py::CudagraphDispatcher.dispatch`, `v1/worker/gpu_model_runner.py::GPUModelRunner._is_uniform_decode`
//!
//! Per token count: first the smallest graph of the whole pass, if its condition holds, then the smallest piecewise graph, else no
//! graph and no padding. The two model runners differ in one thing only: the first takes any batch of one token per request for
//! decodes, also a prompt of one token.
//!
//! Ranks in lockstep agree: if any runs without a graph, all do, each on its own tokens; else all pad to what the largest needs.
//! upstream: vllm `v1/worker/gpu/dp_utils.py::sync_cudagraph_and_dp_padding`
//!
//! Left out: several query lengths per decode, adapters, microbatches.

use blis_contracts::step::Launch;

use crate::config::CudagraphMode;

/// The captured graphs, as a table over token counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaGraphs {
    full: Vec<u32>,
    piecewise: Vec<u32>,
    /// Whether a graph of the whole pass takes batches with prompts too.
    full_takes_prompts: bool,
    max_num_seqs: u32,
    judges_by_tokens: bool,
    /// The smallest graph of at least so many tokens, by token count; 0 where none is large enough.
    smallest_full: Vec<u32>,
    smallest_piecewise: Vec<u32>,
}

/// How a step is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispatch {
    /// What is replayed.
    pub launch: Launch,
    /// Tokens it computes, padding included.
    pub padded_tokens: u32,
}

/// What one of several ranks in lockstep brings to a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankBatch {
    /// Its tokens.
    pub tokens: u32,
    /// Its requests.
    pub requests: u32,
    /// As in [`CudaGraphs::dispatch`].
    pub uniform_decode: bool,
}

impl RankBatch {
    /// What a rank without a batch runs beside the others: one token of no request, as if it were a decode.
    pub const DUMMY: Self = Self { tokens: 1, requests: 1, uniform_decode: true };
}

impl CudaGraphs {
    /// Captures `sizes` as `mode` says. Pure decodes never need a graph beyond `max_num_seqs` tokens.
    pub fn new(mode: CudagraphMode, sizes: &[u32], max_num_seqs: u32) -> Self {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        let of = |part: CudagraphMode, wanted: CudagraphMode| if part == wanted { sizes.clone() } else { Vec::new() };
        let separate = mode.decode() != mode.mixed();
        let mut full = of(mode.decode(), CudagraphMode::Full);
        if separate {
            full.retain(|size| *size <= max_num_seqs);
        }
        let piecewise = of(mode.mixed(), CudagraphMode::Piecewise);
        Self {
            smallest_full: smallest_at_least(&full),
            smallest_piecewise: smallest_at_least(&piecewise),
            full,
            piecewise,
            full_takes_prompts: !separate,
            max_num_seqs,
            judges_by_tokens: false,
        }
    }

    /// The same under the first model runner.
    #[must_use]
    pub fn of_first_runner(self) -> Self {
        Self { judges_by_tokens: true, ..self }
    }

    /// Whether a batch of one token per request counts as decodes whatever the requests have cached.
    pub const fn judges_by_tokens(&self) -> bool {
        self.judges_by_tokens
    }

    /// Token counts with a graph of the whole pass, ascending.
    pub fn full_sizes(&self) -> &[u32] {
        &self.full
    }

    /// Token counts with a piecewise graph, ascending.
    pub fn piecewise_sizes(&self) -> &[u32] {
        &self.piecewise
    }

    /// How a step of `tokens` tokens over `requests` requests is launched. `uniform_decode`: every request computes one token over
    /// tokens computed before; the last token of a prompt counts, a prompt of one token does not.
    #[inline]
    pub fn dispatch(&self, tokens: u32, requests: u32, uniform_decode: bool) -> Dispatch {
        let find = |table: &[u32]| table.get(tokens as usize).copied().filter(|size| *size > 0);
        if let Some(size) = find(&self.smallest_full) {
            let rows = if self.full_takes_prompts { size.min(self.max_num_seqs) } else { size };
            if (uniform_decode || self.full_takes_prompts) && requests <= rows {
                return Dispatch { launch: Launch::Full, padded_tokens: size };
            }
        }
        match find(&self.smallest_piecewise) {
            Some(size) => Dispatch { launch: Launch::Piecewise, padded_tokens: size },
            None => Dispatch { launch: Launch::Eager, padded_tokens: tokens },
        }
    }
}

impl CudaGraphs {
    /// How ranks in lockstep launch a step together, in their order.
    pub fn agree(&self, ranks: &[RankBatch]) -> Vec<Dispatch> {
        let alone = |rank: &RankBatch| self.dispatch(rank.tokens, rank.requests, rank.uniform_decode);
        if ranks.iter().any(|rank| alone(rank).launch == Launch::Eager) {
            return ranks.iter().map(|rank| Dispatch { launch: Launch::Eager, padded_tokens: rank.tokens }).collect();
        }
        let tokens = ranks.iter().map(|rank| rank.tokens).max().unwrap_or(0);
        let uniform_decode = ranks.iter().all(|rank| rank.uniform_decode);
        ranks.iter().map(|rank| self.dispatch(tokens, rank.requests, uniform_decode)).collect()
    }
}

fn smallest_at_least(sizes: &[u32]) -> Vec<u32> {
    let mut table = Vec::new();
    for size in sizes {
        table.resize(*size as usize + 1, *size);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1, 2, 4, 8 to 248 by 8, 256 to 512 by 16: upstream's default list with a ceiling of 512.
    fn default_sizes() -> Vec<u32> {
        [1, 2, 4].into_iter().chain((8..256).step_by(8)).chain((256..=512).step_by(16)).collect()
    }

    fn dispatch(mode: CudagraphMode, tokens: u32, requests: u32, decode: bool) -> (Launch, u32) {
        let found = CudaGraphs::new(mode, &default_sizes(), 1024).dispatch(tokens, requests, decode);
        (found.launch, found.padded_tokens)
    }

    #[test]
    fn the_default_mode_replays_whole_graphs_for_decodes_and_pieces_for_prompts() {
        let mode = CudagraphMode::FullAndPiecewise;
        assert_eq!(dispatch(mode, 9, 9, true), (Launch::Full, 16));
        assert_eq!(dispatch(mode, 300, 300, true), (Launch::Full, 304));
        assert_eq!(dispatch(mode, 70, 3, false), (Launch::Piecewise, 72));
        assert_eq!(dispatch(mode, 513, 513, true), (Launch::Eager, 513));
    }

    #[test]
    fn a_mode_without_piecewise_graphs_runs_prompts_eagerly() {
        assert_eq!(dispatch(CudagraphMode::FullDecodeOnly, 9, 9, true), (Launch::Full, 16));
        assert_eq!(dispatch(CudagraphMode::FullDecodeOnly, 9, 2, false), (Launch::Eager, 9));
    }

    #[test]
    fn one_graph_for_all_batches_takes_prompts_too() {
        assert_eq!(dispatch(CudagraphMode::Full, 70, 3, false), (Launch::Full, 72));
        assert_eq!(dispatch(CudagraphMode::Piecewise, 70, 70, true), (Launch::Piecewise, 72));
        assert_eq!(dispatch(CudagraphMode::None, 70, 70, true), (Launch::Eager, 70));
    }

    #[test]
    fn ranks_in_lockstep_pad_to_the_largest_and_drop_graphs_together() {
        let graphs = CudaGraphs::new(CudagraphMode::FullAndPiecewise, &default_sizes(), 1024);
        let decodes = |requests| RankBatch { tokens: requests, requests, uniform_decode: true };
        let prompt = |tokens| RankBatch { tokens, requests: 1, uniform_decode: false };
        let launches = |ranks: &[RankBatch]| -> Vec<(Launch, u32)> {
            graphs.agree(ranks).into_iter().map(|found| (found.launch, found.padded_tokens)).collect()
        };
        assert_eq!(launches(&[decodes(9), RankBatch::DUMMY]), [(Launch::Full, 16), (Launch::Full, 16)]);
        assert_eq!(launches(&[decodes(9), prompt(100)]), [(Launch::Piecewise, 104), (Launch::Piecewise, 104)]);
        assert_eq!(launches(&[decodes(9), prompt(1_000)]), [(Launch::Eager, 9), (Launch::Eager, 1_000)]);
    }

    #[test]
    fn decode_graphs_end_at_the_most_requests_a_step_can_hold() {
        let graphs = CudaGraphs::new(CudagraphMode::FullAndPiecewise, &default_sizes(), 64);
        assert_eq!(graphs.full_sizes().last(), Some(&64));
        assert_eq!(graphs.piecewise_sizes().last(), Some(&512));
        let beyond = CudaGraphs::new(CudagraphMode::FullAndPiecewise, &[1, 2, 4, 8], 5).dispatch(5, 5, true);
        assert_eq!((beyond.launch, beyond.padded_tokens), (Launch::Piecewise, 8));
    }
}
