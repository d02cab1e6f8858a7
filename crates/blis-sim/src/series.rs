//! A run over its simulated time, in bins whose length doubles as the run goes on.
//!
//! Memory is fixed and nothing is allocated after the start: when the last bin is full, neighbours are merged and every bin is twice as
//! long. Sums are of whole numbers, so that the merging loses nothing.
//!
//! A step through the stages of a pipeline works its accelerators in turn and waits in between; what it works is spread evenly over it,
//! and what lies in a bin beyond the time there is in it moves to the nearest bin with room.

use blis_contracts::engine::{EngineSnapshot, StepTicket};
use blis_contracts::plan::{PoolPlan, PrimitiveShape};
use blis_contracts::series::{Series, StepKind, StepMix};
use blis_contracts::units::{SimDuration, SimTime};
use indexmap::IndexMap;

/// Bins at most; a run ends with more than half of them.
const BINS: usize = 120;
const KINDS: usize = StepKind::ALL.len();

/// Amounts, each multiplied by the microseconds it held within the bin.
#[derive(Debug, Clone, Copy, Default)]
struct Bin {
    waiting: u64,
    running: u64,
    blocks: u64,
    device: [u64; KINDS],
}

impl Bin {
    /// Takes out the accelerator time beyond so much, in equal parts of each kind.
    fn beyond(&mut self, room: u64) -> [u64; KINDS] {
        let whole: u64 = self.device.iter().sum();
        let over = whole.saturating_sub(room);
        let mut left = over;
        std::array::from_fn(|kind| {
            let part = if left > 0 { portion(over, self.device[kind], whole, u128::div_ceil).min(left) } else { 0 };
            left -= part;
            self.device[kind] -= part;
            part
        })
    }
}

/// A step that had not ended when the recorder last looked.
#[derive(Debug, Clone, Copy)]
struct Flight {
    kind: usize,
    start: SimTime,
    end: SimTime,
    /// Accelerator time, averaged over the stages.
    worked: SimDuration,
}

impl Flight {
    /// Microseconds of its accelerator time up to an instant within it.
    fn worked_by(&self, at: u64) -> u64 {
        portion(self.worked.as_micros(), at - self.start.as_micros(), self.end.since(self.start).as_micros(), |part, whole| part / whole)
    }
}

/// Records an engine's state and steps.
#[derive(Debug)]
pub(crate) struct Recorder {
    bins: Vec<Bin>,
    /// The bins are `1 << shift` microseconds long.
    shift: u32,
    since: SimTime,
    now: EngineSnapshot,
    mix: [StepMix; KINDS],
    busy: [u64; KINDS],
    /// Steps that may go on beyond `since`.
    flights: Vec<Flight>,
    /// Accelerator time of all steps launched, as the engine counts it.
    launched: SimDuration,
    /// Streams of steps that the engine runs side by side.
    streams: u32,
    /// Whether a step passes through stages, so that its accelerators do not work for all of it.
    staged: bool,
}

impl Recorder {
    /// One for an engine with this plan.
    pub(crate) fn of(plan: &PoolPlan) -> Self {
        // Cores that share experts step together.
        let together = plan.layers.iter().any(|layer| matches!(layer.shape, PrimitiveShape::Moe { .. }));
        Self::new(if together { 1 } else { plan.layout.data }, plan.layout.pipeline > 1)
    }

    fn new(streams: u32, staged: bool) -> Self {
        Self {
            bins: vec![Bin::default(); BINS],
            shift: 0,
            since: SimTime::ZERO,
            now: EngineSnapshot::default(),
            mix: [StepMix::default(); KINDS],
            busy: [0; KINDS],
            flights: Vec::new(),
            launched: SimDuration::ZERO,
            streams,
            staged,
        }
    }

    /// The engine's state from `now` on.
    #[inline]
    pub(crate) fn observe(&mut self, now: SimTime, snapshot: EngineSnapshot) {
        self.settle(now);
        self.now = snapshot;
    }

    /// The engine's state as observed last.
    pub(crate) fn state(&self) -> EngineSnapshot {
        self.now
    }

    /// Steps the engine launched in one go; they may end later. `launched` is the accelerator time of all launched so far, each core's
    /// averaged over its stages; it is asked for only where the steps' lengths do not tell it.
    #[inline]
    pub(crate) fn steps(&mut self, tickets: &[StepTicket], launched: impl FnOnce() -> SimDuration) {
        if tickets.is_empty() {
            return;
        }
        let length = |ticket: &StepTicket| ticket.end.since(ticket.start).as_micros();
        let lengths: u64 = tickets.iter().map(length).sum();
        let worked = if self.staged {
            let before = std::mem::replace(&mut self.launched, launched());
            (self.launched.as_micros() - before.as_micros()).min(lengths)
        } else {
            lengths
        };
        for ticket in tickets {
            let kind = StepKind::of(ticket) as usize;
            let mix = &mut self.mix[kind];
            mix.steps += 1;
            mix.requests += u64::from(ticket.requests);
            mix.tokens += u64::from(ticket.tokens);
            let worked = SimDuration::from_micros(portion(worked, length(ticket), lengths, |part, whole| part / whole));
            self.flights.push(Flight { kind, start: ticket.start, end: ticket.end, worked });
        }
    }

    /// The record of a run that ends at `end`: of steps in flight, what they have run.
    pub(crate) fn cut(mut self, end: SimTime) -> Self {
        self.settle(end);
        for flight in std::mem::take(&mut self.flights) {
            self.work(flight, end);
        }
        self
    }

    /// Steps by kind; kinds of which there were none are left out.
    pub(crate) fn mix(&self) -> IndexMap<StepKind, StepMix> {
        let seconds = |kind: StepKind| SimDuration::from_micros(self.busy[kind as usize]).as_seconds();
        let with_time = |kind: StepKind| StepMix { device_s: seconds(kind), ..self.mix[kind as usize] };
        StepKind::ALL.into_iter().map(|kind| (kind, with_time(kind))).filter(|(_, mix)| mix.steps > 0).collect()
    }

    /// The series of a run that was cut at its end, on a pool of so many usable blocks.
    pub(crate) fn series(mut self, usable_blocks: u64) -> Series {
        let (width, end_us) = (1_u64 << self.shift, self.since.as_micros());
        let lengths: Vec<u64> =
            (0..BINS as u64).map(|bin| end_us.saturating_sub(bin * width).min(width)).take_while(|length| *length > 0).collect();
        self.level(&lengths);
        let averages = |amount: fn(&Bin, usize) -> u64, kind: usize, whole: u64| -> Vec<f64> {
            let each = self.bins.iter().zip(&lengths);
            each.map(|(bin, length)| rounded(amount(bin, kind) as f64 / (*length as f64 * whole.max(1) as f64))).collect()
        };
        Series {
            bin_s: SimDuration::from_micros(width).as_seconds(),
            waiting: averages(|bin, _| bin.waiting, 0, 1),
            running: averages(|bin, _| bin.running, 0, 1),
            kv_utilisation: averages(|bin, _| bin.blocks, 0, usable_blocks),
            device: self
                .mix()
                .into_keys()
                .map(|kind| (kind, averages(|bin, kind| bin.device[kind], kind as usize, u64::from(self.streams))))
                .collect(),
        }
    }

    /// Moves accelerator time beyond what a bin of its length can hold to those after it, and what these cannot hold back.
    fn level(&mut self, lengths: &[u64]) {
        let mut over = [0; KINDS];
        for bin in (0..lengths.len()).chain((0..lengths.len()).rev()) {
            let device = &mut self.bins[bin].device;
            device.iter_mut().zip(over).for_each(|(time, more)| *time += more);
            over = self.bins[bin].beyond(lengths[bin] * u64::from(self.streams));
        }
    }

    /// Gives the state so far, and steps that have ended, to the bins up to `now`.
    fn settle(&mut self, now: SimTime) {
        while let Some(ended) = self.flights.iter().position(|flight| flight.end <= now) {
            let flight = self.flights.swap_remove(ended);
            self.work(flight, now);
        }
        let state = self.now;
        let (waiting, running, blocks) = (u64::from(state.waiting), u64::from(state.running), state.used_blocks.get());
        self.spread(self.since, now, |bin, from, until| {
            let us = until - from;
            bin.waiting += waiting * us;
            bin.running += running * us;
            bin.blocks += blocks * us;
        });
        self.since = self.since.max(now);
    }

    /// Gives a step's accelerator time up to `until` to the bins.
    fn work(&mut self, flight: Flight, until: SimTime) {
        let until = flight.end.min(until);
        if until <= flight.start {
            return;
        }
        self.busy[flight.kind] += flight.worked_by(until.as_micros());
        self.spread(flight.start, until, |bin, from, until| bin.device[flight.kind] += flight.worked_by(until) - flight.worked_by(from));
    }

    /// Calls `add` for each bin between two instants with the microseconds from and until which they lie in it.
    #[inline]
    fn spread(&mut self, from: SimTime, to: SimTime, mut add: impl FnMut(&mut Bin, u64, u64)) {
        let (mut from, to) = (from.as_micros(), to.as_micros());
        while to >> self.shift >= BINS as u64 {
            self.merge();
        }
        while from < to {
            let bin = from >> self.shift;
            let until = ((bin + 1) << self.shift).min(to);
            #[expect(clippy::cast_possible_truncation, reason = "the bins reach to the later instant")]
            add(&mut self.bins[bin as usize], from, until);
            from = until;
        }
    }

    #[cold]
    fn merge(&mut self) {
        for bin in 0..BINS {
            let pair = self.bins.get(2 * bin..2 * bin + 2).map(|pair| [pair[0], pair[1]]).unwrap_or_default();
            self.bins[bin] = pair.into_iter().fold(Bin::default(), |sum, part| Bin {
                waiting: sum.waiting + part.waiting,
                running: sum.running + part.running,
                blocks: sum.blocks + part.blocks,
                device: std::array::from_fn(|kind| sum.device[kind] + part.device[kind]),
            });
        }
        self.shift += 1;
    }
}

/// An amount times a part of a whole.
fn portion(amount: u64, part: u64, whole: u64, divide: fn(u128, u128) -> u128) -> u64 {
    if part == whole {
        return amount;
    }
    u64::try_from(divide(u128::from(amount) * u128::from(part), u128::from(whole))).expect("a part is no more than its whole")
}

fn rounded(value: f64) -> f64 {
    libm::round(value * 1e4) / 1e4
}

#[cfg(test)]
mod tests {
    use blis_contracts::units::Blocks;
    use proptest::prelude::*;

    use super::*;

    fn snapshot(running: u32) -> EngineSnapshot {
        EngineSnapshot { running, waiting: 2 * running, used_blocks: Blocks::new(u64::from(running)), usable_blocks: Blocks::new(10) }
    }

    fn ticket(start: u64, end: u64, prefill_tokens: u32) -> StepTicket {
        let (start, end) = (SimTime::from_micros(start), SimTime::from_micros(end));
        StepTicket { step: 0, start, end, requests: 2, tokens: 4, prefill_tokens, stream: 0, readers: 1 }
    }

    fn unasked() -> SimDuration {
        panic!("the steps' lengths tell it")
    }

    /// Microseconds of accelerator time in a series, and the largest share of a bin.
    fn device(series: &Series, end_us: u64, width: u64) -> (f64, f64) {
        let shares: Vec<f64> = (0..series.running.len()).map(|bin| series.device.values().map(|kind| kind[bin]).sum()).collect();
        let lengths = (0..).map(|bin| (end_us - bin * width).min(width) as f64);
        (shares.iter().zip(lengths).map(|(share, length)| share * length).sum(), shares.iter().copied().fold(0.0, f64::max))
    }

    #[test]
    fn a_step_in_flight_counts_for_what_it_has_run() {
        let mut recorder = Recorder::new(1, false);
        recorder.steps(&[ticket(10, 5_000, 0)], unasked);
        recorder.observe(SimTime::from_micros(10), snapshot(1));
        let recorder = recorder.cut(SimTime::from_micros(60));
        assert!((recorder.mix()[&StepKind::Decode].device_s - 50e-6).abs() < 1e-12);
        let series = recorder.series(10);
        assert_eq!(series.device[&StepKind::Decode], (0..60).map(|us| if us < 10 { 0.0 } else { 1.0 }).collect::<Vec<f64>>());
    }

    #[test]
    fn a_bin_holds_the_average_of_what_held_within_it() {
        let mut recorder = Recorder::new(1, false);
        recorder.observe(SimTime::from_micros(30), snapshot(4));
        recorder.steps(&[ticket(30, 60, 0), ticket(60, 90, 3)], unasked);
        let recorder = recorder.cut(SimTime::from_micros(60));
        let mix = recorder.mix();
        assert_eq!((mix[&StepKind::Decode].steps, mix[&StepKind::Mixed].tokens, mix.len()), (1, 4, 2));
        let series = recorder.series(10);
        let expected: Vec<f64> = (0..60).map(|us| if us < 30 { 0.0 } else { 4.0 }).collect();
        assert_eq!(series.running, expected);
        assert_eq!((series.kv_utilisation[45], series.waiting[45], series.device[&StepKind::Decode][45]), (0.4, 8.0, 1.0));
        assert!(series.device[&StepKind::Mixed].iter().all(|share| *share < 1e-9), "the second step lies behind the end");
    }

    proptest! {
        #[test]
        fn however_long_a_run_is_its_bins_add_up_to_it(changes in prop::collection::vec((1_u64..100_000_000, 0_u32..50), 1..40)) {
            let (mut recorder, mut now, mut area) = (Recorder::new(1, false), 0, 0);
            for (gap, running) in &changes {
                area += u64::from(recorder.now.running) * gap;
                now += gap;
                recorder.observe(SimTime::from_micros(now), snapshot(*running));
            }
            let width = 1_u64 << recorder.shift;
            prop_assert_eq!(recorder.bins.iter().map(|bin| bin.running).sum::<u64>(), area);
            let series = recorder.cut(SimTime::from_micros(now)).series(10);
            prop_assert_eq!(series.running.len() as u64, now.div_ceil(width));
            prop_assert!(now < BINS as u64 || series.running.len() >= BINS / 2);
        }

        /// Steps pass through stages one after the other, each as soon as the stage is free, and the run ends somewhere.
        #[test]
        fn stages_of_a_pipeline_fill_no_bin_beyond_its_length(
            steps in prop::collection::vec((0_u64..40_000, 0_u32..3, prop::collection::vec(0_u64..20_000, 4)), 1..80),
            part in 0.3_f64..1.2,
        ) {
            let (mut recorder, mut free, mut worked, mut tickets) = (Recorder::new(1, true), [0_u64; 4], 0, Vec::new());
            let mut now = 0;
            for (gap, prefill, stages) in &steps {
                now += gap;
                let start = now.max(free[0]);
                let mut end = start;
                for (free, stage) in free.iter_mut().zip(stages) {
                    end = end.max(*free) + stage;
                    *free = end;
                }
                worked += stages.iter().sum::<u64>() / 4;
                tickets.push((ticket(start, end, 2 * prefill), worked));
            }
            let done = tickets.last().map_or(0, |(last, _)| last.end.as_micros());
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a short run")]
            let end = ((done as f64 * part) as u64).max(1);
            for (ticket, worked) in tickets.iter().filter(|(ticket, _)| ticket.start.as_micros() <= end) {
                recorder.steps(&[*ticket], || SimDuration::from_micros(*worked));
                recorder.observe(ticket.start, snapshot(1));
            }
            let recorder = recorder.cut(SimTime::from_micros(end));
            let (width, counted) = (1 << recorder.shift, recorder.mix().values().map(|mix| mix.device_s * 1e6).sum::<f64>());
            let (time, most) = device(&recorder.series(10), end, width);
            prop_assert!(most <= 1.0002, "{most}");
            prop_assert!((time - counted).abs() <= 1e-4 * end as f64 + 1.0, "{time} of {counted}");
            prop_assert!(end < done || (counted - worked as f64).abs() < 1.0, "{counted} of {worked}");
        }
    }
}
