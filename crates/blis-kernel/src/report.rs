//! What prices were made of: one step's lines, and a run's time by primitive and by rank of trust.
//!
//! A run's totals are worked out once, from how often each cell was used; nothing is summed per step that a count can stand for.
//! An entry used at many sizes is judged at the size that took most of its time, attention at its last call.

use blis_contracts::part::Parted;
use blis_contracts::provenance::Method;
use blis_contracts::step::{Launch, StepShape};
use blis_registry::vocabulary::{Input, Subject};

use crate::attention::{Attention, Part, Priced, Tally};
use crate::compiled::{CompiledPlan, Seen, Stage, dispatch_of, gathered_rows};
use crate::inputs::Inputs;
use crate::operation::Operation;
use crate::table::Table;
use crate::term::Term;

/// One line of a price.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceLine {
    /// What is priced.
    pub primitive: Subject,
    /// The kernel as `library/variant`; none for work of the host and for waits on it.
    pub kernel: Option<String>,
    /// Whether it is the accelerator's time; else the host's, which may overlap with it.
    pub on_device: bool,
    /// The entry that priced it.
    pub entry: String,
    /// Entries it displaced.
    pub displaced: Vec<String>,
    /// How the entry's coefficients were obtained.
    pub method: Method,
    /// The rank of trust of this price: lower than the method's where a flag is set.
    pub rank: Method,
    /// Whether the call lies outside the fitted range.
    pub extrapolated: bool,
    /// Whether the entry's data leave the price open.
    pub unidentified: bool,
    /// Calls.
    pub count: u64,
    /// Time of all calls, in nanoseconds.
    pub ns: f64,
}

/// A run's time, by entry and flag.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PriceTotals {
    /// Steps priced.
    pub steps: u64,
    /// One line for each entry and class of work, apart by whether it lay outside its fitted range.
    pub lines: Vec<PriceLine>,
}

impl PriceTotals {
    /// Shares of the accelerator's time by primitive, in the order of the vocabulary; empty where nothing ran.
    pub fn by_primitive(&self) -> Vec<(Subject, f64)> {
        shares(&self.lines, Subject::ALL, |line| line.primitive)
    }

    /// Shares of the accelerator's time by rank of trust, most trusted first; empty where nothing ran.
    pub fn by_rank(&self) -> Vec<(Method, f64)> {
        shares(&self.lines, &Method::ALL, |line| line.rank)
    }

    /// The least trusted rank used; none where nothing ran.
    pub fn least_trusted(&self) -> Option<Method> {
        self.lines.iter().map(|line| line.rank).filter(|rank| *rank != Method::NotCharged).max()
    }
}

fn shares<K: Copy + PartialEq>(lines: &[PriceLine], keys: &[K], key: impl Fn(&PriceLine) -> K) -> Vec<(K, f64)> {
    let on_device = || lines.iter().filter(|line| line.on_device);
    let total: f64 = on_device().map(|line| line.ns).sum();
    let share = |&wanted: &K| {
        let part: f64 = on_device().filter(|line| key(line) == wanted).map(|line| line.ns).sum();
        (part > 0.0).then_some((wanted, part / total))
    };
    keys.iter().filter_map(share).collect()
}

impl CompiledPlan {
    /// One step's price, line by line: each stage's kernels in the plan's order, waits and launch, then the host's work.
    pub fn explain(&self, step: &StepShape) -> Vec<PriceLine> {
        let mut lines = Vec::new();
        for stage in &self.stages {
            self.explain_stage(stage, step, &mut lines);
        }
        for rank in &step.ranks {
            let host = self.host.price(rank);
            lines.push(of_host(&self.host.schedule, host.schedule, 1));
            lines.push(of_host(&self.host.prepare, host.prepare, 1));
            lines.push(of_host(&self.host.update, host.update, 1));
        }
        lines
    }

    fn explain_stage(&self, stage: &Stage, step: &StepShape, lines: &mut Vec<PriceLine>) {
        let gathered = gathered_rows(step);
        for rank in &step.ranks {
            let before = lines.len();
            let parted = Parted::of(rank, stage.dense_prompts);
            let seen = Seen { rank, parted: &parted, gathered };
            for (_, work, part) in stage.works(seen) {
                for (table, rows) in work.tables(part, gathered, stage.sharing) {
                    let run = table.over(rows).filter(|_| rows > 0);
                    lines.extend(run.flat_map(|operation| of_rows(operation, [(rows, 1)])));
                }
                let Attention { decode, prefill, sparse } = &work.attention;
                let prompts = work.attention.prompts(part);
                let decode = decode.iter().map(|class| (&class.operation, class.price(part, &prompts)));
                let prefill = prefill.iter().zip(&prompts).map(|(class, priced)| (&class.operation, *priced));
                let sparse = sparse.iter().map(|class| (&class.operation, class.price(part)));
                for (operation, priced) in decode.chain(prefill).chain(sparse) {
                    lines.extend(priced.map(|priced| of_operation(operation, &priced, 1)));
                }
            }
            let calls = stage.calls(seen);
            let between = self.launches.between(calls);
            lines.extend(self.of_between((u64::from(calls.ordered), between.ordered), (u64::from(calls.dependent), between.dependent)));
            let dispatch = dispatch_of(&self.launches, stage, seen);
            let kernels: f64 = lines.iter().skip(before).map(|line| line.ns / 1e3).sum();
            if dispatch.rest > kernels {
                lines.push(of_wait(self.launch_term(rank.launch), dispatch.rest - kernels, 1));
            }
            lines.push(of_host(self.launch_term(rank.launch), dispatch.first + dispatch.rest, 1));
        }
    }

    /// Lines of the waits before kernels: how many of each kind, and their microseconds.
    fn of_between(&self, ordered: (u64, f64), dependent: (u64, f64)) -> impl Iterator<Item = PriceLine> {
        let kinds = [(&self.launches.node, ordered), (&self.launches.dependent, dependent)];
        kinds.into_iter().filter(|(_, (calls, _))| *calls > 0).map(|(term, (calls, us))| of_wait(term, us, calls))
    }

    /// The time of every step priced so far.
    pub fn totals(&self) -> PriceTotals {
        let mut lines = Vec::new();
        for (_, work) in self.stages.iter().flat_map(|stage| &stage.works) {
            for (_, table) in &work.rows {
                lines.extend(of_table(table));
            }
            let decode = work.attention.decode.iter().map(|class| (&class.operation, &class.tally));
            let prefill = work.attention.prefill.iter().map(|class| (&class.operation, &class.tally));
            let sparse = work.attention.sparse.iter().map(|class| (&class.operation, &class.tally));
            lines.extend(decode.chain(prefill).chain(sparse).flat_map(|(operation, tally)| of_tally(operation, tally)));
        }
        let counts = &self.counts;
        lines.extend(self.of_between(counts.between.ordered, counts.between.dependent));
        for launch in Launch::ALL {
            let (term, launched) = (self.launch_term(launch), &counts.launch[launch as usize]);
            if launched.passes > 0 {
                lines.push(of_host(term, launched.first, launched.passes));
            }
            if launched.starved.0 > 0 {
                lines.push(of_wait(term, launched.starved.1, launched.starved.0));
            }
        }
        if counts.steps > 0 {
            lines.push(of_host(&self.host.schedule, counts.schedule, counts.steps));
            lines.push(of_host(&self.host.prepare, counts.prepare, counts.steps));
            lines.push(of_host(&self.host.update, counts.update, counts.steps));
        }
        PriceTotals { steps: counts.steps, lines }
    }

    /// Time the accelerator waited for launches, over all steps, in nanoseconds.
    pub fn starved_ns(&self) -> f64 {
        self.counts.launch.iter().map(|launched| launched.starved.1).sum::<f64>() * 1e3
    }

    fn launch_term(&self, launch: Launch) -> &Term {
        match launch {
            Launch::Eager => &self.launches.eager,
            Launch::Piecewise => &self.launches.piecewise,
            Launch::Full => &self.launches.full,
        }
    }
}

fn of_table(table: &Table) -> impl Iterator<Item = PriceLine> {
    let ran = |operation: &Operation, rows| rows > 0 && operation.runs_for.contains(rows);
    table.operations().iter().flat_map(move |operation| of_rows(operation, table.uses().filter(move |&(rows, _)| ran(operation, rows))))
}

/// The lines of one class of work over several numbers of rows: within the fitted range, and outside it.
fn of_rows(operation: &Operation, uses: impl IntoIterator<Item = (u32, u64)>) -> impl Iterator<Item = PriceLine> {
    let (mut inside, mut outside) = (Dominant::default(), Dominant::default());
    for (rows, times) in uses {
        let inputs = operation.inputs(f64::from(rows));
        let us = operation.microseconds(f64::from(rows)) * times as f64;
        let side = if operation.term.extrapolates(&inputs) { &mut outside } else { &mut inside };
        side.add(us, times, &inputs);
    }
    let line = |side: Dominant, extrapolated| {
        let priced = Priced { microseconds: side.part.microseconds, extrapolated, inputs: side.part.last };
        (side.part.steps > 0).then(|| of_operation(operation, &priced, side.part.steps))
    };
    [line(inside, false), line(outside, true)].into_iter().flatten()
}

/// A sum that remembers its largest summand.
#[derive(Default)]
struct Dominant {
    part: Part,
    largest: f64,
}

impl Dominant {
    fn add(&mut self, us: f64, times: u64, inputs: &Inputs) {
        self.part.microseconds += us;
        self.part.steps += times;
        if us > self.largest {
            self.largest = us;
            self.part.last = *inputs;
        }
    }
}

fn of_tally(operation: &Operation, tally: &Tally) -> impl Iterator<Item = PriceLine> {
    [(&tally.inside, false), (&tally.outside, true)].into_iter().filter(|(part, _)| part.steps > 0).map(|(part, extrapolated)| {
        let priced = Priced { microseconds: part.microseconds, extrapolated, inputs: part.last };
        of_operation(operation, &priced, part.steps)
    })
}

fn of_operation(operation: &Operation, priced: &Priced, times: u64) -> PriceLine {
    let kernel = format!("{}/{}", operation.kernel.library, operation.kernel.variant);
    let unidentified = operation.term.unidentified(&priced.inputs);
    let line = line(&operation.term, priced.microseconds, u64::from(operation.count) * times);
    PriceLine {
        kernel: Some(kernel),
        on_device: true,
        extrapolated: priced.extrapolated,
        unidentified,
        rank: operation.term.rank(priced.extrapolated, unidentified),
        ..line
    }
}

/// A line of the host: one request, one token and one operation stand for its mix.
fn of_host(term: &Term, us: f64, count: u64) -> PriceLine {
    let one = Inputs::NONE.with(Input::Requests, 1.0).with(Input::Tokens, 1.0).with(Input::Operations, 1.0);
    let unidentified = term.unidentified(&one);
    PriceLine { unidentified, rank: term.rank(false, unidentified), ..line(term, us, count) }
}

/// A line of the accelerator's waits, for launches or between kernels.
fn of_wait(term: &Term, us: f64, count: u64) -> PriceLine {
    PriceLine { on_device: true, ..of_host(term, us, count) }
}

fn line(term: &Term, us: f64, count: u64) -> PriceLine {
    PriceLine {
        primitive: term.subject(),
        kernel: None,
        on_device: false,
        entry: term.entry().to_owned(),
        displaced: term.displaced().to_vec(),
        method: term.method(),
        rank: term.method(),
        extrapolated: false,
        unidentified: false,
        count,
        ns: us * 1e3,
    }
}
