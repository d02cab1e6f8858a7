//! The BLIS command line: arguments in, documents out, and the exit code.
//!
//! Data go to stdout; messages, progress and errors to stderr. Reading order: the commands in `commands`, one file each, then what
//! they share: `scenario` and `data` (reading them), `slo` (conditions on figures), `step` (steps to price), `trace` (reading traces), `window` (stretches of time), `pending` (files that are
//! whole or absent), `interrupt`, `failure` and `snippet` (errors with their place). Left out: everything a command does beyond parsing its arguments and calling the crates.

mod commands;
mod data;
mod failure;
mod interrupt;
mod pending;
mod scenario;
mod slo;
mod snippet;
mod step;
mod taken;
mod trace;
mod window;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Command;

/// Predicts how an LLM serving deployment performs, from the launch line you would run, without a GPU.
#[derive(Debug, Parser)]
#[command(
    name = "blis",
    version,
    max_term_width = 100,
    after_help = "Start with `blis run scenarios/quickstart.yaml`, then `blis explain` the same file.\n\
                  Exit codes: 0 done, 1 the run failed, 2 bad input, 3 a --fail-if condition holds, 130 interrupted."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    match command.run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
