//! Work over listed entries in one step: exact integer sums over its decode requests, or over its prefill rows.
//!
//! What a token at some position attends to or scores follows from the position alone, so that a row's sum is the difference of two
//! closed forms. Left out: pages and the order of lists, which no price reads.

use blis_contracts::plan::PrimitiveShape;
use blis_contracts::step::RankStep;
use blis_registry::vocabulary::Input;

use crate::attention::{Priced, Tally};
use crate::operation::Operation;

/// One class of work over listed entries, for requests with one new token or with several.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SparseClass {
    pub(crate) operation: Operation,
    pub(crate) tally: Tally,
    prompts: bool,
    lists: Lists,
}

/// How many entries a token's list has, by its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lists {
    window: u64,
    ratio: u64,
    top_k: u64,
    /// Scores up to which a row of several is ranked; 0 where nothing is scored.
    ranked: u64,
}

impl Lists {
    fn of(shape: &PrimitiveShape) -> Self {
        match *shape {
            PrimitiveShape::Gathered { window, ratio, top_k, .. } => {
                Self { window: window.into(), ratio: ratio.into(), top_k: top_k.into(), ranked: 0 }
            }
            PrimitiveShape::Scores { ratio, top_k, ranked, .. } => {
                Self { window: 0, ratio: ratio.into(), top_k: top_k.into(), ranked: ranked.into() }
            }
            PrimitiveShape::Gemm { .. }
            | PrimitiveShape::BatchedGemm { .. }
            | PrimitiveShape::Attention { .. }
            | PrimitiveShape::Latent { .. }
            | PrimitiveShape::Traffic { .. }
            | PrimitiveShape::Recurrent { .. }
            | PrimitiveShape::Scan { .. }
            | PrimitiveShape::Moe { .. }
            | PrimitiveShape::Collective { .. }
            | PrimitiveShape::Stream { .. }
            | PrimitiveShape::Sampling { .. } => unreachable!("a plan was checked to have lists where it needs them"),
        }
    }

    /// Entries of the lists of the first `tokens` tokens of a request, together.
    fn entries(self, tokens: u64) -> u64 {
        let compressed = if self.ratio == 0 {
            0
        } else if self.ranked > 0 || self.top_k == 0 {
            quotients(tokens, self.ratio)
        } else {
            // From the token on that sees as many as are kept, every list has so many.
            let full = (self.ratio * self.top_k).saturating_sub(1).min(tokens);
            quotients(full, self.ratio) + self.top_k * (tokens - full)
        };
        let growing = self.window.min(tokens);
        growing * (growing + 1) / 2 + self.window * (tokens - growing) + compressed
    }

    /// Pairs of scores that the first `tokens` tokens rank.
    fn comparisons(self, tokens: u64) -> u64 {
        if self.ranked <= self.top_k {
            return 0;
        }
        let scores = (tokens / self.ratio).min(self.ranked + 1);
        // Every count of scores but the last is that of `ratio` tokens.
        let squares = |most: u64| most * (most + 1) * (2 * most + 1) / 6;
        let whole = squares(scores.saturating_sub(1).max(self.top_k)) - squares(self.top_k);
        let last = if scores > self.top_k && scores <= self.ranked { scores * scores * (tokens - scores * self.ratio + 1) } else { 0 };
        self.ratio * whole + last
    }
}

/// The sum of `n / ratio` for n from 1 to `tokens`.
const fn quotients(tokens: u64, ratio: u64) -> u64 {
    let last = tokens / ratio;
    if last == 0 { 0 } else { ratio * (last * (last - 1) / 2) + last * (tokens - last * ratio + 1) }
}

impl SparseClass {
    pub(crate) fn new(operation: Operation, prompts: bool) -> Self {
        Self { lists: Lists::of(&operation.shape), operation, tally: Tally::default(), prompts }
    }

    /// Whether a step has requests of the class's kind.
    pub(crate) fn runs(&self, step: &RankStep) -> bool {
        if self.prompts { !step.prefill.is_empty() } else { !step.decode.is_empty() }
    }

    /// All calls of the class; none where the step has no request of its kind.
    pub(crate) fn price(&self, step: &RankStep) -> Option<Priced> {
        if !self.runs(step) {
            return None;
        }
        let (mut queries, mut entries, mut comparisons) = (0, 0, 0);
        let mut add = |cached: u32, new: u32| {
            let (from, to) = (u64::from(cached), u64::from(cached) + u64::from(new));
            queries += u64::from(new);
            entries += self.lists.entries(to) - self.lists.entries(from);
            if self.prompts {
                comparisons += self.lists.comparisons(to) - self.lists.comparisons(from);
            }
        };
        let requests = if self.prompts {
            step.prefill.iter().for_each(|row| add(row.context, row.query));
            step.prefill.len()
        } else {
            step.decode.iter().for_each(|&cached| add(cached, 1));
            step.decode.len()
        };
        let inputs = self
            .operation
            .fixed()
            .with(Input::Requests, requests as f64)
            .with(Input::Queries, queries as f64)
            .with(Input::Entries, entries as f64)
            .with(Input::Comparisons, comparisons as f64);
        let extrapolated = self.operation.term.extrapolates(&inputs);
        let microseconds = f64::from(self.operation.count) * self.operation.term.price(&inputs);
        Some(Priced { microseconds, extrapolated, inputs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_entries_of_its_tokens_counted_one_by_one() {
        for lists in [
            Lists { window: 128, ratio: 0, top_k: 0, ranked: 0 },
            Lists { window: 128, ratio: 128, top_k: 0, ranked: 0 },
            Lists { window: 128, ratio: 4, top_k: 50, ranked: 0 },
            Lists { window: 0, ratio: 1, top_k: 2048, ranked: 0 },
            Lists { window: 0, ratio: 4, top_k: 50, ranked: 100 },
        ] {
            let (mut entries, mut comparisons) = (0, 0);
            for token in 1..3_000_u64 {
                let all = token.checked_div(lists.ratio).unwrap_or(0);
                let kept = if lists.ranked > 0 || lists.top_k == 0 { all } else { all.min(lists.top_k) };
                entries += token.min(lists.window) + kept;
                comparisons += if all > lists.top_k && all <= lists.ranked { all * all } else { 0 };
                assert_eq!(lists.entries(token), entries, "{lists:?} {token}");
                assert_eq!(lists.comparisons(token), comparisons, "{lists:?} {token}");
            }
        }
    }
}
