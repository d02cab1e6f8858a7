//! An ordered tree of JSON values: what vendor files are read into, and what the graph writer prints.
//!
//! Vendor files hold what the strict YAML loader rightly refuses (nulls, numbers of any spelling), so they are read here as plain
//! JSON. Keys keep their order and a duplicate key is refused. Left out: spans; an error names the path of the key instead.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// One JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tree {
    /// `null`.
    Null,
    /// `true` or `false`.
    Flag(bool),
    /// A non-negative integer.
    Natural(u64),
    /// Any other number.
    Real(f64),
    /// A string.
    Text(String),
    /// An array.
    Sequence(Vec<Tree>),
    /// An object, in the order written.
    Map(Vec<(String, Tree)>),
}

impl Tree {
    /// Parses JSON text. Bounds without an end, which Python writes as a bare `Infinity`, are read as text.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(&quoted_infinities(text))
    }

    /// The value of a key, where this is a map that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.as_map()?.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The text of a string.
    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The value of a non-negative integer.
    pub(crate) fn as_natural(&self) -> Option<u64> {
        if let Self::Natural(value) = self { Some(*value) } else { None }
    }

    /// The value of any number.
    pub(crate) fn as_number(&self) -> Option<f64> {
        if let Self::Real(value) = self { Some(*value) } else { self.as_natural().map(|value| value as f64) }
    }

    /// The items of an array.
    pub(crate) fn as_sequence(&self) -> Option<&[Self]> {
        if let Self::Sequence(items) = self { Some(items) } else { None }
    }

    /// The entries of an object.
    pub(crate) fn as_map(&self) -> Option<&[(String, Self)]> {
        if let Self::Map(entries) = self { Some(entries) } else { None }
    }

    /// Whether this is a value with nothing inside it.
    pub(crate) fn is_scalar(&self) -> bool {
        !matches!(self, Self::Sequence(_) | Self::Map(_))
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Flag(value) => write!(f, "{value}"),
            Self::Natural(value) => write!(f, "{value}"),
            Self::Real(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "\"{value}\""),
            Self::Sequence(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Map(entries) => {
                f.write_str("{")?;
                for (index, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{key}: {value}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Flag(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Natural(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(u64::try_from(value).map_or(Tree::Real(value as f64), Tree::Natural))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Real(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut sequence = Vec::new();
        while let Some(item) = items.next_element()? {
            sequence.push(item);
        }
        Ok(Tree::Sequence(sequence))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut map: Vec<(String, Tree)> = Vec::new();
        while let Some((key, value)) = entries.next_entry::<String, Tree>()? {
            if map.iter().any(|(name, _)| *name == key) {
                return Err(A::Error::custom(format!("duplicate key `{key}`")));
            }
            map.push((key, value));
        }
        Ok(Tree::Map(map))
    }
}

/// The text with quotes around every `Infinity` that stands outside a string.
fn quoted_infinities(text: &[u8]) -> Cow<'_, [u8]> {
    const WORD: &[u8] = b"Infinity";
    if !text.windows(WORD.len()).any(|window| window == WORD) {
        return Cow::Borrowed(text);
    }
    let (mut quoted, mut at, mut inside) = (Vec::with_capacity(text.len() + 2), 0, false);
    while at < text.len() {
        let word = !inside && text[at..].starts_with(WORD);
        let taken = if word { WORD.len() } else { usize::from(inside && text[at] == b'\\') + 1 };
        let piece = &text[at..text.len().min(at + taken)];
        if word {
            quoted.push(b'"');
        }
        quoted.extend_from_slice(piece);
        if word {
            quoted.push(b'"');
        }
        inside ^= piece == b"\"";
        at += taken;
    }
    Cow::Owned(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_bound_is_text_and_a_string_that_names_one_stays_as_it_is() {
        let tree = Tree::parse(br#"{"limit": [0.0, Infinity], "name": "a \" Infinity"}"#).unwrap();
        assert_eq!(tree.get("limit"), Some(&Tree::Sequence(vec![Tree::Real(0.0), Tree::Text("Infinity".to_owned())])));
        assert_eq!(tree.get("name"), Some(&Tree::Text("a \" Infinity".to_owned())));
        assert!(Tree::parse(br#"{"limit": Endless}"#).is_err());
    }
}
