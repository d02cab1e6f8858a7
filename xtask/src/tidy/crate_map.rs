//! ARCHITECTURE.md knows every crate and gives it the layer that the gate enforces.

use super::tree::Tree;
use super::{Check, Finding};
use crate::layers::{GATE, LAYERS, layer_of};

pub(super) const CHECK: Check = Check { name: "crate_map", run: check };

const MAP: &str = "ARCHITECTURE.md";

fn check(tree: &Tree) -> Vec<Finding> {
    let map = tree.file(MAP).map_or("", |file| &file.text);
    let mut findings = Vec::new();
    let manifests = tree.files.iter().filter(|file| file.name() == "Cargo.toml");
    for name in manifests.filter_map(|file| file.crate_name()) {
        if name != GATE && row_of(map, name).is_none() {
            findings.push(Finding::new(MAP, 0, format!("the layer table has no row for `{name}`")));
        }
        if !map.contains(&format!("### `{name}`")) {
            findings.push(Finding::new(MAP, 0, format!("the code map has no section on `{name}`")));
        }
    }
    for (name, layer) in LAYERS {
        if let Some(stated) = row_of(map, name).filter(|stated| stated != &layer.to_string()) {
            findings.push(Finding::new(MAP, 0, format!("puts `{name}` in layer {stated}, the gate in {layer}")));
        }
    }
    for (index, line) in map.lines().enumerate() {
        let Some((_, name)) = row(line) else { continue };
        if layer_of(name).is_none() {
            findings.push(Finding::new(MAP, index + 1, format!("the gate knows no crate `{name}`")));
        }
    }
    findings
}

/// The layer that the table states for a crate.
fn row_of<'a>(map: &'a str, name: &str) -> Option<&'a str> {
    map.lines().filter_map(row).find(|(_, known)| *known == name).map(|(layer, _)| layer)
}

/// The layer and the crate of a row `| 0 | `name` | ... |`.
fn row(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
    let layer = cells.next()?;
    let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
    layer.parse::<u8>().is_ok().then_some((layer, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(map: &str) -> Vec<String> {
        let tree = Tree::of(&[("ARCHITECTURE.md", map), ("crates/blis-kernel/Cargo.toml", "")]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_crate_with_its_row_and_its_section_passes() {
        assert_eq!(messages("| 2 | `blis-kernel` | prices |\n\n### `blis-kernel`\n"), [""; 0]);
    }

    #[test]
    fn a_crate_missing_from_the_map_is_found() {
        assert_eq!(messages("nothing").len(), 2);
    }

    #[test]
    fn a_layer_other_than_the_gates_is_found() {
        let found = messages("| 1 | `blis-kernel` | prices |\n### `blis-kernel`\n");
        assert_eq!(found, ["puts `blis-kernel` in layer 1, the gate in 2"]);
    }

    #[test]
    fn a_row_for_a_crate_the_gate_does_not_know_is_found() {
        let found = messages("| 2 | `blis-kernel` | prices |\n| 1 | `blis-moon` | x |\n### `blis-kernel`\n");
        assert_eq!(found, ["the gate knows no crate `blis-moon`"]);
    }
}
