//! What two block lengths have in common: names of contents divide every group's blocks, and hits end where all of them do.

/// The greatest number that divides both.
pub(crate) const fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    divisor
}

/// The least number that both divide.
pub(crate) const fn least_common_multiple(a: u32, b: u32) -> u32 {
    a / greatest_common_divisor(a, b) * b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_two_lengths_meet_at_their_least_common_multiple() {
        assert_eq!((greatest_common_divisor(48, 64), least_common_multiple(48, 64)), (16, 192));
        assert_eq!((greatest_common_divisor(1, 16), least_common_multiple(1, 16)), (1, 16));
    }
}
