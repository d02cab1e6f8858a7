//! The pricing forms: pure functions of coefficients, the chip's figures and the sizes of a call. One file each.
//!
//! Times are microseconds, bandwidths bytes per microsecond, peaks operations per microsecond. `fitting/forms.py` holds the same
//! formulas, and `fitting/vectors.json` the cases on which both sides must agree.

mod attention_decode;
mod attention_prefill;
mod collective;
mod exchange;
mod gathered;
mod latent_decode;
mod matmul;
mod moe;
mod network;
mod per_unit;
mod recurrence;
mod sampling;
mod scan;
mod stored;
mod stream;

use blis_contracts::provenance::Method;
use blis_registry::Entry;
use blis_registry::vocabulary::{FormName, Input};

pub use attention_decode::AttentionDecode;
pub use attention_prefill::{AttentionPrefill, Rows, attention_pairs};
pub use collective::Collective;
pub use exchange::Exchange;
pub use gathered::Gathered;
pub use latent_decode::LatentDecode;
pub use matmul::Matmul;
pub use moe::Moe;
pub use network::Network;
pub use per_unit::PerUnit;
pub use recurrence::Recurrence;
pub use sampling::Sampling;
pub use scan::Scan;
pub use stored::Stored;
pub use stream::Stream;

use crate::inputs::Inputs;

/// A form with the coefficients of one entry.
#[derive(Debug, Clone, PartialEq)]
pub enum Form {
    /// A matrix multiplication.
    Matmul(Matmul),
    /// Attention with one new token per request.
    AttentionDecode(AttentionDecode),
    /// Attention with several new tokens per request.
    AttentionPrefill(AttentionPrefill),
    /// Latent attention with one new token per request.
    LatentDecode(LatentDecode),
    /// Attention to, or scoring of, listed entries.
    Gathered(Gathered),
    /// A recurrence over prompts.
    Recurrence(Recurrence),
    /// A scan over chunks of prompts.
    Scan(Scan),
    /// The experts of one layer.
    Moe(Moe),
    /// A collective.
    Collective(Collective),
    /// A collective that leaves its domain of links.
    Network(Network),
    /// An exchange of tokens.
    Exchange(Exchange),
    /// Work bound by memory traffic.
    Stream(Stream),
    /// Turning logits into tokens.
    Sampling(Sampling),
    /// A base and what each unit adds.
    PerUnit(PerUnit),
    /// Memory.
    Stored(Stored),
    /// Deliberately priced at nothing.
    NotCharged,
}

/// A price in two parts: what a launch takes however small, and what its work adds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parts {
    /// The launch's own time, in microseconds.
    pub latency: f64,
    /// The work's time, in microseconds.
    pub body: f64,
}

impl Parts {
    /// Nothing.
    pub const ZERO: Self = Self { latency: 0.0, body: 0.0 };

    /// Both together.
    pub const fn total(self) -> f64 {
        self.latency + self.body
    }
}

impl Form {
    /// Reads the coefficients of a validated entry; a coefficient that varies only with a fixed input is resolved here.
    pub fn read(entry: &Entry, fixed: &Inputs) -> Self {
        if entry.method == Method::NotCharged {
            return Self::NotCharged;
        }
        match entry.form {
            FormName::Matmul => Self::Matmul(Matmul::read(entry, fixed)),
            FormName::AttentionDecode => Self::AttentionDecode(AttentionDecode::read(entry, fixed)),
            FormName::AttentionPrefill => Self::AttentionPrefill(AttentionPrefill::read(entry, fixed)),
            FormName::LatentDecode => Self::LatentDecode(LatentDecode::read(entry, fixed)),
            FormName::Gathered => Self::Gathered(Gathered::read(entry, fixed)),
            FormName::Recurrence => Self::Recurrence(Recurrence::read(entry, fixed)),
            FormName::Scan => Self::Scan(Scan::read(entry, fixed)),
            FormName::Moe => Self::Moe(Moe::read(entry, fixed)),
            FormName::Collective => Self::Collective(Collective::read(entry)),
            FormName::Network => Self::Network(Network::read(entry, fixed)),
            FormName::Exchange => Self::Exchange(Exchange::read(entry, fixed)),
            FormName::Stream => Self::Stream(Stream::read(entry, fixed)),
            FormName::PerUnit => Self::PerUnit(PerUnit::read(entry, fixed)),
            FormName::Stored => Self::Stored(Stored::read(entry, fixed)),
            FormName::Sampling => Self::Sampling(Sampling::read(entry, fixed)),
        }
    }

    /// The value of an input that a range may be stated over, whether a caller sets it or it follows from others.
    pub(crate) fn input(&self, input: Input, inputs: &Inputs) -> f64 {
        match self {
            Self::AttentionDecode(_) | Self::LatentDecode(_) if input == Input::MeanContext => attention_decode::mean_context(inputs),
            Self::Moe(_) if input == Input::RowsPerExpert => Moe::rows_per_expert(inputs),
            Self::Matmul(_)
            | Self::AttentionDecode(_)
            | Self::AttentionPrefill(_)
            | Self::LatentDecode(_)
            | Self::Gathered(_)
            | Self::Recurrence(_)
            | Self::Scan(_)
            | Self::Moe(_)
            | Self::Collective(_)
            | Self::Network(_)
            | Self::Exchange(_)
            | Self::Stream(_)
            | Self::PerUnit(_)
            | Self::Sampling(_)
            | Self::Stored(_)
            | Self::NotCharged => inputs.get(input),
        }
    }

    /// The ranges of sizes of a collective, within a domain or beyond it.
    pub(crate) const fn collective(&self) -> Option<&Collective> {
        match self {
            Self::Collective(form) => Some(form),
            Self::Network(form) => Some(form.within()),
            Self::Matmul(_)
            | Self::AttentionDecode(_)
            | Self::AttentionPrefill(_)
            | Self::LatentDecode(_)
            | Self::Gathered(_)
            | Self::Recurrence(_)
            | Self::Scan(_)
            | Self::Moe(_)
            | Self::Exchange(_)
            | Self::Stream(_)
            | Self::PerUnit(_)
            | Self::Sampling(_)
            | Self::Stored(_)
            | Self::NotCharged => None,
        }
    }

    /// The price of one call in its parts: microseconds, or bytes for [`Form::Stored`].
    pub fn parts(&self, inputs: &Inputs) -> Parts {
        let whole = |body| Parts { latency: 0.0, body };
        match self {
            Self::Matmul(form) => whole(form.microseconds(inputs)),
            Self::AttentionDecode(form) => form.parts(inputs),
            Self::AttentionPrefill(form) => form.parts(inputs),
            Self::LatentDecode(form) => form.parts(inputs),
            Self::Gathered(form) => whole(form.microseconds(inputs)),
            Self::Recurrence(form) => whole(form.microseconds(inputs)),
            Self::Scan(form) => whole(form.microseconds(inputs)),
            Self::Moe(form) => whole(form.microseconds(inputs)),
            Self::Collective(form) => whole(form.microseconds(inputs)),
            Self::Network(form) => whole(form.microseconds(inputs)),
            Self::Exchange(form) => whole(form.microseconds(inputs)),
            Self::Stream(form) => whole(form.microseconds(inputs)),
            Self::PerUnit(form) => whole(form.microseconds(inputs)),
            Self::Stored(form) => whole(form.bytes(inputs)),
            Self::Sampling(form) => whole(form.microseconds(inputs)),
            Self::NotCharged => Parts::ZERO,
        }
    }

    /// The price of one call: microseconds, or bytes for [`Form::Stored`].
    pub fn price(&self, inputs: &Inputs) -> f64 {
        self.parts(inputs).total()
    }
}

/// A soft maximum of terms that overlap: their sum for a sharpness of 1, nearly the largest for a large one.
pub(crate) fn blend<const N: usize>(sharpness: f64, terms: [f64; N]) -> f64 {
    let top = terms.iter().copied().fold(1e-12, f64::max);
    let sum: f64 = terms.iter().map(|term| libm::pow(term / top, sharpness)).sum();
    top * libm::pow(sum, 1.0 / sharpness)
}
