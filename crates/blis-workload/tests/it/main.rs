//! Sources built from workload documents, driven as the simulator drives them.

mod clients;
mod numpy;
