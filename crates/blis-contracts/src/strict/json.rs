//! Prints a tree as JSON that the strict reader accepts and reads back to the same tree.

use std::fmt::Write;

use super::parse::is_forbidden;
use super::{Node, Value};

/// The tree as one line of JSON, keys in the order written.
pub(super) fn print(node: &Node) -> String {
    let mut out = String::new();
    write_node(&mut out, node);
    out
}

fn write_node(out: &mut String, node: &Node) {
    match &node.value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(literal) | Value::Float(literal) => out.push_str(literal),
        Value::Str(text) => write_text(out, text),
        Value::Seq(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_node(out, item);
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push('{');
            for (index, (key, entry)) in map.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_text(out, key);
                out.push_str(": ");
                write_node(out, &entry.node);
            }
            out.push('}');
        }
    }
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_forbidden(c) => write!(out, "\\u{:04x}", u32::from(c)).expect("writing to a String cannot fail"),
            c => out.push(c),
        }
    }
    out.push('"');
}
