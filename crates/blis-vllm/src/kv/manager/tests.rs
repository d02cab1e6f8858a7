//! Contents name blocks exactly as the tokens themselves would, and the three edges never hide work.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use blis_contracts::engine::FinishReason;
use blis_contracts::request::{Request, RequestId, RequestSlot};
use blis_contracts::units::SimTime;

use super::*;
use crate::kv::group::Attention;
use crate::request::Requests;

const BLOCK_SIZE: u32 = 4;

fn config(groups: Vec<Attention>) -> KvConfig {
    KvConfig {
        groups: groups.into_iter().map(|attention| attention.in_blocks(BLOCK_SIZE)).collect(),
        block_size: BLOCK_SIZE,
        num_blocks: 200,
        enable_prefix_caching: true,
        retention: Retention::Dense,
        watermark_blocks: 0,
        max_model_len: 1000,
        max_in_flight_tokens: 1000,
    }
}

/// A prompt as pieces of three kinds, and how much the request says.
type Story = (Vec<(u8, u8, u32)>, u32);

fn stories() -> impl Strategy<Value = Vec<Story>> {
    let piece = (0_u8..3, 0_u8..3, 1_u32..9);
    prop::collection::vec((prop::collection::vec(piece, 1..5), 0_u32..12), 1..8)
}

/// The tokens of a request, spelt out.
fn spell(prompt: &[Segment], output: TokenSource, outputs: u32) -> Vec<(TokenSource, u32)> {
    let prompt = prompt.iter().flat_map(|segment| (0..segment.length).map(|offset| (segment.source, offset)));
    prompt.chain((0..outputs).map(|offset| (output, offset))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_blocks_have_the_same_content_exactly_when_their_whole_prefixes_are_equal(stories in stories()) {
        let mut kv = KvManager::new(config(vec![Attention::Full]));
        let mut requests = Requests::default();
        let mut named: Vec<(Vec<(TokenSource, u32)>, NodeId)> = Vec::new();
        for (number, (pieces, outputs)) in (0_u32..).zip(&stories) {
            let source = |kind, name| match kind {
                0 => TokenSource::Shared(u32::from(name)),
                1 => TokenSource::Output(u64::from(name)),
                _ => TokenSource::Unique(u64::from(name)),
            };
            let prompt: Arc<[Segment]> =
                pieces.iter().map(|(kind, name, length)| Segment { source: source(*kind, *name), length: *length }).collect();
            let request = Request::new(RequestId(u64::from(number)), RequestSlot(number), SimTime::ZERO, Arc::clone(&prompt), 100);
            let slot = requests.add(&request, 1000).unwrap();
            let output = TokenSource::Output(u64::from(number));
            kv.register(slot, Arc::clone(&prompt), output);
            kv.look_up(slot, requests.progress_mut(slot));
            for _ in 0..*outputs {
                let progress = requests.progress_mut(slot);
                progress.tokens += 1;
                prop_assert_ne!(progress.check_stop(1000), Some(FinishReason::Length));
                kv.token_appended(slot, progress);
            }
            let tokens = spell(&prompt, output, *outputs);
            let nodes = &kv.contents[slot.index()].nodes;
            prop_assert_eq!(nodes.len(), tokens.len() / BLOCK_SIZE as usize);
            for (index, node) in nodes.iter().enumerate() {
                named.push((tokens[..(index + 1) * BLOCK_SIZE as usize].to_vec(), *node));
            }
        }
        for (tokens, node) in &named {
            for (other_tokens, other) in &named {
                prop_assert_eq!(node == other, tokens == other_tokens);
            }
        }
    }
}

/// The contents of a request's full blocks, after so many outputs.
fn contents_of(kv: &mut KvManager, requests: &mut Requests, number: u32, prompt: &[Segment], outputs: u32) -> Vec<NodeId> {
    let request = Request::new(RequestId(u64::from(number)), RequestSlot(number), SimTime::ZERO, prompt.into(), 100);
    let slot = requests.add(&request, 1000).unwrap();
    kv.register(slot, prompt.into(), TokenSource::Output(u64::from(number)));
    kv.look_up(slot, requests.progress_mut(slot));
    for _ in 0..outputs {
        let progress = requests.progress_mut(slot);
        progress.tokens += 1;
        kv.token_appended(slot, progress);
    }
    kv.contents[slot.index()].nodes.clone()
}

#[test]
fn the_next_turn_of_a_conversation_meets_every_block_of_the_turn_before() {
    for (first, second, third) in (1..9).flat_map(|first| (1..9).flat_map(move |second| (1..9).map(move |third| (first, second, third)))) {
        let (mut kv, mut requests) = (KvManager::new(config(vec![Attention::Full])), Requests::default());
        let piece = |source, length| Segment { source, length };
        let mut prompt =
            vec![piece(TokenSource::Shared(0), first), piece(TokenSource::Unique(1), second), piece(TokenSource::Unique(2), third)];
        let turn = contents_of(&mut kv, &mut requests, 0, &prompt, 9);
        prompt.extend([piece(TokenSource::Output(0), 9), piece(TokenSource::Unique(3), 5)]);
        let next = contents_of(&mut kv, &mut requests, 1, &prompt, 0);
        assert_eq!(turn.len(), ((first + second + third + 9) / BLOCK_SIZE) as usize);
        assert_eq!(next[..turn.len()], turn, "pieces of {first}, {second} and {third} tokens, then a reply");
    }
}

#[test]
fn a_watched_request_gets_exactly_the_blocks_its_tokens_need() {
    let mut kv = KvManager::new(config(vec![Attention::Full, Attention::SlidingWindow { window: 6 }]));
    let mut requests = Requests::default();
    let prompt: Arc<[Segment]> = Arc::from([Segment { source: TokenSource::Unique(0), length: 10 }]);
    let request = Request::new(RequestId(0), RequestSlot(0), SimTime::ZERO, Arc::clone(&prompt), 100);
    let slot = requests.add(&request, 1000).unwrap();
    kv.register(slot, prompt, TokenSource::Output(0));
    let progress = requests.progress_mut(slot);
    assert_eq!(kv.look_up(slot, progress), 0);
    assert!(kv.admit(slot, progress, 10, Admission { full_sequence_must_fit: true, beside_others: false }));
    progress.computed = 10;
    for _ in 0..60 {
        progress.tokens += 1;
        kv.token_appended(slot, progress);
        assert!(kv.grow(slot, progress, 1));
        progress.computed += 1;
        for group in 0..2 {
            assert_eq!(kv.table(group, slot).len(), progress.computed.div_ceil(BLOCK_SIZE) as usize);
        }
        let nulls = kv.table(1, slot).iter().filter(|block| block.is_null()).count();
        // What was processed when the last token was scheduled decides what is out of sight.
        let skipped = (progress.computed - 1).saturating_sub(5) / BLOCK_SIZE;
        assert_eq!(nulls, skipped as usize, "after {} tokens", progress.computed);
        assert_eq!(kv.groups[0].next_cache_at(slot), (progress.computed / BLOCK_SIZE + 1) * BLOCK_SIZE);
    }
    assert_eq!(kv.group_count(), 2);
    kv.free(slot, progress);
    kv.forget(slot);
    kv.check_invariants(std::iter::empty());
    assert_eq!(kv.pool().free_blocks(), kv.pool().usable_blocks());
}
