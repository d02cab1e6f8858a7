//! A plan ready for pricing, with its memo and its counts.
//!
//! Pricing a step hashes nothing and, once its cells are filled, allocates nothing. The memo equals direct evaluation bit for bit.
//! Ranks that run in lockstep wait for the slowest.

use blis_contracts::part::{DensePrompts, Part, Parted};
use blis_contracts::plan::RowSet;
use blis_contracts::step::{RankStep, StepEstimate, StepShape};

use crate::attention::Attention;
use crate::calls::Calls;
use crate::host::HostTerms;
use crate::launch::{Between, Dispatch, Launches};
use crate::table::Table;

/// A plan ready for pricing.
#[derive(Debug, Clone, PartialEq)]
pub struct CompiledPlan {
    pub(crate) stages: Vec<Stage>,
    pub(crate) launches: Launches,
    pub(crate) host: HostTerms,
    pub(crate) counts: Counts,
    /// The step last priced, parted: kept for its buffers.
    parted: Parted,
}

/// One pipeline stage's work.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Stage {
    /// Work, by the part of a step that it serves.
    pub(crate) works: Vec<(Part, Work)>,
    /// How steps are parted.
    pub(crate) dense_prompts: Option<DensePrompts>,
    /// Ranks that share the tokens where each takes a part.
    pub(crate) sharing: u32,
}

/// Work over one part of a step, apart by what it reads of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Work {
    /// Work over rows, by which rows.
    pub(crate) rows: Vec<(RowSet, Table)>,
    /// Work over the requests' contexts.
    pub(crate) attention: Attention,
}

/// One rank's part of a step, as work reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) rank: &'a RankStep,
    pub(crate) parted: &'a Parted,
    /// Tokens that all ranks launch.
    pub(crate) gathered: u32,
}

impl Work {
    /// The tables with the rows each of them reads, where all ranks launch `gathered` tokens and `sharing` ranks share each matrix.
    pub(crate) fn tables(&self, part: &RankStep, gathered: u32, sharing: u32) -> impl Iterator<Item = (&Table, u32)> {
        self.rows.iter().map(move |(set, table)| (table, set.rows(part, gathered, sharing)))
    }

    fn calls(&self, part: &RankStep, gathered: u32, sharing: u32) -> Calls {
        self.tables(part, gathered, sharing).map(|(table, rows)| table.calls(rows)).sum::<Calls>() + self.attention.calls(part)
    }

    fn eager_calls(&self, part: &RankStep) -> Calls {
        let around = self.rows.iter().filter(|(set, _)| set.of_one_kind()).map(|(set, table)| table.calls(set.rows(part, 0, 1)));
        around.sum::<Calls>() + self.attention.calls(part)
    }

    /// Microseconds of all of it, by the memo.
    fn price(&mut self, part: &RankStep, gathered: u32, sharing: u32) -> f64 {
        let rows: f64 = self.rows.iter_mut().map(|(set, table)| table.price(set.rows(part, gathered, sharing))).sum();
        rows + self.attention.price(part)
    }

    /// The same without the memo and without counting.
    fn compute(&self, part: &RankStep, gathered: u32, sharing: u32) -> f64 {
        let rows: f64 = self.tables(part, gathered, sharing).map(|(table, rows)| table.compute(rows)).sum();
        // A copy of the attention classes keeps the counts of this plan as they are.
        rows + self.attention.clone().price(part)
    }
}

impl Stage {
    /// Work with the part of a step that it serves, where the step has that part.
    pub(crate) fn works<'a>(&'a self, seen: Seen<'a>) -> impl Iterator<Item = (Part, &'a Work, &'a RankStep)> {
        self.works.iter().filter_map(move |(part, work)| Some((*part, work, seen.parted.get(*part, seen.rank)?)))
    }

    /// Kernel calls of one rank's pass.
    pub(crate) fn calls(&self, seen: Seen<'_>) -> Calls {
        self.works(seen).map(|(_, work, part)| work.calls(part, seen.gathered, self.sharing)).sum()
    }

    /// Calls that are launched one by one where the pieces between attention calls are replayed: attention, and what stands around
    /// it over one kind of requests.
    pub(crate) fn eager_calls(&self, seen: Seen<'_>) -> u32 {
        let calls = |(part, work, step): (Part, &Work, &RankStep)| {
            if part.needs_dense_prompts() { work.calls(step, seen.gathered, self.sharing) } else { work.eager_calls(step) }
        };
        self.works(seen).map(calls).sum::<Calls>().all()
    }

    /// Microseconds of all kernels, by the memo.
    fn price(&mut self, seen: Seen<'_>) -> f64 {
        let (sharing, Seen { rank, parted, gathered }) = (self.sharing, seen);
        let price = |(part, work): &mut (Part, Work)| parted.get(*part, rank).map_or(0.0, |part| work.price(part, gathered, sharing));
        self.works.iter_mut().map(price).sum()
    }
}

/// What a run has used so far, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Counts {
    pub(crate) steps: u64,
    /// The accelerator's time between kernels.
    pub(crate) between: BetweenCounts,
    /// By way to launch.
    pub(crate) launch: [LaunchCounts; 3],
    pub(crate) schedule: f64,
    pub(crate) prepare: f64,
    pub(crate) update: f64,
}

/// Kernel calls so far with the accelerator's time before them, by when each may begin.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct BetweenCounts {
    pub(crate) ordered: (u64, f64),
    pub(crate) dependent: (u64, f64),
}

impl BetweenCounts {
    fn add(&mut self, calls: Calls, between: Between) {
        self.ordered = (self.ordered.0 + u64::from(calls.ordered), self.ordered.1 + between.ordered);
        self.dependent = (self.dependent.0 + u64::from(calls.dependent), self.dependent.1 + between.dependent);
    }
}

/// What passes launched one way have used so far, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct LaunchCounts {
    pub(crate) passes: u64,
    /// Host time before the first kernel.
    pub(crate) first: f64,
    /// Passes in which the accelerator waited for launches, and how long.
    pub(crate) starved: (u64, f64),
}

impl LaunchCounts {
    fn add(&mut self, dispatch: Dispatch, kernels: f64) {
        self.passes += 1;
        self.first += dispatch.first;
        if dispatch.rest > kernels {
            self.starved = (self.starved.0 + 1, self.starved.1 + (dispatch.rest - kernels));
        }
    }
}

impl CompiledPlan {
    pub(crate) fn new(stages: Vec<Stage>, launches: Launches, host: HostTerms) -> Self {
        Self { stages, launches, host, counts: Counts::default(), parted: Parted::default() }
    }

    /// Prices a step, and counts it.
    ///
    /// Panics on a stage the plan does not have, which would be a defect of the engine.
    pub fn price(&mut self, step: &StepShape) -> StepEstimate {
        let stage = &mut self.stages[step.stage as usize];
        let mut worst = StepEstimate::default();
        // A step is one, however many stages it passes through, and the host works on it once.
        let begins = step.stage == 0;
        self.counts.steps += u64::from(begins);
        let gathered = gathered_rows(step);
        for rank in &step.ranks {
            self.parted.part(rank, stage.dense_prompts);
            let seen = Seen { rank, parted: &self.parted, gathered };
            let calls = stage.calls(seen);
            let between = self.launches.between(calls);
            let kernels = stage.price(seen) + between.all();
            self.counts.between.add(calls, between);
            let dispatch = dispatch_of(&self.launches, stage, seen);
            let host = self.host.price(rank);
            self.counts.launch[rank.launch as usize].add(dispatch, kernels);
            if begins {
                self.counts.schedule += host.schedule;
                self.counts.prepare += host.prepare;
                self.counts.update += host.update;
            }
            worst = slower(worst, estimate(kernels, dispatch, host.schedule + host.prepare, host.update));
        }
        worst
    }

    /// The same price without the memo and without counting.
    pub fn price_directly(&self, step: &StepShape) -> StepEstimate {
        let stage = &self.stages[step.stage as usize];
        let mut worst = StepEstimate::default();
        let gathered = gathered_rows(step);
        for rank in &step.ranks {
            let parted = Parted::of(rank, stage.dense_prompts);
            let seen = Seen { rank, parted: &parted, gathered };
            let between = self.launches.between(stage.calls(seen)).all();
            let alike: f64 = stage.works(seen).map(|(_, work, part)| work.compute(part, gathered, stage.sharing)).sum();
            let kernels = alike + between;
            let dispatch = dispatch_of(&self.launches, stage, seen);
            let host = self.host.price(rank);
            worst = slower(worst, estimate(kernels, dispatch, host.schedule + host.prepare, host.update));
        }
        worst
    }

    /// Cells of the memo that hold a price.
    pub fn cells_filled(&self) -> usize {
        self.stages.iter().flat_map(|stage| &stage.works).flat_map(|(_, work)| &work.rows).map(|(_, table)| table.filled()).sum()
    }

    /// Steps priced so far.
    pub fn steps(&self) -> u64 {
        self.counts.steps
    }
}

/// Tokens that all ranks launched together.
pub(crate) fn gathered_rows(step: &StepShape) -> u32 {
    step.ranks.iter().map(|rank| rank.padded_tokens).sum()
}

pub(crate) fn dispatch_of(launches: &Launches, stage: &Stage, seen: Seen<'_>) -> Dispatch {
    let rank = seen.rank;
    launches.dispatch(rank.launch, stage.eager_calls(seen), rank.requests() as f64, rank.tokens() as f64)
}

/// Microseconds in their parts become an estimate in nanoseconds.
fn estimate(kernels: f64, dispatch: Dispatch, before: f64, after: f64) -> StepEstimate {
    StepEstimate {
        before_ns: before * 1e3,
        launch_ns: dispatch.first * 1e3,
        device_ns: kernels.max(dispatch.rest) * 1e3,
        after_ns: after * 1e3,
    }
}

fn slower(a: StepEstimate, b: StepEstimate) -> StepEstimate {
    StepEstimate {
        before_ns: a.before_ns.max(b.before_ns),
        launch_ns: a.launch_ns.max(b.launch_ns),
        device_ns: a.device_ns.max(b.device_ns),
        after_ns: a.after_ns.max(b.after_ns),
    }
}
