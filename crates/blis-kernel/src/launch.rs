//! Launching a pass: what the host spends on it, and when that is longer than the accelerator's work.
//!
//! A full graph is one launch. A piecewise pass replays its pieces and launches attention kernel by kernel in between; an eager
//! pass launches everything kernel by kernel. Launches run ahead of the accelerator, so only the first delays it; where all of
//! them together take longer than its work, the pass is as long as they are. Between kernels the accelerator loses a little time
//! whichever way they were launched.

use blis_contracts::plan::GraphPolicy;
use blis_contracts::step::Launch;
use blis_registry::vocabulary::{Input, Subject};
use blis_registry::{ChipCoefficients, Query};

use crate::calls::Calls;
use crate::error::CompileError;
use crate::inputs::Inputs;
use crate::term::Term;

/// Terms of the three ways to launch, and of what lies between kernels in each.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Launches {
    pub(crate) full: Term,
    pub(crate) piecewise: Term,
    pub(crate) eager: Term,
    /// From one kernel to the next, on the accelerator.
    pub(crate) node: Term,
    /// The same to one that may begin while the kernel before it drains.
    pub(crate) dependent: Term,
    pieces: f64,
    kernels: f64,
}

/// Host time of launching one pass, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Dispatch {
    /// Before the accelerator can start.
    pub(crate) first: f64,
    /// While it runs.
    pub(crate) rest: f64,
}

/// The accelerator's time before the kernels of a pass, in microseconds, by when each may begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Between {
    pub(crate) ordered: f64,
    pub(crate) dependent: f64,
}

impl Between {
    /// All of it.
    pub(crate) const fn all(self) -> f64 {
        self.ordered + self.dependent
    }
}

impl Launches {
    pub(crate) fn new(graphs: &GraphPolicy, coefficients: &ChipCoefficients) -> Result<Self, CompileError> {
        let find = |subject| Term::find(coefficients, &Query::of(subject), &Inputs::NONE);
        Ok(Self {
            full: find(Subject::GraphFull)?,
            piecewise: find(Subject::GraphPiecewise)?,
            eager: find(Subject::GraphEager)?,
            node: find(Subject::GraphNode)?,
            dependent: find(Subject::GraphDependent)?,
            pieces: f64::from(graphs.pieces),
            kernels: f64::from(graphs.eager_launches),
        })
    }

    /// Time of the accelerator between the kernels of a pass that makes `calls` calls.
    ///
    /// Kernels are priced as they were timed, each following itself with its code and its weights' addresses at hand; between different
    /// kernels that depend on each other the accelerator also drains, resolves the dependency and fetches code. A kernel launched as a
    /// programmatic dependent does part of that while the one before it drains.
    pub(crate) fn between(&self, calls: Calls) -> Between {
        let before = |term: &Term, calls: u32| {
            let pass = Inputs::NONE.with(Input::Requests, 0.0).with(Input::Tokens, 0.0).with(Input::Operations, f64::from(calls));
            if calls == 0 { 0.0 } else { term.price(&pass) }
        };
        Between { ordered: before(&self.node, calls.ordered), dependent: before(&self.dependent, calls.dependent) }
    }

    /// Host time of one pass that makes `attention_calls` attention calls and serves `requests` requests and `tokens` tokens.
    pub(crate) fn dispatch(&self, launch: Launch, attention_calls: u32, requests: f64, tokens: f64) -> Dispatch {
        let batch = Inputs::NONE.with(Input::Requests, requests).with(Input::Tokens, tokens);
        let host = |term: &Term, operations: f64| term.price(&batch.with(Input::Operations, operations));
        let (total, launches) = match launch {
            Launch::Full => return Dispatch { first: host(&self.full, self.kernels), rest: 0.0 },
            Launch::Piecewise => {
                let attention = f64::from(attention_calls);
                let eager = host(&self.eager, attention) - host(&self.eager, 0.0);
                (host(&self.piecewise, self.pieces) + eager, self.pieces + attention)
            }
            Launch::Eager => (host(&self.eager, self.kernels), self.kernels),
        };
        let first = total / launches.max(1.0);
        Dispatch { first, rest: total - first }
    }
}
