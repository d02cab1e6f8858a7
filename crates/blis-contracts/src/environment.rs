//! What an engine may ask of the world while it is built and run.

use std::fmt;

use crate::chip::Chip;
use crate::model::ModelGraph;
use crate::plan::PoolPlan;
use crate::step::{StepEstimate, StepShape};
use crate::units::{BytesPerNode, BytesPerRank};

/// The facts, the cost model and nothing else.
pub trait Environment {
    /// The catalog's graph of a model, by catalog name or checkpoint alias.
    fn graph(&self, model: &str) -> Result<&ModelGraph, EnvironmentError>;

    /// The catalog's entry of a chip.
    fn chip(&self, name: &str) -> Result<&Chip, EnvironmentError>;

    /// Memory a plan whose KV budget is still empty takes on each rank.
    fn memory(&self, partial: &PoolPlan) -> Result<MemoryBreakdown, EnvironmentError>;

    /// Prepares a plan for pricing.
    fn compile(&mut self, plan: &PoolPlan) -> Result<PlanId, EnvironmentError>;

    /// Prices a step of a compiled plan.
    fn price(&mut self, plan: PlanId, step: &StepShape) -> StepEstimate;
}

/// A compiled plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanId(pub u32);

/// Memory of one rank before any KV is allocated; what an engine's profiler would report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryBreakdown {
    /// Resident weights.
    pub weights: BytesPerRank,
    /// Buffers and workspaces the engine chose.
    pub buffers: BytesPerRank,
    /// Peak activations of the profiling step.
    pub activations: BytesPerRank,
    /// Captured graphs.
    pub graphs: BytesPerRank,
    /// Communicators of the rank's groups.
    pub communicators: BytesPerRank,
    /// The runtime's own context.
    pub runtime: BytesPerRank,
    /// What no other term explains.
    pub unexplained: BytesPerRank,
    /// Host memory the engine holds on each node.
    pub host: BytesPerNode,
}

impl MemoryBreakdown {
    /// All device terms together.
    pub fn total(&self) -> BytesPerRank {
        [self.weights, self.buffers, self.activations, self.graphs, self.communicators, self.runtime, self.unexplained].into_iter().sum()
    }
}

/// The world could not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvironmentError {
    /// No such model; the nearest names follow.
    UnknownModel {
        /// What was asked for.
        name: String,
        /// Names that resemble it.
        nearest: Vec<String>,
    },
    /// No such chip; the nearest names follow.
    UnknownChip {
        /// What was asked for.
        name: String,
        /// Names that resemble it.
        nearest: Vec<String>,
    },
    /// The plan asks for something no coefficient covers.
    Unpriced {
        /// What it is.
        what: String,
    },
}

impl fmt::Display for EnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name, nearest) = match self {
            Self::UnknownModel { name, nearest } => ("model", name, nearest),
            Self::UnknownChip { name, nearest } => ("chip", name, nearest),
            Self::Unpriced { what } => return write!(f, "no coefficient prices {what}"),
        };
        write!(f, "no {kind} `{name}` in the catalog")?;
        if !nearest.is_empty() {
            write!(f, "; nearest: {}", nearest.join(", "))?;
        }
        Ok(())
    }
}

impl std::error::Error for EnvironmentError {}
