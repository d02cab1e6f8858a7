//! Names by number, in order of their first use.

use std::collections::BTreeMap;

/// Names and their numbers.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    names: Vec<String>,
    numbers: BTreeMap<String, u32>,
}

impl Interner {
    /// Starts with names already in order.
    pub(crate) fn with(names: impl IntoIterator<Item = String>) -> Self {
        let mut interner = Self::default();
        for name in names {
            interner.number(&name);
        }
        interner
    }

    /// The number of a name, a new one where it has none yet.
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).expect("a trace has fewer than 2^32 names");
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// The names, by number.
    pub(crate) fn into_names(self) -> Vec<String> {
        self.names
    }
}
