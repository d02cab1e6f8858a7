//! The port of vLLM's configuration, lowering, scheduler and KV-cache managers.
//!
//! A port, not an imitation: each decision is upstream's, taken in upstream's order, and compared with traces recorded from upstream's
//! own code. The modelled release is stated in `upstream.toml` and nowhere else. Reading order: [`config`], then the engine core:
//! [`request`], [`kv`], [`sched`], [`kv_sizing`], [`cudagraph`], [`lowering`], [`engine`], [`startup`], and [`trace`],
//! which shows it at work.

pub mod config;

pub mod cudagraph;
mod divisors;
pub mod engine;
pub mod kv;
pub mod kv_sizing;
pub mod lowering;
pub mod metrics;
pub mod request;
pub mod sched;
pub mod startup;
pub mod surface;
pub mod trace;

/// The engine's name in scenarios.
pub const KIND: &str = "vllm";

/// The upstream release this crate models.
pub const RELEASE: &str = env!("UPSTREAM_RELEASE");
