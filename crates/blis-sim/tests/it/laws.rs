//! What holds for every run: conservation, order, independence of how components were listed.

use blis_contracts::record::RequestRecord;
use blis_contracts::units::SimTime;
use blis_sim::{Frame, FrontEndCosts};
use proptest::prelude::*;

use crate::fixture::{BatchEngine, ListedSource, ONE_GPU, WHOLE, run};

fn requests() -> impl Strategy<Value = Vec<(u64, u32, u32)>> {
    prop::collection::vec((0u64..20_000, 1u32..1_200, 1u32..20), 1..40).prop_map(|mut requests| {
        requests.sort_unstable();
        requests
    })
}

fn costs() -> impl Strategy<Value = FrontEndCosts> {
    let accepting = (0u64..20_000, 0u64..100, 0u64..100);
    let answering = (0u64..20_000, 0u64..5_000, 0u64..3_000, 0u64..100_000);
    (accepting, answering).prop_map(
        |((per_request_ns, per_prompt_token_ns, tokenise_token_ns), (per_response_ns, per_step_ns, per_output_ns, per_chunk_ns))| {
            FrontEndCosts {
                per_request_ns,
                per_prompt_token_ns,
                tokenise_token_ns,
                per_response_ns,
                per_step_ns,
                per_output_ns,
                per_chunk_ns,
            }
        },
    )
}

proptest! {
    #[test]
    fn every_request_has_one_fate_and_its_times_are_in_order(
        requests in requests(), costs in costs(), step in 1u64..3_000, interval in 1u32..25, horizon in prop::option::of(0u64..60_000),
    ) {
        let horizon = horizon.map(|extra| SimTime::from_micros(requests[0].0 + extra));
        let frame = Frame { horizon, ..WHOLE };
        let (outcome, records) = run(vec![ListedSource::open(0, &requests)], BatchEngine::new(step, interval), costs, frame).unwrap();
        prop_assert_eq!(outcome.tally.total(), requests.len() as u64);
        for record in &records {
            let times: Vec<SimTime> =
                [Some(record.sent), record.received, record.scheduled, record.first_token, record.last_token].into_iter().flatten().collect();
            prop_assert!(times.is_sorted(), "{:?}", record);
        }
    }

    #[test]
    fn the_gaps_of_a_request_and_its_ttft_add_up_to_its_end(requests in requests(), costs in costs(), step in 1u64..3_000) {
        let (outcome, records) = run(vec![ListedSource::open(0, &requests)], BatchEngine::new(step, 1), costs, WHOLE).unwrap();
        let spans: u64 = records.iter().filter_map(|record| Some(record.e2el_us()? - record.ttft_us()?)).sum();
        let itl = blis_sim::figures(&outcome, &ONE_GPU).into_iter().find(|figure| figure.metric == "itl").unwrap();
        prop_assert!((itl.value.unwrap_or(0.0) * itl.n as f64 - spans as f64).abs() < 1e-3);
    }

    #[test]
    fn dealing_arrivals_to_more_clients_changes_no_time(requests in requests(), step in 1u64..3_000) {
        let one = run(vec![ListedSource::open(0, &requests)], BatchEngine::new(step, 1), FrontEndCosts::default(), WHOLE).unwrap().1;
        let (even, odd): (Vec<_>, Vec<_>) = requests.iter().enumerate().partition(|(index, _)| index % 2 == 0);
        let strip = |dealt: Vec<(usize, &(u64, u32, u32))>| dealt.into_iter().map(|(_, request)| *request).collect::<Vec<_>>();
        let two = vec![ListedSource::open(0, &strip(even)), ListedSource::open(1, &strip(odd))];
        let two = run(two, BatchEngine::new(step, 1), FrontEndCosts::default(), WHOLE).unwrap().1;
        prop_assert_eq!(ends(&one), ends(&two));
    }
}

#[test]
fn slots_are_recycled_so_that_memory_follows_requests_in_flight() {
    let requests = vec![(1, 1); 500];
    let (outcome, _) = run(vec![ListedSource::closed(0, 1, &requests)], BatchEngine::new(10, 1), FrontEndCosts::default(), WHOLE).unwrap();
    assert_eq!(outcome.statistics.peak_in_flight, 1);
}

fn ends(records: &[RequestRecord]) -> Vec<(SimTime, Option<SimTime>)> {
    let mut ends: Vec<_> = records.iter().map(|record| (record.sent, record.last_token)).collect();
    ends.sort_unstable();
    ends
}
