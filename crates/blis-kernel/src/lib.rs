//! The cost model: a compiled plan and a step shape become an estimate.
//!
//! [`CostModel`] joins one chip's facts with its coefficients. It compiles a plan once ([`CompiledPlan`]: identical layers merged,
//! coefficients looked up, work split by what it reads of a step) and then prices steps in well under a microsecond. The formulas
//! are in [`forms`], the sizes that go into them in `operation`, what overlaps with what in `launch` and `compiled`.
//!
//! It holds no default, backend choice, padding rule or coefficient: the first three arrive in the plan, the last in the registry.
//! Left out: pipeline overlap (the engine combines stages), transfers, several collectives that share a link.

pub mod forms;
pub mod inputs;
pub mod routing;
pub mod term;
pub mod value;

mod attention;
mod calls;
mod chunks;
mod compiled;
mod crossing;
mod dealing;
mod environment;
mod error;
mod figures;
mod host;
mod launch;
mod memory;
mod model;
mod operation;
mod placement;
mod report;
mod sparse;
mod table;

pub use compiled::CompiledPlan;
pub use environment::PricedEnvironment;
pub use error::CompileError;
pub use figures::Figures;
pub use host::FrontEndPrice;
pub use model::CostModel;
pub use report::{PriceLine, PriceTotals};
pub use routing::RoutingBalance;
