//! Coefficient sets with provenance, and the lookup that ranks them by trust.
