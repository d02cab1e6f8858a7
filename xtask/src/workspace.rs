//! Where the workspace lies, what the flags ask for, and how a step runs a command.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// What a step answers when it did not fail.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The step looked at what it must and found it right; the text says how much it looked at.
    Passed(String),
    /// The step could not look, for a reason that is no fault of the change.
    Skipped(String),
}

/// The checkout under test and the flags given.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// Folder of the root manifest.
    pub(crate) root: PathBuf,
    /// The caller has run `cargo test --workspace` already.
    pub(crate) tests_done: bool,
    /// Write generated files instead of comparing them.
    pub(crate) write: bool,
    /// The folder that the wheel of the modelled vLLM release was unpacked to, where the caller has it.
    pub(crate) vllm_wheel: Option<PathBuf>,
}

impl Workspace {
    /// Finds the workspace and reads the flags; an unknown flag is an error.
    pub(crate) fn new(flags: &[String]) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace's folder");
        let mut workspace = Self { root: root.to_owned(), tests_done: false, write: false, vllm_wheel: None };
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            match flag.as_str() {
                "--tests-done" => workspace.tests_done = true,
                "--write" => workspace.write = true,
                "--vllm-wheel" => {
                    workspace.vllm_wheel = Some(flags.next().context("`--vllm-wheel` needs a folder")?.into());
                }
                other => {
                    bail!("unknown flag `{other}`; known: --tests-done, --write, --vllm-wheel FOLDER")
                }
            }
        }
        Ok(workspace)
    }

    /// A command that will run in the workspace's root folder.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).args(arguments);
        command
    }

    /// Runs cargo with its output passed through; fails when cargo does.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Result<()> {
        pass_through(&mut self.command("cargo", arguments))
    }

    /// What `cargo metadata` says of the workspace's own crates.
    pub(crate) fn metadata(&self) -> Result<Value> {
        let arguments = ["metadata", "--format-version", "1", "--no-deps", "--locked"];
        let text = capture(&mut self.command("cargo", &arguments))?;
        serde_json::from_slice(&text).context("cargo metadata did not print JSON")
    }

    /// Builds the command line and says where the binary is.
    pub(crate) fn build_blis(&self, profile: Profile) -> Result<PathBuf> {
        let (flags, folder): (&[&str], _) = match profile {
            Profile::Dev => (&[], "debug"),
            Profile::Release => (&["--release"], "release"),
        };
        self.cargo(&[&["build", "--package", "blis", "--locked"], flags].concat())?;
        let metadata = self.metadata()?;
        let target = metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
        Ok(Path::new(target).join(folder).join("blis"))
    }
}

/// The two ways the command line is built.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Profile {
    /// Unoptimised, as tests run it.
    Dev,
    /// Optimised, as users run it.
    Release,
}

/// Runs a command with its output passed through to the caller's terminal.
pub(crate) fn pass_through(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", spelled(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", spelled(command));
    }
    Ok(())
}

/// Runs a command and returns its stdout; stderr passes through.
pub(crate) fn capture(command: &mut Command) -> Result<Vec<u8>> {
    command.stderr(std::process::Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {}", spelled(command)))?;
    if !output.status.success() {
        bail!("{} ended with {}", spelled(command), output.status);
    }
    Ok(output.stdout)
}

/// The command as a user would type it.
fn spelled(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    format!("`{}`", words.join(" "))
}
