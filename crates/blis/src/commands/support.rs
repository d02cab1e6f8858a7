//! `blis support`: which models run on which chips, by which kernels, and how far the prices can be trusted; `blis onboard` answers the
//! same for a checkpoint of the user's own.

use std::path::PathBuf;

use blis_catalog::derive_directory;
use blis_kernel::PriceLine;
use blis_report::explain;
use blis_report::grid::Grid;
use blis_report::quantity::{count, share};
use blis_sim::{Flags, Question, Supported, Unsupported, World, WrongFlag, support};

use super::explain::row;
use super::{Outcome, print};
use crate::data::{DataArgs, catalog_failure, world_failure};
use crate::failure::Failure;

/// What the cells of the matrix mean.
const LEGEND: &str = "\
A cell has the smallest tensor-parallel width at which `vllm serve CHECKPOINT` starts on one node (or on --nodes), and the share of the
accelerator's time in two reference steps that is priced by coefficients `transferred` or better, within the range they were fitted in.
A dash: it does not start there. `blis support MODEL CHIP` says why, and lists kernels and coefficients.
";

/// The arguments of `blis support`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A model, by catalog name or checkpoint; all where left out
    model: Option<String>,
    /// A chip, by catalog name; all where left out
    chip: Option<String>,
    #[command(flatten)]
    deployment: Deployment,
    #[command(flatten)]
    data: DataArgs,
}

/// The arguments of `blis onboard`.
#[derive(Debug, clap::Args)]
pub(crate) struct OnboardArgs {
    /// A checkpoint's folder, with its `config.json`
    dir: PathBuf,
    /// A chip, by catalog name; all where left out
    chip: Option<String>,
    #[command(flatten)]
    deployment: Deployment,
    #[command(flatten)]
    data: DataArgs,
}

/// How the model would be deployed.
#[derive(Debug, clap::Args)]
struct Deployment {
    /// Look at this tensor-parallel width only
    #[arg(long, visible_alias = "tensor-parallel-size", value_name = "RANKS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    tp: Option<u32>,
    /// What else the launch line states, as in `--flags "--kv-cache-dtype fp8"`
    #[arg(long, value_name = "FLAGS", default_value = "", allow_hyphen_values = true)]
    flags: String,
    /// Nodes there are; a width beyond one is spread over as many as it takes
    #[arg(long, value_name = "NODES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    nodes: u32,
    /// The network between them, by catalog name, for nodes that no domain of links joins
    #[arg(long, value_name = "NAME", requires = "nodes")]
    fabric: Option<String>,
}

impl Deployment {
    /// The flags, where they can be right for some model and chip.
    fn read_flags(&self) -> Result<Flags, Failure> {
        Flags::read(&self.flags).map_err(|wrong| Failure::Several(wrong.into_iter().map(|wrong| wrong_flags(&told(wrong))).collect()))
    }
}

fn told(wrong: WrongFlag) -> String {
    match wrong {
        WrongFlag::Line(error) => error,
        WrongFlag::Width(width) => format!("states --tensor-parallel-size {width}; leave it out there, and ask about that width (--tp)"),
    }
}

fn wrong_flags(error: &str) -> Failure {
    Failure::input(format!("--flags: {error}"), None)
}

pub(super) fn run(args: &Args) -> Outcome {
    let world = args.data.world()?;
    let models: Vec<String> = match &args.model {
        Some(model) => vec![world.catalog.model(model).map_err(catalog_failure)?.name],
        None => world.catalog.models().map(str::to_owned).collect(),
    };
    answer(&world, &models, args.chip.as_deref(), &args.deployment)
}

pub(super) fn onboard(args: &OnboardArgs) -> Outcome {
    let graph = derive_directory(&args.dir, None).map_err(|error| Failure::input(error.to_string(), None))?;
    let world = args.data.world()?.with_model(&graph).map_err(world_failure)?;
    answer(&world, &[graph.name], args.chip.as_deref(), &args.deployment)
}

fn answer(world: &World, models: &[String], chip: Option<&str>, deployment: &Deployment) -> Outcome {
    let flags = deployment.read_flags()?;
    if let Some(fabric) = &deployment.fabric {
        world.catalog.network(fabric).map_err(catalog_failure)?;
    }
    match (models, chip) {
        ([model], Some(chip)) => one(world, model, chip, (deployment, &flags)),
        (models, chip) => {
            let chips: Vec<&str> = chip.map_or_else(|| world.catalog.chips().collect(), |chip| vec![chip]);
            matrix(world, models, &chips, (deployment, &flags))
        }
    }
}

/// The widths to look at on a chip: what the user says, or the powers of two on the nodes there are.
fn widths(world: &World, chip: &str, deployment: &Deployment) -> Result<Vec<u32>, Failure> {
    let all = world.catalog.chip(chip).map_err(catalog_failure)?.gpus_per_node.value * deployment.nodes;
    Ok(match deployment.tp {
        Some(width) => vec![width],
        None => std::iter::successors(Some(1_u32), |width| Some(width * 2)).take_while(|width| *width <= all).collect(),
    })
}

fn question<'a>(model: &'a str, chip: &'a str, tensor: u32, (deployment, flags): (&'a Deployment, &'a Flags)) -> Question<'a> {
    Question { model, chip, tensor, flags, nodes: deployment.nodes, fabric: deployment.fabric.as_deref() }
}

/// The answer, or why the deployment does not start; an error where the flags are wrong, whatever is asked about.
fn ask(question: Question<'_>, world: &World) -> Result<Result<Supported, String>, Failure> {
    match support(question, world) {
        Ok(answer) => Ok(Ok(answer)),
        Err(Unsupported::Deployment(reason)) => Ok(Err(reason)),
        Err(Unsupported::Flags(error)) => Err(wrong_flags(&error)),
    }
}

fn matrix(world: &World, models: &[String], chips: &[&str], asked: (&Deployment, &Flags)) -> Outcome {
    let heads: Vec<&str> = std::iter::once("model").chain(chips.iter().copied()).collect();
    let mut grid = Grid::new(&heads);
    for model in models {
        let mut row = vec![model.clone()];
        for chip in chips {
            let mut cell = "-".to_owned();
            for tensor in widths(world, chip, asked.0)? {
                if let Ok(answer) = ask(question(model, chip, tensor, asked), world)? {
                    cell = format!("tp{tensor} {}", share(answer.trusted()));
                    break;
                }
            }
            row.push(cell);
        }
        grid.row(row);
    }
    print(&format!("{}\n{LEGEND}", grid.print()))
}

fn one(world: &World, model: &str, chip: &str, asked: (&Deployment, &Flags)) -> Outcome {
    let mut widths_grid = Grid::new(&["layout", ">KV tokens", ">longest requests", ">trusted", "why not"]);
    let mut first = None;
    for tensor in widths(world, chip, asked.0)? {
        let layout = format!("tp{tensor}");
        match ask(question(model, chip, tensor, asked), world)? {
            Ok(answer) => {
                let requests = format!("{:.2}", answer.longest_requests);
                widths_grid.row([&layout, &count(answer.kv_tokens), &requests, &share(answer.trusted()), ""]);
                first.get_or_insert((layout, answer));
            }
            Err(reason) => widths_grid.row([&layout, "-", "-", "-", &reason]),
        }
    }
    let mut sections = vec![format!("{model} on {chip}\n"), widths_grid.wrapped().print()];
    if let Some((layout, answer)) = first {
        sections.extend(steps(&layout, &answer));
    }
    print(&sections.join("\n"))
}

/// The reference steps of one layout, and the work whose coefficients are the least trusted.
fn steps(layout: &str, answer: &Supported) -> [String; 3] {
    let table = |title: &str, lines: &[PriceLine]| {
        let rows: Vec<_> = lines.iter().filter(|line| line.on_device).cloned().map(row).collect();
        format!("{title} at {layout}\n\n{}", explain::lines(&rows))
    };
    let missing = answer.decode.iter().chain(&answer.prefill).filter(|line| line.on_device && (line.extrapolated || line.unidentified));
    let mut grid = Grid::new(&["entry used outside its range or with an open interval", "kernel"]);
    let mut seen: Vec<(&str, Option<&str>)> = missing.map(|line| (line.entry.as_str(), line.kernel.as_deref())).collect();
    seen.sort_unstable();
    seen.dedup();
    for (entry, kernel) in &seen {
        grid.row([entry, kernel.unwrap_or("(between kernels)")]);
    }
    let missing = if seen.is_empty() { "Every entry is used within its range.\n".to_owned() } else { grid.print() };
    [
        table("Sixteen requests that generate over 1,000 tokens,", &answer.decode),
        table("A prompt of 1,024 tokens,", &answer.prefill),
        missing,
    ]
}
