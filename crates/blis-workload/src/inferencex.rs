//! The benchmark client of InferenceX: lengths drawn up front from numpy's legacy generator, a closed loop, a drained warm-up.
//!
//! The client seeds numpy with its seed, draws all prompt lengths, then all output lengths, each uniform over
//! [floor(L x range ratio), L]; it sends `warmup` copies of the first request and waits for all of them; then it keeps `concurrency`
//! requests in flight, in order, until all are done. Every request states its output length as `max_tokens` and ignores the end of
//! sequence. No two prompts share text, except the warm-up's copies.

use std::sync::Arc;

use blis_contracts::record::RequestRecord;
use blis_contracts::request::{Segment, TokenSource};
use blis_contracts::scenario::{DEFAULT_CLASS, Inferencex};
use blis_contracts::units::SimTime;

use crate::lanes::Lanes;
use crate::mt19937::NumpyRandomState;
use crate::source::{Draft, Origin, Source, request_id};

/// The client as a source.
#[derive(Debug)]
pub(crate) struct InferencexSource {
    client: u32,
    lengths: Lengths,
    concurrency: u32,
    warm_ups: u64,
    warm_ups_sent: u64,
    main_sent: u64,
    in_flight: u32,
    /// The instant at which a place in flight last came free.
    now: SimTime,
    lanes: Lanes,
}

/// The lengths a run of the client sends, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lengths {
    /// Prompt tokens of each request.
    pub input: Vec<u32>,
    /// Output tokens of each request.
    pub output: Vec<u32>,
}

impl Lengths {
    /// The client's draws for `requests` requests.
    pub fn drawn(client: &Inferencex, requests: u64) -> Self {
        let count = usize::try_from(requests).expect("validation bounds the number of requests");
        let mut random = NumpyRandomState::seeded(client.seed);
        let mut draw = |largest: u32| random.integers(smallest(largest, client.range_ratio), largest + 1, count);
        let input = draw(client.isl);
        Self { input, output: draw(client.osl) }
    }
}

impl InferencexSource {
    pub(crate) fn new(client: u32, spec: &Inferencex, requests: u64) -> Self {
        Self {
            client,
            lengths: Lengths::drawn(spec, requests),
            concurrency: spec.concurrency,
            warm_ups: u64::from(spec.warmup),
            warm_ups_sent: 0,
            main_sent: 0,
            in_flight: 0,
            now: SimTime::ZERO,
            lanes: Lanes::new(spec.concurrency),
        }
    }

    fn requests(&self) -> u64 {
        self.lengths.input.len() as u64
    }

    fn warming_up(&self) -> bool {
        self.warm_ups_sent < self.warm_ups
    }

    /// Whether the main phase may start or go on: the warm-up is sent and, before the first main request, has ended.
    fn main_phase(&self) -> bool {
        !self.warming_up() && (self.main_sent > 0 || self.in_flight == 0)
    }
}

impl Source for InferencexSource {
    fn name(&self) -> &'static str {
        "inferencex"
    }

    fn class(&self) -> &str {
        DEFAULT_CLASS
    }

    fn next_send(&self) -> Option<SimTime> {
        let has_more = self.warming_up() || (self.main_phase() && self.main_sent < self.requests());
        (has_more && self.in_flight < self.concurrency).then_some(self.now)
    }

    fn send(&mut self, _now: SimTime) -> Draft {
        let warm_up = self.warming_up();
        // Warm-up copies are numbered behind the main requests, so that the main requests keep their numbers with and without one.
        let (text, number) = if warm_up { (0, self.requests() + self.warm_ups_sent) } else { (self.main_sent, self.main_sent) };
        *if warm_up { &mut self.warm_ups_sent } else { &mut self.main_sent } += 1;
        self.in_flight += 1;
        let index = usize::try_from(text).expect("an index of the lengths drawn");
        let (input, output) = (self.lengths.input[index], self.lengths.output[index]);
        let source = TokenSource::Unique(request_id(self.client, text).0);
        let lane = self.lanes.take(number);
        Draft {
            id: request_id(self.client, number),
            prompt: Arc::new([Segment { source, length: input }]),
            output_length: output,
            max_tokens: Some(output),
            priority: 0,
            warm_up,
            timeout: None,
            origin: Origin { lane: Some(lane), phase: Some(u32::from(!warm_up)), ..Origin::default() },
        }
    }

    fn ended(&mut self, now: SimTime, record: &RequestRecord) {
        self.lanes.give_back(record.index);
        self.now = now;
        self.in_flight -= 1;
    }

    fn sent(&self) -> u64 {
        self.warm_ups_sent + self.main_sent
    }

    fn unsent(&self) -> Option<u64> {
        Some(self.warm_ups - self.warm_ups_sent + self.requests() - self.main_sent)
    }
}

/// The smallest length: the product as Python computes and truncates it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a product of a 32-bit length and a share of at most 1")]
fn smallest(largest: u32, range_ratio: f64) -> u32 {
    (f64::from(largest) * range_ratio) as u32
}

#[cfg(test)]
mod tests {
    use blis_contracts::fate::Fate;
    use blis_contracts::request::RequestId;

    use super::*;

    fn spec(concurrency: u32, warmup: u32) -> Inferencex {
        Inferencex { isl: 1024, osl: 1024, concurrency, range_ratio: 0.8, seed: 0, warmup, num_prompts: None }
    }

    fn end(id: RequestId) -> RequestRecord {
        RequestRecord {
            id,
            client: 0,
            index: id.0,
            warm_up: false,
            fate: Fate::Completed,
            refusal: None,
            sent: SimTime::ZERO,
            received: None,
            scheduled: None,
            first_token: None,
            last_token: None,
            prompt_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0,
            preemptions: 0,
        }
    }

    /// Values printed by numpy 2.4.6: `np.random.seed(0)`, then two calls of `np.random.randint(819, 1025, size=640)`.
    #[test]
    fn lengths_are_those_numpy_draws() {
        let lengths = Lengths::drawn(&spec(64, 0), 640);
        assert_eq!(lengths.input[..8], [991, 866, 936, 1011, 886, 1014, 922, 828]);
        assert_eq!(lengths.output[..8], [990, 901, 954, 884, 988, 885, 933, 911]);
        assert_eq!((lengths.input[637..].to_vec(), lengths.output[637..].to_vec()), (vec![988, 985, 872], vec![876, 860, 1013]));
        assert_eq!((lengths.input.iter().sum::<u32>(), lengths.output.iter().sum::<u32>()), (590_227, 589_961));
    }

    #[test]
    fn the_main_phase_waits_for_the_whole_warm_up() {
        let mut source = InferencexSource::new(0, &spec(2, 3), 4);
        let mut sent = Vec::new();
        while source.next_send().is_some() {
            sent.push(source.send(SimTime::ZERO));
        }
        assert_eq!(sent.iter().map(|draft| draft.id.0).collect::<Vec<_>>(), [4, 5], "two places in flight, both warm-up");
        source.ended(SimTime::from_micros(10), &end(sent[0].id));
        let third = source.send(SimTime::from_micros(10));
        assert!(third.warm_up && source.next_send().is_none());
        source.ended(SimTime::from_micros(20), &end(sent[1].id));
        assert_eq!(source.next_send(), None, "one copy is still in flight");
        source.ended(SimTime::from_micros(30), &end(third.id));
        let first = source.send(SimTime::from_micros(30));
        assert_eq!((first.id.0, first.warm_up, first.prompt == third.prompt), (0, false, true));
        assert_eq!(source.send(SimTime::from_micros(30)).id.0, 1);
        assert_eq!((source.next_send(), source.sent(), source.unsent()), (None, 5, Some(2)));
    }
}
