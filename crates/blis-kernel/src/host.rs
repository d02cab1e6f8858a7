//! Work of the host around a step, and between client and engine.
//!
//! How these overlap with the accelerator is the engine's own rule; here each is priced alone.

use blis_contracts::plan::{FrontEndPlan, HostPlan};
use blis_contracts::step::RankStep;
use blis_registry::vocabulary::{Input, Subject};
use blis_registry::{ChipCoefficients, Query};

use crate::error::CompileError;
use crate::inputs::Inputs;
use crate::term::Term;

/// Terms of the host's work around a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HostTerms {
    pub(crate) schedule: Term,
    pub(crate) prepare: Term,
    pub(crate) update: Term,
    workers: f64,
}

/// Host time of one step, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HostTime {
    pub(crate) schedule: f64,
    pub(crate) prepare: f64,
    pub(crate) update: f64,
}

impl HostTerms {
    pub(crate) fn new(host: &HostPlan, coefficients: &ChipCoefficients) -> Result<Self, CompileError> {
        let find = |subject| Term::find(coefficients, &Query::of(subject), &Inputs::NONE);
        Ok(Self {
            schedule: find(Subject::HostSchedule)?,
            prepare: find(Subject::HostPrepare)?,
            update: find(Subject::HostUpdate)?,
            workers: f64::from(host.workers),
        })
    }

    /// The host's work for one rank's step. An operation is a message to a worker.
    pub(crate) fn price(&self, step: &RankStep) -> HostTime {
        let inputs = Inputs::NONE
            .with(Input::Requests, step.requests() as f64)
            .with(Input::Tokens, step.tokens() as f64)
            .with(Input::Operations, self.workers);
        HostTime { schedule: self.schedule.price(&inputs), prepare: self.prepare.price(&inputs), update: self.update.price(&inputs) }
    }
}

/// What lies between client and engine, in nanoseconds of one front-end process.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FrontEndPrice {
    /// For each request taken in: parsing, validation, hand-over.
    pub per_request_ns: f64,
    /// For each prompt token a request brings: parsing, checking and handing on, whatever tokenises it.
    pub per_prompt_token_ns: f64,
    /// For each prompt token, on the tokenising thread; 0 where prompts arrive as tokens.
    pub tokenise_token_ns: f64,
    /// For each response begun, its end included (the entry's `per_operation`).
    pub per_response_ns: f64,
    /// For each chunk sent to a client: serialising, writing (`per_request`).
    pub per_chunk_ns: f64,
    /// For each output token: detokenising; 0 where tokens are sent as tokens (`per_token`).
    pub per_output_token_ns: f64,
    /// For each engine step with output: taking the engine's message apart (`base`).
    pub per_step_ns: f64,
}

impl FrontEndPrice {
    /// Prices a plan's front end.
    pub(crate) fn of(plan: &FrontEndPlan, coefficients: &ChipCoefficients) -> Result<Self, CompileError> {
        let nothing = Inputs::NONE.with(Input::Requests, 0.0).with(Input::Tokens, 0.0).with(Input::Operations, 0.0);
        let find = |subject| Term::find(coefficients, &Query::of(subject), &Inputs::NONE);
        let base = |term: &Term| term.price(&nothing) * 1e3;
        let per = |term: &Term, input| term.price(&nothing.with(input, 1.0)) * 1e3 - base(term);
        let (accept, tokenise) = (find(Subject::HostAccept)?, find(Subject::HostTokenise)?);
        let output = find(Subject::HostFrontend)?;
        Ok(Self {
            per_request_ns: base(&accept),
            per_prompt_token_ns: per(&accept, Input::Tokens),
            tokenise_token_ns: if plan.tokenises { per(&tokenise, Input::Tokens) } else { 0.0 },
            per_response_ns: per(&output, Input::Operations),
            per_chunk_ns: per(&output, Input::Requests),
            per_output_token_ns: if plan.detokenises { per(&output, Input::Tokens) } else { 0.0 },
            per_step_ns: base(&output),
        })
    }
}
