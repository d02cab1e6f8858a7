//! The command line as a user meets it: exit code, stdout and stderr of the built program.
//!
//! Snapshots hold the three; what depends on the data (hashes, figures) is filtered or asserted apart.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod bad_documents;
mod bad_launches;
mod documents;
mod hard_runs;
mod harness;
mod look_ups;
mod runs;
mod scoring;
mod traces;
