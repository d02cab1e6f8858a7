//! `blis explain`: what stands behind a run before simulated time starts.

use blis_contracts::environment::Environment;
use blis_contracts::step::{StepEstimate, StepShape};
use blis_kernel::PriceLine;
use blis_report::explain::{self, PriceRow};
use blis_report::grid::Grid;
use blis_report::quantity::{bytes, count};
use blis_sim::Prepared;

use super::{Outcome, print};
use crate::data::DataArgs;
use crate::scenario::ScenarioArgs;
use crate::step::StepText;

/// The arguments of `blis explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// A step to price: decoding requests at a context, prompts of a length over a cached context; may be repeated
    #[arg(long = "step", value_name = "decode=N@CONTEXT,prefill=TOKENS@CONTEXT", default_value = "decode=16@1000")]
    steps: Vec<StepText>,
    /// List the kernels that take over at other sizes than those of the steps too
    #[arg(long)]
    alternatives: bool,
    #[command(flatten)]
    data: DataArgs,
}

pub(super) fn run(args: &Args) -> Outcome {
    let loaded = args.scenario.load()?;
    let world = args.data.world()?;
    let mut prepared = blis_sim::prepare(&loaded.scenario, &world).map_err(|error| loaded.run_failure(error))?;
    let steps: Vec<StepShape> = args.steps.iter().map(|step| step.launched(&prepared)).collect();
    let mut sections = vec![
        section("Settings in force", &explain::settings(prepared.settings())),
        section("Read differently from how they are written", &lines(&prepared.notes)),
        section("One forward pass on one rank", &explain::plan(prepared.plan(), &steps, args.alternatives)),
        section("How it is launched", &explain::launch(prepared.plan(), prepared.expert_routing)),
        section("Memory of one rank", &explain::memory(&prepared.memory)),
        section("KV cache", &kv(&prepared)),
    ];
    for step in &args.steps {
        let (rows, first, later) = price(&mut prepared, step);
        let beyond = step.beyond(prepared.engine.scheduler_config()).unwrap_or_default();
        sections.push(section(&format!("A step of {step}"), &(explain::price(&rows, &first, &later) + &beyond)));
    }
    sections.retain(|section| !section.is_empty());
    print(&sections.join("\n"))
}

/// A titled part of the explanation; nothing where there is nothing to say.
fn section(title: &str, body: &str) -> String {
    if body.is_empty() { String::new() } else { format!("{title}\n\n{body}") }
}

fn lines(notes: &[String]) -> String {
    notes.iter().fold(String::new(), |text, note| text + note + "\n")
}

fn kv(prepared: &Prepared) -> String {
    let kv = &prepared.kv;
    let mut grid = Grid::headless(&["", ">"]);
    grid.row(["memory the driver reports", &bytes(kv.device_memory.get())]);
    if let Some(requested) = kv.requested {
        grid.row(["of it, for the engine", &bytes(requested.get())]);
    }
    grid.row(["of it, left for KV", &bytes(kv.available.get())]);
    grid.row(["one block", &bytes(kv.bytes_per_block.get())]);
    grid.row(["blocks, one of them a placeholder", &count(kv.blocks)]);
    grid.row(["tokens", &count(kv.capacity_tokens)]);
    grid.row([format!("requests of {} tokens at once", count(kv.max_model_len.into())), format!("{:.2}", kv.max_concurrency)]);
    grid.print() + &explain::kv_groups(prepared.plan())
}

/// The lines of a step's price, and its times in the first stage and in the later ones.
fn price(prepared: &mut Prepared, step: &StepText) -> (Vec<PriceRow>, StepEstimate, Vec<StepEstimate>) {
    let shape = step.launched(prepared);
    let plan = prepared.engine.plan_id();
    let first = prepared.environment.price(plan, &shape);
    let stages = 1..prepared.plan().layout.pipeline;
    let later = stages.map(|stage| prepared.environment.price(plan, &StepShape { stage, ..shape.clone() })).collect();
    let lines = prepared.environment.plan(plan).explain(&shape);
    (lines.into_iter().map(row).collect(), first, later)
}

/// A line of a price as the table shows it.
pub(super) fn row(line: PriceLine) -> PriceRow {
    PriceRow {
        subject: line.primitive.as_str().to_owned(),
        kernel: line.kernel,
        on_device: line.on_device,
        entry: line.entry,
        method: line.method,
        rank: line.rank,
        extrapolated: line.extrapolated,
        unidentified: line.unidentified,
        calls: line.count,
        ns: line.ns,
    }
}
