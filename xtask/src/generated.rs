//! Generated files equal what generates them; `--write` writes them instead.
//!
//! The JSON Schemas under `docs/schema/` come from the Rust types by way of `blis schema`, which lists the kinds of
//! document, and `blis schema KIND`, which prints one. With `--vllm-wheel` the field table and the surface list of the
//! vLLM port are compared with the sources of that wheel too; without it the summary says that they were not, since the gate must not need a download.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::workspace::{Outcome, Profile, Workspace, capture, pass_through};

/// Where the schemas lie, relative to the root.
const SCHEMAS: &str = "docs/schema";

/// The scripts that write the field table and the surface list from upstream's sources, relative to the root.
const WHEEL_SCRIPTS: [&str; 2] = ["crates/blis-vllm/tools/fields.py", "crates/blis-vllm/tools/surface.py"];

/// Files by name.
type Files = BTreeMap<String, Vec<u8>>;

/// Compares every generated file, or writes the schemas.
pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    let folder = workspace.root.join(SCHEMAS);
    let wanted = generate(workspace)?;
    if workspace.write {
        write(&folder, &wanted)?;
    }
    let faults = differences(&wanted, &read(&folder)?);
    if !faults.is_empty() {
        bail!("{}\n`cargo xtask generated --write` writes them", faults.join("\n"));
    }
    let wheel = compare_with_wheel(workspace)?;
    Ok(Outcome::Passed(format!("{} schemas; {wheel}", wanted.len())))
}

/// The schema of each kind of document, as the command line prints it.
fn generate(workspace: &Workspace) -> Result<Files> {
    let binary = workspace.build_blis(Profile::Dev)?;
    let binary = binary.to_str().context("the target folder's path is not UTF-8")?;
    let kinds = capture(&mut workspace.command(binary, &["schema"]))?;
    let kinds = String::from_utf8(kinds).context("`blis schema` did not print text")?;
    let kinds: Vec<&str> = kinds.split_whitespace().collect();
    if kinds.is_empty() {
        bail!("`blis schema` lists no kind of document");
    }
    let schema = |kind: &str| capture(&mut workspace.command(binary, &["schema", kind]));
    kinds.into_iter().map(|kind| Ok((format!("{kind}.json"), schema(kind)?))).collect()
}

/// One sentence for each file that is missing, differs, or that nothing generates.
fn differences(wanted: &Files, found: &Files) -> Vec<String> {
    let stale = wanted.iter().filter(|(name, text)| found.get(*name) != Some(text));
    let stale = stale.map(|(name, _)| format!("{SCHEMAS}/{name} is not what `blis schema` prints"));
    let strange = found.keys().filter(|name| !wanted.contains_key(*name));
    stale.chain(strange.map(|name| format!("{SCHEMAS}/{name} is the schema of no document"))).collect()
}

/// The files of a folder; none where there is no folder.
fn read(folder: &Path) -> Result<Files> {
    let mut files = Files::new();
    if folder.is_dir() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            files.insert(entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?);
        }
    }
    Ok(files)
}

fn write(folder: &Path, files: &Files) -> Result<()> {
    std::fs::create_dir_all(folder).context("cannot make the folder of the schemas")?;
    for (name, text) in files {
        std::fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(())
}

/// Lets the scripts of field table and surface list compare them with the unpacked wheel, where one is given.
fn compare_with_wheel(workspace: &Workspace) -> Result<&'static str> {
    let Some(wheel) = &workspace.vllm_wheel else {
        return Ok("vLLM's field table and surface list not compared: no --vllm-wheel given");
    };
    for script in WHEEL_SCRIPTS {
        pass_through(workspace.command("python3", &[script]).arg(wheel).arg("--check"))?;
    }
    Ok("vLLM's field table and surface list equal the wheel's")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> Files {
        files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn equal_files_pass() {
        assert_eq!(differences(&files(&[("a", "1")]), &files(&[("a", "1")])), [""; 0]);
    }

    #[test]
    fn stale_missing_and_strange_files_are_each_named() {
        let found = differences(&files(&[("a", "1"), ("b", "2")]), &files(&[("a", "0"), ("c", "3")]));
        assert_eq!(found.len(), 3, "{found:?}");
    }
}
