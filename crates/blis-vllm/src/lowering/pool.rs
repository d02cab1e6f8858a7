//! The plan as a whole: layout, graphs, host, front end and the step that start-up profiles.
//!
//! upstream: vllm `v1/worker/gpu/model_runner.py::GPUModelRunner.profile_run`, `v1/executor/abstract.py::Executor.get_class`
//! upstream: vllm `v1/worker/gpu/cudagraph_utils.py::CudaGraphManager`
//!
//! Left out: the encoders' part of what start-up profiles, their largest inputs, which may take more memory than the step that follows:
//! `--language-model-only` leaves it out upstream too.

use std::ops::Range;

use blis_contracts::plan::{FrontEndPlan, GraphPolicy, HostPlan, LoweredLayer, PoolPlan, RowSet};
use blis_contracts::step::{Launch, PrefillRow, RankStep, StepShape};
use blis_contracts::units::Blocks;

use super::site::Site;
use super::{LoweringError, buffers, compressed, gemma4, kv, pass, selected, stages, weights};
use crate::config::CudagraphMode;

pub(super) fn plan(site: &Site<'_>) -> Result<PoolPlan, LoweringError> {
    let (kv, group_of) = kv::groups(site)?;
    let layers = if compressed::applies(site) {
        compressed::layers(site)?
    } else if site.is_gemma4() {
        gemma4::layers(site, &group_of)?
    } else {
        pass::layers(site, &group_of)?
    };
    let scheduler = &site.resolved.scheduler;
    Ok(PoolPlan {
        hardware: site.chip.name.clone(),
        fabric: String::new(),
        model: site.model.name.clone(),
        layout: site.layout(),
        graphs: graphs(site, &layers),
        layers,
        dense_prompts: selected::dense_prompts(site),
        buffers: buffers::list(site),
        kv,
        kv_budget: Vec::new(),
        kv_blocks: Blocks::ZERO,
        // One process where there is one rank, else one worker process for each.
        host: HostPlan {
            overlapped: scheduler.async_scheduling,
            workers: if site.ranks * site.stages > 1 { site.ranks * site.stages } else { 0 },
        },
        front_end: FrontEndPlan {
            stream_interval: count(scheduler.stream_interval),
            processes: site.resolved.api_server_count,
            tokenises: true,
            detokenises: true,
        },
        weights: weights::resident(site, 0)?,
        profiling: profiling(site),
        in_flight: scheduler.max_concurrent_batches,
    })
}

/// Which token counts replay a graph: pure decodes by the mode's first half, everything else by its second.
fn graphs(site: &Site<'_>, layers: &[LoweredLayer]) -> GraphPolicy {
    let compilation = &site.resolved.compilation;
    let sizes: Vec<u32> = compilation.cudagraph_capture_sizes.iter().map(|&size| count(size)).collect();
    let (decode, mixed) = (compilation.cudagraph_mode.decode(), compilation.cudagraph_mode.mixed());
    let with = |mode: CudagraphMode| if decode == mode || mixed == mode { sizes.clone() } else { Vec::new() };
    let mut full = with(CudagraphMode::Full);
    // Where prompts have graphs of their own, a graph of the whole pass serves decodes alone: one token of each request.
    if decode != mixed {
        full.retain(|&size| u64::from(size) <= site.resolved.scheduler.max_num_seqs);
    }
    // A pass is cut at every attention call.
    let stack = stages::layers(site).iter().map(Range::len).max().unwrap_or(0);
    let pieces = if compilation.splits_at_attention { stack + 1 } else { 1 };
    // Of the passes whose prompts attend in one way.
    let layers = || layers.iter().filter(|layer| !layer.part.needs_dense_prompts());
    let launched = |layer: &&LoweredLayer| layer.runs_for.contains(u32::MAX);
    // Prompts and decodes of a layer are one call each, and an eager pass rarely has both.
    let attention_calls = layers().filter(|layer| layer.rows == RowSet::Requests).count();
    // What stands around attention over decodes or over cached tokens is not counted: an eager pass is mostly one of prompts.
    let around = |layer: &&LoweredLayer| !matches!(layer.rows, RowSet::Decodes | RowSet::Cached);
    GraphPolicy {
        full,
        piecewise: with(CudagraphMode::Piecewise),
        pieces: count(pieces as u64),
        // Of one stage, as the others are alike.
        eager_launches: count((layers().filter(launched).filter(around).count() - attention_calls / 2) as u64).div_ceil(site.stages),
    }
}

/// As many requests as may run at once share a full step of prompt tokens, and each is sampled once; on every core in lockstep.
fn profiling(site: &Site<'_>) -> StepShape {
    let tokens = count(site.resolved.scheduler.max_num_batched_tokens);
    let requests = count(site.resolved.scheduler.max_num_seqs).min(tokens);
    let query = tokens / requests;
    let mut prefill = vec![PrefillRow { query, context: 0 }; requests as usize];
    if let Some(last) = prefill.last_mut() {
        last.query += tokens % requests;
    }
    let rank = RankStep { decode: Vec::new(), prefill, sampled: requests, padded_tokens: tokens, launch: Launch::Eager };
    StepShape { ranks: vec![rank; site.cores as usize], stage: 0 }
}

fn count(value: u64) -> u32 {
    u32::try_from(value).expect("start-up has refused settings of 2^32 and more")
}
