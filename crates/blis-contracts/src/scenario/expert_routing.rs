//! How the tokens of a workload spread over the experts of a mixture.
//!
//! It belongs to the workload and not to the model: what a router picks depends on the texts. Left out: which experts are the popular
//! ones; the cost model takes every placement of them on ranks as equally likely.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::strict::Problems;

/// The steepest fall a scenario may state; beyond it, tokens pick the same experts always.
const MAX_EXPONENT: f64 = 10.0;

/// How unequally experts are picked.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpertRouting {
    /// How steeply popularity falls: the r-th most popular expert of a layer is picked in proportion to `r^-exponent`. With 0 every
    /// expert is as likely as any other.
    pub exponent: f64,
}

impl ExpertRouting {
    /// The routing of a workload that states none. No routing of any workload has been published; NVIDIA's operator database times
    /// experts under a power law it takes for real traffic (`power_law_1.2`), and this exponent gives the numbers of distinct experts
    /// that law gives.
    pub const ASSUMED: Self = Self { exponent: 0.75 };

    pub(super) fn validate(self, problems: &mut Problems) {
        let holds = (0.0..=MAX_EXPONENT).contains(&self.exponent);
        problems.require("exponent", holds, format_args!("from 0 (all experts alike) to {MAX_EXPONENT}"), self.exponent);
    }
}
