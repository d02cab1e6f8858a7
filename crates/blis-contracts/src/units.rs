//! Quantities as types: simulated time, tokens, blocks, bytes, work and rates.
//!
//! Amounts per rank, per node and per group are different types, so adding one to another does not compile. Conversions between
//! them name the width they multiply by. Simulated time is an integer number of microseconds; a price becomes time in one
//! function, [`SimDuration::from_nanoseconds`].

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An instant of simulated time, in microseconds since the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SimTime(u64);

/// A length of simulated time, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SimDuration(u64);

impl SimTime {
    /// The start of every run.
    pub const ZERO: Self = Self(0);

    /// The first instant that no run reaches: 285 years after the start. What would be later is here, and a run that comes here fails.
    pub const BEYOND: Self = Self(9_000_000_000_000_000);

    /// The instant `seconds` after the start, rounded half up to microseconds; [`Self::BEYOND`] where it is as late or later.
    ///
    /// Panics on a negative number or none at all.
    pub fn from_seconds(seconds: f64) -> Self {
        let nanoseconds = seconds * 1e9;
        // A microsecond less, so that rounding does not reach the bound.
        if nanoseconds >= (Self::BEYOND.0 - 1) as f64 * 1e3 {
            return Self::BEYOND;
        }
        Self(SimDuration::from_nanoseconds(nanoseconds).as_micros())
    }

    /// The instant `microseconds` after the start.
    pub const fn from_micros(microseconds: u64) -> Self {
        Self(microseconds)
    }

    /// Microseconds since the start.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Seconds since the start, for figures only; never for ordering.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The time from `earlier` to `self`. Panics when `earlier` is later, which would be a defect of the caller.
    #[inline]
    pub fn since(self, earlier: Self) -> SimDuration {
        SimDuration(self.0.checked_sub(earlier.0).expect("an interval never ends before it starts"))
    }
}

impl SimDuration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A duration of `microseconds`.
    pub const fn from_micros(microseconds: u64) -> Self {
        Self(microseconds)
    }

    /// The length in microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The length in seconds, for figures only; never for ordering.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The one conversion from a price to simulated time: rounds half up to whole microseconds.
    ///
    /// Panics on a negative or non-finite price: the cost model never produces one.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked just before the cast")]
    pub fn from_nanoseconds(nanoseconds: f64) -> Self {
        let micros = libm::floor(nanoseconds / 1e3 + 0.5);
        assert!((0.0..9e15).contains(&micros), "a price of {nanoseconds} ns is not a duration");
        Self(micros as u64)
    }

    /// As [`Self::from_nanoseconds`], but at least one microsecond: work that happens takes time.
    pub fn at_least_one_microsecond(nanoseconds: f64) -> Self {
        Self(Self::from_nanoseconds(nanoseconds).0.max(1))
    }
}

impl Add<SimDuration> for SimTime {
    type Output = Self;
    fn add(self, rhs: SimDuration) -> Self {
        Self(self.0 + rhs.0)
    }
}

impl AddAssign<SimDuration> for SimTime {
    fn add_assign(&mut self, rhs: SimDuration) {
        self.0 += rhs.0;
    }
}

impl Add for SimDuration {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0 + rhs.0)
    }
}

impl AddAssign for SimDuration {
    fn add_assign(&mut self, rhs: Self) {
        self.0 += rhs.0;
    }
}

impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

impl fmt::Display for SimDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} us", self.0)
    }
}

/// Defines an integer quantity that adds to itself and scales by a plain number, and to nothing else.
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident($inner:ty), $unit:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name($inner);

        impl $name {
            /// None of it.
            pub const ZERO: Self = Self(0);

            /// Wraps a plain number of this unit.
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }

            /// The plain number.
            pub const fn get(self) -> $inner {
                self.0
            }

            /// The plain number as a real, for arithmetic that ends in a price or a figure.
            pub const fn as_f64(self) -> f64 {
                self.0 as f64
            }

            /// `self - other`, or `None` where it would be negative.
            pub fn checked_sub(self, other: Self) -> Option<Self> {
                self.0.checked_sub(other.0).map(Self)
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, rhs: Self) -> Self {
                Self(self.0 + rhs.0)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, rhs: Self) {
                self.0 += rhs.0;
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, rhs: Self) -> Self {
                Self(self.0 - rhs.0)
            }
        }

        impl SubAssign for $name {
            fn sub_assign(&mut self, rhs: Self) {
                self.0 -= rhs.0;
            }
        }

        impl Mul<$inner> for $name {
            type Output = Self;
            fn mul(self, rhs: $inner) -> Self {
                Self(self.0 * rhs)
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, Add::add)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{}", $unit), self.0)
            }
        }
    };
}

quantity!(
    /// A number of tokens.
    Tokens(u64),
    " tokens"
);
quantity!(
    /// A number of KV blocks of one engine.
    Blocks(u64),
    " blocks"
);
quantity!(
    /// Bytes held or moved by one rank (one accelerator).
    BytesPerRank(u64),
    " B/rank"
);
quantity!(
    /// Bytes held by one node, shared by its ranks.
    BytesPerNode(u64),
    " B/node"
);
quantity!(
    /// Bytes held or moved by a whole group of ranks.
    BytesPerGroup(u64),
    " B/group"
);
quantity!(
    /// Bytes one storage device holds.
    BytesPerDevice(u64),
    " B/device"
);
quantity!(
    /// Bytes of one packet of a network.
    BytesPerPacket(u64),
    " B/packet"
);

impl BytesPerRank {
    /// What `ranks` ranks hold together.
    pub fn times_ranks(self, ranks: u32) -> BytesPerGroup {
        BytesPerGroup(self.0 * u64::from(ranks))
    }
}

/// Defines a real-valued physical rate or amount of work.
macro_rules! real_quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(f64);

        impl $name {
            /// Wraps a plain number of this unit.
            pub const fn new(value: f64) -> Self {
                Self(value)
            }

            /// The plain number.
            pub const fn get(self) -> f64 {
                self.0
            }
        }
    };
}

real_quantity!(
    /// Floating-point operations; a multiply-add counts as two.
    Flops
);
real_quantity!(
    /// Floating-point operations per second.
    FlopsPerSecond
);
real_quantity!(
    /// Bytes per second, in one direction.
    BytesPerSecond
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_rounds_half_up_to_microseconds() {
        let micros = [0.0, 499.9, 500.0, 1_499.0, 1_500.0].map(|ns| SimDuration::from_nanoseconds(ns).as_micros());
        assert_eq!(micros, [0, 0, 1, 1, 2]);
        assert_eq!(SimDuration::at_least_one_microsecond(3.0).as_micros(), 1);
    }

    #[test]
    fn a_time_prints_in_seconds_with_all_its_microseconds() {
        assert_eq!(SimTime::from_micros(12_000_345).to_string(), "12.000345 s");
    }
}
