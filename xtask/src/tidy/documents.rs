//! The root documents exist, and each can be read in one sitting.

use super::tree::Tree;
use super::{Check, Finding};

pub(super) const CHECK: Check = Check { name: "documents", run: check };

/// The most lines of each.
const LINES_MAX: &[(&str, usize)] = &[("README.md", 60), ("ARCHITECTURE.md", 300), ("CONTRIBUTING.md", 200)];

/// Must be there, at whatever length.
const REQUIRED: &[&str] = &["LICENSE", "NOTICE"];

fn check(tree: &Tree) -> Vec<Finding> {
    let limits = LINES_MAX.iter().copied().chain(REQUIRED.iter().map(|&path| (path, usize::MAX)));
    let fault = |(path, limit): (&str, usize)| match tree.file(path).map(|file| file.text.lines().count()) {
        None => Some(Finding::new(path, 0, "is missing")),
        Some(lines) if lines > limit => Some(Finding::new(path, 0, format!("{lines} lines, at most {limit}"))),
        Some(_) => None,
    };
    limits.filter_map(fault).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_document_and_a_missing_one_are_found() {
        let tree = Tree::of(&[("README.md", &"x\n".repeat(61)), ("ARCHITECTURE.md", "x\n"), ("LICENSE", ""), ("NOTICE", "")]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| (finding.path, finding.message)).collect();
        let expected = [("README.md", "61 lines, at most 60"), ("CONTRIBUTING.md", "is missing")];
        assert_eq!(found, expected.map(|(path, message)| (path.to_owned(), message.to_owned())));
    }
}
