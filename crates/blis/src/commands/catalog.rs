//! `blis catalog`: what the catalog holds, one entry of it, and the deriver of model graphs.

use std::path::PathBuf;

use blis_catalog::{Catalog, derive_catalog_model, derive_directory, write_graph};
use blis_contracts::strict::did_you_mean;
use blis_report::grid::Grid;
use blis_report::quantity::{bytes, count};
use clap::Subcommand;
use serde_json::Value;

use super::{Outcome, print};
use crate::data::{DataArgs, catalog_failure};
use crate::failure::Failure;

/// The arguments of `blis catalog`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the models, chips, networks and storage devices
    List {
        #[command(flatten)]
        data: DataArgs,
    },
    /// Show a model's graph, or the figures of any other entry with their citations
    Show {
        /// A catalog name, or the name of a checkpoint
        name: String,
        #[command(flatten)]
        data: DataArgs,
    },
    /// Derive a model's graph from the vendor's files, and print it
    Derive {
        /// A checkpoint's folder with its `config.json`, or a model's folder of a catalog
        dir: PathBuf,
        /// A folder with the vendor's files that a catalog folder names but does not hold
        #[arg(long, value_name = "DIR")]
        vendor: Option<PathBuf>,
        /// What launch lines call the checkpoint, as in `Qwen/Qwen3-14B`; its last part, lower case, becomes the model's name
        #[arg(long, value_name = "NAME", conflicts_with = "vendor")]
        checkpoint: Option<String>,
    },
}

pub(super) fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::List { data } => list(&data.world()?.catalog),
        Command::Show { name, data } => show(&data.world()?.catalog, name),
        Command::Derive { dir, vendor, checkpoint } => {
            let of_catalog = dir.join("model.yaml").is_file();
            if let Some(name) = checkpoint.as_ref().filter(|_| of_catalog) {
                return Err(Failure::input(
                    format!("--checkpoint {name}: {} has a model.yaml, which names its checkpoints", dir.display()),
                    None,
                ));
            }
            let derived =
                if of_catalog { derive_catalog_model(dir, vendor.as_deref()) } else { derive_directory(dir, checkpoint.as_deref()) };
            print(&write_graph(&derived.map_err(|error| Failure::input(error.to_string(), None))?))
        }
    }
}

fn list(catalog: &Catalog) -> Outcome {
    let mut models = Grid::new(&["model", ">parameters", ">active", ">context", "quantisation", "checkpoints"]);
    for name in catalog.models() {
        let graph = catalog.model(name).map_err(catalog_failure)?;
        models.row([
            name,
            &count(graph.parameters.total),
            &count(graph.parameters.active),
            &count(graph.max_position_embeddings),
            graph.quantisation.as_deref().unwrap_or("none"),
            &graph.aliases.join(", "),
        ]);
    }
    let mut chips = Grid::new(&["chip", "device", ">memory", ">bandwidth", ">per node", ">per domain"]);
    for name in catalog.chips() {
        let chip = catalog.chip(name).map_err(catalog_failure)?;
        chips.row([
            name,
            &chip.device_name.value,
            &bytes(chip.reported_memory.value.get()),
            &format!("{:.2} TB/s", chip.memory_bandwidth.value.get() / 1e12),
            &chip.gpus_per_node.value.to_string(),
            &chip.gpus_per_domain.value.to_string(),
        ]);
    }
    let (networks, storage) = (networks(catalog)?, storage(catalog)?);
    print(&format!("{}\n{}\n{}\n{}", models.wrapped().print(), chips.print(), networks.print(), storage.print()))
}

fn networks(catalog: &Catalog) -> Result<Grid, Failure> {
    let mut grid = Grid::new(&["network", "transport", ">port", ">payload"]);
    for name in catalog.networks() {
        let network = catalog.network(name).map_err(catalog_failure)?;
        let rate = network.rate.value.get();
        grid.row([
            name,
            network.transport.value.as_str(),
            &format!("{:.0} Gb/s", rate * 8.0 / 1e9),
            &format!("{:.1} GB/s", network.payload_rate().get() / 1e9),
        ]);
    }
    Ok(grid)
}

fn storage(catalog: &Catalog) -> Result<Grid, Failure> {
    let mut grid = Grid::new(&["storage device", "medium", ">per node", ">capacity", ">reads", ">writes"]);
    for name in catalog.storage_devices() {
        let device = catalog.storage_device(name).map_err(catalog_failure)?;
        let capacity = device.capacity.as_ref().map_or_else(|| "any".to_owned(), |capacity| bytes(capacity.value.get()));
        grid.row([
            name,
            device.medium.value.as_str(),
            &device.per_node.value.to_string(),
            &capacity,
            &format!("{:.1} GB/s", device.read_bandwidth.value.get() / 1e9),
            &format!("{:.1} GB/s", device.write_bandwidth.value.get() / 1e9),
        ]);
    }
    Ok(grid)
}

fn show(catalog: &Catalog, name: &str) -> Outcome {
    if catalog.resolve(name).is_some() {
        return print(&write_graph(&catalog.model(name).map_err(catalog_failure)?));
    }
    if catalog.chips().any(|chip| chip == name) {
        return print(&figures(serde_json::to_value(catalog.chip(name).map_err(catalog_failure)?)));
    }
    if catalog.networks().any(|network| network == name) {
        return print(&figures(serde_json::to_value(catalog.network(name).map_err(catalog_failure)?)));
    }
    if catalog.storage_devices().any(|device| device == name) {
        return print(&figures(serde_json::to_value(catalog.storage_device(name).map_err(catalog_failure)?)));
    }
    let known: Vec<&str> = catalog.models().chain(catalog.chips()).chain(catalog.networks()).chain(catalog.storage_devices()).collect();
    let message = format!("the catalog ({}) has no model, chip, network or storage device `{name}`", catalog.source());
    Err(Failure::input(message, did_you_mean(name, &known).or_else(|| Some("`blis catalog list` shows what there is".to_owned()))))
}

/// The figures of an entry, each with its citation.
fn figures(entry: serde_json::Result<Value>) -> String {
    let mut grid = Grid::new(&["figure", "value", "kind", "source"]);
    cited("", &entry.expect("an entry has text keys and finite numbers"), &mut grid);
    grid.wrapped().print()
}

/// Adds every cited value under `path`.
fn cited(path: &str, value: &Value, grid: &mut Grid) {
    let Some(map) = value.as_object() else { return };
    let text = |key: &str| map.get(key).and_then(Value::as_str);
    if let (Some(figure), Some(kind), Some(source)) = (map.get("value"), text("kind"), text("source")) {
        let figure = figure.as_str().map_or_else(|| figure.to_string(), str::to_owned);
        grid.row([path, &figure, kind, source]);
        return;
    }
    for (key, inner) in map {
        cited(&if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, inner, grid);
    }
}
