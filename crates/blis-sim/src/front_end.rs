//! The front end: what lies between client and engine in both directions.
//!
//! One serial server executes the engine's [`FrontEndPlan`]: tokenising a request before the engine sees it, and turning tokens into
//! chunks on the way back. Its work is done in the order it arises, so both directions are first-in first-out and their times never
//! go back. Time is kept in nanoseconds inside and leaves as whole microseconds.

use blis_contracts::plan::FrontEndPlan;
use blis_contracts::units::SimTime;

/// Host work of the front end, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrontEndCosts {
    /// Accepting a request.
    pub per_request_ns: u64,
    /// Tokenising, for each prompt token.
    pub per_prompt_token_ns: u64,
    /// Receiving one step's output, whatever it holds.
    pub per_step_ns: u64,
    /// Turning one request's tokens of a step into text.
    pub per_output_ns: u64,
    /// Sending one chunk.
    pub per_chunk_ns: u64,
}

/// The server.
#[derive(Debug)]
pub(crate) struct FrontEnd {
    costs: FrontEndCosts,
    stream_interval: u32,
    busy_until_ns: u64,
}

impl FrontEnd {
    /// Work divides evenly over the plan's processes, as connections do.
    pub(crate) fn new(plan: &FrontEndPlan, costs: FrontEndCosts) -> Self {
        let processes = u64::from(plan.processes.max(1));
        let share = |cost: u64| cost / processes;
        let costs = FrontEndCosts {
            per_request_ns: share(costs.per_request_ns),
            per_prompt_token_ns: if plan.tokenises { share(costs.per_prompt_token_ns) } else { 0 },
            per_step_ns: share(costs.per_step_ns),
            per_output_ns: if plan.detokenises { share(costs.per_output_ns) } else { 0 },
            per_chunk_ns: share(costs.per_chunk_ns),
        };
        Self { costs, stream_interval: plan.stream_interval, busy_until_ns: 0 }
    }

    /// A request of `prompt_tokens` arrives at `now`; returns when the engine receives it.
    pub(crate) fn accept(&mut self, now: SimTime, prompt_tokens: u64) -> SimTime {
        self.work_from(now, self.costs.per_request_ns + self.costs.per_prompt_token_ns * prompt_tokens)
    }

    /// The output of a step arrives at `now`.
    pub(crate) fn begin_step(&mut self, now: SimTime) {
        self.work_from(now, self.costs.per_step_ns);
    }

    /// One request's tokens of the step begun last are processed. `sent` of its `tokens` tokens had left in chunks before; returns
    /// when the client sees a chunk, or `None` where its tokens wait for more.
    ///
    /// The first token always leaves at once, the last ones with the request's end.
    #[inline]
    pub(crate) fn process(&mut self, tokens: u64, sent: u64, ended: bool) -> Option<SimTime> {
        self.busy_until_ns += self.costs.per_output_ns;
        let leaves = ended || sent == 0 || tokens - sent >= u64::from(self.stream_interval);
        leaves.then(|| {
            self.busy_until_ns += self.costs.per_chunk_ns;
            self.free_at()
        })
    }

    fn work_from(&mut self, now: SimTime, work_ns: u64) -> SimTime {
        self.busy_until_ns = self.busy_until_ns.max(now.as_micros() * 1000) + work_ns;
        self.free_at()
    }

    fn free_at(&self) -> SimTime {
        SimTime::from_micros((self.busy_until_ns + 500) / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front_end(stream_interval: u32, costs: FrontEndCosts) -> FrontEnd {
        FrontEnd::new(&FrontEndPlan { stream_interval, processes: 1, tokenises: true, detokenises: true }, costs)
    }

    #[test]
    fn requests_that_arrive_together_are_tokenised_one_after_the_other() {
        let mut front_end = front_end(1, FrontEndCosts { per_request_ns: 10_000, per_prompt_token_ns: 100, ..FrontEndCosts::default() });
        let delivered: Vec<u64> = (0..3).map(|_| front_end.accept(SimTime::ZERO, 200).as_micros()).collect();
        assert_eq!(delivered, [30, 60, 90]);
        assert_eq!(front_end.accept(SimTime::from_micros(1_000), 0).as_micros(), 1_010);
    }

    #[test]
    fn a_stream_interval_sends_the_first_token_then_every_twentieth_then_the_rest() {
        let mut front_end = front_end(20, FrontEndCosts::default());
        let mut sent = 0;
        let mut chunks = Vec::new();
        for tokens in 1..=50 {
            front_end.begin_step(SimTime::from_micros(tokens * 10));
            if front_end.process(tokens, sent, tokens == 50).is_some() {
                sent = tokens;
                chunks.push(tokens);
            }
        }
        assert_eq!(chunks, [1, 21, 41, 50]);
    }

    #[test]
    fn each_output_of_a_step_leaves_after_the_one_before_it() {
        let mut front_end =
            front_end(1, FrontEndCosts { per_step_ns: 5_000, per_output_ns: 1_000, per_chunk_ns: 2_000, ..FrontEndCosts::default() });
        front_end.begin_step(SimTime::from_micros(100));
        let times: Vec<u64> = (0..3).filter_map(|_| front_end.process(7, 6, false)).map(SimTime::as_micros).collect();
        assert_eq!(times, [108, 111, 114]);
    }
}
