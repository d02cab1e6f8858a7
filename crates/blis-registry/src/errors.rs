//! How far measurements lay from simulation: intervals by family, chip and load, and the domains within which any were compared.
//!
//! One file, `errors.yaml`, beside the chips; written by its script from deployments that were left out. Left out here: judging a run,
//! which is the simulator's.

use blis_contracts::strict::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The file's place in the registry.
pub const FILE: &str = "errors.yaml";
/// Stands for every family, or every chip.
pub const ANY: &str = "any";

/// The table of errors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorTable {
    /// Always `ErrorTable`.
    pub kind: ErrorTableKind,
    /// The measurements.
    pub source: String,
    /// Points compared.
    pub points: u32,
    /// Deployments they belong to.
    pub deployments: u32,
    /// Share of points that the intervals are to cover.
    pub level: f64,
    /// What the deployments ranged over, each family on each chip by itself.
    pub domains: Vec<Domain>,
    /// What the intervals cover of deployments left out of them.
    pub coverage: Vec<Covered>,
    /// The intervals.
    pub rows: Vec<Row>,
}

/// The `kind` of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ErrorTableKind {
    /// The only value.
    ErrorTable,
}

/// What measured deployments of a family on a chip ranged over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Domain {
    /// The family, or `any`.
    pub family: String,
    /// The chip, or `any`.
    pub chip: String,
    /// Requests in flight.
    pub requests: (u32, u32),
    /// Prompt lengths.
    pub prompt_tokens: (u32, u32),
    /// Output lengths.
    pub output_tokens: (u32, u32),
    /// Parallel layouts.
    pub layouts: Vec<Widths>,
}

/// Widths of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Widths {
    /// Ranks that share each matrix.
    pub tensor: u32,
    /// Data-parallel ranks.
    pub data: u32,
    /// Ranks that share the experts.
    pub expert: u32,
}

/// A latency of which errors are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorOf {
    /// Mean time per output token.
    Tpot,
    /// Mean time to first token.
    Ttft,
}

/// How near a deployment is to measured ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Nearness {
    /// Its family was measured on its chip.
    Measured,
    /// Its family was measured on other chips only.
    OtherChip,
    /// Its family was never measured; its chip was.
    OtherFamily,
}

/// What intervals cover of deployments left out of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Covered {
    /// Of which latency.
    pub latency: ErrorOf,
    /// Of which deployments.
    pub kind: Nearness,
    /// By how much each end was moved outwards, as a logarithm.
    pub widened: f64,
    /// Share of the left-out points covered.
    pub covered: f64,
}

/// One interval of measured over simulated means.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Of which latency.
    pub latency: ErrorOf,
    /// The family, or `any`.
    pub family: String,
    /// The chip, or `any`.
    pub chip: String,
    /// Requests in flight, from and to.
    pub requests: (u32, u32),
    /// Lower end, as a multiple of the simulated mean.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Points it rests on.
    pub points: u32,
    /// Deployments they belong to.
    pub deployments: u32,
    /// The family of those points, or `any`.
    pub over_family: String,
    /// The chip of those points, or `any`.
    pub over_chip: String,
}

impl ErrorTable {
    /// Whether a family was measured on a chip; either may be `any`.
    pub fn knows(&self, family: &str, chip: &str) -> bool {
        self.rows.iter().any(|row| row.family == family && row.chip == chip)
    }

    /// How near a family on a chip is to measured deployments; none where neither was measured.
    pub fn nearness(&self, family: &str, chip: &str) -> Option<Nearness> {
        if self.knows(family, chip) {
            Some(Nearness::Measured)
        } else if self.knows(family, ANY) {
            Some(Nearness::OtherChip)
        } else if self.knows(ANY, chip) {
            Some(Nearness::OtherFamily)
        } else {
            None
        }
    }

    /// The measured family and chip, either of them `any`, that speak of a family on a chip.
    fn nearest<'a>(&self, family: &'a str, chip: &'a str) -> Option<(Nearness, &'a str, &'a str)> {
        let near = self.nearness(family, chip)?;
        let (family, chip) = match near {
            Nearness::Measured => (family, chip),
            Nearness::OtherChip => (family, ANY),
            Nearness::OtherFamily => (ANY, chip),
        };
        Some((near, family, chip))
    }

    /// What the measured deployments nearest to a family on a chip ranged over.
    pub fn domain(&self, family: &str, chip: &str) -> Option<&Domain> {
        let (_, family, chip) = self.nearest(family, chip)?;
        self.domains.iter().find(|domain| domain.family == family && domain.chip == chip)
    }

    /// The interval of a latency of a family on a chip, with so many requests in flight.
    pub fn interval(&self, latency: ErrorOf, family: &str, chip: &str, requests: f64) -> Option<(&Row, Covered)> {
        let (near, family, chip) = self.nearest(family, chip)?;
        let mut rows = self.rows.iter().filter(|row| row.latency == latency && row.family == family && row.chip == chip);
        // Loads are whole numbers; what lies between two belongs to the lower.
        let row = rows.find(|row| requests < f64::from(row.requests.1) + 1.0)?;
        let covered = self.coverage.iter().find(|covered| covered.latency == latency && covered.kind == near)?;
        Some((row, *covered))
    }

    /// What is wrong with it.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let row = |(at, row): (usize, &Row)| {
            let wrong = |message: String| Some(Problem::new(format!("rows[{at}]"), message));
            if !(row.low > 0.0 && row.low <= row.high && row.high.is_finite()) {
                return wrong(format!("spans {} to {}; wanted are two multiples above 0, ascending", row.low, row.high));
            }
            if row.requests.0 == 0 || row.requests.0 > row.requests.1 {
                return wrong(format!(
                    "is for {} to {} requests; wanted are two counts above 0, ascending",
                    row.requests.0, row.requests.1
                ));
            }
            None
        };
        let covered = |(at, covered): (usize, &Covered)| {
            let share = (0.0..=1.0).contains(&covered.covered);
            (!share).then(|| Problem::new(format!("coverage[{at}].covered"), format!("is {}; wanted is a share", covered.covered)))
        };
        let domainless = |(at, row): (usize, &Row)| {
            let known = self.domains.iter().any(|domain| domain.family == row.family && domain.chip == row.chip);
            let message = || format!("is of {} on {}, of which no domain is stated", row.family, row.chip);
            (!known).then(|| Problem::new(format!("rows[{at}]"), message()))
        };
        let rows = || self.rows.iter().enumerate();
        rows().filter_map(row).chain(rows().filter_map(domainless)).chain(self.coverage.iter().enumerate().filter_map(covered)).collect()
    }
}

/// The family of a model: the words of its name before the first that holds a digit, or that word's letters where it is the first.
pub fn family(model: &str) -> String {
    let words: Vec<&str> = model.split('-').take_while(|word| !word.contains(|c: char| c.is_ascii_digit())).collect();
    if words.is_empty() { model.chars().take_while(|c| c.is_alphabetic()).collect() } else { words.join("-") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(family: &str, chip: &str, requests: (u32, u32), high: f64) -> Row {
        let over = (family.to_owned(), chip.to_owned());
        Row {
            latency: ErrorOf::Tpot,
            family: family.to_owned(),
            chip: chip.to_owned(),
            requests,
            low: 0.9,
            high,
            points: 9,
            deployments: 3,
            over_family: over.0,
            over_chip: over.1,
        }
    }

    fn domain(family: &str, chip: &str, requests: (u32, u32)) -> Domain {
        let (family, chip) = (family.to_owned(), chip.to_owned());
        Domain { family, chip, requests, prompt_tokens: (1, 9), output_tokens: (1, 9), layouts: Vec::new() }
    }

    fn table() -> ErrorTable {
        let kinds = [Nearness::Measured, Nearness::OtherChip, Nearness::OtherFamily];
        ErrorTable {
            kind: ErrorTableKind::ErrorTable,
            source: "runs".to_owned(),
            points: 9,
            deployments: 3,
            level: 0.8,
            domains: vec![domain("llama", "h100", (4, 64)), domain("llama", ANY, (4, 128)), domain(ANY, "h100", (1, 64))],
            coverage: kinds.map(|kind| Covered { latency: ErrorOf::Tpot, kind, widened: 0.1, covered: 0.8 }).to_vec(),
            rows: vec![
                row("llama", "h100", (1, 8), 1.1),
                row("llama", "h100", (9, 64), 1.2),
                row("llama", ANY, (1, 64), 1.3),
                row(ANY, "h100", (1, 64), 1.4),
            ],
        }
    }

    #[test]
    fn the_nearest_measured_deployments_give_the_interval() {
        let high = |family: &str, chip: &str, requests: f64| {
            table().interval(ErrorOf::Tpot, family, chip, requests).map(|(row, covered)| (row.high, covered.kind))
        };
        assert_eq!(high("llama", "h100", 8.4), Some((1.1, Nearness::Measured)));
        assert_eq!(high("llama", "h100", 9.0), Some((1.2, Nearness::Measured)));
        assert_eq!(high("llama", "b200", 20.0), Some((1.3, Nearness::OtherChip)));
        assert_eq!(high("qwen", "h100", 20.0), Some((1.4, Nearness::OtherFamily)));
        assert_eq!(high("qwen", "b200", 20.0), None, "neither was measured");
        assert_eq!(high("llama", "h100", 65.0), None, "no load as high was measured");
        assert_eq!(table().interval(ErrorOf::Ttft, "llama", "h100", 8.0), None);
    }

    #[test]
    fn the_nearest_measured_deployments_give_the_domain() {
        let requests = |family: &str, chip: &str| table().domain(family, chip).map(|domain| domain.requests);
        let of = [("llama", "h100"), ("llama", "b200"), ("qwen", "h100"), ("qwen", "b200")];
        assert_eq!(of.map(|(family, chip)| requests(family, chip)), [Some((4, 64)), Some((4, 128)), Some((1, 64)), None]);
        let mut wrong = table();
        wrong.domains.remove(1);
        let problems: Vec<String> = wrong.problems().into_iter().map(|problem| problem.message).collect();
        assert_eq!(problems, ["is of llama on any, of which no domain is stated"]);
    }

    #[test]
    fn an_interval_that_is_none_is_refused() {
        let mut wrong = table();
        wrong.rows[1].high = 0.5;
        wrong.rows[2].requests = (9, 8);
        wrong.coverage[0].covered = 1.5;
        let paths: Vec<String> = wrong.problems().into_iter().map(|problem| problem.path).collect();
        assert_eq!(
            (paths, table().problems().len()),
            (vec!["rows[1]".to_owned(), "rows[2]".to_owned(), "coverage[0].covered".to_owned()], 0)
        );
    }

    #[test]
    fn a_family_is_the_words_before_the_first_number() {
        let names = ["gpt-oss-120b", "llama-3.1-70b-instruct", "qwen3-8b", "minimax-m2.5-b200-fp8-vllm-tp4", "mixtral-8x7b"];
        assert_eq!(names.map(family), ["gpt-oss", "llama", "qwen", "minimax", "mixtral"]);
    }
}
