//! The machines of a scenario.
//!
//! Left out: storage and host memory, which nothing prices yet (`reserved` names their keys).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{require_distinct, require_text};
use crate::chip::Chip;
use crate::strict::{Problem, Problems};
use crate::tagged_enum;

/// The most nodes of one group.
const MAX_NODES: u32 = 1_000_000;

tagged_enum! {
    /// The cluster: one group of machines in short form, or several with names.
    pub enum Cluster by key {
        /// One group.
        Single(SingleGroup) = "hardware",
        /// Named groups.
        Groups(ClusterGroups) = "groups",
    }
}

/// A cluster of one kind of machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SingleGroup {
    /// The chip, by catalog name.
    pub hardware: String,
    /// How many nodes.
    pub nodes: u32,
    /// Chips of one node; the chip's catalog entry fixes it, and it may be restated, not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_per_node: Option<u32>,
    /// The network between nodes, by catalog name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<String>,
}

/// A cluster of several groups of machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterGroups {
    /// The groups.
    pub groups: Vec<Group>,
    /// The network between nodes, by catalog name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<String>,
}

/// A group of equal machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// What pools call it.
    pub name: String,
    /// The chip, by catalog name.
    pub hardware: String,
    /// How many nodes.
    pub nodes: u32,
    /// Chips of one node; the chip's catalog entry fixes it, and it may be restated, not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_per_node: Option<u32>,
}

/// The chips of a group, once its chip is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packaging {
    /// How many nodes.
    pub nodes: u32,
    /// Chips of one node.
    pub gpus_per_node: u32,
}

impl Packaging {
    /// Chips of the whole group.
    pub fn gpus(self) -> u64 {
        u64::from(self.nodes) * u64::from(self.gpus_per_node)
    }
}

impl Cluster {
    /// The groups; the short form is one group named after its hardware.
    pub fn groups(&self) -> Vec<Group> {
        match self {
            Self::Single(SingleGroup { hardware, nodes, gpus_per_node, fabric: _ }) => {
                vec![Group { name: hardware.clone(), hardware: hardware.clone(), nodes: *nodes, gpus_per_node: *gpus_per_node }]
            }
            Self::Groups(cluster) => cluster.groups.clone(),
        }
    }

    /// The network between nodes, by catalog name, where the scenario names one.
    pub fn fabric(&self) -> Option<&str> {
        match self {
            Self::Single(group) => group.fabric.as_deref(),
            Self::Groups(cluster) => cluster.fabric.as_deref(),
        }
    }

    /// The path, in the scenario, of the group with this name.
    pub fn path_of(&self, name: &str) -> String {
        match self {
            Self::Single(_) => "cluster".to_owned(),
            Self::Groups(cluster) => match cluster.groups.iter().position(|group| group.name == name) {
                Some(index) => format!("cluster.groups[{index}]"),
                None => "cluster.groups".to_owned(),
            },
        }
    }

    pub(super) fn validate(&self, problems: &mut Problems) {
        if let Some(fabric) = self.fabric() {
            require_text(problems, "fabric", fabric);
        }
        match self {
            Self::Single(_) => self.groups().iter().for_each(|group| group.validate(problems)),
            Self::Groups(cluster) => {
                if cluster.groups.is_empty() {
                    problems.refuse("groups", "must have at least one group");
                }
                problems.each("groups", &cluster.groups, |problems, group| {
                    require_text(problems, "name", &group.name);
                    group.validate(problems);
                });
                require_distinct(problems, "groups", "name", cluster.groups.iter().map(|group| group.name.as_str()));
            }
        }
    }
}

impl Group {
    /// The group's packaging on its chip; `path` is where the scenario states the group ([`Cluster::path_of`]).
    pub fn packaging(&self, chip: &Chip, path: &str) -> Result<Packaging, Problem> {
        let fixed = chip.gpus_per_node.value;
        match self.gpus_per_node {
            Some(stated) if stated != fixed => {
                let message = format!("must be {fixed}, which the catalog fixes for {}, found {stated}", chip.name);
                Err(Problem::new(format!("{path}.gpus_per_node"), message))
            }
            Some(_) | None => Ok(Packaging { nodes: self.nodes, gpus_per_node: fixed }),
        }
    }

    fn validate(&self, problems: &mut Problems) {
        require_text(problems, "hardware", &self.hardware);
        problems.require("nodes", (1..=MAX_NODES).contains(&self.nodes), format_args!("from 1 to {MAX_NODES}"), self.nodes);
        if let Some(count) = self.gpus_per_node {
            problems.require("gpus_per_node", count > 0, "at least 1", count);
        }
    }
}
