//! One class of identical work in a plan: what it is, how often it occurs, and how a step's rows become a form's inputs.

use blis_contracts::format::{FormatName, MatmulFormat};
use blis_contracts::plan::{KernelImpl, Layout, LoweredLayer, Primitive, PrimitiveShape, RowRange, Start};
use blis_registry::vocabulary::Input;
use blis_registry::{ChipCoefficients, Query};

use crate::calls::Calls;
use crate::crossing::Crossing;
use crate::error::CompileError;
use crate::figures::Figures;
use crate::inputs::Inputs;
use crate::placement::Placement;
use crate::routing::RoutingBalance;
use crate::term::Term;

/// Work that occurs `count` times in a pass, each time the same.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Operation {
    pub(crate) term: Term,
    pub(crate) kernel: KernelImpl,
    pub(crate) count: u32,
    pub(crate) shape: PrimitiveShape,
    pub(crate) runs_for: RowRange,
    start: Start,
    /// Where the experts lie, for work that has any.
    placement: Option<Placement>,
    /// Ranks whose rows the larger side of a collective holds.
    whole: f64,
    /// Share of a collective's bytes that one port of the network carries; nothing where it stays in its domain.
    port_share: f64,
    fixed: Inputs,
    /// Rows that end a range of sizes which one algorithm of a collective serves, with the most that a call of its kernel up to them takes, in microseconds.
    peaks: Vec<(f64, f64)>,
}

/// What is around every piece of work of a plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) coefficients: &'a ChipCoefficients,
    pub(crate) figures: &'a Figures,
    pub(crate) balance: RoutingBalance,
    pub(crate) layout: Layout,
}

impl Operation {
    /// Prepares one class of lowered layers.
    pub(crate) fn new(layer: &LoweredLayer, count: u32, around: &Surroundings<'_>) -> Result<Self, CompileError> {
        let Surroundings { coefficients, figures, balance, layout } = *around;
        let format = format_label(&layer.shape);
        let group = match layer.shape {
            PrimitiveShape::Collective { group, .. } => Some(group),
            PrimitiveShape::Gemm { .. }
            | PrimitiveShape::BatchedGemm { .. }
            | PrimitiveShape::Attention { .. }
            | PrimitiveShape::Latent { .. }
            | PrimitiveShape::Traffic { .. }
            | PrimitiveShape::Gathered { .. }
            | PrimitiveShape::Scores { .. }
            | PrimitiveShape::Recurrent { .. }
            | PrimitiveShape::Scan { .. }
            | PrimitiveShape::Moe { .. }
            | PrimitiveShape::Stream { .. }
            | PrimitiveShape::Sampling { .. } => None,
        };
        let crossing = Crossing::of(layer, layout);
        let query = Query {
            subject: layer.primitive.into(),
            kernel: Some(&layer.kernel),
            format: format.as_deref(),
            group: crossing.map_or(group, |crossing| Some(crossing.ranks)),
            tier: Crossing::tier(crossing),
        };
        let mut fixed = fixed_inputs(&layer.shape, figures)?;
        if let Some(crossing) = crossing {
            let network = figures.network.ok_or(CompileError::NoNetwork { primitive: layer.primitive.as_str() })?;
            fixed = fixed.with(Input::Hops, crossing.hops).with(Input::NetworkBandwidth, network);
        }
        let mut operation = Self {
            term: Term::find(coefficients, &query, &fixed)?,
            kernel: layer.kernel.clone(),
            count,
            shape: layer.shape,
            runs_for: layer.runs_for,
            start: layer.start,
            placement: placement(&layer.shape, balance),
            whole: f64::from(whole(layer.primitive, group.unwrap_or(1))),
            port_share: crossing.map_or(0.0, |crossing| crossing.port_share),
            fixed,
            peaks: Vec::new(),
        };
        operation.peaks = operation.peaks_of_ranges();
        Ok(operation)
    }

    /// The most that its calls take up to each size behind which a quicker algorithm may take over, so that a price would fall.
    fn peaks_of_ranges(&self) -> Vec<(f64, f64)> {
        let (PrimitiveShape::Collective { bytes_per_row, .. }, Some(collective)) = (&self.shape, self.term.form().collective()) else {
            return Vec::new();
        };
        let rows = collective.ends().map(|bytes| bytes / (self.whole * *bytes_per_row as f64)).map(f64::floor);
        let served = rows.filter(|&rows| rows >= 1.0 && rows >= f64::from(self.runs_for.least));
        let mut most: f64 = 0.0;
        served
            .map(|rows| {
                most = most.max(self.term.price(&self.inputs(rows)));
                (rows, most)
            })
            .collect()
    }

    /// Whether it runs on a stream beside the other calls.
    pub(crate) const fn runs_beside(&self) -> bool {
        matches!(self.shape, PrimitiveShape::Traffic { .. })
    }

    /// Its calls, by when they may begin.
    pub(crate) const fn calls(&self) -> Calls {
        Calls::of(self.start, self.count)
    }

    /// The inputs that do not depend on the step.
    pub(crate) const fn fixed(&self) -> &Inputs {
        &self.fixed
    }

    /// The inputs of a call over `rows` rows; attention reads more than rows and has its own.
    pub(crate) fn inputs(&self, rows: f64) -> Inputs {
        let fixed = self.fixed;
        match self.shape {
            PrimitiveShape::Gemm { .. } | PrimitiveShape::BatchedGemm { .. } | PrimitiveShape::Sampling { .. } => {
                fixed.with(Input::Rows, rows)
            }
            PrimitiveShape::Attention { .. }
            | PrimitiveShape::Latent { .. }
            | PrimitiveShape::Traffic { .. }
            | PrimitiveShape::Gathered { .. }
            | PrimitiveShape::Scores { .. }
            | PrimitiveShape::Recurrent { .. }
            | PrimitiveShape::Scan { .. } => fixed,
            PrimitiveShape::Moe { .. } => {
                let placement = self.placement.as_ref().expect("work with experts has a placement");
                let load = placement.busiest(rows);
                fixed.with(Input::Tokens, rows).with(Input::Pairs, load.pairs).with(Input::Hit, load.hit)
            }
            PrimitiveShape::Collective { bytes_per_row, .. } => {
                let bytes = self.whole * rows * bytes_per_row as f64;
                fixed.with(Input::Tokens, rows).with(Input::Bytes, bytes).with(Input::PortBytes, bytes * self.port_share)
            }
            PrimitiveShape::Stream { bytes_per_row } => fixed.with(Input::Bytes, rows * bytes_per_row as f64),
        }
    }

    /// Microseconds of all its calls over `rows` rows, a collective's at least what one of fewer rows takes.
    pub(crate) fn microseconds(&self, rows: f64) -> f64 {
        let least = self.peaks.iter().rfind(|(end, _)| *end <= rows).map_or(0.0, |(_, most)| *most);
        f64::from(self.count) * self.term.price(&self.inputs(rows)).max(least)
    }
}

fn placement(shape: &PrimitiveShape, balance: RoutingBalance) -> Option<Placement> {
    match *shape {
        PrimitiveShape::Moe { experts, local_experts, top_k, .. } => Some(Placement::new(experts, local_experts, top_k, balance)),
        PrimitiveShape::Gemm { .. }
        | PrimitiveShape::BatchedGemm { .. }
        | PrimitiveShape::Gathered { .. }
        | PrimitiveShape::Scores { .. }
        | PrimitiveShape::Recurrent { .. }
        | PrimitiveShape::Scan { .. }
        | PrimitiveShape::Attention { .. }
        | PrimitiveShape::Latent { .. }
        | PrimitiveShape::Traffic { .. }
        | PrimitiveShape::Collective { .. }
        | PrimitiveShape::Stream { .. }
        | PrimitiveShape::Sampling { .. } => None,
    }
}

/// Collectives are measured by their larger side: what is concatenated, and what is summed before each rank keeps its part.
const fn whole(primitive: Primitive, group: u32) -> u32 {
    match primitive {
        Primitive::AllGather | Primitive::ReduceScatter => group,
        Primitive::Gemm
        | Primitive::AttentionPrefill
        | Primitive::AttentionDecode
        | Primitive::BatchedGemm
        | Primitive::LatentPrefill
        | Primitive::LatentDecode
        | Primitive::SparsePrefill
        | Primitive::SparseDecode
        | Primitive::SelectionPrefill
        | Primitive::SelectionDecode
        | Primitive::Convolution
        | Primitive::RecurrentPrefill
        | Primitive::RecurrentDecode
        | Primitive::RecurrentScan
        | Primitive::MoeExperts
        | Primitive::Beside
        | Primitive::AllReduce
        | Primitive::AllToAll
        | Primitive::Send
        | Primitive::Norm
        | Primitive::Activation
        | Primitive::Rope
        | Primitive::Embedding
        | Primitive::Sampling => 1,
    }
}

/// The label coefficients are scoped by; none where the shape has no format.
fn format_label(shape: &PrimitiveShape) -> Option<String> {
    match shape {
        PrimitiveShape::Gemm { format, .. } | PrimitiveShape::BatchedGemm { format, .. } | PrimitiveShape::Moe { format, .. } => {
            let MatmulFormat { weights, activations } = *format;
            Some(MatmulFormat { weights: priced_as(weights), activations: priced_as(activations) }.label())
        }
        PrimitiveShape::Attention { kv_format: format, .. } | PrimitiveShape::Latent { format, .. } => {
            Some(priced_as(*format).as_str().to_owned())
        }
        PrimitiveShape::Traffic { .. }
        | PrimitiveShape::Gathered { .. }
        | PrimitiveShape::Scores { .. }
        | PrimitiveShape::Recurrent { .. }
        | PrimitiveShape::Scan { .. }
        | PrimitiveShape::Collective { .. }
        | PrimitiveShape::Stream { .. }
        | PrimitiveShape::Sampling { .. } => None,
    }
}

/// The format whose coefficients price another: both kinds of 16-bit floats move the same bytes and multiply at the same rate.
fn priced_as(format: FormatName) -> FormatName {
    if format == FormatName::Fp16 { FormatName::Bf16 } else { format }
}

/// Elements of the states that a recurrence's coefficients count in.
const STATE_ELEMENTS: f64 = 128.0 * 128.0;

fn fixed_inputs(shape: &PrimitiveShape, figures: &Figures) -> Result<Inputs, CompileError> {
    let peak = |format: FormatName| figures.peak(format).ok_or(CompileError::NoPeak { format });
    let chip = Inputs::NONE.with(Input::Bandwidth, figures.bandwidth);
    Ok(match *shape {
        PrimitiveShape::Gemm { columns, depth, format } => chip
            .with(Input::Columns, columns as f64)
            .with(Input::Depth, depth as f64)
            .with(Input::WeightBytes, format.weights.stored_bytes(columns, depth) as f64)
            .with(Input::InputBytes, input_bytes(format))
            .with(Input::Peak, peak(format.activations)?),
        // One call whose rows are as wide as all its products together.
        PrimitiveShape::BatchedGemm { batch, columns, depth, format } => chip
            .with(Input::Columns, f64::from(batch) * columns as f64)
            .with(Input::Depth, depth as f64)
            .with(Input::WeightBytes, f64::from(batch) * format.weights.stored_bytes(columns, depth) as f64)
            .with(Input::InputBytes, f64::from(batch) * input_bytes(format))
            .with(Input::Peak, peak(format.activations)?),
        PrimitiveShape::Latent { query_heads, kv_heads, key_dim, value_dim, format, .. } => {
            let latent = kv_heads == 1;
            let head_dim = if latent { f64::from(key_dim) } else { f64::from(key_dim + value_dim) / 2.0 };
            chip.with(Input::QueryHeads, f64::from(query_heads))
                .with(Input::KvHeads, f64::from(kv_heads))
                // Keys and values written out are read, and multiplied, once each.
                .with(Input::HeadDim, head_dim)
                .with(Input::ValueDim, f64::from(value_dim))
                .with(Input::Window, 0.0)
                .with(Input::ElementBytes, format.parts().bits_per_element() / 8.0)
                .with(Input::Peak, peak(format)?)
        }
        PrimitiveShape::Attention { query_heads, kv_heads, head_dim, window, kv_format, .. } => chip
            .with(Input::QueryHeads, f64::from(query_heads))
            .with(Input::KvHeads, f64::from(kv_heads))
            .with(Input::HeadDim, f64::from(head_dim))
            .with(Input::Window, f64::from(window))
            .with(Input::ElementBytes, kv_format.parts().bits_per_element() / 8.0)
            // Efficiencies of attention are stated against the 16-bit rate, whatever the cache's format.
            .with(Input::Peak, peak(FormatName::Bf16)?),
        // Each entry is a key, and a value, to every head.
        PrimitiveShape::Gathered { query_heads, head_dim, entry_bytes, multiplied, .. } => chip
            .with(Input::EntryBytes, f64::from(entry_bytes))
            .with(Input::EntryOperations, 4.0 * f64::from(query_heads) * f64::from(head_dim))
            .with(Input::Peak, peak(multiplied)?),
        PrimitiveShape::Scores { heads, head_dim, entry_bytes, multiplied, .. } => chip
            .with(Input::EntryBytes, f64::from(entry_bytes))
            .with(Input::EntryOperations, 2.0 * f64::from(heads) * f64::from(head_dim))
            .with(Input::Peak, peak(multiplied)?),
        PrimitiveShape::Recurrent { heads, state_elements } => {
            chip.with(Input::States, f64::from(heads) * f64::from(state_elements) / STATE_ELEMENTS)
        }
        PrimitiveShape::Moe { local_experts, hidden, intermediate, gated, format, .. } => {
            let in_matrices = if gated { 2 } else { 1 };
            let stored =
                format.weights.stored_bytes(in_matrices * intermediate, hidden) + format.weights.stored_bytes(hidden, intermediate);
            let operations = 2.0 * (in_matrices + 1) as f64 * hidden as f64 * intermediate as f64;
            chip.with(Input::Experts, f64::from(local_experts))
                .with(Input::ExpertBytes, stored as f64)
                .with(Input::PairOperations, operations)
                .with(Input::Width, hidden as f64)
                .with(Input::Peak, peak(format.activations)?)
        }
        PrimitiveShape::Collective { group, .. } => chip.with(Input::Ranks, f64::from(group)),
        PrimitiveShape::Traffic { bytes } => chip.with(Input::Bytes, bytes as f64),
        PrimitiveShape::Stream { .. } | PrimitiveShape::Scan { .. } => chip,
        PrimitiveShape::Sampling { vocabulary, .. } => chip.with(Input::Vocabulary, vocabulary as f64),
    })
}

/// Bytes a matrix multiplication moves for each element of its input.
///
/// A kernel whose input another operation quantised reads it once. Kernels of the block format quantise their own: they read 16
/// bits, write the quantised element with its share of a 32-bit scale per 128 elements of a row, and read it again.
fn input_bytes(format: MatmulFormat) -> f64 {
    let element = format.activations.parts().bits_per_element() / 8.0;
    if format.weights == FormatName::Fp8Block { 2.0 + 2.0 * (element + 4.0 / 128.0) } else { element }
}
