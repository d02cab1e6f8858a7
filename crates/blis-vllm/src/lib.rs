//! The port of vLLM's configuration, lowering, scheduler and KV-cache managers.
//!
//! A port, not an imitation: each decision is upstream's, taken in upstream's order, and compared with traces recorded from upstream's
//! own code. The modelled release is stated in `upstream.toml` and nowhere else. Reading order: [`config`], then the engine core:
//! [`request`], [`kv`], [`sched`].

pub mod config;

pub mod kv;
pub mod request;
pub mod sched;
