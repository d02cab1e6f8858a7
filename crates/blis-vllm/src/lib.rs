//! The port of vLLM's configuration, lowering, scheduler and KV-cache managers.

pub mod config;
