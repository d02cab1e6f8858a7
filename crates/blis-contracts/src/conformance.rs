//! What every engine must keep, as a driver that any engine's tests can hand their engine to.
//!
//! [`drive`] delivers requests at their arrivals, wakes the engine when it asked to be woken, and panics at the first broken promise:
//! a step over the declared depth, an output before its step's end, a token too many, a wake-up in the past, a request that never
//! ends. [`FixedPrices`] is a world with stated prices, for engines under test.

use rustc_hash::FxHashMap;

use crate::chip::Chip;
use crate::engine::{Effects, Engine, Finished, Input, StepTicket};
use crate::environment::{Environment, EnvironmentError, MemoryBreakdown, PlanId};
use crate::model::ModelGraph;
use crate::plan::PoolPlan;
use crate::request::{Request, RequestSlot};
use crate::step::{StepEstimate, StepShape};
use crate::units::SimTime;

/// Wake-ups after which an engine that still owes tokens counts as stuck.
const PATIENCE: usize = 5_000_000;

/// A world in which each step costs a fixed amount and a little for each token.
#[derive(Debug, Clone)]
pub struct FixedPrices {
    /// What every step costs.
    pub step: StepEstimate,
    /// What each token launched adds to the accelerator's work, in nanoseconds.
    pub per_token_ns: f64,
}

impl Environment for FixedPrices {
    fn graph(&self, model: &str) -> Result<&ModelGraph, EnvironmentError> {
        Err(EnvironmentError::UnknownModel { name: model.to_owned(), nearest: Vec::new() })
    }

    fn chip(&self, name: &str) -> Result<&Chip, EnvironmentError> {
        Err(EnvironmentError::UnknownChip { name: name.to_owned(), nearest: Vec::new() })
    }

    fn memory(&self, _partial: &PoolPlan) -> Result<MemoryBreakdown, EnvironmentError> {
        Ok(MemoryBreakdown::default())
    }

    fn compile(&mut self, _plan: &PoolPlan) -> Result<PlanId, EnvironmentError> {
        Ok(PlanId(0))
    }

    fn price(&mut self, _plan: PlanId, step: &StepShape) -> StepEstimate {
        let tokens: u64 = step.ranks.iter().map(|rank| u64::from(rank.padded_tokens)).sum();
        StepEstimate { device_ns: self.step.device_ns + self.per_token_ns * tokens as f64, ..self.step }
    }
}

/// What an engine did with the requests it was given.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transcript {
    /// Steps, in order of launch.
    pub steps: Vec<StepTicket>,
    /// Tokens of each request, as (time, slot).
    pub tokens: Vec<(SimTime, RequestSlot)>,
    /// Requests that ended, with when.
    pub finished: Vec<(SimTime, Finished)>,
    /// Requests that were refused, with the reason.
    pub refused: Vec<(RequestSlot, String)>,
}

/// Drives an engine until every request has ended. Each request comes with the most tokens it may gain, in order of arrival; each slot
/// occurs once.
///
/// Panics where the engine breaks a promise of [`Engine`].
pub fn drive(engine: &mut dyn Engine, environment: &mut dyn Environment, requests: &[(Request, u32)]) -> Transcript {
    assert!(requests.is_sorted_by_key(|(request, _)| request.arrival), "requests come in order of arrival");
    let mut driver = Driver { transcript: Transcript::default(), owed: FxHashMap::default(), open: Vec::new(), unread: 0, ended: 0 };
    let mut arrivals = requests.iter().peekable();
    let mut effects = Effects::default();
    let mut wake: Option<SimTime> = None;
    for _ in 0..PATIENCE {
        let arrival = arrivals.peek().map(|(request, _)| request.arrival);
        let Some(now) = [arrival, wake].into_iter().flatten().min() else { break };
        while let Some((request, tokens)) = arrivals.next_if(|(request, _)| request.arrival == now) {
            driver.owed.insert(request.slot, *tokens);
            engine.deliver(now, Input::Request(request.clone()));
        }
        effects.clear();
        engine.advance(now, environment, &mut effects);
        driver.check(now, &effects, engine.plan().in_flight);
        wake = effects.wake_at;
    }
    assert_eq!(driver.ended, requests.len(), "every request ends");
    driver.transcript
}

struct Driver {
    transcript: Transcript,
    /// Most tokens each live request may still receive.
    owed: FxHashMap<RequestSlot, u32>,
    /// Steps the accelerator has not finished.
    open: Vec<StepTicket>,
    /// Outputs of steps that have ended and that may still come.
    unread: u32,
    ended: usize,
}

impl Driver {
    fn check(&mut self, now: SimTime, effects: &Effects, in_flight: u32) {
        assert!(effects.wake_at.is_none_or(|wake| wake > now), "{now}: the engine asks to be woken in the past");
        self.unread += self.open.extract_if(.., |ticket| ticket.end <= now).map(|ticket| ticket.readers).sum::<u32>();
        if !effects.tokens.is_empty() {
            self.unread = self.unread.checked_sub(1).expect("no output before its step's end");
        }
        for ticket in &effects.started {
            let last = self.transcript.steps.iter().rev().find(|last| last.stream == ticket.stream);
            assert!(last.is_none_or(|last| last.end <= ticket.start), "{now}: {ticket:?} starts before {last:?} has ended");
            assert!(ticket.start < ticket.end && now <= ticket.start, "{now}: {ticket:?} takes no time or starts in the past");
            assert!(ticket.prefill_tokens <= ticket.tokens && ticket.requests <= ticket.tokens, "{now}: {ticket:?} does not add up");
            self.open.push(*ticket);
            self.transcript.steps.push(*ticket);
        }
        for ticket in &self.open {
            let open = self.open.iter().filter(|other| other.stream == ticket.stream).count();
            assert!(open <= in_flight as usize, "{now}: {open} steps are open, {in_flight} may be");
        }
        self.settle(now, effects);
    }

    fn settle(&mut self, now: SimTime, effects: &Effects) {
        for out in &effects.tokens {
            let owed = self.owed.get_mut(&out.slot).expect("only a live request gains tokens");
            *owed = owed.checked_sub(out.count).expect("no request gains more tokens than it asked for");
            self.transcript.tokens.extend((0..out.count).map(|_| (now, out.slot)));
        }
        for finished in &effects.finished {
            self.owed.remove(&finished.slot).expect("a request ends once");
            self.transcript.finished.push((now, *finished));
        }
        for (slot, reason) in &effects.refused {
            self.owed.remove(slot).expect("a request is refused once");
            self.transcript.refused.push((*slot, reason.clone()));
        }
        self.ended += effects.finished.len() + effects.refused.len();
    }
}
