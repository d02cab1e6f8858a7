//! A tree of plain values as YAML that people read: maps and lists of containers as blocks, the rest on one line.

use std::fmt::Write as _;

use serde_json::Value;

use crate::text::quoted;

/// The longest line of a container that is written on one.
const WIDTH: usize = 120;

/// A map as a block.
pub(super) fn block(value: &Value) -> String {
    let mut text = String::new();
    write(&mut text, value, 0, false);
    text
}

fn write(text: &mut String, value: &Value, indent: usize, after_dash: bool) {
    let pad = |text: &mut String, first: bool| {
        if !(first && after_dash) {
            text.push_str(&" ".repeat(indent));
        }
    };
    match value {
        Value::Object(fields) => {
            for (index, (key, value)) in fields.iter().enumerate() {
                pad(text, index == 0);
                let _ = write!(text, "{}:", scalar(key));
                below(text, value, indent + 2);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                pad(text, index == 0);
                text.push_str("- ");
                if item.is_object() && flow(item).len() > WIDTH {
                    write(text, item, indent + 2, true);
                } else {
                    let _ = writeln!(text, "{}", flow(item));
                }
            }
        }
        leaf @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            let _ = writeln!(text, "{}", flow(leaf));
        }
    }
}

/// What stands behind a key: on its line where it fits and holds no list of maps, else below.
fn below(text: &mut String, value: &Value, indent: usize) {
    let line = flow(value);
    let holds_maps = value.as_array().is_some_and(|items| items.iter().any(Value::is_object));
    let numbers = value.as_array().is_some_and(|items| items.iter().all(|item| !item.is_object()));
    if (line.len() <= WIDTH && !holds_maps && indent > 2) || numbers || !(value.is_object() || value.is_array()) {
        let _ = writeln!(text, " {line}");
    } else {
        text.push('\n');
        write(text, value, indent, false);
    }
}

/// A value on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{}: {}", scalar(key), flow(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::String(text) => scalar(text),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain.to_string(),
    }
}

/// A text bare where that is safe, quoted as JSON does elsewhere.
fn scalar(text: &str) -> String {
    let safe = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_ascii_lowercase().as_str());
    if safe { text.to_owned() } else { quoted(text) }
}
