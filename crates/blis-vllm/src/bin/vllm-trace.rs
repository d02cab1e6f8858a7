//! `vllm-trace SCENARIO.yaml`: prints the port's trace of an oracle scenario, in the format of `oracle/FORMAT.md`; with `--metrics`, what
//! a scrape of its front end would read at the end.
//!
//! Parsing and printing only; the work is done in [`blis_vllm::trace`].

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use blis_vllm::trace::{metrics, run, scenario::Scenario};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [path] if !path.starts_with('-') => trace(Path::new(path), false),
        [flag, path] if flag == "--metrics" => trace(Path::new(path), true),
        _ => Err("usage: vllm-trace [--metrics] SCENARIO.yaml".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "error: {message}");
            ExitCode::from(2)
        }
    }
}

fn trace(path: &Path, series: bool) -> Result<(), String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let scenario = Scenario::parse(&path.display().to_string(), &bytes).map_err(|error| error.to_string())?;
    let found = if series {
        metrics(&scenario, &[]).map(|found| found.into_iter().flat_map(|scrape| scrape.lines).collect())
    } else {
        run(&scenario, &mut |_| {})
    };
    let lines: Vec<String> = found.map_err(|error| format!("{}: {error}", path.display()))?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    lines.iter().try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush()).map_err(|error| error.to_string())
}
