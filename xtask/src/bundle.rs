//! The dashboard's committed program and style equal what their sources give.
//!
//! The build needs npm and the packages of the lock file. Without npm the step says that it did not look: the page itself is tested
//! from what is committed.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::workspace::{Outcome, Workspace, pass_through};

/// Where the sources lie, relative to the root.
const WEB: &str = "crates/blis-score/web";

/// Builds the page from its sources and compares it with what is committed.
pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    if !starts("npm") {
        return Ok(Outcome::Skipped("npm is not installed, so the dashboard's bundle was not compared with its sources".to_owned()));
    }
    install(workspace)?;
    pass_through(&mut workspace.command("npm", &["--prefix", WEB, "run", "--silent", "check"]))?;
    Ok(Outcome::Passed("the dashboard's bundle is what its sources give".to_owned()))
}

/// Installs the locked packages, unless those of this lock file are there.
fn install(workspace: &Workspace) -> Result<()> {
    let web = workspace.root.join(WEB);
    let wanted = std::fs::read_to_string(web.join("package-lock.json")).context("cannot read the lock file of the dashboard")?;
    let stamp = web.join("node_modules/installed.json");
    if std::fs::read_to_string(&stamp).ok().as_deref() == Some(&wanted) {
        return Ok(());
    }
    pass_through(&mut workspace.command("npm", &["--prefix", WEB, "ci", "--silent"]))
        .context("the dashboard's packages are not to be had")?;
    std::fs::write(&stamp, &wanted).context("cannot note which packages are installed")
}

/// Whether a program can be started.
fn starts(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_installed_does_not_start() {
        assert!(starts("rustc") && !starts("no-such-program-anywhere"));
    }
}
