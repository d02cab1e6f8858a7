//! Drafted tokens: how many a step carries, which of them are accepted, and what a step's drafts came to.
//!
//! upstream: vllm `config/vllm.py::VllmConfig.num_lookahead_tokens`, `num_prefill_lookahead_tokens`;
//! `v1/spec_decode/dynamic/utils.py::build_dynamic_sd_schedule_lookup`; `v1/spec_decode/metrics.py::SpecDecodingStats`
//!
//! Which drafts are right is not decided by a model here but drawn: a number for each request, output token and position, compared
//! with the rate of that position. So a request's luck does not depend on when its steps run. `oracle/FORMAT.md` states the rule, and
//! the sampler of the oracle follows it.
//!
//! Left out: what drafting and verifying cost, trees of drafts, verification whose width follows from confidence.

/// How an engine drafts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speculation {
    /// Most drafts of one request in one step.
    pub tokens: u8,
    /// Slots of the KV cache that drafting writes beyond the tokens of a step.
    pub lookahead: u32,
    /// Tokens beyond a prompt's chunk that drafting reads: no chunk ends closer to the end of the prompt.
    pub prefill_lookahead: u32,
    /// Rows that drafting adds to the inputs of a step, for each request.
    pub draft_slots: u32,
    /// Whether each KV-cache group leaves the last block of a hit to be computed again.
    pub drops: Vec<bool>,
    /// Drafts of each request, by the number of requests of a step less one, where that decides.
    pub by_batch: Option<Vec<u8>>,
    /// Which drafts are right.
    pub profile: Profile,
}

impl Speculation {
    /// Drafts of each request after a step of so many requests.
    pub fn next_drafts(&self, requests: usize) -> u8 {
        match (&self.by_batch, requests) {
            (None, _) | (Some(_), 0) => self.tokens,
            (Some(by_batch), requests) => by_batch[requests - 1],
        }
    }
}

/// Which drafts are accepted, and which a grammar forbids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Seed of the draws.
    pub seed: u64,
    /// How often the draft at each position is right where those before it are, in thousandths; the last rate holds further on.
    pub accepted_permille: Vec<u32>,
    /// How often a grammar forbids a wrong draft, in thousandths.
    pub forbidden_permille: u32,
}

/// Where the draws about grammars begin.
const ABOUT_GRAMMARS: u32 = 128;

impl Profile {
    /// Leading drafts that are accepted, of those that continue from output token number `output` of a request.
    pub fn accepted(&self, ordinal: u32, output: u32, drafts: u8) -> u8 {
        let last = self.accepted_permille.len().saturating_sub(1);
        let right = |position: &u8| {
            let rate = self.accepted_permille.get(last.min(usize::from(*position))).copied().unwrap_or(0);
            self.draw(ordinal, output, u32::from(*position)) < rate
        };
        (0..drafts).find(|position| !right(position)).unwrap_or(drafts)
    }

    /// Leading drafts that the request's grammar allows: those accepted, and wrong ones up to the first that it forbids.
    pub fn allowed(&self, ordinal: u32, output: u32, drafts: u8) -> u8 {
        let forbidden = |position: &u8| self.draw(ordinal, output, ABOUT_GRAMMARS + u32::from(*position)) < self.forbidden_permille;
        (self.accepted(ordinal, output, drafts)..drafts).find(forbidden).unwrap_or(drafts)
    }

    /// A number below 1000 for each place: the last step of `SplitMix64` over the place.
    fn draw(&self, ordinal: u32, output: u32, position: u32) -> u32 {
        let place = (self.seed << 52) ^ (u64::from(ordinal) << 36) ^ (u64::from(output) << 8) ^ u64::from(position);
        let mut word = place.wrapping_add(0x9E37_79B9_7F4A_7C15);
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        u32::try_from((word ^ (word >> 31)) % 1000).expect("a remainder of 1000 is small")
    }
}

/// What the drafts of one processed step came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DraftStats {
    /// Requests that had drafts.
    pub drafts: u32,
    /// Their drafts, without those that a grammar made void.
    pub tokens: u32,
    /// Accepted ones.
    pub accepted: u32,
    /// Drafts at each position.
    pub tokens_at: Vec<u32>,
    /// Accepted drafts at each position.
    pub accepted_at: Vec<u32>,
}

impl DraftStats {
    /// Forgets the last step.
    pub(super) fn begin(&mut self, positions: u8) {
        let zeros = || vec![0; usize::from(positions)];
        *self = Self { tokens_at: zeros(), accepted_at: zeros(), ..Self::default() };
    }

    /// Counts one request's drafts.
    pub(super) fn observe(&mut self, tokens: u8, accepted: u8) {
        self.drafts += 1;
        self.tokens += u32::from(tokens);
        self.accepted += u32::from(accepted);
        self.tokens_at[..usize::from(tokens)].iter_mut().for_each(|count| *count += 1);
        self.accepted_at[..usize::from(accepted)].iter_mut().for_each(|count| *count += 1);
    }
}

/// Drafts by the number of requests of a step, from ranges of it: a gap, and what follows the last range, keep the drafts before them.
/// `None` where the ranges are empty, overlap or do not begin at one request.
pub fn drafts_by_batch(ranges: &[(u32, u32, u8)], max_num_seqs: u32, tokens: u8) -> Option<Vec<u8>> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let apart = sorted.windows(2).all(|pair| pair[1].0 > pair[0].1);
    let ordered = sorted.iter().all(|(first, last, _)| first <= last);
    if !apart || !ordered || sorted.first().is_none_or(|(first, ..)| *first != 1) {
        return None;
    }
    let drafts_of = |requests: u32| sorted.iter().rev().find(|(first, ..)| *first <= requests).map_or(tokens, |(_, _, drafts)| *drafts);
    Some((1..=max_num_seqs).map(|requests| drafts_of(requests).min(tokens)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_between_ranges_keeps_the_drafts_before_it() {
        let by_batch = drafts_by_batch(&[(5, 6, 1), (1, 2, 9)], 8, 4);
        assert_eq!(by_batch, Some(vec![4, 4, 4, 4, 1, 1, 1, 1]));
        assert_eq!(drafts_by_batch(&[(2, 4, 1)], 8, 4), None, "one request has no drafts");
        assert_eq!(drafts_by_batch(&[(1, 4, 1), (4, 5, 2)], 8, 4), None, "ranges overlap");
        assert_eq!(drafts_by_batch(&[], 8, 4), None);
    }

    #[test]
    fn a_draw_equal_to_the_rate_is_neither_right_nor_forbidden() {
        let profile = |rate, forbidden| Profile { seed: 7, accepted_permille: vec![rate], forbidden_permille: forbidden };
        let (right, forbidden) = (profile(0, 0).draw(3, 1, 0), profile(0, 0).draw(3, 1, ABOUT_GRAMMARS));
        assert_eq!([right, right + 1].map(|rate| profile(rate, 0).accepted(3, 1, 1)), [0, 1]);
        assert_eq!([forbidden, forbidden + 1].map(|rate| profile(0, rate).allowed(3, 1, 1)), [1, 0]);
    }

    #[test]
    fn positions_are_accepted_as_often_as_the_profile_says_and_never_behind_a_wrong_one() {
        let profile = Profile { seed: 7, accepted_permille: vec![800, 500], forbidden_permille: 300 };
        let mut at = [0_u32; 4];
        for output in 0..20_000 {
            let accepted = profile.accepted(3, output, 4);
            assert!(accepted <= profile.allowed(3, output, 4));
            assert_eq!(profile.accepted(3, output, 2), accepted.min(2), "fewer drafts are a beginning of more");
            at.iter_mut().take(usize::from(accepted)).for_each(|count| *count += 1);
        }
        let permille = at.map(|count| count / 20);
        assert!([800, 400, 200, 100].iter().zip(permille).all(|(expected, found)| found.abs_diff(*expected) < 15), "{permille:?}");
    }
}
