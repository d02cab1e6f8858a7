//! Clients that give up: at their deadline and not before, whatever the engine is doing with their request.

use blis_contracts::fate::Fate;
use blis_contracts::record::RequestRecord;
use blis_contracts::units::SimTime;
use blis_sim::FrontEndCosts;
use proptest::prelude::*;

use crate::fixture::{BatchEngine, ListedSource, WHOLE, run};

/// Runs requests whose client waits `timeout_us`; the engine takes 1,000 us for a step.
fn records(timeout_us: u64, costs: FrontEndCosts, requests: &[(u64, u32, u32)]) -> Vec<RequestRecord> {
    run(vec![ListedSource::impatient(timeout_us, requests)], BatchEngine::new(1_000, 1), costs, WHOLE).unwrap().1
}

fn free() -> FrontEndCosts {
    FrontEndCosts::default()
}

#[test]
fn a_client_keeps_what_it_had_received_and_an_answer_just_in_time_counts() {
    let one = &records(2_500, free(), &[(0, 10, 5)])[0];
    assert_eq!((one.fate, one.output_tokens, one.last_token), (Fate::TimedOut, 2, Some(SimTime::from_micros(2_000))));
    let one = &records(5_000, free(), &[(0, 10, 5)])[0];
    assert_eq!((one.fate, one.output_tokens), (Fate::Completed, 5));
    let one = &records(4_999, free(), &[(0, 10, 5)])[0];
    assert_eq!((one.fate, one.output_tokens), (Fate::TimedOut, 4));
}

#[test]
fn a_request_that_never_reached_the_engine_is_given_up_too() {
    let slow = FrontEndCosts { per_request_ns: 3_000_000, ..free() };
    let one = &records(2_000, slow, &[(0, 10, 1)])[0];
    assert_eq!((one.fate, one.received, one.output_tokens), (Fate::TimedOut, None, 0));
}

#[test]
fn an_answer_that_would_arrive_after_the_deadline_is_not_seen() {
    let slow = FrontEndCosts { per_chunk_ns: 800_000, ..free() };
    let one = &records(1_500, slow, &[(0, 10, 1)])[0];
    assert_eq!((one.fate, one.first_token, one.output_tokens), (Fate::TimedOut, None, 0));
}

#[test]
fn a_refusal_that_would_arrive_too_late_is_a_request_given_up() {
    let slow = FrontEndCosts { per_request_ns: 900_000, ..free() };
    let one = &records(1_000, slow, &[(0, 5_000, 1)])[0];
    assert_eq!((one.fate, one.refusal.clone()), (Fate::TimedOut, None));
}

proptest! {
    #[test]
    fn whoever_gives_up_does_so_at_its_deadline_and_every_request_has_one_fate(
        requests in prop::collection::vec((0u64..20_000, 1u32..1_200, 1u32..20), 1..40),
        timeout_us in 1u64..15_000,
        chunk_ns in 0u64..400_000,
    ) {
        let mut requests = requests;
        requests.sort_unstable();
        let all = records(timeout_us, FrontEndCosts { per_request_ns: 50_000, per_chunk_ns: chunk_ns, ..free() }, &requests);
        prop_assert_eq!(all.len(), requests.len());
        for record in &all {
            let last = record.last_token.map_or(0, |last| last.since(record.sent).as_micros());
            prop_assert!(last <= timeout_us, "{:?}", record);
            let (_, prompt, output) = requests[usize::try_from(record.index).unwrap()];
            prop_assert_eq!(record.fate == Fate::Completed, record.output_tokens == u64::from(output), "{:?}", record);
            prop_assert!(record.refusal.is_none() || prompt > 1_000);
        }
    }
}
