//! Times on a grid: traces whose clock ticks in seconds put the requests of a tick at one instant, which a server sees as a burst.
//!
//! A trace says so in a note; on demand the requests of an instant are spread evenly until the next one. Requests that follow others or
//! take places of a closed loop have no instants of their own and stay.

use std::ops::Range;

use super::Trace;

/// The share of requests at an instant of others from which a trace seems to be on a grid.
const CROWDED: f64 = 0.5;

/// The finest grid, 1 ms in microseconds: instants are whole microseconds, and those of finer clocks are crowded by chance alone.
const FINEST_GRID_US: u64 = 1_000;

impl Trace {
    /// What to tell of a trace most of whose requests are sent at an instant of others.
    pub fn crowding(&self) -> Option<String> {
        let instants = self.instants();
        let crowded: usize = instants.iter().map(|(_, rows)| rows.len()).filter(|rows| *rows > 1).sum();
        let all: usize = instants.iter().map(|(_, rows)| rows.len()).sum();
        let told = || {
            let grid = grid(&instants)
                .map_or_else(String::new, |step| format!(", and the instants lie on a grid, mostly {} s apart", step as f64 / 1e6));
            format!(
                "{crowded} of {all} requests are sent at an instant of others{grid}: bursts that the recorded clients need not have sent; \
                 `--spread-times` (`spread_times: true`) spreads them until the next instant"
            )
        };
        (instants.len() > 1 && crowded as f64 > CROWDED * all as f64).then(told)
    }

    /// Spreads the requests of each instant evenly until the next, or over the usual step between instants where that is shorter.
    pub fn spread_times(&mut self) {
        let instants = self.instants();
        let Some(step) = median_step(&instants) else { return };
        let free: Vec<usize> = (0..self.rows.len()).filter(|row| self.is_timed(*row)).collect();
        for (index, (at, rows)) in instants.iter().enumerate() {
            let room = instants.get(index + 1).map_or(step, |(next, _)| (next - at).min(step));
            let count = rows.len() as u64;
            for (place, row) in (0u128..).zip(rows.clone()) {
                let later = u128::from(room) * place / u128::from(count);
                self.rows[free[row]].arrival_us = at + u64::try_from(later).expect("a part of the room");
            }
        }
        self.rows.sort_by_key(|row| row.arrival_us);
    }

    fn is_timed(&self, row: usize) -> bool {
        self.rows[row].after.is_none() && self.rows[row].lane.is_none()
    }

    /// The instants at which requests are sent, each with those of the timed requests that are.
    fn instants(&self) -> Vec<(u64, Range<usize>)> {
        let mut instants: Vec<(u64, Range<usize>)> = Vec::new();
        let timed = (0..self.rows.len()).filter(|row| self.is_timed(*row));
        for (index, at) in timed.map(|row| self.rows[row].arrival_us).enumerate() {
            match instants.last_mut() {
                Some((last, rows)) if *last == at => rows.end = index + 1,
                Some(_) | None => instants.push((at, index..index + 1)),
            }
        }
        instants
    }
}

/// The step of the grid on which instants lie: every step is a multiple of it, and most are that step itself.
fn grid(instants: &[(u64, Range<usize>)]) -> Option<u64> {
    let steps = steps(instants);
    let common = steps.iter().copied().fold(0, common_divisor);
    let alike = steps.iter().filter(|step| **step == common).count();
    (common >= FINEST_GRID_US && steps.len() > 1 && 2 * alike > steps.len()).then_some(common)
}

/// The greatest common divisor; of 0 and a number, that number.
fn common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

fn steps(instants: &[(u64, Range<usize>)]) -> Vec<u64> {
    instants.windows(2).map(|pair| pair[1].0 - pair[0].0).collect()
}

/// The step between instants that half of the steps are no longer than.
fn median_step(instants: &[(u64, Range<usize>)]) -> Option<u64> {
    let mut steps = steps(instants);
    steps.sort_unstable();
    steps.get(steps.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Row;

    fn trace(times: &[u64]) -> Trace {
        let row = |(id, at): (u64, &u64)| Row { id, arrival_us: *at, ..Row::default() };
        Trace { rows: (0..).zip(times).map(row).collect(), ..Trace::default() }
    }

    #[test]
    fn requests_of_one_instant_are_spread_until_the_next() {
        let mut ticks = trace(&[0, 0, 0, 3_000_000, 3_000_000, 6_000_000, 60_000_000, 60_000_000]);
        let told = ticks.crowding().unwrap();
        assert!(told.starts_with("7 of 8 requests are sent at an instant of others") && told.contains("mostly 3 s apart"), "{told}");
        ticks.rows[2].lane = Some(0);
        ticks.spread_times();
        let times: Vec<(u64, u64)> = ticks.rows.iter().map(|row| (row.id, row.arrival_us)).collect();
        let expected = [0, 0, 1_500_000, 3_000_000, 4_500_000, 6_000_000, 60_000_000, 61_500_000];
        assert_eq!(times, [0, 2, 1, 3, 4, 5, 6, 7].into_iter().zip(expected).collect::<Vec<_>>());
        assert_eq!(ticks.crowding(), None);
    }

    #[test]
    fn only_steps_that_are_mostly_their_common_divisor_make_a_grid() {
        let told = |instants: &[u64]| trace(&instants.iter().flat_map(|at| [*at, *at]).collect::<Vec<_>>()).crowding().unwrap();
        assert!(told(&[0, 1_000, 2_000, 5_000]).contains(", and the instants lie on a grid, mostly 0.001 s apart: bursts"));
        let irregular =
            [&[0, 3_141_593, 5_000_001, 9_000_000][..], &[0, 2_000_000, 5_000_000, 12_000_000], &[0, 7, 14, 21], &[0, 3_000_000]];
        for instants in irregular {
            let told = told(instants);
            assert!(told.contains("sent at an instant of others: bursts") && !told.contains("grid"), "{instants:?}: {told}");
        }
    }

    #[test]
    fn times_that_are_no_grid_are_left_alone_without_a_word() {
        for times in [&[0, 1, 2, 2, 5][..], &[7, 7, 7], &[]] {
            assert_eq!(trace(times).crowding(), None, "{times:?}");
        }
        let mut lone = trace(&[7, 7]);
        lone.spread_times();
        assert_eq!(lone.rows.iter().map(|row| row.arrival_us).collect::<Vec<_>>(), [7, 7]);
    }
}
