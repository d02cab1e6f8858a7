//! The scenario: one document that says what is deployed, what it is asked to do and what of it is measured.
//!
//! The types are the document, key by key; [`Scenario::load`] reads one strictly and reports everything wrong with it at once.
//! Reading order: [`Scenario`] here, then [`cluster`], [`pool`], [`workload`] with [`arrival`] and [`distribution`],
//! [`expert_routing`], [`frame`], and [`objective`].
//! Left out: names that only the catalog, an engine or a trace can check, and the launch line, which its engine parses. Keys that
//! the document will have once BLIS can act on them are refused with the reason (`reserved`), never read and dropped.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::strict::{Document, DocumentErrors, Problem, Problems};

pub mod arrival;
pub mod cluster;
pub mod distribution;
pub mod expert_routing;
pub mod frame;
pub mod objective;
pub mod pool;
mod reserved;
pub mod workload;

#[cfg(test)]
mod tests;

pub use arrival::{Arrival, ClosedLoop, Diurnal, Drain, Phase, Phases, Profile, Rate, Spike, VariedRate};
pub use cluster::{Cluster, ClusterGroups, Group, Packaging, SingleGroup};
pub use distribution::{CountDistribution, EmpiricalCount, TimeDistribution};
pub use expert_routing::ExpertRouting;
pub use frame::{Frame, Measure, StartState, Stop};
pub use objective::{Cost, DEFAULT_CLASS, Objective};
pub use pool::{Pool, Role};
pub use workload::{
    BenchmarkClient, Client, Clients, Context, Inferencex, PairOrder, PairedLengths, Prefix, Sessions, TimeUnit, TraceFormat,
    TraceWorkload, Workload,
};

/// The most requests one run may generate.
pub const MAX_REQUESTS: u64 = 1_000_000_000;

/// The longest time a document may state, in seconds: about thirty years, far below the end of simulated time.
pub const MAX_SECONDS: f64 = 1e9;

/// A scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Always `Scenario`.
    pub kind: ScenarioKind,
    /// What the scenario is called in results.
    pub name: String,
    /// The seed of every random draw.
    pub seed: u64,
    /// The model served, by catalog name; a pool may state its own.
    pub model: String,
    /// The engine that serves it; a pool may state its own.
    pub engine: EngineChoice,
    /// The machines.
    pub cluster: Cluster,
    /// The deployments on them.
    pub pools: Vec<Pool>,
    /// Who sends requests.
    pub workload: Workload,
    /// How its tokens spread over experts, where the model has some; [`ExpertRouting::ASSUMED`] where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expert_routing: Option<ExpertRouting>,
    /// What is measured of the run, and when it ends.
    pub frame: Frame,
    /// The latencies that requests are judged by, by service class (`default` where a client states none).
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub objectives: IndexMap<String, Objective>,
    /// What the machines cost; without it no figure is in dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// The document's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ScenarioKind {
    /// A scenario.
    Scenario,
}

/// An engine and the release its settings are written for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EngineChoice {
    /// The engine's name.
    pub kind: String,
    /// The upstream release to simulate. Only the modelled release is accepted, which is also what leaving it out means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The upstream release whose spellings the settings use, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_for: Option<String>,
}

impl Scenario {
    /// Reads a scenario from a document, edits applied, with every problem at its place.
    pub fn load(document: &Document) -> Result<Self, DocumentErrors> {
        let reserved = reserved::find(document.root());
        if !reserved.is_empty() {
            return Err(document.locate_all(reserved));
        }
        let scenario: Self = document.decode()?;
        let problems = scenario.validate();
        if problems.is_empty() { Ok(scenario) } else { Err(document.locate_all(problems)) }
    }

    /// Everything wrong with the scenario that the document alone can show.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Problems::new();
        require_text(&mut problems, "name", &self.name);
        require_text(&mut problems, "model", &self.model);
        problems.within("engine", |problems| self.engine.validate(problems));
        problems.within("cluster", |problems| self.cluster.validate(problems));
        pool::validate_all(&mut problems, &self.pools, &self.cluster);
        problems.within("workload", |problems| self.workload.validate(problems));
        if let Some(routing) = self.expert_routing {
            problems.within("expert_routing", |problems| routing.validate(problems));
        }
        problems.within("frame", |problems| self.frame.validate(problems));
        objective::validate_all(&mut problems, &self.objectives, &self.workload);
        if let Some(cost) = &self.cost {
            problems.within("cost", |problems| cost.validate(problems));
        }
        self.validate_extent(&mut problems);
        problems.into_vec()
    }

    /// The model a pool serves, by catalog name.
    pub fn model_of<'a>(&'a self, pool: &'a Pool) -> &'a str {
        pool.model.as_deref().unwrap_or(&self.model)
    }

    /// The engine of a pool.
    pub fn engine_of<'a>(&'a self, pool: &'a Pool) -> &'a EngineChoice {
        pool.engine.as_ref().unwrap_or(&self.engine)
    }

    /// The group of machines a pool runs on; none when the scenario would not validate.
    pub fn group_of(&self, pool: &Pool) -> Option<Group> {
        let mut groups = self.cluster.groups();
        let index = match &pool.on {
            Some(name) => groups.iter().position(|group| group.name == *name)?,
            None if groups.len() == 1 => 0,
            None => return None,
        };
        Some(groups.swap_remove(index))
    }

    /// Checks that the stop rule ends the workload within [`MAX_REQUESTS`], and that it agrees with the number the workload draws.
    fn validate_extent(&self, problems: &mut Problems) {
        let stop = &self.frame.stop;
        if stop.requests.is_none() && stop.horizon_s.is_none() && !self.workload.ends() && !self.draws_for_the_run() {
            problems.within("frame", |problems| {
                problems.refuse("stop", "has neither `requests` nor `horizon_s`; a run needs an end");
            });
        }
        match &self.workload {
            Workload::Trace(_) => {}
            Workload::Clients(workload) => {
                let Some(horizon) = stop.horizon_s.filter(|_| stop.requests.is_none()) else { return };
                let sent: f64 = workload.clients.iter().map(|client| client.expected(horizon)).sum();
                if sent > MAX_REQUESTS as f64 {
                    let message = format!("{horizon} s let the clients send about {sent:.1e} requests; a run has at most {MAX_REQUESTS}");
                    problems.within("frame.stop", |problems| problems.refuse("horizon_s", message));
                }
            }
            Workload::Benchmark(BenchmarkClient::Inferencex(client)) => match (client.num_prompts, stop.requests) {
                (None, None) => problems.within("frame.stop", |problems| {
                    problems.refuse("requests", "is missing; the client draws its lengths for a stated number of requests");
                }),
                (Some(drawn), Some(requests)) if requests > drawn => problems.within("frame.stop", |problems| {
                    problems.require("requests", false, format!("at most workload.num_prompts ({drawn})"), requests);
                }),
                (Some(_), _) | (None, Some(_)) => {}
            },
        }
    }
}

impl Scenario {
    /// Whether the workload is a benchmark client that needs the number of requests, which has a message of its own.
    fn draws_for_the_run(&self) -> bool {
        matches!(&self.workload, Workload::Benchmark(BenchmarkClient::Inferencex(client)) if client.num_prompts.is_none())
    }
}

impl EngineChoice {
    fn validate(&self, problems: &mut Problems) {
        require_text(problems, "kind", &self.kind);
        for (key, release) in [("version", &self.version), ("written_for", &self.written_for)] {
            if let Some(release) = release {
                require_text(problems, key, release);
            }
        }
    }
}

/// Names and texts have at least one character that is not a space, and stand on one line.
fn require_text(problems: &mut Problems, key: &str, text: &str) {
    let holds = !text.trim().is_empty() && !text.contains(['\n', '\r']);
    problems.require(key, holds, "text on one line", text);
}

/// Requires that the names of a sequence's items differ.
fn require_distinct<'a>(problems: &mut Problems, list: &str, key: &str, names: impl Iterator<Item = &'a str>) {
    let mut seen: IndexMap<&str, usize> = IndexMap::new();
    for (index, name) in names.enumerate() {
        if let Some(first) = seen.insert(name, index) {
            problems.refuse(&format!("{list}[{index}].{key}"), format!("`{name}` is already the {key} of {list}[{first}]"));
        }
    }
}
