//! Collects everything wrong with a decoded document, each problem under its path, so that a user sees all of it at once.

use std::fmt::{Debug, Display};

use super::Problem;
use super::node::join_key;

/// The problems found so far, and the path of the value being checked.
#[derive(Debug, Default)]
pub struct Problems {
    found: Vec<Problem>,
    path: String,
}

impl Problems {
    /// No problems, at the document itself.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the value of `key` in the current map.
    pub fn within(&mut self, key: &str, check: impl FnOnce(&mut Self)) {
        self.under(|path| join_key(path, key), check);
    }

    /// Checks each item of the sequence that `key` holds in the current map.
    pub fn each<T>(&mut self, key: &str, items: &[T], mut check: impl FnMut(&mut Self, &T)) {
        for (index, item) in items.iter().enumerate() {
            self.under(|path| format!("{}[{index}]", join_key(path, key)), |problems| check(problems, item));
        }
    }

    /// Refuses the value of `key` in the current map; an empty key is the current value itself.
    pub fn refuse(&mut self, key: &str, message: impl Into<String>) {
        let path = if key.is_empty() { self.path.clone() } else { join_key(&self.path, key) };
        self.found.push(Problem::new(path, message));
    }

    /// Refuses unless `holds`; the message names the requirement and the value found.
    pub fn require(&mut self, key: &str, holds: bool, requirement: impl Display, found: impl Debug) {
        if !holds {
            self.refuse(key, format!("must be {requirement}, found {found:?}"));
        }
    }

    /// Everything found, in the order of the checks.
    pub fn into_vec(self) -> Vec<Problem> {
        self.found
    }

    fn under(&mut self, path: impl FnOnce(&str) -> String, check: impl FnOnce(&mut Self)) {
        let inner = path(&self.path);
        let outer = std::mem::replace(&mut self.path, inner);
        check(self);
        self.path = outer;
    }
}
