//! How many kernels of a pass follow one another, apart by when each may begin.

use std::iter::Sum;
use std::ops::Add;

use blis_contracts::plan::Start;

/// Kernel calls that follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Calls {
    /// Begun when the call before has ended.
    pub(crate) ordered: u32,
    /// Begun while the call before drains.
    pub(crate) dependent: u32,
}

impl Calls {
    /// `count` calls that begin alike.
    pub(crate) const fn of(start: Start, count: u32) -> Self {
        match start {
            Start::Ordered => Self { ordered: count, dependent: 0 },
            Start::Dependent => Self { ordered: 0, dependent: count },
        }
    }

    /// All of them.
    pub(crate) const fn all(self) -> u32 {
        self.ordered + self.dependent
    }
}

impl Add for Calls {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { ordered: self.ordered + other.ordered, dependent: self.dependent + other.dependent }
    }
}

impl Sum for Calls {
    fn sum<I: Iterator<Item = Self>>(calls: I) -> Self {
        calls.fold(Self::default(), Add::add)
    }
}
