//! What a processed step means: tokens appended, requests ended, blocks made findable.
//!
//! upstream: vllm `v1/core/sched/scheduler.py::Scheduler.update_from_output`; `v1/core/sched/async_scheduler.py::AsyncScheduler`

use blis_contracts::engine::FinishReason;

use super::batch::{Batch, Row};
use super::scheduler::{Output, Scheduler};
use crate::kv::manager::KvManager;
use crate::request::{Identity, Progress, Slot, Status};

/// What a step gave one request: at least one token.
struct Gain {
    tokens: u32,
    /// The last of them ended it.
    finished: Option<FinishReason>,
}

impl Scheduler {
    /// Applies the output of `batch`, the oldest in flight, and tells what each request gained, in order. Answers the requests that
    /// ended because their grammar has failed.
    #[inline]
    pub fn process(&mut self, batch: &Batch, mut told: impl FnMut(Output)) -> Vec<Output> {
        let mut somebody_is_gone = false;
        if let Some(speculation) = &self.features.speculation {
            self.draft_stats.begin(speculation.tokens);
        }
        for row in &batch.rows {
            somebody_is_gone |= self.process_row(row, batch, &mut told);
        }
        if somebody_is_gone {
            self.running.retain(|slot| self.requests.progress(*slot).status == Status::Running);
        }
        let failed = if self.failed.is_empty() { Vec::new() } else { self.end_failed() };
        if !self.config.async_scheduling && self.features.speculation.is_some() {
            self.note_drafts(batch);
        }
        if somebody_is_gone {
            batch.rows.iter().for_each(|row| self.requests.recycle_if_unnamed(row.slot));
        }
        failed
    }

    /// Tells what the request of a row gained, if anything; answers whether it is over, now or since before.
    #[inline]
    fn process_row(&mut self, row: &Row, batch: &Batch, told: &mut impl FnMut(Output)) -> bool {
        let mut progress = self.requests.progress_mut(row.slot);
        progress.batches -= 1;
        progress.in_flight -= row.tokens;
        let stale = progress.stale > 0;
        if stale {
            cov_mark::hit!(stale_output_delivered);
            progress.stale -= row.tokens;
        }
        let status = progress.status;
        if status == Status::Finished || !row.samples {
            return status == Status::Finished;
        }
        let mut most = 1;
        if row.drafts > 0 {
            most += self.verify(row, batch, stale);
            progress = self.requests.progress_mut(row.slot);
        }
        let Gain { tokens, finished } = append(&mut self.kv, row.slot, progress, most, self.config.max_model_len);
        if self.config.async_scheduling && !stale {
            progress.placeholders -= tokens;
        }
        if self.config.async_scheduling && status == Status::Running {
            let processed = progress.computed - progress.placeholders;
            self.kv.cache_processed(row.slot, progress, processed);
        }
        let (prompt, outputs) = (progress.prompt, progress.outputs());
        let Identity { id, external, cached_prompt, .. } = *self.requests.identity(row.slot);
        told(Output { external, id, gained: tokens, finished, failed: false, prompt, outputs, cached_prompt });
        if finished.is_some() {
            if status != Status::Running {
                cov_mark::hit!(end_while_preempted);
                self.waiting.remove(row.slot, self.requests.identity(row.slot));
                self.set_deferred(row.slot, false);
            }
            self.free(row.slot);
        }
        finished.is_some()
    }

    /// Drafts of a row that were right. The others take back what they were counted for, unless a preemption already has.
    #[cold]
    fn verify(&mut self, row: &Row, batch: &Batch, stale: bool) -> u32 {
        let speculation = self.features.speculation.as_ref().expect("only an engine that drafts schedules drafts");
        let ordinal = self.features_of(row.slot).ordinal;
        let outputs = self.requests.progress(row.slot).outputs();
        let void = batch.masks.iter().find(|mask| mask.slot == row.slot).map_or(0, |mask| mask.void);
        let accepted = speculation.profile.accepted(ordinal, outputs, row.drafts).min(batch.allowed(row));
        self.draft_stats.observe(row.drafts - void, accepted);
        if !stale {
            let rejected = u32::from(row.drafts - accepted);
            let progress = self.requests.progress_mut(row.slot);
            progress.computed -= rejected;
            progress.placeholders = progress.placeholders.saturating_sub(rejected);
        }
        accepted.into()
    }

    /// Ends the requests whose grammar has failed.
    #[cold]
    fn end_failed(&mut self) -> Vec<Output> {
        let mut ended = Vec::new();
        for slot in std::mem::take(&mut self.failed) {
            if self.requests.progress(slot).status == Status::Finished {
                continue;
            }
            self.waiting.remove(slot, self.requests.identity(slot));
            self.set_deferred(slot, false);
            ended.push(Output { failed: true, ..self.output(slot, 0, None) });
            self.free(slot);
            self.requests.recycle_if_unnamed(slot);
        }
        ended
    }

    /// Without asynchronous scheduling the drafts of a step are known once it is processed.
    fn note_drafts(&mut self, batch: &Batch) {
        for row in &batch.rows {
            if self.requests.progress(row.slot).status != Status::Finished {
                self.attach_drafts(*row, batch.next_drafts);
            }
        }
    }
}

/// Appends up to `most` tokens to a request, at least one and none beyond its end.
#[inline]
fn append(kv: &mut KvManager, slot: Slot, progress: &mut Progress, most: u32, max_model_len: u32) -> Gain {
    let mut tokens = 0;
    loop {
        progress.tokens += 1;
        tokens += 1;
        kv.token_appended(slot, progress);
        let finished = progress.check_stop(max_model_len);
        if finished.is_some() || tokens == most {
            return Gain { tokens, finished };
        }
    }
}
