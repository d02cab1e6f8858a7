//! `blis coverage`: what an engine registers under a name, and what the port does with each item.

use blis_report::grid::Grid;
use blis_vllm::surface::{Coverage, Item, surface};
use clap::ValueEnum;

use super::{Outcome, print};

/// The arguments of `blis coverage`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The engine
    engine: Engine,
    /// Show only items of this status
    #[arg(long)]
    status: Option<StatusArgument>,
}

/// The engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    Vllm,
}

/// The statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StatusArgument {
    Modelled,
    Refused,
    OutOfScope,
}

impl StatusArgument {
    const fn coverage(self) -> Coverage {
        match self {
            Self::Modelled => Coverage::Modelled,
            Self::Refused => Coverage::Refused,
            Self::OutOfScope => Coverage::OutOfScope,
        }
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    match args.engine {
        Engine::Vllm => print(&table(surface(), args.status.map(StatusArgument::coverage))),
    }
}

/// Every item, and after them the counts by category.
fn table(items: &[Item], only: Option<Coverage>) -> String {
    let mut grid = Grid::new(&["category", "name", "status", "because"]);
    let shown = items.iter().filter(|item| only.is_none_or(|only| item.status == only));
    for item in shown {
        let because = item.scope.map_or_else(|| item.reason.to_owned(), |scope| format!("{scope}: {}", item.reason));
        grid.row([item.category, item.name, word(item.status), &because]);
    }
    format!("{}\n{}", grid.wrapped().print(), counts(items))
}

fn counts(items: &[Item]) -> String {
    let mut categories: Vec<&str> = Vec::new();
    for item in items {
        if categories.last() != Some(&item.category) && !categories.contains(&item.category) {
            categories.push(item.category);
        }
    }
    let mut grid = Grid::new(&["category", "items", "modelled", "refused", "out of scope"]);
    let mut row = |name: &str, of: &dyn Fn(&Item) -> bool| {
        let count =
            |status: Option<Coverage>| items.iter().filter(|item| of(item) && status.is_none_or(|status| item.status == status)).count();
        let cells =
            [None, Some(Coverage::Modelled), Some(Coverage::Refused), Some(Coverage::OutOfScope)].map(|status| count(status).to_string());
        grid.row([name, &cells[0], &cells[1], &cells[2], &cells[3]]);
    };
    for category in categories {
        row(category, &|item| item.category == category);
    }
    row("all", &|_| true);
    grid.wrapped().print()
}

const fn word(status: Coverage) -> &'static str {
    match status {
        Coverage::Modelled => "modelled",
        Coverage::Refused => "refused",
        Coverage::OutOfScope => "out of scope",
    }
}
