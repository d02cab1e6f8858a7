//! Second half of a step: waiting requests, in order, until something stands in the way of the first.
//!
//! upstream: vllm `v1/core/sched/scheduler.py::Scheduler.schedule` (the loop over `waiting`)

use super::batch::{Batch, Entry, Mask, Row};
use super::running::Budgets;
use super::scheduler::{Barrier, Scheduler};
use crate::kv::manager::Admission;
use crate::request::{Slot, Status};

impl Scheduler {
    pub(super) fn admit_waiting(&mut self, budgets: &mut Budgets, batch: &mut Batch) {
        self.barrier = loop {
            let Some(slot) = self.waiting.front() else { break None };
            if budgets.left() == 0 {
                cov_mark::hit!(token_budget_spent);
                break Some(Barrier::TokenBudget);
            }
            if self.running.len() >= self.config.max_num_active_seqs as usize {
                cov_mark::hit!(running_cap_reached);
                break Some(Barrier::RunningCap);
            }
            if self.is_passed_over(slot, batch) {
                self.waiting.pop();
                self.set_deferred(slot, true);
                self.skipped.push(slot);
                continue;
            }
            if let Err(barrier) = self.admit(slot, budgets, batch) {
                break Some(barrier);
            }
        };
        if !self.skipped.is_empty() {
            self.barrier = self.barrier.or(Some(Barrier::Step));
            for slot in self.skipped.drain(..).rev() {
                self.waiting.push_front(slot, self.requests.identity(slot));
            }
        }
    }

    /// Whether the requests behind this one may be looked at first.
    fn is_passed_over(&mut self, slot: Slot, batch: &Batch) -> bool {
        if self.requests.progress(slot).stale > 0 {
            // Its own outputs are in flight: computing them again now would deliver them twice.
            cov_mark::hit!(stale_output_in_flight);
            return true;
        }
        self.skip_of(slot, batch).is_some()
    }

    /// Tokens of a new decode, which is widened by drafts that nobody has made where everything else in the step is that wide; `None`
    /// where the step has no room for them.
    fn widened(&self, wanted: u32, cached: u32, budgets: &Budgets, batch: &Batch) -> Option<(u32, u8)> {
        let Some(speculation) = self.features.speculation.as_ref().filter(|speculation| speculation.by_batch.is_none()) else {
            return Some((wanted, 0));
        };
        let others_run = batch.rows.iter().any(|row| row.admission.is_none());
        let width = 1 + u32::from(speculation.tokens);
        if wanted != 1 || budgets.has_prompt || !(others_run || cached > 0) || cached + width + 1 > self.config.max_model_len {
            return Some((wanted, 0));
        }
        cov_mark::hit!(new_decode_widened);
        (width <= budgets.left()).then_some((width, speculation.tokens))
    }

    fn admit(&mut self, slot: Slot, budgets: &mut Budgets, batch: &mut Batch) -> Result<(), Barrier> {
        let progress = self.requests.progress_mut(slot);
        let cached = self.kv.look_up(slot, progress);
        if budgets.only_decodes && cached + 1 < progress.tokens {
            return Err(Barrier::Step);
        }
        let wanted = progress.tokens - cached;
        let (wanted, drafts) = self.widened(wanted, cached, budgets, batch).ok_or(Barrier::TokenBudget)?;
        let wanted = budgets.cut_long_prefill(wanted);
        if !self.config.enable_chunked_prefill && wanted > budgets.left() {
            cov_mark::hit!(prompt_not_chunked);
            return Err(Barrier::TokenBudget);
        }
        let allowed = wanted.min(budgets.left());
        let cut = self.cut_at_states(self.requests.progress(slot), cached, allowed);
        if cut == 0 {
            cov_mark::hit!(chunk_too_small_for_a_state);
            return Err(Barrier::TokenBudget);
        }
        let tokens = self.keep_off_the_end(self.requests.progress(slot), cached, cut);
        if tokens == 0 {
            return Err(Barrier::TokenBudget);
        }
        let progress = self.requests.progress_mut(slot);
        let gate = Admission { full_sequence_must_fit: self.config.scheduler_reserve_full_isl, beside_others: !self.running.is_empty() };
        if !self.kv.admit(slot, progress, tokens, gate) {
            cov_mark::hit!(no_blocks_for_admission);
            return Err(Barrier::KvBlocks);
        }
        let entry = if progress.status == Status::Preempted { Entry::Resumed } else { Entry::First };
        progress.status = Status::Running;
        progress.computed = cached;
        if progress.preemptions == 0 {
            self.requests.identity_mut(slot).cached_prompt = cached;
        }
        self.waiting.pop();
        self.set_deferred(slot, false);
        self.running.push(slot);
        batch.rows.push(Row { slot, tokens, context: cached, samples: false, prefill: false, drafts, admission: Some(entry) });
        if drafts > 0 {
            batch.masks.push(Mask { slot, allowed: 0, void: 0 });
        }
        budgets.take(tokens);
        Ok(())
    }
}
