//! The steps that are one cargo command each.

use anyhow::Result;

use crate::workspace::{Outcome, Workspace, pass_through};

/// `cargo fmt`, comparing only.
pub(crate) fn fmt(workspace: &Workspace) -> Result<Outcome> {
    workspace.cargo(&["fmt", "--all", "--check"])?;
    Ok(passed("formatted"))
}

/// Clippy over every target of every crate, warnings refused.
pub(crate) fn clippy(workspace: &Workspace) -> Result<Outcome> {
    workspace.cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])?;
    Ok(passed("no lint fires"))
}

/// Every test of the workspace, documentation examples included.
pub(crate) fn test(workspace: &Workspace) -> Result<Outcome> {
    workspace.cargo(&["test", "--workspace", "--locked"])?;
    Ok(passed("every test passes"))
}

/// The documentation of our own crates, private items included.
pub(crate) fn doc(workspace: &Workspace) -> Result<Outcome> {
    let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"];
    pass_through(workspace.command("cargo", &arguments).env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(passed("every link resolves"))
}

fn passed(detail: &str) -> Outcome {
    Outcome::Passed(detail.to_owned())
}
