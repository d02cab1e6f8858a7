//! The engine cores of an endpoint, and which of them have something to do: those that have not are not gone through.
//!
//! Cores that are due at one instant run in the order of their numbers. What a core says to all reaches those behind it before they go on,
//! and those before it in another round of the same instant.

use blis_contracts::engine::EngineSnapshot;
use blis_contracts::units::{Blocks, SimTime};

use super::Around;
use super::coordinator::StartWave;
use super::core::{Core, CoreInput, Phase};
use super::lockstep;
use super::tournament::Tournament;

/// The cores.
#[derive(Debug)]
pub(super) struct Cores {
    all: Vec<Core>,
    due: Tournament<Due>,
    /// What all of them show together.
    shown: EngineSnapshot,
    /// In lockstep: cores that wait for the others to launch, and to say whether they have requests left.
    at_launch: usize,
    at_agreement: usize,
    /// In lockstep: when the accelerators have done all that was launched.
    device_free: SimTime,
}

/// When a core goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// As soon as it is looked at: it rests, and has something to read.
    AtOnce,
    /// By itself, at that instant.
    At(SimTime),
    /// Once something comes, or others have come to where it is.
    Told,
}

impl Due {
    /// What is kept of a core between instants.
    fn of(core: &Core) -> Self {
        match core.phase.until() {
            Some(until) => Self::At(until),
            None if core.phase == Phase::Idle && !core.inputs.is_empty() => Self::AtOnce,
            None => Self::Told,
        }
    }
}

impl Cores {
    /// Cores that rest.
    pub(super) fn new(all: Vec<Core>) -> Self {
        let due = Tournament::new(vec![Due::Told; all.len()]);
        let shown = together(&all);
        Self { all, due, shown, at_launch: 0, at_agreement: 0, device_free: SimTime::ZERO }
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Core> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Core> {
        self.all.iter_mut()
    }

    /// In lockstep: when the accelerators have done all that was launched.
    pub(super) const fn device_free(&self) -> SimTime {
        self.device_free
    }

    pub(super) const fn snapshot(&self) -> EngineSnapshot {
        self.shown
    }

    /// Puts an input into a core's queue.
    pub(super) fn tell(&mut self, index: usize, at: SimTime, input: CoreInput) {
        let core = &mut self.all[index];
        core.inputs.push_back((at, input));
        if core.phase == Phase::Idle {
            self.due.set(index, Due::AtOnce);
        }
    }

    /// Hands messages of the coordinator to all cores; answers whether there were any.
    pub(super) fn tell_all(&mut self, at: SimTime, messages: &[StartWave]) -> bool {
        for message in messages {
            (0..self.all.len()).for_each(|index| self.tell(index, at, CoreInput::StartWave(*message)));
        }
        !messages.is_empty()
    }

    /// Lets every core do what is due; answers whether cores that met, or were told something, have more to do now.
    pub(super) fn run(&mut self, now: SimTime, around: &mut Around<'_>) -> bool {
        let mut told = false;
        let mut next = 0;
        while let Some(index) = self.due.first_at_most(next, Due::At(now)) {
            self.run_one(index, now, around);
            let mail = around.take_mail();
            told |= self.tell_all(now, &mail);
            next = index + 1;
        }
        let met = self.meet(around);
        let mail = around.take_mail();
        told |= self.tell_all(now, &mail);
        met || told
    }

    /// When the first of the cores goes on by itself.
    pub(super) fn wake(&self) -> Option<SimTime> {
        match self.due.least() {
            Due::At(time) => Some(time),
            Due::Told => None,
            Due::AtOnce => unreachable!("a core that has something to read has been run"),
        }
    }

    fn run_one(&mut self, index: usize, now: SimTime, around: &mut Around<'_>) {
        let core = &mut self.all[index];
        remove(&mut self.shown, core);
        let wake = core.run(now, around);
        add(&mut self.shown, core);
        self.at_launch += usize::from(core.phase == Phase::Launching);
        self.at_agreement += usize::from(core.phase == Phase::Agreeing);
        self.due.set(index, wake.map_or(Due::Told, Due::At));
    }

    /// Lets cores that have all come to the same point go on; answers whether they have.
    fn meet(&mut self, around: &mut Around<'_>) -> bool {
        let cores = self.all.len();
        if self.at_launch == cores {
            self.at_launch = 0;
            lockstep::launch(&mut self.all, &mut self.device_free, around);
        } else if self.at_agreement == cores {
            self.at_agreement = 0;
            lockstep::agree(&mut self.all, around);
        } else {
            return false;
        }
        // They stand where time goes on, each at its own.
        self.due.replace(std::iter::repeat_n(Due::AtOnce, cores));
        true
    }

    /// Panics where what is kept of the cores is not what they say.
    pub(super) fn check_invariants(&self) {
        self.all.iter().for_each(Core::check_invariants);
        assert_eq!(together(&self.all), self.shown, "what the cores show together");
        let at = |phase| self.all.iter().filter(|core| core.phase == phase).count();
        assert_eq!((at(Phase::Launching), at(Phase::Agreeing)), (self.at_launch, self.at_agreement), "cores that wait for the others");
        assert!(self.none_is_forgotten(), "when the cores go on");
    }

    /// Whether every core goes on when it says itself that it does.
    fn none_is_forgotten(&self) -> bool {
        self.all.iter().map(Due::of).eq(self.due.values().iter().copied())
    }
}

/// What a core shows of itself: running and waiting requests, blocks in use and blocks there are.
fn load(core: &Core) -> (u32, u32, Blocks, Blocks) {
    let count = |requests: usize| u32::try_from(requests).expect("fewer than 2^32 requests live");
    let scheduler = &core.scheduler;
    let pool = scheduler.kv().pool();
    let blocks = |number: u32| Blocks::new(u64::from(number));
    (
        count(scheduler.running().len()),
        count(scheduler.waiting_count()),
        blocks(pool.usable_blocks() - pool.free_blocks()),
        blocks(pool.usable_blocks()),
    )
}

fn together(cores: &[Core]) -> EngineSnapshot {
    let mut shown = EngineSnapshot::default();
    for core in cores {
        add(&mut shown, core);
    }
    shown
}

fn add(shown: &mut EngineSnapshot, core: &Core) {
    let (running, waiting, used, usable) = load(core);
    shown.running += running;
    shown.waiting += waiting;
    shown.used_blocks += used;
    shown.usable_blocks += usable;
}

fn remove(shown: &mut EngineSnapshot, core: &Core) {
    let (running, waiting, used, usable) = load(core);
    shown.running -= running;
    shown.waiting -= waiting;
    shown.used_blocks -= used;
    shown.usable_blocks -= usable;
}

#[cfg(test)]
mod tests {
    use blis_contracts::engine::Input;
    use blis_contracts::request::RequestSlot;

    use super::*;
    use crate::engine::tests::engine;

    /// Of a core at rest that has something to read or nothing, and of which `due` is kept.
    fn none_is_forgotten(told: bool, due: Due) -> bool {
        let mut cores = engine(1).cores;
        if told {
            cores.tell(0, SimTime::ZERO, CoreInput::Client(Input::Abort(RequestSlot(0)), 0));
        }
        cores.due.set(0, due);
        cores.none_is_forgotten()
    }

    #[test]
    fn a_core_at_rest_goes_on_once_it_has_something_to_read_and_not_by_itself() {
        let kept = [Due::AtOnce, Due::At(SimTime::ZERO), Due::Told];
        assert_eq!(kept.map(|due| none_is_forgotten(true, due)), [true, false, false]);
        assert_eq!(kept.map(|due| none_is_forgotten(false, due)), [false, false, true]);
    }
}
