//! A test's name is a sentence about behaviour, and a test that exists is a test that runs and asserts.

use super::tree::{File, Tree};
use super::views::{is_word, line_at};
use super::{Check, Finding};

pub(super) const CHECK: Check = Check { name: "test_names", run: check };

/// Attributes that let a test stand without saying what is right.
const REFUSED: &[(&str, &str)] = &[
    ("#[ignore", "a test that does not run proves nothing; assert what holds today"),
    ("#[should_panic", "assert on the error returned, not on a crash"),
];

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let code = &file.views.code;
        for (attribute, why) in REFUSED {
            for (at, _) in code.match_indices(attribute) {
                findings.push(Finding::at(file, code, at, format!("`{attribute}]`: {why}")));
            }
        }
        for (line, name) in tests_of(file).into_iter().filter(|(_, name)| name.starts_with("test_")) {
            findings.push(Finding::new(&file.path, line, format!("`{name}`: say what holds, without `test_`")));
        }
    }
    findings
}

/// The functions under `#[test]`, with the lines of their names.
pub(super) fn tests_of(file: &File) -> Vec<(usize, String)> {
    let code = &file.views.code;
    let after = code.match_indices("#[test]").filter_map(|(at, _)| {
        let begin = at + code[at..].find("fn ")? + "fn ".len();
        let name: String = code[begin..].chars().take_while(|&c| is_word(c)).collect();
        Some((line_at(code, begin), name))
    });
    after.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        check(&Tree::of(&[("a.rs", text)])).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_prefix_is_found_and_a_sentence_passes() {
        assert_eq!(messages("#[test]\nfn test_it() {}\n#[test]\nfn order_is_kept() {}\nfn test_bed() {}\n").len(), 1);
    }

    #[test]
    fn a_test_that_never_runs_or_only_crashes_is_found() {
        assert_eq!(messages("#[test]\n#[ignore]\nfn a() {}\n#[test]\n#[should_panic(expected = \"x\")]\nfn b() {}\n").len(), 2);
        assert_eq!(messages("// no #[ignore] here\nlet s = \"#[should_panic]\";\n").len(), 0);
    }
}
