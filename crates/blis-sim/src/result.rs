//! The Result of a finished run.

use blis_contracts::engine::WaitShares;
use blis_contracts::environment::MemoryBreakdown;
use blis_contracts::fate::Fate;
use blis_contracts::plan::PoolPlan;
use blis_contracts::provenance::{Method, ResolvedSetting};
use blis_contracts::result::{Binds, FrameRecord, Inputs, KvFigures, Limit, PriceProvenance, ResultKind, RunResult, TokenTotals, Versions};
use blis_contracts::scenario::{ExpertRouting, Scenario};
use blis_kernel::PriceTotals;
use blis_vllm::config::{SchedulingPolicy, Setting};
use blis_vllm::startup::KvPool;
use indexmap::IndexMap;

use crate::figures::{Resources, figures};
use crate::outcome::{Ended, Outcome};
use crate::run::Origin;
use crate::shortfall;
use crate::validity::{Case, validity};
use crate::world::World;

/// Share of priced time outside its coefficients' fitted range from which a Result warns.
const EXTRAPOLATION_WARNING: f64 = 0.1;

/// Everything a finished run leaves.
pub(crate) struct Finished {
    pub(crate) outcome: Outcome,
    pub(crate) plan: PoolPlan,
    pub(crate) settings: Vec<ResolvedSetting>,
    pub(crate) notes: Vec<String>,
    pub(crate) memory: MemoryBreakdown,
    pub(crate) kv: KvPool,
    pub(crate) expert_routing: Option<ExpertRouting>,
    pub(crate) usable_blocks: u64,
    pub(crate) prices: PriceTotals,
}

/// Writes the Result.
pub(crate) fn assemble(scenario: &Scenario, origin: &Origin, world: &World, finished: Finished) -> RunResult {
    let pool = scenario.pools[0].name.clone();
    let prices = provenance(&finished.prices);
    let warnings = warnings(&finished, &prices, world);
    let Finished { outcome, plan, settings, notes, kv, expert_routing, usable_blocks, .. } = finished;
    let usd_per_gpu_hour = scenario.cost.map(|cost| cost.usd_per_gpu_hour);
    let resources = Resources { accelerators: plan.layout.ranks(), usable_blocks, usd_per_gpu_hour };
    let tally = &outcome.tally;
    let (steps, binds) = (outcome.recorder.mix(), binds(&outcome.engine.waits));
    let validity = validity(&case(scenario, &plan, &outcome), world.registry.errors().as_deref());
    RunResult {
        kind: ResultKind::Result,
        name: scenario.name.clone(),
        inputs: inputs(scenario, origin, world),
        versions: Versions {
            blis: env!("CARGO_PKG_VERSION").to_owned(),
            engine: format!("{} {}", blis_vllm::KIND, blis_vllm::RELEASE),
            generator: blis_workload::random::GENERATOR.to_owned(),
        },
        frame: frame_record(scenario, expert_routing, &outcome),
        settings: IndexMap::from([(pool.clone(), settings)]),
        substitutions: IndexMap::from([(pool.clone(), notes)]),
        figures: figures(&outcome, &resources),
        fates: Fate::ALL.into_iter().map(|fate| (fate, tally.fates.get(&fate).copied().unwrap_or(0))).collect(),
        refusals: tally.refusals.iter().map(|(reason, count)| (reason.clone(), *count)).collect(),
        tokens: TokenTotals {
            prompt: tally.prompt_tokens,
            prefix_queries: outcome.engine.prefix_queries.get(),
            prefix_hits: outcome.engine.prefix_hits.get(),
            prompt_computed: outcome.engine.prompt_tokens_computed.get(),
            output: tally.output_tokens,
        },
        kv: IndexMap::from([(pool.clone(), kv_figures(&outcome, &kv, usable_blocks, plan.layout.data))]),
        steps: IndexMap::from([(pool.clone(), steps)]),
        series: IndexMap::from([(pool, outcome.recorder.series(usable_blocks))]),
        binds,
        prices,
        validity,
        warnings,
    }
}

/// What the run was, as far as comparing it with measured ones goes.
fn case<'a>(scenario: &Scenario, plan: &'a PoolPlan, outcome: &Outcome) -> Case<'a> {
    let tally = &outcome.tally;
    let sent = tally.total() - tally.fates.get(&Fate::NotStarted).copied().unwrap_or(0);
    Case {
        model: &plan.model,
        chip: &plan.hardware,
        layout: plan.layout,
        replicas: scenario.pools[0].replicas,
        requests: outcome.concurrency,
        prompt_tokens: ratio(tally.prompt_tokens, sent),
        output_tokens: ratio(tally.output_tokens, sent),
    }
}

fn inputs(scenario: &Scenario, origin: &Origin, world: &World) -> Inputs {
    Inputs {
        scenario_sha256: origin.scenario_sha256.clone(),
        seed: scenario.seed,
        edits: origin.edits.clone(),
        trace_sha256: origin.trace_sha256.clone(),
        data: world.origin(),
        catalog_sha256: world.catalog.combined_hash(),
        registry_sha256: world.registry.combined_hash(),
        overlays_sha256: world.catalog.overlay_hashes().iter().chain(world.registry.overlay_hashes()).cloned().collect(),
    }
}

fn frame_record(scenario: &Scenario, expert_routing: Option<ExpertRouting>, outcome: &Outcome) -> FrameRecord {
    FrameRecord {
        start: "empty".to_owned(),
        stop: stop(scenario, outcome.ended),
        window_start_s: outcome.window_start.as_seconds(),
        window_end_s: outcome.window_end.as_seconds(),
        expert_routing,
    }
}

/// What ended a run, as its scenario states it.
fn stop(scenario: &Scenario, ended: Ended) -> String {
    let stated = &scenario.frame.stop;
    let rule = match ended {
        Ended::Horizon => stated.horizon_s.map(|seconds| format!("{seconds} s")),
        Ended::Requests => stated.requests.map(|requests| format!("{requests} requests")),
        Ended::Workload => None,
    };
    rule.unwrap_or_else(|| "the workload's end".to_owned())
}

/// Figures over all engine cores, of which each has a pool of its own.
fn kv_figures(outcome: &Outcome, kv: &KvPool, usable_blocks: u64, cores: u32) -> KvFigures {
    let end_us = outcome.end.as_micros() * u64::from(cores);
    KvFigures {
        blocks: kv.blocks * u64::from(cores),
        tokens: kv.capacity_tokens * u64::from(cores),
        cores,
        bytes_per_rank: kv.bytes_per_rank.get(),
        peak_utilisation: ratio(outcome.peak_blocks, usable_blocks),
        preemptions: outcome.engine.preemptions,
        steps: outcome.engine.steps,
        device_busy: ratio(outcome.engine.busy.as_micros(), end_us),
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn binds(waits: &WaitShares) -> Binds {
    let by_limit = [
        (Limit::Step, waits.step),
        (Limit::RunningCap, waits.running_cap),
        (Limit::TokenBudget, waits.token_budget),
        (Limit::KvBlocks, waits.kv_blocks),
    ];
    let total: u64 = by_limit.iter().map(|(_, waited)| waited.as_micros()).sum();
    let limit =
        by_limit.iter().max_by_key(|(_, waited)| waited.as_micros()).filter(|_| total > 0).map_or(Limit::Nothing, |(limit, _)| *limit);
    Binds { limit, shares: by_limit.iter().map(|(limit, waited)| (*limit, ratio(waited.as_micros(), total))).collect() }
}

fn provenance(prices: &PriceTotals) -> PriceProvenance {
    let total: f64 = prices.lines.iter().map(|line| line.ns).sum();
    let outside = prices.lines.iter().filter(|line| line.extrapolated).fold(0.0, |sum, line| sum + line.ns);
    PriceProvenance {
        by_method: prices.by_rank().into_iter().collect(),
        by_primitive: prices.by_primitive().into_iter().map(|(subject, share)| (subject.as_str().to_owned(), share)).collect(),
        extrapolated: if total > 0.0 { outside / total } else { 0.0 },
        least_trusted: prices.least_trusted(),
    }
}

fn warnings(finished: &Finished, prices: &PriceProvenance, world: &World) -> Vec<String> {
    let mut warnings = Vec::new();
    if prices.extrapolated > EXTRAPOLATION_WARNING {
        warnings
            .push(format!("{:.0}% of the priced time lies outside the range its coefficients were fitted on", prices.extrapolated * 100.0));
    }
    let untrusted: f64 = prices.by_method.iter().filter(|(method, _)| **method >= Method::Roofline).map(|(_, share)| share).sum();
    if untrusted > EXTRAPOLATION_WARNING {
        warnings.push(format!(
            "{:.0}% of the priced time rests on data sheets or assumptions, not on measurements of the kernel",
            untrusted * 100.0
        ));
    }
    if finished.memory.unexplained.get() > 0 {
        warnings.push(format!("{} bytes of each rank's memory are not explained by any term", finished.memory.unexplained.get()));
    }
    let positions = || world.catalog.model(&finished.plan.model).map_or(u64::MAX, |graph| graph.max_position_embeddings);
    warnings.extend(shortfall::warnings(&finished.outcome.tally, finished.kv.max_model_len, positions));
    warnings.extend(finished.outcome.growth.map(|growth| growth.warning()));
    warnings.extend(unread_priorities(&finished.outcome.prioritised, &finished.settings));
    warnings
}

/// A warning where clients state priorities and the engine's policy does not look at them.
fn unread_priorities(stated: &[String], settings: &[ResolvedSetting]) -> Option<String> {
    let policy = settings.iter().find(|setting| setting.name == Setting::SchedulingPolicy.key())?;
    let read = policy.value == SchedulingPolicy::Priority.as_str();
    (!stated.is_empty() && !read)
        .then(|| format!("the priority of {} has no effect, because {} is {}", stated.join(", "), policy.name, policy.value))
}
