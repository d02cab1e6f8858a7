//! Nothing is left for later in the sources: what is not built is refused by name or written in an issue.

use super::tree::Tree;
use super::views::words;
use super::{Check, Finding};

pub(super) const CHECK: Check = Check { name: "unfinished", run: check };

const MARKS: &[&str] = &["TODO", "FIXME", "XXX"];

/// Macros that panic where code is missing.
const MACROS: &[&str] = &["todo", "unimplemented"];

/// Files written by people; data may spell anything.
const EXTENSIONS: &[&str] = &["rs", "py", "sh", "toml", "md"];

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.spoken().filter(|file| EXTENSIONS.iter().any(|extension| file.has_extension(extension))) {
        for mark in MARKS {
            for at in words(&file.text, mark) {
                findings.push(Finding::at(file, &file.text, at, format!("`{mark}`")));
            }
        }
        for name in MACROS {
            let code = &file.views.code;
            for at in words(code, name).filter(|at| code[at + name.len()..].starts_with('!')) {
                findings.push(Finding::at(file, code, at, format!("`{name}!`")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_is_found_with_its_line() {
        for planted in ["// TODO later", "# FIXME", "let XXX = 1;", "todo!()", "unimplemented!(\"x\")"] {
            let tree = Tree::of(&[("a.rs", &format!("//! A.\n{planted}\n"))]);
            let lines: Vec<_> = check(&tree).iter().map(|finding| finding.line).collect();
            assert_eq!(lines, [2], "{planted}");
        }
    }

    #[test]
    fn a_macro_named_in_a_comment_and_a_longer_word_pass() {
        let tree = Tree::of(&[("a.rs", "// todo!() is refused\nlet XXXL = MASTODON;\n")]);
        assert_eq!(check(&tree), []);
    }
}
