//! Mamba-2 layers: their projections, convolution, scan over prompts, update of decodes and gated norm, and what they weigh.
//!
//! upstream: vllm `model_executor/layers/mamba/mamba_mixer2.py::MambaMixer2.forward`, `conv_ssm_forward`, `Mixer2RMSNormGated`
//! upstream: vllm `model_executor/layers/mamba/ops/ssd_combined.py::mamba_chunk_scan_combined_varlen`,
//! `model_executor/layers/mamba/ops/ssu_dispatch.py::TritonSSUBackend`
//!
//! A scan is five Triton kernels: sums of decays, states of chunks, their passing from chunk to chunk, products within chunks, outputs.
//! Each reads what the one before it wrote, so that every chunk's states are written twice and read twice; then each row's last state is
//! copied out and into the cache. Left out: states that a row begins from (gathered where a prompt goes on), checkpoints at block
//! ends, other backends for decodes and `ReplaySSM` (the configuration refuses them).

use blis_contracts::format::FormatName;
use blis_contracts::model::Mamba2;
use blis_contracts::plan::{Primitive, PrimitiveShape, RowRange, RowSet};

use super::LoweringError;
use super::elementwise::{self, Input};
use super::linear::{self, LinearChoice, Matrix};
use super::names::{
    INDUCTOR_FUSED, TORCH_GATED_NORM, TRITON_CAUSAL_CONV, TRITON_CAUSAL_CONV_UPDATE, TRITON_SELECTIVE_UPDATE, TRITON_SSD_SCAN,
};
use super::pass::{Pass, Sum};
use super::site::Site;

/// Bytes of an element that a scan keeps between its kernels.
const WIDE: u64 = 4;

/// Bytes that the operations of a gated norm move for each element, one by one.
const EAGER_NORM: u64 = 46;

/// Widths of one rank.
#[derive(Debug, Clone, Copy)]
struct Widths {
    heads: u64,
    /// Of all heads together.
    inner: u64,
    /// Of what all groups together write to states, or read from them.
    groups: u64,
    states: u64,
}

impl Widths {
    fn of(site: &Site<'_>, space: &Mamba2) -> Self {
        // Where one group serves all heads, every rank has it.
        let groups = space.groups.max(site.ranks) / site.ranks;
        Self {
            heads: site.share(space.heads.into()),
            inner: site.share(space.width()),
            groups: u64::from(groups) * u64::from(space.state_dim),
            states: site.share(space.state_elements()),
        }
    }

    /// What the convolution runs over.
    const fn convolved(self) -> u64 {
        self.inner + 2 * self.groups
    }
}

/// The projection to the gate, to what is convolved and to one step for each head.
pub(super) fn input(site: &Site<'_>, space: &Mamba2) -> Result<(Matrix, LinearChoice), LoweringError> {
    let widths = Widths::of(site, space);
    let columns = widths.inner + widths.convolved() + widths.heads;
    let matrix = Matrix { columns, depth: site.model.hidden_size, format: space.input_format };
    Ok((matrix, linear::choose(site, "input projection", matrix)?))
}

impl Pass<'_> {
    pub(super) fn mamba2(&mut self, space: &Mamba2, next: Input) -> Result<(), LoweringError> {
        let (site, hidden) = (self.site, self.site.model.hidden_size);
        let (matrix, choice) = input(site, space)?;
        self.gemm(matrix, &choice, RowSet::Tokens);
        self.state_space(space);
        let depth = Widths::of(site, space).inner;
        let output = Matrix { columns: hidden, depth, format: space.output_format };
        let choice = linear::choose(site, "output projection", output)?;
        self.gated_norm(space, depth, Input::of(&choice));
        self.gemm(output, &choice, RowSet::Tokens);
        self.sum_and_norm(Sum { width: hidden, adds: true, adjacent: true, needed: true }, next);
        Ok(())
    }

    /// Convolution and state space, apart for decodes and for prompts.
    fn state_space(&mut self, space: &Mamba2) {
        let (site, plain) = (self.site, self.site.element_bytes());
        let widths = Widths::of(site, space);
        let settings = site.resolved.cache.states.expect("a model with states has their settings");
        let reached = settings.conv_format.stored_bytes(u64::from(space.conv_tokens - 1), widths.convolved());
        let states = settings.ssm_format.stored_bytes(1, widths.states);
        let stream = |bytes_per_row| PrimitiveShape::Stream { bytes_per_row };
        // A decode reads and writes its token and what the convolution reaches back to, then its states, and reads its step.
        let update = stream(2 * (plain * widths.convolved() + reached));
        self.push(Primitive::Convolution, TRITON_CAUSAL_CONV_UPDATE, update, RowSet::Decodes, RowRange::ALL);
        let token = plain * (widths.convolved() + widths.inner + widths.heads);
        self.push(Primitive::RecurrentDecode, TRITON_SELECTIVE_UPDATE, stream(2 * states + token), RowSet::Decodes, RowRange::ALL);
        let through = stream(2 * plain * widths.convolved());
        self.push(Primitive::Convolution, TRITON_CAUSAL_CONV, through, RowSet::Prefills, RowRange::ALL);
        let shape = scan(site, space, states);
        self.push(Primitive::RecurrentScan, TRITON_SSD_SCAN, shape, RowSet::Requests, RowRange::ALL);
    }

    /// The norm of each group of heads, under the gate, and the quantisation of what it yields.
    fn gated_norm(&mut self, space: &Mamba2, width: u64, input: Input) {
        let (site, plain) = (self.site, self.site.element_bytes());
        let quantised = elementwise::compiled_quantises(site, input);
        let written = if quantised { input.bytes(width, plain) } else { plain * width };
        // Eight operations where nothing is compiled, most of them in 32 bits: gate, product, squares, means, scaling and weighting.
        let (kernel, bytes) =
            if site.compiled() { (INDUCTOR_FUSED, 2 * plain * width + written) } else { (TORCH_GATED_NORM, EAGER_NORM * width) };
        self.stream(Primitive::Norm, kernel, bytes);
        if space.groups == 1 && site.ranks > 1 {
            // One norm over the heads of all ranks: their sums of squares, in 32 bits, are summed before it ends.
            self.all_reduce(WIDE);
            self.stream(Primitive::Norm, kernel, 2 * WIDE * width);
        }
        if !quantised {
            self.quantise_if_needed(input, width, RowSet::Tokens, RowRange::ALL);
        }
    }
}

/// What the kernels of a scan read and write; `states` are the bytes of a cached state.
fn scan(site: &Site<'_>, space: &Mamba2, states: u64) -> PrimitiveShape {
    let (plain, widths, chunk) = (site.element_bytes(), Widths::of(site, space), u64::from(space.chunk_tokens));
    // Written for each chunk and read where they are passed on, in 32 bits; written there and read by outputs as they are cached.
    let of_chunk = 2 * WIDE * widths.states + 2 * states;
    // Inputs of heads twice and their outputs; what groups write and read, twice each; products within a chunk, written and read; steps,
    // and steps and decays in 32 bits, written once and read twice.
    let products = 2 * WIDE * chunk * widths.groups / u64::from(space.state_dim);
    let token = 3 * plain * widths.inner + 4 * plain * widths.groups + products + (plain + 6 * WIDE) * widths.heads;
    // The last chunk of a row is half empty on average; its states are copied out of all chunks' and into the cache.
    PrimitiveShape::Scan { bytes_per_token: token + of_chunk / chunk, bytes_per_row: of_chunk / 2 + 4 * states }
}

/// Weights of a layer on one rank.
pub(super) fn weights(site: &Site<'_>, space: &Mamba2, add: &mut impl FnMut(&str, u64)) {
    let (hidden, plain, widths) = (site.model.hidden_size, site.element_bytes(), Widths::of(site, space));
    let columns = widths.inner + widths.convolved() + widths.heads;
    add("input projection", linear::resident_bytes(site, space.input_format, columns, hidden));
    add("convolution", widths.convolved() * (u64::from(space.conv_tokens) + u64::from(space.conv_bias)) * plain);
    add("decays, direct paths and offsets", (FormatName::Fp32.stored_bytes(1, 1) + 2 * plain) * widths.heads);
    add("gated norm", widths.inner * plain);
    add("output projection", linear::resident_bytes(site, space.output_format, hidden, widths.inner));
}
