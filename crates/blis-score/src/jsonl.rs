//! Files of one JSON object per line, read strictly: every complaint names the file and the line.
//!
//! A repeated key, a key no type knows, a number that is no number, an empty line and a line cut short are all refused.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use sha2::{Digest, Sha256};

/// A file that cannot be used as it is.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file itself.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// One of its lines.
    #[error("{}:{line}: {message}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What is wrong, and what would be right.
        message: String,
    },
}

/// The text of a file with the name that complaints give it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    path: PathBuf,
    text: String,
}

/// A value with the line it stands on, from 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Numbered<T> {
    pub(crate) line: usize,
    pub(crate) value: T,
}

impl Input {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        let text = std::fs::read_to_string(path).map_err(|error| InputError::File { path: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// Text that has already been read, under a name.
    pub fn of(name: &str, text: impl Into<String>) -> Self {
        Self { path: PathBuf::from(name), text: text.into() }
    }

    /// The text as it was read.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The last part of its path.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().map_or_else(|| self.path.display().to_string(), |name| name.to_string_lossy().into_owned())
    }

    /// SHA-256 of its bytes, in hexadecimal.
    pub(crate) fn sha256(&self) -> String {
        hex(&Sha256::digest(self.text.as_bytes()))
    }

    /// A complaint about one of its lines.
    pub(crate) fn at(&self, line: usize, message: impl Into<String>) -> InputError {
        InputError::Line { path: self.path.clone(), line, message: message.into() }
    }

    /// The whole text as one document.
    pub(crate) fn document<T: DeserializeOwned>(&self) -> Result<T, InputError> {
        serde_json::from_str(&self.text).map_err(|error| self.at(error.line().max(1), plain(&error)))
    }

    /// Every line as a value; `what` names what a line should be.
    pub(crate) fn lines<T: DeserializeOwned>(&self, what: &str) -> Result<Vec<Numbered<T>>, InputError> {
        let count = self.text.lines().count();
        let mut values = Vec::with_capacity(count);
        for (index, text) in self.text.lines().enumerate() {
            let line = index + 1;
            let value = serde_json::from_str(text).map_err(|error| {
                let cut = error.is_eof() && line == count && !text.is_empty() && !self.text.ends_with('\n');
                let message = if cut {
                    "the last line is cut short: the file was not written to its end".to_owned()
                } else {
                    complaint(what, text, &error)
                };
                self.at(line, message)
            })?;
            values.push(Numbered { line, value });
        }
        if values.is_empty() {
            return Err(self.at(1, "the file is empty"));
        }
        Ok(values)
    }
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("text takes anything");
        text
    })
}

/// What is wrong with a line, in the words of what it tried to say where that helps.
fn complaint(what: &str, text: &str, error: &serde_json::Error) -> String {
    if text.trim().is_empty() {
        return "an empty line; every line is one object".to_owned();
    }
    let rest = error.column().checked_sub(1).and_then(|at| text.get(at..)).unwrap_or_default();
    let word = ["NaN", "Infinity", "-Infinity", "nan", "inf", "-inf"].into_iter().find(|word| rest.starts_with(word));
    match word {
        Some(word) => format!("`{word}` at column {} is no number; leave out what was not measured", error.column()),
        None if error.is_data() => format!("not {what}: {}", plain(error)),
        None => plain(error),
    }
}

/// The library's message with its position as a column, since the line is named already.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
    format!("{message} (column {})", error.column())
}

/// A map that refuses a key stated twice, ordered by key.
pub(crate) fn unique_keys<'de, D, K, V>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord + fmt::Display,
    V: Deserialize<'de>,
{
    struct Unique<K, V>(PhantomData<(K, V)>);
    impl<'de, K: Deserialize<'de> + Ord + fmt::Display, V: Deserialize<'de>> Visitor<'de> for Unique<K, V> {
        type Value = BTreeMap<K, V>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some(key) = access.next_key::<K>()? {
                if map.contains_key(&key) {
                    return Err(A::Error::custom(format!("`{key}` is stated twice")));
                }
                map.insert(key, access.next_value()?);
            }
            Ok(map)
        }
    }
    deserializer.deserialize_map(Unique(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Row {
        #[serde(deserialize_with = "unique_keys")]
        values: BTreeMap<u32, f64>,
    }

    fn check(text: &str, expect: &str) {
        let error = Input::of("m.jsonl", text).lines::<Row>("a row").unwrap_err().to_string();
        assert_eq!(error, expect);
    }

    #[test]
    fn every_complaint_names_the_line() {
        let good = "{\"values\":{\"4\":1.5}}\n";
        check(
            &format!("{good}{{\"values\":{{\"4\":NaN}}}}\n"),
            "m.jsonl:2: `NaN` at column 16 is no number; leave out what was not measured",
        );
        check(&format!("{good}{{\"values\":{{\"4\":1,\"4\":2}}}}\n"), "m.jsonl:2: not a row: `4` is stated twice (column 20)");
        check(&format!("{good}{{\"value\":{{}}}}\n"), "m.jsonl:2: not a row: unknown field `value`, expected `values` (column 8)");
        check(&format!("{good}\n{good}"), "m.jsonl:2: an empty line; every line is one object");
        check(&format!("{good}{{\"values\":{{\"4\":1"), "m.jsonl:2: the last line is cut short: the file was not written to its end");
        check("", "m.jsonl:1: the file is empty");
    }

    #[test]
    fn a_whole_last_line_needs_no_line_end() {
        let rows = Input::of("m.jsonl", "{\"values\":{\"4\":1.5}}").lines::<Row>("a row").unwrap();
        assert_eq!((rows[0].line, rows[0].value.values[&4]), (1, 1.5));
    }
}
