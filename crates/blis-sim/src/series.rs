//! A run over its simulated time, in bins whose length doubles as the run goes on.
//!
//! Memory is fixed and nothing is allocated after the start: when the last bin is full, neighbours are merged and every bin is twice as
//! long. Sums are of whole numbers, so that the merging loses nothing.

use blis_contracts::engine::{EngineSnapshot, StepTicket};
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

/// Records an engine's state and steps.
#[derive(Debug)]
pub(crate) struct Recorder {
    bins: Vec<Bin>,
    /// The bins are `1 << shift` microseconds long.
    shift: u32,
    since: SimTime,
    now: EngineSnapshot,
    mix: [StepMix; KINDS],
    busy: [SimDuration; KINDS],
    /// Streams of steps that the engine runs side by side.
    streams: u32,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            bins: vec![Bin::default(); BINS],
            shift: 0,
            since: SimTime::ZERO,
            now: EngineSnapshot::default(),
            mix: [StepMix::default(); KINDS],
            busy: [SimDuration::ZERO; KINDS],
            streams: 1,
        }
    }
}

impl Recorder {
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

    /// A step the engine launched; it may end after `now`.
    #[inline]
    pub(crate) fn step(&mut self, ticket: &StepTicket) {
        let kind = StepKind::of(ticket) as usize;
        self.streams = self.streams.max(ticket.stream + 1);
        let mix = &mut self.mix[kind];
        mix.steps += 1;
        mix.requests += u64::from(ticket.requests);
        mix.tokens += u64::from(ticket.tokens);
        self.busy[kind] += ticket.end.since(ticket.start);
        self.spread(ticket.start, ticket.end, |bin, us| bin.device[kind] += us);
    }

    /// Steps by kind; kinds of which there were none are left out.
    pub(crate) fn mix(&self) -> IndexMap<StepKind, StepMix> {
        let with_time = |kind: StepKind| StepMix { device_s: self.busy[kind as usize].as_seconds(), ..self.mix[kind as usize] };
        StepKind::ALL.into_iter().map(|kind| (kind, with_time(kind))).filter(|(_, mix)| mix.steps > 0).collect()
    }

    /// The series of a run that ends at `end`, on a pool of so many usable blocks.
    pub(crate) fn series(mut self, end: SimTime, usable_blocks: u64) -> Series {
        self.settle(end);
        let (width, end_us) = (1_u64 << self.shift, end.as_micros());
        let lengths: Vec<u64> =
            (0..BINS as u64).map(|bin| end_us.saturating_sub(bin * width).min(width)).take_while(|length| *length > 0).collect();
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

    /// Gives the state so far to the bins up to `now`.
    fn settle(&mut self, now: SimTime) {
        let state = self.now;
        let (waiting, running, blocks) = (u64::from(state.waiting), u64::from(state.running), state.used_blocks.get());
        self.spread(self.since, now, |bin, us| {
            bin.waiting += waiting * us;
            bin.running += running * us;
            bin.blocks += blocks * us;
        });
        self.since = self.since.max(now);
    }

    /// Calls `add` for each bin between two instants with the microseconds that lie in it.
    #[inline]
    fn spread(&mut self, from: SimTime, to: SimTime, mut add: impl FnMut(&mut Bin, u64)) {
        let (mut from, to) = (from.as_micros(), to.as_micros());
        while to >> self.shift >= BINS as u64 {
            self.merge();
        }
        while from < to {
            let bin = from >> self.shift;
            let until = ((bin + 1) << self.shift).min(to);
            #[expect(clippy::cast_possible_truncation, reason = "the bins reach to the later instant")]
            add(&mut self.bins[bin as usize], until - from);
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

    #[test]
    fn a_bin_holds_the_average_of_what_held_within_it() {
        let mut recorder = Recorder::default();
        recorder.observe(SimTime::from_micros(30), snapshot(4));
        recorder.step(&ticket(30, 60, 0));
        recorder.step(&ticket(60, 90, 3));
        let mix = recorder.mix();
        assert_eq!((mix[&StepKind::Decode].steps, mix[&StepKind::Mixed].tokens, mix.len()), (1, 4, 2));
        let series = recorder.series(SimTime::from_micros(60), 10);
        let expected: Vec<f64> = (0..60).map(|us| if us < 30 { 0.0 } else { 4.0 }).collect();
        assert_eq!(series.running, expected);
        assert_eq!((series.kv_utilisation[45], series.waiting[45], series.device[&StepKind::Decode][45]), (0.4, 8.0, 1.0));
        assert!(series.device[&StepKind::Mixed].iter().all(|share| *share < 1e-9), "the second step lies behind the end");
    }

    proptest! {
        #[test]
        fn however_long_a_run_is_its_bins_add_up_to_it(changes in prop::collection::vec((1_u64..100_000_000, 0_u32..50), 1..40)) {
            let (mut recorder, mut now, mut area) = (Recorder::default(), 0, 0);
            for (gap, running) in &changes {
                area += u64::from(recorder.now.running) * gap;
                now += gap;
                recorder.observe(SimTime::from_micros(now), snapshot(*running));
            }
            let width = 1_u64 << recorder.shift;
            prop_assert_eq!(recorder.bins.iter().map(|bin| bin.running).sum::<u64>(), area);
            let series = recorder.series(SimTime::from_micros(now), 10);
            prop_assert_eq!(series.running.len() as u64, now.div_ceil(width));
            prop_assert!(now < BINS as u64 || series.running.len() >= BINS / 2);
        }
    }
}
