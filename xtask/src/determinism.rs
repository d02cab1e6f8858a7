//! The byte gate: each example scenario, run twice by the optimised build and once by the other, prints the same JSON.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::workspace::{Outcome, Profile, Workspace, capture};

/// Fewer examples than this means that the gate looked in the wrong place.
const SCENARIOS_MIN: usize = 1;

/// Runs every example; see the module's description.
pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    let scenarios = examples(&workspace.root.join("scenarios"))?;
    let release = workspace.build_blis(Profile::Release)?;
    let dev = workspace.build_blis(Profile::Dev)?;
    for scenario in &scenarios {
        let name = scenario.display();
        crate::say(&format!("running {name}"));
        let runs = [&release, &release, &dev].map(|binary| result_of(workspace, binary, scenario));
        let [first, second, unoptimised] = runs;
        let first = first?;
        compare(&first, &second?).with_context(|| format!("{name}: two runs of one binary differ"))?;
        compare(&first, &unoptimised?).with_context(|| format!("{name}: optimised and unoptimised runs differ"))?;
    }
    Ok(Outcome::Passed(format!("{} scenarios, three runs each, byte for byte equal", scenarios.len())))
}

/// The example scenarios in the order of their names.
fn examples(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut scenarios = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            scenarios.push(path);
        }
    }
    if scenarios.len() < SCENARIOS_MIN {
        bail!("{} holds {} scenarios, at least {SCENARIOS_MIN} expected", folder.display(), scenarios.len());
    }
    scenarios.sort();
    Ok(scenarios)
}

/// The JSON that one run prints.
fn result_of(workspace: &Workspace, binary: &Path, scenario: &Path) -> Result<Vec<u8>> {
    let binary = binary.to_str().context("the target folder's path is not UTF-8")?;
    let scenario = scenario.to_str().context("the scenario's path is not UTF-8")?;
    capture(&mut workspace.command(binary, &["run", scenario, "--format", "json"]))
}

/// Fails with the first line that differs, or because there is nothing to compare.
fn compare(one: &[u8], other: &[u8]) -> Result<()> {
    if one.is_empty() {
        bail!("the run printed nothing");
    }
    if one == other {
        return Ok(());
    }
    let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect::<Vec<_>>();
    let (one, other) = (lines(one), lines(other));
    let at = one.iter().zip(&other).take_while(|(left, right)| left == right).count();
    let line = |lines: &[String]| lines.get(at).cloned().unwrap_or_else(|| "(end)".to_owned());
    bail!("line {}: `{}` against `{}`", at + 1, line(&one), line(&other));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_named() {
        let error = compare(b"a\nb\n", b"a\nc\n").unwrap_err().to_string();
        assert_eq!(error, "line 2: `b` against `c`");
    }

    #[test]
    fn two_empty_outputs_are_not_equal_results() {
        assert!(compare(b"", b"").is_err());
        assert!(compare(b"{}", b"{}").is_ok());
    }
}
