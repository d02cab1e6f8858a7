//! The look-up: which entry prices a call.
//!
//! Among the entries of a chip that match a query, the most trusted method wins; at equal method the more specific scope, kernel
//! before format before group. There is no fallback to a sibling kernel: an entry without a kernel covers the whole primitive, and
//! says so. Left out: flags for extrapolation, which depend on a call's sizes and never change which entry is chosen.

use std::cmp::Reverse;

use blis_contracts::plan::KernelImpl;
use thiserror::Error;

use crate::entry::{CoefficientSet, Entry};
use crate::validate::check_unambiguous;
use crate::vocabulary::{Subject, Tier};

/// What a call is, as far as coefficients are scoped.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// What is priced.
    pub subject: Subject,
    /// The kernel that runs; none for work that no kernel does.
    pub kernel: Option<&'a KernelImpl>,
    /// The label of the call's formats; none where it has none.
    pub format: Option<&'a str>,
    /// Ranks of the group, of those in one domain where it lies in several; none where no group takes part.
    pub group: Option<u32>,
    /// How far apart they lie.
    pub tier: Tier,
}

impl Query<'_> {
    /// A query for work that no kernel, format or group distinguishes.
    pub const fn of(subject: Subject) -> Self {
        Query { subject, kernel: None, format: None, group: None, tier: Tier::Domain }
    }

    fn matches(&self, entry: &Entry) -> bool {
        entry.primitive == self.subject
            && entry.kernel.as_ref().is_none_or(|scope| self.kernel.is_some_and(|kernel| scope.covers(kernel)))
            && entry.format.as_deref().is_none_or(|format| self.format == Some(format))
            && entry.group.is_none_or(|group| self.group == Some(group))
            && entry.tier == self.tier
    }
}

/// What a look-up found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found<'a> {
    /// The entry that prices the call.
    pub entry: &'a Entry,
    /// Matching entries it displaced, most trusted first.
    pub displaced: Vec<&'a Entry>,
}

/// Every coefficient of one chip.
#[derive(Debug, Clone, PartialEq)]
pub struct ChipCoefficients {
    chip: String,
    entries: Vec<Entry>,
}

/// Coefficient sets do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetError {
    /// A set belongs to another chip.
    #[error("a coefficient set of the chip `{found}` was given for `{chip}`")]
    OtherChip {
        /// The chip asked for.
        chip: String,
        /// The chip of the set.
        found: String,
    },
    /// Entries that no rule orders.
    #[error("coefficients of the chip `{chip}`: {}", .clashes.join("; "))]
    Ambiguous {
        /// The chip.
        chip: String,
        /// Each pair.
        clashes: Vec<String>,
    },
}

/// No entry matches.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no coefficient of the chip `{chip}` prices {what}")]
pub struct NotPriced {
    /// The chip.
    pub chip: String,
    /// What was asked for.
    pub what: String,
}

impl ChipCoefficients {
    /// Joins the sets of one chip; the order of the sets does not matter.
    pub fn new(chip: &str, sets: impl IntoIterator<Item = CoefficientSet>) -> Result<Self, SetError> {
        let mut entries = Vec::new();
        for set in sets {
            if set.chip != chip {
                return Err(SetError::OtherChip { chip: chip.to_owned(), found: set.chip });
            }
            entries.extend(set.entries);
        }
        let clashes = check_unambiguous(&entries);
        if !clashes.is_empty() {
            return Err(SetError::Ambiguous { chip: chip.to_owned(), clashes });
        }
        Ok(Self { chip: chip.to_owned(), entries })
    }

    /// The chip's catalog name.
    pub fn chip(&self) -> &str {
        &self.chip
    }

    /// Every entry.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry that prices a call.
    pub fn find(&self, query: &Query<'_>) -> Result<Found<'_>, NotPriced> {
        let mut matching: Vec<&Entry> = self.entries.iter().filter(|entry| query.matches(entry)).collect();
        matching.sort_by_key(|entry| (entry.method, Reverse((entry.kernel.is_some(), entry.format.is_some(), entry.group.is_some()))));
        let mut matching = matching.into_iter();
        match matching.next() {
            Some(entry) => Ok(Found { entry, displaced: matching.collect() }),
            None => Err(NotPriced { chip: self.chip.clone(), what: describe(query) }),
        }
    }
}

fn describe(query: &Query<'_>) -> String {
    let kernel = query.kernel.map(|kernel| format!(" by {}/{}", kernel.library, kernel.variant));
    let format = query.format.map(|format| format!(" in {format}"));
    let group = query.group.map(|group| format!(" over {group} ranks"));
    let tier = (!query.tier.is_nearest()).then(|| " in each of several domains".to_owned());
    let qualifiers: String = [kernel, format, group, tier].into_iter().flatten().collect();
    format!("`{}`{qualifiers}", query.subject)
}
