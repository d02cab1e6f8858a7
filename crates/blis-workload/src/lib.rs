//! Arrival processes, length models, benchmark clients' exact generators, and traces in several formats.
//!
//! Reading order: [`source`] is what the simulator sees; [`random`] and [`mt19937`] are where draws come from; `arrivals` says when
//! sessions start; then one file per kind of client; [`trace`] is what a recorded workload is, read, written and replayed.

pub mod source;

pub mod trace;

pub mod mt19937;
pub mod random;

mod arrivals;
mod clients;
mod inferencex;
mod interner;
mod lanes;
pub mod specs;
mod text;

use blis_contracts::scenario::{BenchmarkClient, Client, Prefix, Workload};

use crate::clients::ClientSource;
use crate::inferencex::InferencexSource;
pub use crate::inferencex::Lengths;
use crate::interner::Interner;
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

/// Who sends in a run, and what the texts they share are called.
#[derive(Debug)]
pub struct Offered {
    /// The sources, in the workload's order.
    pub sources: Vec<Box<dyn Source>>,
    /// The names of shared texts, by number.
    pub texts: Vec<String>,
}

/// The sources of a validated workload. `requests` is the frame's stop rule, where it states one.
pub fn sources(workload: &Workload, requests: Option<u64>, seed: u64) -> Result<Offered, WorkloadError> {
    match workload {
        Workload::Clients(clients) => Ok(client_sources(&clients.clients, seed)),
        Workload::Benchmark(BenchmarkClient::Inferencex(client)) => {
            let count = client.num_prompts.or(requests).ok_or_else(|| WorkloadError {
                path: "workload.num_prompts".to_owned(),
                message: "the client draws all its lengths before it sends: state num_prompts or frame.stop.requests".to_owned(),
            })?;
            Ok(Offered { sources: vec![Box::new(InferencexSource::new(0, client, count))], texts: Vec::new() })
        }
        Workload::Trace(trace) => Err(WorkloadError {
            path: "workload.trace".to_owned(),
            message: format!("`{}` has to be read first: a trace gives its own sources", trace.trace),
        }),
    }
}

fn client_sources(clients: &[Client], seed: u64) -> Offered {
    let mut texts = Interner::default();
    let mut sources: Vec<Box<dyn Source>> = Vec::with_capacity(clients.len());
    for client in clients {
        let prefixes: Vec<u32> = match &client.prefix {
            None => Vec::new(),
            Some(Prefix { group, variants: None, .. }) => vec![texts.number(group)],
            Some(Prefix { group, variants: Some(count), .. }) => {
                (0..*count).map(|variant| texts.number(&format!("{group}/{variant}"))).collect()
            }
        };
        for member in 0..client.members() {
            let index = u32::try_from(sources.len()).expect("validation bounds the number of clients");
            sources.push(Box::new(ClientSource::new(index, client, member, prefixes.clone(), seed)));
        }
    }
    Offered { sources, texts: texts.into_names() }
}
