//! The crate-count ratchet: every third-party crate costs each build its time and each reader their trust.

use anyhow::{Context as _, Result, bail};

use crate::workspace::{Outcome, Workspace};

/// The most third-party packages Cargo.lock may hold. Lower it when a dependency goes; raising it needs a reason in the commit.
const THIRD_PARTY_MAX: usize = 96;

/// Counts the packages of Cargo.lock that come from a registry.
pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    let lock = std::fs::read_to_string(workspace.root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let count = third_party(&lock);
    check(count)?;
    Ok(Outcome::Passed(format!("{count} third-party crates, at most {THIRD_PARTY_MAX}")))
}

fn check(count: usize) -> Result<()> {
    if count > THIRD_PARTY_MAX {
        bail!("{count} third-party crates, at most {THIRD_PARTY_MAX}; drop one, or raise the limit with a reason");
    }
    Ok(())
}

/// Packages with a source; our own have none.
fn third_party(lock: &str) -> usize {
    lock.lines().filter(|line| line.starts_with("source = ")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_packages_are_not_counted() {
        let lock = "[[package]]\nname = \"blis\"\n\n[[package]]\nname = \"serde\"\nsource = \"registry\"\n";
        assert_eq!(third_party(lock), 1);
    }

    #[test]
    fn one_crate_over_the_limit_is_refused() {
        assert!(check(THIRD_PARTY_MAX).is_ok());
        assert!(check(THIRD_PARTY_MAX + 1).is_err());
    }
}
