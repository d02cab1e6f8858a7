//! Why a plan cannot be prepared for pricing.

use blis_contracts::environment::EnvironmentError;
use blis_contracts::format::FormatName;
use blis_contracts::plan::RowSet;
use blis_registry::NotPriced;
use thiserror::Error;

/// A plan cannot be prepared for pricing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompileError {
    /// No coefficient covers a piece of work.
    #[error(transparent)]
    NotPriced(#[from] NotPriced),
    /// The chip states no rate for a format.
    #[error("the chip states no peak rate that covers {format}")]
    NoPeak {
        /// The format of the activations.
        format: FormatName,
    },
    /// The plan is for another chip than the coefficients.
    #[error("the plan is for the chip `{plan}`, the cost model for `{model}`")]
    OtherChip {
        /// The plan's chip.
        plan: String,
        /// The cost model's chip.
        model: String,
    },
    /// A group of ranks lies in several domains of links, and there is no network between them.
    #[error("`{primitive}` over several domains of links, with no network between them")]
    NoNetwork {
        /// The primitive.
        primitive: &'static str,
    },
    /// The plan is for another network than the cost model.
    #[error("the plan is for the network `{plan}`, the cost model for `{model}`")]
    OtherNetwork {
        /// The plan's network.
        plan: String,
        /// The cost model's; empty where it has none.
        model: String,
    },
    /// A layer belongs to a stage the layout does not have.
    #[error("a plan of {stages} pipeline stages has `{primitive}` on stage {stage}")]
    Stage {
        /// The primitive.
        primitive: &'static str,
        /// Its stage.
        stage: u32,
        /// Stages of the layout.
        stages: u32,
    },
    /// A primitive's shape or rows are not those it has: attention reads requests, all other work reads rows.
    #[error("a plan's `{primitive}` cannot have the shape {shape} over {rows:?}")]
    Shape {
        /// The primitive.
        primitive: &'static str,
        /// The shape, in words.
        shape: String,
        /// The rows.
        rows: RowSet,
    },
}

impl From<CompileError> for EnvironmentError {
    fn from(error: CompileError) -> Self {
        let what = match error {
            CompileError::NotPriced(NotPriced { chip, what }) => format!("{what} on the chip `{chip}`"),
            CompileError::NoPeak { .. }
            | CompileError::OtherChip { .. }
            | CompileError::NoNetwork { .. }
            | CompileError::OtherNetwork { .. }
            | CompileError::Stage { .. }
            | CompileError::Shape { .. } => format!("the plan: {error}"),
        };
        Self::Unpriced { what }
    }
}
