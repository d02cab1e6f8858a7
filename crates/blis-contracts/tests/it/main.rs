//! Integration tests of the contracts: the corpus of malformed documents, and properties of strict loading.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod properties;
