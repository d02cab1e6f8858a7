//! Floats are ordered by `total_cmp` or compared as units: `partial_cmp` needs a guess for what has no order.
//!
//! A ban in clippy.toml would also refuse `derive(PartialOrd)`, so the call is looked for here.

use super::tree::Tree;
use super::{Check, Finding};

pub(super) const CHECK: Check = Check { name: "float_order", run: check };

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let code = &file.views.code;
        for (at, _) in code.match_indices(".partial_cmp(") {
            findings.push(Finding::at(file, code, at, "`.partial_cmp(`: use `total_cmp`"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_found_and_an_implementation_passes() {
        let tree = Tree::of(&[("a.rs", "fn partial_cmp(&self) {}\nlet o = a.partial_cmp(&b);\n")]);
        let lines: Vec<_> = check(&tree).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [2]);
    }
}
