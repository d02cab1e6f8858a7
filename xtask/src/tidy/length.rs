//! A file one can live in: aim at 200 lines, look again at 500, never more than 800.

use super::tree::{File, Tree};
use super::{Check, Finding};

pub(super) const CHECK: Check = Check { name: "length", run: |tree| check(tree, EXCEPTIONS) };

/// No Rust file is longer.
const LINES_MAX: usize = 800;

/// A longer one is named in the summary.
const LINES_AIM: usize = 500;

/// Files allowed to be longer, with their own limit. May only shrink.
const EXCEPTIONS: &[(&str, usize)] = &[];

/// The files above the aim, longest first.
pub(super) fn above_aim(tree: &Tree) -> Vec<String> {
    let mut long: Vec<(usize, &str)> =
        tree.rust().map(|file| (lines(file), file.path.as_str())).filter(|&(lines, _)| lines > LINES_AIM).collect();
    long.sort_by(|one, other| other.cmp(one));
    long.into_iter().map(|(lines, path)| format!("{path} ({lines} lines)")).collect()
}

fn lines(file: &File) -> usize {
    file.text.lines().count()
}

fn check(tree: &Tree, exceptions: &[(&str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let own = exceptions.iter().find(|(path, _)| *path == file.path);
        let limit = own.map_or(LINES_MAX, |&(_, limit)| limit);
        if lines(file) > limit {
            findings.push(Finding::new(&file.path, 0, format!("{} lines, at most {limit}", lines(file))));
        }
    }
    for (path, _) in exceptions {
        if tree.file(path).is_none_or(|file| lines(file) <= LINES_MAX) {
            findings.push(Finding::new(path, 0, "needs its exception no longer; take it off the list"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(lines: usize) -> Tree {
        Tree::of(&[("a.rs", &"x\n".repeat(lines))])
    }

    #[test]
    fn a_file_of_the_longest_length_passes_and_one_more_line_does_not() {
        assert_eq!(check(&tree(LINES_MAX), &[]), []);
        assert_eq!(check(&tree(LINES_MAX + 1), &[]).len(), 1);
    }

    #[test]
    fn an_exception_holds_up_to_its_own_limit() {
        assert_eq!(check(&tree(900), &[("a.rs", 900)]), []);
        assert_eq!(check(&tree(901), &[("a.rs", 900)]).len(), 1);
    }

    #[test]
    fn an_exception_no_longer_needed_is_found() {
        assert_eq!(check(&tree(10), &[("a.rs", 900)]).len(), 1);
        assert_eq!(check(&tree(10), &[("gone.rs", 900)]).len(), 1);
    }

    #[test]
    fn a_file_above_the_aim_is_named() {
        assert_eq!(above_aim(&tree(LINES_AIM + 1)), ["a.rs (501 lines)"]);
    }
}
