//! `blis report`: a Result as a page.

use std::path::{Path, PathBuf};

use blis_contracts::result::RunResult;
use blis_report::page::page;

use super::{Outcome, compare};
use crate::failure::Failure;
use crate::taken;

/// The arguments of `blis report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The Result, as `blis run --format json` prints it
    result: PathBuf,
    /// Where the page goes; stdout where left out
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The run's timeline, as `blis run --timeline` writes it, for the page to link to; the link is relative to where the page lies
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Outcome {
    taken::reading(&args.result)?;
    if let Some(timeline) = &args.timeline {
        taken::reading(timeline)?;
    }
    let place = args.result.display();
    let text = std::fs::read_to_string(&args.result).map_err(|error| Failure::input(format!("{place}: {error}"), None))?;
    let result: RunResult = serde_json::from_str(&text).map_err(|error| {
        Failure::input(format!("{place}:{}: not a Result as this version writes it: {error}", error.line().max(1)), None)
    })?;
    let timeline = args.timeline.as_deref().map(|timeline| link(timeline, args.out.as_deref())).transpose()?;
    compare::write(args.out.as_deref(), &page(&result, timeline.as_deref()))
}

/// Where a timeline lies, seen from the page: by its name alone where both share a folder, else by its whole path.
fn link(timeline: &Path, page: Option<&Path>) -> Result<String, Failure> {
    let missing = |error| Failure::input(format!("--timeline {}: {error}", timeline.display()), None);
    let place = timeline.canonicalize().map_err(missing)?;
    let folder =
        page.and_then(Path::parent).map_or_else(|| Path::new("."), |folder| if folder == Path::new("") { Path::new(".") } else { folder });
    let shared = folder.canonicalize().is_ok_and(|folder| place.parent() == Some(&folder));
    let name = place.file_name().filter(|_| shared).map_or_else(|| place.display().to_string(), |name| name.to_string_lossy().into_owned());
    Ok(name)
}
