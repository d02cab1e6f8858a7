//! What prices were made of: one step's lines, and a run's time by primitive and by rank of trust.
//!
//! A run's totals are worked out once, from how often each cell was used; nothing is summed per step that a count can stand for.

use blis_contracts::provenance::Method;
use blis_contracts::step::{Launch, StepShape};
use blis_registry::vocabulary::Subject;

use crate::compiled::{CompiledPlan, dispatch_of};
use crate::operation::Operation;
use crate::term::Term;

/// One line of a price.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceLine {
    /// What is priced.
    pub primitive: Subject,
    /// The kernel as `library/variant`; none for host work.
    pub kernel: Option<String>,
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
    /// Whether the entry's data leave a coefficient open.
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
    /// One line for each entry used, apart by whether it was used outside its fitted range.
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
    let on_device = || lines.iter().filter(|line| line.kernel.is_some());
    let total: f64 = on_device().map(|line| line.ns).sum();
    let share = |&wanted: &K| {
        let part: f64 = on_device().filter(|line| key(line) == wanted).map(|line| line.ns).sum();
        (part > 0.0).then_some((wanted, part / total))
    };
    keys.iter().filter_map(share).collect()
}

impl CompiledPlan {
    /// One step's price, line by line: kernels in the plan's order, then launch and host.
    pub fn explain(&self, step: &StepShape) -> Vec<PriceLine> {
        let stage = &self.stages[step.stage as usize];
        let mut lines = Vec::new();
        for rank in &step.ranks {
            for (table, rows) in [(&stage.tokens, rank.padded_tokens), (&stage.sampled, rank.sampled)] {
                lines.extend(table.over(rows).filter(|_| rows > 0).map(|operation| over_rows(operation, rows, 1)));
            }
            for class in &stage.attention.decode {
                if let Some((us, inputs)) = class.microseconds(rank) {
                    let extrapolated = class.operation.term.extrapolates(&inputs);
                    lines.push(of_operation(&class.operation, us, extrapolated, 1));
                }
            }
            for class in &stage.attention.prefill {
                if let Some((us, extrapolated)) = class.microseconds(rank) {
                    lines.push(of_operation(&class.operation, us, extrapolated, 1));
                }
            }
            let dispatch = dispatch_of(&self.launches, &stage.attention, rank);
            lines.push(of_host(self.launch_term(rank.launch), dispatch.first + dispatch.rest, 1));
            let host = self.host.price(rank);
            lines.push(of_host(&self.host.schedule, host.schedule, 1));
            lines.push(of_host(&self.host.prepare, host.prepare, 1));
            lines.push(of_host(&self.host.update, host.update, 1));
        }
        lines
    }

    /// The time of every step priced so far.
    pub fn totals(&self) -> PriceTotals {
        let mut totals = PriceTotals { steps: self.counts.steps, lines: Vec::new() };
        for stage in &self.stages {
            for table in [&stage.tokens, &stage.sampled] {
                for (rows, uses) in table.uses().filter(|&(rows, _)| rows > 0) {
                    table.over(rows).for_each(|operation| totals.add(over_rows(operation, rows, uses)));
                }
            }
            let decode = stage.attention.decode.iter().map(|class| (&class.operation, class.tally));
            let prefill = stage.attention.prefill.iter().map(|class| (&class.operation, class.tally));
            for (operation, tally) in decode.chain(prefill) {
                for (us, extrapolated) in [(tally.inside, false), (tally.outside, true)] {
                    if us > 0.0 {
                        totals.add(of_operation(operation, us, extrapolated, 1));
                    }
                }
            }
        }
        for launch in Launch::ALL {
            totals.add(of_host(self.launch_term(launch), self.counts.launch[launch as usize], self.counts.steps));
        }
        totals.add(of_host(&self.host.schedule, self.counts.schedule, self.counts.steps));
        totals.add(of_host(&self.host.prepare, self.counts.prepare, self.counts.steps));
        totals.add(of_host(&self.host.update, self.counts.update, self.counts.steps));
        totals
    }

    /// Time the accelerator waited for launches, over all steps, in nanoseconds.
    pub fn starved_ns(&self) -> f64 {
        self.counts.starved * 1e3
    }

    fn launch_term(&self, launch: Launch) -> &Term {
        match launch {
            Launch::Eager => &self.launches.eager,
            Launch::Piecewise => &self.launches.piecewise,
            Launch::Full => &self.launches.full,
        }
    }
}

impl PriceTotals {
    fn add(&mut self, line: PriceLine) {
        let same = |other: &&mut PriceLine| {
            other.primitive == line.primitive
                && other.entry == line.entry
                && other.kernel == line.kernel
                && other.extrapolated == line.extrapolated
        };
        match self.lines.iter_mut().find(same) {
            Some(other) => {
                other.ns += line.ns;
                other.count += line.count;
            }
            None => self.lines.push(line),
        }
    }
}

fn over_rows(operation: &Operation, rows: u32, uses: u64) -> PriceLine {
    let rows = f64::from(rows);
    let extrapolated = operation.term.extrapolates(&operation.inputs(rows));
    let mut line = of_operation(operation, operation.microseconds(rows) * uses as f64, extrapolated, uses);
    line.count = u64::from(operation.count) * uses;
    line
}

fn of_operation(operation: &Operation, us: f64, extrapolated: bool, uses: u64) -> PriceLine {
    let kernel = format!("{}/{}", operation.kernel.library, operation.kernel.variant);
    line(&operation.term, Some(kernel), us, extrapolated, u64::from(operation.count) * uses)
}

fn of_host(term: &Term, us: f64, count: u64) -> PriceLine {
    line(term, None, us, false, count)
}

fn line(term: &Term, kernel: Option<String>, us: f64, extrapolated: bool, count: u64) -> PriceLine {
    PriceLine {
        primitive: term.subject,
        kernel,
        entry: term.entry.clone(),
        displaced: term.displaced.clone(),
        method: term.method,
        rank: term.effective(extrapolated),
        extrapolated,
        unidentified: term.unidentified,
        count,
        ns: us * 1e3,
    }
}
