//! Every Rust file opens by saying what it models and what it leaves out.

use super::tree::Tree;
use super::{Check, Finding};

pub(super) const CHECK: Check = Check { name: "headers", run: check };

fn check(tree: &Tree) -> Vec<Finding> {
    let bare = tree.rust().filter(|file| !file.text.starts_with("//! "));
    bare.map(|file| Finding::new(&file.path, 1, "does not open with `//!`: say what it models and leaves out")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_header_is_found() {
        let tree = Tree::of(&[("a.rs", "//! Says it.\n"), ("b.rs", "use x;\n//! Too late.\n"), ("c.py", "x\n")]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(found, ["b.rs"]);
    }
}
