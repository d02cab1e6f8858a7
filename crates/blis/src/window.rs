//! A stretch of simulated time in the words of the command line, such as `10s..12.5s`.

use std::ops::RangeInclusive;
use std::str::FromStr;

use blis_contracts::units::{SimDuration, SimTime};

/// Units a time may be written in, each with its length in nanoseconds; one that another ends with comes after it.
const UNITS: [(&str, f64); 3] = [("us", 1e3), ("ms", 1e6), ("s", 1e9)];

/// A stretch of simulated time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Window(pub(crate) RangeInclusive<SimTime>);

impl Window {
    /// All of simulated time.
    pub(crate) const ALL: Self = Self(SimTime::ZERO..=SimTime::BEYOND);
}

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once("..").ok_or_else(|| format!("`{text}` is no stretch of time; write `10s..12.5s`, or `10s..`"))?;
        let begin = if from.is_empty() { SimTime::ZERO } else { instant(from)? };
        let end = if to.is_empty() { SimTime::BEYOND } else { instant(to)? };
        if end < begin {
            return Err(format!("`{text}` ends before it begins"));
        }
        Ok(Self(begin..=end))
    }
}

fn instant(text: &str) -> Result<SimTime, String> {
    let wrong = || format!("`{text}` is no time; write a number with its unit, `us`, `ms` or `s`, as in `12.5s`");
    let (number, ns) = UNITS.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, *ns))).ok_or_else(wrong)?;
    let amount: f64 = number.trim().parse().map_err(|_| wrong())?;
    let most = SimTime::BEYOND.as_seconds();
    if !(0.0..most).contains(&(amount * ns / 1e9)) {
        return Err(format!("`{text}` must be from 0 s to below {most} s"));
    }
    Ok(SimTime::ZERO + SimDuration::from_nanoseconds(amount * ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_two_times_either_of_which_may_be_left_out() {
        let window = |text: &str| text.parse::<Window>().unwrap().0;
        let at = SimTime::from_micros;
        assert_eq!(window("10s..12.5s"), at(10_000_000)..=at(12_500_000));
        assert_eq!((window("250ms.."), window("..7us"), window("..")), (at(250_000)..=SimTime::BEYOND, at(0)..=at(7), Window::ALL.0));
    }

    #[test]
    fn a_malformed_window_says_what_would_be_right() {
        let refusal = |text: &str| text.parse::<Window>().unwrap_err();
        assert_eq!(refusal("10s"), "`10s` is no stretch of time; write `10s..12.5s`, or `10s..`");
        assert_eq!(refusal("10..12s"), "`10` is no time; write a number with its unit, `us`, `ms` or `s`, as in `12.5s`");
        assert_eq!(refusal("2s..1s"), "`2s..1s` ends before it begins");
        assert!(refusal("-1s..").starts_with("`-1s` must be from 0 s") && refusal("NaNs..").starts_with("`NaNs` must be"));
    }
}
