//! Quantities as people read them: a fitting unit, four significant digits, thousands set apart.
//!
//! Left out: parsing, and rounding of anything a program reads; documents keep full values in the unit of their definition.

/// How a row of values is printed: one unit and one number of decimals, so that the values can be compared at a glance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale<'a> {
    /// The unit to print.
    pub unit: &'a str,
    factor: f64,
    decimals: usize,
}

impl<'a> Scale<'a> {
    /// The scale on which `reference`, in a unit of the metric registry, has four significant digits.
    pub fn of(unit: &'a str, reference: f64) -> Self {
        let size = reference.abs();
        let (unit, factor) = match unit {
            "us" if size < 1e3 => ("us", 1.0),
            "us" if size < 1e7 => ("ms", 1e-3),
            "us" => ("s", 1e-6),
            "ratio" => ("%", 1e2),
            other => (other, 1.0),
        };
        Self { unit, factor, decimals: decimals(size * factor) }
    }

    /// The value without its unit.
    pub fn print(&self, value: f64) -> String {
        grouped(&format!("{:.*}", self.decimals, value * self.factor))
    }
}

/// Decimals that leave four significant digits, and never more than three.
fn decimals(size: f64) -> usize {
    [1e3, 1e2, 1e1].iter().position(|limit| size >= *limit).unwrap_or(3)
}

/// A value with the unit that suits it, such as `41.23 ms`.
pub fn value(value: f64, unit: &str) -> String {
    let scale = Scale::of(unit, value);
    format!("{} {}", scale.print(value), scale.unit)
}

/// A duration given in nanoseconds.
pub fn nanoseconds(ns: f64) -> String {
    value(ns / 1e3, "us")
}

/// A count with its thousands set apart.
pub fn count(n: u64) -> String {
    grouped(&n.to_string())
}

/// A count and its noun, in the plural where there is not exactly one.
pub fn counted(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A share as a percentage with one decimal; one too small to show is not shown as nothing.
pub fn share(share: f64) -> String {
    if share > 0.0 && share < 0.0005 { "<0.1%".to_owned() } else { format!("{:.1}%", share * 1e2) }
}

/// An amount of memory.
pub fn bytes(n: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, size)| n >= *size) {
        Some((unit, size)) => {
            let amount = n as f64 / *size as f64;
            format!("{} {unit}", grouped(&format!("{:.*}", decimals(amount).min(2), amount)))
        }
        None => format!("{n} B"),
    }
}

/// The beginning of a hash, enough to tell two apart.
pub fn short_hash(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// Sets apart the thousands of a decimal number.
fn grouped(number: &str) -> String {
    let (sign, digits) = number.strip_prefix('-').map_or(("", number), |digits| ("-", digits));
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut out = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_takes_the_unit_that_suits_it() {
        assert_eq!(value(812.0, "us"), "812.0 us");
        assert_eq!(value(41_230.0, "us"), "41.23 ms");
        assert_eq!(value(9_876_543.0, "us"), "9,877 ms");
        assert_eq!(value(12_345_678.0, "us"), "12.35 s");
        assert_eq!(nanoseconds(1_234.0), "1.234 us");
    }

    #[test]
    fn a_row_keeps_the_unit_and_the_decimals_of_its_reference() {
        let scale = Scale::of("us", 41_230.0);
        assert_eq!([1e3, 41_230.0, 2_412_300.0].map(|us| scale.print(us)), ["1.00", "41.23", "2,412.30"]);
    }

    #[test]
    fn thousands_are_set_apart_and_decimals_are_not() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(grouped("-1234.5678"), "-1,234.5678");
    }

    #[test]
    fn a_small_share_is_not_nothing() {
        assert_eq!([0.0, 0.0004, 0.1234, 1.0].map(share), ["0.0%", "<0.1%", "12.3%", "100.0%"]);
        assert_eq!(value(0.4321, "ratio"), "43.21 %");
    }

    #[test]
    fn memory_is_counted_in_powers_of_two() {
        assert_eq!([17, 2_048, 3 << 20, 80 << 30].map(bytes), ["17 B", "2.00 KiB", "3.00 MiB", "80.00 GiB"]);
    }
}
