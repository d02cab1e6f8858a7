//! Other tools' descriptions of a workload, as clients of a scenario.
//!
//! A reader takes what says who sends what and when, and refuses what it cannot keep: a conversion has the load, the burstiness, the
//! lengths and the sessions of its source. What describes the server or the measurement is left, and named in a note where a user may
//! miss it. Reading order: [`Converted`] here, then one file per tool.

mod blis_v2;
mod guidellm;
mod inference_perf;
mod servegen;
mod sharegpt;
mod yaml;

use blis_contracts::scenario::distribution::{ConstantCount, SpreadCount};
use blis_contracts::scenario::{Arrival, Client, Clients, CountDistribution, Workload};
use blis_contracts::strict::{Document, DocumentError, DocumentErrors};

pub use blis_v2::read_blis_v2;
pub use guidellm::read_guidellm;
pub use inference_perf::read_inference_perf;
pub use servegen::{Chunk, read_servegen};
pub use sharegpt::{ShareGpt, read_sharegpt};

/// A workload made from another tool's description.
#[derive(Debug, Clone, PartialEq)]
pub struct Converted {
    /// The workload.
    pub workload: Workload,
    /// What ends a run of it: the scenario's `frame.stop`, where the source says.
    pub stop: Option<String>,
    /// What a reader should know of the conversion.
    pub notes: Vec<String>,
}

impl Converted {
    /// The clients of a source, checked as a scenario's would be.
    fn of(file: &str, clients: Vec<Client>, stop: Option<String>, notes: Vec<String>) -> Result<Self, DocumentErrors> {
        let workload = Workload::Clients(Clients { clients });
        let problems = workload.problems();
        if problems.is_empty() {
            return Ok(Self { workload, stop, notes });
        }
        let wrong = |problem: blis_contracts::strict::Problem| DocumentError {
            path: problem.path.clone(),
            ..DocumentError::whole(file, format!("gives a workload that is refused: {}", problem.message))
        };
        Err(DocumentErrors(problems.into_iter().map(wrong).collect()))
    }

    /// The workload as the part of a scenario that it is.
    pub fn text(&self) -> String {
        let value = serde_json::json!({ "workload": self.workload });
        yaml::block(&value)
    }
}

/// A client with nothing but arrivals and lengths.
fn plain(id: &str, arrival: Arrival, input: Option<CountDistribution>, output: Option<CountDistribution>) -> Client {
    Client {
        id: id.to_owned(),
        population: None,
        arrival,
        profile: None,
        input,
        output,
        lengths: None,
        prefix: None,
        sessions: None,
        priority: 0,
        max_tokens: None,
        slo_class: None,
        timeout_s: None,
    }
}

fn constant(value: u32) -> CountDistribution {
    CountDistribution::Constant(ConstantCount { value })
}

/// A normal distribution within bounds, or its mean where nothing spreads it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a number that is not negative saturates")]
fn normal(mean: f64, std: f64, min: u32, max: u32) -> CountDistribution {
    if std > 0.0 { CountDistribution::Normal(SpreadCount { mean, std, min, max }) } else { constant(libm::round(mean) as u32) }
}

/// An error at a place of a document, as the list that readers give.
fn at(document: &Document, path: &str, message: impl Into<String>) -> DocumentErrors {
    document.error_at(path, message).into()
}
