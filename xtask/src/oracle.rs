//! The corpus of recorded traces could tell a wrong port from a right one.
//!
//! Each engine's `oracle/check.py` counts what the traces hold: every field takes more than one value, and every situation that
//! the scenarios are there for occurs. Replaying the traces, and their hashes, are tests of the engine's crate.

use anyhow::{Result, bail};

use crate::layers::ENGINES;
use crate::workspace::{Outcome, Workspace, pass_through};

/// Lets every engine's corpus count itself; an engine without one fails.
pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    let mut counted = Vec::new();
    for name in ENGINES.iter().filter(|name| workspace.root.join("crates").join(name).is_dir()) {
        let script = format!("crates/{name}/oracle/check.py");
        if !workspace.root.join(&script).is_file() {
            bail!("{name} has no {script}");
        }
        pass_through(&mut workspace.command("python3", &[&script]))?;
        counted.push(*name);
    }
    if counted.is_empty() {
        bail!("no crate of an engine was found");
    }
    Ok(Outcome::Passed(format!("the traces of {} show what they are there for", counted.join(", "))))
}
