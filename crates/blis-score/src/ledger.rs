//! The ledger: which units of measurement there are, under which identity, and to which of them a published role belongs.
//!
//! A unit is one run of one deployment at one concurrency. Its identifier is the SHA-256 of the canonical JSON of the source's own
//! identifying fields, so that nothing of ours can change it. Roles are drawn per role key outside this repository: the ledger reads a
//! list of them from a path, prints the three lists that may be published, and keeps none.
//!
//! Left out: measured values (the ledger never sees one) and the drawing of roles.
//!
//! Reading order: [`identity`] (identifiers and role keys), [`ingest`] (the unit list and its report), [`roles`].

pub mod identity;
pub mod ingest;
pub mod roles;
