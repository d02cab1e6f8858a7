//! Writing a catalog document as YAML, always the same bytes for the same value.
//!
//! Keys keep the order of the type's fields. A short map or sequence of scalars goes on one line, everything else in block style.
//! Text is quoted unless it is plainly a word. Left out: reading, which is the strict loader's.

use serde::Serialize;

use blis_contracts::model::ModelGraph;

use crate::tree::Tree;

/// The longest line a map or sequence of scalars is written on, in characters.
const FLOW_WIDTH: usize = 100;

/// A model graph as the text of its `graph.yaml`.
pub fn write_graph(graph: &ModelGraph) -> String {
    write_document("Derived from the vendor's files by `blis catalog derive`; never edited.", graph)
}

/// Any catalog document, under a comment of one line.
pub(crate) fn write_document<T: Serialize>(comment: &str, value: &T) -> String {
    let json = serde_json::to_string(value).expect("a catalog document has text keys and finite numbers");
    let tree = Tree::parse(json.as_bytes()).expect("what serde_json printed is JSON");
    let mut out = format!("# {comment}\n");
    block(&mut out, &tree, 0);
    out
}

/// Prints the entries of a map or the items of a sequence, each on lines of its own.
fn block(out: &mut String, tree: &Tree, indent: usize) {
    match tree {
        Tree::Map(entries) => {
            for (key, value) in entries {
                out.push_str(&" ".repeat(indent));
                out.push_str(&scalar(&Tree::Text(key.clone())));
                out.push(':');
                after_key(out, value, indent + 2);
            }
        }
        Tree::Sequence(items) => {
            for item in items {
                let mut inner = String::new();
                match flow(item) {
                    Some(line) if item.is_scalar() || indent + line.len() <= FLOW_WIDTH => inner = format!("{line}\n"),
                    Some(_) | None => block(&mut inner, item, indent + 2),
                }
                out.push_str(&" ".repeat(indent));
                out.push_str("- ");
                out.push_str(inner.trim_start());
            }
        }
        Tree::Null | Tree::Flag(_) | Tree::Natural(_) | Tree::Real(_) | Tree::Text(_) => {
            out.push_str(&scalar(tree));
            out.push('\n');
        }
    }
}

/// Prints a value after `key:` or `-`, on the same line where it fits.
fn after_key(out: &mut String, value: &Tree, indent: usize) {
    match flow(value) {
        Some(line) if value.is_scalar() || indent + line.len() <= FLOW_WIDTH => {
            out.push(' ');
            out.push_str(&line);
            out.push('\n');
        }
        Some(_) | None => {
            out.push('\n');
            block(out, value, indent);
        }
    }
}

/// The value on one line; nothing where it nests more than sequences of scalars within one map.
fn flow(value: &Tree) -> Option<String> {
    let scalars = |items: &[Tree]| format!("[{}]", items.iter().map(scalar).collect::<Vec<_>>().join(", "));
    let part = |value: &Tree| match value {
        Tree::Sequence(items) if items.iter().all(Tree::is_scalar) => Some(scalars(items)),
        Tree::Sequence(_) | Tree::Map(_) => None,
        Tree::Null | Tree::Flag(_) | Tree::Natural(_) | Tree::Real(_) | Tree::Text(_) => Some(scalar(value)),
    };
    match value {
        Tree::Map(entries) => {
            let parts: Option<Vec<String>> =
                entries.iter().map(|(key, value)| Some(format!("{}: {}", scalar(&Tree::Text(key.clone())), part(value)?))).collect();
            Some(format!("{{{}}}", parts?.join(", ")))
        }
        Tree::Sequence(items) if items.iter().all(Tree::is_scalar) => Some(scalars(items)),
        Tree::Sequence(_) => None,
        Tree::Null | Tree::Flag(_) | Tree::Natural(_) | Tree::Real(_) | Tree::Text(_) => Some(scalar(value)),
    }
}

fn scalar(value: &Tree) -> String {
    match value {
        Tree::Text(text) if is_plain(text) => text.clone(),
        Tree::Text(text) => serde_json::to_string(text).expect("text prints as JSON"),
        Tree::Null | Tree::Flag(_) | Tree::Natural(_) | Tree::Real(_) | Tree::Sequence(_) | Tree::Map(_) => value.to_string(),
    }
}

/// Whether a reader takes the bare text for this text and for nothing else.
fn is_plain(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let reserved = ["true", "false", "null", "yes", "no", "on", "off", "nan", "inf"];
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(word) && !reserved.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_could_be_read_as_something_else_is_quoted() {
        let written = |text: &str| scalar(&Tree::Text(text.to_owned()));
        assert_eq!(written("openai/gpt-oss-120b"), "openai/gpt-oss-120b");
        assert_eq!(written("8030261248"), "\"8030261248\"");
        assert_eq!(written("no"), "\"no\"");
        assert_eq!(written("a: b"), "\"a: b\"");
    }

    #[test]
    fn short_containers_stay_on_one_line_and_long_ones_do_not() {
        let text = write_document("x", &serde_json::json!({"a": [1, 2], "b": {"c": {"d": true}}, "e": ["y".repeat(60), "z".repeat(60)]}));
        let (y, z) = ("y".repeat(60), "z".repeat(60));
        assert_eq!(text, format!("# x\na: [1, 2]\nb:\n  c: {{d: true}}\ne:\n  - {y}\n  - {z}\n"));
    }
}
