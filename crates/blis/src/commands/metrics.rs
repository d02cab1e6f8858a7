//! `blis metrics`: the metric registry.

use blis_report::result;

use super::{Outcome, print};

pub(super) fn run() -> Outcome {
    print(&result::metrics())
}
