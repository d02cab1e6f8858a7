//! First half of a step: the running requests, in order, and whom to preempt when blocks run out.
//!
//! upstream: vllm `v1/core/sched/scheduler.py::Scheduler.schedule` (the loop over `running`), `_preempt_request`

use super::batch::{Batch, Row};
use super::queue::Policy;
use super::scheduler::Scheduler;
use crate::request::{Progress, Slot, Status};

/// What a step may still schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budgets {
    /// Tokens left of `max_num_scheduled_tokens`.
    pub(super) tokens: u32,
    /// Rows left of `max_num_batched_tokens`.
    pub(super) inputs: u32,
    /// Most tokens of one request; 0 for no limit.
    long_prefill: u32,
    /// Rows of the inputs that drafting takes for each request.
    draft_slots: u32,
    /// The step goes on with a prompt.
    pub(super) has_prompt: bool,
    /// Prompts neither begin nor go on.
    pub(super) only_decodes: bool,
}

/// How far the look at the running requests has come.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The request in hand.
    index: usize,
    budgets: Budgets,
}

/// What preempting others came to.
struct Room {
    /// The request can grow; else it had to go itself.
    made: bool,
    place: Place,
}

impl Budgets {
    pub(super) fn take(&mut self, tokens: u32) {
        self.tokens -= tokens;
        self.inputs -= tokens + self.draft_slots;
    }

    fn give_back(&mut self, tokens: u32) {
        self.tokens += tokens;
        self.inputs += tokens + self.draft_slots;
    }

    pub(super) fn cut_long_prefill(&self, tokens: u32) -> u32 {
        if self.long_prefill > 0 { tokens.min(self.long_prefill) } else { tokens }
    }

    pub(super) fn left(&self) -> u32 {
        self.tokens.min(self.inputs.saturating_sub(self.draft_slots))
    }
}

impl Scheduler {
    /// The budgets of a fresh step. A single request has nobody to starve, so its prompt is not cut short.
    pub(super) fn budgets(&self, only_decodes: bool) -> Budgets {
        let config = &self.config;
        let eligible = u32::try_from(self.running.len() + self.waiting.len()).expect("fewer than 2^32 requests");
        let mut long_prefill = if eligible > 1 { config.long_prefill_token_threshold } else { 0 };
        if long_prefill > 0 && config.long_prefill_token_threshold_adaptive {
            long_prefill = long_prefill.max(config.max_num_batched_tokens / eligible);
        }
        Budgets {
            tokens: config.max_num_scheduled_tokens,
            inputs: config.max_num_batched_tokens,
            long_prefill,
            draft_slots: self.features.speculation.as_ref().map_or(0, |speculation| speculation.draft_slots),
            has_prompt: false,
            only_decodes,
        }
    }

    /// Schedules the running requests, in order; answers what they leave of the budgets.
    pub(super) fn schedule_running(&mut self, mut budgets: Budgets, batch: &mut Batch) -> Budgets {
        let mut index = 0;
        while let Some(&slot) = self.running.get(index) {
            let left = budgets.left();
            if left == 0 {
                break;
            }
            let tokens = self.tokens_for_running(self.requests.progress(slot), &budgets, left);
            if tokens == 0 {
                // Later requests may still run.
                index += 1;
                continue;
            }
            let mut progress = self.requests.progress_mut(slot);
            if !self.kv.grow(slot, progress, tokens) {
                let room = self.make_room(slot, tokens, Place { index, budgets }, batch);
                Place { index, budgets } = room.place;
                if !room.made {
                    break;
                }
                progress = self.requests.progress_mut(slot);
            }
            budgets.has_prompt |= progress.prefilling;
            let drafts = progress.take_drafts(tokens);
            batch.rows.push(Row { slot, tokens, context: progress.computed, samples: false, prefill: false, drafts, admission: None });
            budgets.take(tokens);
            index += 1;
        }
        budgets
    }

    /// Preempts until a request can grow.
    #[cold]
    fn make_room(&mut self, slot: Slot, tokens: u32, mut place: Place, batch: &mut Batch) -> Room {
        loop {
            if self.preempt_one(&mut place, batch) == slot {
                return Room { made: false, place };
            }
            if self.kv.grow(slot, self.requests.progress_mut(slot), tokens) {
                return Room { made: true, place };
            }
        }
    }

    /// Tokens to schedule for a running request of the `left` that the step has room for; 0 to leave it out.
    #[inline]
    fn tokens_for_running(&self, progress: &Progress, budgets: &Budgets, left: u32) -> u32 {
        if progress.placeholders > 0 && progress.computed + 2 - progress.placeholders >= progress.limit {
            cov_mark::hit!(no_step_beyond_max_tokens);
            return 0;
        }
        if self.steps < progress.not_before {
            cov_mark::hit!(decode_still_in_the_pipeline);
            return 0;
        }
        if budgets.only_decodes && progress.prefilling {
            cov_mark::hit!(prompt_left_for_a_later_step);
            return 0;
        }
        let wanted = progress.tokens + u32::from(progress.drafts) + progress.placeholders - progress.computed;
        let room = (self.config.max_model_len - 1).saturating_sub(progress.computed);
        let allowed = budgets.cut_long_prefill(wanted).min(left).min(room);
        let tokens = self.cut_at_states(progress, progress.computed, allowed);
        self.keep_off_the_end(progress, progress.computed, tokens)
    }

    /// Tokens of a chunk, fewer where it would end so close to the end that drafting could not read on.
    ///
    /// upstream: vllm `v1/core/sched/scheduler.py::Scheduler._reserve_prefill_lookahead`
    #[inline]
    pub(super) fn keep_off_the_end(&self, progress: &Progress, computed: u32, tokens: u32) -> u32 {
        let Some(speculation) = &self.features.speculation else { return tokens };
        let left = progress.tokens.saturating_sub(computed + tokens);
        if left == 0 || left >= speculation.prefill_lookahead {
            return tokens;
        }
        cov_mark::hit!(chunk_kept_off_the_end);
        tokens.saturating_sub(speculation.prefill_lookahead - left)
    }

    /// Takes the least urgent running request out of the step and of the running list. The place stays at the request that wanted blocks.
    fn preempt_one(&mut self, place: &mut Place, batch: &mut Batch) -> Slot {
        let position = match self.config.policy {
            Policy::Fcfs => self.running.len() - 1,
            Policy::Priority => self.least_urgent_running(),
        };
        let victim = self.running.remove(position);
        if position < place.index {
            place.index -= 1;
        }
        if let Some(row) = batch.rows.iter().position(|row| row.slot == victim) {
            cov_mark::hit!(preemption_of_a_request_already_scheduled);
            place.budgets.give_back(batch.rows.remove(row).tokens);
        }
        self.preempt(victim);
        batch.preempted.push(victim);
        victim
    }

    /// The first of the running requests with the greatest (priority, arrival).
    fn least_urgent_running(&self) -> usize {
        let urgency = |position: &usize| {
            let identity = self.requests.identity(self.running[*position]);
            (identity.priority, identity.arrival)
        };
        // `max_by_key` answers the last of equals, upstream's `max` the first.
        (0..self.running.len()).rev().max_by_key(urgency).expect("somebody runs where blocks have run out")
    }

    /// Outputs in flight become stale: they are still delivered, but the counters have been reset without them.
    fn preempt(&mut self, slot: Slot) {
        cov_mark::hit!(preemption);
        let progress = self.requests.progress_mut(slot);
        debug_assert_eq!(progress.status, Status::Running, "only a running request is preempted");
        self.kv.free(slot, progress);
        progress.status = Status::Preempted;
        progress.computed = 0;
        progress.stale = progress.in_flight;
        progress.placeholders = 0;
        progress.drafts = 0;
        progress.preemptions += 1;
        self.preemptions += 1;
        self.waiting.push_front(slot, self.requests.identity(slot));
    }
}
