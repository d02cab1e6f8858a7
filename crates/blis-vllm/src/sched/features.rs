//! What only some engines and requests have: drafts, adapters, grammars. A scheduler without them pays for none.
//!
//! upstream: vllm `v1/core/sched/scheduler.py::Scheduler._handle_blocked_waiting_request`, `get_grammar_bitmask`,
//! `update_draft_token_ids`, `update_draft_token_ids_in_output`
//!
//! A grammar is there at a stated time, or fails then. Of masks only the number of rows is known, and how many drafts they cover.
//!
//! Left out: reasoning before a grammar applies, several grammars that fail in one step (upstream ends them in the order of a set).

use blis_contracts::units::SimTime;

use super::batch::{Batch, Mask, Row};
use super::scheduler::Scheduler;
use super::speculation::Speculation;
use crate::request::{Progress, Slot, Status};

/// The features of an engine and of its requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    /// How it drafts.
    pub speculation: Option<Speculation>,
    /// Most adapters in one step, where it serves any.
    pub max_loras: Option<u32>,
    /// By the number of the request.
    pub requests: Vec<RequestFeatures>,
}

/// What a request has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestFeatures {
    /// Its place among the draws of a profile.
    pub ordinal: u32,
    /// The adapter it runs with.
    pub adapter: Option<u32>,
    /// The grammar its output follows.
    pub grammar: Option<Grammar>,
}

/// A grammar that is compiled while its request waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grammar {
    /// When it is there.
    pub ready: SimTime,
    /// It does not compile after all.
    pub fails: bool,
}

/// Why a waiting request is passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Skip {
    /// Its grammar is being compiled, or has failed.
    Grammar,
    /// The step has as many adapters as it may, and the request's is another.
    Adapter,
}

/// The masks of a step: how many rows they have, and how many drafts of each request they cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Masks {
    /// One for each draft and each token after the drafts.
    pub rows: u32,
    /// The requests with a grammar, in the order of the step.
    pub requests: Vec<(Slot, u8)>,
}

impl Scheduler {
    pub(super) fn features_of(&self, slot: Slot) -> RequestFeatures {
        let id = usize::try_from(self.requests.identity(slot).id.0).ok();
        id.and_then(|id| self.features.requests.get(id)).copied().unwrap_or_default()
    }

    fn structured(&self, slot: Slot) -> bool {
        !self.features.requests.is_empty() && self.features_of(slot).grammar.is_some()
    }

    /// A new request with a grammar waits for it from the start.
    pub(super) fn defer_for_grammar(&mut self, slot: Slot) {
        if self.structured(slot) {
            self.set_deferred(slot, true);
        }
    }

    /// Whether the request at the head of the queue is passed over. A failed grammar is noted.
    pub(super) fn skip_of(&mut self, slot: Slot, batch: &Batch) -> Option<Skip> {
        if self.features.requests.is_empty() {
            return None;
        }
        let RequestFeatures { adapter, grammar, .. } = self.features_of(slot);
        if let Some(grammar) = grammar.filter(|_| self.requests.progress(slot).status == Status::Waiting) {
            if self.now < grammar.ready {
                cov_mark::hit!(grammar_not_compiled_yet);
                return Some(Skip::Grammar);
            }
            if grammar.fails {
                cov_mark::hit!(grammar_fails);
                if !self.failed.contains(&slot) {
                    self.failed.push(slot);
                }
                return Some(Skip::Grammar);
            }
        }
        let adapter = adapter?;
        self.adapter_is_one_too_many(adapter, batch).then_some(Skip::Adapter)
    }

    /// Whether a step that has `batch` may not take this adapter as well. Of running requests only those in the step count.
    fn adapter_is_one_too_many(&self, adapter: u32, batch: &Batch) -> bool {
        let Some(most) = self.features.max_loras else { return false };
        let mut present: Vec<u32> = batch.rows.iter().filter_map(|row| self.features_of(row.slot).adapter).collect();
        present.sort_unstable();
        present.dedup();
        present.len() >= most as usize && !present.contains(&adapter)
    }

    /// Drafts that a request carries into its next step, when `next` have been made. They wait for nothing: the device knows them.
    pub(super) fn attach_drafts(&mut self, row: Row, next: u8) {
        let Some(speculation) = &self.features.speculation else { return };
        let progress = self.requests.progress(row.slot);
        let drafts = if progress.prefilling {
            0
        } else if self.structured(row.slot) {
            speculation.profile.allowed(self.features_of(row.slot).ordinal, progress.outputs(), next)
        } else {
            next
        };
        self.requests.progress_mut(row.slot).drafts = drafts;
    }

    /// Notes what the masks of a step wait for: of requests with a grammar, the tokens in flight; of their drafts, the names.
    pub(super) fn note_grammar(&self, row: Row, progress: &Progress, batch_waits: &mut bool, masks: &mut Vec<Mask>) {
        if !self.structured(row.slot) || progress.prefilling {
            return;
        }
        if self.config.async_scheduling {
            *batch_waits |= progress.placeholders > 0;
            if row.drafts > 0 && masks.iter().all(|mask| mask.slot != row.slot) {
                masks.push(Mask { slot: row.slot, allowed: 0, void: 0 });
            }
        }
    }

    /// The step before has been processed: the drafts it made for requests with a grammar have names, and those the grammar forbids are void.
    pub fn name_drafts(&self, before: &Batch, batch: &mut Batch) {
        let Some(speculation) = &self.features.speculation else { return };
        for mask in &mut batch.masks {
            let Some(row) = batch.rows.iter().find(|row| row.slot == mask.slot) else { continue };
            let drafted = before.rows.iter().any(|row| row.slot == mask.slot && row.samples);
            if !drafted || self.requests.progress(mask.slot).status == Status::Finished {
                continue;
            }
            let outputs = self.requests.progress(mask.slot).outputs();
            let made = row.drafts.min(before.next_drafts);
            mask.allowed = speculation.profile.allowed(self.features_of(mask.slot).ordinal, outputs, made);
            mask.void = row.drafts - mask.allowed;
        }
    }

    /// The masks that sampling a step needs; none where no request of it has a grammar.
    pub fn masks(&self, batch: &Batch) -> Option<Masks> {
        if self.features.requests.is_empty() {
            return None;
        }
        let wants = |row: &&Row| {
            let progress = self.requests.progress(row.slot);
            progress.status != Status::Finished && !progress.prefilling && self.structured(row.slot)
        };
        let mut masks = Masks { rows: 0, requests: Vec::new() };
        for row in batch.rows.iter().filter(wants) {
            masks.rows += 1 + u32::from(row.drafts);
            masks.requests.push((row.slot, batch.allowed(row)));
        }
        (!masks.requests.is_empty()).then_some(masks)
    }
}
