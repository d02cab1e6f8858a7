//! The gate of the workspace: each check is a subcommand, and `ci` runs them all and sums them up.
//!
//! Reading order: the table of steps here, `workspace` (how a step runs commands), then one file for each step;
//! `tidy` is the step with the most rules and has a file for each. Simulation, prices and scores are not checked here:
//! those are tests of the crates that own them.

mod builds;
mod bundle;
mod determinism;
mod generated;
mod layers;
mod lockfile;
mod oracle;
mod shared;
mod tidy;
mod tools;
mod workspace;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::workspace::{Outcome, Workspace};

/// One check of the gate, and the subcommand that runs it alone.
#[derive(Debug)]
struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&Workspace) -> Result<Outcome>,
}

/// The steps in the order `ci` runs them: what fails fastest comes first.
const STEPS: &[Step] = &[
    Step { name: "tidy", about: "rules on the text of the sources and documents", run: tidy::run },
    Step { name: "layers", about: "every dependency between our crates points strictly downward", run: layers::run },
    Step { name: "lockfile", about: "the number of third-party crates stays at or below its limit", run: lockfile::run },
    Step { name: "fmt", about: "the sources are formatted", run: builds::fmt },
    Step { name: "deny", about: "licences, sources and bans of the dependency tree", run: tools::deny },
    Step { name: "typos", about: "spelling", run: tools::typos },
    Step { name: "oracle", about: "the recorded traces could tell a wrong port from a right one", run: oracle::run },
    Step { name: "clippy", about: "the workspace's lints, warnings refused", run: builds::clippy },
    Step { name: "test", about: "every test and documentation example", run: builds::test },
    Step { name: "doc", about: "the documentation builds without a warning, private items included", run: builds::doc },
    Step { name: "generated", about: "generated files equal what generates them", run: generated::run },
    Step { name: "bundle", about: "the dashboard's committed program is what its sources give", run: bundle::run },
    Step { name: "determinism", about: "each example scenario gives the same bytes every time", run: determinism::run },
    Step { name: "shared", about: "checks that need the folder beside the checkout", run: shared::run },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("xtask: {error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Runs what the arguments ask for; `Ok(false)` when a step failed, `Err` when the arguments make no sense.
fn dispatch(arguments: &[String]) -> Result<bool> {
    let Some((command, flags)) = arguments.split_first() else {
        bail!("no step named\n{}", usage());
    };
    if command == "help" || command == "--help" {
        say(&usage());
        return Ok(true);
    }
    let workspace = Workspace::new(flags)?;
    let chosen: Vec<&Step> = if command == "ci" {
        STEPS.iter().filter(|step| !(workspace.tests_done && step.name == "test")).collect()
    } else {
        STEPS.iter().filter(|step| step.name == command).collect()
    };
    if chosen.is_empty() {
        bail!("no step is called `{command}`\n{}", usage());
    }
    run_all(&chosen, &workspace, &mut std::io::stdout())
}

/// Runs every step, whatever the others answered, and prints one line for each at the end.
#[expect(clippy::disallowed_types, reason = "the summary says how long each step took; nothing else reads it")]
fn run_all(steps: &[&Step], workspace: &Workspace, out: &mut dyn Write) -> Result<bool> {
    let mut summary = Vec::new();
    let mut passed = true;
    for step in steps {
        writeln!(out, "\n== {}: {}", step.name, step.about)?;
        let begun = std::time::Instant::now();
        let (verdict, detail) = match (step.run)(workspace) {
            Ok(Outcome::Passed(detail)) => ("ok", detail),
            Ok(Outcome::Skipped(reason)) => ("skipped", reason),
            Err(error) => {
                passed = false;
                ("FAILED", format!("{error:#}"))
            }
        };
        writeln!(out, "{verdict}: {detail}")?;
        let first_line = detail.lines().next().unwrap_or_default().to_owned();
        summary.push(format!("{verdict:8} {:12} {:4} s  {first_line}", step.name, begun.elapsed().as_secs()));
    }
    writeln!(out, "\n== summary\n{}", summary.join("\n"))?;
    Ok(passed)
}

/// The help text, made from the table of steps.
fn usage() -> String {
    let steps: Vec<String> = STEPS.iter().map(|step| format!("  {:12} {}", step.name, step.about)).collect();
    format!(
        "usage: cargo xtask STEP [--tests-done] [--write] [--vllm-wheel FOLDER]\n  \
         ci           every step below; `--tests-done` leaves out `test`\n{}\n\
         `--write` lets `generated` write its files; \
         `--vllm-wheel` lets it compare with the sources of the unpacked wheel",
        steps.join("\n")
    )
}

/// Prints one message. The gate's own output goes to stdout, like that of the commands it runs.
fn say(message: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{message}").expect("stdout of the gate stays open while it runs");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_step_is_refused_by_name() {
        let error = dispatch(&["tidi".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("`tidi`"), "{error}");
    }

    #[test]
    fn an_unknown_flag_is_refused_by_name() {
        let error = dispatch(&["tidy".to_owned(), "--quick".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("`--quick`"), "{error}");
    }

    #[test]
    fn a_failed_step_fails_the_run_and_the_later_steps_still_run() {
        const FAILS: Step = Step { name: "fails", about: "", run: |_| bail!("planted") };
        const PASSES: Step = Step { name: "passes", about: "", run: |_| Ok(Outcome::Passed(String::new())) };
        let workspace = Workspace::new(&[]).unwrap();
        let mut out = Vec::new();
        assert!(!run_all(&[&FAILS, &PASSES], &workspace, &mut out).unwrap());
        let summary: Vec<String> = String::from_utf8(out).unwrap().lines().rev().take(2).map(str::to_owned).collect();
        assert!(summary[1].starts_with("FAILED   fails") && summary[1].ends_with("planted"), "{summary:?}");
        assert!(summary[0].starts_with("ok       passes"), "{summary:?}");
        assert!(run_all(&[&PASSES], &workspace, &mut Vec::new()).unwrap());
    }
}
