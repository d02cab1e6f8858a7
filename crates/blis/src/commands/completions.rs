//! `blis completions`: what a shell needs to complete commands, flags and values.

use clap::{CommandFactory, Parser};
use clap_complete::{Shell, generate};

use super::{Outcome, print};

/// The arguments of `blis completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run<Program: Parser + CommandFactory>(args: &Args) -> Outcome {
    let mut script = Vec::new();
    generate(args.shell, &mut Program::command(), "blis", &mut script);
    print(&String::from_utf8_lossy(&script))
}
