//! Attention of one step: exact integer sums over its decode requests, and a loop over its prefill rows.
//!
//! Every class of decode attention reads the same sums, one per distinct window or chunk. Where the kernel that serves decode is also the
//! one that serves prefill, a step with both makes one call: what its prompts take and what the decodes add to the work, and
//! no less than the decodes alone.

use blis_contracts::plan::{Dealing, PrimitiveShape};
use blis_contracts::step::{PrefillRow, RankStep};
use blis_registry::vocabulary::Input;

use crate::calls::Calls;
use crate::chunks;
use crate::dealing::{Dealt, block};
use crate::forms::{Form, Parts, Rows};
use crate::inputs::Inputs;
use crate::operation::Operation;
use crate::sparse::SparseClass;

/// Every attention operation of a stage.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Attention {
    pub(crate) decode: Vec<DecodeClass>,
    pub(crate) prefill: Vec<PrefillClass>,
    pub(crate) sparse: Vec<SparseClass>,
}

/// One class of decode attention.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DecodeClass {
    pub(crate) operation: Operation,
    window: u32,
    chunk: u32,
    /// The class of prefill whose calls serve a step's decode requests too, where it has prefill rows.
    shared: Option<usize>,
    /// Whom its blocks are dealt to in turn; none where they are dealt evenly.
    dealt: Option<Dealt>,
    pub(crate) tally: Tally,
}

/// One class of prefill attention.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PrefillClass {
    pub(crate) operation: Operation,
    chunk: u32,
    pub(crate) tally: Tally,
}

/// Calls priced so far, apart by whether they lay within the fitted range.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Tally {
    pub(crate) inside: Part,
    pub(crate) outside: Part,
}

/// Calls priced so far on one side of the fitted range.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    pub(crate) microseconds: f64,
    pub(crate) steps: u64,
    /// The inputs of the last call, by which the whole is judged.
    pub(crate) last: Inputs,
}

impl Default for Part {
    fn default() -> Self {
        Self { microseconds: 0.0, steps: 0, last: Inputs::NONE }
    }
}

/// The price of all calls of a class in one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Priced {
    pub(crate) microseconds: f64,
    pub(crate) extrapolated: bool,
    /// The inputs of the call; of its longest row for prefill.
    pub(crate) inputs: Inputs,
}

impl Tally {
    pub(crate) fn add(&mut self, priced: &Priced) {
        let part = if priced.extrapolated { &mut self.outside } else { &mut self.inside };
        part.microseconds += priced.microseconds;
        part.steps += 1;
        part.last = priced.inputs;
    }
}

impl Attention {
    /// `processors` are those of a chip.
    pub(crate) fn new(decode: Vec<Operation>, prefill: Vec<Operation>, sparse: Vec<SparseClass>, processors: u32) -> Self {
        let same_call = |operation: &Operation| {
            prefill
                .iter()
                .position(|other| other.kernel == operation.kernel && other.shape == operation.shape && other.count == operation.count)
        };
        let decode = decode
            .into_iter()
            .map(|operation| {
                let (window, chunk) = limits_of(&operation.shape);
                let dealt = dealt(&operation.shape, processors);
                DecodeClass { window, chunk, shared: same_call(&operation), dealt, operation, tally: Tally::default() }
            })
            .collect();
        let class = |operation: Operation| {
            let (_, chunk) = limits_of(&operation.shape);
            PrefillClass { operation, chunk, tally: Tally::default() }
        };
        let prefill = prefill.into_iter().map(class).collect();
        Self { decode, prefill, sparse }
    }

    /// Attention calls of one pass with decode requests, prefill rows or both.
    pub(crate) fn calls(&self, step: &RankStep) -> Calls {
        let merged = |class: &DecodeClass| class.shared.is_some_and(|prompts| runs(&self.prefill[prompts].operation, step.prefill.len()));
        let decode = self.decode.iter().filter(|class| runs(&class.operation, step.decode.len()) && !merged(class));
        let prefill = self.prefill.iter().filter(|class| runs(&class.operation, step.prefill.len()));
        let sparse = self.sparse.iter().filter(|class| class.runs(step));
        let calls = decode.map(|class| class.operation.calls()).chain(prefill.map(|class| class.operation.calls()));
        calls.chain(sparse.map(|class| class.operation.calls())).sum()
    }

    /// The price of each class of prefill; of none where the step has no prefill row.
    pub(crate) fn prompts(&self, step: &RankStep) -> Vec<Option<Priced>> {
        let classes = if step.prefill.is_empty() { &[] } else { self.prefill.as_slice() };
        classes.iter().map(|class| class.price(step)).collect()
    }

    /// Microseconds of one step; counts it.
    pub(crate) fn price(&mut self, step: &RankStep) -> f64 {
        let prompts = self.prompts(step);
        let mut total = 0.0;
        for class in &mut self.decode {
            if let Some(priced) = class.price(step, &prompts) {
                total += priced.microseconds;
                class.tally.add(&priced);
            }
        }
        for (class, priced) in self.prefill.iter_mut().zip(prompts) {
            if let Some(priced) = priced {
                total += priced.microseconds;
                class.tally.add(&priced);
            }
        }
        for class in &mut self.sparse {
            if let Some(priced) = class.price(step) {
                total += priced.microseconds;
                class.tally.add(&priced);
            }
        }
        total
    }
}

impl DecodeClass {
    /// All calls of the class, beside those of the classes of prefill; none where the step has no decode request.
    pub(crate) fn price(&self, step: &RankStep, prompts: &[Option<Priced>]) -> Option<Priced> {
        if !runs(&self.operation, step.decode.len()) {
            return None;
        }
        let visible =
            if self.chunk > 0 { chunks::visible_tokens(&step.decode, self.chunk) } else { visible_tokens(&step.decode, self.window) };
        let cut = self.window > 0 && step.decode.iter().any(|&cached| cached >= self.window);
        let mut inputs = *self.operation.fixed();
        inputs.set(Input::Requests, step.decode.len() as f64);
        inputs.set(Input::Context, visible as f64);
        inputs.set(Input::Windowed, if cut { 1.0 } else { 0.0 });
        let Parts { latency, body } = self.operation.term.form().parts(&inputs);
        let alone = latency + body * self.dealt.map_or(1.0, |dealt| dealt.stretch(&step.decode, step.launch));
        let count = f64::from(self.operation.count);
        // Beside prompts, whose blocks are many more, decodes are one part each and fill what those leave.
        let prompts = self.shared.and_then(|class| *prompts.get(class)?);
        let microseconds = prompts.map_or(count * alone, |prompts| (count * body).max(count * alone - prompts.microseconds));
        let extrapolated = self.operation.term.extrapolates(&inputs);
        Some(Priced { microseconds, extrapolated, inputs })
    }
}

impl PrefillClass {
    /// All calls of the class; none where the step has no prefill row.
    pub(crate) fn price(&self, step: &RankStep) -> Option<Priced> {
        if !runs(&self.operation, step.prefill.len()) {
            return None;
        }
        let longest = step.prefill.iter().flat_map(|&row| chunks::rows(row, self.chunk)).max_by_key(|row| row.query)?;
        let inputs = self.row(longest);
        let form = self.operation.term.form();
        if matches!(form, Form::Recurrence(_) | Form::Scan(_)) {
            let (rows, tokens) = (step.prefill.len() as f64, step.prefill.iter().map(|row| u64::from(row.query)).sum::<u64>() as f64);
            let inputs = inputs.with(Input::Rows, rows).with(Input::Tokens, tokens).with(Input::Bytes, self.moved(rows, tokens));
            let extrapolated = self.operation.term.extrapolates(&inputs);
            return Some(Priced { microseconds: f64::from(self.operation.count) * form.price(&inputs), extrapolated, inputs });
        }
        let Form::AttentionPrefill(form) = form else {
            // An entry that is not charged.
            return Some(Priced { microseconds: 0.0, extrapolated: false, inputs });
        };
        let mut rows = Rows::NONE;
        let mut extrapolated = false;
        for row in step.prefill.iter().flat_map(|&row| chunks::rows(row, self.chunk)) {
            let inputs = self.row(row);
            form.add(&inputs, &mut rows);
            extrapolated |= self.operation.term.extrapolates(&inputs);
        }
        let call = form.finish(&inputs, rows).total();
        Some(Priced { microseconds: f64::from(self.operation.count) * call, extrapolated, inputs })
    }

    /// Bytes that a scan moves; 0 for another operation.
    fn moved(&self, rows: f64, tokens: f64) -> f64 {
        let PrimitiveShape::Scan { bytes_per_token, bytes_per_row } = self.operation.shape else { return 0.0 };
        tokens * bytes_per_token as f64 + rows * bytes_per_row as f64
    }

    fn row(&self, row: PrefillRow) -> Inputs {
        let fixed = self.operation.fixed();
        fixed.with(Input::Rows, 1.0).with(Input::New, f64::from(row.query)).with(Input::Cached, f64::from(row.context))
    }
}

/// Whether a call over so many requests is made, and by this kernel.
fn runs(operation: &Operation, requests: usize) -> bool {
    u32::try_from(requests).is_ok_and(|requests| requests > 0 && operation.runs_for.contains(requests))
}

/// Tokens of the window and of the chunk that a query sees; 0 where there is none.
fn limits_of(shape: &PrimitiveShape) -> (u32, u32) {
    match shape {
        PrimitiveShape::Attention { window, chunk, .. } => (*window, *chunk),
        PrimitiveShape::Gemm { .. }
        | PrimitiveShape::BatchedGemm { .. }
        | PrimitiveShape::Latent { .. }
        | PrimitiveShape::Traffic { .. }
        | PrimitiveShape::Gathered { .. }
        | PrimitiveShape::Scores { .. }
        | PrimitiveShape::Recurrent { .. }
        | PrimitiveShape::Scan { .. }
        | PrimitiveShape::Moe { .. }
        | PrimitiveShape::Collective { .. }
        | PrimitiveShape::Stream { .. }
        | PrimitiveShape::Sampling { .. } => (0, 0),
    }
}

/// Whom a call's blocks are dealt to in turn, if they are; windows and chunks are of one length for nearly all requests.
fn dealt(shape: &PrimitiveShape, processors: u32) -> Option<Dealt> {
    let PrimitiveShape::Attention {
        dealing: Dealing::InTurn { parts_in_graph }, kv_heads, head_dim, kv_format, window: 0, chunk: 0, ..
    } = *shape
    else {
        return None;
    };
    Some(Dealt { kv_heads, processors, block: block(head_dim, kv_format), parts_in_graph })
}

/// Tokens that all decode requests attend to, their new ones included: an exact integer sum, whatever the order.
pub(crate) fn visible_tokens(cached: &[u32], window: u32) -> u64 {
    let most = if window == 0 { u32::MAX } else { window };
    let cached_sum: u64 = cached.iter().map(|&cached| u64::from(cached.min(most - 1))).sum();
    cached_sum + cached.len() as u64
}
