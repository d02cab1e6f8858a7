//! What a coefficient file must hold beyond its shape: the rules VAL-1, VAL-4, VAL-9, VAL-10, SUB-5 and SUB-16 of the design.
//!
//! Every check returns problems by path; the loader adds file and place. Left out: rules that need the chip's figures, which the
//! cost model's tests hold.

use blis_contracts::provenance::Method;
use blis_contracts::strict::Problem;

use crate::entry::{CoefficientSet, Curve, Entry};
use crate::form::{CoefficientSpec, Kind};
use crate::vocabulary::{Clock, Family, FormName, Subject, Tier, Unit};

/// Every problem of a file, in document order.
pub fn check(set: &CoefficientSet) -> Vec<Problem> {
    let mut problems = Vec::new();
    if set.entries.is_empty() {
        problems.push(Problem::new("entries", "no entries; a file without any should not exist"));
    }
    for (index, entry) in set.entries.iter().enumerate() {
        let mut at = Place { problems: &mut problems, path: format!("entries[{index}]") };
        check_scope(set, index, entry, &mut at);
        check_method(entry, &mut at);
        check_boundary(entry, &mut at);
        check_coefficients(entry, &mut at);
        check_ranges(entry, &mut at);
    }
    problems
}

/// The problems of entries that a look-up could not choose between (VAL-4), over all files of a chip.
pub fn check_unambiguous<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<String> {
    let entries: Vec<&Entry> = entries.into_iter().collect();
    let mut clashes = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        for other in &entries[..index] {
            if entry.scope() == other.scope() {
                clashes.push(format!("`{}` and `{}` have the same scope and method", other.name, entry.name));
            }
        }
    }
    clashes
}

struct Place<'a> {
    problems: &'a mut Vec<Problem>,
    path: String,
}

impl Place<'_> {
    fn report(&mut self, below: &str, message: impl Into<String>) {
        let path = if below.is_empty() { self.path.clone() } else { format!("{}.{below}", self.path) };
        self.problems.push(Problem::new(path, message));
    }
}

fn check_scope(set: &CoefficientSet, index: usize, entry: &Entry, at: &mut Place<'_>) {
    if entry.name.is_empty() || set.entries[..index].iter().any(|other| other.name == entry.name) {
        at.report("name", format!("`{}` is empty or not unique in the file", entry.name));
    }
    let family = entry.primitive.family();
    if family != set.family {
        at.report("primitive", format!("`{}` is filed under the family {family}, not {}", entry.primitive, set.family));
    }
    if !entry.primitive.forms().contains(&entry.form) {
        let known: Vec<&str> = entry.primitive.forms().iter().map(|form| form.as_str()).collect();
        at.report("form", format!("`{}` does not price `{}`; one of {} does", entry.form, entry.primitive, known.join(", ")));
    }
    let least = if entry.tier == Tier::Network { 1 } else { 2 };
    if entry.group.is_some_and(|group| group < least) {
        at.report("group", format!("a group has at least {least} ranks"));
    }
    if (entry.form == FormName::Network) != (entry.tier == Tier::Network) {
        at.report("tier", "the form network prices what leaves a domain, and nothing else does");
    }
}

fn check_method(entry: &Entry, at: &mut Place<'_>) {
    let sourced = !entry.sources.is_empty();
    let reasoned = entry.reason.as_deref().is_some_and(|reason| !reason.trim().is_empty());
    let (needs_sources, needs_reason) = match entry.method {
        Method::Measured | Method::Calibrated => (true, false),
        Method::Transferred => (true, true),
        Method::Literature | Method::VendorSpec | Method::Roofline | Method::Assumed | Method::NotCharged => (false, true),
    };
    if needs_sources && !sourced {
        at.report("sources", format!("the method {} names the data it was obtained from", entry.method));
    }
    if needs_reason && !reasoned {
        at.report("reason", format!("the method {} states its rule, citation or reason", entry.method));
    }
    let fitted = matches!(entry.method, Method::Measured | Method::Calibrated);
    if fitted && (entry.fit.is_none() || entry.range.is_empty()) {
        at.report("", format!("the method {} states `fit` and `range`", entry.method));
    }
    if fitted && entry.coefficients.values().any(|coefficient| coefficient.interval.is_none()) {
        at.report("coefficients", format!("the method {} states an interval for each coefficient", entry.method));
    }
    if entry.method == Method::NotCharged && !(entry.coefficients.is_empty() && entry.curves.is_empty() && entry.ranges.is_empty()) {
        at.report("coefficients", "an entry that is not charged has no coefficients");
    }
}

/// What an entry measures must be what the formula reads (VAL-9): kernels are priced on the device's clock alone.
fn check_boundary(entry: &Entry, at: &mut Place<'_>) {
    let on_device = match entry.primitive.family() {
        Family::Launch => matches!(entry.primitive, Subject::GraphNode | Subject::GraphDependent),
        Family::Gemm
        | Family::AttentionPrefill
        | Family::AttentionDecode
        | Family::Latent
        | Family::Gathered
        | Family::Recurrent
        | Family::Moe
        | Family::Collective
        | Family::Elementwise
        | Family::Sampling => true,
        Family::Host | Family::Memory => false,
    };
    if on_device && entry.boundary.clock != Clock::Device {
        at.report("boundary.clock", format!("`{}` is priced on the device's clock; host issue time would count twice", entry.primitive));
    }
}

fn check_coefficients(entry: &Entry, at: &mut Place<'_>) {
    if entry.method == Method::NotCharged {
        return;
    }
    for (name, coefficient) in &entry.coefficients {
        let path = format!("coefficients.{name}");
        let Some(spec) = known(entry.form, name, &path, at) else { continue };
        check_unit(spec, coefficient.unit, &path, at);
        check_value(spec.kind, coefficient.value, &path, at);
        if let Some(interval) = coefficient.interval {
            check_interval(coefficient.value, interval, &path, at);
        }
    }
    for (name, curve) in &entry.curves {
        let path = format!("curves.{name}");
        let Some(spec) = known(entry.form, name, &path, at) else { continue };
        check_unit(spec, curve.unit, &path, at);
        check_curve(entry.form, spec, curve, &path, at);
        if entry.coefficients.contains_key(name) {
            at.report(&path, "stated as a coefficient and as a curve");
        }
    }
    for spec in entry.form.coefficients() {
        let stated = entry.coefficients.contains_key(spec.name) || entry.curves.contains_key(spec.name);
        if spec.neutral.is_none() && !stated {
            at.report("coefficients", format!("the form {} reads `{}`, which is missing", entry.form, spec.name));
        }
    }
}

fn known(form: FormName, name: &str, path: &str, at: &mut Place<'_>) -> Option<&'static CoefficientSpec> {
    let spec = form.coefficient(name);
    if spec.is_none() {
        let names: Vec<&str> = form.coefficients().iter().map(|spec| spec.name).collect();
        at.report(path, format!("the form {form} reads no `{name}`; it reads {}", names.join(", ")));
    }
    spec
}

fn check_unit(spec: &CoefficientSpec, unit: Unit, path: &str, at: &mut Place<'_>) {
    if unit != spec.unit {
        at.report(path, format!("the unit is {unit}; the form reads {}", spec.unit));
    }
}

fn check_value(kind: Kind, value: f64, path: &str, at: &mut Place<'_>) {
    if !kind.admits(value) {
        at.report(path, format!("{value} must be {}", kind.describe()));
    }
}

fn check_interval(value: f64, (low, high): (f64, f64), path: &str, at: &mut Place<'_>) {
    if !(low.is_finite() && high.is_finite() && low <= value && value <= high) {
        at.report(path, format!("the interval [{low}, {high}] must hold the value {value}"));
    }
}

fn check_curve(form: FormName, spec: &CoefficientSpec, curve: &Curve, path: &str, at: &mut Place<'_>) {
    if !form.inputs().contains(&curve.over) {
        at.report(path, format!("the form {form} reads no input `{}`", curve.over));
    }
    if curve.points.is_empty() || !curve.points.iter().all(|&(x, _)| x.is_finite() && x > 0.0) {
        at.report(path, "a curve has points, each over a positive input");
    }
    if !curve.points.windows(2).all(|pair| pair[0].0 < pair[1].0) {
        at.report(path, "the points must ascend in the input");
    }
    for &(_, value) in &curve.points {
        check_value(spec.kind, value, path, at);
    }
    if !curve.intervals.is_empty() && curve.intervals.len() != curve.points.len() {
        at.report(path, format!("{} intervals for {} points", curve.intervals.len(), curve.points.len()));
    }
    for (&(_, value), &interval) in curve.points.iter().zip(&curve.intervals) {
        check_interval(value, interval, path, at);
    }
}

fn check_ranges(entry: &Entry, at: &mut Place<'_>) {
    for (input, &(low, high)) in &entry.range {
        if !entry.form.inputs().contains(input) {
            at.report(&format!("range.{input}"), format!("the form {} reads no input `{input}`", entry.form));
        }
        if !(low.is_finite() && high.is_finite() && low <= high) {
            at.report(&format!("range.{input}"), format!("[{low}, {high}] is not a range"));
        }
    }
    if !matches!(entry.form, FormName::Collective | FormName::Network) {
        if !entry.ranges.is_empty() {
            at.report("ranges", "only the forms of collectives read algorithm ranges");
        }
        return;
    }
    if entry.ranges.is_empty() && entry.method != Method::NotCharged {
        at.report("ranges", format!("the form {} reads at least one algorithm range", entry.form));
    }
    let last = entry.ranges.len().saturating_sub(1);
    for (index, range) in entry.ranges.iter().enumerate() {
        if range.up_to.is_none() != (index == last) {
            at.report(&format!("ranges[{index}].up_to"), "null for the last range and for no other");
        }
        let plausible = range.latency.is_finite() && range.latency >= 0.0 && range.bandwidth.is_finite() && range.bandwidth > 0.0;
        if !plausible {
            at.report(&format!("ranges[{index}]"), "the latency must be at least 0 and the bandwidth above 0");
        }
    }
    if !entry.ranges.windows(2).all(|pair| pair[1].up_to.is_none() || pair[0].up_to < pair[1].up_to) {
        at.report("ranges", "the ranges must ascend");
    }
}
