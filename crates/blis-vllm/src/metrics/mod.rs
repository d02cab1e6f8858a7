//! What the front end counts of its requests: upstream's own Prometheus series, from what the engine cores tell it.
//!
//! upstream: vllm `v1/metrics/loggers.py::PrometheusStatLogger`, `v1/metrics/stats.py`, `v1/engine/output_processor.py::OutputProcessor`
//!
//! Reading order: [`front_end`] (what is known of a request, and what a message adds up to), [`logger`] (the series), [`buckets`],
//! [`text`] (how a scrape reads). Times are seconds as doubles, added up in upstream's order, so that sums agree to the last bit.
//!
//! Left out: series of what is refused elsewhere (KV transfer, offloading, multimodal caches, the model's own flops), which stand at
//! zero where upstream prints them all the same, and the labels of `vllm:cache_config_info`.

mod buckets;
pub mod front_end;
pub mod logger;
mod text;
