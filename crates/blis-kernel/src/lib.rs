//! The cost model: a compiled plan and a step shape become an estimate.
