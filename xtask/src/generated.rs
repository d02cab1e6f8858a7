//! Generated files equal what generates them; `--write` writes them instead.
//!
//! The JSON Schemas under `docs/schema/` come from the Rust types by way of `blis schema`, which lists the kinds of
//! document, and `blis schema KIND`, which prints one. With `--vllm-wheel` the field table of the vLLM port is compared with
//! the sources in that wheel too; without it that comparison is named as not made, since the gate must not need a download.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::workspace::{Outcome, Profile, Workspace, capture, pass_through};

/// Where the schemas lie, relative to the root.
const SCHEMAS: &str = "docs/schema";

/// The script that writes the field table from upstream's sources, relative to the root.
const FIELDS_SCRIPT: &str = "crates/blis-vllm/oracle/fields.py";

/// Compares every generated file, or writes the schemas.
pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    let binary = workspace.build_blis(Profile::Dev)?;
    let binary = binary.to_str().context("the target folder's path is not UTF-8")?;
    let kinds = String::from_utf8(capture(&mut workspace.command(binary, &["schema"]))?).context("`blis schema` did not print text")?;
    let kinds: BTreeSet<&str> = kinds.lines().map(str::trim).filter(|kind| !kind.is_empty()).collect();
    if kinds.is_empty() {
        bail!("`blis schema` lists no kind of document");
    }
    let folder = workspace.root.join(SCHEMAS);
    let mut faults = Vec::new();
    for kind in &kinds {
        let schema = capture(&mut workspace.command(binary, &["schema", kind]))?;
        let path = folder.join(format!("{kind}.json"));
        if workspace.write {
            std::fs::create_dir_all(&folder).context("cannot make the folder of the schemas")?;
            std::fs::write(&path, schema).with_context(|| format!("cannot write {}", path.display()))?;
        } else if std::fs::read(&path).ok().as_deref() != Some(&schema) {
            faults.push(format!("{SCHEMAS}/{kind}.json is not what `blis schema {kind}` prints"));
        }
    }
    faults.extend(strangers(&folder, &kinds)?);
    if !faults.is_empty() {
        bail!("{}\n`cargo xtask generated --write` writes them", faults.join("\n"));
    }
    let fields = compare_fields(workspace)?;
    Ok(Outcome::Passed(format!("{} schemas; {fields}", kinds.len())))
}

/// Files in the folder that no kind of document accounts for.
fn strangers(folder: &Path, kinds: &BTreeSet<&str>) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    if !folder.is_dir() {
        return Ok(faults);
    }
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.strip_suffix(".json").is_some_and(|kind| kinds.contains(kind)) {
            faults.push(format!("{SCHEMAS}/{name} is the schema of no document"));
        }
    }
    Ok(faults)
}

/// Lets the field table's own script compare it with the wheel, where one is given.
fn compare_fields(workspace: &Workspace) -> Result<&'static str> {
    let Some(wheel) = &workspace.vllm_wheel else {
        return Ok("vLLM's field table not compared: no --vllm-wheel given");
    };
    let mut command = workspace.command("python3", &[FIELDS_SCRIPT, "--check", "--wheel"]);
    pass_through(command.arg(wheel))?;
    Ok("vLLM's field table equals the wheel's")
}
