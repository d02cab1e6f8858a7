//! Runs whose every time is worked out by hand.

use blis_contracts::fate::Fate;
use blis_contracts::units::SimTime;
use blis_sim::{Frame, FrontEndCosts, SimulationError};

use crate::fixture::{BatchEngine, ListedSource, ONE_GPU, WHOLE, run};

#[test]
fn a_lone_request_sees_its_tokens_one_step_apart() {
    let costs = FrontEndCosts { per_request_ns: 50_000, per_chunk_ns: 7_000, ..FrontEndCosts::default() };
    let (outcome, records) = run(vec![ListedSource::open(0, &[(100, 10, 3)])], BatchEngine::new(1_000, 1), costs, WHOLE).unwrap();
    let [record] = &records[..] else { panic!("one request was sent") };
    assert_eq!(record.received, Some(SimTime::from_micros(150)));
    assert_eq!(record.first_token, Some(SimTime::from_micros(1_157)));
    assert_eq!(record.last_token, Some(SimTime::from_micros(3_157)));
    assert_eq!((record.ttft_us(), record.tpot_us(), record.e2el_us()), (Some(1_057), Some(1_000.0), Some(3_057)));
    assert_eq!(outcome.window_end, SimTime::from_micros(3_157));
}

#[test]
fn a_request_that_arrives_during_a_step_joins_the_next() {
    let (_, records) =
        run(vec![ListedSource::open(0, &[(0, 1, 4), (1_500, 1, 1)])], BatchEngine::new(1_000, 1), FrontEndCosts::default(), WHOLE).unwrap();
    let second = records.iter().find(|record| record.index == 1).unwrap();
    assert_eq!(second.queue_delay_us(), Some(500));
    assert_eq!(second.ttft_us(), Some(1_500));
}

#[test]
fn a_request_that_arrives_as_a_step_ends_joins_the_step_that_starts_then() {
    let (_, records) =
        run(vec![ListedSource::open(0, &[(0, 1, 4), (2_000, 1, 1)])], BatchEngine::new(1_000, 1), FrontEndCosts::default(), WHOLE).unwrap();
    assert_eq!(records.iter().find(|record| record.index == 1).unwrap().ttft_us(), Some(1_000));
}

#[test]
fn a_stream_interval_moves_chunks_but_not_the_first_or_the_last_token() {
    let (outcome, records) =
        run(vec![ListedSource::open(0, &[(0, 1, 50)])], BatchEngine::new(1_000, 20), FrontEndCosts::default(), WHOLE).unwrap();
    assert_eq!((records[0].ttft_us(), records[0].e2el_us(), records[0].tpot_us()), (Some(1_000), Some(50_000), Some(1_000.0)));
    let gaps = blis_sim::figures(&outcome, &ONE_GPU);
    let chunks = gaps.iter().find(|figure| figure.metric == "itl").unwrap();
    assert_eq!((chunks.n, chunks.value), (3, Some(49_000.0 / 3.0)));
}

#[test]
fn a_closed_loop_sends_the_next_request_when_one_ends() {
    let requests = [(1, 2); 6];
    let (outcome, records) =
        run(vec![ListedSource::closed(0, 2, &requests)], BatchEngine::new(1_000, 1), FrontEndCosts::default(), WHOLE).unwrap();
    let sent: Vec<u64> = records.iter().map(|record| record.sent.as_micros()).collect();
    assert_eq!(sent, [0, 0, 2_000, 2_000, 4_000, 4_000]);
    assert_eq!(outcome.concurrency, Some(2.0));
}

#[test]
fn a_horizon_leaves_fates_and_withholds_what_is_not_known() {
    let frame = Frame { horizon: Some(SimTime::from_micros(2_500)), ..WHOLE };
    let source = ListedSource::open(0, &[(0, 1, 2), (0, 1, 9), (2_400, 1, 1), (9_000, 1, 1)]);
    let (outcome, _) = run(vec![source], BatchEngine::new(1_000, 1), FrontEndCosts::default(), frame).unwrap();
    let fates: Vec<_> = outcome.tally.fates().collect();
    assert_eq!(fates, [(Fate::Completed, 1), (Fate::InFlightAtHorizon, 1), (Fate::QueuedAtHorizon, 1), (Fate::NotStarted, 1)]);
    assert_eq!(outcome.window_end, SimTime::from_micros(2_500));
}

#[test]
fn a_refused_request_has_no_latency_and_the_others_go_on() {
    let (outcome, records) =
        run(vec![ListedSource::open(0, &[(0, 5_000, 2), (0, 10, 2)])], BatchEngine::new(1_000, 1), FrontEndCosts::default(), WHOLE)
            .unwrap();
    let refused = records.iter().find(|record| record.fate == Fate::Refused).unwrap();
    assert_eq!((refused.refusal.as_deref(), refused.ttft_us(), refused.e2el_us()), (Some("too long"), None, None));
    assert_eq!(outcome.tally.completed(), 1);
}

#[test]
fn a_horizon_before_the_first_arrival_is_refused() {
    let frame = Frame { horizon: Some(SimTime::from_micros(10)), ..WHOLE };
    let error = run(vec![ListedSource::open(0, &[(11, 1, 1)])], BatchEngine::new(1, 1), FrontEndCosts::default(), frame).unwrap_err();
    assert_eq!(error, SimulationError::NothingArrives { horizon: SimTime::from_micros(10), first: Some(SimTime::from_micros(11)) });
    let frame = Frame { horizon: Some(SimTime::from_micros(11)), ..WHOLE };
    assert!(run(vec![ListedSource::open(0, &[(11, 1, 1)])], BatchEngine::new(1, 1), FrontEndCosts::default(), frame).is_ok());
}

#[test]
fn an_engine_that_steps_without_progress_is_stopped() {
    let mut engine = BatchEngine::new(1_000, 1);
    engine.stuck = true;
    let error = run(vec![ListedSource::open(0, &[(0, 1, 1)])], engine, FrontEndCosts::default(), WHOLE).unwrap_err();
    assert!(matches!(error, SimulationError::Livelock { .. }), "{error}");
}
