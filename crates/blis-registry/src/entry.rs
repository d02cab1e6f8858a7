//! A coefficient file: one chip, one family, the entries its writer script produced.
//!
//! These types say what a file may contain; `validate` says which combinations make sense, [`crate::form`] which coefficients
//! each form reads. Peaks and bandwidths are not here: they are facts of the catalog's chip.

use blis_contracts::plan::KernelImpl;
use blis_contracts::provenance::Method;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::vocabulary::{Clock, Family, FormName, Input, MeasuredLaunch, Subject, Tier, Unit};

/// One file of the registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoefficientSet {
    /// Always `CoefficientSet`.
    pub kind: CoefficientSetKind,
    /// Catalog name of the chip.
    pub chip: String,
    /// The family all entries belong to.
    pub family: Family,
    /// The script that wrote the file.
    pub script: String,
    /// The entries, by unique name.
    pub entries: Vec<Entry>,
}

/// The `kind` of a coefficient file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CoefficientSetKind {
    /// The only value.
    CoefficientSet,
}

/// The coefficients of one form, with scope and provenance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Unique in the file.
    pub name: String,
    /// What it prices.
    pub primitive: Subject,
    /// The kernel it was obtained for; absent for any kernel of the primitive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelScope>,
    /// The formats of the call; absent for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Ranks of the group, of those in one domain where it lies in several; absent for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// How far apart the ranks lie; in one domain where absent.
    #[serde(default = "Tier::nearest", skip_serializing_if = "Tier::is_nearest")]
    pub tier: Tier,
    /// How the coefficients were obtained.
    pub method: Method,
    /// The form that reads them.
    pub form: FormName,
    /// Coefficients that do not vary.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub coefficients: IndexMap<String, Coefficient>,
    /// Coefficients that vary with one input.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub curves: IndexMap<String, Curve>,
    /// Algorithm ranges of a collective, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<AlgorithmRange>,
    /// Lowest and highest value of each input in the fitted data; outside is extrapolation.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub range: IndexMap<Input, (f64, f64)>,
    /// What the measurement includes.
    pub boundary: Boundary,
    /// What the coefficients were obtained from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// How well the form reproduces data it was not fitted to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// Why, where the method does not speak for itself; the rule of a transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The kernel an entry is scoped to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelScope {
    /// The library the kernel ships in.
    pub library: String,
    /// The library's own name of the kernel.
    pub variant: String,
}

impl KernelScope {
    /// Whether a plan's kernel is the one meant.
    pub fn covers(&self, kernel: &KernelImpl) -> bool {
        self.library == kernel.library && self.variant == kernel.variant
    }
}

/// One coefficient.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Coefficient {
    /// The value the form reads.
    pub value: f64,
    /// Its unit; must be the one the form expects.
    pub unit: Unit,
    /// The 95% interval the data support; absent where no data stand behind the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
}

/// A coefficient that varies with one input: linear in the logarithm of the input between points, flat outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// The input.
    pub over: Input,
    /// The unit of the values; must be the one the form expects.
    pub unit: Unit,
    /// (input, value), ascending in the input.
    pub points: Vec<(f64, f64)>,
    /// The 95% interval of each point's value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<(f64, f64)>,
}

/// The sizes over which a collective runs one algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlgorithmRange {
    /// Most bytes on one rank, inclusive; null for the last range.
    pub up_to: Option<u64>,
    /// Microseconds before the first byte.
    pub latency: f64,
    /// Bytes per microsecond.
    pub bandwidth: f64,
}

/// What a measurement includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Boundary {
    /// Whose clock.
    pub clock: Clock,
    /// How it was launched.
    pub launch: MeasuredLaunch,
}

/// Something coefficients were obtained from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The publication, package or catalog field.
    pub source: String,
    /// The table within it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// SHA-256 of the table, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Rows of the table that were used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
}

/// How well a form reproduces measured data.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// Rows it was fitted to.
    pub rows: u64,
    /// Rows it was judged on.
    pub held_out: u64,
    /// Median of the absolute relative error on the held-out rows.
    pub median_abs_error: f64,
    /// 90th percentile of the same.
    pub p90_abs_error: f64,
}

impl Entry {
    /// What it covers and how it was obtained: two entries of one chip may not share it.
    pub fn scope(&self) -> (Subject, Option<&KernelScope>, Option<&str>, Option<u32>, Tier, Method) {
        (self.primitive, self.kernel.as_ref(), self.format.as_deref(), self.group, self.tier, self.method)
    }
}
