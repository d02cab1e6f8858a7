//! Which crate may depend on which: the layer table of ARCHITECTURE.md as a constant, and the check over `cargo metadata`.
//!
//! Development and build dependencies count like the others: a test that reaches sideways couples two crates too.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::workspace::{Outcome, Workspace};

/// Every crate and its layer. A crate may depend only on crates of a lower layer; crates of one layer never know each other.
pub(crate) const LAYERS: &[(&str, u8)] = &[
    ("blis-contracts", 0),
    ("blis-catalog", 1),
    ("blis-registry", 1),
    ("blis-vllm", 1),
    ("blis-sglang", 1),
    ("blis-router", 1),
    ("blis-report", 1),
    ("blis-workload", 1),
    ("blis-kernel", 2),
    ("blis-sim", 3),
    ("blis-score", 4),
    ("blis-search", 4),
    ("blis-serve", 4),
    ("blis", 5),
    ("blis-python", 5),
];

/// The crates that port an engine, called `blis-` and the engine's name.
pub(crate) const ENGINES: &[&str] = &["blis-vllm", "blis-sglang"];

/// The crate of the gate itself: no crate depends on it, and it depends on none of ours.
pub(crate) const GATE: &str = "xtask";

/// A crate of the workspace with the workspace crates it names in its manifest.
#[derive(Debug)]
struct Package {
    name: String,
    dependencies: Vec<String>,
}

/// The layer of a crate, if the table has it.
pub(crate) fn layer_of(name: &str) -> Option<u8> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

/// Checks the workspace as cargo sees it.
pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    let packages = read_packages(&workspace.metadata()?)?;
    let faults = check(&packages);
    if !faults.is_empty() {
        bail!("{} wrong edges\n{}", faults.len(), faults.join("\n"));
    }
    let edges: usize = packages.iter().map(|package| package.dependencies.len()).sum();
    Ok(Outcome::Passed(format!("{} crates, {edges} edges, all strictly downward", packages.len())))
}

/// The workspace's crates, with those dependencies that are a path and so ours.
fn read_packages(metadata: &Value) -> Result<Vec<Package>> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let name_of = |value: &Value| value["name"].as_str().map(str::to_owned).context("a package without a name");
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().context("a package without dependencies")?;
            let ours = dependencies.iter().filter(|dependency| dependency["path"].is_string());
            Ok(Package { name: name_of(package)?, dependencies: ours.map(name_of).collect::<Result<_>>()? })
        })
        .collect()
}

/// One sentence for each crate or edge that the table does not allow.
fn check(packages: &[Package]) -> Vec<String> {
    let mut faults = Vec::new();
    for Package { name, dependencies } in packages {
        let layer = layer_of(name);
        if layer.is_none() && name != GATE {
            faults.push(format!("`{name}` has no layer; give it one in xtask/src/layers.rs and in ARCHITECTURE.md"));
        }
        for dependency in dependencies {
            let fault = match (layer, layer_of(dependency)) {
                (Some(from), Some(to)) if to < from => continue,
                (Some(from), Some(to)) if to == from => {
                    format!("both are of layer {from}, and siblings never meet")
                }
                (Some(from), Some(to)) => format!("layer {from} may not reach up to layer {to}"),
                (None, Some(_) | None) | (Some(_), None) => "one of the two stands outside the layers".to_owned(),
            };
            faults.push(format!("`{name}` depends on `{dependency}`: {fault}"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        Package { name: name.to_owned(), dependencies: dependencies.iter().map(|&name| name.to_owned()).collect() }
    }

    #[test]
    fn a_downward_edge_passes() {
        assert_eq!(check(&[package("blis-sim", &["blis-kernel", "blis-contracts"])]), [""; 0]);
    }

    #[test]
    fn an_upward_edge_is_refused() {
        let faults = check(&[package("blis-contracts", &["blis-kernel"])]);
        assert_eq!(faults, ["`blis-contracts` depends on `blis-kernel`: layer 0 may not reach up to layer 2"]);
    }

    #[test]
    fn a_sideways_edge_is_refused() {
        let faults = check(&[package("blis-vllm", &["blis-catalog"])]);
        assert!(faults[0].contains("siblings never meet"), "{faults:?}");
    }

    #[test]
    fn a_crate_without_a_layer_is_refused() {
        let faults = check(&[package("blis-extra", &[])]);
        assert!(faults[0].contains("`blis-extra` has no layer"), "{faults:?}");
    }

    #[test]
    fn the_gate_stands_apart_from_the_layers() {
        assert_eq!(check(&[package(GATE, &[])]), [""; 0]);
        assert_eq!(check(&[package(GATE, &["blis-contracts"]), package("blis", &[GATE])]).len(), 2);
    }

    #[test]
    fn only_path_dependencies_are_edges_whatever_their_kind() {
        let metadata = serde_json::json!({"packages": [{"name": "blis-vllm", "dependencies": [
            {"name": "serde", "path": null},
            {"name": "blis-kernel", "path": "here", "kind": "dev"},
        ]}]});
        assert_eq!(check(&read_packages(&metadata).unwrap()).len(), 1);
    }
}
