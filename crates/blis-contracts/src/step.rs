//! The step shape an engine launches, and the estimate the cost model returns.

use crate::units::SimDuration;

/// One engine step on the data-parallel ranks that run in lockstep, already padded by the engine.
///
/// An engine keeps one value and refills it, so that a steady step allocates nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StepShape {
    /// What each rank of the lockstep group runs; one entry where ranks are independent.
    pub ranks: Vec<RankStep>,
    /// Pipeline stage.
    pub stage: u32,
}

/// One rank's part of a step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankStep {
    /// Tokens already cached for each request that computes exactly one new token over a non-empty context.
    pub decode: Vec<u32>,
    /// The other requests.
    pub prefill: Vec<PrefillRow>,
    /// Rows whose logits are computed.
    pub sampled: u32,
    /// Tokens the launch computes, padding included.
    pub padded_tokens: u32,
    /// How the pass is launched.
    pub launch: Launch,
}

/// A request that computes several new tokens, or its first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefillRow {
    /// New tokens.
    pub query: u32,
    /// Tokens already cached.
    pub context: u32,
}

/// How a forward pass is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Launch {
    /// Kernel by kernel from the host.
    #[default]
    Eager,
    /// A graph for everything between attention calls.
    Piecewise,
    /// One graph for the whole pass.
    Full,
}

impl Launch {
    /// Every way to launch.
    pub const ALL: [Self; 3] = [Self::Eager, Self::Piecewise, Self::Full];

    /// The name documents and reports use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Piecewise => "piecewise",
            Self::Full => "full",
        }
    }
}

impl RankStep {
    /// Empties the step, keeping its allocations.
    pub fn clear(&mut self) {
        self.decode.clear();
        self.prefill.clear();
        self.sampled = 0;
        self.padded_tokens = 0;
        self.launch = Launch::Eager;
    }

    /// Requests in the step.
    pub fn requests(&self) -> usize {
        self.decode.len() + self.prefill.len()
    }

    /// Tokens scheduled, padding not counted.
    pub fn tokens(&self) -> u64 {
        self.decode.len() as u64 + self.prefill.iter().map(|row| u64::from(row.query)).sum::<u64>()
    }
}

/// What a step takes, in parts that an engine combines as its upstream overlaps them. All in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepEstimate {
    /// Host work before the launch: forming the batch, preparing its inputs.
    pub before_ns: f64,
    /// Host work of the launch itself.
    pub launch_ns: f64,
    /// The accelerator's work.
    pub device_ns: f64,
    /// Host work after the accelerator has finished: reading tokens back, updating requests.
    pub after_ns: f64,
}

impl StepEstimate {
    /// Host time before the launch.
    pub fn before(self) -> SimDuration {
        SimDuration::from_nanoseconds(self.before_ns)
    }

    /// Host time of the launch.
    pub fn launch(self) -> SimDuration {
        SimDuration::from_nanoseconds(self.launch_ns)
    }

    /// Device time, at least one microsecond.
    pub fn device(self) -> SimDuration {
        SimDuration::at_least_one_microsecond(self.device_ns)
    }

    /// Host time after the step.
    pub fn after(self) -> SimDuration {
        SimDuration::from_nanoseconds(self.after_ns)
    }
}
