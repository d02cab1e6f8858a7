//! Reading `config.json` so that no key is overlooked: every key is asked for, known to be without effect on the model's shape, or refused.

use std::cell::RefCell;

use super::DeriveError;
use crate::tree::Tree;

/// The keys of one object, with a note of those that were asked for.
pub(crate) struct Keys<'a> {
    file: &'a str,
    path: String,
    entries: &'a [(String, Tree)],
    asked: RefCell<Vec<&'static str>>,
}

impl<'a> Keys<'a> {
    /// The keys of an object at `path` in `file`.
    pub(crate) fn of(file: &'a str, path: &str, tree: &'a Tree) -> Result<Self, DeriveError> {
        let entries = tree.as_map().ok_or_else(|| DeriveError::value(file, path, tree, "an object"))?;
        Ok(Self { file, path: path.to_owned(), entries, asked: RefCell::default() })
    }

    /// The value of a key; `null` counts as absent.
    pub(crate) fn any(&self, key: &'static str) -> Option<&'a Tree> {
        self.asked.borrow_mut().push(key);
        self.entries.iter().find(|(name, _)| name == key).map(|(_, value)| value).filter(|value| **value != Tree::Null)
    }

    /// A positive integer, where the key is there.
    pub(crate) fn natural(&self, key: &'static str) -> Result<Option<u64>, DeriveError> {
        match self.any(key) {
            None => Ok(None),
            Some(Tree::Natural(value)) if *value > 0 && *value <= 1 << 40 => Ok(Some(*value)),
            Some(other) => Err(self.wrong(key, other, "a positive integer")),
        }
    }

    /// As [`Self::natural`], within 32 bits.
    pub(crate) fn small(&self, key: &'static str) -> Result<Option<u32>, DeriveError> {
        match self.natural(key)? {
            None => Ok(None),
            Some(value) => match u32::try_from(value) {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(self.wrong(key, &Tree::Natural(value), "an integer below 2^32")),
            },
        }
    }

    /// `true` or `false`, where the key is there.
    pub(crate) fn flag(&self, key: &'static str) -> Result<Option<bool>, DeriveError> {
        match self.any(key) {
            None => Ok(None),
            Some(Tree::Flag(value)) => Ok(Some(*value)),
            Some(other) => Err(self.wrong(key, other, "true or false")),
        }
    }

    /// A string, where the key is there.
    pub(crate) fn text(&self, key: &'static str) -> Result<Option<&'a str>, DeriveError> {
        match self.any(key) {
            None => Ok(None),
            Some(Tree::Text(value)) => Ok(Some(value)),
            Some(other) => Err(self.wrong(key, other, "a string")),
        }
    }

    /// A list of strings; empty where the key is absent.
    pub(crate) fn texts(&self, key: &'static str) -> Result<Vec<&'a str>, DeriveError> {
        let Some(value) = self.any(key) else { return Ok(Vec::new()) };
        let texts: Option<Vec<&str>> = value.as_sequence().and_then(|items| items.iter().map(Tree::as_text).collect());
        texts.ok_or_else(|| self.wrong(key, value, "a list of strings"))
    }

    /// Insists on a key.
    pub(crate) fn required<T>(&self, key: &'static str, value: Option<T>) -> Result<T, DeriveError> {
        value.ok_or_else(|| DeriveError::Missing { file: self.file.to_owned(), path: self.path_of(key) })
    }

    /// An error about the value of a key.
    pub(crate) fn wrong(&self, key: &str, value: &Tree, expected: &str) -> DeriveError {
        DeriveError::value(self.file, &self.path_of(key), value, expected)
    }

    /// Refuses every key that was neither asked for nor stands on the list of keys without effect, unless it says nothing.
    pub(crate) fn refuse_others(&self, without_effect: &[&str]) -> Result<(), DeriveError> {
        let asked = self.asked.borrow();
        let known = |name: &str| asked.contains(&name) || without_effect.contains(&name);
        match self.entries.iter().find(|(name, value)| !known(name) && *value != Tree::Null) {
            None => Ok(()),
            Some((name, value)) => {
                Err(DeriveError::UnknownKey { file: self.file.to_owned(), path: self.path_of(name), value: value.to_string() })
            }
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}
