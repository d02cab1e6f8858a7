//! Comments and test names say how things are, not when or in which change they became so.

use super::tree::Tree;
use super::{Check, Finding, test_names};

pub(super) const CHECK: Check = Check { name: "history", run: check };

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.spoken().filter(|file| file.has_extension("rs")) {
        let comments = &file.views.comments;
        for (at, words) in references(comments) {
            let message = format!("`{words}` tells history; say why it is so instead");
            findings.push(Finding::at(file, comments, at, message));
        }
        for (line, name) in test_names::tests_of(file) {
            if ["pr", "issue", "phase"].iter().any(|word| numbered(&name, word)) {
                findings.push(Finding::new(&file.path, line, format!("the test name `{name}` tells history")));
            }
        }
    }
    findings
}

/// Issue numbers of three digits or more, numbered pull requests and numbered phases, with their positions.
fn references(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (prefix, gap, digits_min) in [("#", "", 3), ("PR", " ", 1), ("Phase ", "", 1)] {
        for (at, _) in text.match_indices(prefix) {
            let rest = &text[at + prefix.len()..];
            let number = rest.strip_prefix(gap).unwrap_or(rest);
            let digits = number.len() - number.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let joined = text[..at].ends_with(|c: char| c.is_alphanumeric());
            if digits >= digits_min && !joined {
                let end = text.len() - number.len() + digits;
                found.push((at, text[at..end].to_owned()));
            }
        }
    }
    found
}

/// Whether a name has the word followed by a number, as in `fixes_pr_12`.
fn numbered(name: &str, word: &str) -> bool {
    let parts: Vec<&str> = name.split('_').collect();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.iter().any(|part| part.strip_prefix(word).is_some_and(is_number))
        || parts.windows(2).any(|pair| pair[0] == word && is_number(pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&Tree::of(&[("a.rs", text)])).len()
    }

    #[test]
    fn issue_numbers_changes_and_phases_in_comments_are_found() {
        for planted in ["see #1234", "PR 7 did it", "PR7", "until Phase 2"] {
            assert_eq!(count(&format!("// {planted}\n")), 1, "{planted}");
        }
    }

    #[test]
    fn short_numbers_code_and_other_words_pass() {
        for innocent in ["// item #12 of the list", "let x = \"#1234\";", "// LPR 7", "// a phase of its own"] {
            assert_eq!(count(innocent), 0, "{innocent}");
        }
    }

    #[test]
    fn a_test_named_after_a_change_is_found() {
        assert_eq!(count("#[test]\nfn keeps_order_after_pr_12() {}\n"), 1);
        assert_eq!(count("#[test]\nfn two_issues_at_once() {}\n"), 0);
    }
}
