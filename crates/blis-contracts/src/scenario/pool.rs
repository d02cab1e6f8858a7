//! The deployments of a scenario: which engine configuration runs where, and how often.
//!
//! The launch line, the settings and the environment are the engine's own and are carried as written; its crate reads them.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cluster, EngineChoice, require_distinct, require_text};
use crate::strict::{Problems, did_you_mean};

/// A pool: equal instances of one engine configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// What results call it.
    pub name: String,
    /// Which part of a request's work it does.
    pub role: Role,
    /// The group of machines it runs on; may be left out when the cluster has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// How many instances.
    pub replicas: u32,
    /// The engine's launch line, exactly as its user has it. A pool has this or `args`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The engine's settings under upstream's field names. A pool has this or `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<IndexMap<String, serde_json::Value>>,
    /// Environment variables of the engine's process; none where left out.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub env: IndexMap<String, String>,
    /// The model it serves, where that is not the scenario's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its engine, where that is not the scenario's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineChoice>,
}

/// Which part of a request's work a pool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Prompt and output.
    Both,
    /// The prompt alone; another pool generates the output.
    Prefill,
    /// The output alone; another pool computed the prompt.
    Decode,
}

pub(super) fn validate_all(problems: &mut Problems, pools: &[Pool], cluster: &Cluster) {
    match pools.len() {
        1 => {}
        0 => problems.refuse("pools", "must have one pool"),
        several => problems.refuse("pools", format!("{several} pools need a router, which is not simulated yet; keep one pool")),
    }
    problems.each("pools", pools, |problems, pool| pool.validate(problems, cluster));
    require_distinct(problems, "pools", "name", pools.iter().map(|pool| pool.name.as_str()));
}

impl Pool {
    fn validate(&self, problems: &mut Problems, cluster: &Cluster) {
        require_text(problems, "name", &self.name);
        match self.role {
            Role::Both => {}
            Role::Prefill => problems.refuse("role", "`prefill` is not simulated yet: prompts and outputs run in one pool; write `both`"),
            Role::Decode => problems.refuse("role", "`decode` is not simulated yet: prompts and outputs run in one pool; write `both`"),
        }
        match self.replicas {
            1 => {}
            0 => problems.refuse("replicas", "must be 1, found 0"),
            several => problems.refuse("replicas", format!("{several} replicas need a router, which is not simulated yet; write 1")),
        }
        self.validate_group(problems, cluster);
        match (&self.command, &self.args) {
            (Some(command), None) => problems.require("command", !command.trim().is_empty(), "the engine's launch line", command),
            (None, Some(_)) => {}
            (None, None) => problems.refuse("", "has neither `command` nor `args`; state the engine's launch line or its settings"),
            (Some(_), Some(_)) => problems.refuse("args", "excludes `command`; keep one of them"),
        }
        for name in self.env.keys() {
            let holds = !name.is_empty() && !name.contains(['=', ' ', '\t', '\n', '\r']);
            problems.within("env", |problems| problems.require(name, holds, "named by a word without spaces or `=`", name));
        }
        if let Some(model) = &self.model {
            require_text(problems, "model", model);
        }
        if let Some(engine) = &self.engine {
            problems.within("engine", |problems| engine.validate(problems));
        }
    }

    fn validate_group(&self, problems: &mut Problems, cluster: &Cluster) {
        let groups = cluster.groups();
        let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        match &self.on {
            Some(on) if !names.contains(&on.as_str()) => {
                let hint = did_you_mean(on, &names).map(|hint| format!("; {hint}")).unwrap_or_default();
                problems.refuse("on", format!("the cluster has no group `{on}`{hint}"));
            }
            None if names.len() > 1 => problems.refuse("", format!("`on` is missing; the groups are {}", names.join(", "))),
            Some(_) | None => {}
        }
    }
}
