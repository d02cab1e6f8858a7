//! The front end: what lies between client and engine in both directions.
//!
//! upstream: vllm `v1/engine/async_llm.py::AsyncLLM._run_output_handler`, `v1/engine/output_processor.py::RequestOutputCollector`, `renderers/base.py::BaseRenderer`
//!
//! Two servers in line execute the engine's [`FrontEndPlan`]. The event loop takes requests in and turns tokens into chunks, one
//! piece of work after the other in the order they arise; the tokenising thread works beside it, on one prompt after the other.
//! Both are first-in first-out, so their times never go back. A loop that falls behind its engine sends what several steps brought
//! for one request in one chunk; steps that serve different requests have nothing to merge, however many wait. Time is kept in
//! nanoseconds inside and leaves as whole microseconds.
//!
//! Left out: what a client's own process does with a chunk.

use blis_contracts::plan::FrontEndPlan;
use blis_contracts::units::SimTime;

/// Host work of the front end, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrontEndCosts {
    /// Accepting a request.
    pub per_request_ns: u64,
    /// Taking in, checking and handing on, for each prompt token.
    pub per_prompt_token_ns: u64,
    /// Tokenising, for each prompt token, on a thread of its own.
    pub tokenise_token_ns: u64,
    /// Beginning and ending one response.
    pub per_response_ns: u64,
    /// Receiving one step's output, whatever it holds.
    pub per_step_ns: u64,
    /// Turning one request's tokens of a step into text.
    pub per_output_ns: u64,
    /// Sending one chunk.
    pub per_chunk_ns: u64,
}

/// What has left of a request's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Streamed {
    /// Tokens.
    pub(crate) tokens: u64,
    /// The turn of the loop in which the last chunk left.
    turn: u64,
}

/// The servers.
#[derive(Debug)]
pub(crate) struct FrontEnd {
    costs: FrontEndCosts,
    stream_interval: u32,
    busy_until_ns: u64,
    tokenising_until_ns: u64,
    /// When the loop takes up, or took up, the output that its turn begins with.
    taken_up_ns: u64,
    /// Turns of the loop so far: outputs that are there when one begins are taken up with the first of them.
    turn: u64,
}

impl FrontEnd {
    /// Work divides evenly over the plan's processes, as connections do.
    pub(crate) fn new(plan: &FrontEndPlan, costs: FrontEndCosts) -> Self {
        let processes = u64::from(plan.processes.max(1));
        let share = |cost: u64| cost / processes;
        let costs = FrontEndCosts {
            per_request_ns: share(costs.per_request_ns),
            per_prompt_token_ns: share(costs.per_prompt_token_ns),
            tokenise_token_ns: if plan.tokenises { share(costs.tokenise_token_ns) } else { 0 },
            per_response_ns: share(costs.per_response_ns),
            per_step_ns: share(costs.per_step_ns),
            per_output_ns: if plan.detokenises { share(costs.per_output_ns) } else { 0 },
            per_chunk_ns: share(costs.per_chunk_ns),
        };
        Self { costs, stream_interval: plan.stream_interval, busy_until_ns: 0, tokenising_until_ns: 0, taken_up_ns: 0, turn: 0 }
    }

    /// A request of `prompt_tokens` arrives at `now`; returns when the engine receives it.
    pub(crate) fn accept(&mut self, now: SimTime, prompt_tokens: u64) -> SimTime {
        self.work_from(now, self.costs.per_request_ns + self.costs.per_prompt_token_ns * prompt_tokens);
        self.tokenising_until_ns = self.tokenising_until_ns.max(self.busy_until_ns) + self.costs.tokenise_token_ns * prompt_tokens;
        whole(self.tokenising_until_ns)
    }

    /// A request is turned down or given up at `now`; returns when its client knows.
    pub(crate) fn answer(&mut self, now: SimTime) -> SimTime {
        self.work_from(now, self.costs.per_request_ns);
        whole(self.busy_until_ns)
    }

    /// The output of a step arrives at `now`.
    pub(crate) fn begin_step(&mut self, now: SimTime) {
        let now_ns = now.as_micros() * 1000;
        if now_ns >= self.taken_up_ns {
            self.taken_up_ns = self.busy_until_ns.max(now_ns);
            self.turn += 1;
        }
        self.work_from(now, self.costs.per_step_ns);
    }

    /// One request's tokens of the step begun last are processed, `tokens` in all so far, of which some had left before; returns when
    /// the client sees a chunk, or `None` where its tokens wait for more or leave with a chunk of the request that waits already.
    ///
    /// The first token always leaves at once, the last ones with the request's end.
    #[inline]
    pub(crate) fn process(&mut self, tokens: u64, before: Streamed, ended: bool) -> Option<SimTime> {
        self.busy_until_ns += self.costs.per_output_ns;
        let begins = before.tokens == 0;
        let joins = before.turn == self.turn && !begins;
        if !(ended || begins) && (joins || tokens - before.tokens < u64::from(self.stream_interval)) {
            return None;
        }
        if !joins {
            self.busy_until_ns += self.costs.per_chunk_ns;
        }
        if begins {
            self.busy_until_ns += self.costs.per_response_ns;
        }
        Some(whole(self.busy_until_ns))
    }

    /// The reply of a request whose first `tokens` tokens have left, the last of them with a chunk of the step begun last.
    pub(crate) fn streamed(&self, tokens: u64) -> Streamed {
        Streamed { tokens, turn: self.turn }
    }

    fn work_from(&mut self, now: SimTime, work_ns: u64) {
        self.busy_until_ns = self.busy_until_ns.max(now.as_micros() * 1000) + work_ns;
    }
}

fn whole(ns: u64) -> SimTime {
    SimTime::from_micros((ns + 500) / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front_end(stream_interval: u32, costs: FrontEndCosts) -> FrontEnd {
        FrontEnd::new(&FrontEndPlan { stream_interval, processes: 1, tokenises: true, detokenises: true }, costs)
    }

    /// A reply of which so many tokens left in an earlier turn.
    fn sent(tokens: u64) -> Streamed {
        Streamed { tokens, turn: 0 }
    }

    #[test]
    fn requests_that_arrive_together_are_tokenised_one_after_the_other() {
        let costs = FrontEndCosts { per_request_ns: 10_000, tokenise_token_ns: 100, ..FrontEndCosts::default() };
        let mut front_end = front_end(1, costs);
        let delivered: Vec<u64> = (0..3).map(|_| front_end.accept(SimTime::ZERO, 200).as_micros()).collect();
        assert_eq!(delivered, [30, 50, 70]);
        assert_eq!(front_end.accept(SimTime::from_micros(1_000), 0).as_micros(), 1_010);
    }

    #[test]
    fn tokens_of_other_requests_leave_while_a_long_prompt_is_tokenised() {
        let costs = FrontEndCosts { tokenise_token_ns: 5_000, per_chunk_ns: 1_000, ..FrontEndCosts::default() };
        let mut front_end = front_end(1, costs);
        assert_eq!(front_end.accept(SimTime::ZERO, 8_000).as_micros(), 40_000);
        front_end.begin_step(SimTime::from_micros(100));
        assert_eq!(front_end.process(7, sent(6), false).map(SimTime::as_micros), Some(101));
    }

    #[test]
    fn a_stream_interval_sends_the_first_token_then_every_twentieth_then_the_rest() {
        let mut front_end = front_end(20, FrontEndCosts::default());
        let mut before = Streamed::default();
        let mut chunks = Vec::new();
        for tokens in 1..=50 {
            front_end.begin_step(SimTime::from_micros(tokens * 10));
            if front_end.process(tokens, before, tokens == 50).is_some() {
                before = front_end.streamed(tokens);
                chunks.push(tokens);
            }
        }
        assert_eq!(chunks, [1, 21, 41, 50]);
    }

    #[test]
    fn each_output_of_a_step_leaves_after_the_one_before_it() {
        let costs = FrontEndCosts { per_step_ns: 5_000, per_output_ns: 1_000, per_chunk_ns: 2_000, ..FrontEndCosts::default() };
        let mut front_end = front_end(1, costs);
        front_end.begin_step(SimTime::from_micros(100));
        let times: Vec<u64> = (0..3).filter_map(|_| front_end.process(7, sent(6), false)).map(SimTime::as_micros).collect();
        assert_eq!(times, [108, 111, 114]);
    }

    #[test]
    fn a_loop_that_falls_behind_sends_the_tokens_of_several_steps_in_one_chunk() {
        let mut front_end = front_end(1, FrontEndCosts { per_output_ns: 1_000, per_chunk_ns: 29_000, ..FrontEndCosts::default() });
        let mut before = sent(1);
        let mut chunks = Vec::new();
        for tokens in 2..=9 {
            front_end.begin_step(SimTime::from_micros(tokens * 10));
            if let Some(at) = front_end.process(tokens, before, tokens == 9) {
                chunks.push((at.as_micros(), tokens - before.tokens));
                before = front_end.streamed(tokens);
            }
        }
        assert_eq!(chunks, [(50, 1), (80, 1), (111, 2), (144, 4)]);
    }

    #[test]
    fn steps_of_different_requests_each_send_their_own_chunks_however_late_the_loop_is() {
        let mut front_end = front_end(1, FrontEndCosts { per_chunk_ns: 29_000, ..FrontEndCosts::default() });
        let mut before = [sent(1); 3];
        let mut chunks = Vec::new();
        // Batches of one request each take turns, as in the stages of a pipeline.
        for step in 0..7 {
            let (request, tokens) = (step % 3, 2 + step as u64 / 3);
            front_end.begin_step(SimTime::from_micros(step as u64 * 10));
            if front_end.process(tokens, before[request], false).is_some() {
                chunks.push((request, tokens - before[request].tokens));
                before[request] = front_end.streamed(tokens);
            }
        }
        // The seventh output is there before the fourth, of the same request, is taken up: it leaves with that one.
        assert_eq!(chunks, [(0, 1), (1, 1), (2, 1), (0, 1), (1, 1), (2, 1)]);
    }

    #[test]
    fn beginning_a_response_takes_the_loop_as_well() {
        let mut front_end = front_end(1, FrontEndCosts { per_response_ns: 4_000, per_chunk_ns: 1_000, ..FrontEndCosts::default() });
        front_end.begin_step(SimTime::from_micros(10));
        assert_eq!(front_end.process(1, sent(0), false).map(SimTime::as_micros), Some(15));
        assert_eq!(front_end.process(2, sent(1), false).map(SimTime::as_micros), Some(16));
    }
}
