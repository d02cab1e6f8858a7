//! What stands behind a run as tables: resolved settings, the plan, memory and KV, and one step's price.
//!
//! Left out: how any of it was decided or priced; the rows arrive from the engine and the cost model.

use blis_contracts::environment::MemoryBreakdown;
use blis_contracts::part::{Part, Parted};
use blis_contracts::plan::{KvSpan, LoweredLayer, PoolPlan, PrimitiveShape, RowRange, RowSet};
use blis_contracts::provenance::{Method, ResolvedSetting, SettingSource};
use blis_contracts::scenario::ExpertRouting;
use blis_contracts::step::{StepEstimate, StepShape};
use blis_contracts::units::BytesPerRank;

use crate::grid::Grid;
use crate::quantity::{bytes, count, counted, nanoseconds, share};
use crate::result;

/// The settings in force, each with where it came from; what the user stated comes first.
pub fn settings(settings: &[ResolvedSetting]) -> String {
    let mut grid = Grid::new(&["setting", "value", "source", "because"]);
    let (defaults, stated): (Vec<_>, Vec<_>) = settings.iter().partition(|setting| setting.source == SettingSource::UpstreamDefault);
    for setting in stated.into_iter().chain(defaults) {
        let source = match setting.source {
            SettingSource::Stated => "stated",
            SettingSource::Translated => "translated",
            SettingSource::Recorded => "recorded",
            SettingSource::UpstreamDefault => "default",
            SettingSource::CitedMeasurement => "measurement",
        };
        // Blanks let a long list be broken between its items.
        let value = if setting.value.starts_with('[') { setting.value.replace(',', ", ") } else { setting.value.clone() };
        grid.row([&setting.name, &value, source, setting.rule.as_deref().unwrap_or_default()]);
    }
    grid.wrapped().print()
}

/// What one forward pass runs on a rank: identical work merged, in order of first appearance. Kernels that none of `steps` has the size
/// for are left out and counted; `alternatives` lists them too, each with the sizes it runs for.
pub fn plan(plan: &PoolPlan, steps: &[StepShape], alternatives: bool) -> String {
    let mut headers = vec![">calls", "primitive", "kernel", "shape on one rank", "rows"];
    headers.extend(alternatives.then_some("number of them"));
    let mut grid = Grid::new(&headers);
    let mut left_out = 0;
    for (layer, calls) in merged(&plan.layers) {
        if !alternatives && !steps.iter().any(|step| serves(layer, step, plan)) {
            left_out += 1;
            continue;
        }
        let rows = match layer.rows {
            RowSet::Tokens => "tokens",
            RowSet::Split => "split",
            RowSet::Gathered => "gathered",
            RowSet::Sampled => "sampled",
            RowSet::Requests => "requests",
            RowSet::Decodes => "decodes",
            RowSet::Prefills => "prompts",
            RowSet::Cached => "cached",
        };
        let of_part = match layer.part {
            Part::Whole | Part::Picking | Part::Scored | Part::Readied => "",
            Part::Unreadied | Part::Mixed => " with dense prompts",
            Part::DensePrompts => ", dense",
            Part::BesideDense => " beside dense prompts",
        };
        let kernel = format!("{}/{}", layer.kernel.library, layer.kernel.variant);
        let numbers = alternatives.then(|| numbers(layer.runs_for));
        let cells = [count(calls), layer.primitive.as_str().to_owned(), kernel, shape(&layer.shape), format!("{rows}{of_part}")];
        grid.row(cells.into_iter().chain(numbers));
    }
    let note = match left_out {
        0 => String::new(),
        _ => format!("{} for steps of other sizes left out; `--alternatives` lists them\n", counted(left_out, "kernel")),
    };
    grid.print() + &note
}

/// Whether a kernel is the one for the rows that a step has of its kind, if any.
fn serves(layer: &LoweredLayer, step: &StepShape, plan: &PoolPlan) -> bool {
    let gathered = step.ranks.iter().map(|rank| rank.padded_tokens).sum();
    step.ranks.iter().any(|rank| {
        let parted = Parted::of(rank, plan.dense_prompts);
        let rows = parted.get(layer.part, rank).map(|part| layer.rows.rows(part, gathered, plan.layout.tensor));
        rows.is_some_and(|rows| rows == 0 || layer.runs_for.contains(rows))
    })
}

/// The numbers of rows that a kernel runs for.
fn numbers(range: RowRange) -> String {
    match (range.least, range.most) {
        (0 | 1, u32::MAX) => "any".to_owned(),
        (least, u32::MAX) => format!("{} and more", count(least.into())),
        (0, most) => format!("up to {}", count(most.into())),
        (least, most) => format!("{} to {}", count(least.into()), count(most.into())),
    }
}

/// Graphs, layout and what surrounds the pass, as facts.
pub fn launch(plan: &PoolPlan, expert_routing: Option<ExpertRouting>) -> String {
    let mut grid = Grid::headless(&["", ""]);
    let layout = plan.layout;
    let widths = [("tensor", layout.tensor), ("pipeline", layout.pipeline), ("data", layout.data), ("expert", layout.expert)];
    let wide = widths.iter().filter(|(_, ranks)| *ranks > 1).map(|(name, ranks)| format!("{name} {ranks}")).collect::<Vec<_>>();
    let wide = if wide.is_empty() { "one accelerator".to_owned() } else { wide.join(", ") };
    grid.row(["layout", &wide]);
    for (name, sizes) in [("full graphs", &plan.graphs.full), ("piecewise graphs", &plan.graphs.piecewise)] {
        let sizes = match (sizes.first(), sizes.last()) {
            (Some(first), Some(last)) => format!("{} sizes, {first} to {last} tokens", sizes.len()),
            (None, _) | (_, None) => "none".to_owned(),
        };
        grid.row([name, &sizes]);
    }
    grid.row(["steps in flight", &plan.in_flight.to_string()]);
    grid.row(["stream interval", &plan.front_end.stream_interval.to_string()]);
    if let Some(routing) = expert_routing {
        grid.row(["experts", &result::routing(routing)]);
    }
    grid.wrapped().print()
}

/// Memory of one rank before any KV.
pub fn memory(memory: &MemoryBreakdown) -> String {
    let mut grid = Grid::headless(&["", ">"]);
    for (name, amount) in [
        ("weights", memory.weights),
        ("buffers", memory.buffers),
        ("activations at the profiling step", memory.activations),
        ("captured graphs", memory.graphs),
        ("communicators", memory.communicators),
        ("runtime", memory.runtime),
        ("not explained by any of these", memory.unexplained),
    ] {
        if amount != BytesPerRank::ZERO {
            grid.row([name, &bytes(amount.get())]);
        }
    }
    grid.print()
}

/// The groups of layers that share KV blocks.
pub fn kv_groups(plan: &PoolPlan) -> String {
    let mut grid = Grid::headless(&["", ""]);
    for (index, group) in plan.kv.iter().enumerate() {
        let seen = match group.sees {
            KvSpan::All => "see all tokens".to_owned(),
            KvSpan::Window(tokens) => format!("see a window of {}", count(tokens.into())),
            KvSpan::Chunk(tokens) => format!("see their chunk of {}", count(tokens.into())),
            KvSpan::State => "keep a state".to_owned(),
        };
        let block = format!("{} tokens in {}", group.tokens_per_block.get(), bytes(group.bytes_per_block.get()));
        grid.row([format!("group {index}"), format!("{} that {seen}; a block holds {block}", counted(group.layers.into(), "layer"))]);
    }
    grid.wrapped().print()
}

/// One line of a step's price.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceRow {
    /// What is priced.
    pub subject: String,
    /// The kernel that runs it; none for host work, and for the accelerator's time between kernels.
    pub kernel: Option<String>,
    /// Whether it is the accelerator's time.
    pub on_device: bool,
    /// The registry entry that priced it.
    pub entry: String,
    /// How the entry's coefficients were obtained.
    pub method: Method,
    /// How far this price can be trusted: below the method where a flag is set.
    pub rank: Method,
    /// Whether it lies outside the fitted range.
    pub extrapolated: bool,
    /// Whether the data leave a coefficient open.
    pub unidentified: bool,
    /// Calls.
    pub calls: u64,
    /// Time of all calls, in nanoseconds.
    pub ns: f64,
}

/// One step's price by primitive, kernels first by their order in the plan, then the host; and the times of its parts, the
/// accelerator's for each stage of the pipeline. The host works on a step once.
pub fn price(rows: &[PriceRow], first: &StepEstimate, later: &[StepEstimate]) -> String {
    let mut total = Grid::headless(&["", ">"]);
    total.row(["host before the launch", &nanoseconds(first.before_ns)]);
    total.row(["launch", &nanoseconds(first.launch_ns)]);
    if later.is_empty() {
        total.row(["accelerator", &nanoseconds(first.device_ns)]);
    } else {
        let stages: Vec<f64> = std::iter::once(first).chain(later).map(|stage| stage.device_ns).collect();
        for (stage, &ns) in (1..).zip(&stages) {
            total.row([format!("accelerator of stage {stage}"), nanoseconds(ns)]);
        }
        total.row(["all stages, one after the other", &nanoseconds(stages.iter().sum())]);
    }
    total.row(["host after the step", &nanoseconds(first.after_ns)]);
    lines(rows) + "\n" + &total.print()
}

/// The lines of a price, each of the accelerator's with its share of the accelerator's time.
pub fn lines(rows: &[PriceRow]) -> String {
    let device: f64 = rows.iter().filter(|row| row.on_device).map(|row| row.ns).sum();
    let mut grid = Grid::new(&["primitive", "kernel", ">calls", ">time", ">share", "trust", "entry"]);
    for row in rows {
        let part = if row.on_device && device > 0.0 { share(row.ns / device) } else { String::new() };
        let kernel = row.kernel.as_deref().unwrap_or(if row.on_device { "(between kernels)" } else { "(host)" });
        grid.row([&row.subject, kernel, &count(row.calls), &nanoseconds(row.ns), &part, &trust(row), &row.entry]);
    }
    grid.print()
}

/// The rank of a price, and what lowers its trust: below its entry's own rank, or for inputs that the entry was not fitted to.
fn trust(row: &PriceRow) -> String {
    let flags = [(row.extrapolated, "extrapolated"), (row.unidentified, "interval too wide")];
    let reasons: Vec<&str> = flags.iter().filter(|(set, _)| *set).map(|(_, reason)| *reason).collect();
    let word = |method: Method| method.as_str().replace('_', " ");
    match (reasons.is_empty(), row.rank == row.method) {
        (true, _) => word(row.rank),
        (false, true) => format!("{} ({})", word(row.rank), reasons.join(", ")),
        (false, false) => format!("{} ({}: {})", word(row.rank), word(row.method), reasons.join(", ")),
    }
}

fn merged(layers: &[LoweredLayer]) -> Vec<(&LoweredLayer, u64)> {
    let mut classes: Vec<(&LoweredLayer, u64)> = Vec::new();
    for layer in layers {
        let key = |layer: &LoweredLayer| (layer.primitive, layer.part, layer.rows, layer.stage, layer.runs_for);
        let same = |other: &LoweredLayer| key(other) == key(layer) && other.shape == layer.shape && other.kernel == layer.kernel;
        match classes.iter_mut().find(|(other, _)| same(other)) {
            Some((_, calls)) => *calls += 1,
            None => classes.push((layer, 1)),
        }
    }
    classes
}

fn shape(shape: &PrimitiveShape) -> String {
    match *shape {
        PrimitiveShape::Gemm { columns, depth, format } => {
            format!("{depth} x {columns}, {} x {}", format.activations.as_str(), format.weights.as_str())
        }
        PrimitiveShape::BatchedGemm { batch, columns, depth, format } => {
            format!("{batch} of {depth} x {columns}, {} x {}", format.activations.as_str(), format.weights.as_str())
        }
        PrimitiveShape::Latent { query_heads, kv_heads, key_dim, value_dim, format, .. } => {
            format!("{query_heads}/{kv_heads} heads of {key_dim} and {value_dim}, {}", format.as_str())
        }
        PrimitiveShape::Traffic { bytes: read } => format!("{} a call", bytes(read)),
        PrimitiveShape::Attention { query_heads, kv_heads, head_dim, window, chunk, sinks, kv_format, .. } => {
            let window = match (window, chunk) {
                (0, 0) => String::new(),
                (0, chunk) => format!(", chunks of {chunk}"),
                (window, _) => format!(", window {window}"),
            };
            let sinks = if sinks { ", sinks" } else { "" };
            format!("{query_heads}/{kv_heads} heads of {head_dim}{window}{sinks}, KV {}", kv_format.as_str())
        }
        PrimitiveShape::Gathered { query_heads, head_dim, entry_bytes, window, ratio, top_k, multiplied } => {
            let further = match (ratio, top_k) {
                (0, _) => String::new(),
                (ratio, 0) => format!(" and all of {ratio} tokens each"),
                (ratio, top_k) => format!(" and {top_k} of {ratio} tokens each"),
            };
            format!("{query_heads} heads of {head_dim}, {window} tokens{further}, {entry_bytes} B an entry, in {multiplied}")
        }
        PrimitiveShape::Scores { heads, head_dim, entry_bytes, ratio, top_k, multiplied, .. } => {
            format!(
                "{heads} heads of {head_dim}, best {top_k} of entries of {ratio} tokens each, {entry_bytes} B an entry, in {multiplied}"
            )
        }
        PrimitiveShape::Scan { bytes_per_token, bytes_per_row } => format!("{bytes_per_token} B a token and {bytes_per_row} B a row"),
        PrimitiveShape::Recurrent { heads, state_elements } => format!("{heads} heads with states of {state_elements} elements"),
        PrimitiveShape::Moe { experts, local_experts, top_k, hidden, intermediate, format, .. } => format!(
            "{top_k} of {experts} experts ({local_experts} here), {hidden} x {intermediate}, {} x {}",
            format.activations.as_str(),
            format.weights.as_str()
        ),
        PrimitiveShape::Collective { group, bytes_per_row } => format!("{group} ranks, {} a row", bytes(bytes_per_row)),
        PrimitiveShape::Stream { bytes_per_row } => format!("{} a row", bytes(bytes_per_row)),
        PrimitiveShape::Sampling { vocabulary, .. } => format!("{vocabulary} logits a row"),
    }
}
