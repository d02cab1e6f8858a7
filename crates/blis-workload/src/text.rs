//! Text between quotes that a strict reader of YAML takes: what may not stand there bare is escaped.

use std::fmt::Write as _;

/// A text in double quotes, as JSON writes it, with every character that no document may hold as its escape.
pub(crate) fn quoted(text: &str) -> String {
    escaped(&serde_json::Value::from(text).to_string())
}

/// JSON with every character that no document may hold, which only stands within quotes, as its escape.
pub(crate) fn escaped(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut text, c| {
        let bare = !c.is_control() && !matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}' | '\u{2028}' | '\u{2029}');
        if bare {
            text.push(c);
        } else {
            let _ = write!(text, "\\u{:04X}", u32::from(c));
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use blis_contracts::strict::{Document, LineEndings};

    use super::*;

    #[test]
    fn any_text_reads_back_as_itself() {
        for text in ["plain", "a \"b\" \\ c", "\u{feff}x", "\u{7f}\u{85}\u{9f}", "\t\n\r\0", "\u{2028}\u{ffff}\u{fffe}", "é 漢 🙂"] {
            let document = Document::parse("t", quoted(text).as_bytes(), LineEndings::Lf).unwrap();
            assert_eq!(document.decode::<String>().unwrap(), text);
        }
    }
}
