//! Acceptance, stop checks and slot reuse.

use std::sync::Arc;

use blis_contracts::request::{Segment, TokenSource};

use super::*;

fn request(external: u32, prompt: u32, max_tokens: Option<u32>, output_length: u32) -> Request {
    let prompt = Arc::from([Segment { source: TokenSource::Unique(u64::from(external)), length: prompt }]);
    Request::new(RequestId(u64::from(external)), RequestSlot(external), SimTime::ZERO, prompt, output_length).with_max_tokens(max_tokens)
}

fn stops(prompt: u32, max_tokens: Option<u32>, output_length: u32, max_model_len: u32) -> (u32, FinishReason) {
    let mut requests = Requests::default();
    let slot = requests.add(&request(0, prompt, max_tokens, output_length), max_model_len).unwrap();
    let progress = requests.progress_mut(slot);
    loop {
        progress.tokens += 1;
        if let Some(reason) = progress.check_stop(max_model_len) {
            return (progress.outputs(), reason);
        }
    }
}

#[test]
fn the_end_of_sequence_ends_a_request_before_any_limit() {
    assert_eq!(stops(10, Some(8), 5, 100), (5, FinishReason::Stop));
}

#[test]
fn the_output_limit_ends_a_request_that_would_say_more() {
    assert_eq!(stops(10, Some(8), 8, 100), (8, FinishReason::Length));
    assert_eq!(stops(10, Some(8), 50, 100), (8, FinishReason::Length));
}

#[test]
fn the_context_ends_a_request_without_a_limit() {
    assert_eq!(stops(10, None, 500, 32), (22, FinishReason::Length));
    assert_eq!(stops(10, Some(40), 39, 32), (22, FinishReason::Length));
}

#[test]
fn an_end_of_sequence_on_the_last_token_of_the_context_counts_as_a_stop() {
    assert_eq!(stops(10, Some(40), 22, 32), (22, FinishReason::Stop));
    assert_eq!(stops(10, None, 22, 32), (22, FinishReason::Stop));
}

#[test]
fn a_prompt_one_short_of_the_context_is_accepted_and_a_full_one_is_not() {
    let mut requests = Requests::default();
    assert!(requests.add(&request(0, 31, None, 4), 32).is_ok());
    let error = |prompt| Requests::default().add(&request(0, prompt, None, 4), 32).unwrap_err();
    assert_eq!(error(32), Refusal::NoRoomForOutput { prompt: 32, max_model_len: 32 });
    assert_eq!(error(33), Refusal::PromptTooLong { prompt: 33, max_model_len: 32 });
    assert_eq!(error(0), Refusal::EmptyPrompt);
    assert_eq!(Requests::default().add(&request(0, 5, Some(0), 4), 32), Err(Refusal::NoOutput));
}

#[test]
fn a_slot_is_reused_only_when_no_batch_names_its_request() {
    let mut requests = Requests::default();
    let slot = requests.add(&request(0, 5, None, 4), 32).unwrap();
    requests.progress_mut(slot).batches = 1;
    requests.finish(slot);
    requests.recycle_if_unnamed(slot);
    let other = requests.add(&request(0, 5, None, 4), 32).unwrap();
    assert_ne!(slot, other, "a batch in flight still names the first");
    requests.progress_mut(slot).batches = 0;
    requests.recycle_if_unnamed(slot);
    assert_eq!(requests.add(&request(1, 5, None, 4), 32), Ok(slot));
    requests.check_invariants();
}
