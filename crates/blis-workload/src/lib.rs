//! Arrival processes, length models and benchmark clients' exact generators.
