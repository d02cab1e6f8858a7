//! Who may look on while an engine runs: the trace writer. A run without one pays a null check per step.

use blis_contracts::engine::Input;
use blis_contracts::request::RequestSlot;
use blis_contracts::units::SimTime;

use crate::sched::batch::Batch;
use crate::sched::scheduler::{Output, Scheduler};

/// Sees each call of the step function, in the order in which things happen. Nothing it does can change the run.
pub trait Recorder: std::fmt::Debug {
    /// The loop read an input from its queue.
    fn input(&mut self, input: &Input);

    /// The step function was called.
    fn called(&mut self, call: u64, now: SimTime);

    /// A batch was formed.
    fn scheduled(&mut self, scheduler: &Scheduler, batch: &Batch);

    /// A batch whose masks had waited for tokens in flight is sampled.
    fn sampled(&mut self, scheduler: &Scheduler, batch: &Batch);

    /// A batch's output was processed.
    fn processed(&mut self, scheduler: &Scheduler, done: Processed<'_>);

    /// In lockstep: the iteration is over.
    fn in_lockstep(&mut self, state: LockstepState);

    /// The step function returned; `queue` holds the calls that formed the batches in flight, oldest first.
    fn returned(&mut self, scheduler: &Scheduler, queue: &mut dyn Iterator<Item = u64>);
}

/// Where a core in lockstep stands after an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockstepState {
    /// Number of the wave.
    pub wave: u64,
    /// Steps of the wave so far.
    pub step: u64,
    /// Whether some core has requests, as far as this one knows.
    pub running: bool,
    /// The iteration ran a step without requests.
    pub ran_dummy: bool,
}

/// A processed batch.
#[derive(Debug, Clone, Copy)]
pub struct Processed<'a> {
    /// The call that had formed it.
    pub call: u64,
    /// When the wait for it ended.
    pub at: SimTime,
    /// Live requests that were aborted between the wait and the processing.
    pub aborted: &'a [RequestSlot],
    /// What the requests gained.
    pub outputs: &'a [Output],
}
