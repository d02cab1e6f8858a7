//! Arrival processes, length models and benchmark clients' exact generators.
//!
//! Reading order: [`source`] is what the simulator sees; [`random`] and [`mt19937`] are where draws come from; then one file per kind
//! of client.

pub mod source;

pub mod mt19937;
pub mod random;

mod clients;
mod inferencex;

use blis_contracts::scenario::{BenchmarkClient, Client, Workload};

use crate::clients::ClientSource;
use crate::inferencex::InferencexSource;
pub use crate::inferencex::Lengths;
use crate::source::Source;

/// A workload that cannot be turned into sources, with the path of the field at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct WorkloadError {
    /// Path of the field in the scenario.
    pub path: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// The sources of a validated workload, in its order. `requests` is the frame's stop rule, where it states one.
pub fn sources(workload: &Workload, requests: Option<u64>, seed: u64) -> Result<Vec<Box<dyn Source>>, WorkloadError> {
    match workload {
        Workload::Clients(clients) => Ok(client_sources(&clients.clients, seed)),
        Workload::Benchmark(BenchmarkClient::Inferencex(client)) => {
            let count = client.num_prompts.or(requests).ok_or_else(|| WorkloadError {
                path: "workload.num_prompts".to_owned(),
                message: "the client draws all its lengths before it sends: state num_prompts or frame.stop.requests".to_owned(),
            })?;
            Ok(vec![Box::new(InferencexSource::new(0, client, count))])
        }
    }
}

fn client_sources(clients: &[Client], seed: u64) -> Vec<Box<dyn Source>> {
    let mut groups: Vec<&str> = Vec::new();
    let mut sources: Vec<Box<dyn Source>> = Vec::with_capacity(clients.len());
    for (client, index) in clients.iter().zip(0u32..) {
        let group = client.prefix.as_ref().map(|prefix| {
            let number = groups.iter().position(|group| *group == prefix.group).unwrap_or_else(|| {
                groups.push(&prefix.group);
                groups.len() - 1
            });
            u32::try_from(number).expect("there are fewer groups than clients")
        });
        sources.push(Box::new(ClientSource::new(index, client, group, seed)));
    }
    sources
}
