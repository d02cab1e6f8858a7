//! When an open client starts its sessions: gaps of a renewal process, one process after another, and a rate that changes over time.
//!
//! Each gap is one draw of its own substream. A changing rate stretches time itself: gaps are drawn at the stated rate, and their sum
//! is carried over to the instant at which the changing rate has accumulated as much, so a Poisson process stays one and a burstier
//! process keeps its burstiness at every rate. In phases each phase begins afresh, and a gap that goes over its end is dropped; one that ends with it is not, so that a
//! phase at equal intervals sends its rate times its length. The members
//! of a population that sends at equal intervals take turns, so that the whole of it does.

use blis_contracts::scenario::{Arrival, Client, Profile};
use blis_contracts::units::SimTime;

use crate::random::{Gap, Substream};

/// Instants are whole microseconds: what is closer than half of one, in seconds, is at the same.
const SAME_S: f64 = 5e-7;

/// The start instants of an open client, one after another.
#[derive(Debug, Clone)]
pub(crate) struct OpenArrivals {
    seed: u64,
    /// Names the substreams.
    component: String,
    stages: Vec<Stage>,
    profile: Option<Profile>,
    stage: usize,
    /// When the present stage began, in seconds.
    began_s: f64,
    /// The sum of the stage's gaps so far, in seconds.
    elapsed_s: f64,
    drawn: u64,
}

/// A process and how long it lasts.
#[derive(Debug, Clone)]
struct Stage {
    gap: Option<Gap>,
    duration_s: f64,
    /// By how much the first start comes sooner than a gap after the stage's begin, in seconds.
    early_s: f64,
}

/// The start of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) at: SimTime,
    /// The phase it falls in, where the client has phases.
    pub(crate) phase: Option<u32>,
}

impl OpenArrivals {
    /// The arrivals of one member of a client's population, by its number; `None` for a closed loop. `mean_rounds` are the requests of a
    /// session.
    pub(crate) fn new(spec: &Client, member: u32, component: &str, mean_rounds: f64, seed: u64) -> Option<Self> {
        let scale = mean_rounds * f64::from(spec.members());
        // The share of a gap by which the members behind this one are still to come.
        let behind = f64::from(spec.members() - 1 - member) / f64::from(spec.members());
        let stage = |arrival: Option<&Arrival>, duration_s: f64| {
            let gap = arrival.and_then(|arrival| gap(arrival, scale));
            let early_s = if let Some(Gap::Constant { mean }) = gap { mean * behind } else { 0.0 };
            Stage { gap, duration_s, early_s }
        };
        let stages: Vec<Stage> = match &spec.arrival {
            Arrival::ClosedLoop(_) => return None,
            Arrival::Phases(phases) => phases.phases.iter().map(|phase| stage(phase.arrival.as_ref(), phase.duration_s)).collect(),
            single @ (Arrival::Poisson(_) | Arrival::Constant(_) | Arrival::Gamma(_) | Arrival::Weibull(_)) => {
                vec![stage(Some(single), f64::INFINITY)]
            }
        };
        let (profile, elapsed_s) = (spec.profile.clone(), -stages.first().map_or(0.0, |stage| stage.early_s));
        Some(Self { seed, component: component.to_owned(), stages, profile, stage: 0, began_s: 0.0, elapsed_s, drawn: 0 })
    }

    /// The next start; `None` once there is no other.
    pub(crate) fn next(&mut self) -> Option<Start> {
        loop {
            let stage = self.stages.get(self.stage)?;
            if let Some(gap) = stage.gap {
                self.elapsed_s += gap.draw(|| Substream::new(self.seed, &self.component, "arrival", self.drawn));
                self.drawn += 1;
                if self.elapsed_s <= stage.duration_s + SAME_S {
                    break;
                }
            }
            self.began_s += stage.duration_s;
            self.stage += 1;
            self.elapsed_s = -self.stages.get(self.stage).map_or(0.0, |stage| stage.early_s);
        }
        let base_s = self.began_s + self.elapsed_s;
        let at_s = self.profile.as_ref().map_or(Some(base_s), |profile| stretched(profile, base_s))?;
        let phase = (self.stages.len() > 1).then(|| u32::try_from(self.stage).expect("a document has fewer phases than that"));
        Some(Start { at: SimTime::from_seconds(at_s), phase })
    }
}

/// The gaps of a process with one rate, `scale` times as long as those of single requests.
fn gap(arrival: &Arrival, scale: f64) -> Option<Gap> {
    let mean_s = scale / arrival.rate()?;
    match arrival {
        Arrival::Poisson(_) => Some(Gap::Exponential { mean: mean_s }),
        Arrival::Constant(_) => Some(Gap::Constant { mean: mean_s }),
        Arrival::Gamma(varied) => Some(Gap::gamma(mean_s, varied.cv)),
        Arrival::Weibull(varied) => Some(Gap::weibull(mean_s, varied.cv)),
        Arrival::Phases(_) | Arrival::ClosedLoop(_) => None,
    }
}

/// The instant, in seconds, by which a changing rate has accumulated what the constant one has at `base_s`; `None` if it never does.
fn stretched(profile: &Profile, base_s: f64) -> Option<f64> {
    match profile {
        Profile::Diurnal(diurnal) => {
            let swing = (diurnal.peak_to_trough - 1.0) / (diurnal.peak_to_trough + 1.0);
            let turn = std::f64::consts::TAU / diurnal.period_s;
            let before_peak = libm::sin(turn * diurnal.peak_s);
            let accumulated = |at_s: f64| at_s + swing / turn * (libm::sin(turn * (at_s - diurnal.peak_s)) + before_peak);
            let reach = 2.0 * swing / turn;
            Some(root(|at_s| accumulated(at_s) - base_s, (base_s - reach).max(0.0), base_s + reach))
        }
        Profile::Spike(spike) => {
            let within_s = base_s - spike.start_s;
            let spiked_s = spike.duration_s * spike.factor;
            Some(if within_s <= 0.0 {
                base_s
            } else if within_s <= spiked_s {
                spike.start_s + within_s / spike.factor
            } else {
                spike.start_s + spike.duration_s + (within_s - spiked_s)
            })
        }
        Profile::Drain(drain) => {
            let within_s = base_s - drain.start_s;
            if within_s <= 0.0 {
                return Some(base_s);
            }
            let left = 1.0 - 2.0 * within_s / drain.duration_s;
            (left > 0.0).then(|| drain.start_s + drain.duration_s * (1.0 - libm::sqrt(left)))
        }
    }
}

/// Where a growing function of `low..=high` is zero, by halving until the ends meet.
fn root(function: impl Fn(f64) -> f64, mut low: f64, mut high: f64) -> f64 {
    loop {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            return middle;
        }
        if function(middle) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
}

#[cfg(test)]
mod tests {
    use blis_contracts::scenario::{Diurnal, Drain, Spike};

    use super::*;

    fn at(profile: &Profile, base_s: f64) -> f64 {
        stretched(profile, base_s).unwrap()
    }

    fn close(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
    }

    #[test]
    fn a_spike_packs_its_traffic_into_its_stretch() {
        let spike = Profile::Spike(Spike { start_s: 10.0, duration_s: 5.0, factor: 4.0 });
        for (base, expected) in [(10.0, 10.0), (14.0, 11.0), (30.0, 15.0), (31.0, 16.0)] {
            close(at(&spike, base), expected);
        }
    }

    #[test]
    fn a_drain_sends_half_of_what_its_stretch_would_have_and_then_nothing() {
        let drain = Profile::Drain(Drain { start_s: 10.0, duration_s: 8.0 });
        close(at(&drain, 9.0), 9.0);
        close(at(&drain, 13.0), 14.0);
        assert_eq!(stretched(&drain, 14.0), None);
    }

    #[test]
    fn a_day_has_its_mean_over_whole_periods_and_its_peak_where_it_is_stated() {
        let day = Profile::Diurnal(Diurnal { period_s: 100.0, peak_s: 50.0, peak_to_trough: 3.0 });
        close(at(&day, 100.0), 100.0);
        close(at(&day, 50.0), 50.0);
        let rate = |from: f64| {
            let width = 1e-3;
            let (mut low, mut high) = (from - 1.0, from + 1.0);
            while at(&day, low) < from - width {
                low += width;
            }
            while at(&day, high) > from + width {
                high -= width;
            }
            (high - low) / (2.0 * width)
        };
        assert!((rate(50.0) - 1.5).abs() < 0.6 && (rate(100.0) - 0.5).abs() < 0.6, "{} {}", rate(50.0), rate(100.0));
    }
}
